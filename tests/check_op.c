/* check_op.c - every row of the table of ops: shapes, what is allocated, what is saved, what
 * backward does; sizes of scratch buffers; FLOPs and bytes.  op_cases.h has the cases; how long
 * kernels take is not tested here. */
#include "op_cases.h"

#include <string.h>

#include "network/builder.h"
#include "network/strides.h"
#include "tap_main.h"

static const DeviceLimits h100 = {132, 2048, 90};

/* ---- a call and its recipe ---- */

typedef struct {
  Builder *b;
  const Op *op;
  const Function *function;
} Call;

/* The value with the strides that it leaves out. */
static ValueInfo
with_strides(ValueInfo value)
{
  gboolean given = FALSE;
  for (int i = 0; i < value.dims; i++)
    given |= value.stride[i] != 0;
  if (!given)
    value_set_contiguous(&value);
  return value;
}

static Call
make_call(const Case *test)
{
  const NetworkShape shape = {
      .micro_batch = 1, .sequence_length = 1, .micro_batches = 1, .device = h100};
  Call call = {.b = builder_new("test", &shape)};
  Val in[OP_INPUTS], outs[OP_OUTPUTS];
  ValueInfo infos[OP_INPUTS];
  OpAttributes at = test->at;
  at.result = with_strides(at.result);
  for (int i = 0; i < test->ins; i++)
    infos[i] = with_strides(test->in[i]);
  builder_function_begin(call.b, "f", -1, test->ins, infos, in);
  builder_op_multi(call.b, test->op, &at, test->ins, in, 0, outs);
  builder_function_end(call.b, NO_VAL);
  call.function = network_function(builder_network(call.b), 0);
  call.op = &g_array_index(call.function->ops, Op, 0);
  return call;
}

static void
end_call(Call *call)
{
  network_free(builder_finish(call->b, NULL));
}

static void
add_space(GString *text)
{
  if (text->len > 0)
    g_string_append_c(text, ' ');
}

static void
add_buffer(GString *text, int buffer)
{
  static const struct {
    int base;
    char letter;
  } kinds[] = {{BUFFER_GRAD, 'd'},
               {BUFFER_INCOMING, 'g'},
               {BUFFER_TEMP, 't'},
               {BUFFER_OUT, 'o'},
               {BUFFER_IN, 'i'}};
  guint k = 0;
  while (buffer < kinds[k].base)
    k++;
  g_string_append_printf(text, "%c%d", kinds[k].letter, buffer - kinds[k].base);
}

/* How the order of a new gradient or of a view of the incoming one is written. */
static void
add_order(GString *text, const OpStep *step)
{
  static const char *const letters[] = {
      [ORDER_DENSE] = "",         [ORDER_LIKE_INCOMING] = "l", [ORDER_LIKE_OPERAND] = "e",
      [ORDER_HEADS_INSIDE] = "h", [ORDER_SAME] = "",           [ORDER_SWAPPED] = "/",
      [ORDER_EXPANDED] = "x",     [ORDER_AS_REAL] = "r",       [ORDER_LIKE_INPUT] = "i"};
  g_string_append(text, letters[step->order]);
  if (step->order == ORDER_SWAPPED)
    g_string_append_printf(text, "%d", step->index);
}

static void
add_view(GString *text, const OpStep *step, const char *how)
{
  add_buffer(text, step->buffer);
  g_string_append(text, how);
}

static void
add_bytes(GString *text, const OpStep *step)
{
  g_string_append_printf(text, ":%" G_GINT64_FORMAT, step->bytes);
}

static void
add_step_text(GString *text, const Function *f, const OpStep *step)
{
  add_space(text);
  switch ((OpAction) step->action) {
  case STEP_ALLOC:
    g_string_append_c(text, '+');
    add_buffer(text, step->buffer);
    add_bytes(text, step);
    add_order(text, step);
    break;
  case STEP_RELEASE:
    g_string_append_c(text, '-');
    add_buffer(text, step->buffer);
    break;
  case STEP_ALIAS:
    add_view(text, step, "=");
    add_buffer(text, step->source);
    g_string_append_printf(text, "@%" G_GINT64_FORMAT, step->bytes);
    break;
  case STEP_PASS:
    add_view(text, step, "=");
    add_buffer(text, step->source);
    break;
  case STEP_VIEW:
    add_view(text, step, "=view");
    g_string_append_printf(text, "@%" G_GINT64_FORMAT, step->bytes);
    add_order(text, step);
    break;
  case STEP_RESHAPE:
    add_view(text, step, "=reshape");
    add_bytes(text, step);
    break;
  case STEP_CONTIGUOUS:
    add_view(text, step, "=contiguous");
    add_bytes(text, step);
    break;
  case STEP_CONTIGUOUS_TEMP:
    g_string_append_c(text, '?');
    add_buffer(text, step->buffer);
    add_bytes(text, step);
    break;
  case STEP_REPLACE:
    add_view(text, step, ":=");
    add_buffer(text, step->source);
    g_string_append(text, step->order == ORDER_SAME ? "s" : "");
    break;
  case STEP_LAUNCH:
    g_string_append_printf(text, "k:%s", g_array_index(f->kernels, OpKernel, step->index).name);
    break;
  case STEP_WORKSPACE:
    g_string_append(text, step->index == WORKSPACE_CUBLAS ? "cublas" : "cublaslt");
    break;
  }
}

static char *
recipe_text(const Call *call, gint32 first, gint32 end)
{
  GString *text = g_string_new(NULL);
  for (gint32 i = first; i < end; i++)
    add_step_text(text, call->function, &g_array_index(call->function->steps, OpStep, i));
  return g_string_free(text, FALSE);
}

static void
add_numbers(GString *text, const char *brackets, int n, const gint64 *numbers)
{
  g_string_append_c(text, brackets[0]);
  for (int i = 0; i < n; i++)
    g_string_append_printf(text, "%s%" G_GINT64_FORMAT, i > 0 ? "," : "", numbers[i]);
  g_string_append_c(text, brackets[1]);
}

static char *
outs_text(const Call *call)
{
  GString *text = g_string_new(NULL);
  for (int i = 0; i < call->op->outs; i++) {
    const ValueInfo *out = &g_array_index(call->function->values, ValueInfo, call->op->out[i]);
    add_space(text);
    g_string_append(text, dtype_name((DType) out->dtype));
    add_numbers(text, "[]", out->dims, out->shape);
    if (!value_is_contiguous(out))
      add_numbers(text, "()", out->dims, out->stride);
  }
  return g_string_free(text, FALSE);
}

static char *
saved_text(const Call *call)
{
  GString *text = g_string_new(NULL);
  for (int i = 0; i < call->op->saves; i++) {
    add_space(text);
    add_buffer(text, call->op->saved[i]);
  }
  return g_string_free(text, FALSE);
}

/* ---- tests ---- */

START_TEST(every_row_does_what_its_cases_say)
{
  const Case *test = &op_cases[_i];
  Call call = make_call(test);
  g_autofree char *outs = outs_text(&call), *saved = saved_text(&call);
  g_autofree char *forward = recipe_text(&call, call.op->forward, call.op->backward);
  g_autofree char *backward = recipe_text(&call, call.op->backward, call.op->validate);
  g_autofree char *validate = recipe_text(&call, call.op->validate, call.op->end);
  const struct {
    const char *what, *is, *expected;
  } parts[] = {
      {"outputs", outs, test->outs},
      {"forward", forward, test->forward},
      {"saved", saved, test->saved},
      {"backward", backward, test->backward != NULL ? test->backward : ""},
      {"validation", validate, test->validate != NULL ? test->validate : ""},
  };
  for (guint i = 0; i < G_N_ELEMENTS(parts); i++)
    if (strcmp(parts[i].is, parts[i].expected) != 0)
      ck_abort_msg("%s (%s): %s is\n  %s\nnot\n  %s", op_info(test->op)->name, test->name,
                   parts[i].what, parts[i].is, parts[i].expected);
  ck_assert_int_eq(call.op->node, test->backward != NULL || op_info(test->op)->is_leaf);
  end_call(&call);
}
END_TEST

START_TEST(every_row_of_the_table_has_a_case)
{
  static const char *const names[] = {
#define X(id) #id,
      OPS(X)
#undef X
  };
  gboolean seen[OP_COUNT] = {FALSE};
  for (guint i = 0; i < G_N_ELEMENTS(op_cases); i++)
    seen[op_cases[i].op] = TRUE;
  for (int i = 0; i < OP_COUNT; i++)
    ck_assert_msg(seen[i], "OP_%s has no case in op_cases.h", names[i]);
}
END_TEST

START_TEST(every_row_is_complete)
{
  for (int i = 0; i < OP_COUNT; i++) {
    const OpInfo *info = op_info((OpId) i);
    ck_assert_ptr_nonnull(info->name);
    ck_assert(info->shape != NULL && info->forward != NULL);
    ck_assert_int_le(info->save_count, OP_SAVED);
    ck_assert_msg(info->save_count == 0 || info->backward != NULL,
                  "%s saves for a backward it has not", info->name);
  }
}
END_TEST

START_TEST(without_gradients_nothing_is_saved_and_no_backward_is_written)
{
  for (guint i = 0; i < G_N_ELEMENTS(op_cases); i++) {
    Case plain = op_cases[i];
    for (int k = 0; k < plain.ins; k++)
      plain.in[k].requires_grad = FALSE;
    Call call = make_call(&plain);
    g_autofree char *forward = recipe_text(&call, call.op->forward, call.op->backward);
    ck_assert_str_eq(forward, op_cases[i].forward);
    ck_assert(!call.op->node || op_info(plain.op)->is_leaf);
    ck_assert_int_eq(call.op->saves, 0);
    ck_assert_int_eq(call.op->backward, call.op->end);
    end_call(&call);
  }
}
END_TEST

/* ---- sums over rows ---- */

/* What the gradient of an addmm's bias takes: scratch and semaphores of a sum of `rows` rows of n.
 */
static char *
bias_sum(gint64 rows, gint64 n)
{
  Case test = {.op = OP_ADDMM,
               .ins = 3,
               .in = {WANTS(BF16, 1, n), PLAIN(BF16, 2, rows, 16), PLAIN(BF16, 2, 16, n)}};
  Call call = make_call(&test);
  char *text = recipe_text(&call, call.op->validate, call.op->end);
  end_call(&call);
  return text;
}

/* PyTorch's reduction over rows (aten/src/ATen/native/cuda/Reduce.cuh), 132 SMs of 2048 threads.  v
 * = 4, 2 or 1 divides n (1 below 64); threads 512 / v, 32 at first along n / v, the rest along the
 * rows. */
START_TEST(sums_over_rows_share_an_output_between_blocks_when_there_are_many_rows)
{
  static const struct {
    gint64 rows, n;
    const char *expected;
  } sums[] = {
      /* GPT-2 XL's MLP at 8192 tokens: v 4, 1600 columns, 32 x 4 threads; 2048 rows a thread, 50
       * blocks of at most 2112: 43 blocks an output: 4 * 6400 * 43 * 32 * 4 bytes and 4 * 50 */
      {8192, 6400, "+t0:12800 +t1:140902400 +t2:200 -t2 -t1 k:sum d0:=t0"},
      /* the same at 1024 tokens: 256 rows a thread are just enough; min(43, 16) = 16 blocks: 4 *
         6400 * 16 * 128 */
      {1024, 6400, "+t0:12800 +t1:52428800 +t2:200 -t2 -t1 k:sum d0:=t0"},
      /* 1020 tokens: 255 rows a thread are not */
      {1020, 6400, "+t0:12800 k:sum d0:=t0"},
      /* 768 wide at 2048 tokens: 192 columns, 6 blocks; 512 rows a thread: min(352, 32): 4 * 768 *
         32 * 128 and 24 */
      {2048, 768, "+t0:1536 +t1:12582912 +t2:24 -t2 -t1 k:sum d0:=t0"},
      /* 66 = 2 * 33: v 2, 33 columns, 32 x 8 threads; 512 rows a thread, 2 blocks: min(528, 32): 4
       * 66 * 32 * 64 and 8 */
      {4096, 66, "+t0:132 +t1:540672 +t2:8 -t2 -t1 k:sum d0:=t0"},
      /* 60 is below 64: v 1, 60 columns, 32 x 16 threads of 512; 256 rows a thread, 2 blocks of 132
       * * 4: min(264, 16): 4 * 60 * 16 * 32 and 8 */
      {4096, 60, "+t0:120 +t1:122880 +t2:8 -t2 -t1 k:sum d0:=t0"},
      /* 6 rows of 5: one block */
      {6, 5, "+t0:10 k:sum d0:=t0"},
      /* 2^20 columns of 4: 8192 blocks and more than the 2112 that run at once: nobody shares */
      {8192, 1 << 20, "+t0:2097152 k:sum d0:=t0"},
  };
  for (guint i = 0; i < G_N_ELEMENTS(sums); i++) {
    g_autofree char *text = bias_sum(sums[i].rows, sums[i].n);
    ck_assert_str_eq(text, sums[i].expected);
  }
}
END_TEST

/* ---- splits of flash attention ---- */

/* How many parts of the keys the forward kernel keeps results of: 1 when it has no scratch. */
static gint64
flash_parts(gint64 batch, gint64 heads, gint64 length, gint64 head_dim)
{
  ValueInfo info = WANTS(BF16, 4, batch, heads, length, head_dim);
  Case test = {.op = OP_FLASH_ATTENTION,
               .ins = 3,
               .in = {info, info, info},
               .at = {.batch = batch,
                      .heads = heads,
                      .kv_heads = heads,
                      .length = length,
                      .head_dim = head_dim}};
  Call call = make_call(&test);
  gint64 parts = 1;
  for (gint32 i = call.op->forward; i < call.op->backward; i++) {
    const OpStep *step = &g_array_index(call.function->steps, OpStep, i);
    if (step->action == STEP_ALLOC && step->buffer == BUFFER_TEMP)
      parts = step->bytes / (4 * batch * heads * length);
  }
  end_call(&call);
  return parts;
}

/* flash_attn's num_splits_heuristic on 132 SMs: 264 places; a block of queries is 64 rows, of keys
 * 256, 128 (head dim over 64) or 64 (over 128).  One split if 0.8 of the places are taken; else the
 * fewest that fill the waves at 85 % of the best. */
START_TEST(flash_attention_splits_keys_when_queries_are_few)
{
  static const struct {
    gint64 batch, heads, length, head_dim, parts;
  } splits[] = {
      {1, 32, 8192, 128, 1}, /* 4096 blocks of queries */
      {1, 16, 1024, 64, 1},  /* 256 blocks: 0.8 * 264 = 211 are enough */
      {1, 8, 1024, 64, 2},   /* 128 blocks, 4 of keys: 0.485 of a wave; 2 fill 0.97 */
      {1, 4, 2048, 128, 2},  /* 128 blocks, 16 of keys */
      {1, 4, 512, 256, 8},   /* 32 blocks, 8 of keys: 1, 2, 3, 4 fill 0.12 .. 0.48; 5 to 7 are cut
                                like 4; 8 fill 0.97 */
      {1, 1, 256, 64, 1},    /* 4 blocks, 1 of keys: nothing to split */
      {2, 8, 640, 64,
       3}, /* 160 blocks, 3 of keys: 1 and 2 fill 0.606, less than 0.85 * 0.909 of 3 */
  };
  for (guint i = 0; i < G_N_ELEMENTS(splits); i++)
    ck_assert_int_eq(
        flash_parts(splits[i].batch, splits[i].heads, splits[i].length, splits[i].head_dim),
        splits[i].parts);
}
END_TEST

/* ---- work ---- */

/* The kernels of a recipe. */
static const OpKernel *
kernel_of(const Call *call, gint32 first, gint32 end, int which)
{
  for (gint32 i = first; i < end; i++) {
    const OpStep *step = &g_array_index(call->function->steps, OpStep, i);
    if (step->action == STEP_LAUNCH && which-- == 0)
      return &g_array_index(call->function->kernels, OpKernel, step->index);
  }
  ck_abort_msg("no such kernel");
}

START_TEST(a_matrix_product_does_two_flops_for_each_multiply_add_in_all_three_directions)
{
  Case test = {.op = OP_MM, .ins = 2, .in = {WANTS(BF16, 2, 6, 4), WANTS(BF16, 2, 4, 5)}};
  Call call = make_call(&test);
  const Op *op = call.op;
  const OpKernel *forward = kernel_of(&call, op->forward, op->backward, 0);
  const OpKernel *weight = kernel_of(&call, op->backward, op->end, 0);
  const OpKernel *input = kernel_of(&call, op->backward, op->end, 1);
  ck_assert_double_eq(forward->kernel.flops, 2 * 6 * 4 * 5);
  ck_assert_double_eq(weight->kernel.flops, 2 * 6 * 4 * 5);
  ck_assert_double_eq(input->kernel.flops, 2 * 6 * 4 * 5);
  /* every operand once, two bytes an element */
  ck_assert_double_eq(forward->kernel.bytes, 2 * (6 * 4 + 4 * 5 + 6 * 5));
  ck_assert_double_eq(weight->kernel.bytes, 2 * (6 * 4 + 4 * 5 + 6 * 5));
  /* the weight's gradient is [4, 5], a sum over 6; the input's [6, 4], over 5 */
  ck_assert_int_eq(weight->kernel.m, 4);
  ck_assert_int_eq(weight->kernel.n, 5);
  ck_assert_int_eq(weight->kernel.k, 6);
  ck_assert_int_eq(input->kernel.m, 6);
  ck_assert_int_eq(input->kernel.n, 4);
  ck_assert_int_eq(input->kernel.k, 5);
  end_call(&call);
}
END_TEST

START_TEST(attention_does_the_causal_half_of_two_products_and_five_halves_of_it_backward)
{
  for (guint i = 0; i < G_N_ELEMENTS(op_cases); i++) {
    const Case *test = &op_cases[i];
    if (test->op != OP_FLASH_ATTENTION && test->op != OP_EFFICIENT_ATTENTION)
      continue;
    Call call = make_call(test);
    const OpAttributes *at = &test->at;
    gint64 keys = at->keys > 0 ? at->keys : at->length;
    double square =
        (double) (at->batch * at->heads) * (double) (at->length * keys) * (double) at->head_dim;
    if (test->ins > 3) /* an explicit mask is added to all of the square */
      square *= 2;
    ck_assert_double_eq(kernel_of(&call, call.op->forward, call.op->backward, 0)->kernel.flops,
                        2 * square);
    ck_assert_double_eq(kernel_of(&call, call.op->backward, call.op->end, 0)->kernel.flops,
                        5 * square);
    end_call(&call);
  }
}
END_TEST

START_TEST(an_op_given_by_numbers_does_twice_the_work_backward)
{
  Case test = {.op = OP_OPAQUE,
               .ins = 1,
               .in = {WANTS(BF16, 1, 6)},
               .at = {.result = PLAIN(BF16, 1, 6), .size = {0, 0, 1000}}};
  Call call = make_call(&test);
  ck_assert_double_eq(kernel_of(&call, call.op->forward, call.op->backward, 0)->kernel.flops, 1000);
  ck_assert_double_eq(kernel_of(&call, call.op->backward, call.op->end, 0)->kernel.flops, 2000);
  end_call(&call);
}
END_TEST

START_TEST(element_wise_kernels_move_each_operand_once)
{
  Case add = {.op = OP_ADD, .ins = 2, .in = {WANTS(BF16, 2, 6, 4), WANTS(FP32, 2, 6, 4)}};
  Call call = make_call(&add);
  ck_assert_double_eq(kernel_of(&call, call.op->forward, call.op->backward, 0)->kernel.bytes,
                      24 * (2 + 4 + 4));
  ck_assert_double_eq(kernel_of(&call, call.op->forward, call.op->backward, 0)->kernel.flops, 0);
  end_call(&call);
}
END_TEST

/* Forward goes twice over 16-bit logits and backward once, writing as many: 4 bytes each way for a
 * logit, besides the labels and the numbers of a row. */
START_TEST(a_fused_cross_entropy_moves_four_bytes_a_logit_forward_and_four_backward)
{
  Case loss = {
      .op = OP_FUSED_CROSS_ENTROPY, .ins = 2, .in = {WANTS(BF16, 2, 6, 5), PLAIN(INT64, 1, 6)}};
  Call call = make_call(&loss);
  ck_assert_double_eq(kernel_of(&call, call.op->forward, call.op->backward, 0)->kernel.bytes,
                      4 * 30 + 6 * (8 + 4 + 4));
  ck_assert_double_eq(kernel_of(&call, call.op->backward, call.op->end, 0)->kernel.bytes,
                      4 * 30 + 6 * (4 + 4 + 8));
  end_call(&call);
}
END_TEST

/* Of four calls in a row of an op, which are kept (x). */
static const struct {
  KeptOps keep;
  const char *attention, *mm, *other_products, *rest;
} kept_calls[] = {
    {KEEP_ALTERNATE_MM, "xxxx", "x.x.", "....", "...."},
    {KEEP_MATMUL, "xxxx", "xxxx", "xxxx", "...."},
    {KEEP_ATTENTION, "xxxx", "....", "....", "...."},
};

/* torchtitan's list keeps every second mm and all fused attention, and no addmm. */
START_TEST(selective_checkpointing_keeps_attention_and_the_products_of_its_list)
{
  for (int i = 0; i < OP_COUNT; i++) {
    const char *expected =
        i == OP_FLASH_ATTENTION || i == OP_EFFICIENT_ATTENTION ? kept_calls[_i].attention
        : i == OP_MM || i == OP_ZERO3_LINEAR                   ? kept_calls[_i].mm
        : i == OP_ADDMM || i == OP_BMM || i == OP_MM_UNCOUNTED ? kept_calls[_i].other_products
                                                               : kept_calls[_i].rest;
    int mms = 0;
    for (int call = 0; call < 4; call++)
      ck_assert_int_eq(op_is_kept(op_info((OpId) i), kept_calls[_i].keep, &mms),
                       expected[call] == 'x');
  }
}
END_TEST

Suite *
test_suite(void)
{
  Suite *suite = suite_create("op");
  TCase *rows = tcase_create("rows"), *sizes = tcase_create("sizes"), *work = tcase_create("work");
  tcase_add_loop_test(rows, every_row_does_what_its_cases_say, 0, G_N_ELEMENTS(op_cases));
  tcase_add_test(rows, every_row_of_the_table_has_a_case);
  tcase_add_test(rows, every_row_is_complete);
  tcase_add_test(rows, without_gradients_nothing_is_saved_and_no_backward_is_written);
  tcase_add_test(sizes, sums_over_rows_share_an_output_between_blocks_when_there_are_many_rows);
  tcase_add_test(sizes, flash_attention_splits_keys_when_queries_are_few);
  tcase_add_test(work,
                 a_matrix_product_does_two_flops_for_each_multiply_add_in_all_three_directions);
  tcase_add_test(work,
                 attention_does_the_causal_half_of_two_products_and_five_halves_of_it_backward);
  tcase_add_test(work, an_op_given_by_numbers_does_twice_the_work_backward);
  tcase_add_test(work, element_wise_kernels_move_each_operand_once);
  tcase_add_test(work, a_fused_cross_entropy_moves_four_bytes_a_logit_forward_and_four_backward);
  tcase_add_loop_test(work, selective_checkpointing_keeps_attention_and_the_products_of_its_list, 0,
                      G_N_ELEMENTS(kept_calls));
  suite_add_tcase(suite, rows);
  suite_add_tcase(suite, sizes);
  suite_add_tcase(suite, work);
  return suite;
}
