/* check_kineto_recording.c - traces as Recordings: one that a simulated run wrote gives that run
 * back; small ones as PyTorch writes them have the steps, phases, streams and memory that they
 * tell of; what is no such trace is refused. */
#include "import/kineto_recording.h"

#include <string.h>

#include "spec/dtype.h"
#include "tap_main.h"
#include "traced_run.h"

/* ---- a simulated run, there and back ---- */

static const TracedCase cases[] = {
    {.plan = "fsdp2", .steps = 3},
    {.plan = "fsdp2", .set = {"accumulation.steps=3"}, .steps = 2},
    {.plan = "fsdp2", .set = {"phases.evaluate.every=1", "phases.save.every=2"}, .steps = 3},
    {.plan = "fsdp2", .steps = 2, .memory_limit = 110 << 20},
    {.plan = "hsdp", .steps = 2},
    {.plan = "fsdp1", .steps = 2},
    {.plan = "ddp", .steps = 2},
    {.plan = "zero3", .steps = 2},
};

static Recording *
import_text(const char *text, gsize length, int device, KinetoAbout *about)
{
  g_autoptr(ByteSource) source = byte_source_from_memory("trace.json", text, length);
  g_autoptr(GError) error = NULL;
  Recording *recording = kineto_recording_read(source, device, about, &error);
  ck_assert_msg(recording != NULL, "%s", error ? error->message : "");
  return recording;
}

static const char *
text_or(const Recording *recording, gint32 id)
{
  return id >= 0 ? recording_text(recording, id) : "(none)";
}

/* All of a span but numbers of strings and ranges; caller frees. */
static char *
span_text(const Recording *r, const Span *span)
{
  const Range *phase = span->phase > 0 ? &g_array_index(r->ranges, Range, span->phase - 1) : NULL;
  return g_strdup_printf(
      "%s kind %d on %s, step %d: %" G_GINT64_FORMAT " to %" G_GINT64_FORMAT
      ", issued %" G_GINT64_FORMAT ", arrived %" G_GINT64_FORMAT ", alone %" G_GINT64_FORMAT
      ", %s, %s, %s, %" G_GINT64_FORMAT " bytes, %.0f flops, in %s %d",
      text_or(r, span->name), span->kind, (char *) g_ptr_array_index(r->streams, span->stream),
      span->step, span->start, span->end, span->issued, span->arrived, span->alone,
      text_or(r, span->module), text_or(r, span->communicator), text_or(r, span->dtype - 1),
      span->bytes, span->flops, text_or(r, phase ? phase->name : -1),
      phase ? phase->micro_batch : -1);
}

START_TEST(spans_come_back)
{
  g_autoptr(TracedRun) run = traced_run_new(&cases[_i]);
  g_autoptr(KinetoAbout) about = kineto_about_new();
  g_autoptr(Recording) back = import_text(run->text->str, run->text->len, -1, about);
  const Recording *recording = run->run.recording;
  ck_assert_uint_gt(recording->spans->len, 0);
  ck_assert_uint_eq(back->spans->len, recording->spans->len);
  for (guint i = 0; i < recording->spans->len; i++) {
    g_autofree char *expected = span_text(recording, &g_array_index(recording->spans, Span, i));
    g_autofree char *actual = span_text(back, &g_array_index(back->spans, Span, i));
    ck_assert_str_eq(actual, expected);
  }
  ck_assert_str_eq(back->title, recording->title);
  ck_assert_int_eq(back->capacity_bytes, recording->capacity_bytes);
  ck_assert_uint_eq(about->notes->len, 0);
}
END_TEST

START_TEST(waits_come_back)
{
  g_autoptr(TracedRun) run = traced_run_new(&cases[_i]);
  g_autoptr(KinetoAbout) about = kineto_about_new();
  g_autoptr(Recording) back = import_text(run->text->str, run->text->len, -1, about);
  const GArray *waits = run->run.recording->waits;
  ck_assert_uint_eq(back->waits->len, waits->len);
  for (guint i = 0; i < waits->len; i++) {
    const Wait *a = &g_array_index(back->waits, Wait, i), *b = &g_array_index(waits, Wait, i);
    ck_assert_int_eq(a->start, b->start);
    ck_assert_int_eq(a->end, b->end);
    ck_assert_int_eq(a->issued, b->issued);
    ck_assert_int_eq(a->recorded, b->recorded);
    ck_assert_int_eq(a->stream, b->stream);
    ck_assert_int_eq(a->source, b->source);
    ck_assert_int_eq(a->step, b->step);
  }
}
END_TEST

START_TEST(steps_peaks_and_memory_come_back)
{
  g_autoptr(TracedRun) run = traced_run_new(&cases[_i]);
  g_autoptr(KinetoAbout) about = kineto_about_new();
  g_autoptr(Recording) back = import_text(run->text->str, run->text->len, -1, about);
  const Recording *r = run->run.recording;
  ck_assert_uint_eq(back->steps->len, r->steps->len);
  for (guint i = 0; i < r->steps->len; i++) {
    const StepRecord *a = &g_array_index(back->steps, StepRecord, i);
    const StepRecord *b = &g_array_index(r->steps, StepRecord, i);
    ck_assert_int_eq(a->index, b->index);
    ck_assert_int_eq(a->start, b->start);
    ck_assert_int_eq(a->end, b->end);
    ck_assert_int_eq(a->peak_allocated, b->peak_allocated);
    ck_assert_int_eq(a->peak_reserved, b->peak_reserved);
    ck_assert_int_eq(a->end_allocated, b->end_allocated);
    ck_assert_int_eq(a->allocator_retries, b->allocator_retries);
  }
  ck_assert_uint_eq(back->memory->len, r->memory->len);
  for (guint i = 0; i < r->memory->len; i++) {
    const MemoryEvent *a = &g_array_index(back->memory, MemoryEvent, i);
    const MemoryEvent *b = &g_array_index(r->memory, MemoryEvent, i);
    ck_assert_int_eq(a->time, b->time);
    ck_assert_int_eq(a->requested_bytes, b->requested_bytes);
    ck_assert_int_eq(a->allocated_after, b->allocated_after);
    ck_assert_int_eq(a->reserved_after, b->reserved_after);
    ck_assert_int_eq(a->allocation, b->allocation);
    ck_assert_int_eq(a->category, b->category);
    ck_assert_int_eq(a->step, b->step);
  }
  ck_assert_int_eq(back->peak.step, r->peak.step);
  ck_assert_int_eq(back->peak.time, r->peak.time);
  ck_assert_int_eq(back->peak.allocated, r->peak.allocated);
  ck_assert_int_eq(back->peak.reserved, r->peak.reserved);
  ck_assert_mem_eq(back->peak.categories, r->peak.categories, sizeof r->peak.categories);
  ck_assert_str_eq(text_or(back, back->peak.phase), text_or(r, r->peak.phase));
  ck_assert_str_eq(text_or(back, back->peak.module), text_or(r, r->peak.module));
  ck_assert_int_eq(back->construction_allocated, r->construction_allocated);

  ck_assert_int_eq(back->out_of_memory.happened, r->out_of_memory.happened);
  ck_assert_uint_eq(back->beyond->len, r->beyond->len);
}
END_TEST

/* ---- traces as PyTorch writes them ---- */

/* Events as text; ' stands for ". */
#define EVENT(cat, name, pid, tid, ts, dur, args)                                                  \
  "{'ph': 'X', 'cat': '" cat "', 'name': '" name "', 'pid': " #pid ", 'tid': " #tid ", 'ts': " #ts \
  ", 'dur': " #dur ", 'args': {" args "}}"
#define STEP(n, ts, dur) EVENT("user_annotation", "ProfilerStep#" #n, 41, 41, ts, dur, "")
#define LAUNCH(correlation, ts)                                                                    \
  EVENT("cuda_runtime", "cudaLaunchKernel", 41, 41, ts, 4.5, "'correlation': " #correlation)
#define KERNEL(name, stream, correlation, ts, dur)                                                 \
  EVENT("kernel", name, 0, stream, ts, dur, "'stream': " #stream ", 'correlation': " #correlation)
#define NODE(ts, dur)                                                                              \
  EVENT("cpu_op", "autograd::engine::evaluate_function: MmBackward0", 41, 57, ts, dur, "")
#define MEMORY(ts, bytes, address, allocated, reserved, device)                                    \
  "{'ph': 'i', 'cat': 'cpu_instant_event', 's': 't', 'name': '[memory]', 'pid': 41, 'tid': 41, "   \
  "'ts': " #ts ", 'args': {'Total Reserved': " #reserved ", 'Total Allocated': " #allocated        \
  ", 'Bytes': " #bytes ", 'Addr': " #address ", 'Device Id': " #device ", 'Device Type': 1}}"

static Recording *
import_events(const char *events, int device, KinetoAbout *about)
{
  g_autofree char *text = g_strdup_printf(
      "{'schemaVersion': 1, 'baseTimeNanoseconds': 1741600000000000000, 'traceEvents': [%s]}",
      events);
  g_strdelimit(text, "'", '"');
  return import_text(text, strlen(text), device, about);
}

static const Span *
span_named(const Recording *recording, const char *name)
{
  for (guint i = 0; i < recording->spans->len; i++) {
    const Span *span = &g_array_index(recording->spans, Span, i);
    if (g_str_equal(recording_text(recording, span->name), name))
      return span;
  }
  ck_abort_msg("no span %s", name);
  return NULL;
}

static const Range *
range_named(const Recording *recording, const char *name, int step)
{
  for (guint i = 0; i < recording->ranges->len; i++) {
    const Range *range = &g_array_index(recording->ranges, Range, i);
    if (g_str_equal(recording_text(recording, range->name), name) && range->step == step)
      return range;
  }
  ck_abort_msg("no range %s in step %d", name, step);
  return NULL;
}

/* Two steps of 1000 us from 5000.25 us on; autograd runs from 400 to 600 us of each. */
#define TWO_STEPS                                                                                                                     \
  STEP(8, 5000.25, 1000)                                                                                                              \
  "," STEP(9, 6000.25, 1000) "," LAUNCH(1, 5100.25) "," KERNEL("gemm", 7, 1, 5110.5, 50) "," NODE(5400.25, 100) "," NODE(             \
      5520.25,                                                                                                                        \
      80) "," LAUNCH(2,                                                                                                               \
                     5550.25) "," KERNEL("gemm_backward", 7, 2, 6050.25,                                                              \
                                         100) "," NODE(6400.25,                                                                       \
                                                       200) "," LAUNCH(3,                                                             \
                                                                       6700.25) "," KERNEL("adam",                                    \
                                                                                           7, 3,                                      \
                                                                                           6710.25,                                   \
                                                                                           40) "," EVENT("user_annotation",           \
                                                                                                         "Optimizer.step#AdamW.step", \
                                                                                                         41,                          \
                                                                                                         41,                          \
                                                                                                         6650.25,                     \
                                                                                                         300,                         \
                                                                                                         "")

START_TEST(times_count_from_the_first_event_and_keep_their_nanoseconds)
{
  g_autoptr(KinetoAbout) about = kineto_about_new();
  g_autoptr(Recording) r = import_events(TWO_STEPS, -1, about);
  const Span *gemm = span_named(r, "gemm");
  ck_assert_int_eq(gemm->start, 110250);
  ck_assert_int_eq(gemm->end, 160250);
  /* The launch was done 4.5 us after it began. */
  ck_assert_int_eq(gemm->issued, 104500);
  ck_assert_uint_eq(r->steps->len, 2);
  const StepRecord *steps = &g_array_index(r->steps, StepRecord, 0);
  ck_assert_int_eq(steps[0].index, 1);
  ck_assert_int_eq(steps[0].start, 0);
  ck_assert_int_eq(steps[1].start, 1000000);
  /* What the first step issued is done in the second one. */
  ck_assert_int_eq(span_named(r, "gemm_backward")->step, 1);
  ck_assert_int_eq(steps[0].end, 1150000);
  ck_assert_int_eq(span_named(r, "adam")->step, 2);
}
END_TEST

START_TEST(phases_that_no_annotation_names_are_where_autograd_ran)
{
  g_autoptr(KinetoAbout) about = kineto_about_new();
  g_autoptr(Recording) r = import_events(TWO_STEPS, -1, about);
  const Range *forward = range_named(r, "forward", 1), *backward = range_named(r, "backward", 1);
  ck_assert_int_eq(forward->start, 0);
  ck_assert_int_eq(forward->end, 400000);
  ck_assert_int_eq(backward->start, 400000);
  ck_assert_int_eq(backward->end, 600000);
  ck_assert_int_eq(range_named(r, "optimizer", 2)->start, 1650000);
  const Span *gradient = span_named(r, "gemm_backward");
  ck_assert_ptr_eq(&g_array_index(r->ranges, Range, gradient->phase - 1), backward);
}
END_TEST

/* Forward runs on the main thread between two nodes: they are of different micro-batches. */
START_TEST(each_micro_batch_has_its_forward_and_its_backward)
{
  g_autoptr(KinetoAbout) about = kineto_about_new();
  g_autoptr(Recording) r = import_events(
      STEP(0, 1000, 1000) "," NODE(1200, 100) "," EVENT(
          "cpu_op", "aten::mm", 41, 41, 1400, 10,
          "") "," NODE(1600, 100) "," LAUNCH(1, 1100) "," KERNEL("gemm", 7, 1, 1110, 10),
      -1, about);
  int phases = 0;
  for (guint i = 0; i < r->ranges->len; i++) {
    const Range *range = &g_array_index(r->ranges, Range, i);
    ck_assert_int_eq(range->micro_batch, phases++ / 2);
  }
  ck_assert_int_eq(phases, 4);
  ck_assert_int_eq(g_array_index(r->ranges, Range, 2).start, 300000);
  ck_assert_int_eq(g_array_index(r->ranges, Range, 3).end, 700000);
}
END_TEST

START_TEST(memory_that_was_there_before_counts_as_other)
{
  g_autoptr(KinetoAbout) about = kineto_about_new();
  /* 4096 bytes were there; one of 1024 goes that the trace has not seen come. */
  g_autoptr(Recording) r = import_events(
      STEP(3, 100, 900) "," MEMORY(200, 512, 7000, 4608, 8192, 0) "," MEMORY(
          300, -1024, 9000, 3584, 8192,
          0) "," MEMORY(400, 2048, 9000, 5632, 8192,
                        0) "," MEMORY(500, -512, 7000, 5120, 8192,
                                      0) "," MEMORY(600, 64, 7000, 64, 8192,
                                                    1) "," LAUNCH(1, 150) "," KERNEL("k", 7, 1, 160,
                                                                                     10),
      -1, about);
  ck_assert_int_eq(r->peak.allocated, 5632);
  ck_assert_int_eq(r->peak.time, 300000);
  ck_assert_int_eq(r->peak.categories[CATEGORY_OTHER], 5632);
  const StepRecord *step = &g_array_index(r->steps, StepRecord, 0);
  ck_assert_int_eq(step->peak_allocated, 5632);
  ck_assert_int_eq(step->peak_reserved, 8192);
  ck_assert_int_eq(step->end_allocated, 5120); /* the other device's is not counted */
  const MemoryEvent *last = &g_array_index(r->memory, MemoryEvent, r->memory->len - 1);
  ck_assert_int_eq(last->block_bytes, -512);
}
END_TEST

START_TEST(collectives_and_modules_are_told_from_kernels_and_calls)
{
  g_autoptr(KinetoAbout) about = kineto_about_new();
  g_autoptr(Recording) r = import_events(
      STEP(0, 0, 1000) "," EVENT("python_function", "nn.Module: Block_3", 41, 41, 10, 200, "") "," EVENT(
          "python_function",
          "nn.Module: Linear_8",
          41, 41, 20, 100,
          "") "," EVENT("python_function", "train.py(7): step", 41, 41, 5, 900,
                        "") "," EVENT("user_annotation", "FSDP::all_gather (layers.3)", 41, 41, 12,
                                      5,
                                      "") "," LAUNCH(1,
                                                     30) "," KERNEL("gemm", 7, 1, 40,
                                                                    10) "," LAUNCH(2,
                                                                                   130) "," KERNEL("add",
                                                                                                   7,
                                                                                                   2,
                                                                                                   140,
                                                                                                   10) "," EVENT("kernel",
                                                                                                                 "ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
                                                                                                                 0,
                                                                                                                 20,
                                                                                                                 60,
                                                                                                                 90,
                                                                                                                 "'Collective name': '_allgather_base', 'In msg nelems': 100, 'Out msg nelems': 800, "
                                                                                                                 "'Group size': 8, 'dtype': 'BFloat16', 'Process Group Name': '1', 'Process Group "
                                                                                                                 "Description': 'mesh_shard', 'Process Group Ranks': '[0, 1, 2, 3, 4, 5, 6, 7]'"),
      -1, about);
  ck_assert_str_eq(recording_text(r, span_named(r, "gemm")->module), "Linear_8");
  ck_assert_str_eq(recording_text(r, span_named(r, "add")->module), "Block_3");
  const Span *gather = span_named(r, "all_gather");
  ck_assert_int_eq(gather->kind, SPAN_COLLECTIVE);
  ck_assert_int_eq(gather->bytes, 1600);
  ck_assert_str_eq(recording_text(r, gather->communicator), "mesh_shard");
  ck_assert_str_eq(recording_text(r, gather->dtype - 1), "bf16");
  ck_assert_int_eq(gather->issued, 0);
  ck_assert_str_eq(g_ptr_array_index(r->streams, 0), "compute");
  ck_assert_str_eq(g_ptr_array_index(r->streams, 1), "stream 20");
  ck_assert_str_eq(g_ptr_array_index(r->streams, 2), "host");
  const Range *hook = range_named(r, "FSDP::all_gather (layers.3)", 1);
  ck_assert_str_eq(recording_text(r, hook->module), "layers.3");
  ck_assert_uint_eq(about->groups->len, 1);
  ck_assert_int_eq(g_array_index(about->groups, KinetoGroup, 0).ranks, 8);
  ck_assert_int_eq(g_array_index(about->groups, KinetoGroup, 0).stride, 1);
}
END_TEST

START_TEST(one_device_of_several_is_taken)
{
  static const char events[] = STEP(0, 0, 100) "," KERNEL("one", 7, 0, 10, 5) "," KERNEL(
      "one", 7, 0, 20, 5) "," EVENT("kernel", "two", 1, 7, 30, 5, "");
  g_autoptr(KinetoAbout) about = kineto_about_new();
  g_autoptr(Recording) most = import_events(events, -1, about);
  ck_assert_uint_eq(most->spans->len, 2);
  ck_assert_uint_eq(about->notes->len, 1);
  g_autoptr(Recording) second = import_events(events, 1, about);
  ck_assert_uint_eq(second->spans->len, 1);
  ck_assert_ptr_nonnull(span_named(second, "two"));
}
END_TEST

START_TEST(a_trace_without_steps_is_one)
{
  g_autoptr(KinetoAbout) about = kineto_about_new();
  g_autoptr(Recording) r =
      import_events(LAUNCH(1, 100) "," KERNEL("gemm", 7, 1, 120, 30), -1, about);
  ck_assert_uint_eq(r->steps->len, 1);
  ck_assert_int_eq(g_array_index(r->steps, StepRecord, 0).end, 50000);
  ck_assert_int_eq(span_named(r, "gemm")->step, 1);
  ck_assert_uint_eq(about->notes->len, 1);
}
END_TEST

/* The host was held up, and a range of another thread reaches over the end of a step. */
START_TEST(what_overlaps_is_cut)
{
  g_autoptr(KinetoAbout) about = kineto_about_new();
  g_autoptr(Recording) r = import_events(
      STEP(0, 0, 100) "," STEP(1, 90, 110) "," EVENT(
          "user_annotation", "outer", 41, 41, 10, 50,
          "") "," EVENT("user_annotation", "late", 41, 57, 40, 100,
                        "") "," EVENT("cuda_runtime", "cudaStreamSynchronize", 41, 41, 110, 30,
                                      "'correlation': 9") "," EVENT("cuda_runtime", "cudaMalloc",
                                                                    41, 41, 150, 20,
                                                                    "'correlation': "
                                                                    "10") "," KERNEL("gemm", 7, 1,
                                                                                     20, 5),
      -1, about);
  ck_assert_int_eq(g_array_index(r->steps, StepRecord, 1).start, 100000);
  ck_assert_int_eq(range_named(r, "late", 1)->end, 60000);
  const Span *held = span_named(r, "cudaStreamSynchronize");
  ck_assert_int_eq(held->kind, SPAN_HOST_BLOCKED);
  ck_assert_int_eq(held->end - held->start, 30000);
  ck_assert_str_eq(g_ptr_array_index(r->streams, held->stream), "host");
  /* From the second step on there should be no more need for segments. */
  ck_assert_int_eq(span_named(r, "cudaMalloc")->kind, SPAN_LOST);
}
END_TEST

static const struct {
  const char *text, *says;
  int device;
} refused[] = {
    {"{}", "no key 'traceEvents'", -1},
    {"{\"traceEvents\": []}", "no kernel, copy or fill of a GPU is in it", -1},
    {"{\"traceEvents\": [{\"ph\": \"X\", \"cat\": \"kernel\", \"name\": \"k\", \"pid\": 0, "
     "\"tid\": 7, "
     "\"ts\": 1, \"dur\": 1}]}",
     "no kernel, copy or fill ran on device 3", 3},
    {"{\"traceEvents\": [{\"ph\": \"X\", \"cat\": \"kernel\", \"name\": \"k\", \"pid\": 0, "
     "\"tid\": 7, "
     "\"dur\": 1}]}",
     "has no time", -1},
    {"{\"traceEvents\": [{\"ph\": \"X\", \"cat\": \"kernel\", \"name\": \"k\", \"pid\": 0, "
     "\"tid\": 7, "
     "\"ts\": 1, \"dur\": 1}, {\"ph\": \"X\", \"cat\": \"kernel\", \"name\": \"k\", \"pid\": 0, "
     "\"tid\": 7, \"ts\": 1e14, \"dur\": 1}]}",
     "a hundred days apart", -1},
};

START_TEST(what_is_no_such_trace_is_refused)
{
  g_autoptr(ByteSource) source =
      byte_source_from_memory("trace.json", refused[_i].text, strlen(refused[_i].text));
  g_autoptr(KinetoAbout) about = kineto_about_new();
  g_autoptr(GError) error = NULL;
  ck_assert_ptr_null(kineto_recording_read(source, refused[_i].device, about, &error));
  ck_assert(test_error_says(error, "trace.json: "));
  ck_assert(test_error_says(error, refused[_i].says));
}
END_TEST

Suite *
test_suite(void)
{
  Suite *suite = suite_create("recordings of traces");
  TCase *tests = tcase_create("recording");
  tcase_add_loop_test(tests, spans_come_back, 0, G_N_ELEMENTS(cases));
  tcase_add_loop_test(tests, waits_come_back, 0, G_N_ELEMENTS(cases));
  tcase_add_loop_test(tests, steps_peaks_and_memory_come_back, 0, G_N_ELEMENTS(cases));
  tcase_add_test(tests, times_count_from_the_first_event_and_keep_their_nanoseconds);
  tcase_add_test(tests, phases_that_no_annotation_names_are_where_autograd_ran);
  tcase_add_test(tests, each_micro_batch_has_its_forward_and_its_backward);
  tcase_add_test(tests, memory_that_was_there_before_counts_as_other);
  tcase_add_test(tests, collectives_and_modules_are_told_from_kernels_and_calls);
  tcase_add_test(tests, one_device_of_several_is_taken);
  tcase_add_test(tests, a_trace_without_steps_is_one);
  tcase_add_test(tests, what_overlaps_is_cut);
  tcase_add_loop_test(tests, what_is_no_such_trace_is_refused, 0, G_N_ELEMENTS(refused));
  suite_add_tcase(suite, tests);
  return suite;
}
