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

static void
shape_view_as_complex(OpCase *c)
{
  c->outs = 1;
  c->out[0] = c->at.result;
}

/* size: how many parts, and how wide all but the first are (0: as wide as that one). */
static void
shape_split(OpCase *c)
{
  c->outs = (int) c->at.size[0];
  for (int i = 0; i < c->outs; i++) {
    c->out[i] = c->at.result;
    if (i > 0 && c->at.size[1] > 0)
      c->out[i].shape[c->out[i].dims - 1] = c->at.size[1];
  }
}

static void
forward_split(OpCase *c)
{
  gint64 offset = 0;
  for (int i = 0; i < c->outs; i++) {
    recipe_alias(c, i, offset);
    offset += c->out[i].shape[c->out[i].dims - 1];
  }
}

static void
backward_split(OpCase *c)
{
  recipe_grad(c, 0, ORDER_DENSE);
  recipe_launch(c, "cat", KERNEL_MEMORY, 0, "g0 g1 g2 >d0");
}

static void
backward_transpose(OpCase *c)
{
  recipe_view(c, 0, 0, ORDER_SWAPPED, (int) c->at.size[0]);
}

static void
backward_view_as_complex(OpCase *c)
{
  recipe_view(c, 0, 0, ORDER_AS_REAL, 0);
}

/* view_as_complex(grad.contiguous()) */
static void
backward_view_as_real(OpCase *c)
{
  recipe_contiguous(c, 0);
}

/* slice_backward, expand's sum: a new dense tensor of the input's shape. */
static void
backward_dense(OpCase *c)
{
  gboolean slice = c->info == op_info(OP_SLICE);
  g_autofree char *derivative = g_strconcat(c->info->name, "_backward", NULL);
  recipe_grad(c, 0, ORDER_DENSE);
  recipe_means(c, derivative, slice ? "first" : NULL, (double) c->at.size[0]);
  recipe_launch(c, c->info->name, KERNEL_MEMORY, 0, "g0 >d0");
}

/* constant_pad_nd with negative padding: a narrow, cloned. */
static void
backward_pad(OpCase *c)
{
  recipe_grad(c, 0, ORDER_LIKE_INCOMING);
  recipe_means(c, "narrow", NULL, 0);
  recipe_launch(c, c->info->name, KERNEL_MEMORY, 0, "g0 >d0");
}

/* Row-major, whatever the gradient's order (_log_softmax_backward_data, SoftMax.cpp). */
static void
backward_log_softmax(OpCase *c)
{
  recipe_grad(c, 0, ORDER_DENSE);
  recipe_means(c, "log_softmax_backward", NULL, 0);
  recipe_launch(c, c->info->name, KERNEL_MEMORY, 0, "g0 o0 >d0");
}

/* Gradients of a product: other, then self (rule L4), each of the result's shape until validation.
 */
static void
backward_mul(OpCase *c)
{
  for (int i = 1; i >= 0; i--) {
    recipe_grad_full(c, i);
    recipe_launch(c, "mul", KERNEL_MEMORY, 0, i == 1 ? "g0 i0 >d1" : "g0 i1 >d0");
  }
}

/* The conjugate of the table is materialised. */
static void
backward_mul_complex(OpCase *c)
{
  int conjugate = recipe_temp(c, value_bytes(&c->in[1]), "conj(table)");
  recipe_grad(c, 0, ORDER_LIKE_INCOMING);
  recipe_means(c, "mul_conjugate", NULL, 0);
  recipe_launch(c, "mul", KERNEL_MEMORY, 0, "g0 i1 >d0");
  recipe_release(c, conjugate);
}

/* pow(x, 2) and rsqrt(x): grad * factor * power, two intermediate products. */
static void
backward_power(OpCase *c)
{
  gint64 bytes = value_bytes(&c->out[0]);
  int power = recipe_temp(c, bytes, "power"), product = recipe_temp(c, bytes, "scaled power");
  recipe_grad(c, 0, ORDER_LIKE_INCOMING);
  recipe_means(c, c->info == op_info(OP_POW) ? "pow_backward" : "rsqrt_backward", c->at.key,
               c->at.number);
  recipe_launch(c, c->info->name, KERNEL_MEMORY, 0, "g0 i0 o0 >d0");
  recipe_release(c, product);
  recipe_release(c, power);
}

static void
backward_sum(OpCase *c)
{
  recipe_view(c, 0, 0, ORDER_EXPANDED, 0);
}

static void
backward_cat(OpCase *c)
{
  gint64 offset = 0;
  for (int i = 0; i < c->ins; i++) {
    recipe_view(c, i, offset, ORDER_SAME, 0); /* narrow */
    offset += c->in[i].shape[c->in[i].dims - 1];
  }
}

static void
shape_dropout(OpCase *c)
{
  c->outs = 2;
  c->out[0] = c->in[0];
  value_order_like(&c->out[0], 1, c->in);
  c->out[1] = value_like(&c->out[0], DTYPE_BOOL);
}

static void
forward_dropout(OpCase *c)
{
  recipe_out(c, 1, "dropout mask");
  recipe_out(c, 0, "dropout");
  if (c->at.key != NULL)
    recipe_means(c, "native_dropout", c->at.key, c->at.number);
  recipe_launch(c, "native_dropout", KERNEL_MEMORY, 0, "i0 >o0 >o1");
}

static void
backward_dropout(OpCase *c)
{
  recipe_grad(c, 0, ORDER_LIKE_INCOMING);
  if (c->at.key != NULL)
    recipe_means(c, "native_dropout_backward", c->at.key, c->at.number);
  recipe_launch(c, "native_dropout_backward", KERNEL_MEMORY, 0, "g0 o1 >d0");
}

static void
shape_nll_loss(OpCase *c)
{
  c->outs = 2;
  c->out[0] = value_vector(1, (DType) c->in[0].dtype); /* loss */
  c->out[0].dims = 0;
  c->out[1] = c->out[0]; /* total_weight */
}

static void
forward_nll_loss(OpCase *c)
{
  recipe_out(c, 0, "loss");
  recipe_out(c, 1, "total_weight");
  recipe_launch(c, "nll_loss", KERNEL_MEMORY, 0, "~i0 i1 >o0 >o1");
}

static void
backward_nll_loss(OpCase *c)
{
  recipe_grad(c, 0, ORDER_DENSE);
  recipe_launch(c, "nll_loss_backward", KERNEL_MEMORY, 0, "g0 i1 o1 >d0");
}

/* csrc/xentropy of flash-attn: a loss and a logsumexp for each row. */
static void
shape_fused_cross_entropy(OpCase *c)
{
  c->outs = 2;
  c->out[0] = value_vector(c->in[0].shape[0], DTYPE_FP32);
  c->out[1] = c->out[0];
}

/* A row is read twice: for its sum of exponentials, and before it for its largest element. */
static void
forward_fused_cross_entropy(OpCase *c)
{
  recipe_out(c, 0, "losses");
  recipe_out(c, 1, "logsumexp");
  recipe_launch(c, "fused_cross_entropy", KERNEL_MEMORY, 0, "i0 i0 i1 >o0 >o1");
}

static void
backward_fused_cross_entropy(OpCase *c)
{
  recipe_grad(c, 0, ORDER_DENSE);
  recipe_launch(c, "fused_cross_entropy_backward", KERNEL_MEMORY, 0, "g0 i0 o1 i1 >d0");
}

static void
shape_cumsum(OpCase *c)
{
  c->outs = 1;
  c->out[0] = value_like(&c->in[0], DTYPE_INT64);
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
                  .backward = backward_dense},
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
    [OP_ADD] = {"add", .shape = shape_broadcast, .forward = forward_outputs,
                .backward = backward_pass},
    [OP_ADD_SCALAR] = {"add_scalar", .shape = shape_like_first, .forward = forward_outputs,
                       .backward = backward_pass},
    [OP_MUL] = {"mul", SAVES(FOR_GRAD_OF(0, I1), FOR_GRAD_OF(1, I0)), .shape = shape_broadcast,
                .forward = forward_outputs, .backward = backward_mul},
    [OP_MUL_COMPLEX] = {"mul_complex", SAVES(FOR_GRAD_OF(0, I1)), .shape = shape_like_first,
                        .forward = forward_outputs, .backward = backward_mul_complex},
    [OP_MUL_SCALAR] = {"mul_scalar", .shape = shape_like_first, .forward = forward_outputs,
                       .backward = backward_new},
    [OP_DIV_SCALAR] = {"div_scalar", .shape = shape_like_first, .forward = forward_outputs,
                       .backward = backward_new},
    [OP_NEG] = {"neg", .shape = shape_like_first, .forward = forward_outputs,
                .backward = backward_new},
    [OP_POW] = {"pow", SAVES(ALWAYS(I0)), .shape = shape_like_first, .forward = forward_outputs,
                .backward = backward_power},
    [OP_RSQRT] = {"rsqrt", SAVES(ALWAYS(O0)), .shape = shape_like_first, .forward = forward_outputs,
                  .backward = backward_power},
    [OP_TANH] = {"tanh", SAVES(ALWAYS(O0)), .shape = shape_like_first, .forward = forward_outputs,
                 .backward = backward_new},
    [OP_SILU] = {"silu", SAVES(ALWAYS(I0)), .shape = shape_like_first, .forward = forward_outputs,
                 .backward = backward_new},
    [OP_GELU] = {"gelu", SAVES(ALWAYS(I0)), .shape = shape_like_first, .forward = forward_outputs,
                 .backward = backward_new},
    [OP_CLAMP] = {"clamp", SAVES(ALWAYS(I0)), .shape = shape_like_first, .forward = forward_outputs,
                  .backward = backward_new},
    [OP_MASKED_FILL] = {"masked_fill", SAVES(ALWAYS(I1)), .shape = shape_like_first,
                        .forward = forward_outputs, .backward = backward_new},
    [OP_MEAN] = {"mean", .shape = shape_result, .forward = forward_outputs,
                 .backward = backward_dense},
    [OP_SUM] = {"sum", .shape = shape_result, .forward = forward_outputs, .backward = backward_sum},
    [OP_CAT] = {"cat", .shape = shape_result, .forward = forward_outputs, .backward = backward_cat},
    [OP_PAD] = {"constant_pad_nd", .shape = shape_result, .forward = forward_outputs,
                .backward = backward_pad},
    [OP_DROPOUT] = {"native_dropout", SAVES(ALWAYS(O1)), .shape = shape_dropout,
                    .forward = forward_dropout, .backward = backward_dropout},

    /* matmuls */
    [OP_MM] = {"mm", SAVES(FOR_GRAD_OF(0, I1), FOR_GRAD_OF(1, I0)), .shape = shape_mm,
               .forward = forward_mm, .backward = backward_mm, .kind = KIND_MM},
    [OP_ADDMM] = {"addmm", SAVES(FOR_GRAD_OF(2, I1), FOR_GRAD_OF(1, I2)), .shape = shape_mm,
                  .forward = forward_addmm, .backward = backward_addmm, .kind = KIND_MATMUL},
    [OP_BMM] = {"bmm", SAVES(FOR_GRAD_OF(0, I1), FOR_GRAD_OF(1, I0)), .shape = shape_mm,
                .forward = forward_bmm, .backward = backward_bmm, .kind = KIND_MATMUL},
    /* one node for the layer, which keeps the Parameter and not its data; apply()'s locals die in
     * the order input, weight, bias */
    [OP_ZERO3_LINEAR] = {"zero3_linear", SAVES(ALWAYS(I2), ALWAYS(I1), ALWAYS(I0)),
                         .saves_late = TRUE, .shape = shape_zero3_linear,
                         .forward = forward_zero3_linear, .backward = backward_zero3_linear,
                         .kind = KIND_MM},

    /* norms, look-ups, losses */
    [OP_RMS_NORM] = {"fused_rms_norm", SAVES(ALWAYS(I0), ALWAYS(I1), ALWAYS(O1)),
                     .shape = shape_rms_norm, .forward = forward_outputs,
                     .backward = backward_rms_norm},
    [OP_LAYER_NORM] = {"native_layer_norm",
                       SAVES(ALWAYS(I2), ALWAYS(I0), ALWAYS(I1), ALWAYS(O1), ALWAYS(O2)),
                       .shape = shape_layer_norm, .forward = forward_outputs,
                       .backward = backward_layer_norm},
    [OP_EMBEDDING] = {"embedding", SAVES(ALWAYS(I1)), .shape = shape_embedding,
                      .forward = forward_embedding, .backward = backward_embedding},
    [OP_LOG_SOFTMAX] = {"log_softmax", SAVES(ALWAYS(O0)), .shape = shape_like_first,
                        .forward = forward_outputs, .backward = backward_log_softmax},
    [OP_NLL_LOSS] = {"nll_loss", SAVES(ALWAYS(I0), ALWAYS(I1), ALWAYS(O1)), .shape = shape_nll_loss,
                     .forward = forward_nll_loss, .backward = backward_nll_loss},
    [OP_FUSED_CROSS_ENTROPY] = {"fused_cross_entropy", SAVES(ALWAYS(I0), ALWAYS(O1), ALWAYS(I1)),
                                .saves_late = TRUE, .shape = shape_fused_cross_entropy,
                                .forward = forward_fused_cross_entropy,
                                .backward = backward_fused_cross_entropy},

    /* attention */
    [OP_SOFTMAX] = {"softmax", SAVES(ALWAYS(O0)), .shape = shape_like_first,
                    .forward = forward_outputs, .backward = backward_softmax},
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
    [OP_CREATE] = {"create", .shape = shape_result, .forward = forward_outputs},
    [OP_CUMSUM] = {"cumsum", .shape = shape_cumsum, .forward = forward_cumsum},

    /* given by numbers */
    [OP_OPAQUE] = {"opaque", SAVES(ALWAYS(O1)), .shape = shape_opaque, .forward = forward_opaque,
                   .backward = backward_opaque},
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
