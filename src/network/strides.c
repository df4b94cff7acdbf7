/* strides.c - memory order of tensors: which shapes are views of which, and how ops lay out what
 * they make. */
#include "network/strides.h"

#include "base/units.h"

/* A product that stays where it is when a size is impossible: the builder refuses the tensor then.
 */
static gint64
times(gint64 stride, gint64 size)
{
  gint64 product;
  return checked_multiply(stride, size, &product) ? product : G_MAXINT64;
}

void
value_set_contiguous(ValueInfo *value)
{
  gint64 stride = 1;
  for (int i = value->dims - 1; i >= 0; i--) {
    value->stride[i] = stride;
    stride = times(stride, value->shape[i]);
  }
}

gboolean
value_is_contiguous(const ValueInfo *value)
{
  gint64 expected = 1;
  for (int i = value->dims - 1; i >= 0; i--) {
    if (value->shape[i] == 1)
      continue;
    if (value->stride[i] != expected)
      return FALSE;
    expected = times(expected, value->shape[i]);
  }
  return TRUE;
}

/* Is dimension d of the value the first of a run of dimensions that lie in memory like one?  inner:
 * the elements of that run from d on, base: the stride of its last dimension. */
static gboolean
begins_run(const ValueInfo *value, int d, gint64 inner, gint64 base)
{
  if (d == 0)
    return TRUE;
  return value->shape[d - 1] != 1 && value->stride[d - 1] != times(inner, base);
}

gboolean
value_view(const ValueInfo *value, ValueInfo *as)
{
  if (value->dims == 0) {
    value_set_contiguous(as);
    return TRUE;
  }
  int next = as->dims - 1;
  gint64 base = value->stride[value->dims - 1], inner = 1, seen = 1;
  for (int d = value->dims - 1; d >= 0; d--) {
    inner = times(inner, value->shape[d]);
    if (!begins_run(value, d, inner, base))
      continue;
    for (; next >= 0 && (seen < inner || as->shape[next] == 1); next--) {
      as->stride[next] = times(seen, base);
      seen = times(seen, as->shape[next]);
    }
    if (seen != inner)
      return FALSE;
    base = d > 0 ? value->stride[d - 1] : base;
    inner = seen = 1;
  }
  return next == -1;
}

/* The operand's stride along dimension d of the result: 0 where it is broadcast. */
static gint64
broadcast_stride(const ValueInfo *result, const ValueInfo *operand, int d)
{
  int own = d - (result->dims - operand->dims);
  if (own < 0 || (operand->shape[own] == 1 && result->shape[d] != 1))
    return 0;
  return operand->stride[own];
}

/* Which of two dimensions is the outer one?  > 0: `inner` is, so they change places; 0: no operand
 * can tell. */
static int
compare_dimensions(const ValueInfo *result, int n, const ValueInfo *operands, int inner, int outer)
{
  for (int i = 0; i < n; i++) {
    gint64 a = broadcast_stride(result, &operands[i], inner);
    gint64 b = broadcast_stride(result, &operands[i], outer);
    if (a == 0 || b == 0)
      continue;
    if (a != b)
      return a < b ? -1 : 1;
    if (result->shape[inner] > result->shape[outer])
      return 1;
  }
  return 0;
}

void
value_order_like(ValueInfo *value, int n, const ValueInfo *operands)
{
  int order[OP_DIMS]; /* innermost first */
  for (int i = 0; i < value->dims; i++)
    order[i] = value->dims - 1 - i;
  for (int i = 1; i < value->dims; i++) { /* insertion sort that tolerates ties */
    int moved = i;
    for (int j = i - 1; j >= 0; j--) {
      int c = compare_dimensions(value, n, operands, order[j], order[moved]);
      if (c < 0)
        break;
      if (c == 0)
        continue;
      int d = order[j];
      order[j] = order[moved];
      order[moved] = d;
      moved = j;
    }
  }
  gint64 stride = 1;
  for (int i = 0; i < value->dims; i++) {
    value->stride[order[i]] = stride;
    stride = times(stride, value->shape[order[i]]);
  }
}

void
value_swap(ValueInfo *value, int a, int b)
{
  gint64 size = value->shape[a], stride = value->stride[a];
  value->shape[a] = value->shape[b];
  value->stride[a] = value->stride[b];
  value->shape[b] = size;
  value->stride[b] = stride;
}

void
value_expand(const ValueInfo *value, ValueInfo *wide)
{
  for (int i = 0; i < wide->dims; i++)
    wide->stride[i] = broadcast_stride(wide, value, i);
}
