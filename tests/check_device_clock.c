/* check_device_clock.c - the devices that take no time: `instant`, on which work is done as it is
 * issued, and `endless`, on which it is done when the host waits for something ordered after it.
 *
 * What they are for is memory that other streams use (record_stream), so each test asks whether the
 * place of such a storage is used again.  Not pinned: anything about a device whose clock runs
 * (check_executor.c). */
#include "exec/executor.h"
#include "paper_machine.h"
#include "program/program_builder.h"
#include "tap_main.h"

static DeviceProfile device = {
    PAPER_DEVICE,
    .sms = 1,
    .attention_rates = 1,
    .attention = {{FUSED_FLASH2, 64, 1e9, 1e9, 0, 0}},
    .host_memory_bandwidth = 1e9,
    .kernel_floor_ns = 5,
};

static const ClusterSpec cluster = {
    PAPER_CLUSTER,
    .device = &device,
    .base_latency_ns = 10,
};

/* ---- a Program: a storage of the compute stream that copy_in uses too ---- */

typedef struct {
  ProgramBuilder *builder;
  gint32 used; /* the storage */
} Script;

static gint32
storage(ProgramBuilder *b)
{
  Storage s = {.bytes = 16 * MIB,
               .category = CATEGORY_OTHER,
               .stream = STREAM_COMPUTE,
               .module = -1,
               .what = program_builder_name(b, "x")};
  return program_builder_storage(b, &s);
}

static void
kernel(ProgramBuilder *b, StreamId stream)
{
  Kernel k = {.kind = KERNEL_MEMORY,
              .dtype = DTYPE_FP32,
              .name = program_builder_name(b, "k"),
              .launches = 1,
              .bytes = 1e9};
  program_builder_launch(b, stream, program_builder_kernel(b, &k));
}

/* Allocates, uses on copy_in, frees. */
static Script
script(void)
{
  Script s = {program_builder_new(), 0};
  program_builder_begin_list(s.builder);
  program_builder_begin_list(s.builder);
  program_builder_add_step(s.builder);
  s.used = storage(s.builder);
  program_builder_alloc(s.builder, s.used);
  kernel(s.builder, STREAM_COPY_IN);
  program_builder_record_stream(s.builder, s.used, STREAM_COPY_IN);
  program_builder_release(s.builder, s.used);
  return s;
}

static gint32
record(ProgramBuilder *b, StreamId stream)
{
  gint32 event = program_builder_event(b);
  program_builder_record(b, stream, event);
  return event;
}

/* Allocates another one like it and runs all on a device of that clock. */
static Recording *
finish(Script s, DeviceClock clock, gint64 limit)
{
  program_builder_alloc(s.builder, storage(s.builder));
  g_autoptr(Program) program = program_builder_finish(s.builder);
  ExecutorConfig config = {
      .cluster = &cluster, .allocator = allocator_config_default(), .keep_spans = TRUE};
  config.allocator.memory_limit = limit;
  device.clock = clock;
  return executor_run(program, &config);
}

/* Is the last allocation where the first was? */
static gboolean
place_is_used_again(Script s, DeviceClock clock)
{
  g_autoptr(Recording) r = finish(s, clock, G_MAXINT64);
  return g_array_index(r->memory, MemoryEvent, 0).address ==
         g_array_index(r->memory, MemoryEvent, r->memory->len - 1).address;
}

/* ---- tests ---- */

/* A kernel, and an all-gather over eight ranks behind it: when all is done. */
static SimTime
end_of_work(DeviceClock clock)
{
  Script s = script();
  Collective gather = {.kind = COLLECTIVE_ALL_GATHER,
                       .dtype = DTYPE_UINT8,
                       .communicator = program_builder_communicator(s.builder, "shard", 8, 1),
                       .name = -1,
                       .bytes = MIB};
  program_builder_collective(s.builder, STREAM_ALL_GATHER, &gather);
  g_autoptr(Recording) r = finish(s, clock, G_MAXINT64);
  return g_array_index(r->steps, StepRecord, 0).end;
}

START_TEST(work_takes_no_time_on_either)
{
  ck_assert_int_eq(end_of_work(CLOCK_INSTANT), 0);
  ck_assert_int_eq(end_of_work(CLOCK_ENDLESS), 0);
  ck_assert_int_ge(end_of_work(CLOCK_RUNNING), 1000000000); /* the kernel's bytes */
}
END_TEST

START_TEST(an_instant_device_is_done_at_the_next_allocation)
{
  ck_assert(place_is_used_again(script(), CLOCK_INSTANT));
}
END_TEST

START_TEST(an_endless_device_is_never_done_by_itself)
{
  ck_assert(!place_is_used_again(script(), CLOCK_ENDLESS));
}
END_TEST

START_TEST(an_event_before_the_use_ended_is_not_enough)
{
  Script s = script();
  gint32 elsewhere = record(s.builder, STREAM_COMPUTE);
  program_builder_event_sync(s.builder, elsewhere);
  ck_assert(!place_is_used_again(s, CLOCK_ENDLESS));
}
END_TEST

START_TEST(an_event_behind_the_free_on_the_same_stream_is)
{
  Script s = script();
  gint32 behind = record(s.builder, STREAM_COPY_IN);
  program_builder_event_sync(s.builder, behind);
  ck_assert(place_is_used_again(s, CLOCK_ENDLESS));
}
END_TEST

START_TEST(so_is_one_on_a_stream_that_waited_for_it)
{
  Script s = script();
  program_builder_wait(s.builder, STREAM_COMPUTE, record(s.builder, STREAM_COPY_IN));
  gint32 behind = record(s.builder, STREAM_COMPUTE);
  program_builder_event_sync(s.builder, behind);
  ck_assert(place_is_used_again(s, CLOCK_ENDLESS));
}
END_TEST

START_TEST(waiting_for_a_stream_is_enough)
{
  Script s = script();
  program_builder_stream_sync(s.builder, STREAM_COPY_IN);
  ck_assert(place_is_used_again(s, CLOCK_ENDLESS));
}
END_TEST

START_TEST(cuda_malloc_is_no_wait_but_a_retry_is)
{
  /* With room for one, the second allocation fails first: the allocator waits for the event and
   * gives the segment back. */
  g_autoptr(Recording) r = finish(script(), CLOCK_ENDLESS, 20 * MIB);
  ck_assert(!r->out_of_memory.happened);
  ck_assert_int_eq(g_array_index(r->steps, StepRecord, 0).allocator_retries, 1);
}
END_TEST

Suite *
test_suite(void)
{
  const TTest *const tests[] = {
      work_takes_no_time_on_either,
      an_instant_device_is_done_at_the_next_allocation,
      an_endless_device_is_never_done_by_itself,
      an_event_before_the_use_ended_is_not_enough,
      an_event_behind_the_free_on_the_same_stream_is,
      so_is_one_on_a_stream_that_waited_for_it,
      waiting_for_a_stream_is_enough,
      cuda_malloc_is_no_wait_but_a_retry_is,
  };
  Suite *suite = suite_create("device clock");
  TCase *tcase = tcase_create("clocks");
  for (guint i = 0; i < G_N_ELEMENTS(tests); i++)
    tcase_add_test(tcase, tests[i]);
  suite_add_tcase(suite, tcase);
  return suite;
}
