/* strides.h - memory order of tensors: which shapes are views of which, and how ops lay out what
 * they make.  Strides count elements, as in ATen. */
#ifndef HIGHWATER_NETWORK_STRIDES_H
#define HIGHWATER_NETWORK_STRIDES_H

#include "network/op.h"

/* Row-major strides for the value's shape. */
void value_set_contiguous(ValueInfo *value);
/* Is it laid out so?  Strides of dimensions of size one do not count. */
gboolean value_is_contiguous(const ValueInfo *value);
/* Can a tensor be seen in another shape without a copy?  If so, fills the strides of `as`, whose
 * shape is given (at::detail::computeStride, aten/src/ATen/TensorUtils.cpp). */
gboolean value_view(const ValueInfo *value, ValueInfo *as);
/* Dense strides for the value's shape in the order of n operands that broadcast to it: what
 * element-wise ops and empty_like give (TensorIteratorBase::reorder_dimensions,
 * aten/src/ATen/TensorIterator.cpp; infer_dense_strides, aten/src/ATen/ExpandUtils.cpp). */
void value_order_like(ValueInfo *value, int n, const ValueInfo *operands);
/* Two dimensions change places. */
void value_swap(ValueInfo *value, int a, int b);
/* The value seen as `wide`, whose sizes are its own or broadcast from one. */
void value_expand(const ValueInfo *value, ValueInfo *wide);

#endif
