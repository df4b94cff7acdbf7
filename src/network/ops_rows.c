/* ops_rows.c - the ops that an exported network may name: how many operands each takes, and how it
 * is called. */
#include <string.h>

#include "network/layers.h"
#include "network/op_recipe.h"
#include "network/ops_checks.h"

static gint64
last_size(const ValueInfo *value)
{
  return value->dims > 0 ? value->shape[value->dims - 1] : 1;
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
  out[0] = linear_by(b, in[0], in[1], s->ins > 2 ? in[2] : NO_VAL);
}

static void
call_attention(Builder *b, const OpsStatement *s, const Val *in, Val *out)
{
  ValueInfo q = builder_info(b, in[0]), k = builder_info(b, in[1]);
  AttentionCall call = {ATTENTION_SDPA,
                        q.shape[1],
                        k.shape[1],
                        s->dropout && !builder_shape(b)->evaluation,
                        s->ins > 3 ? in[3] : NO_VAL,
                        0};
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
  gint64 sizes[OP_OUTPUTS];
  for (int i = 0; i < s->outs; i++)
    sizes[i] = last_size(&s->out[i]);
  split_parts(b, in[0], s->out[0].dims - 1, s->outs, sizes, out);
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
    {"view", OP_VIEW, 1, 1, 1, ops_check_view, NULL},
    {"unsafe_view", OP_UNSAFE_VIEW, 1, 1, 1, ops_check_view, NULL},
    {"transpose", OP_TRANSPOSE, 1, 1, 1, ops_check_transpose, NULL},
    {"view_as_complex", OP_VIEW_AS_COMPLEX, 1, 1, 1, ops_check_pairs, NULL},
    {"view_as_real", OP_VIEW_AS_REAL, 1, 1, 1, ops_check_pairs, NULL},
    {"slice", OP_SLICE, 1, 1, 1, ops_check_part, NULL},
    {"split", OP_SPLIT, 1, 1, 0, ops_check_split, call_split},
    {"expand", OP_EXPAND, 1, 1, 1, ops_check_expand, NULL},
    {"detach", OP_RECORDED_CONSTANT, 1, 1, 1, ops_check_view, call_detach},
    {"to_copy", OP_TO_COPY, 1, 1, 1, ops_check_like_first, call_to},
    {"to_if_needed", OP_TO_IF_NEEDED, 1, 1, 1, ops_check_like_first, call_to},
    {"to_cached", OP_TO_CACHED, 1, 1, 1, ops_check_like_first, call_to},
    {"clone", OP_CLONE, 1, 1, 1, ops_check_like_first, NULL},
    {"add", OP_ADD, 2, 2, 1, ops_check_broadcast, NULL},
    {"add_scalar", OP_ADD_SCALAR, 1, 1, 1, ops_check_like_first, NULL},
    {"mul", OP_MUL, 2, 2, 1, ops_check_broadcast, NULL},
    {"mul_complex", OP_MUL_COMPLEX, 2, 2, 1, ops_check_broadcast, NULL},
    {"mul_scalar", OP_MUL_SCALAR, 1, 1, 1, ops_check_like_first, NULL},
    {"div_scalar", OP_DIV_SCALAR, 1, 1, 1, ops_check_like_first, NULL},
    {"neg", OP_NEG, 1, 1, 1, ops_check_like_first, NULL},
    {"pow", OP_POW, 1, 1, 1, ops_check_like_first, NULL},
    {"rsqrt", OP_RSQRT, 1, 1, 1, ops_check_like_first, NULL},
    {"tanh", OP_TANH, 1, 1, 1, ops_check_like_first, NULL},
    {"silu", OP_SILU, 1, 1, 1, ops_check_like_first, NULL},
    {"gelu", OP_GELU, 1, 1, 1, ops_check_like_first, NULL},
    {"clamp", OP_CLAMP, 1, 1, 1, ops_check_like_first, NULL},
    {"masked_fill", OP_MASKED_FILL, 2, 2, 1, ops_check_like_first, NULL},
    {"mean", OP_MEAN, 1, 1, 1, ops_check_mean, NULL},
    {"sum", OP_SUM, 1, 1, 1, ops_check_reduction, NULL},
    {"cat", OP_CAT, 1, OP_INPUTS, 1, ops_check_cat, NULL},
    {"pad", OP_PAD, 1, 1, 1, NULL, NULL},
    {"dropout", OP_DROPOUT, 1, 1, 1, ops_check_like_first, call_dropout},
    {"linear", OP_MM, 2, 3, 1, ops_check_linear, call_linear},
    {"mm", OP_MM, 2, 2, 1, ops_check_mm, NULL},
    {"addmm", OP_ADDMM, 3, 3, 1, ops_check_addmm, NULL},
    {"bmm", OP_BMM, 2, 2, 1, ops_check_bmm, NULL},
    {"rms_norm", OP_RMS_NORM, 2, 2, 1, ops_check_norm, NULL},
    {"layer_norm", OP_LAYER_NORM, 3, 3, 1, ops_check_norm, NULL},
    {"embedding", OP_EMBEDDING, 2, 2, 1, ops_check_embedding, NULL},
    {"log_softmax", OP_LOG_SOFTMAX, 1, 1, 1, ops_check_rows, NULL},
    {"nll_loss", OP_NLL_LOSS, 2, 2, 1, ops_check_nll_loss, NULL},
    {"softmax", OP_SOFTMAX, 1, 1, 1, ops_check_rows, NULL},
    {"attention", OP_FLASH_ATTENTION, 3, 4, 1, ops_check_attention, call_attention},
    {"create", OP_CREATE, 0, OP_INPUTS, 1, NULL, call_create},
    {"cumsum", OP_CUMSUM, 1, 1, 1, ops_check_rows, NULL},
    {"recorded", OP_RECORDED, 1, OP_INPUTS, 0, ops_check_recorded, call_recorded},
    {"recorded_constant", OP_RECORDED_CONSTANT, 0, OP_INPUTS, 0, ops_check_recorded, call_recorded},
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
