/* numeric_copies.c - formulas that move numbers: copies and casts, concatenations, and the ways in
 * which shards become whole tensors and back. */
#include <string.h>

#include "numeric/numeric_kernel.h"

static void
move(double *to, const double *from, gint64 elements)
{
  if (elements > 0)
    memmove(to, from, sizeof(double) * (gsize) elements);
}

/* Element for element in each one's own order.  A part of a table may be copied, and what is padded
 * takes what there is. */
static void
run_copy(KernelCall *c)
{
  const NumericTensor *x = numeric_read(c, 0);
  NumericTensor *y = numeric_written(c, 0);
  if (x != NULL && y != NULL)
    move(y->data, x->data, MIN(x->elements, y->elements));
}

/* ---- parts of the last dimension ---- */

/* How many elements of t lie one after the other within one index of the dimensions before `dim`.
 */
static gint64
elements_from(const NumericTensor *t, int dim)
{
  gint64 n = 1;
  for (int i = dim; i < t->dims; i++)
    n *= t->shape[i];
  return n;
}

/* Parts side by side in a dimension, the last one unless it is said, from its beginning unless that
 * is; of flat ones, one after the other. */
static void
run_cat(KernelCall *c)
{
  NumericTensor *y = numeric_written(c, 0);
  if (y == NULL)
    return;
  int dim = (int) numeric_number_or(c, "dim", MAX(y->dims - 1, 0));
  gint64 width = elements_from(y, dim);
  gint64 first = (gint64) numeric_number_or(c, "first", 0) * elements_from(y, dim + 1);
  for (int i = 0; i < numeric_reads(c); i++) {
    const NumericTensor *x = numeric_read(c, i);
    gint64 part = y->dims > 1 ? elements_from(x, dim) : x->elements;
    gint64 rows = x->elements / MAX(part, 1);
    if (first + part > width || rows > y->elements / MAX(width, 1)) {
      numeric_fail(c, "the parts are more than the whole");
      return;
    }
    for (gint64 row = 0; row < rows; row++)
      move(y->data + row * width + first, x->data + row * part, part);
    first += part;
  }
}

/* Elements side by side in a new last dimension. */
static void
run_stack(KernelCall *c)
{
  NumericTensor *y = numeric_written(c, 0);
  int n = numeric_reads(c);
  for (int i = 0; y != NULL && i < n; i++) {
    const NumericTensor *x = numeric_read(c, i);
    if (x->elements * n != y->elements) {
      numeric_fail(c, "the parts are not as large as the whole");
      return;
    }
    for (gint64 k = 0; k < x->elements; k++)
      y->data[k * n + i] = x->data[k];
  }
}

/* Of each row the first elements, each twice. */
static void
run_repeat_interleave(KernelCall *c)
{
  const NumericTensor *x = numeric_read(c, 0);
  NumericTensor *y = numeric_written(c, 0);
  if (!numeric_same_size(c, x, y))
    return;
  gint64 width = numeric_width(y);
  for (gint64 i = 0; i < y->elements; i++)
    y->data[i] = x->data[i - i % width + i % width / 2];
}

/* Zeros of the whole's shape, with the gradient of a part in them: of one dimension the elements
 * from the first on, in steps. */
static void
run_slice_backward(KernelCall *c)
{
  static const NumericTensor nothing = {0}; /* a part without elements is no operand */
  const NumericTensor *g = numeric_reads(c) > 0 ? numeric_read(c, 0) : &nothing;
  NumericTensor *d = numeric_written(c, 0);
  int dim = (int) numeric_number(c, "dim");
  gint64 first = (gint64) numeric_number(c, "first"), step = (gint64) numeric_number(c, "step");
  if (g == NULL || d == NULL || c->fault != NULL)
    return;
  gint64 inside = elements_from(d, dim + 1), size = dim < d->dims ? d->shape[dim] : 1;
  gint64 outside = d->elements / MAX(size * inside, 1);
  gint64 part = g->elements / MAX(outside * inside, 1);
  if (part * outside * inside != g->elements || first + (part - 1) * step >= size) {
    numeric_fail(c, "the part does not lie in the whole");
    return;
  }
  memset(d->data, 0, sizeof(double) * (gsize) d->elements);
  for (gint64 i = 0; i < outside * part; i++)
    move(d->data + (i / part * size + first + i % part * step) * inside, g->data + i * inside,
         inside);
}

/* The first elements of each row: of a wider one what fits, of a narrower one all and then a number
 * (zero unless it is said). */
static void
resize_rows(KernelCall *c)
{
  double value = numeric_number_or(c, "value", 0);
  const NumericTensor *x = numeric_read(c, 0);
  NumericTensor *y = numeric_written(c, 0);
  if (x == NULL || y == NULL)
    return;
  gint64 from = numeric_width(x), to = numeric_width(y);
  for (gint64 i = 0; i < y->elements; i++)
    y->data[i] = value;
  for (gint64 row = 0; row < y->elements / MAX(to, 1) && row < x->elements / MAX(from, 1); row++)
    move(y->data + row * to, x->data + row * from, MIN(from, to));
}

/* ---- shards ---- */

/* This rank's place among the neighbours that share a tensor: its meaning says how many they are,
 * and how far apart. */
static gint64
place_of(KernelCall *c, gint64 *ranks)
{
  *ranks = (gint64) numeric_number(c, "ranks");
  gint64 stride = (gint64) numeric_number_or(c, "stride", 1);
  if (*ranks < 1 || stride < 1) {
    numeric_fail(c, "there are no ranks");
    *ranks = 1;
    return 0;
  }
  return c->place.rank / stride % *ranks;
}

/* What is read, one after the other, into this rank's part of the whole. */
static void
run_place_slice(KernelCall *c)
{
  NumericTensor *y = numeric_written(c, 0);
  gint64 ranks, place = place_of(c, &ranks);
  if (y == NULL)
    return;
  gint64 part = y->elements / ranks, at = 0;
  for (int i = 0; i < numeric_reads(c); i++) {
    const NumericTensor *x = numeric_read(c, i);
    if (at + x->elements > part) {
      numeric_fail(c, "what is read is more than a rank's part");
      return;
    }
    move(y->data + place * part + at, x->data, x->elements);
    at += x->elements;
  }
}

/* Where this rank's part of the whole begins.  Parts are as large as what is taken of them, unless
 * it is said; of each the elements from `first` on are taken. */
static gint64
part_begins(KernelCall *c, const NumericTensor *taken)
{
  gint64 ranks, place = place_of(c, &ranks);
  double part = numeric_number_or(c, "part", (double) taken->elements);
  return place * (gint64) part + (gint64) numeric_number_or(c, "first", 0);
}

/* This rank's part of the whole; beyond its end, zeros. */
static void
run_take_slice(KernelCall *c)
{
  const NumericTensor *x = numeric_read(c, 0);
  NumericTensor *y = numeric_written(c, 0);
  if (x == NULL || y == NULL)
    return;
  gint64 first = part_begins(c, y);
  memset(y->data, 0, sizeof(double) * (gsize) y->elements);
  move(y->data, x->data + first, MIN(y->elements, x->elements - first));
}

/* The same, added to what is there. */
static void
run_add_slice(KernelCall *c)
{
  const NumericTensor *x = numeric_read(c, 0);
  NumericTensor *y = numeric_written(c, 0);
  if (x == NULL || y == NULL)
    return;
  gint64 first = part_begins(c, y);
  for (gint64 i = 0; i < MIN(y->elements, x->elements - first); i++)
    y->data[i] += x->data[first + i];
}

/* One tensor out of all ranks' parts, of each `each` elements from `first` on. */
static void
run_gathered_parts(KernelCall *c)
{
  const NumericTensor *x = numeric_read(c, 0);
  NumericTensor *y = numeric_written(c, 0);
  gint64 ranks, part = (gint64) numeric_number(c, "part"),
                each = (gint64) numeric_number(c, "each");
  gint64 first = (gint64) numeric_number(c, "first");
  place_of(c, &ranks);
  if (x == NULL || y == NULL)
    return;
  if (part * ranks > x->elements || first + each > part) {
    numeric_fail(c, "the parts are more than what was gathered");
    return;
  }
  for (gint64 r = 0; r < ranks; r++)
    move(y->data + r * each, x->data + r * part + first, CLAMP(y->elements - r * each, 0, each));
}

/* Every rank's parts of all tensors, one rank after the other, become whole tensors. */
static void
run_split_gathered(KernelCall *c)
{
  const NumericTensor *x = numeric_read(c, 0);
  gint64 ranks, at = 0;
  place_of(c, &ranks);
  if (x == NULL)
    return;
  gint64 shard = x->elements / ranks;
  for (int i = 0; i < c->operands; i++) {
    NumericTensor *y = &c->operand[i];
    if (y->role == ROLE_READ)
      continue;
    gint64 part = y->elements / ranks;
    if (at + part > shard) {
      numeric_fail(c, "the tensors are more than what was gathered");
      return;
    }
    for (gint64 r = 0; r < ranks; r++)
      move(y->data + r * part, x->data + r * shard + at, part);
    at += part;
  }
}

/* The way back: of each tensor the rows of one rank after those of another, in chunks as
 * torch.chunk cuts them; the last ones are padded with zeros. */
static void
run_chunk_cat(KernelCall *c)
{
  NumericTensor *y = numeric_written(c, 0);
  gint64 ranks, at = 0;
  place_of(c, &ranks);
  if (y == NULL)
    return;
  gint64 shard = y->elements / ranks;
  memset(y->data, 0, sizeof(double) * (gsize) y->elements);
  for (int i = 0; i < numeric_reads(c); i++) {
    const NumericTensor *x = numeric_read(c, i);
    gint64 rows = x->dims > 0 ? x->shape[0] : 1, width = x->elements / MAX(rows, 1);
    gint64 part = (rows + ranks - 1) / ranks * width;
    if (at + part > shard) {
      numeric_fail(c, "the tensors are more than what is reduced");
      return;
    }
    for (gint64 r = 0; r < ranks; r++)
      move(y->data + r * shard + at, x->data + r * part, CLAMP(x->elements - r * part, 0, part));
    at += part;
  }
}

/* Tensors whole one after another in a buffer of zeros, of each of which there is one rank's part:
 * what a sum over ranks completes. */
static void
run_parts_in_zeros(KernelCall *c)
{
  NumericTensor *y = numeric_written(c, 0);
  gint64 ranks, at = 0, place = place_of(c, &ranks);
  if (y == NULL)
    return;
  memset(y->data, 0, sizeof(double) * (gsize) y->elements);
  for (int i = 0; i < numeric_reads(c); i++) {
    const NumericTensor *x = numeric_read(c, i);
    if (at + x->elements * ranks > y->elements) {
      numeric_fail(c, "the parts are more than the buffer holds");
      return;
    }
    move(y->data + at + place * x->elements, x->data, x->elements);
    at += x->elements * ranks;
  }
}

/* A copy of what lies there already. */
static void
run_itself(KernelCall *c)
{
  (void) c;
}

const NumericKernel numeric_copies[] = {
    {.formula = "itself", .run = run_itself},
    {.formula = "copy", .run = run_copy},
    {.formula = "copy_", .run = run_copy},
    {.formula = "to_copy", .run = run_copy},
    {.formula = "clone", .run = run_copy},
    {.formula = "cat", .run = run_cat},
    {.formula = "stack", .run = run_stack},
    {.formula = "repeat_interleave", .run = run_repeat_interleave},
    {.formula = "slice_backward", .run = run_slice_backward},
    {.formula = "constant_pad_nd", .run = resize_rows},
    {.formula = "narrow", .run = resize_rows},
    {.formula = "place_slice", .run = run_place_slice},
    {.formula = "take_slice", .run = run_take_slice},
    {.formula = "add_slice", .run = run_add_slice},
    {.formula = "gathered_parts", .run = run_gathered_parts},
    {.formula = "split_gathered", .run = run_split_gathered},
    {.formula = "chunk_cat", .run = run_chunk_cat},
    {.formula = "parts_in_zeros", .run = run_parts_in_zeros},
    {0},
};
