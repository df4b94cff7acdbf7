/* op_parts.c - recipes of views, and of tensors that are taken apart and put together: slices,
 * splits, concatenations, copies into a part. */
#include "network/op_recipe.h"
#include "program/meaning.h"

void
shape_view_as_complex(OpCase *c)
{
  c->outs = 1;
  c->out[0] = c->at.result;
}

/* Parts of dimension `number`, as wide as size says (negative: no more), from `first` on.  flag:
 * there are others behind them, which are parts of the first output, the whole. */
void
shape_split(OpCase *c)
{
  const ValueInfo *whole = &c->in[0];
  int dim = (int) c->at.number;
  c->outs = 0;
  if (c->at.flag)
    c->out[c->outs++] = *whole;
  for (guint i = 0; i < G_N_ELEMENTS(c->at.size) && c->at.size[i] >= 0; i++) {
    c->out[c->outs] = *whole;
    c->out[c->outs++].shape[dim] = c->at.size[i];
  }
}

void
forward_split(OpCase *c)
{
  gint64 first = c->at.first, stride = c->in[0].stride[(int) c->at.number];
  int out = 0;
  if (c->at.flag)
    recipe_alias(c, out++, 0);
  for (int i = 0; out < c->outs; first += c->at.size[i++])
    recipe_alias(c, out++, first * stride);
}

/* Parts of dimension `number` from `first` on.  What run_cat() takes to be so is not said. */
static void
place_parts(OpCase *c, const char *operands)
{
  if (c->at.first > 0 || (int) c->at.number != c->in[0].dims - 1)
    recipe_means_text(c,
                      meaning_text("cat", 2, "dim", c->at.number, "first", (double) c->at.first));
  recipe_launch(c, "cat", KERNEL_MEMORY, 0, operands);
}

/* One new tensor for the gradients of all parts, which the last ones' node makes. */
void
backward_split(OpCase *c)
{
  if (c->at.flag) {
    recipe_pass(c, 0);
    place_parts(c, "g1 g2 g3 g4 ~+d0");
    return;
  }
  recipe_grad(c, 0, ORDER_DENSE);
  place_parts(c, "g0 g1 g2 g3 >d0");
}

void
backward_transpose(OpCase *c)
{
  recipe_view(c, 0, 0, ORDER_SWAPPED, (int) c->at.size[0]);
}

void
backward_view_as_complex(OpCase *c)
{
  recipe_view(c, 0, 0, ORDER_AS_REAL, 0);
}

/* view_as_complex(grad.contiguous()) */
void
backward_view_as_real(OpCase *c)
{
  recipe_contiguous(c, 0);
}

/* Which dimension of the input a slice is cut from: the one whose size differs, or which is gone.
 */
static int
sliced_dimension(const ValueInfo *whole, const ValueInfo *part)
{
  gboolean selected = part->dims < whole->dims;
  for (int i = 0; i < whole->dims; i++) {
    gboolean same = i < part->dims && part->shape[i] == whole->shape[i];
    if (!same || (selected && part->stride[i] != whole->stride[i]))
      return i;
  }
  return whole->dims - 1;
}

/* Zeros of the input's shape, with the gradient where the slice was: of dimension dim the elements
 * first, first + step and so on. */
void
backward_slice(OpCase *c)
{
  const ValueInfo *whole = &c->in[0], *part = &c->out[0];
  int dim = sliced_dimension(whole, part);
  gint64 stride = MAX(whole->stride[dim], 1);
  gint64 step = part->dims == whole->dims ? MAX(part->stride[dim] / stride, 1) : 1;
  recipe_grad(c, 0, ORDER_DENSE);
  recipe_means_text(c, meaning_text("slice_backward", 3, "dim", (double) dim, "first",
                                    (double) (c->at.size[0] / stride), "step", (double) step));
  recipe_launch(c, c->info->name, KERNEL_MEMORY, 0, "g0 >d0");
}

/* constant_pad_nd with negative padding: a narrow, cloned. */
void
backward_pad(OpCase *c)
{
  recipe_grad(c, 0, ORDER_LIKE_INCOMING);
  recipe_means(c, "narrow", NULL, 0);
  recipe_launch(c, c->info->name, KERNEL_MEMORY, 0, "g0 >d0");
}

/* size: along which dimension, where not along the last. */
void
backward_cat(OpCase *c)
{
  gint64 first = 0;
  int dim = c->in[0].dims - 1;
  for (int d = 0; d < c->in[0].dims; d++)
    if (c->in[0].shape[d] != c->out[0].shape[d])
      dim = d;
  for (int i = 0; i < c->ins; i++) {
    recipe_view(c, i, first, ORDER_SAME, dim); /* narrow */
    c->grad[i].dtype = c->out[0].dtype;        /* the widest operand's */
    first += c->in[i].shape[dim];
  }
}

/* Operands behind the first one go into it as further parts of dimension `number`, from `first` on.
 */
void
forward_cat_more(OpCase *c)
{
  recipe_alias(c, 0, 0);
  place_parts(c, "i1 i2 i3 i4 i5 i6 i7 ~+o0");
}

void
backward_cat_more(OpCase *c)
{
  gint64 first = c->at.first;
  int dim = (int) c->at.number;
  recipe_pass(c, 0);
  for (int i = 1; i < c->ins; first += c->in[i++].shape[dim])
    recipe_view(c, i, first, ORDER_SAME, dim); /* narrow */
}

/* Elements of a new last dimension. */
void
backward_stack(OpCase *c)
{
  for (int i = 0; i < c->ins; i++)
    recipe_view(c, i, i, ORDER_SAME, c->out[0].dims - 1);
}

/* CopySlices: a copy of the gradient in which the slice is zero, and a copy of the slice; what base
 * does not want is made all the same. */
void
backward_copy_slice(OpCase *c)
{
  int unwanted = 0;
  if (recipe_wants(c, 0))
    recipe_grad(c, 0, ORDER_DENSE);
  else
    unwanted = recipe_temp(c, value_bytes(&c->in[0]), "gradient");
  gint64 bytes = value_elements(&c->in[1]) * dtype_size((DType) c->in[0].dtype);
  gboolean casts = c->in[1].dtype != c->in[0].dtype;
  int slice = casts ? recipe_temp(c, bytes, "gradient") : 0;
  if (!casts)
    recipe_grad(c, 1, ORDER_DENSE);
  if (unwanted == 0)
    recipe_release(c, recipe_temp(c, bytes, "zeros"));
  if (casts)
    recipe_grad(c, 1, ORDER_DENSE);
  recipe_launch(c, "copy_slices", KERNEL_MEMORY, 0, "g0 >d0 >d1");
  if (casts)
    recipe_release(c, slice);
  if (unwanted != 0)
    recipe_release(c, unwanted);
}
