/* numeric_tensor.h - what a kernel computes on: a view of a storage, read into a row-major array
 * and written back.
 *
 * A storage is an array of doubles, one for each of its bytes: the element that begins at byte b is
 * the double at b, so that views of any dtype and offset meet where their bytes do.  A complex
 * number is two of four bytes. */
#ifndef HIGHWATER_NUMERIC_NUMERIC_TENSOR_H
#define HIGHWATER_NUMERIC_NUMERIC_TENSOR_H

#include "program/program.h"

typedef struct {
  DType dtype;
  Role role;
  int dims;
  gint64 shape[TENSOR_MAX_DIMS + 1]; /* of complex numbers, the last dimension is their two parts */
  gint64 elements;
  double *data; /* row-major */
} NumericTensor;

/* Reads a view of a storage whose doubles are at `slots`; numeric_tensor_clear frees. */
void numeric_tensor_load(NumericTensor *tensor, const double *slots, const Tensor *view,
                         const Layout *layout);
/* Writes it back, each element rounded to the view's dtype if so asked for; the tensor has then
 * what was written. */
void numeric_tensor_store(NumericTensor *tensor, double *slots, const Tensor *view,
                          const Layout *layout, gboolean rounds);
void numeric_tensor_clear(NumericTensor *tensor);

/* The nearest value that a dtype has (ties to even); floating dtypes of 16 and 32 bits round. */
double numeric_round(double value, DType dtype);
/* The largest finite number of a floating dtype of 16 or 32 bits; of others that of fp32. */
double numeric_largest(DType dtype);
/* By how much that changes a number at most, relative to it, where it is not tiny; 0 of dtypes that
 * are not rounded to. */
double numeric_roundoff(DType dtype);

/* Size of the last dimension; 1 of a scalar. */
gint64 numeric_width(const NumericTensor *tensor);

#endif
