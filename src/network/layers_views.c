/* layers_views.c - parts of tensors and how they are put together: slices, chunks, broadcasts. */
#include <string.h>

#include "network/layers.h"
#include "network/strides.h"

Val
slice_last(Builder *b, Val x, gint64 first, gint64 size)
{
  ValueInfo info = builder_info(b, x);
  info.shape[info.dims - 1] = size; /* strides stay */
  OpAttributes at = {.result = info, .size = {first}};
  return builder_op(b, OP_SLICE, &at, 1, &x);
}

/* A call of split has so many parts at most: what is left of many is split by further calls, of
 * whose node the gradient goes to this one's. */
#define PARTS ((int) G_N_ELEMENTS(((OpAttributes *) NULL)->size))

void
split_parts(Builder *b, Val x, int dim, gint64 n, const gint64 *sizes, Val *out)
{
  gint64 first = 0;
  for (gint64 i = 0; i < n; i += PARTS) {
    int parts = (int) MIN(n - i, PARTS);
    OpAttributes at = {.number = dim, .first = first, .flag = i + parts < n};
    Val outs[PARTS + 1], *part = outs + (at.flag ? 1 : 0);
    for (int k = 0; k < PARTS; k++)
      at.size[k] = k < parts ? sizes[i + k] : -1;
    for (int k = 0; k < parts; k++)
      first += sizes[i + k];
    builder_op_multi(b, OP_SPLIT, &at, 1, &x, parts + (at.flag ? 1 : 0), outs);
    memcpy(out + i, part, sizeof(Val) * (gsize) parts);
    x = outs[0];
  }
}

void
split_equally(Builder *b, Val x, int dim, gint64 n, Val *out)
{
  g_autofree gint64 *sizes = g_new(gint64, n);
  for (gint64 i = 0; i < n; i++)
    sizes[i] = builder_info(b, x).shape[dim] / n;
  split_parts(b, x, dim, n, sizes, out);
}

void
split_last(Builder *b, Val x, gint64 first, const char *const names[2], Val out[2])
{
  ValueInfo info = builder_info(b, x);
  int last = info.dims - 1;
  split_parts(b, x, last, 2, (const gint64[]){first, info.shape[last] - first}, out);
  for (int i = 0; i < 2; i++)
    out[i] = let(b, names[i], out[i]);
}

Val
every_second(Builder *b, Val x, gint64 first)
{
  OpAttributes at = {.result = builder_info(b, x), .size = {first}};
  int last = at.result.dims - 1;
  at.result.shape[last] /= 2;
  at.result.stride[last] *= 2;
  return builder_op(b, OP_SLICE, &at, 1, &x);
}

Val
join_last(Builder *b, Val x, Val y)
{
  DType a = (DType) builder_info(b, x).dtype, c = (DType) builder_info(b, y).dtype;
  DType wide = dtype_size(a) > dtype_size(c) ? a : c;
  OpAttributes at = {.result = builder_info(b, x)};
  int last = at.result.dims - 1;
  at.result.dtype = (guint8) wide;
  at.result.shape[last] += builder_info(b, y).shape[last];
  value_set_contiguous(&at.result);
  return builder_op(b, OP_CAT, &at, 2, (Val[]){x, y});
}

Val
select_at(Builder *b, Val x, int dim, gint64 index)
{
  OpAttributes at = {.result = builder_info(b, x)};
  at.size[0] = index * at.result.stride[dim];
  at.result.dims--;
  for (int i = dim; i < at.result.dims; i++) {
    at.result.shape[i] = at.result.shape[i + 1];
    at.result.stride[i] = at.result.stride[i + 1];
  }
  return builder_op(b, OP_SLICE, &at, 1, &x);
}

void
chunk(Builder *b, Val x, int n, Val *out)
{
  split_equally(b, x, builder_info(b, x).dims - 1, n, out);
}

Val
join_parts(Builder *b, int dim, gint64 n, const Val *part)
{
  OpAttributes at = {.result = builder_info(b, part[0]), .key = "dim", .number = dim};
  for (gint64 i = 1; i < n; i++)
    at.result.shape[dim] += builder_info(b, part[i]).shape[dim];
  value_set_contiguous(&at.result);
  gint64 joined = MIN(n, OP_INPUTS);
  Val whole = builder_op(b, OP_CAT, &at, (int) joined, part);
  for (gint64 i = 0; i < joined; i++)
    at.first += builder_info(b, part[i]).shape[dim];
  while (joined < n) {
    Val in[OP_INPUTS] = {whole};
    int ins = 1;
    gint64 width = 0;
    for (; ins < OP_INPUTS && joined < n; joined++) {
      width += builder_info(b, part[joined]).shape[dim];
      in[ins++] = part[joined];
    }
    whole = builder_op(b, OP_CAT_MORE, &at, ins, in);
    at.first += width;
  }
  return whole;
}

Val
expand(Builder *b, Val x, ValueInfo sizes)
{
  ValueInfo info = builder_info(b, x);
  value_expand(&info, &sizes);
  return shaped(b, OP_EXPAND, x, sizes);
}

Val
reduce_last(Builder *b, OpId op, Val x)
{
  ValueInfo info = builder_info(b, x);
  info.shape[info.dims - 1] = 1;
  value_set_contiguous(&info);
  return shaped(b, op, x, info);
}
