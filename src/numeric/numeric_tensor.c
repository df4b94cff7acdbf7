/* numeric_tensor.c - strided reading and writing of views, and rounding to their dtypes. */
#include "numeric/numeric_tensor.h"

#include <float.h>
#include <math.h>
#include <string.h>

/* ---- rounding ---- */

/* To a significand of so many bits, with a smallest exponent below which all have the same unit;
 * what is beyond the largest number becomes infinite. */
static double
round_bits(double value, int bits, int least_exponent, double largest)
{
  int exponent;
  if (value == 0 || !isfinite(value))
    return value;
  frexp(value, &exponent);
  int unit = MAX(exponent, least_exponent) - bits;
  double rounded = ldexp(nearbyint(ldexp(value, -unit)), unit);
  return fabs(rounded) > largest ? copysign(INFINITY, value) : rounded;
}

double
numeric_largest(DType dtype)
{
  switch (dtype) {
  case DTYPE_BF16:
    return 0x1.FEp127;
  case DTYPE_FP16:
    return 65504;
  default:
    return FLT_MAX;
  }
}

double
numeric_round(double value, DType dtype)
{
  switch (dtype) {
  case DTYPE_FP32:
  case DTYPE_COMPLEX64:
    return (double) (float) value;
  case DTYPE_BF16:
    return round_bits(value, 8, -125, numeric_largest(dtype));
  case DTYPE_FP16:
    return round_bits(value, 11, -13, numeric_largest(dtype));
  default:
    return value;
  }
}

double
numeric_roundoff(DType dtype)
{
  switch (dtype) {
  case DTYPE_FP32:
  case DTYPE_COMPLEX64:
    return 0x1p-24;
  case DTYPE_BF16:
    return 0x1p-8;
  case DTYPE_FP16:
    return 0x1p-11;
  default:
    return 0;
  }
}

/* ---- walking a view ---- */

/* Where a view's rows along its last dimension are: calls of walk_next give the byte at which one
 * after the other begins. */
typedef struct {
  const Layout *layout;
  gint64 index[TENSOR_MAX_DIMS];
  gint64 at, stride; /* bytes: where the row is, and from one of its elements to the next */
  gint64 row, rows;  /* elements of a row; how many rows there are */
  int size;
} Walk;

static Walk
walk_begin(const Tensor *view, const Layout *layout)
{
  int size = dtype_size((DType) layout->dtype), last = layout->dims - 1;
  Walk w = {.layout = layout, .at = view->offset * size, .row = 1, .rows = 1, .size = size};
  for (int i = 0; i < last; i++)
    w.rows *= layout->shape[i];
  if (last >= 0) {
    w.row = layout->shape[last];
    w.stride = layout->stride[last] * size;
  }
  return w;
}

static void
walk_next(Walk *w)
{
  for (int i = w->layout->dims - 2; i >= 0; i--) {
    w->at += w->layout->stride[i] * w->size;
    if (++w->index[i] < w->layout->shape[i])
      return;
    w->at -= w->layout->shape[i] * w->layout->stride[i] * w->size;
    w->index[i] = 0;
  }
}

static int
parts_of(const Layout *layout)
{
  return layout->dtype == DTYPE_COMPLEX64 ? 2 : 1;
}

void
numeric_tensor_load(NumericTensor *t, const double *slots, const Tensor *view, const Layout *layout)
{
  int parts = parts_of(layout);
  gint64 n = 1;
  *t = (NumericTensor){.dtype = (DType) layout->dtype, .dims = layout->dims};
  for (int i = 0; i < layout->dims; i++)
    n *= t->shape[i] = layout->shape[i];
  if (parts > 1)
    t->shape[t->dims++] = parts;
  t->elements = n * parts;
  double *to = t->data = g_new(double, MAX(t->elements, 1));
  Walk w = walk_begin(view, layout);
  for (gint64 row = 0; n > 0 && row < w.rows; row++, walk_next(&w))
    for (gint64 i = 0; i < w.row; i++)
      for (int k = 0; k < parts; k++)
        *to++ = slots[w.at + i * w.stride + 4 * k];
}

void
numeric_tensor_store(NumericTensor *t, double *slots, const Tensor *view, const Layout *layout,
                     gboolean rounds)
{
  int parts = parts_of(layout);
  const double *from = t->data;
  for (gint64 i = 0; rounds && i < t->elements; i++)
    t->data[i] = numeric_round(t->data[i], t->dtype);
  Walk w = walk_begin(view, layout);
  for (gint64 row = 0; t->elements > 0 && row < w.rows; row++, walk_next(&w))
    for (gint64 i = 0; i < w.row; i++)
      for (int k = 0; k < parts; k++, from++)
        slots[w.at + i * w.stride + 4 * k] = *from;
}

void
numeric_tensor_clear(NumericTensor *t)
{
  g_clear_pointer(&t->data, g_free);
}

gint64
numeric_width(const NumericTensor *t)
{
  return t->dims > 0 ? t->shape[t->dims - 1] : 1;
}
