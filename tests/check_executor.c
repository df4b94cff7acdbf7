/* check_executor.c - the executor on hand-written Programs whose timelines are worked out on paper
 * in the comments: host and streams, events, communicators, allocator costs, out of memory, steps.
 *
 * On the device of this test a kernel of n bytes takes n ns, collectives have no latency,
 * cudaMalloc takes 7 ns and cudaFree 3 ns after the device is idle, and one host op 1 ns.  Not
 * pinned: what real profiles say. */
#include <string.h>

#include "collective/collective.h"
#include "compute/kernel_model.h"
#include "exec/executor.h"
#include "paper_machine.h"
#include "program/program_builder.h"
#include "tap_main.h"

/* ---- a machine with round figures ---- */

static char machine_name[] = "paper";

static DeviceProfile device = {
    PAPER_DEVICE,
    .name = machine_name,
    .sms = 1,
    .attention_rates = 1,
    .attention = {{FUSED_FLASH2, 64, 1e9, 1e9, 0, 0}},
    .host_op_forward_ns = 1,
    .host_op_backward_ns = 10,
    .host_hook_ns = 100,
    .host_collective_ns = 1000,
    .host_optimizer_ns = 10000,
    .host_module_ns = 100000,
    .host_memory_bandwidth = 1000.0 * MIB, /* a MiB takes 1000000 */
    .host_compiled_region_ns = 10000000,
    .host_compiled_kernel_ns = 100000000,
    .cuda_malloc_ns = 7,
    .cuda_free_ns = 3,
};

static const ClusterSpec cluster = {
    PAPER_CLUSTER,
    .name = machine_name,
    .device = &device,
};

/* ---- Programs in a few words ---- */

static void
host(ProgramBuilder *b, int ns)
{
  program_builder_host_work(b, HOST_WORK_OP_FORWARD, ns);
}

static void
kernel(ProgramBuilder *b, StreamId stream, int ns, const char *name)
{
  Kernel k = {.kind = KERNEL_MEMORY,
              .dtype = DTYPE_FP32,
              .name = program_builder_name(b, name),
              .launches = 1,
              .bytes = ns};
  program_builder_launch(b, stream, program_builder_kernel(b, &k));
}

/* An all-gather over two ranks of the communicator. */
static void
collective(ProgramBuilder *b, StreamId stream, const char *communicator, gint64 bytes)
{
  Collective c = {.kind = COLLECTIVE_ALL_GATHER,
                  .dtype = DTYPE_UINT8,
                  .communicator = program_builder_communicator(b, communicator, 2, 1),
                  .name = program_builder_name(b, "group"),
                  .bytes = bytes};
  program_builder_collective(b, stream, &c);
}

/* How long it takes alone. */
static SimTime
gather_time(gint64 bytes)
{
  return collective_duration(&cluster, COLLECTIVE_ALL_GATHER, group_shape(&cluster, 2, 1), bytes);
}

static gint32
storage(ProgramBuilder *b, gint64 bytes, Category category, const char *what)
{
  Storage s = {.bytes = bytes,
               .space = SPACE_DEVICE,
               .category = (guint8) category,
               .stream = STREAM_COMPUTE,
               .module = -1,
               .what = program_builder_name(b, what)};
  return program_builder_storage(b, &s);
}

/* A builder with its construction begun. */
static ProgramBuilder *
script(void)
{
  ProgramBuilder *b = program_builder_new();
  program_builder_begin_list(b);
  return b;
}

static void
begin_step(ProgramBuilder *b)
{
  program_builder_begin_list(b);
  program_builder_add_step(b);
}

static ExecutorConfig
unlimited(void)
{
  return (ExecutorConfig){
      .cluster = &cluster, .allocator = allocator_config_default(), .keep_spans = TRUE};
}

static Recording *
run(ProgramBuilder *b, const ExecutorConfig *config)
{
  g_autoptr(Program) program = program_builder_finish(b);
  Recording *recording = executor_run(program, config);
  const char *key;
  g_autofree char *wrong = recording_check(recording, &key);
  ck_assert_msg(wrong == NULL, "%s: %s", key, wrong);
  return recording;
}

static Recording *
run_unlimited(ProgramBuilder *b)
{
  ExecutorConfig config = unlimited();
  return run(b, &config);
}

/* ---- what a Recording says ---- */

/* The nth span (from 0) of that name. */
static const Span *
span(const Recording *r, const char *name, int n)
{
  for (guint i = 0; i < r->spans->len; i++) {
    const Span *s = &g_array_index(r->spans, Span, i);
    if (g_str_equal(recording_text(r, s->name), name) && n-- == 0)
      return s;
  }
  ck_abort_msg("no span %s", name);
}

static guint
count_spans(const Recording *r, SpanKind kind)
{
  guint n = 0;
  for (guint i = 0; i < r->spans->len; i++)
    n += g_array_index(r->spans, Span, i).kind == kind;
  return n;
}

/* From here on times count from the start of step 1, which is 0: constructions here take no time.
 */
static void
assert_span(const Recording *r, const char *name, int n, SimTime start, SimTime end)
{
  const Span *s = span(r, name, n);
  ck_assert_msg(s->start == start && s->end == end,
                "%s %d is %" G_GINT64_FORMAT "..%" G_GINT64_FORMAT, name, n, s->start, s->end);
}

static const StepRecord *
step(const Recording *r, guint index)
{
  ck_assert_uint_ge(r->steps->len, index);
  return &g_array_index(r->steps, StepRecord, index - 1);
}

static const MemoryEvent *
event(const Recording *r, guint i)
{
  ck_assert_uint_lt(i, r->memory->len);
  return &g_array_index(r->memory, MemoryEvent, i);
}

/* ---- host and streams ---- */

START_TEST(the_machine_of_this_test_has_round_figures)
{
  Kernel k = {.kind = KERNEL_MEMORY, .dtype = DTYPE_FP32, .launches = 1, .bytes = 100};
  KernelModel model = kernel_model(&device, &(KernelRun){0});
  ck_assert_int_eq(kernel_model_duration(&model, &k), 100);
  CollectiveCost cost =
      collective_cost(&cluster, COLLECTIVE_ALL_GATHER, group_shape(&cluster, 2, 1));
  ck_assert_double_eq(cost.latency_ns, 0);
  ck_assert_int_gt(gather_time(1000), 100);
}
END_TEST

START_TEST(each_kind_of_host_work_costs_what_the_profile_says)
{
  ProgramBuilder *b = script();
  begin_step(b);
  SimTime expected = 0, cost = 1;
  for (int kind = 0; kind < HOST_WORK_COUNT; kind++, cost *= 10) {
    program_builder_host_work(b, (HostWork) kind, kind + 2);
    expected += cost * (kind + 2);
  }
  kernel(b, STREAM_COMPUTE, 5, "k");
  g_autoptr(Recording) r = run_unlimited(b);
  assert_span(r, "k", 0, expected, expected + 5);
}
END_TEST

START_TEST(a_slow_host_leaves_gaps_between_kernels)
{
  /* host    0....10....20....30
   * compute      k0    k1    k2      4 ns each */
  ProgramBuilder *b = script();
  begin_step(b);
  for (int i = 0; i < 3; i++) {
    host(b, 10);
    kernel(b, STREAM_COMPUTE, 4, "k");
  }
  g_autoptr(Recording) r = run_unlimited(b);
  assert_span(r, "k", 0, 10, 14);
  assert_span(r, "k", 1, 20, 24);
  assert_span(r, "k", 2, 30, 34);
  ck_assert_int_eq(step(r, 1)->end, 34);
  ck_assert_int_eq(span(r, "k", 0)->kind, SPAN_KERNEL);
  ck_assert_int_eq(span(r, "k", 0)->stream, STREAM_COMPUTE);
  ck_assert_int_eq(span(r, "k", 0)->step, 1);
}
END_TEST

START_TEST(a_fast_host_runs_ahead_and_kernels_queue)
{
  /* host    0..2..4..6
   * compute    k0 2-12, k1 12-22, k2 22-32 */
  ProgramBuilder *b = script();
  begin_step(b);
  for (int i = 0; i < 3; i++) {
    host(b, 2);
    kernel(b, STREAM_COMPUTE, 10, "k");
  }
  g_autoptr(Recording) r = run_unlimited(b);
  assert_span(r, "k", 0, 2, 12);
  assert_span(r, "k", 1, 12, 22);
  assert_span(r, "k", 2, 22, 32);
  ck_assert_int_eq(step(r, 1)->end, 32);
}
END_TEST

/* Name of the phase that issued a span. */
static const char *
phase_of(const Recording *r, const Span *s)
{
  ck_assert_int_gt(s->phase, 0);
  const Range *range = &g_array_index(r->ranges, Range, (guint) s->phase - 1);
  ck_assert_int_eq(range->step, s->step);
  return recording_text(r, range->name);
}

START_TEST(a_span_knows_the_phase_that_issued_it_however_late_it_runs)
{
  /* host      forward 0-2   backward 2-4   and on to the next step
   * compute   f 1-101, b 101-201: both run when the host has long left */
  ProgramBuilder *b = script();
  for (int n = 0; n < 2; n++) {
    begin_step(b);
    kernel(b, STREAM_COMPUTE, 1, "before");
    program_builder_push(b, RANGE_PHASE, "forward", 0);
    host(b, 1);
    program_builder_push(b, RANGE_MODULE, "layers.0", 0);
    kernel(b, STREAM_COMPUTE, 100, "f");
    program_builder_pop(b);
    host(b, 1);
    program_builder_pop(b);
    program_builder_push(b, RANGE_PHASE, "backward", 0);
    host(b, 1);
    kernel(b, STREAM_COMPUTE, 100, "b");
    program_builder_set_module(b, program_builder_module(b, "layers.1"));
    collective(b, STREAM_ALL_GATHER, "shard", 500);
    program_builder_set_module(b, -1);
    program_builder_pop(b);
  }
  g_autoptr(Recording) r = run_unlimited(b);
  for (int n = 0; n < 2; n++) {
    ck_assert_int_eq(span(r, "before", n)->phase, 0);
    ck_assert_str_eq(phase_of(r, span(r, "f", n)), "forward");
    ck_assert_str_eq(phase_of(r, span(r, "b", n)), "backward");
    ck_assert_str_eq(phase_of(r, span(r, "all_gather", n)), "backward");
    /* It serves the group it names, whoever issued it. */
    ck_assert_str_eq(recording_text(r, span(r, "all_gather", n)->module), "group");
  }
}
END_TEST

START_TEST(a_step_ends_no_earlier_than_its_host)
{
  ProgramBuilder *b = script();
  begin_step(b);
  kernel(b, STREAM_COMPUTE, 10, "k");
  host(b, 50);
  g_autoptr(Recording) r = run_unlimited(b);
  ck_assert_int_eq(step(r, 1)->end, 50);
}
END_TEST

START_TEST(a_stream_waits_for_the_record_that_was_last_when_it_was_told_to)
{
  /* compute  a 0-10, record, b 10-40, record again
   * copy_in  c 0-3, wait (for the first record), d 10-15, wait (for the second), e 40-41 */
  ProgramBuilder *b = script();
  begin_step(b);
  gint32 done = program_builder_event(b);
  kernel(b, STREAM_COMPUTE, 10, "a");
  program_builder_record(b, STREAM_COMPUTE, done);
  kernel(b, STREAM_COPY_IN, 3, "c");
  program_builder_wait(b, STREAM_COPY_IN, done);
  kernel(b, STREAM_COMPUTE, 30, "b");
  program_builder_record(b, STREAM_COMPUTE, done);
  kernel(b, STREAM_COPY_IN, 5, "d");
  program_builder_wait(b, STREAM_COPY_IN, done);
  kernel(b, STREAM_COPY_IN, 1, "e");
  g_autoptr(Recording) r = run_unlimited(b);
  assert_span(r, "c", 0, 0, 3);
  assert_span(r, "d", 0, 10, 15);
  assert_span(r, "e", 0, 40, 41);
}
END_TEST

START_TEST(event_synchronize_holds_the_host_until_the_event)
{
  /* compute  a 0-100, record, b 100-130
   * host     10: waits until 100; 5 more; launches c at 105
   * copy_in  c 105-106 */
  ProgramBuilder *b = script();
  begin_step(b);
  gint32 done = program_builder_event(b);
  kernel(b, STREAM_COMPUTE, 100, "a");
  program_builder_record(b, STREAM_COMPUTE, done);
  kernel(b, STREAM_COMPUTE, 30, "b");
  host(b, 10);
  program_builder_event_sync(b, done);
  host(b, 5);
  kernel(b, STREAM_COPY_IN, 1, "c");
  g_autoptr(Recording) r = run_unlimited(b);
  assert_span(r, "cudaEventSynchronize", 0, 10, 100);
  ck_assert_int_eq(span(r, "cudaEventSynchronize", 0)->kind, SPAN_HOST_BLOCKED);
  ck_assert_int_eq(span(r, "cudaEventSynchronize", 0)->stream, STREAM_HOST);
  assert_span(r, "b", 0, 100, 130);
  assert_span(r, "c", 0, 105, 106);
}
END_TEST

START_TEST(a_synchronization_that_finds_the_device_done_costs_nothing)
{
  ProgramBuilder *b = script();
  begin_step(b);
  gint32 done = program_builder_event(b);
  kernel(b, STREAM_COMPUTE, 10, "a");
  program_builder_record(b, STREAM_COMPUTE, done);
  host(b, 25);
  program_builder_event_sync(b, done);
  program_builder_stream_sync(b, STREAM_COMPUTE);
  kernel(b, STREAM_COMPUTE, 1, "c");
  g_autoptr(Recording) r = run_unlimited(b);
  assert_span(r, "c", 0, 25, 26);
  ck_assert_uint_eq(count_spans(r, SPAN_HOST_BLOCKED), 0);
}
END_TEST

START_TEST(stream_synchronize_waits_for_one_stream_alone)
{
  /* compute a 0-100, copy_in b 0-20; the host waits for copy_in: 20. */
  ProgramBuilder *b = script();
  begin_step(b);
  kernel(b, STREAM_COMPUTE, 100, "a");
  kernel(b, STREAM_COPY_IN, 20, "b");
  program_builder_stream_sync(b, STREAM_COPY_IN);
  kernel(b, STREAM_ALL_GATHER, 1, "c");
  g_autoptr(Recording) r = run_unlimited(b);
  assert_span(r, "cudaStreamSynchronize", 0, 0, 20);
  assert_span(r, "c", 0, 20, 21);
}
END_TEST

START_TEST(a_copy_is_a_span_of_its_own_kind_and_bears_the_module)
{
  ProgramBuilder *b = script();
  begin_step(b);
  Kernel k = {.kind = KERNEL_COPY,
              .dtype = DTYPE_FP32,
              .name = program_builder_name(b, "copy_out"),
              .launches = 1,
              .bytes = 10};
  program_builder_set_module(b, program_builder_module(b, "layers.3"));
  program_builder_copy(b, STREAM_ALL_GATHER, program_builder_kernel(b, &k));
  g_autoptr(Recording) r = run_unlimited(b);
  ck_assert_int_eq(span(r, "copy_out", 0)->kind, SPAN_COPY);
  ck_assert_int_eq(span(r, "copy_out", 0)->stream, STREAM_ALL_GATHER);
  ck_assert_str_eq(recording_text(r, span(r, "copy_out", 0)->module), "layers.3");
}
END_TEST

/* ---- communicators ---- */

START_TEST(a_communicator_runs_its_collectives_in_order_of_issue_over_two_streams)
{
  /* all_gather      k 0-20, A behind it, l behind A
   * reduce_scatter  B, issued after A to an idle stream: behind A; m behind B */
  ProgramBuilder *b = script();
  begin_step(b);
  kernel(b, STREAM_ALL_GATHER, 20, "k");
  collective(b, STREAM_ALL_GATHER, "shard", 2000);
  collective(b, STREAM_REDUCE_SCATTER, "shard", 1000);
  kernel(b, STREAM_ALL_GATHER, 1, "l");
  kernel(b, STREAM_REDUCE_SCATTER, 1, "m");
  g_autoptr(Recording) r = run_unlimited(b);
  SimTime end_a = 20 + gather_time(2000), end_b = end_a + gather_time(1000);
  assert_span(r, "all_gather", 0, 20, end_a);
  assert_span(r, "all_gather", 1, end_a, end_b);
  assert_span(r, "l", 0, end_a, end_a + 1);
  assert_span(r, "m", 0, end_b, end_b + 1);
  const Span *first = span(r, "all_gather", 0), *second = span(r, "all_gather", 1);
  ck_assert_int_eq(first->kind, SPAN_COLLECTIVE);
  ck_assert_int_eq(first->stream, STREAM_ALL_GATHER);
  ck_assert_int_eq(second->stream, STREAM_REDUCE_SCATTER);
  ck_assert_int_eq(first->bytes, 2000);
  ck_assert_str_eq(recording_text(r, first->communicator), "shard");
  ck_assert_str_eq(recording_text(r, first->module), "group");
}
END_TEST

START_TEST(collectives_of_two_communicators_share_their_link)
{
  /* Both stay inside a node, each takes t alone, without latency.  A from 0, B from h = t / 2: A
   * has t - h left, at half speed until 2t - h; B has done t - h by then and the rest, h, alone:
   * until 2t. */
  SimTime t = gather_time(100000), h = t / 2;
  ProgramBuilder *b = script();
  begin_step(b);
  collective(b, STREAM_ALL_GATHER, "one", 100000);
  kernel(b, STREAM_ALL_REDUCE, (int) h, "k");
  collective(b, STREAM_ALL_REDUCE, "two", 100000);
  g_autoptr(Recording) r = run_unlimited(b);
  assert_span(r, "all_gather", 0, 0, 2 * t - h);
  assert_span(r, "all_gather", 1, h, 2 * t);
}
END_TEST

START_TEST(latency_is_not_shared)
{
  /* Each takes t alone, a latency of l and t - l over the link; both from 0: l, then twice t - l.
   */
  ClusterSpec slow = cluster;
  slow.base_latency_ns = 3000;
  GroupShape two = group_shape(&slow, 2, 1);
  SimTime t = collective_duration(&slow, COLLECTIVE_ALL_GATHER, two, 100000);
  SimTime l = (SimTime) collective_cost(&slow, COLLECTIVE_ALL_GATHER, two).latency_ns;
  ck_assert_int_gt(l, 0);
  ck_assert_int_gt(t, l);
  ProgramBuilder *b = script();
  begin_step(b);
  collective(b, STREAM_ALL_GATHER, "one", 100000);
  collective(b, STREAM_ALL_REDUCE, "two", 100000);
  ExecutorConfig config = unlimited();
  config.cluster = &slow;
  g_autoptr(Recording) r = run(b, &config);
  assert_span(r, "all_gather", 0, 0, l + 2 * (t - l));
  assert_span(r, "all_gather", 1, 0, l + 2 * (t - l));
}
END_TEST

START_TEST(communicators_inside_nodes_and_between_them_share_nothing)
{
  /* shard: ranks 0 and 1 of a node; replicate: ranks 0 and 8, one on each of two nodes. */
  ProgramBuilder *b = script();
  begin_step(b);
  collective(b, STREAM_ALL_GATHER, "shard", 100000);
  Collective c = {.kind = COLLECTIVE_ALL_REDUCE,
                  .dtype = DTYPE_FP32,
                  .communicator = program_builder_communicator(b, "replicate", 2, 8),
                  .name = -1,
                  .bytes = 100000};
  program_builder_collective(b, STREAM_ALL_REDUCE, &c);
  g_autoptr(Recording) r = run_unlimited(b);
  assert_span(r, "all_gather", 0, 0, gather_time(100000));
  assert_span(
      r, "all_reduce", 0, 0,
      collective_duration(&cluster, COLLECTIVE_ALL_REDUCE, group_shape(&cluster, 2, 8), 100000));
}
END_TEST

START_TEST(a_collective_of_one_rank_takes_no_time)
{
  ProgramBuilder *b = script();
  begin_step(b);
  Collective c = {.kind = COLLECTIVE_ALL_REDUCE,
                  .dtype = DTYPE_FP32,
                  .communicator = program_builder_communicator(b, "self", 1, 1),
                  .name = -1,
                  .bytes = 1000};
  program_builder_collective(b, STREAM_ALL_REDUCE, &c);
  kernel(b, STREAM_ALL_REDUCE, 5, "k");
  g_autoptr(Recording) r = run_unlimited(b);
  assert_span(r, "k", 0, 0, 5);
}
END_TEST

/* ---- steps ---- */

START_TEST(steps_follow_each_other_without_draining_the_device)
{
  /* The host needs 10 a step, the device 100: steps begin at 0, 10, 20 and end at 100, 200, 300. */
  ProgramBuilder *b = script();
  begin_step(b);
  kernel(b, STREAM_COMPUTE, 100, "k");
  host(b, 10);
  program_builder_add_step(b);
  program_builder_add_step(b);
  g_autoptr(Recording) r = run_unlimited(b);
  ck_assert_uint_eq(r->steps->len, 3);
  for (guint i = 1; i <= 3; i++) {
    ck_assert_int_eq(step(r, i)->index, i);
    ck_assert_int_eq(step(r, i)->start, 10 * ((int) i - 1));
    ck_assert_int_eq(step(r, i)->end, 100 * (int) i);
    ck_assert_int_eq(recording_step_duration(r, i - 1), 100);
    ck_assert_int_eq(span(r, "k", (int) i - 1)->step, i);
  }
}
END_TEST

START_TEST(only_the_last_steps_spans_are_kept_unless_asked_for)
{
  ProgramBuilder *b = script();
  kernel(b, STREAM_COMPUTE, 9, "init");
  begin_step(b);
  kernel(b, STREAM_COMPUTE, 100, "k");
  program_builder_stream_sync(b, STREAM_COMPUTE);
  program_builder_add_step(b);
  ExecutorConfig config = unlimited();
  config.keep_spans = FALSE;
  g_autoptr(Recording) r = run(b, &config);
  ck_assert_uint_eq(r->spans->len, 2);
  assert_span(r, "k", 0, 109, 209);
  assert_span(r, "cudaStreamSynchronize", 0, 109, 209);
  ck_assert_int_eq(step(r, 1)->end, 109);
}
END_TEST

START_TEST(the_first_step_begins_when_the_constructed_model_is_there)
{
  ProgramBuilder *b = script();
  kernel(b, STREAM_COMPUTE, 40, "init");
  host(b, 5);
  begin_step(b);
  kernel(b, STREAM_COPY_IN, 1, "k");
  g_autoptr(Recording) r = run_unlimited(b);
  ck_assert_int_eq(step(r, 1)->start, 40);
  assert_span(r, "k", 0, 40, 41);
  ck_assert_int_eq(span(r, "init", 0)->step, 0);
}
END_TEST

/* A step that replaces what the one before left, as gradients are: allocates the new, frees the
 * old. */
static void
replace(ProgramBuilder *b, gint32 *held)
{
  gint32 next = storage(b, 4 * MIB, CATEGORY_SHARDED_GRADIENT, "grad");
  begin_step(b);
  program_builder_alloc(b, next);
  if (*held >= 0)
    program_builder_release(b, *held);
  *held = next;
}

START_TEST(what_a_folded_step_leaves_is_what_it_finds_when_it_runs_again)
{
  /* 4 steps of which 2-4 are one list: each holds two for a moment, then one. */
  ProgramBuilder *b = script();
  gint32 held = -1;
  replace(b, &held);
  replace(b, &held);
  replace(b, &held);
  ck_assert(program_builder_fold_last_list(b));
  program_builder_add_step(b);
  g_autoptr(Recording) r = run_unlimited(b);
  ck_assert_uint_eq(r->steps->len, 4);
  for (guint i = 1; i <= 4; i++) {
    ck_assert_int_eq(step(r, i)->end_allocated, 4 * MIB);
    ck_assert_int_eq(step(r, i)->peak_allocated, (i == 1 ? 4 : 8) * MIB);
  }
  /* Each free is that of the allocation one step older. */
  for (guint i = 2; i <= 4; i++) {
    const MemoryEvent *freed = event(r, 2 * i - 2);
    ck_assert_int_lt(freed->requested_bytes, 0);
    ck_assert_int_eq(freed->allocation, i - 2);
    ck_assert_int_eq(freed->step, i);
  }
  ck_assert_int_eq(r->at_rest_bytes, 0);
}
END_TEST

/* A step that waits for what the one before recorded on another stream. */
static void
wait_for_previous(ProgramBuilder *b, gint32 *recorded)
{
  gint32 next = program_builder_event(b);
  begin_step(b);
  if (*recorded >= 0)
    program_builder_wait(b, STREAM_COMPUTE, *recorded);
  kernel(b, STREAM_COMPUTE, 1, "k");
  kernel(b, STREAM_COPY_IN, 30, "c");
  program_builder_record(b, STREAM_COPY_IN, next);
  *recorded = next;
}

START_TEST(a_folded_step_waits_for_the_event_of_the_step_before)
{
  /* copy_in  c 0-30, 30-60, 60-90, 90-120, one a step
   * compute  k 0-1, then each behind the c of the step before: 30, 60, 90 */
  ProgramBuilder *b = script();
  gint32 recorded = -1;
  for (int i = 0; i < 3; i++)
    wait_for_previous(b, &recorded);
  ck_assert(program_builder_fold_last_list(b));
  program_builder_add_step(b);
  g_autoptr(Recording) r = run_unlimited(b);
  assert_span(r, "k", 0, 0, 1);
  for (int i = 1; i < 4; i++)
    assert_span(r, "k", i, 30 * i, 30 * i + 1);
}
END_TEST

/* ---- memory ---- */

START_TEST(memory_changes_on_the_hosts_timeline)
{
  /* 4 MiB comes from a segment of 20 MiB (PyTorch's size for 1-10 MiB): one cudaMalloc, 7 ns, on an
   * idle device.  The device works until 1000, which nothing here waits for. */
  ProgramBuilder *b = script();
  begin_step(b);
  gint32 x = storage(b, 4 * MIB - 100, CATEGORY_ACTIVATION, "x");
  gint32 y = storage(b, 4 * MIB, CATEGORY_TEMPORARY, "y");
  host(b, 3);
  program_builder_alloc(b, x); /* at 10 */
  kernel(b, STREAM_COMPUTE, 1000, "k");
  host(b, 20);
  program_builder_alloc(b, y); /* at 30, from the same segment */
  host(b, 1);
  program_builder_release(b, x); /* at 31 */
  g_autoptr(Recording) r = run_unlimited(b);
  ck_assert_uint_eq(r->memory->len, 3);
  ck_assert_int_eq(event(r, 0)->time, 10);
  ck_assert_int_eq(event(r, 0)->requested_bytes, 4 * MIB - 100);
  ck_assert_int_eq(event(r, 0)->block_bytes, 4 * MIB); /* rounded to 512 */
  ck_assert_int_eq(event(r, 0)->allocated_after, 4 * MIB);
  ck_assert_int_eq(event(r, 0)->reserved_after, 20 * MIB);
  ck_assert_int_eq(event(r, 1)->time, 30);
  ck_assert_int_eq(event(r, 1)->allocated_after, 8 * MIB);
  ck_assert_uint_eq(event(r, 1)->address, event(r, 0)->address + 4 * MIB);
  ck_assert_int_eq(event(r, 2)->time, 31);
  ck_assert_int_eq(event(r, 2)->requested_bytes, -(4 * MIB - 100));
  ck_assert_int_eq(event(r, 2)->block_bytes, -4 * MIB);
  ck_assert_int_eq(event(r, 2)->allocated_after, 4 * MIB);
  ck_assert_int_eq(event(r, 2)->allocation, 0);
  ck_assert_str_eq(recording_text(r, event(r, 1)->what), "y");
  ck_assert_uint_eq(r->segments->len, 1);
  const SegmentEvent *segment = &g_array_index(r->segments, SegmentEvent, 0);
  ck_assert_int_eq(segment->time, 10);
  ck_assert_int_eq(segment->bytes, 20 * MIB);
  ck_assert_int_eq(segment->action, SEGMENT_ALLOC);
  /* At the end 4 MiB of the 20 live. */
  ck_assert_int_eq(g_array_index(r->cached, gint64, STREAM_COMPUTE), 16 * MIB);
  ck_assert_int_eq(g_array_index(r->cached, gint64, STREAM_ALL_GATHER), 0);
  ck_assert_int_eq(r->peak.allocated, 8 * MIB);
  ck_assert_int_eq(r->peak.categories[CATEGORY_ACTIVATION], 4 * MIB);
}
END_TEST

START_TEST(memory_that_is_not_the_devices_never_reaches_the_allocator)
{
  ProgramBuilder *b = script();
  begin_step(b);
  Storage pinned = {
      .bytes = MIB, .space = SPACE_PINNED, .module = -1, .what = program_builder_name(b, "pinned")};
  gint32 p = program_builder_storage(b, &pinned);
  gint32 empty = storage(b, 0, CATEGORY_OTHER, "empty");
  program_builder_alloc(b, p);
  program_builder_alloc(b, empty);
  program_builder_record_stream(b, empty, STREAM_COPY_IN);
  program_builder_release(b, empty);
  program_builder_release(b, p);
  g_autoptr(Recording) r = run_unlimited(b);
  ck_assert_uint_eq(r->memory->len, 0);
  ck_assert_uint_eq(r->segments->len, 0);
}
END_TEST

START_TEST(cuda_malloc_waits_for_the_device_and_is_lost_time_from_step_2)
{
  /* Step 1: k 0-100; at 10 the host wants a segment: waits until 100, then 7.
   * Step 2 begins at 107, behind l: k 108-208; at 117 another segment: until 208, then 7. */
  ProgramBuilder *b = script();
  for (int i = 0; i < 2; i++) {
    begin_step(b);
    kernel(b, STREAM_COMPUTE, 100, "k");
    host(b, 10);
    program_builder_alloc(b, storage(b, 32 * MIB, CATEGORY_OTHER, "x"));
    kernel(b, STREAM_COMPUTE, 1, "l");
  }
  g_autoptr(Recording) r = run_unlimited(b);
  assert_span(r, "cudaMalloc", 0, 10, 107);
  assert_span(r, "l", 0, 107, 108);
  assert_span(r, "k", 1, 108, 208);
  assert_span(r, "cudaMalloc", 1, 117, 215);
  assert_span(r, "l", 1, 215, 216);
  ck_assert_int_eq(span(r, "cudaMalloc", 0)->kind, SPAN_HOST_BLOCKED);
  ck_assert_int_eq(span(r, "cudaMalloc", 1)->kind, SPAN_LOST);
  ck_assert_int_eq(event(r, 1)->time, 215);
}
END_TEST

START_TEST(mapping_an_expandable_segment_waits_for_nothing)
{
  /* 4 MiB are one page of 20 MiB: 7 ns while k still runs.  What ended before, at 3, comes before
   * it in the Recording. */
  ProgramBuilder *b = script();
  begin_step(b);
  kernel(b, STREAM_COMPUTE, 100, "k");
  kernel(b, STREAM_ALL_GATHER, 3, "early");
  host(b, 10);
  program_builder_alloc(b, storage(b, 4 * MIB, CATEGORY_OTHER, "x"));
  kernel(b, STREAM_COPY_IN, 1, "l");
  ExecutorConfig config = unlimited();
  config.allocator.expandable_segments = TRUE;
  config.allocator.device_total_bytes = 80 * GIB;
  g_autoptr(Recording) r = run(b, &config);
  assert_span(r, "early", 0, 0, 3);
  assert_span(r, "cuMemMap", 0, 10, 17);
  assert_span(r, "l", 0, 17, 18);
  const SegmentEvent *segment = &g_array_index(r->segments, SegmentEvent, 0);
  ck_assert_int_eq(segment->action, SEGMENT_MAP);
  ck_assert_int_eq(segment->bytes, 20 * MIB);
}
END_TEST

START_TEST(memory_used_on_another_stream_is_free_when_that_stream_has_passed)
{
  /* x (16 MiB, its segment is just that: multiples of 2 MiB from 10 MiB on) comes at 7; k uses it
   * on copy_in until 207.  It is freed at 7.  y of the same size at 17 cannot have it: a second
   * segment, which waits for the device until 207 and takes 7: 214.  z at 214 gets x's place. */
  ProgramBuilder *b = script();
  begin_step(b);
  gint32 x = storage(b, 16 * MIB, CATEGORY_OTHER, "x");
  gint32 y = storage(b, 16 * MIB, CATEGORY_OTHER, "y");
  gint32 z = storage(b, 16 * MIB, CATEGORY_OTHER, "z");
  program_builder_alloc(b, x);
  kernel(b, STREAM_COPY_IN, 200, "k");
  program_builder_record_stream(b, x, STREAM_COPY_IN);
  program_builder_release(b, x);
  host(b, 10);
  program_builder_alloc(b, y);
  program_builder_alloc(b, z);
  g_autoptr(Recording) r = run_unlimited(b);
  ck_assert_int_eq(event(r, 1)->allocated_after, 0); /* freed as far as statistics go */
  ck_assert_uint_ne(event(r, 2)->address, event(r, 0)->address);
  ck_assert_int_eq(event(r, 2)->time, 214);
  ck_assert_uint_eq(event(r, 3)->address, event(r, 0)->address);
  ck_assert_int_eq(event(r, 3)->time, 214);
  /* It is seen to be free when z is asked for, behind y and its segment. */
  ck_assert_uint_eq(r->completions->len, 1);
  const CompletionEvent *done = &g_array_index(r->completions, CompletionEvent, 0);
  ck_assert_int_eq(done->time, 214);
  ck_assert_int_eq(done->allocation, 0);
  ck_assert_int_eq(done->memory_events, 3);
  ck_assert_int_eq(done->segment_events, 2);
  ck_assert_int_eq(g_array_index(r->segments, SegmentEvent, 1).memory_events, 2);
}
END_TEST

START_TEST(a_free_that_nobody_looks_after_still_waits_at_the_end)
{
  ProgramBuilder *b = script();
  begin_step(b);
  gint32 x = storage(b, 16 * MIB, CATEGORY_OTHER, "x");
  gint32 y = storage(b, 16 * MIB, CATEGORY_OTHER, "y");
  program_builder_alloc(b, x);
  program_builder_alloc(b, y);
  program_builder_record_stream(b, y, STREAM_COPY_IN);
  program_builder_release(b, x); /* no other stream */
  program_builder_release(b, y);
  g_autoptr(Recording) r = run_unlimited(b);
  ck_assert_uint_eq(r->completions->len, 1);
  ck_assert_int_eq(g_array_index(r->completions, CompletionEvent, 0).time, -1);
  ck_assert_int_eq(g_array_index(r->completions, CompletionEvent, 0).allocation, 1);
}
END_TEST

START_TEST(an_event_is_done_only_when_the_host_is_late_enough_to_see_it)
{
  /* As before, but x's user ends at 57 and y comes at 107: x's place is free again. */
  ProgramBuilder *b = script();
  begin_step(b);
  gint32 x = storage(b, 16 * MIB, CATEGORY_OTHER, "x");
  gint32 y = storage(b, 16 * MIB, CATEGORY_OTHER, "y");
  program_builder_alloc(b, x);
  kernel(b, STREAM_COPY_IN, 50, "k");
  program_builder_record_stream(b, x, STREAM_COPY_IN);
  program_builder_release(b, x);
  host(b, 100);
  program_builder_alloc(b, y);
  g_autoptr(Recording) r = run_unlimited(b);
  ck_assert_uint_eq(event(r, 2)->address, event(r, 0)->address);
  ck_assert_int_eq(event(r, 2)->time, 107);
}
END_TEST

/* A model of 20 MiB, for which 30 are needed for a moment, and then steps that keep 20 MiB more:
 * fits in 40 MiB, not in 39. */
static Recording *
run_model(gint64 limit, gboolean built_elsewhere)
{
  ProgramBuilder *b = script();
  gint32 scratch = storage(b, 30 * MIB, CATEGORY_TEMPORARY, "scratch");
  program_builder_alloc(b, scratch);
  program_builder_release(b, scratch);
  program_builder_empty_cache(b);
  program_builder_alloc(b, storage(b, 20 * MIB, CATEGORY_PARAMETER, "weight"));
  for (int i = 0; i < 2; i++) {
    begin_step(b);
    gint32 x = storage(b, 20 * MIB, CATEGORY_ACTIVATION, "x");
    program_builder_push(b, RANGE_PHASE, "forward", 0);
    program_builder_set_module(b, program_builder_module(b, "layers.0"));
    program_builder_push(b, RANGE_MODULE, "layers.0", 0);
    host(b, 5);
    kernel(b, STREAM_COMPUTE, 50, "k");
    program_builder_alloc(b, x);
    host(b, 5);
    program_builder_release(b, x);
    program_builder_pop(b);
    program_builder_pop(b);
  }
  ExecutorConfig config = unlimited();
  config.allocator.memory_limit = limit;
  config.built_elsewhere = built_elsewhere;
  config.outside_allocator_bytes = 123;
  config.title = "two layers";
  return run(b, &config);
}

static Recording *
run_with_limit(gint64 limit)
{
  return run_model(limit, FALSE);
}

START_TEST(the_limit_leaves_room_for_what_fits)
{
  g_autoptr(Recording) r = run_with_limit(40 * MIB);
  ck_assert(!r->out_of_memory.happened);
  ck_assert_uint_eq(r->steps->len, 2);
  ck_assert_int_eq(r->construction_allocated, 20 * MIB);
  ck_assert_int_eq(r->construction_reserved, 20 * MIB);
  ck_assert_int_eq(r->capacity_bytes, 40 * MIB);
  ck_assert_int_eq(r->outside_allocator_bytes, 123);
  ck_assert_str_eq(r->title, "two layers");
  ck_assert_int_eq(r->peak.allocated, 40 * MIB);
  ck_assert_int_eq(r->peak.reserved, 40 * MIB);
  ck_assert_int_eq(r->peak.step, 1);
  ck_assert_str_eq(recording_text(r, r->peak.phase), "forward");
  ck_assert_str_eq(recording_text(r, r->peak.module), "layers.0");
  ck_assert_int_eq(r->at_rest_bytes, 20 * MIB);
  const Range *phase = &g_array_index(r->ranges, Range, 0);
  ck_assert_int_eq(phase->kind, RANGE_PHASE);
  ck_assert_int_eq(phase->start_allocated, 20 * MIB);
  ck_assert_int_eq(phase->peak_allocated, 40 * MIB);
  ck_assert_int_eq(phase->peak_reserved, 40 * MIB);
  ck_assert_int_eq(phase->end_allocated, 20 * MIB);
}
END_TEST

START_TEST(memory_can_run_out_in_the_construction)
{
  g_autoptr(Recording) r = run_with_limit(28 * MIB);
  const OutOfMemoryRecord *out = &r->out_of_memory;
  ck_assert(out->happened);
  ck_assert_int_eq(out->step, 0);
  ck_assert_int_eq(out->requested_bytes, 30 * MIB);
  ck_assert_int_eq(out->limit_bytes, 28 * MIB);
  ck_assert_int_eq(out->allocated_bytes, 0);
  ck_assert_uint_eq(r->steps->len, 0);
  ck_assert_ptr_null(r->stuck);
  const char *key = NULL;
  g_autofree char *broken = recording_check(r, &key);
  ck_assert_ptr_null(broken);
}
END_TEST

START_TEST(a_model_that_was_built_elsewhere_knows_no_limit)
{
  g_autoptr(Recording) r = run_model(28 * MIB, TRUE);
  ck_assert(r->out_of_memory.happened);
  ck_assert_int_eq(r->out_of_memory.step, 1);
  ck_assert_int_eq(r->construction_allocated, 20 * MIB);
}
END_TEST

START_TEST(out_of_memory_ends_the_run_with_a_report_up_to_there)
{
  g_autoptr(Recording) r = run_with_limit(39 * MIB);
  const OutOfMemoryRecord *out = &r->out_of_memory;
  ck_assert(out->happened);
  ck_assert_int_eq(out->step, 1);
  ck_assert_str_eq(recording_text(r, out->phase), "forward");
  ck_assert_str_eq(recording_text(r, out->module), "layers.0");
  ck_assert_str_eq(recording_text(r, out->what), "x");
  ck_assert_int_eq(out->requested_bytes, 20 * MIB);
  ck_assert_int_eq(out->segment_bytes, 20 * MIB);
  ck_assert_int_eq(out->limit_bytes, 39 * MIB);
  ck_assert_int_eq(out->allocated_bytes, 20 * MIB);
  ck_assert_int_eq(out->reserved_bytes, 20 * MIB);
  /* The step is there as far as it went: k began 5 after its start and took 50. */
  ck_assert_uint_eq(r->steps->len, 1);
  ck_assert_int_eq(step(r, 1)->end, step(r, 1)->start + 55);
  ck_assert_int_eq(step(r, 1)->peak_allocated, 20 * MIB);
  ck_assert_uint_eq(r->ranges->len, 2);
  ck_assert_int_eq(g_array_index(r->ranges, Range, 0).end, step(r, 1)->start + 5);
  ck_assert_int_eq(r->peak.allocated, 20 * MIB);
  ck_assert_int_eq(r->at_rest_bytes, 20 * MIB);
}
END_TEST

START_TEST(a_retry_waits_frees_what_is_cached_and_allocates)
{
  /* Limit 40 MiB.  Step 1: a of 20 MiB at 7, freed and cached.  Step 2: k 7-107; b of 30 MiB at 7
   * does not fit beside it: cudaFree waits until 107 and takes 3, cudaMalloc 7: 117.  One retry. */
  ProgramBuilder *b = script();
  gint32 x = storage(b, 20 * MIB, CATEGORY_OTHER, "a");
  gint32 y = storage(b, 30 * MIB, CATEGORY_OTHER, "b");
  begin_step(b);
  program_builder_alloc(b, x);
  program_builder_release(b, x);
  begin_step(b);
  kernel(b, STREAM_COMPUTE, 100, "k");
  program_builder_alloc(b, y);
  ExecutorConfig config = unlimited();
  config.allocator.memory_limit = 40 * MIB;
  g_autoptr(Recording) r = run(b, &config);
  ck_assert(!r->out_of_memory.happened);
  ck_assert_int_eq(step(r, 1)->allocator_retries, 0);
  ck_assert_int_eq(step(r, 2)->allocator_retries, 1);
  assert_span(r, "cudaFree", 0, 7, 110);
  assert_span(r, "cudaMalloc", 1, 110, 117);
  ck_assert_int_eq(span(r, "cudaFree", 0)->kind, SPAN_LOST);
  ck_assert_int_eq(event(r, 2)->time, 117);
  ck_assert_int_eq(event(r, 2)->reserved_after, 30 * MIB);
  static const SegmentAction actions[] = {SEGMENT_ALLOC, SEGMENT_FREE, SEGMENT_ALLOC};
  ck_assert_uint_eq(r->segments->len, G_N_ELEMENTS(actions));
  for (guint i = 0; i < G_N_ELEMENTS(actions); i++)
    ck_assert_int_eq(g_array_index(r->segments, SegmentEvent, i).action, actions[i]);
}
END_TEST

START_TEST(a_retry_waits_for_memory_that_other_streams_still_use)
{
  /* Limit 20 MiB.  x is used on copy_in until 207 and freed at 7; y of the same size at 7: the
   * allocator synchronizes with x's event (207), frees x's segment (3) and allocates (7): 217. */
  ProgramBuilder *b = script();
  gint32 x = storage(b, 20 * MIB, CATEGORY_OTHER, "x");
  gint32 y = storage(b, 20 * MIB, CATEGORY_OTHER, "y");
  begin_step(b);
  program_builder_alloc(b, x);
  kernel(b, STREAM_COPY_IN, 200, "k");
  program_builder_record_stream(b, x, STREAM_COPY_IN);
  program_builder_release(b, x);
  program_builder_alloc(b, y);
  ExecutorConfig config = unlimited();
  config.allocator.memory_limit = 20 * MIB;
  g_autoptr(Recording) r = run(b, &config);
  assert_span(r, "cudaEventSynchronize", 0, 7, 207);
  assert_span(r, "cudaFree", 0, 207, 210);
  assert_span(r, "cudaMalloc", 1, 210, 217);
  ck_assert_int_eq(event(r, 2)->time, 217);
}
END_TEST

/* ---- what cannot go on, what is checked, what is the same twice ---- */

START_TEST(a_stream_that_waits_for_ever_is_reported)
{
  ProgramBuilder *b = script();
  begin_step(b);
  gint32 never = program_builder_event(b);
  program_builder_wait(b, STREAM_COMPUTE, never);
  kernel(b, STREAM_COMPUTE, 5, "k");
  kernel(b, STREAM_COPY_IN, 7, "l");
  g_autoptr(Recording) r = run_unlimited(b);
  ck_assert_ptr_nonnull(r->stuck);
  ck_assert_ptr_nonnull(strstr(r->stuck, "compute waits for"));
  ck_assert_ptr_nonnull(strstr(r->stuck, "'event 0'"));
  assert_span(r, "l", 0, 0, 7);
  ck_assert_uint_eq(r->spans->len, 1);
}
END_TEST

START_TEST(a_host_that_waits_for_ever_ends_the_run)
{
  ProgramBuilder *b = script();
  begin_step(b);
  gint32 never = program_builder_event(b);
  program_builder_event_sync(b, never);
  begin_step(b);
  kernel(b, STREAM_COMPUTE, 5, "k");
  g_autoptr(Recording) r = run_unlimited(b);
  ck_assert_str_eq(r->stuck, "host waits for event 0");
  ck_assert_uint_eq(r->steps->len, 1);
}
END_TEST

START_TEST(the_same_program_leaves_the_same_file)
{
  char *folder = test_folder_new();
  g_autofree char *texts[2] = {NULL, NULL};
  for (int i = 0; i < 2; i++) {
    g_autoptr(Recording) r = run_with_limit(40 * MIB);
    g_autofree char *path = g_build_filename(folder, "recording.json", NULL);
    ck_assert(recording_save(r, path, NULL));
    ck_assert(g_file_get_contents(path, &texts[i], NULL, NULL));
  }
  ck_assert_str_eq(texts[0], texts[1]);
  g_free(texts[1]);
  test_folder_remove(folder);
}
END_TEST

START_TEST(with_checks_on_a_good_program_runs_as_before)
{
  g_setenv("HIGHWATER_CHECK", "1", TRUE);
  g_autoptr(Recording) r = run_with_limit(40 * MIB);
  ck_assert_uint_eq(r->steps->len, 2);
}
END_TEST

START_TEST(with_checks_on_a_program_that_frees_twice_is_stopped)
{
  g_setenv("HIGHWATER_CHECK", "1", TRUE);
  ProgramBuilder *b = script();
  begin_step(b);
  gint32 x = storage(b, MIB, CATEGORY_OTHER, "x");
  program_builder_alloc(b, x);
  program_builder_release(b, x);
  program_builder_release(b, x);
  recording_free(run_unlimited(b));
}
END_TEST

Suite *
test_suite(void)
{
  const struct {
    const char *name;
    const TTest *tests[16];
  } cases[] = {
      {"host and streams",
       {the_machine_of_this_test_has_round_figures,
        each_kind_of_host_work_costs_what_the_profile_says, a_slow_host_leaves_gaps_between_kernels,
        a_fast_host_runs_ahead_and_kernels_queue,
        a_span_knows_the_phase_that_issued_it_however_late_it_runs,
        a_step_ends_no_earlier_than_its_host,
        a_stream_waits_for_the_record_that_was_last_when_it_was_told_to,
        event_synchronize_holds_the_host_until_the_event,
        a_synchronization_that_finds_the_device_done_costs_nothing,
        stream_synchronize_waits_for_one_stream_alone,
        a_copy_is_a_span_of_its_own_kind_and_bears_the_module}},
      {"communicators",
       {a_communicator_runs_its_collectives_in_order_of_issue_over_two_streams,
        collectives_of_two_communicators_share_their_link, latency_is_not_shared,
        communicators_inside_nodes_and_between_them_share_nothing,
        a_collective_of_one_rank_takes_no_time}},
      {"steps",
       {steps_follow_each_other_without_draining_the_device,
        only_the_last_steps_spans_are_kept_unless_asked_for,
        the_first_step_begins_when_the_constructed_model_is_there,
        what_a_folded_step_leaves_is_what_it_finds_when_it_runs_again,
        a_folded_step_waits_for_the_event_of_the_step_before}},
      {"memory",
       {memory_changes_on_the_hosts_timeline,
        memory_that_is_not_the_devices_never_reaches_the_allocator,
        cuda_malloc_waits_for_the_device_and_is_lost_time_from_step_2,
        mapping_an_expandable_segment_waits_for_nothing,
        memory_used_on_another_stream_is_free_when_that_stream_has_passed,
        a_free_that_nobody_looks_after_still_waits_at_the_end,
        an_event_is_done_only_when_the_host_is_late_enough_to_see_it,
        the_limit_leaves_room_for_what_fits, memory_can_run_out_in_the_construction,
        a_model_that_was_built_elsewhere_knows_no_limit,
        out_of_memory_ends_the_run_with_a_report_up_to_there,
        a_retry_waits_frees_what_is_cached_and_allocates,
        a_retry_waits_for_memory_that_other_streams_still_use}},
      {"ends",
       {a_stream_that_waits_for_ever_is_reported, a_host_that_waits_for_ever_ends_the_run,
        the_same_program_leaves_the_same_file, with_checks_on_a_good_program_runs_as_before}},
  };
  Suite *suite = suite_create("executor");
  for (guint i = 0; i < G_N_ELEMENTS(cases); i++) {
    TCase *tcase = tcase_create(cases[i].name);
    for (const TTest *const *test = cases[i].tests; *test != NULL; test++)
      tcase_add_test(tcase, *test);
    suite_add_tcase(suite, tcase);
  }
  TCase *checks = tcase_create("checks");
  tcase_add_test_raise_signal(checks, with_checks_on_a_program_that_frees_twice_is_stopped,
                              SIGTRAP);
  suite_add_tcase(suite, checks);
  return suite;
}
