/* op_recipe.h - what recipes are made of. */
#ifndef HIGHWATER_NETWORK_OP_RECIPE_H
#define HIGHWATER_NETWORK_OP_RECIPE_H

#include "network/op.h"
#include "network/strides.h"

#define IN(i) (BUFFER_IN + (i))
#define OUT(i) (BUFFER_OUT + (i))

/* ---- shapes ---- */

/* out[0] := in[0] with another dtype. */
ValueInfo value_like(const ValueInfo *value, DType dtype);
/* One-dimensional value. */
ValueInfo value_vector(gint64 elements, DType dtype);
/* Shape functions of rows. */
void shape_like_first(OpCase *c);
void shape_broadcast(OpCase *c); /* the larger of two operands */
void shape_result(OpCase *c);    /* at.result */

/* ---- steps ---- */

/* New temporary; returns its buffer. */
int recipe_temp(OpCase *c, gint64 bytes, const char *what);
/* A temporary copy of input 0 where it is not row-major (expect_contiguous()); 0: it is. */
int recipe_contiguous_input(OpCase *c);
/* One in the shape of input i, row-major or in the order (ORDER_SAME) of its gradient. */
int recipe_temp_like(OpCase *c, int i, DType dtype, GradOrder order);
void recipe_release(OpCase *c, int buffer);
/* A temporary copy of incoming gradient 0, [batch, heads, length, head_dim], where attention
 * kernels would not find it contiguous; returns the buffer, empty when they do. */
int recipe_contiguous_inside(OpCase *c, const char *what);
/* The same where it is not row-major. */
int recipe_contiguous_incoming(OpCase *c, const char *what);
/* New tensor for output i. */
void recipe_out(OpCase *c, int i, const char *what);
/* Output i is a view of input 0 (of another one), from this element on. */
void recipe_alias(OpCase *c, int i, gint64 offset);
void recipe_alias_of(OpCase *c, int i, int input, gint64 offset);
/* Does input i want a gradient? */
gboolean recipe_wants(const OpCase *c, int i);
/* New gradient for input i (nothing if it wants none): of the input's own shape, or of the output's
 * (in the incoming gradient's order), which validation then sums or casts to the input's. */
void recipe_grad(OpCase *c, int i, GradOrder order);
void recipe_grad_full(OpCase *c, int i);
/* Temporaries in place of those of the first n inputs' gradients that nobody wants, from a kernel
 * that makes all of them at once, and their release; the buffers are in unwanted. */
void recipe_grads_together(OpCase *c, int n, GradOrder order, int *unwanted);
void recipe_release_unwanted(OpCase *c, int n, const int *unwanted);
/* Gradient i is incoming gradient 0 itself, or a view of it (ORDER_SAME: from this place of
 * dimension `index` on, whose stride is the gradient's; index is also ORDER_SWAPPED's), or a
 * reshape of it, or its contiguous() seen in the input's shape. */
void recipe_pass(OpCase *c, int i);
void recipe_view(OpCase *c, int i, gint64 first, GradOrder order, int index);
void recipe_reshape(OpCase *c, int i);
void recipe_contiguous(OpCase *c, int i);
/* Gradient i becomes the temporary, row-major or in the order (ORDER_SAME) of the old one, which
 * (if there is one) lets go. */
void recipe_replace(OpCase *c, int i, int buffer, GradOrder order);
void recipe_workspace(OpCase *c, Workspace workspace);

/* Says what the next kernel computes, if its name does not: a formula (meaning.h) and, unless key
 * is NULL, a number. */
void recipe_means(OpCase *c, const char *formula, const char *key, double number);
/* The same with several numbers: a meaning's text (meaning_text), which is freed. */
void recipe_means_text(OpCase *c, char *text);

/* Appends a kernel.  operands: "i0 i1 >o0 >t0": inputs i, outputs o, temporaries t, incoming
 * gradients g, gradients d, saved tensors s; '>' is written, '+' accumulated into, all else read.
 * Bytes are the sum of the operands' sizes, but for those behind '~': of them little is read. */
void recipe_launch(OpCase *c, const char *name, KernelKind kind, double flops,
                   const char *operands);
/* A matrix product [m,k] x [k,n], `batch` times. */
typedef struct {
  gint64 batch, m, n, k;
} GemmSize;
void recipe_gemm(OpCase *c, const char *name, GemmSize size, const char *operands);
/* The same where only so many FLOPs of it are asked for: sizes are padded. */
void recipe_padded_gemm(OpCase *c, const char *name, GemmSize size, double flops,
                        const char *operands);

/* validate_outputs (torch/csrc/autograd/engine.cpp): gradients whose shape is broader than their
 * input's are summed, those of another dtype are cast. */
void recipe_validate(OpCase *c);

/* How a reduction is spread over blocks: bytes of the scratch and of the semaphores, 0 when no two
 * blocks share an output (aten/src/ATen/native/cuda/Reduce.cuh, setReduceConfig). */
typedef struct {
  gint64 scratch, semaphores;
} ReduceScratch;
/* Of n contiguous elements into one, whose partial results have so many bytes. */
ReduceScratch reduce_scratch_of_all(gint64 n, gint64 bytes, DeviceLimits device);

/* Sum of `rows` rows into a new tensor like that input, in the source's dtype or, of temporaries,
 * the input's (returned: its buffer), with the scratch that
 * PyTorch's reduction takes when several blocks share an output
 * (aten/src/ATen/native/cuda/Reduce.cuh, setReduceConfig). */
int recipe_column_sum(OpCase *c, gint64 rows, int input, int source);

/* ---- recipes shared by rows ---- */

void forward_outputs(OpCase *c);  /* allocate all outputs, one kernel */
void forward_create(OpCase *c);   /* the same of a tensor that is made; of what it is made from no
                                     bytes count */
void forward_alias(OpCase *c);    /* output 0 is a view of input 0 */
void forward_sum_rows(OpCase *c); /* one output: sums over the first dimension */
void forward_slice(OpCase *c);    /* the same, from size[0] elements on */
void backward_new(
    OpCase *c); /* a new gradient for every input, in the order of OpInfo.saves' alphabet */
void backward_pass(OpCase *c); /* every input gets the incoming gradient */
void backward_reshape(OpCase *c);

/* Rows' own recipes, by file: op_parts.c, op_pointwise.c, op_loss.c, op_matmul.c, op_attention.c,
 * op_norm.c, op_lookup.c, op_moe.c, op_recorded.c. */
void shape_view_as_complex(OpCase *c);
void shape_split(OpCase *c);
void forward_split(OpCase *c);
void backward_split(OpCase *c);
void backward_transpose(OpCase *c);
void backward_view_as_complex(OpCase *c);
void backward_view_as_real(OpCase *c);
void backward_slice(OpCase *c);
void backward_pad(OpCase *c);
void backward_cat(OpCase *c);
void forward_cat_more(OpCase *c);
void backward_cat_more(OpCase *c);
void backward_stack(OpCase *c);
void backward_copy_slice(OpCase *c);
void backward_dense(OpCase *c);
void backward_mul(OpCase *c);
void shape_first(OpCase *c);
void forward_in_place(OpCase *c);
void forward_add_scalar_in_place(OpCase *c);
void forward_mul_scalar_in_place(OpCase *c);
void backward_mul_scalar(OpCase *c);
void backward_div(OpCase *c);
void backward_mul_complex(OpCase *c);
void backward_power(OpCase *c);
void backward_sum(OpCase *c);
void forward_where_number(OpCase *c);
void backward_where_number(OpCase *c);
void backward_sub(OpCase *c);
void backward_clamp(OpCase *c);
void shape_dropout(OpCase *c);
void forward_dropout(OpCase *c);
void backward_dropout(OpCase *c);
void backward_log_softmax(OpCase *c);
void shape_nll_loss(OpCase *c);
void forward_nll_loss(OpCase *c);
void backward_nll_loss(OpCase *c);
void shape_fused_cross_entropy(OpCase *c);
void forward_fused_cross_entropy(OpCase *c);
void backward_fused_cross_entropy(OpCase *c);
void shape_mm(OpCase *c);
void forward_mm(OpCase *c);
void backward_mm(OpCase *c);
void forward_addmm(OpCase *c);
void backward_addmm(OpCase *c);
void forward_baddbmm(OpCase *c);
void backward_baddbmm(OpCase *c);
void forward_bmm(OpCase *c);
void backward_bmm(OpCase *c);
void forward_convolution(OpCase *c);
void backward_convolution(OpCase *c);
void shape_zero3_linear(OpCase *c);
void forward_zero3_linear(OpCase *c);
void backward_zero3_linear(OpCase *c);
void forward_norm(OpCase *c);
void shape_rms_norm(OpCase *c);
void backward_rms_norm(OpCase *c);
void shape_layer_norm(OpCase *c);
void backward_layer_norm(OpCase *c);
void shape_embedding(OpCase *c);
void forward_embedding(OpCase *c);
void backward_embedding(OpCase *c);
void shape_flash_attention(OpCase *c);
void forward_flash_attention(OpCase *c);
void backward_flash_attention(OpCase *c);
void shape_efficient_attention(OpCase *c);
void forward_efficient_attention(OpCase *c);
void backward_efficient_attention(OpCase *c);
void shape_softmax(OpCase *c);
void forward_softmax(OpCase *c);
void forward_safe_softmax(OpCase *c);
void backward_softmax(OpCase *c);
void backward_where(OpCase *c);
void forward_bloom_gelu(OpCase *c);
void backward_bloom_gelu(OpCase *c);
void forward_cumsum(OpCase *c);
void shape_topk(OpCase *c);
void backward_topk(OpCase *c);
void shape_sort(OpCase *c);
void forward_sort(OpCase *c);
void shape_index(OpCase *c);
void forward_index(OpCase *c);
void forward_index_add(OpCase *c);
void forward_index_put(OpCase *c);
void backward_index(OpCase *c);
void backward_index_add(OpCase *c);
void backward_index_put(OpCase *c);
void shape_gather(OpCase *c);
void backward_gather(OpCase *c);
void shape_divide_in_place(OpCase *c);
void forward_divide_in_place(OpCase *c);
void backward_divide_in_place(OpCase *c);
void shape_grouped_mm(OpCase *c);
void forward_grouped_mm(OpCase *c);
void backward_grouped_mm(OpCase *c);
void save_recorded(OpCase *c);
void shape_recorded(OpCase *c);
void forward_recorded(OpCase *c);
void backward_recorded(OpCase *c);

#endif
