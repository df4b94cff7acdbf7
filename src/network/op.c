/* op.c - the table of ops, one row each. */
#include "network/op.h"

#include "network/op_recipe.h"

/* Shorthands for the column of saved tensors: whenever the op records a node, or only when that
 * input wants a gradient. */
#define ALWAYS(tensor)                                                                             \
  {                                                                                                \
    tensor, -1                                                                                     \
  }
#define FOR_GRAD_OF(input, tensor)                                                                 \
  {                                                                                                \
    tensor, input                                                                                  \
  }

/* ---- recipes of single rows ---- */

/* Sums of integers are int64, unless a dtype is asked for. */
static void
shape_cumsum(OpCase *c)
{
  c->outs = 1;
  DType dtype = (DType) c->in[0].dtype;
  gboolean counts = dtype == DTYPE_BOOL || dtype == DTYPE_INT32 || dtype == DTYPE_INT64;
  c->out[0] = value_like(&c->in[0], counts && !c->at.flag ? DTYPE_INT64 : dtype);
}

/* Given by numbers: size[0] bytes kept for backward, size[1] of workspace, size[2] FLOPs forward.
 */
static void
shape_opaque(OpCase *c)
{
  c->outs = 2;
  c->out[0] = c->at.result;
  c->out[1] = value_vector(c->at.size[0], DTYPE_UINT8);
}

static void
forward_opaque(OpCase *c)
{
  recipe_out(c, 0, "output");
  if (c->at.size[0] > 0)
    recipe_out(c, 1, "kept activations");
  int workspace = c->at.size[1] > 0 ? recipe_temp(c, c->at.size[1], "workspace") : 0;
  recipe_launch(c, "opaque", KERNEL_MEMORY, (double) c->at.size[2], "i0 i1 >o0 >o1");
  if (workspace != 0)
    recipe_release(c, workspace);
}

static void
backward_opaque(OpCase *c)
{
  int workspace = c->at.size[1] > 0 ? recipe_temp(c, c->at.size[1], "workspace") : 0;
  for (int i = c->ins - 1; i >= 0; i--)
    recipe_grad(c, i, ORDER_DENSE);
  recipe_launch(c, "opaque_backward", KERNEL_MEMORY, 2.0 * (double) c->at.size[2],
                "g0 o1 i1 >d0 >d1");
  if (workspace != 0)
    recipe_release(c, workspace);
}

/* Part of a tensor that lives with the model. */
static void
forward_nothing(OpCase *c)
{
  (void) c;
}

/* ---- the table ---- */

#define I0 IN(0)
#define I1 IN(1)
#define I2 IN(2)
#define I3 IN(3)
#define O0 OUT(0)
#define O1 OUT(1)
#define O2 OUT(2)
#define O3 OUT(3)
#define SAVES(...)                                                                                 \
  .saves = {__VA_ARGS__}, .save_count = (int) (sizeof((OpSave[]){__VA_ARGS__}) / sizeof(OpSave))

static const OpInfo ops[OP_COUNT] = {
    /* views: no memory forward; backward is a view too, or a copy where the gradient's memory order
       forbids one */
    [OP_VIEW] = {"view", .shape = shape_result, .forward = forward_alias,
                 .backward = backward_reshape},
    [OP_UNSAFE_VIEW] = {"unsafe_view", .shape = shape_result, .forward = forward_alias,
                        .backward = backward_reshape},
    [OP_TRANSPOSE] = {"transpose", .shape = shape_result, .forward = forward_alias,
                      .backward = backward_transpose},
    [OP_VIEW_AS_COMPLEX] = {"view_as_complex", .shape = shape_view_as_complex,
                            .forward = forward_alias, .backward = backward_view_as_complex},
    [OP_VIEW_AS_REAL] = {"view_as_real", .shape = shape_result, .forward = forward_alias,
                         .backward = backward_view_as_real},
    [OP_SLICE] = {"slice", .shape = shape_result, .forward = forward_slice,
                  .backward = backward_slice},
    [OP_SPLIT] = {"split", .shape = shape_split, .forward = forward_split,
                  .backward = backward_split},
    [OP_EXPAND] = {"expand", .shape = shape_result, .forward = forward_alias,
                   .backward = backward_dense},

    /* element-wise and copies */
    [OP_TO_COPY] = {"to_copy", .shape = shape_result, .forward = forward_outputs,
                    .backward = backward_new},
    [OP_TO_IF_NEEDED] = {"to_copy", .shape = shape_result, .forward = forward_outputs},
    [OP_TO_CACHED] = {"to_copy", .shape = shape_result, .forward = forward_outputs,
                      .backward = backward_new},
    [OP_CLONE] = {"clone", .shape = shape_result, .forward = forward_outputs,
                  .backward = backward_pass},
    /* base[..., part].copy_(source), in place of base */
    [OP_COPY_SLICE] = {"copy_", .shape = shape_first, .forward = forward_in_place,
                       .backward = backward_copy_slice},
    [OP_ADD] = {"add", .shape = shape_broadcast, .forward = forward_outputs,
                .backward = backward_pass},
    [OP_ADD_SCALAR] = {"add_scalar", .shape = shape_like_first, .forward = forward_outputs,
                       .backward = backward_pass},
    [OP_SUB] = {"sub", .shape = shape_broadcast, .forward = forward_outputs,
                .backward = backward_sub},
    [OP_ADD_] = {"add_", .shape = shape_first, .forward = forward_in_place,
                 .backward = backward_pass},
    [OP_ADD_SCALAR_] = {"add_scalar_", .shape = shape_first, .forward = forward_add_scalar_in_place,
                        .backward = backward_pass},
    [OP_MUL_SCALAR_] = {"mul_scalar_", .shape = shape_first, .forward = forward_mul_scalar_in_place,
                        .backward = backward_mul_scalar},
    [OP_MUL] = {"mul", SAVES(FOR_GRAD_OF(0, I1), FOR_GRAD_OF(1, I0)), .shape = shape_broadcast,
                .forward = forward_outputs, .backward = backward_mul},
    [OP_MUL_COMPLEX] = {"mul_complex", SAVES(FOR_GRAD_OF(0, I1)), .shape = shape_like_first,
                        .forward = forward_outputs, .backward = backward_mul_complex},
    [OP_MUL_SCALAR] = {"mul_scalar", .shape = shape_like_first, .forward = forward_outputs,
                       .backward = backward_new},
    [OP_DIV] = {"div", SAVES(ALWAYS(I1), FOR_GRAD_OF(1, I0)), .shape = shape_broadcast,
                .forward = forward_outputs, .backward = backward_div},
    [OP_EXP] = {"exp", SAVES(ALWAYS(O0)), .shape = shape_like_first, .forward = forward_outputs,
                .backward = backward_new},
    [OP_DIV_SCALAR] = {"div_scalar", .shape = shape_like_first, .forward = forward_outputs,
                       .backward = backward_new},
    /* what backward needs of the input is cloned, since the output is in its place */
    [OP_DIV_IN_PLACE] = {"div_", SAVES(ALWAYS(I1), FOR_GRAD_OF(1, O1)), .for_backward = 1 << 1,
                         .shape = shape_divide_in_place, .forward = forward_divide_in_place,
                         .backward = backward_divide_in_place},
    [OP_NEG] = {"neg", .shape = shape_like_first, .forward = forward_outputs,
                .backward = backward_new},
    [OP_POW] = {"pow", SAVES(ALWAYS(I0)), .shape = shape_like_first, .forward = forward_outputs,
                .backward = backward_power},
    [OP_RSQRT] = {"rsqrt", SAVES(ALWAYS(O0)), .shape = shape_like_first, .forward = forward_outputs,
                  .backward = backward_power},
    [OP_TANH] = {"tanh", SAVES(ALWAYS(O0)), .shape = shape_like_first, .forward = forward_outputs,
                 .backward = backward_new},
    [OP_SIGMOID] = {"sigmoid", SAVES(ALWAYS(O0)), .shape = shape_like_first,
                    .forward = forward_outputs, .backward = backward_new},
    [OP_SILU] = {"silu", SAVES(ALWAYS(I0)), .shape = shape_like_first, .forward = forward_outputs,
                 .backward = backward_new},
    [OP_RELU] = {"relu", SAVES(ALWAYS(O0)), .shape = shape_like_first, .forward = forward_outputs,
                 .backward = backward_new},
    [OP_GELU] = {"gelu", SAVES(ALWAYS(I0)), .shape = shape_like_first, .forward = forward_outputs,
                 .backward = backward_new},
    [OP_CLAMP] = {"clamp", SAVES(ALWAYS(I0)), .shape = shape_like_first, .forward = forward_outputs,
                  .backward = backward_clamp},
    /* by two tensors */
    [OP_CLAMP_BETWEEN] = {"clamp", SAVES(ALWAYS(I2), ALWAYS(I1), ALWAYS(I0)),
                          .shape = shape_like_first, .forward = forward_outputs,
                          .backward = backward_clamp},
    [OP_MASKED_FILL] = {"masked_fill", SAVES(ALWAYS(I1)), .shape = shape_like_first,
                        .forward = forward_outputs, .backward = backward_new},
    [OP_WHERE_NUMBER] = {"where", SAVES(ALWAYS(I1)), .shape = shape_like_first,
                         .forward = forward_where_number, .backward = backward_where_number},
    [OP_MEAN] = {"mean", .shape = shape_result, .forward = forward_outputs,
                 .backward = backward_dense},
    [OP_SUM] = {"sum", .shape = shape_result, .forward = forward_outputs, .backward = backward_sum},
    /* over the first dimension */
    [OP_SUM_ROWS] = {"sum", .shape = shape_result, .forward = forward_sum_rows,
                     .backward = backward_sum},
    [OP_CAT] = {"cat", .shape = shape_result, .forward = forward_outputs, .backward = backward_cat},
    [OP_CAT_MORE] = {"cat", .shape = shape_first, .forward = forward_cat_more,
                     .backward = backward_cat_more},
    [OP_STACK] = {"stack", .shape = shape_result, .forward = forward_outputs,
                  .backward = backward_stack},
    [OP_PAD] = {"constant_pad_nd", .shape = shape_result, .forward = forward_outputs,
                .backward = backward_pad},
    /* x[..., [i], :] with one index, which goes to the device */
    [OP_INDEX_ONE] = {"index", SAVES(ALWAYS(I1)), .shape = shape_result, .forward = forward_outputs,
                      .backward = backward_index},
    /* where(mask, x, number): of the mask, a part of a registered buffer, nothing is kept here */
    [OP_WHERE] = {"where", .shape = shape_like_first, .forward = forward_outputs,
                  .backward = backward_where},
    [OP_BLOOM_GELU] = {"bloom_gelu", SAVES(ALWAYS(I0)), .saves_late = TRUE,
                       .shape = shape_like_first, .forward = forward_bloom_gelu,
                       .backward = backward_bloom_gelu},
    [OP_DROPOUT] = {"native_dropout", SAVES(ALWAYS(O1)), .shape = shape_dropout,
                    .forward = forward_dropout, .backward = backward_dropout},

    /* matmuls */
    [OP_MM] = {"mm", SAVES(FOR_GRAD_OF(0, I1), FOR_GRAD_OF(1, I0)), .shape = shape_mm,
               .forward = forward_mm, .backward = backward_mm, .kind = KIND_MM},
    /* not one of the products that selective checkpointing counts */
    [OP_MM_UNCOUNTED] = {"mm", SAVES(FOR_GRAD_OF(0, I1), FOR_GRAD_OF(1, I0)), .shape = shape_mm,
                         .forward = forward_mm, .backward = backward_mm, .kind = KIND_MATMUL},
    [OP_ADDMM] = {"addmm", SAVES(FOR_GRAD_OF(2, I1), FOR_GRAD_OF(1, I2)), .shape = shape_mm,
                  .forward = forward_addmm, .backward = backward_addmm, .kind = KIND_MATMUL},
    [OP_BADDBMM] = {"baddbmm", SAVES(FOR_GRAD_OF(2, I1), FOR_GRAD_OF(1, I2)), .shape = shape_mm,
                    .forward = forward_baddbmm, .backward = backward_baddbmm},
    [OP_BMM] = {"bmm", SAVES(FOR_GRAD_OF(0, I1), FOR_GRAD_OF(1, I0)), .shape = shape_mm,
                .forward = forward_bmm, .backward = backward_bmm, .kind = KIND_MATMUL},
    /* one node for the layer, which keeps the Parameter and not its data; apply()'s locals die in
     * the order input, weight, bias */
    [OP_ZERO3_LINEAR] = {"zero3_linear", SAVES(ALWAYS(I2), ALWAYS(I1), ALWAYS(I0)),
                         .saves_late = TRUE, .shape = shape_zero3_linear,
                         .forward = forward_zero3_linear, .backward = backward_zero3_linear,
                         .kind = KIND_MM},
    [OP_CONVOLUTION] = {"convolution", SAVES(ALWAYS(I0), ALWAYS(I1)), .shape = shape_result,
                        .forward = forward_convolution, .backward = backward_convolution,
                        .kind = KIND_OTHER},
    [OP_GROUPED_MM] = {"grouped_mm", SAVES(FOR_GRAD_OF(0, I1), ALWAYS(I2), FOR_GRAD_OF(1, I0)),
                       .shape = shape_grouped_mm, .forward = forward_grouped_mm,
                       .backward = backward_grouped_mm},

    /* norms, look-ups, losses */
    [OP_RMS_NORM] = {"fused_rms_norm", SAVES(ALWAYS(I0), ALWAYS(I1), ALWAYS(O1)),
                     .shape = shape_rms_norm, .forward = forward_norm,
                     .backward = backward_rms_norm},
    [OP_LAYER_NORM] = {"native_layer_norm",
                       SAVES(ALWAYS(I2), ALWAYS(I0), ALWAYS(I1), ALWAYS(O1), ALWAYS(O2)),
                       .shape = shape_layer_norm, .forward = forward_norm,
                       .backward = backward_layer_norm},
    [OP_EMBEDDING] = {"embedding", SAVES(ALWAYS(I1)), .shape = shape_embedding,
                      .forward = forward_embedding, .backward = backward_embedding},
    [OP_INDEX] = {"index", SAVES(ALWAYS(I1), ALWAYS(I2)), .shape = shape_index,
                  .forward = forward_index, .backward = backward_index},
    [OP_GATHER] = {"gather", SAVES(ALWAYS(I1)), .shape = shape_gather, .forward = forward_outputs,
                   .backward = backward_gather},
    [OP_INDEX_ADD] = {"index_add_", SAVES(ALWAYS(I1), FOR_GRAD_OF(2, I2)),
                      .shape = shape_like_first, .forward = forward_index_add,
                      .backward = backward_index_add},
    /* self[index] = source, in place of self */
    [OP_INDEX_PUT] = {"index_put_", SAVES(ALWAYS(I1)), .shape = shape_first,
                      .forward = forward_index_put, .backward = backward_index_put},
    [OP_TOPK] = {"topk", SAVES(ALWAYS(O1)), .shape = shape_topk, .forward = forward_outputs,
                 .backward = backward_topk},
    [OP_LOG_SOFTMAX] = {"log_softmax", SAVES(ALWAYS(O0)), .shape = shape_softmax,
                        .forward = forward_softmax, .backward = backward_log_softmax},
    [OP_NLL_LOSS] = {"nll_loss", SAVES(ALWAYS(I0), ALWAYS(I1), ALWAYS(O1)), .shape = shape_nll_loss,
                     .forward = forward_nll_loss, .backward = backward_nll_loss},
    [OP_FUSED_CROSS_ENTROPY] = {"fused_cross_entropy", SAVES(ALWAYS(I0), ALWAYS(O1), ALWAYS(I1)),
                                .saves_late = TRUE, .shape = shape_fused_cross_entropy,
                                .forward = forward_fused_cross_entropy,
                                .backward = backward_fused_cross_entropy},

    /* attention */
    [OP_SOFTMAX] = {"softmax", SAVES(ALWAYS(O0)), .shape = shape_softmax,
                    .forward = forward_softmax, .backward = backward_softmax},
    [OP_SAFE_SOFTMAX] = {"safe_softmax", SAVES(ALWAYS(O0)), .shape = shape_like_first,
                         .forward = forward_safe_softmax, .backward = backward_softmax},
    [OP_FLASH_ATTENTION] = {"flash_attention",
                            SAVES(ALWAYS(I1), ALWAYS(I0), ALWAYS(I2), ALWAYS(O1), ALWAYS(O0),
                                  ALWAYS(O2), ALWAYS(O3)),
                            .shape = shape_flash_attention, .forward = forward_flash_attention,
                            .backward = backward_flash_attention, .kind = KIND_ATTENTION},
    [OP_EFFICIENT_ATTENTION] = {"efficient_attention",
                                SAVES(ALWAYS(I3), ALWAYS(I1), ALWAYS(I0), ALWAYS(I2), ALWAYS(O1),
                                      ALWAYS(O0)),
                                .for_backward = 1 << 1, /* logsumexp */
                                .shape = shape_efficient_attention,
                                .forward = forward_efficient_attention,
                                .backward = backward_efficient_attention, .kind = KIND_ATTENTION},

    /* no gradient */
    [OP_BUFFER] = {"buffer", .shape = shape_result, .forward = forward_nothing},
    /* x.requires_grad_(): its gradient stays with it */
    [OP_LEAF] = {"leaf", .is_leaf = TRUE, .shape = shape_first, .forward = forward_alias},
    /* what a node keeps of its input whose graph will not be run: itself, or nothing where nodes
       keep nothing */
    [OP_HELD] = {"held", .shape = shape_result, .forward = forward_alias},
    [OP_CREATE] = {"create", .shape = shape_result, .forward = forward_create},
    [OP_CUMSUM] = {"cumsum", .shape = shape_cumsum, .forward = forward_cumsum},
    [OP_HISTC] = {"histc", .shape = shape_result, .forward = forward_outputs},
    [OP_SORT] = {"sort", .shape = shape_sort, .forward = forward_sort},

    /* given by numbers */
    [OP_OPAQUE] = {"opaque", SAVES(ALWAYS(O1)), .shape = shape_opaque, .forward = forward_opaque,
                   .backward = backward_opaque},
    [OP_RECORDED] = {"recorded", .save = save_recorded, .shape = shape_recorded,
                     .forward = forward_recorded, .backward = backward_recorded},
    [OP_RECORDED_CONSTANT] = {"recorded", .shape = shape_recorded, .forward = forward_recorded},
};

gboolean
op_is_kept(const OpInfo *info, KeptOps kept, int *mms)
{
  if (info->kind == KIND_MM)
    ++*mms;
  switch (kept) {
  case KEEP_ALTERNATE_MM:
    return info->kind == KIND_ATTENTION || (info->kind == KIND_MM && *mms % 2 == 1);
  case KEEP_MATMUL:
    return info->kind != KIND_OTHER;
  default:
    return info->kind == KIND_ATTENTION;
  }
}

const OpInfo *
op_info(OpId op)
{
  return &ops[op];
}
