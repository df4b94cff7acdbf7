/* check_measured.c - figures that people measured and reported, beside those that stand with their
 * strategy (DeepSpeed#1302 and #3734 in check_zero.c and check_zero3.c, llama-cookbook#234,
 * pytorch#98354 and #105635 in check_fsdp1.c, DeepSpeed#237 in cli/run.sh). */
#include "base/units.h"
#include "simulation.h"
#include "tap_main.h"

#include <string.h>

#define WITHOUT_LIMIT ((gint64) 1 << 60)

static const char plan[] = "{'strategy': 'none', 'batch': {'sequence_length': 8}}";

/* Bytes of gradients, whole and sharded, when the first micro-batch's backward is over. */
static gint64
gradients_after_a_micro_batch(const Simulated *s)
{
  const Program *program = s->lowered->program;
  const GArray *ops = program_step(program, 0)->ops;
  gint64 bytes = 0;
  for (guint i = 0; i < ops->len; i++) {
    const ProgramOp *op = &g_array_index(ops, ProgramOp, i);
    if (op->kind == PROGRAM_RANGE_PUSH && op->b == RANGE_PHASE && op->c == 1)
      return bytes;
    if (op->kind != PROGRAM_ALLOC && op->kind != PROGRAM_FREE)
      continue;
    const Storage *storage = &g_array_index(program->storages, Storage, op->a);
    if (storage->category == CATEGORY_SHARDED_GRADIENT ||
        storage->category == CATEGORY_UNSHARDED_GRADIENT)
      bytes += op->kind == PROGRAM_ALLOC ? storage->bytes : -storage->bytes;
  }
  ck_abort_msg("no second micro-batch");
}

/* meta-pytorch/tnt#1057: "26B * 2 = 52GB" of bf16 gradients stay unsharded between micro-batches
 * under no_sync, not 52 / 16 = 3.25. */
START_TEST(gradients_of_26_billion_under_no_sync_are_52_GB)
{
  static const char model[] =
      "{'family': 'blocks', 'hidden': 8, 'embedding': false, 'head': false, 'loss': 'sum',"
      " 'blocks': [{'repeat': 26, 'ops': [{'op': 'numbers', 'parameters': 1000000000}]}]}";
  static const char *const strategies[] = {"strategy=fsdp1", "strategy=fsdp2"};
  static const struct {
    const char *sync;
    double gigabytes;
  } cases[] = {{"accumulation.sync_every_step=false", 52},
               {"accumulation.sync_every_step=true", 3.25}};
  for (guint i = 0; i < G_N_ELEMENTS(cases); i++) {
    const char *const set[] = {strategies[_i],         "mesh.shard=16",
                               "accumulation.steps=2", "precision.parameters=bf16",
                               cases[i].sync,          NULL};
    g_autoptr(Simulated) s = simulation_lower(&(Simulation){model, plan, set, 0}, 1);
    ck_assert_double_eq_tol((double) gradients_after_a_micro_batch(s) / 1e9, cases[i].gigabytes,
                            1e-3);
  }
}
END_TEST

/* Allocated, in MiB, when a phase of the step ends. */
static double
allocated_after(const Recording *r, int step, const char *phase)
{
  for (guint i = 0; i < r->ranges->len; i++) {
    const Range *range = &g_array_index(r->ranges, Range, i);
    if (range->step == step && range->kind == RECORDED_PHASE &&
        strcmp(recording_text(r, range->name), phase) == 0)
      return (double) range->end_allocated / (double) MIB;
  }
  ck_abort_msg("step %d has no %s", step, phase);
}

/* fairscale#627: 5,480 MB of fp32 parameters, not wrapped: 5,480 before forward, 10,960 after
 * backward, 16,440 after the first step of SGD with momentum (16,384 were reported).  Within 0.2 %:
 * blocks of the allocator are rounded, and cuBLAS is not there. */
START_TEST(momentum_makes_three_of_5480_MB)
{
  static const char model[] =
      "{'family': 'blocks', 'hidden': 60, 'embedding': false, 'head': false, 'loss': 'sum',"
      " 'blocks': [{'repeat': 8, 'ops': [{'op': 'numbers', 'parameters': 179568640}]}]}";
  const char *const set[] = {"optimizer.name=sgd", NULL};
  g_autoptr(Simulated) s = simulation_execute(&(Simulation){model, plan, set, 0}, 2, WITHOUT_LIMIT);
  const Recording *r = s->recording;
  ck_assert_double_eq_tol((double) r->construction_allocated / (double) MIB, 5480, 11);
  ck_assert_double_eq_tol(allocated_after(r, 1, "backward"), 10960, 22);
  ck_assert_double_eq_tol(allocated_after(r, 1, "optimizer"), 16440, 33);
}
END_TEST

/* deepspeedai/DeepSpeed#1302: the buckets of 5e8 elements, 954 MiB each, one or two, are there with
 * contiguous_gradients, and without it none. */
START_TEST(without_contiguous_gradients_there_is_no_bucket)
{
  static const char model[] =
      "{'family': 'blocks', 'hidden': 60, 'embedding': false, 'head': false, 'loss': 'sum',"
      " 'blocks': [{'repeat': 18, 'ops': [{'op': 'numbers', 'parameters': 100000000}]}]}";
  static const struct {
    const char *contiguous, *overlap;
    int buckets;
  } cases[] = {
      {"deepspeed.contiguous_gradients=true", "deepspeed.overlap_comm=false", 1},
      {"deepspeed.contiguous_gradients=true", "deepspeed.overlap_comm=true", 2},
      {"deepspeed.contiguous_gradients=false", "deepspeed.overlap_comm=false", 0},
      {"deepspeed.contiguous_gradients=false", "deepspeed.overlap_comm=true", 0},
  };
  const char *const set[] = {"strategy=zero2",     "mesh.shard=8",    "precision.parameters=fp16",
                             cases[_i].contiguous, cases[_i].overlap, NULL};
  g_autoptr(Simulated) s = simulation_lower(&(Simulation){model, plan, set, 0}, 2);
  const Program *program = s->lowered->program;
  const GArray *ops = program_step(program, 1)->ops;
  gint64 bytes = 0;
  for (guint i = 0; i < ops->len; i++) {
    const ProgramOp *op = &g_array_index(ops, ProgramOp, i);
    if (op->kind != PROGRAM_ALLOC)
      continue;
    const Storage *storage = &g_array_index(program->storages, Storage, op->a);
    if (strcmp(program_text(program, storage->what), "gradient bucket") == 0)
      bytes += storage->bytes;
  }
  ck_assert_double_eq_tol((double) bytes / (double) MIB, 954.0 * cases[_i].buckets, 3);
}
END_TEST

Suite *
test_suite(void)
{
  Suite *suite = suite_create("measured");
  TCase *tests = tcase_create("measured");
  tcase_set_timeout(tests, 60);
  tcase_add_loop_test(tests, gradients_of_26_billion_under_no_sync_are_52_GB, 0, 2);
  tcase_add_test(tests, momentum_makes_three_of_5480_MB);
  tcase_add_loop_test(tests, without_contiguous_gradients_there_is_no_bucket, 0, 4);
  suite_add_tcase(suite, tests);
  return suite;
}
