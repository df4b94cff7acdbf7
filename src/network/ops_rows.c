/* ops_rows.c - the ops that an exported network may name: what operands each takes, and how it is
 * called. */
#include <string.h>

#include "network/layers.h"
#include "network/op_recipe.h"
#include "network/ops_format.h"

/* ---- what operands have to be like ---- */

static gboolean
same_sizes(const ValueInfo *a, const ValueInfo *b)
{
  return a->dims == b->dims && memcmp(a->shape, b->shape, sizeof(gint64) * a->dims) == 0;
}

static gint64
last_size(const ValueInfo *value)
{
  return value->dims > 0 ? value->shape[value->dims - 1] : 1;
}

static const char *
check_like_first(const OpsStatement *s, const ValueInfo *in)
{
  return same_sizes(&s->out[0], &in[0]) ? NULL : "the result has the first operand's sizes";
}

/* Does it broadcast to the result? */
static gboolean
broadcasts(const ValueInfo *value, const ValueInfo *result)
{
  if (value->dims > result->dims)
    return FALSE;
  for (int i = 0; i < value->dims; i++) {
    gint64 size = value->shape[value->dims - 1 - i];
    if (size != 1 && size != result->shape[result->dims - 1 - i])
      return FALSE;
  }
  return TRUE;
}

static const char *
check_broadcast(const OpsStatement *s, const ValueInfo *in)
{
  gboolean one = same_sizes(&s->out[0], &in[0]) || same_sizes(&s->out[0], &in[1]);
  return one && broadcasts(&in[0], &s->out[0]) && broadcasts(&in[1], &s->out[0])
             ? NULL
             : "one operand has the result's sizes, the other broadcasts to them";
}

static const char *
check_view(const OpsStatement *s, const ValueInfo *in)
{
  return value_elements(&s->out[0]) == value_elements(&in[0])
             ? NULL
             : "a view has as many elements as its operand";
}

static const char *
check_pairs(const OpsStatement *s, const ValueInfo *in)
{
  gboolean real = s->out[0].dtype != DTYPE_COMPLEX64;
  const ValueInfo *pairs = real ? &s->out[0] : &in[0], *complex = real ? &in[0] : &s->out[0];
  return pairs->dims == complex->dims + 1 && last_size(pairs) == 2 &&
                 complex->dtype == DTYPE_COMPLEX64 && pairs->dtype == DTYPE_FP32
             ? NULL
             : "complex numbers are pairs of fp32 in a last dimension of two";
}

static const char *
check_transpose(const OpsStatement *s, const ValueInfo *in)
{
  ValueInfo swapped = in[0];
  if (s->number < 0 || s->number > in[0].dims - 2)
    return "'dim' is one of the operand's dimensions but the last";
  value_swap(&swapped, (int) s->number, (int) s->number + 1);
  return same_sizes(&swapped, &s->out[0]) ? NULL : "the result has 'dim' and the next one swapped";
}

static const char *
check_part(const OpsStatement *s, const ValueInfo *in)
{
  return s->number >= 0 && value_elements(&s->out[0]) <= value_elements(&in[0])
             ? NULL
             : "a part has an offset from 0 on and no more elements than its operand";
}

/* Parts of the last dimension, the first perhaps wider than the others. */
static const char *
check_split(const OpsStatement *s, const ValueInfo *in)
{
  gint64 sum = 0;
  for (int i = 0; i < s->outs; i++) {
    ValueInfo part = s->out[i];
    if (part.dims != in[0].dims || part.dims == 0 ||
        (i > 1 && last_size(&part) != last_size(&s->out[1])))
      return "parts are equally wide but for the first";
    sum += last_size(&part);
    part.shape[part.dims - 1] = last_size(&in[0]);
    if (!same_sizes(&part, &in[0]))
      return "parts differ from the operand in the last dimension alone";
  }
  return sum == last_size(&in[0]) ? NULL : "parts are together as wide as the operand";
}

static const char *
check_cat(const OpsStatement *s, const ValueInfo *in)
{
  gint64 sum = 0;
  for (int i = 0; i < s->ins; i++) {
    ValueInfo part = in[i];
    if (part.dims != s->out[0].dims || part.dims == 0)
      return "operands have as many dimensions as the result";
    sum += last_size(&part);
    part.shape[part.dims - 1] = last_size(&s->out[0]);
    if (!same_sizes(&part, &s->out[0]))
      return "operands differ from the result in the last dimension alone";
  }
  return sum == last_size(&s->out[0]) ? NULL : "operands are together as wide as the result";
}

static const char *
check_expand(const OpsStatement *s, const ValueInfo *in)
{
  return broadcasts(&in[0], &s->out[0]) ? NULL : "the operand broadcasts to the result";
}

/* Sums and means: of everything, or with the reduced dimensions kept. */
static const char *
check_reduction(const OpsStatement *s, const ValueInfo *in)
{
  gboolean kept = s->out[0].dims == in[0].dims && broadcasts(&s->out[0], &in[0]);
  return s->out[0].dims == 0 || kept ? NULL
                                     : "the result is one number or has the reduced sizes as 1";
}

static const char *
check_mean(const OpsStatement *s, const ValueInfo *in)
{
  return value_elements(&s->out[0]) <= value_elements(&in[0])
             ? NULL
             : "a mean is no wider than its operand";
}

static const char *
check_linear(const OpsStatement *s, const ValueInfo *in)
{
  gboolean bias = s->ins < 3 || (in[2].dims == 1 && in[2].shape[0] == in[1].shape[0]);
  return in[0].dims >= 2 && in[1].dims == 2 && in[1].shape[1] == last_size(&in[0]) && bias
             ? NULL
             : "operands are [..., in], [out, in] and perhaps [out]";
}

static const char *
check_products(const ValueInfo *a, const ValueInfo *b, int dims)
{
  gboolean fits = a->dims == dims && b->dims == dims && b->shape[dims - 2] == a->shape[dims - 1] &&
                  (dims < 3 || a->shape[0] == b->shape[0]);
  return fits ? NULL : "factors are matrices [m, k] and [k, n], of bmm as many of each";
}

static const char *
check_mm(const OpsStatement *s, const ValueInfo *in)
{
  (void) s;
  return check_products(&in[0], &in[1], 2);
}

static const char *
check_addmm(const OpsStatement *s, const ValueInfo *in)
{
  ValueInfo product = {.dims = 2, .shape = {in[1].shape[0], in[2].shape[1]}};
  const char *wrong = check_products(&in[1], &in[2], 2);
  (void) s;
  return wrong != NULL                  ? wrong
         : broadcasts(&in[0], &product) ? NULL
                                        : "what is added broadcasts to the product";
}

static const char *
check_bmm(const OpsStatement *s, const ValueInfo *in)
{
  (void) s;
  return check_products(&in[0], &in[1], 3);
}

static const char *
check_norm(const OpsStatement *s, const ValueInfo *in)
{
  for (int i = 1; i < s->ins; i++)
    if (in[i].dims != 1 || in[i].shape[0] != last_size(&in[0]))
      return "gain and bias are as wide as the last dimension";
  return in[0].dims > 0 ? check_like_first(s, in) : "the operand has a dimension";
}

static const char *
check_embedding(const OpsStatement *s, const ValueInfo *in)
{
  (void) s;
  return in[0].dims == 2 && in[1].dims < OP_DIMS && in[1].dtype == DTYPE_INT64
             ? NULL
             : "operands are a table of two dimensions and int64 indices";
}

static const char *
check_rows(const OpsStatement *s, const ValueInfo *in)
{
  return in[0].dims > 0 ? check_like_first(s, in) : "the operand has a dimension";
}

static const char *
check_nll_loss(const OpsStatement *s, const ValueInfo *in)
{
  (void) s;
  return in[0].dims == 2 && in[1].dims == 1 && in[0].shape[0] == in[1].shape[0]
             ? NULL
             : "operands are [rows, classes] and [rows]";
}

static const char *
check_attention(const OpsStatement *s, const ValueInfo *in)
{
  const ValueInfo *q = &in[0], *k = &in[1], *v = &in[2];
  (void) s;
  if (q->dims != 4 || k->dims != 4 || v->dims != 4)
    return "operands are [batch, heads, length, head_dim]";
  gboolean fits = k->shape[0] == q->shape[0] && v->shape[0] == q->shape[0] &&
                  k->shape[1] == v->shape[1] && k->shape[2] == v->shape[2] &&
                  k->shape[3] == q->shape[3] && q->shape[1] % k->shape[1] == 0;
  return fits ? NULL : "queries, keys and values do not go together";
}

static const char *
check_recorded(const OpsStatement *s, const ValueInfo *in)
{
  for (int i = 0; i < s->outs; i++) {
    int of = s->recorded.view_of[i];
    if (of >= 0 && s->recorded.offset[i] < 0)
      return "a view's offset is from 0 on";
    if (of >= 0 && s->out[i].dtype != in[of].dtype)
      return "a view has its operand's dtype";
  }
  return NULL;
}

/* ---- calls ---- */

static void
call_share(Builder *b, Val x, Val *out)
{
  out[0] = builder_share(b, (Val){x.slot, FALSE});
}

/* x.to(dtype), which is x itself if the plan's precision has made it so already. */
static void
call_to(Builder *b, const OpsStatement *s, const Val *in, Val *out)
{
  OpAttributes at = {.result = s->out[0]};
  if (builder_info(b, in[0]).dtype == s->out[0].dtype)
    call_share(b, in[0], out);
  else
    out[0] = builder_op(b, s->row->op, &at, 1, in);
}

static void
call_dropout(Builder *b, const OpsStatement *s, const Val *in, Val *out)
{
  (void) s;
  if (builder_shape(b)->evaluation)
    call_share(b, in[0], out);
  else
    out[0] = builder_op(b, OP_DROPOUT, NULL, 1, in);
}

static void
call_linear(Builder *b, const OpsStatement *s, const Val *in, Val *out)
{
  out[0] = linear_of(b, in[0], in[1], s->ins > 2 ? in[2] : NO_VAL);
}

static void
call_attention(Builder *b, const OpsStatement *s, const Val *in, Val *out)
{
  ValueInfo q = builder_info(b, in[0]), k = builder_info(b, in[1]);
  AttentionCall call = {ATTENTION_SDPA, q.shape[1], k.shape[1],
                        s->dropout && !builder_shape(b)->evaluation, s->ins > 3 ? in[3] : NO_VAL};
  out[0] = attention(b, in[0], in[1], in[2], &call);
}

static void
call_create(Builder *b, const OpsStatement *s, const Val *in, Val *out)
{
  (void) in;
  out[0] = create(b, s->recorded.what, s->out[0]);
}

static void
call_split(Builder *b, const OpsStatement *s, const Val *in, Val *out)
{
  OpAttributes at = {.result = s->out[0], .size = {s->outs}};
  if (s->outs > 1)
    at.size[1] = last_size(&s->out[1]);
  builder_op_multi(b, OP_SPLIT, &at, 1, in, s->outs, out);
}

static void
call_detach(Builder *b, const OpsStatement *s, const Val *in, Val *out)
{
  RecordedOp alias = {.outs = 1, .out = {s->out[0]}, .what = "detach"};
  OpAttributes at = {.recorded = &alias};
  out[0] = builder_op(b, OP_RECORDED_CONSTANT, &at, 1, in);
}

static void
call_recorded(Builder *b, const OpsStatement *s, const Val *in, Val *out)
{
  RecordedOp recorded = s->recorded;
  OpAttributes at = {.recorded = &recorded};
  recorded.backward = (const RecordedStep *) s->backward->data;
  recorded.steps = (int) s->backward->len;
  recorded.outs = s->outs;
  memcpy(recorded.out, s->out, sizeof(recorded.out));
  builder_op_multi(b, s->row->op, &at, s->ins, in, s->outs, out);
}

/* ---- the table ---- */

static const OpsRow rows[] = {
    {"view", OP_VIEW, 1, 1, 1, check_view, NULL},
    {"unsafe_view", OP_UNSAFE_VIEW, 1, 1, 1, check_view, NULL},
    {"transpose", OP_TRANSPOSE, 1, 1, 1, check_transpose, NULL},
    {"view_as_complex", OP_VIEW_AS_COMPLEX, 1, 1, 1, check_pairs, NULL},
    {"view_as_real", OP_VIEW_AS_REAL, 1, 1, 1, check_pairs, NULL},
    {"slice", OP_SLICE, 1, 1, 1, check_part, NULL},
    {"split", OP_SPLIT, 1, 1, 0, check_split, call_split},
    {"expand", OP_EXPAND, 1, 1, 1, check_expand, NULL},
    {"detach", OP_RECORDED_CONSTANT, 1, 1, 1, check_view, call_detach},
    {"to_copy", OP_TO_COPY, 1, 1, 1, check_like_first, call_to},
    {"to_if_needed", OP_TO_IF_NEEDED, 1, 1, 1, check_like_first, call_to},
    {"to_cached", OP_TO_CACHED, 1, 1, 1, check_like_first, call_to},
    {"clone", OP_CLONE, 1, 1, 1, check_like_first, NULL},
    {"add", OP_ADD, 2, 2, 1, check_broadcast, NULL},
    {"add_scalar", OP_ADD_SCALAR, 1, 1, 1, check_like_first, NULL},
    {"mul", OP_MUL, 2, 2, 1, check_broadcast, NULL},
    {"mul_complex", OP_MUL_COMPLEX, 2, 2, 1, check_broadcast, NULL},
    {"mul_scalar", OP_MUL_SCALAR, 1, 1, 1, check_like_first, NULL},
    {"div_scalar", OP_DIV_SCALAR, 1, 1, 1, check_like_first, NULL},
    {"neg", OP_NEG, 1, 1, 1, check_like_first, NULL},
    {"pow", OP_POW, 1, 1, 1, check_like_first, NULL},
    {"rsqrt", OP_RSQRT, 1, 1, 1, check_like_first, NULL},
    {"tanh", OP_TANH, 1, 1, 1, check_like_first, NULL},
    {"silu", OP_SILU, 1, 1, 1, check_like_first, NULL},
    {"gelu", OP_GELU, 1, 1, 1, check_like_first, NULL},
    {"clamp", OP_CLAMP, 1, 1, 1, check_like_first, NULL},
    {"masked_fill", OP_MASKED_FILL, 2, 2, 1, check_like_first, NULL},
    {"mean", OP_MEAN, 1, 1, 1, check_mean, NULL},
    {"sum", OP_SUM, 1, 1, 1, check_reduction, NULL},
    {"cat", OP_CAT, 1, OP_INPUTS, 1, check_cat, NULL},
    {"pad", OP_PAD, 1, 1, 1, NULL, NULL},
    {"dropout", OP_DROPOUT, 1, 1, 1, check_like_first, call_dropout},
    {"linear", OP_MM, 2, 3, 1, check_linear, call_linear},
    {"mm", OP_MM, 2, 2, 1, check_mm, NULL},
    {"addmm", OP_ADDMM, 3, 3, 1, check_addmm, NULL},
    {"bmm", OP_BMM, 2, 2, 1, check_bmm, NULL},
    {"rms_norm", OP_RMS_NORM, 2, 2, 1, check_norm, NULL},
    {"layer_norm", OP_LAYER_NORM, 3, 3, 1, check_norm, NULL},
    {"embedding", OP_EMBEDDING, 2, 2, 1, check_embedding, NULL},
    {"log_softmax", OP_LOG_SOFTMAX, 1, 1, 1, check_rows, NULL},
    {"nll_loss", OP_NLL_LOSS, 2, 2, 1, check_nll_loss, NULL},
    {"softmax", OP_SOFTMAX, 1, 1, 1, check_rows, NULL},
    {"attention", OP_FLASH_ATTENTION, 3, 4, 1, check_attention, call_attention},
    {"create", OP_CREATE, 0, OP_INPUTS, 1, NULL, call_create},
    {"cumsum", OP_CUMSUM, 1, 1, 1, check_rows, NULL},
    {"recorded", OP_RECORDED, 1, OP_INPUTS, 0, check_recorded, call_recorded},
    {"recorded_constant", OP_RECORDED_CONSTANT, 0, OP_INPUTS, 0, check_recorded, call_recorded},
};

const OpsRow *
ops_row_find(const char *name)
{
  for (guint i = 0; i < G_N_ELEMENTS(rows); i++)
    if (strcmp(rows[i].name, name) == 0)
      return &rows[i];
  return NULL;
}

gboolean
ops_row_takes_empty(const OpsRow *row)
{
  return row->op == OP_SLICE || row->op == OP_CAT || row->op == OP_RECORDED ||
         row->op == OP_RECORDED_CONSTANT || row->op == OP_CREATE;
}

char *
ops_row_names(void)
{
  GString *text = g_string_new(NULL);
  for (guint i = 0; i < G_N_ELEMENTS(rows); i++)
    g_string_append_printf(text, "%s%s", i > 0 ? ", " : "", rows[i].name);
  return g_string_free(text, FALSE);
}

char *
ops_value_text(const ValueInfo *value)
{
  GString *text = g_string_new(dtype_name((DType) value->dtype));
  g_string_append_c(text, '[');
  for (int i = 0; i < value->dims; i++)
    g_string_append_printf(text, "%s%" G_GINT64_FORMAT, i > 0 ? "," : "", value->shape[i]);
  g_string_append_c(text, ']');
  if (value_is_contiguous(value))
    return g_string_free(text, FALSE);
  for (int i = 0; i < value->dims; i++)
    g_string_append_printf(text, "%s%" G_GINT64_FORMAT, i > 0 ? "," : "(", value->stride[i]);
  g_string_append_c(text, ')');
  return g_string_free(text, FALSE);
}

void
ops_row_call(Builder *b, const OpsStatement *s, const Val *in, Val *out)
{
  OpAttributes at = {.result = s->out[0], .size = {s->number}};
  if (s->row->call != NULL)
    s->row->call(b, s, in, out);
  else
    builder_op_multi(b, s->row->op, &at, s->ins, in, s->outs, out);
}
