/* ops_checks.c - what operands of each op of an exported network have to be like. */
#include <string.h>

#include "network/op_recipe.h"
#include "network/ops_checks.h"

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

const char *
ops_check_like_first(const OpsStatement *s, const ValueInfo *in)
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

const char *
ops_check_broadcast(const OpsStatement *s, const ValueInfo *in)
{
  gboolean one = same_sizes(&s->out[0], &in[0]) || same_sizes(&s->out[0], &in[1]);
  return one && broadcasts(&in[0], &s->out[0]) && broadcasts(&in[1], &s->out[0])
             ? NULL
             : "one operand has the result's sizes, the other broadcasts to them";
}

const char *
ops_check_view(const OpsStatement *s, const ValueInfo *in)
{
  return value_elements(&s->out[0]) == value_elements(&in[0])
             ? NULL
             : "a view has as many elements as its operand";
}

const char *
ops_check_pairs(const OpsStatement *s, const ValueInfo *in)
{
  gboolean real = s->out[0].dtype != DTYPE_COMPLEX64;
  const ValueInfo *pairs = real ? &s->out[0] : &in[0], *complex = real ? &in[0] : &s->out[0];
  return pairs->dims == complex->dims + 1 && last_size(pairs) == 2 &&
                 complex->dtype == DTYPE_COMPLEX64 && pairs->dtype == DTYPE_FP32
             ? NULL
             : "complex numbers are pairs of fp32 in a last dimension of two";
}

const char *
ops_check_transpose(const OpsStatement *s, const ValueInfo *in)
{
  ValueInfo swapped = in[0];
  if (s->number < 0 || s->number > in[0].dims - 2)
    return "'dim' is one of the operand's dimensions but the last";
  value_swap(&swapped, (int) s->number, (int) s->number + 1);
  return same_sizes(&swapped, &s->out[0]) ? NULL : "the result has 'dim' and the next one swapped";
}

const char *
ops_check_part(const OpsStatement *s, const ValueInfo *in)
{
  return s->number >= 0 && value_elements(&s->out[0]) <= value_elements(&in[0])
             ? NULL
             : "a part has an offset from 0 on and no more elements than its operand";
}

/* Parts of the last dimension, the first perhaps wider than the others. */
const char *
ops_check_split(const OpsStatement *s, const ValueInfo *in)
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

const char *
ops_check_cat(const OpsStatement *s, const ValueInfo *in)
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

const char *
ops_check_expand(const OpsStatement *s, const ValueInfo *in)
{
  return broadcasts(&in[0], &s->out[0]) ? NULL : "the operand broadcasts to the result";
}

/* Sums and means: of everything, or with the reduced dimensions kept. */
const char *
ops_check_reduction(const OpsStatement *s, const ValueInfo *in)
{
  gboolean kept = s->out[0].dims == in[0].dims && broadcasts(&s->out[0], &in[0]);
  return s->out[0].dims == 0 || kept ? NULL
                                     : "the result is one number or has the reduced sizes as 1";
}

const char *
ops_check_mean(const OpsStatement *s, const ValueInfo *in)
{
  return value_elements(&s->out[0]) <= value_elements(&in[0])
             ? NULL
             : "a mean is no wider than its operand";
}

const char *
ops_check_linear(const OpsStatement *s, const ValueInfo *in)
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

const char *
ops_check_mm(const OpsStatement *s, const ValueInfo *in)
{
  (void) s;
  return check_products(&in[0], &in[1], 2);
}

const char *
ops_check_addmm(const OpsStatement *s, const ValueInfo *in)
{
  ValueInfo product = {.dims = 2, .shape = {in[1].shape[0], in[2].shape[1]}};
  const char *wrong = check_products(&in[1], &in[2], 2);
  (void) s;
  return wrong != NULL                  ? wrong
         : broadcasts(&in[0], &product) ? NULL
                                        : "what is added broadcasts to the product";
}

const char *
ops_check_bmm(const OpsStatement *s, const ValueInfo *in)
{
  (void) s;
  return check_products(&in[0], &in[1], 3);
}

const char *
ops_check_norm(const OpsStatement *s, const ValueInfo *in)
{
  for (int i = 1; i < s->ins; i++)
    if (in[i].dims != 1 || in[i].shape[0] != last_size(&in[0]))
      return "gain and bias are as wide as the last dimension";
  return in[0].dims > 0 ? ops_check_like_first(s, in) : "the operand has a dimension";
}

const char *
ops_check_embedding(const OpsStatement *s, const ValueInfo *in)
{
  (void) s;
  return in[0].dims == 2 && in[1].dims < OP_DIMS && in[1].dtype == DTYPE_INT64
             ? NULL
             : "operands are a table of two dimensions and int64 indices";
}

const char *
ops_check_rows(const OpsStatement *s, const ValueInfo *in)
{
  return in[0].dims > 0 ? ops_check_like_first(s, in) : "the operand has a dimension";
}

const char *
ops_check_nll_loss(const OpsStatement *s, const ValueInfo *in)
{
  (void) s;
  return in[0].dims == 2 && in[1].dims == 1 && in[0].shape[0] == in[1].shape[0]
             ? NULL
             : "operands are [rows, classes] and [rows]";
}

const char *
ops_check_attention(const OpsStatement *s, const ValueInfo *in)
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

const char *
ops_check_recorded(const OpsStatement *s, const ValueInfo *in)
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
