/* transformers_half.c - clamps of encoders' states in fp16 (modeling_t5.py, modeling_bart.py,
 * modeling_whisper.py of release 5). */
#include "network/transformers_half.h"

#include "network/layers.h"
#include "network/op_recipe.h"

static gboolean
is_half(Builder *b, Val x)
{
  return builder_info(b, x).dtype == DTYPE_FP16;
}

static Val
like(Builder *b, const char *what, Val x, DType dtype)
{
  return create(b, what, value_like_dtype(builder_info(b, x), dtype));
}

/* flags.any() or flags.all(): one flag, and what blocks of the reduction share. */
static Val
one_flag(Builder *b, Val flags)
{
  ValueInfo all = builder_info(b, flags);
  ReduceScratch need = reduce_scratch_of_all(value_elements(&all), 1, builder_shape(b)->device);
  Val flag = create(b, "flag", value_shape(DTYPE_BOOL, 0));
  if (need.scratch > 0) {
    Val scratch = create(b, "reduction scratch", value_shape(DTYPE_UINT8, 1, need.scratch));
    Val semaphores =
        create(b, "reduction semaphores", value_shape(DTYPE_UINT8, 1, need.semaphores));
    builder_discard(b, semaphores);
    builder_discard(b, scratch);
  }
  builder_discard(b, flags);
  return flag;
}

/* torch.isinf(x).any() */
static Val
any_infinite(Builder *b, Val x)
{
  Val magnitude = like(b, "magnitude", x, DTYPE_FP16);
  Val infinite = like(b, "is infinite", x, DTYPE_BOOL);
  builder_discard(b, magnitude);
  return one_flag(b, infinite);
}

Val
half_clamp(Builder *b, Val x)
{
  return is_half(b, x) ? let(b, "hidden_states", unary(b, OP_CLAMP, x)) : x;
}

Val
half_clamp_infinite(Builder *b, Val x)
{
  const ValueInfo number = value_shape(DTYPE_FP32, 0);
  if (!is_half(b, x))
    return x;
  Val flag = any_infinite(b, x);
  Val less = create(b, "limit", number), most = create(b, "limit", number);
  Val limit = create(b, "clamp value", number);
  builder_discard(b, most);
  builder_discard(b, less);
  builder_discard(b, flag);
  limit = let(b, "clamp_value", limit);
  Val least = unary(b, OP_NEG, limit);
  return let(b, "hidden_states",
             builder_op(b, OP_CLAMP_BETWEEN, NULL, 3, (Val[]){x, least, limit}));
}

/* torch.isfinite(x).all(): x == x and abs(x) != inf. */
void
half_test_finite(Builder *b, Val x)
{
  if (!is_half(b, x))
    return;
  Val magnitude = like(b, "magnitude", x, DTYPE_FP16);
  Val bounded = like(b, "is bounded", x, DTYPE_BOOL);
  Val number = like(b, "is a number", x, DTYPE_BOOL);
  Val finite = like(b, "is finite", x, DTYPE_BOOL);
  builder_discard(b, number);
  builder_discard(b, bounded);
  builder_discard(b, magnitude);
  builder_discard(b, one_flag(b, finite));
}
