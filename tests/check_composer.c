/* check_composer.c - Composer's optimizers: which tensors they update, what each costs, where the
 * host waits; and its training loop, which keeps a micro-batch's logits until the next.
 *
 * Expectations follow composer/optim/decoupled_weight_decay.py and trainer/trainer.py. */
#include <string.h>

#include "simulation.h"
#include "tap_main.h"

/* Two linear layers of 60 x 60 without biases. */
static const char two[] =
    "{'family': 'blocks', 'hidden': 60, 'embedding': false, 'head': false, 'loss': 'sum',"
    " 'blocks': [{'repeat': 2, 'ops': [{'op': 'linear', 'out': 60}]}]}";
enum { TWO = 2, WIDTH = 3600 };

static const char mpt[] =
    "{'model_type': 'mpt', 'd_model': 64, 'n_layers': 2, 'n_heads': 4, 'vocab_size': 100}";

#define PLAN(strategy, more)                                                                       \
  "{'strategy': '" strategy "', 'batch': {'micro_batch': 1, 'sequence_length': 32}, "              \
  "'optimizer': {'implementation': 'composer'}" more "}"

enum { STEPS = 3 };

static Simulated *
lower_plan(const char *network, const char *plan)
{
  return simulation_lower(&(Simulation){network, plan, NULL, 0}, STEPS);
}

/* What the optimizer does in a step: from the beginning of its phase to the end of the list. */
typedef struct {
  double bytes;
  int kernels, waits;
} Work;

static Work
optimizer_work(const Simulated *s, int step)
{
  const Program *program = s->lowered->program;
  const GArray *ops = program_step(program, step)->ops;
  Work work = {0};
  gboolean inside = FALSE;
  for (guint i = 0; i < ops->len; i++) {
    const ProgramOp *op = &g_array_index(ops, ProgramOp, i);
    if (op->kind == PROGRAM_RANGE_PUSH)
      inside |= strcmp(program_text(program, op->a), "optimizer") == 0;
    if (!inside)
      continue;
    work.waits += op->kind == PROGRAM_STREAM_SYNC;
    if (op->kind != PROGRAM_LAUNCH)
      continue;
    work.kernels++;
    work.bytes += g_array_index(program->kernels, Kernel, op->a).bytes;
  }
  return work;
}

/* In fp32, an element: the weight decays (read and written: 8), first moment times beta (8) plus
 * the gradient (12), second moment times beta (8) plus the gradient's square, whose factors are two
 * operands (16), root (8), over a number (8), plus epsilon (8), and the step (16): 92 in nine
 * kernels.  The counter is increased before. */
START_TEST(decoupled_adamw_moves_92_bytes_a_parameter_in_nine_kernels)
{
  g_autoptr(Simulated) s = lower_plan(two, PLAN("none", ""));
  Work work = optimizer_work(s, 1);
  ck_assert_double_eq(work.bytes, 92.0 * TWO * WIDTH + TWO * 8);
  ck_assert_int_eq(work.kernels, TWO * (9 + 1));
}
END_TEST

/* buf * momentum (8) + gradient (12), decay (8), step (12) */
START_TEST(decoupled_sgdw_moves_40_bytes_a_parameter_and_waits_for_nothing)
{
  g_autoptr(Simulated) s = simulation_lower(
      &(Simulation){two, PLAN("none", ""), (const char *const[]){"optimizer.name=sgd", NULL}, 0},
      STEPS);
  Work work = optimizer_work(s, 1);
  ck_assert_double_eq(work.bytes, 40.0 * TWO * WIDTH);
  ck_assert_int_eq(work.waits, 0);
}
END_TEST

START_TEST(the_host_waits_for_the_counter_of_each_tensor)
{
  g_autoptr(Simulated) s = lower_plan(two, PLAN("none", ""));
  for (int step = 0; step < STEPS; step++)
    ck_assert_int_eq(optimizer_work(s, step).waits, TWO);
}
END_TEST

/* use_orig_params=False: a flat parameter for each block and, in MPT, the root's. */
START_TEST(under_fsdp1_the_tensors_are_the_flat_parameters)
{
  g_autoptr(Simulated) s =
      lower_plan(mpt, PLAN("fsdp1", ", 'mesh': {'shard': 4}, 'precision': {'compute': 'bf16'}"));
  gint64 local = 0;
  ck_assert_int_eq(optimizer_work(s, 1).waits, 3);
  for (guint i = 0; i < s->lowered->units->len; i++)
    local += ((const Unit *) g_ptr_array_index(s->lowered->units, i))->shard_bytes;
  ck_assert_double_eq(optimizer_work(s, 1).bytes, 92.0 / 4 * (double) local + 3 * 8);
  /* two moments like the parameters, and a counter each */
  ck_assert_int_eq(simulated_bytes_alive(s, STEPS, CATEGORY_OPTIMIZER_STATE), 2 * local + 3 * 4);
}
END_TEST

START_TEST(the_denominator_lives_until_the_next_one_exists)
{
  g_autoptr(Simulated) s = lower_plan(two, PLAN("none", ""));
  g_autoptr(GString) text = g_string_new(NULL), denominators = g_string_new(NULL);
  program_print_allocations(s->lowered->program, program_step(s->lowered->program, 1), text);
  g_auto(GStrv) lines = g_strsplit(text->str, "\n", -1);
  for (int i = 0; lines[i] != NULL; i++)
    if (g_str_has_suffix(lines[i], "denom") || g_str_has_suffix(lines[i], "sqrt"))
      g_string_append_printf(denominators, "%c%s ", lines[i][0], strrchr(lines[i], ' ') + 1);
  ck_assert_str_eq(denominators->str, "+sqrt +denom -sqrt +sqrt +denom -sqrt -denom -denom ");
}
END_TEST

/* ---- the training loop */

/* How many tensors of these bytes made by the output layer are alive when the lists up to this one
 * are over. */
static int
alive_after(const Simulated *s, int steps, gint64 bytes)
{
  const Program *program = s->lowered->program;
  int alive = 0;
  for (int step = -1; step < steps; step++) {
    const GArray *ops = simulated_ops(s, step);
    for (guint i = 0; i < ops->len; i++) {
      const ProgramOp *op = &g_array_index(ops, ProgramOp, i);
      if (op->kind != PROGRAM_ALLOC && op->kind != PROGRAM_FREE)
        continue;
      const Storage *storage = &g_array_index(program->storages, Storage, op->a);
      if (storage->bytes == bytes && strcmp(program_text(program, storage->what), "linear") == 0)
        alive += op->kind == PROGRAM_ALLOC ? 1 : -1;
    }
  }
  return alive;
}

START_TEST(a_micro_batchs_logits_live_until_the_next_ones_are_there)
{
  g_autoptr(Simulated) s = lower_plan(mpt, PLAN("none", ", 'accumulation': {'steps': 2}"));
  enum { LOGITS = 32 * 100 * 4 };
  for (int step = 0; step <= STEPS; step++)
    ck_assert_int_eq(alive_after(s, step, LOGITS), step > 0);
}
END_TEST

START_TEST(train_metrics_follow_each_backward)
{
  g_autoptr(Simulated) s = lower_plan(mpt, PLAN("none", ", 'accumulation': {'steps': 2}"));
  const Program *program = s->lowered->program;
  const GArray *ops = program_step(program, 1)->ops;
  g_autoptr(GString) phases = g_string_new(NULL);
  for (guint i = 0; i < ops->len; i++) {
    const ProgramOp *op = &g_array_index(ops, ProgramOp, i);
    if (op->kind == PROGRAM_RANGE_PUSH && op->b == RANGE_PHASE)
      g_string_append_printf(phases, "%s ", program_text(program, op->a));
  }
  ck_assert_str_eq(phases->str,
                   "zero_grad forward backward metrics forward backward metrics optimizer ");
}
END_TEST

Suite *
test_suite(void)
{
  Suite *suite = suite_create("composer");
  TCase *optimizer = tcase_create("optimizer"), *loop = tcase_create("loop");
  tcase_add_test(optimizer, decoupled_adamw_moves_92_bytes_a_parameter_in_nine_kernels);
  tcase_add_test(optimizer, decoupled_sgdw_moves_40_bytes_a_parameter_and_waits_for_nothing);
  tcase_add_test(optimizer, the_host_waits_for_the_counter_of_each_tensor);
  tcase_add_test(optimizer, under_fsdp1_the_tensors_are_the_flat_parameters);
  tcase_add_test(optimizer, the_denominator_lives_until_the_next_one_exists);
  tcase_add_test(loop, a_micro_batchs_logits_live_until_the_next_ones_are_there);
  tcase_add_test(loop, train_metrics_follow_each_backward);
  suite_add_tcase(suite, optimizer);
  suite_add_tcase(suite, loop);
  return suite;
}
