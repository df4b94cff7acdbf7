/* check_compare.c - where two recordings differ: the first allocation, category, collective and
 * time that is not the same is named exactly.  The recordings are those of report_fixture.c, and
 * ones of memory whose events are listed here. */
#include <math.h>
#include <string.h>

#include "report/comparison_limit.h"
#include "report/comparison_report.h"
#include "report/comparison_words.h"
#include "report_fixture.h"
#include "tap_main.h"

/* A comparison and what it borrows. */
typedef struct {
  Recording *recordings[SIDES];
  RunInfo *infos[SIDES];
  ReportModel *models[SIDES];
  Comparison *comparison;
} Work;

/* Takes the recordings; of measured ones nothing else is known. */
static Work
compare_as(Recording *a, gboolean a_measured, Recording *b, gboolean b_measured,
           ComparedSteps steps)
{
  Work work = {.recordings = {a, b}};
  const gboolean measured[SIDES] = {a_measured, b_measured};
  for (int side = 0; side < SIDES; side++) {
    const char *key;
    g_autofree char *wrong = recording_check(work.recordings[side], &key);
    ck_assert_msg(wrong == NULL, "the test's recording: %s: %s", key, wrong);
    work.infos[side] = measured[side] ? run_info_new() : fixture_info();
    work.models[side] = report_model_new(work.recordings[side], work.infos[side]);
  }
  work.comparison = comparison_new(work.models[SIDE_A], work.models[SIDE_B], steps);
  return work;
}

static Work
compare(Recording *a, Recording *b)
{
  return compare_as(a, FALSE, b, FALSE, COMPARE_AUTO);
}

static void
work_clear(Work *work)
{
  comparison_free(work->comparison);
  for (int side = 0; side < SIDES; side++) {
    report_model_free(work->models[side]);
    run_info_free(work->infos[side]);
    recording_free(work->recordings[side]);
  }
}

static void
assert_headline(const Work *work, const char *expected)
{
  g_autofree char *line = comparison_headline(work->comparison);
  ck_assert_str_eq(line, expected);
}

static char *
text_of(const Work *work)
{
  GString *text = g_string_new(NULL);
  const ComparisonReport report = {.comparison = work->comparison, .names = {"a", "b"}};
  comparison_text(&report, &(TextStyle){.verbose = FALSE}, text);
  return g_string_free(text, FALSE);
}

static const FigureComparison *
figure(const Work *work, const char *key)
{
  const FigureComparison *found = comparison_figure(work->comparison, key);
  ck_assert_ptr_nonnull(found);
  return found;
}

/* ---- figures ---- */

START_TEST(a_run_is_the_same_as_itself)
{
  Work work = compare(fixture_recording(), fixture_recording());
  ck_assert(work.comparison->same);
  assert_headline(&work, "the same to the byte and to the nanosecond");
  ck_assert_int_eq(work.comparison->memory.verdict, MEMORY_SAME);
  ck_assert_int_eq(work.comparison->memory.events[SIDE_A], 8);
  ck_assert_int_eq(work.comparison->memory.events[SIDE_B], 8);
  work_clear(&work);
}
END_TEST

START_TEST(a_higher_peak_is_given_in_bytes_and_relative_to_a)
{
  Recording *b = fixture_recording();
  /* 1536 MiB and a quarter of it. */
  b->peak.allocated += 384 * MIB;
  b->peak.categories[CATEGORY_ACTIVATION] += 384 * MIB;
  Work work = compare(fixture_recording(), b);
  ck_assert(!work.comparison->same);
  ck_assert_int_eq(figure(&work, "peak_allocated")->value[SIDE_A], 1536 * MIB);
  ck_assert_int_eq(figure(&work, "peak_allocated")->value[SIDE_B], 1920 * MIB);
  ck_assert(figure_error(figure(&work, "peak_allocated")) == 0.25);
  assert_headline(&work, "peak allocated is 384 MiB (25.0 %) more in B: 1.88 GiB, in A 1.50 GiB");
  work_clear(&work);
}
END_TEST

START_TEST(a_longer_step_is_the_answer_when_memory_is_the_same)
{
  Recording *b = fixture_recording();
  g_array_index(b->steps, StepRecord, 1).end += 50000; /* 1 ms becomes 1.05 */
  Work work = compare(fixture_recording(), b);
  assert_headline(&work, "step time is 50.0 us (5.0 %) more in B: 1.05 ms, in A 1.00 ms; memory is "
                         "the same to the byte");
  work_clear(&work);
}
END_TEST

START_TEST(bytes_that_move_from_one_category_to_another_are_found)
{
  Recording *b = fixture_recording();
  b->peak.categories[CATEGORY_ACTIVATION] -= 100 * MIB;
  b->peak.categories[CATEGORY_TEMPORARY] += 100 * MIB;
  Work work = compare(fixture_recording(), b);
  ck_assert(work.comparison->has_categories);
  assert_headline(&work,
                  "the peaks are the same, but activation at it: 1000 MiB in A, 900 MiB in B");
  g_autofree char *text = text_of(&work);
  ck_assert_ptr_nonnull(strstr(text, "temporary"));
  ck_assert_ptr_nonnull(strstr(text, "+100 MiB"));
  ck_assert_ptr_nonnull(strstr(text, "-100 MiB"));
  work_clear(&work);
}
END_TEST

START_TEST(what_only_one_records_is_not_compared)
{
  Recording *b = fixture_recording();
  g_array_set_size(b->memory, 0);
  g_array_set_size(b->peak.live, 0);
  memset(b->peak.categories, 0, sizeof b->peak.categories);
  b->peak.allocated = b->peak.reserved = b->construction_allocated = b->construction_reserved = 0;
  for (guint i = 0; i < b->steps->len; i++) {
    StepRecord *step = &g_array_index(b->steps, StepRecord, i);
    step->peak_allocated = step->peak_reserved = step->end_allocated = 0;
  }
  Work work = compare_as(fixture_recording(), FALSE, b, TRUE, COMPARE_AUTO);
  ck_assert(!figure_is_known(figure(&work, "peak_allocated")));
  ck_assert(figure_is_known(figure(&work, "step_time")));
  ck_assert(work.comparison->same);
  assert_headline(&work, "the same to the nanosecond; B has no memory");
  ck_assert(!work.comparison->memory.known);
  work_clear(&work);
}
END_TEST

/* ---- collectives ---- */

static Span *
span_of(Recording *recording, guint i)
{
  return &g_array_index(recording->spans, Span, i);
}

/* The fixture's sixth of step 2 is layers.0's second gather, 2400 to 2550 us. */
START_TEST(the_collective_that_is_slower_is_named)
{
  Recording *b = fixture_recording();
  span_of(b, 6)->start -= 30000;
  Work work = compare(fixture_recording(), b);
  const CollectivePair *pair = &work.comparison->slowest;
  g_autofree char *name = comparison_collective_name(work.comparison, pair);
  g_autofree char *in_a = comparison_collective(work.comparison, pair, SIDE_A);
  g_autofree char *in_b = comparison_collective(work.comparison, pair, SIDE_B);
  ck_assert_str_eq(name, "all_gather 3 of shard");
  ck_assert_str_eq(in_a, "1.00 MiB of layers.0 in 150 us");
  ck_assert_str_eq(in_b, "1.00 MiB of layers.0 in 180 us");
  ck_assert_int_eq(work.comparison->first_differs.lane, -1);
  work_clear(&work);
}
END_TEST

START_TEST(the_first_collective_of_other_bytes_is_named)
{
  Recording *b = fixture_recording();
  span_of(b, 7)->bytes = 3 << 20;  /* the reduce-scatter that begins at 2500 */
  span_of(b, 11)->bytes = 4 << 20; /* the all-reduce that begins at 2800 */
  Work work = compare(fixture_recording(), b);
  const CollectivePair *pair = &work.comparison->first_differs;
  g_autofree char *name = comparison_collective_name(work.comparison, pair);
  g_autofree char *in_b = comparison_collective(work.comparison, pair, SIDE_B);
  ck_assert_str_eq(name, "reduce_scatter 1 of shard");
  ck_assert_str_eq(in_b, "3.00 MiB of layers.1 in 120 us");
  ck_assert_int_eq(figure(&work, "collective_bytes")->value[SIDE_B] -
                       figure(&work, "collective_bytes")->value[SIDE_A],
                   2 << 20);
  work_clear(&work);
}
END_TEST

START_TEST(gathers_in_another_order_differ)
{
  Recording *b = fixture_recording();
  gint32 first = span_of(b, 1)->module;
  span_of(b, 1)->module = span_of(b, 3)->module;
  span_of(b, 3)->module = first;
  Work work = compare(fixture_recording(), b);
  const CollectivePair *pair = &work.comparison->first_differs;
  g_autofree char *name = comparison_collective_name(work.comparison, pair);
  ck_assert_str_eq(name, "all_gather 1 of shard");
  work_clear(&work);
}
END_TEST

START_TEST(a_collective_that_is_missing_is_named)
{
  Recording *b = fixture_recording();
  g_array_remove_index(b->spans, 10); /* layers.0's reduce-scatter */
  Work work = compare(fixture_recording(), b);
  const CollectivePair *pair = &work.comparison->first_differs;
  g_autofree char *name = comparison_collective_name(work.comparison, pair);
  g_autofree char *in_a = comparison_collective(work.comparison, pair, SIDE_A);
  g_autofree char *in_b = comparison_collective(work.comparison, pair, SIDE_B);
  ck_assert_str_eq(name, "reduce_scatter 2 of shard");
  ck_assert_str_eq(in_a, "2.00 MiB of layers.0 in 100 us");
  ck_assert_str_eq(in_b, "none");
  work_clear(&work);
}
END_TEST

/* A profiler calls kernels by NCCL's names and process groups by numbers, and says no module. */
START_TEST(collectives_of_a_measured_run_are_told_by_their_kernels_names)
{
  static const char *const kernels[][2] = {
      {"all_gather", "ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgsStorage<4096ul>)"},
      {"reduce_scatter", "ncclDevKernel_ReduceScatter_Sum_bf16_RING_LL"},
      {"all_reduce", "ncclKernel_AllReduce_RING_LL_Sum_float"},
  };
  Recording *b = fixture_recording();
  for (guint i = 0; i < b->spans->len; i++) {
    Span *span = span_of(b, i);
    for (guint k = 0; k < G_N_ELEMENTS(kernels) && span->kind == SPAN_COLLECTIVE; k++)
      if (span->name == recording_find_string(b, kernels[k][0])) {
        span->name = recording_string(b, kernels[k][1]);
        k = G_N_ELEMENTS(kernels);
      }
    if (span->kind == SPAN_COLLECTIVE)
      span->communicator = recording_string(b, span->communicator % 2 ? "0" : "1");
    span->module = -1;
  }
  Work work = compare_as(fixture_recording(), FALSE, b, TRUE, COMPARE_AUTO);
  const GArray *lanes = work.comparison->lanes;
  ck_assert_uint_eq(lanes->len, 3);
  for (guint i = 0; i < lanes->len; i++) {
    const LaneComparison *lane = &g_array_index(lanes, LaneComparison, i);
    ck_assert_ptr_null(lane->communicator);
    ck_assert_str_eq(lane->kind, kernels[i][0]);
    ck_assert_int_eq(lane->count[SIDE_A], lane->count[SIDE_B]);
    ck_assert_int_eq(lane->time[SIDE_A], lane->time[SIDE_B]);
  }
  ck_assert_int_eq(work.comparison->first_differs.lane, -1);
  work_clear(&work);
}
END_TEST

START_TEST(names_of_collectives_mean_the_same)
{
  static const char *const rows[][2] = {
      {"all_gather", "all_gather"},
      {"_allgather_base", "all_gather"},
      {"nccl:_all_gather_base", "all_gather"},
      {"all_gather_into_tensor_coalesced", "all_gather"},
      {"_reduce_scatter_base", "reduce_scatter"},
      {"ncclDevKernel_ReduceScatter_Sum_f32_RING_SIMPLE(x)", "reduce_scatter"},
      {"allreduce", "all_reduce"},
      {"ncclDevKernel_Reduce_Sum_f32_RING_LL", "reduce"},
      {"broadcast", "broadcast"},
      {"all_to_allv", "all_to_all"},
      {"ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)", "send_recv"},
      {"gossip", "gossip"},
  };
  for (guint i = 0; i < G_N_ELEMENTS(rows); i++)
    ck_assert_str_eq(comparison_collective_kind(rows[i][0]), rows[i][1]);
}
END_TEST

/* ---- kernels ---- */

/* mm takes 100 + 150 + 100 us in step 2, of which 150 in layers.1. */
START_TEST(kernels_are_summed_by_name_and_by_block)
{
  Recording *b = fixture_recording();
  span_of(b, 4)->start -= 25000;
  Work work = compare(fixture_recording(), b);
  const KernelComparison *name = &g_array_index(work.comparison->kernels, KernelComparison, 0);
  const KernelComparison *block = &g_array_index(work.comparison->modules, KernelComparison, 0);
  ck_assert_str_eq(name->name, "mm");
  ck_assert_int_eq(name->count[SIDE_A], 3);
  ck_assert_int_eq(name->time[SIDE_A], 350000);
  ck_assert_int_eq(name->time[SIDE_B], 375000);
  ck_assert_str_eq(block->name, "layers.1");
  ck_assert_int_eq(block->time[SIDE_A], 150000);
  ck_assert_int_eq(block->time[SIDE_B], 175000);
  work_clear(&work);
}
END_TEST

/* ---- the first difference in memory ---- */

/* MiB of an allocation, of layers.N; negative: the number of that allocation is freed. */
typedef struct {
  int step, mib, layer;
  guint8 category;
} Row;

#define NEW(step, mib, layer, category)                                                            \
  {                                                                                                \
    step, mib, layer, CATEGORY_##category                                                          \
  }
#define FREE(step, allocation)                                                                     \
  {                                                                                                \
    step, -(allocation) -1, 0, CATEGORY_OTHER                                                      \
  }

/* Two allocations of the construction; in each of two steps a forward of four layers and its
 * backward. */
static const Row rows_of_a[] = {
    NEW(0, 8, 0, PARAMETER),
    NEW(0, 8, 1, PARAMETER),
    NEW(1, 2, 0, ACTIVATION),
    NEW(1, 3, 1, ACTIVATION),
    NEW(1, 4, 2, ACTIVATION),
    NEW(1, 5, 3, ACTIVATION),
    FREE(1, 5),
    FREE(1, 4),
    FREE(1, 3),
    FREE(1, 2),
    NEW(2, 2, 0, ACTIVATION),
    NEW(2, 3, 1, ACTIVATION),
    NEW(2, 4, 2, ACTIVATION),
    NEW(2, 5, 3, ACTIVATION),
    FREE(2, 9),
    FREE(2, 8),
    FREE(2, 7),
    FREE(2, 6),
};

static GArray *
rows(void)
{
  GArray *array = g_array_new(FALSE, FALSE, sizeof(Row));
  return g_array_append_vals(array, rows_of_a, G_N_ELEMENTS(rows_of_a));
}

/* Numbers the frees again after a change: of those behind it that free an allocation from `from`
 * on.
 */
static void
renumber(GArray *array, int from, int by)
{
  for (guint i = 0; i < array->len; i++) {
    Row *row = &g_array_index(array, Row, i);
    if (row->mib < 0 && -row->mib - 1 >= from)
      row->mib -= by;
  }
}

static void
insert(GArray *array, guint at, Row row)
{
  g_array_insert_val(array, at, row);
}

/* Takes the rows.  One event a microsecond; a step is forward and backward. */
static Recording *
recording_of(GArray *array)
{
  Recording *recording = recording_new();
  g_autoptr(GArray) made = g_array_new(FALSE, FALSE, sizeof(MemoryEvent));
  gint64 allocated = 0;
  g_ptr_array_add(recording->streams, g_strdup("compute"));
  gint64 cached = 0;
  g_array_append_val(recording->cached, cached);
  for (guint i = 0; i < array->len; i++) {
    const Row *row = &g_array_index(array, Row, i);
    g_autofree char *module = g_strdup_printf("layers.%d", row->layer);
    MemoryEvent event = {
        .time = 1000 * (i + 1),
        .requested_bytes = row->mib * MIB,
        .block_bytes = row->mib * MIB,
        .allocation = (gint32) made->len,
        .category = row->category,
        .module = recording_string(recording, module),
        .what = recording_string(recording, "linear"),
    };
    if (row->mib < 0) {
      event = g_array_index(made, MemoryEvent, (guint) (-row->mib - 1));
      event.time = 1000 * (i + 1);
      event.requested_bytes = event.block_bytes = -event.block_bytes;
    }
    event.step = (gint16) row->step;
    allocated += event.block_bytes;
    event.allocated_after = event.reserved_after = allocated;
    g_array_append_val(recording->memory, event);
    if (row->mib > 0)
      g_array_append_val(made, event);
  }
  for (int step = 1; step <= 2; step++) {
    StepRecord record = {.index = step, .start = step * 100000, .end = step * 100000 + 50000};
    record.peak_allocated = record.peak_reserved = 30 * MIB;
    g_array_append_val(recording->steps, record);
    Range range = {.start = step == 1 ? 2500 : 10500,
                   .end = 100000 * step + 1000,
                   .kind = RECORDED_PHASE,
                   .step = (gint16) step,
                   .name = recording_string(recording, "forward"),
                   .module = -1};
    g_array_append_val(recording->ranges, range);
  }
  recording->construction_allocated = recording->construction_reserved = 16 * MIB;
  recording->peak.step = 2;
  recording->peak.phase = recording->peak.module = -1;
  recording->peak.allocated = recording->peak.reserved = 30 * MIB;
  recording->peak.categories[CATEGORY_ACTIVATION] = 30 * MIB;
  recording->capacity_bytes = G_MAXINT64;
  g_array_unref(array);
  return recording;
}

/* Where, and what the two do there. */
static void
assert_first(const Work *work, MemoryVerdict verdict, int step, guint position, const char *in_a,
             const char *in_b)
{
  const MemoryComparison *memory = &work->comparison->memory;
  g_autofree char *a = comparison_memory_event(work->comparison, SIDE_A);
  g_autofree char *b = comparison_memory_event(work->comparison, SIDE_B);
  ck_assert_int_eq(memory->verdict, verdict);
  ck_assert_int_eq(memory->step[SIDE_A], step);
  ck_assert_uint_eq(memory->position, position);
  ck_assert_str_eq(a, in_a);
  ck_assert_str_eq(b, in_b);
  ck_assert(!work->comparison->same);
}

START_TEST(an_allocation_of_another_size_is_found)
{
  GArray *b = rows();
  g_array_index(b, Row, 12).mib = 6; /* layers.2's of step 2 */
  Work work = compare(recording_of(rows()), recording_of(b));
  assert_first(&work, MEMORY_CHANGED, 2, 2,
               "allocates 4.00 MiB for linear of layers.2 (activation)",
               "allocates 6.00 MiB for linear of layers.2 (activation)");
  g_autofree char *place = comparison_memory_place(work.comparison, SIDE_A);
  ck_assert_str_eq(place, "step 2, forward of layers.2");
  ck_assert_uint_eq(work.comparison->memory.count, 1);
  ck_assert_uint_eq(work.comparison->memory.unmatched[SIDE_A], 1);
  ck_assert_int_eq(work.comparison->memory.unmatched_bytes[SIDE_A], 4 * MIB);
  ck_assert_int_eq(work.comparison->memory.unmatched_bytes[SIDE_B], 6 * MIB);
  assert_headline(&work,
                  "the peaks are the same, but not all allocations: first in step 2, forward "
                  "of layers.2");
  work_clear(&work);
}
END_TEST

START_TEST(an_allocation_of_another_category_is_found)
{
  GArray *b = rows();
  g_array_index(b, Row, 3).category = CATEGORY_TEMPORARY;
  Work work = compare(recording_of(rows()), recording_of(b));
  assert_first(&work, MEMORY_CHANGED, 1, 1,
               "allocates 3.00 MiB for linear of layers.1 (activation)",
               "allocates 3.00 MiB for linear of layers.1 (temporary)");
  work_clear(&work);
}
END_TEST

START_TEST(an_allocation_of_another_module_is_found)
{
  GArray *b = rows();
  g_array_index(b, Row, 1).layer = 7; /* of no name in A */
  Work work = compare(recording_of(rows()), recording_of(b));
  assert_first(&work, MEMORY_CHANGED, 0, 1, "allocates 8.00 MiB for linear of layers.1 (parameter)",
               "allocates 8.00 MiB for linear of layers.7 (parameter)");
  work_clear(&work);
}
END_TEST

/* Of B an allocation behind layers.1's in step 1, number 4, and its free before that of number 3.
 */
static GArray *
rows_with_one_more(void)
{
  GArray *array = rows();
  renumber(array, 4, 1);
  insert(array, 8, (Row) FREE(1, 4));
  insert(array, 4, (Row) NEW(1, 1, 1, TEMPORARY));
  return array;
}

START_TEST(an_allocation_that_came_in_is_found)
{
  Work work = compare(recording_of(rows()), recording_of(rows_with_one_more()));
  assert_first(&work, MEMORY_ONLY_B, 1, 2, "allocates 4.00 MiB for linear of layers.2 (activation)",
               "allocates 1.00 MiB for linear of layers.1 (temporary)");
  g_autofree char *verdict = comparison_memory_verdict(work.comparison);
  ck_assert_str_eq(verdict, "1 event of B is missing in A, the next ones are the same");
  ck_assert_uint_eq(work.comparison->memory.unmatched[SIDE_A], 0);
  ck_assert_uint_eq(work.comparison->memory.unmatched[SIDE_B], 1);
  ck_assert_int_eq(work.comparison->memory.unmatched_bytes[SIDE_B], MIB);
  work_clear(&work);
}
END_TEST

START_TEST(an_allocation_that_went_is_found)
{
  Work work = compare(recording_of(rows_with_one_more()), recording_of(rows()));
  assert_first(&work, MEMORY_ONLY_A, 1, 2, "allocates 1.00 MiB for linear of layers.1 (temporary)",
               "allocates 4.00 MiB for linear of layers.2 (activation)");
  work_clear(&work);
}
END_TEST

START_TEST(a_step_that_ends_earlier_is_found)
{
  GArray *b = rows();
  g_array_set_size(b, b->len - 1);
  Work work = compare(recording_of(rows()), recording_of(b));
  assert_first(&work, MEMORY_ONLY_A, 2, 7, "frees 2.00 MiB of linear of layers.0 (activation)",
               "does nothing more in this step");
  work_clear(&work);
}
END_TEST

/* Equal tensors, but not the same one goes first: allocations 2 and 3 are made alike for it. */
START_TEST(a_free_of_another_tensor_of_the_same_size_is_found)
{
  GArray *a = rows(), *b = rows();
  GArray *const both[] = {a, b};
  for (guint i = 0; i < G_N_ELEMENTS(both); i++)
    g_array_index(both[i], Row, 3) = g_array_index(both[i], Row, 2);
  Row swapped = g_array_index(b, Row, 8);
  g_array_index(b, Row, 8) = g_array_index(b, Row, 9);
  g_array_index(b, Row, 9) = swapped;
  Work work = compare(recording_of(a), recording_of(b));
  ck_assert_int_ne(work.comparison->memory.verdict, MEMORY_SAME);
  ck_assert_uint_eq(work.comparison->memory.position, 6);
  ck_assert_uint_eq(work.comparison->memory.unmatched[SIDE_A], 0);
  work_clear(&work);
}
END_TEST

/* The second step alone, where it is the first: no construction, no names. */
static Recording *
measured_step(void)
{
  Recording *recording = recording_of(rows());
  g_array_remove_range(recording->memory, 0, 10);
  for (guint i = 0; i < recording->memory->len; i++) {
    MemoryEvent *event = &g_array_index(recording->memory, MemoryEvent, i);
    event->step = 1;
    event->allocation -= 6;
    event->module = -1;
    event->what = -1;
    event->category = CATEGORY_OTHER;
  }
  g_array_set_size(recording->steps, 1);
  g_array_index(recording->steps, StepRecord, 0).start = 50000; /* it lasts as long as A's second */
  g_array_set_size(recording->ranges, 0);
  recording->construction_allocated = recording->construction_reserved = 0;
  recording->peak.step = 1;
  memset(recording->peak.categories, 0, sizeof recording->peak.categories);
  recording->peak.categories[CATEGORY_OTHER] = recording->peak.allocated;
  return recording;
}

START_TEST(a_measured_run_is_compared_by_its_last_step_and_by_sizes_alone)
{
  Work work = compare_as(recording_of(rows()), FALSE, measured_step(), TRUE, COMPARE_AUTO);
  const MemoryComparison *memory = &work.comparison->memory;
  ck_assert(memory->known);
  ck_assert_int_eq(memory->first[SIDE_A], 2);
  ck_assert_int_eq(memory->first[SIDE_B], 1);
  ck_assert_uint_eq(memory->events[SIDE_A], 8);
  ck_assert_int_eq(memory->verdict, MEMORY_SAME);
  ck_assert(!memory->by_category);
  ck_assert(!memory->by_module);
  ck_assert(!work.comparison->has_categories);
  ck_assert(work.comparison->same);
  work_clear(&work);

  Recording *other = measured_step();
  for (guint i = 0; i < other->memory->len; i++) {
    MemoryEvent *event = &g_array_index(other->memory, MemoryEvent, i);
    if (event->allocation == 2)
      event->block_bytes = event->requested_bytes = event->block_bytes / 4 * 6;
  }
  work = compare_as(recording_of(rows()), FALSE, other, TRUE, COMPARE_AUTO);
  assert_first(&work, MEMORY_CHANGED, 2, 2,
               "allocates 4.00 MiB for linear of layers.2 (activation)", "allocates 6.00 MiB");
  ck_assert_int_eq(work.comparison->memory.step[SIDE_B], 1);
  work_clear(&work);
}
END_TEST

/* ---- limits ---- */

static const struct {
  const char *limit;
  double peak, step; /* of B, as parts of A's */
  gboolean holds;
} limited[] = {
    {"5%", 1.05, 1.00, TRUE},
    {"5%", 1.06, 1.00, FALSE},
    {"5%", 0.95, 1.05, TRUE},
    {"5%", 0.94, 1.00, FALSE},
    {"5%", 1.00, 1.06, FALSE},
    {"0", 1.00, 1.00, TRUE},
    {"0", 1.00, 1.01, FALSE},
    {"0%", 1.01, 1.00, FALSE},
    {"1MiB", 1.01, 2.00, TRUE},
    {"1MiB", 1.02, 1, FALSE},
    {"step_time=5%", 2, 1.05, TRUE},
    {"step_time=5%", 1, 1.06, FALSE},
    {"peak_allocated=0,step_time=5%", 1, 1.05, TRUE},
    {"peak_allocated=0, step_time=5%", 1.01, 1.05, FALSE},
};

/* A's peak is 100 MiB and its step 100 us; sizes are exact in hundredths. */
static Recording *
plain_recording(double peak, double step)
{
  Recording *recording = recording_new();
  gint64 bytes = (gint64) (peak * 100 + 0.5) * MIB;
  StepRecord record = {
      .index = 1, .end = (SimTime) (step * 100 + 0.5) * 1000, .peak_allocated = bytes};
  record.peak_reserved = 500 * MIB;
  g_array_append_val(recording->steps, record);
  recording->peak.step = 1;
  recording->peak.allocated = bytes;
  recording->peak.categories[CATEGORY_ACTIVATION] = bytes;
  recording->peak.phase = recording->peak.module = -1;
  return recording;
}

START_TEST(a_limit_holds_up_to_what_it_says)
{
  g_autoptr(GError) error = NULL;
  Work work = compare(plain_recording(1, 1), plain_recording(limited[_i].peak, limited[_i].step));
  g_autoptr(GArray) limits = comparison_limits_parse(limited[_i].limit, &error);
  ck_assert_msg(limits != NULL, "%s", error ? error->message : "");
  ck_assert(comparison_limits_choose(limits, work.comparison, NULL));
  const ComparisonReport report = {
      .comparison = work.comparison, .names = {"a", "b"}, .limits = limits};
  ck_assert_int_eq(comparison_is_within(&report), limited[_i].holds);
  work_clear(&work);
}
END_TEST

static const char *const wrong_limits[][2] = {
    {"", "'' is neither a percentage such as 5% nor a size"},
    {"five", "'five' is neither"},
    {"-5%", "'-5%' is not a percentage"},
    {"%", "'%' is not a percentage"},
    {"nan%", "'nan%' is not a percentage"},
    {"1e3%", "'1e3%' is not a percentage"},
    {"peak=5%", "no figure 'peak'"},
    {"step_tine=5%", "no figure 'step_tine'; did you mean 'step_time'?"},
    {"step_time=1MiB", "step_time is no size: a percentage is needed"},
    {"step_time=", "'' is neither"},
    {"5%,step_time=5%", "'5%' is not NAME=LIMIT"},
};

START_TEST(what_is_no_limit_is_refused)
{
  g_autoptr(GError) error = NULL;
  ck_assert_ptr_null(comparison_limits_parse(wrong_limits[_i][0], &error));
  ck_assert(test_error_says(error, wrong_limits[_i][1]));
}
END_TEST

START_TEST(a_limit_of_what_is_not_known_is_refused_when_it_is_named)
{
  g_autoptr(GError) error = NULL;
  Recording *b = plain_recording(1, 1);
  g_array_set_size(b->steps, 0);
  Work work = compare(plain_recording(1, 1), b);
  g_autoptr(GArray) all = comparison_limits_parse("0", NULL);
  ck_assert(comparison_limits_choose(all, work.comparison, NULL));
  ck_assert_uint_eq(all->len, 2); /* of the peaks */
  g_autoptr(GArray) named = comparison_limits_parse("step_time=5%", NULL);
  ck_assert(!comparison_limits_choose(named, work.comparison, &error));
  ck_assert(test_error_says(error, "step_time is not known of B"));
  work_clear(&work);
}
END_TEST

/* ---- JSON ---- */

START_TEST(json_says_what_the_text_says)
{
  GArray *rows_of_b = rows();
  g_array_index(rows_of_b, Row, 12).mib = 6;
  Work work = compare(recording_of(rows()), recording_of(rows_of_b));
  const ComparisonReport report = {.comparison = work.comparison, .names = {"a", "b"}};
  g_autofree char *json = comparison_json(&report);
  static const char *const parts[] = {
      "\"format\":\t\"highwater-comparison-1\"",
      "\"same\":\tfalse",
      "\"verdict\":\t\"changed\"",
      "\"position\":\t2",
      "\"block_bytes\":\t6291456",
      "\"place\":\t\"step 2, forward of layers.2\"",
      "\"within\":\ttrue",
  };
  for (guint i = 0; i < G_N_ELEMENTS(parts); i++)
    ck_assert_msg(strstr(json, parts[i]) != NULL, "no %s", parts[i]);
  work_clear(&work);
}
END_TEST

Suite *
test_suite(void)
{
  Suite *suite = suite_create("compare");
  TCase *figures = tcase_create("figures");
  tcase_add_test(figures, a_run_is_the_same_as_itself);
  tcase_add_test(figures, a_higher_peak_is_given_in_bytes_and_relative_to_a);
  tcase_add_test(figures, a_longer_step_is_the_answer_when_memory_is_the_same);
  tcase_add_test(figures, bytes_that_move_from_one_category_to_another_are_found);
  tcase_add_test(figures, what_only_one_records_is_not_compared);
  suite_add_tcase(suite, figures);
  TCase *device = tcase_create("device");
  tcase_add_test(device, the_collective_that_is_slower_is_named);
  tcase_add_test(device, the_first_collective_of_other_bytes_is_named);
  tcase_add_test(device, gathers_in_another_order_differ);
  tcase_add_test(device, a_collective_that_is_missing_is_named);
  tcase_add_test(device, collectives_of_a_measured_run_are_told_by_their_kernels_names);
  tcase_add_test(device, names_of_collectives_mean_the_same);
  tcase_add_test(device, kernels_are_summed_by_name_and_by_block);
  suite_add_tcase(suite, device);
  TCase *memory = tcase_create("memory");
  tcase_add_test(memory, an_allocation_of_another_size_is_found);
  tcase_add_test(memory, an_allocation_of_another_category_is_found);
  tcase_add_test(memory, an_allocation_of_another_module_is_found);
  tcase_add_test(memory, an_allocation_that_came_in_is_found);
  tcase_add_test(memory, an_allocation_that_went_is_found);
  tcase_add_test(memory, a_step_that_ends_earlier_is_found);
  tcase_add_test(memory, a_free_of_another_tensor_of_the_same_size_is_found);
  tcase_add_test(memory, a_measured_run_is_compared_by_its_last_step_and_by_sizes_alone);
  suite_add_tcase(suite, memory);
  TCase *limits = tcase_create("limits");
  tcase_add_loop_test(limits, a_limit_holds_up_to_what_it_says, 0, G_N_ELEMENTS(limited));
  tcase_add_loop_test(limits, what_is_no_limit_is_refused, 0, G_N_ELEMENTS(wrong_limits));
  tcase_add_test(limits, a_limit_of_what_is_not_known_is_refused_when_it_is_named);
  tcase_add_test(limits, json_says_what_the_text_says);
  suite_add_tcase(suite, limits);
  return suite;
}
