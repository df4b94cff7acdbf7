/* check_throughput_timer.c - DeepSpeed's ThroughputTimer (deepspeed 0.19.8, utils/timer.py) waits
 * for the device from the third step on: before each forward, and when the step is over.  What that
 * changes is seen where memory waits for a slow device. */
#include "exec/executor.h"
#include "recorded_config.h"
#include "simulation.h"
#include "tap_main.h"

#include <string.h>

#define WITHOUT_LIMIT ((gint64) 1 << 60)

static const char network[] =
    "{'family': 'blocks', 'hidden': 60, 'embedding': false, 'head': false, 'loss': 'sum',"
    " 'blocks': [{'repeat': 2, 'ops': [{'op': 'linear', 'out': 60}]}]}";
static const char plan[] = "{'strategy': 'zero2', 'batch': {'sequence_length': 8}}";

/* Streams of the device that a wait for the whole of it waits for. */
enum { DEVICE_STREAMS = STREAM_HOST };

static int
waits(const Simulated *s, int step)
{
  const GArray *ops = program_step(s->lowered->program, step - 1)->ops;
  int n = 0;
  for (guint i = 0; i < ops->len; i++)
    n += g_array_index(ops, ProgramOp, i).kind == PROGRAM_STREAM_SYNC;
  return n;
}

static const char *const strategies_of_deepspeed[] = {
    "strategy=zero0", "strategy=zero1", "strategy=zero1 deepspeed.grad_accum_dtype=\"fp32\"",
    "strategy=zero2", "strategy=zero3"};

/* Three micro-batches: three forwards and one end.  In its first step stage 3 has waits of its own.
 */
START_TEST(the_host_waits_before_each_forward_and_after_the_step)
{
  g_autofree char *all =
      g_strconcat(strategies_of_deepspeed[_i],
                  " mesh.shard=4 accumulation.steps=3 precision.parameters=bf16", NULL);
  g_auto(GStrv) set = g_strsplit(all, " ", -1);
  g_autoptr(Simulated) s =
      simulation_lower(&(Simulation){network, plan, (const char *const *) set, 0}, 5);
  ck_assert_int_eq(waits(s, 3) - waits(s, 2), 4 * DEVICE_STREAMS);
  ck_assert_int_eq(waits(s, 5), waits(s, 4));
  ck_assert_int_eq(waits(s, 4), waits(s, 3));
  ck_assert_ptr_eq(program_step(s->lowered->program, 4), program_step(s->lowered->program, 3));
}
END_TEST

/* Zero's second stage with overlap_comm on a device that never finishes: a bucket that the
 * reduction stream has used is free again at the third step's first allocation.  Recorded from
 * DeepSpeed. */
START_TEST(a_slow_device_reserves_what_was_recorded)
{
  static const char file[] = "reference/deepspeed/1b_z2_overlap.json";
  g_autofree char *path = test_reference_path(file);
  if (path == NULL) {
    test_note("%s is not there: nothing compared", file);
    return;
  }
  cJSON *document = recorded_document(path);
  const cJSON *config = cJSON_GetObjectItemCaseSensitive(document, "config");
  g_autofree char *model = recorded_network(config);
  const char *const set[] = {"mesh.shard=8",
                             "batch.micro_batch=2",
                             "batch.sequence_length=2048",
                             "precision.parameters=bf16",
                             "optimizer.clip_grad_norm=1",
                             "deepspeed.overlap_comm=true",
                             NULL};
  g_autoptr(Simulated) s = simulation_lower(&(Simulation){model, plan, set, 0}, 3);
  s->scenario->cluster->device->clock = CLOCK_ENDLESS;
  ExecutorConfig executor = {.cluster = s->scenario->cluster,
                             .allocator = allocator_config_default()};
  executor.allocator.memory_limit = WITHOUT_LIMIT;
  g_autoptr(Recording) r = executor_run(s->lowered->program, &executor);
  const cJSON *peaks = cJSON_GetObjectItemCaseSensitive(document, "slow_device_peaks");
  ck_assert_int_eq(cJSON_GetArraySize(peaks), 3);
  for (int i = 0; i < 3; i++) {
    const cJSON *peak = cJSON_GetArrayItem(peaks, i);
    const StepRecord *step = &g_array_index(r->steps, StepRecord, i);
    ck_assert_double_eq(
        (double) step->peak_allocated,
        cJSON_GetObjectItemCaseSensitive(peak, "max_memory_allocated")->valuedouble);
    ck_assert_double_eq((double) step->peak_reserved,
                        cJSON_GetObjectItemCaseSensitive(peak, "max_memory_reserved")->valuedouble);
  }
  cJSON_Delete(document);
}
END_TEST

Suite *
test_suite(void)
{
  Suite *suite = suite_create("throughput timer");
  TCase *tests = tcase_create("throughput timer");
  tcase_set_timeout(tests, 60);
  tcase_add_loop_test(tests, the_host_waits_before_each_forward_and_after_the_step, 0,
                      G_N_ELEMENTS(strategies_of_deepspeed));
  tcase_add_test(tests, a_slow_device_reserves_what_was_recorded);
  suite_add_tcase(suite, tests);
  return suite;
}
