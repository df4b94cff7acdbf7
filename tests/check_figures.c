/* check_figures.c - the tables of real runs and the figures made of them: what is in a table is
 * what the recording and the report have, to the byte, and what is in a table is drawn. */
#include "calibrate/collectives_table.h"
#include "program_run.h"
#include "report/memory_table.h"
#include "report/run_tables.h"
#include "report/stored_run.h"
#include "report/timeline_table.h"
#include "table_rows.h"
#include "tap_main.h"
#include <cjson/cJSON.h>
#include <math.h>
#include <string.h>

/* ---- a folder with real runs ---- */

static char *folder;

static char *
path_of(const char *name)
{
  return g_build_filename(folder, name, NULL);
}

static void
run_ok(const char *const *arguments)
{
  Outcome outcome = program_run(folder, arguments);
  ck_assert_msg(outcome.status <= 1, "it says: %s", outcome.err);
  ck_assert_str_eq(outcome.err, "");
  outcome_clear(&outcome);
}

static void
make_runs(void)
{
  folder = test_folder_new();
  run_ok((const char *const[]){"run", "tiny", "--plan", "fsdp2", "--output", "fsdp2", NULL});
  run_ok((const char *const[]){"run", "tiny", "--plan", "ddp", "--output", "ddp", NULL});
  run_ok((const char *const[]){"run", "tiny", "--plan", "fsdp2", "--memory-limit", "128MiB",
                               "--output", "oom", NULL});
}

static void
drop_runs(void)
{
  test_folder_remove(folder);
}

static StoredRun *
load(const char *name)
{
  g_autofree char *path = path_of(name);
  StoredRun *run = stored_run_load(path, NULL);
  ck_assert_ptr_nonnull(run);
  return run;
}

static GString *
table_of(const StoredRun *run, const char *name, const TableView *view)
{
  const RunTable *table = run_table_find(name, NULL);
  ck_assert_ptr_nonnull(table);
  GString *text = g_string_new(NULL);
  g_autoptr(GError) error = NULL;
  ck_assert_msg(run_table_write(table, run->recording, run->info, view, text, &error), "%s",
                error ? error->message : "");
  return text;
}

/* ---- tables ---- */

static gint64
peak_of_report(const char *run)
{
  g_autofree char *path = g_build_filename(folder, run, "report.json", NULL);
  g_autofree char *text = NULL;
  ck_assert(g_file_get_contents(path, &text, NULL, NULL));
  cJSON *report = cJSON_Parse(text);
  const cJSON *memory = cJSON_GetObjectItem(report, "memory");
  gint64 peak = (gint64) cJSON_GetNumberValue(cJSON_GetObjectItem(memory, "peak_allocated_bytes"));
  cJSON_Delete(report);
  return peak;
}

static const char *const run_names[] = {"fsdp2", "ddp", "oom"};

START_TEST(peaks_of_tables_are_the_reports_to_the_byte)
{
  const char *name = run_names[_i];
  gint64 peak = peak_of_report(name);
  g_autoptr(StoredRun) run = load(name);
  const TableView thinned = {.max_rows = 200};
  g_autoptr(GString) timeline = table_of(run, "timeline", &thinned);
  g_autoptr(GPtrArray) rows = rows_of_block(timeline->str, "memory");
  gint64 highest = 0;
  for (guint i = 0; i < rows->len; i++) {
    gint64 sum = 0;
    for (guint c = 0; c < CATEGORY_COUNT; c++)
      sum += size(rows, i, 3 + c);
    ck_assert_int_eq(sum, size(rows, i, 1));
    highest = MAX(highest, sum);
  }
  ck_assert_int_eq(highest, peak);
  g_autoptr(GPtrArray) marks = rows_of_block(timeline->str, "marks");
  ck_assert_str_eq(cell(marks, 1, 0), "peak");
  ck_assert_int_eq(size(marks, 1, 2), peak);
  gint64 alive = 0;
  g_autoptr(GPtrArray) tensors = rows_of_block(timeline->str, "alive");
  ck_assert_uint_eq(tensors->len, TIMELINE_ALIVE_ROWS + 1);
  for (guint i = 0; i < tensors->len; i++)
    alive += size(tensors, i, 0);
  ck_assert_int_eq(alive, peak);
}
END_TEST

START_TEST(the_timeline_of_a_step_has_that_steps_peak)
{
  g_autoptr(StoredRun) run = load("fsdp2");
  ck_assert_uint_eq(run->recording->steps->len, 3);
  for (guint i = 0; i < 3; i++) {
    const StepRecord *step = &g_array_index(run->recording->steps, StepRecord, i);
    const TableView view = {.step = step->index};
    g_autoptr(GString) timeline = table_of(run, "timeline", &view);
    g_autoptr(GPtrArray) marks = rows_of_block(timeline->str, "marks");
    ck_assert_int_eq(size(marks, 1, 2), step->peak_allocated);
  }
}
END_TEST

START_TEST(blocks_are_passed_forward_and_then_back)
{
  static const char *const forward[] = {"tok_embeddings", "layers.0", "layers.1",
                                        "layers.2",       "layers.3", "norm"};
  g_autoptr(StoredRun) run = load("fsdp2");
  const TableView view = {.step = 2};
  g_autoptr(GString) timeline = table_of(run, "timeline", &view);
  g_autoptr(GPtrArray) modules = rows_of_block(timeline->str, "modules");
  for (guint i = 0; i < G_N_ELEMENTS(forward); i++) {
    ck_assert_str_eq(cell(modules, i, 4), "forward");
    ck_assert_str_eq(cell(modules, i, 5), forward[i]);
  }
  guint back = 4;
  for (guint i = G_N_ELEMENTS(forward); i < modules->len; i++) {
    ck_assert(number(modules, i, 0) >= number(modules, i - 1, 1));
    const char *name = cell(modules, i, 5);
    if (g_str_equal(cell(modules, i, 4), "backward") && g_str_has_prefix(name, "layers."))
      ck_assert_int_eq(name[7] - '0', (int) --back);
  }
  ck_assert_uint_eq(back, 0);
}
END_TEST

START_TEST(lanes_of_streams_have_all_spans_and_their_time)
{
  static const char *const lanes[] = {"host", "compute", "copy_in", "all_gather", "reduce_scatter"};
  g_autoptr(StoredRun) run = load("fsdp2");
  const GArray *spans = run->recording->spans;
  double busy = 0;
  for (guint i = 0; i < spans->len; i++)
    busy +=
        (double) (g_array_index(spans, Span, i).end - g_array_index(spans, Span, i).start) / 1e9;
  /* As they are, and joined to a few. */
  const TableView views[] = {{.max_rows = 0}, {.max_rows = 50}};
  for (guint v = 0; v < G_N_ELEMENTS(views); v++) {
    g_autoptr(GString) streams = table_of(run, "streams", &views[v]);
    g_autoptr(GPtrArray) heads = rows_of_block(streams->str, "lanes");
    double sum = 0;
    for (guint i = 0; i < heads->len; i++)
      sum += number(heads, i, 3);
    ck_assert_double_eq_tol(sum, busy, 1e-9);
    for (guint i = 0; i < G_N_ELEMENTS(lanes); i++)
      ck_assert_str_eq(cell(heads, i, 1), lanes[i]);
    g_autoptr(GPtrArray) rows = rows_of_block(streams->str, "spans");
    gint64 count = 0;
    for (guint i = 0; i < rows->len; i++)
      count += size(rows, i, 8);
    ck_assert_int_eq(count, spans->len);
    ck_assert(v == 0 ? rows->len == spans->len : rows->len < spans->len / 2);
  }
}
END_TEST

/* The first row of a lane of that name which begins at or after a moment. */
static guint
next_row(const GPtrArray *lanes, const GPtrArray *rows, guint lane_column, const char *name,
         double after)
{
  gint64 lane = -1;
  for (guint i = 0; i < lanes->len; i++)
    if (g_str_equal(cell(lanes, i, 2), name))
      lane = size(lanes, i, 0);
  ck_assert_msg(lane >= 0, "no lane %s", name);
  for (guint i = 0; i < rows->len; i++)
    if (size(rows, i, lane_column) == lane && number(rows, i, 0) >= after)
      return i;
  ck_abort_msg("nothing of %s from %f on", name, after);
  return 0;
}

START_TEST(a_module_is_gathered_then_whole_then_resharded_and_its_gradients_follow)
{
  g_autoptr(StoredRun) run = load("fsdp2");
  const TableView view = {.module = "layers.2", .step = 2};
  g_autoptr(GString) table = table_of(run, "lifetimes", &view);
  g_autoptr(GPtrArray) lanes = rows_of_block(table->str, "lanes");
  g_autoptr(GPtrArray) spans = rows_of_block(table->str, "spans");
  g_autoptr(GPtrArray) held = rows_of_block(table->str, "held");
  g_autoptr(GPtrArray) windows = rows_of_block(table->str, "windows");
  ck_assert_uint_eq(windows->len, 2);
  ck_assert_str_eq(cell(windows, 0, 4), "forward");
  ck_assert_str_eq(cell(windows, 1, 4), "backward");
  for (guint w = 0; w < 2; w++) {
    guint gather = next_row(lanes, spans, 3, "all_gather", number(windows, w, 0));
    guint whole = next_row(lanes, held, 4, "unsharded_parameter", number(windows, w, 0));
    guint kernels = next_row(lanes, spans, 3, "kernels", number(windows, w, 0));
    /* Gathered, then whole, then computed with, then resharded, all in the window. */
    ck_assert(number(spans, gather, 0) >= number(windows, w, 0));
    ck_assert(number(held, whole, 0) >= number(spans, gather, 1));
    ck_assert(number(spans, kernels, 0) >= number(held, whole, 0));
    ck_assert(number(held, whole, 1) >= number(spans, kernels, 1) || w == 1);
    ck_assert(number(held, whole, 1) <= number(windows, w, 1));
    ck_assert_str_eq(cell(spans, gather, 4), w == 0 ? "forward" : "backward");
    if (w == 0)
      continue;
    guint gradient = next_row(lanes, held, 4, "unsharded_gradient", number(windows, w, 0));
    guint reduce = next_row(lanes, spans, 3, "reduce_scatter", number(windows, w, 0));
    guint shard = next_row(lanes, held, 4, "sharded_gradient", number(windows, w, 0));
    ck_assert(number(held, gradient, 0) >= number(held, whole, 0));
    ck_assert(number(spans, reduce, 0) >= number(held, gradient, 0));
    ck_assert(number(held, shard, 1) >= number(spans, reduce, 1));
  }
  /* 786944 elements of a block, in bf16; an eighth of them, in fp32. */
  guint whole = next_row(lanes, held, 4, "unsharded_parameter", 0);
  guint shard = next_row(lanes, held, 4, "parameter", 0);
  ck_assert_int_ge(size(held, whole, 5), 786944 * 2);
  ck_assert_int_lt(size(held, whole, 5), 786944 * 2 + 64 * 512);
  ck_assert_int_ge(size(held, shard, 5), 786944 / 8 * 4);
  ck_assert_int_lt(size(held, shard, 5), 786944 / 8 * 4 + 64 * 512);
}
END_TEST

START_TEST(memory_at_rest_and_at_the_peak_sums_to_the_reports)
{
  g_autoptr(StoredRun) run = load(run_names[_i]);
  g_autoptr(GString) table = table_of(run, "memory", &(TableView){0});
  g_autoptr(GPtrArray) rows = rows_of_block(table->str, "memory");
  ck_assert_uint_eq(rows->len, 2);
  const gint64 expected[] = {run->recording->at_rest_bytes, peak_of_report(run_names[_i])};
  for (guint i = 0; i < 2; i++) {
    gint64 sum = 0;
    for (guint c = 0; c < CATEGORY_COUNT; c++)
      sum += size(rows, i, 5 + c);
    ck_assert_int_eq(size(rows, i, 2), expected[i]);
    ck_assert_int_eq(sum, expected[i]);
  }
  ck_assert_str_eq(cell(rows, 0, 1), "at_rest");
  ck_assert_str_eq(cell(rows, 1, 1), _i == 2 ? "out_of_memory" : "peak");
}
END_TEST

START_TEST(groups_have_their_bytes_and_gathers)
{
  g_autoptr(StoredRun) run = load("fsdp2");
  g_autoptr(GString) table = table_of(run, "groups", &(TableView){0});
  g_autoptr(GPtrArray) groups = rows_of_block(table->str, "groups");
  g_autoptr(GPtrArray) gathers = rows_of_block(table->str, "gathers");
  ck_assert_uint_eq(groups->len, 6);
  gint64 parameters = 0, counted = 0;
  for (guint i = 0; i < groups->len; i++) {
    parameters += size(groups, i, 1);
    counted += size(groups, i, 4);
    ck_assert_int_eq(size(groups, i, 2), size(groups, i, 1) * 2); /* bf16 */
    ck_assert_int_eq(size(groups, i, 5), 1);
  }
  ck_assert_int_eq(parameters, run->info->parameters);
  ck_assert_int_eq(counted, gathers->len);
  for (guint i = 0; i < gathers->len; i++)
    ck_assert_double_eq_tol(number(gathers, i, 3) - number(gathers, i, 2), number(gathers, i, 5),
                            1e-9);
}
END_TEST

/* alpha 20 us and 100 GB/s of bus bandwidth; of an all-gather of 4 ranks 3/4 of the bytes count. */
START_TEST(fitted_collectives_lie_on_their_measured_points)
{
  FitSample samples[20];
  for (guint i = 0; i < G_N_ELEMENTS(samples); i++) {
    samples[i].bytes = KIB << i;
    samples[i].time_us = 20 + 0.75 * (double) samples[i].bytes / 100e3;
  }
  const MeasuredCollective about = {
      .source = "logs/ours.txt", .collective = "all_gather", .ranks = 4, .nodes = 1};
  g_autoptr(GPtrArray) collectives = calibrated_collectives_new();
  g_ptr_array_add(collectives, calibrated_collective_new(&about, samples, G_N_ELEMENTS(samples)));
  g_autoptr(GString) table = g_string_new(NULL);
  collectives_table(collectives, table);
  g_autoptr(GPtrArray) heads = rows_of_block(table->str, "tables");
  g_autoptr(GPtrArray) points = rows_of_block(table->str, "points");
  g_autoptr(GPtrArray) fits = rows_of_block(table->str, "fits");
  ck_assert_uint_eq(heads->len, 1);
  ck_assert_str_eq(cell(heads, 0, 1), "all_gather");
  ck_assert_str_eq(cell(heads, 0, 8), "ours.txt");
  ck_assert_uint_eq(points->len, G_N_ELEMENTS(samples));
  ck_assert_uint_eq(fits->len, 19 * 8 + 1);
  for (guint i = 0; i < points->len; i++) {
    ck_assert_int_eq(size(points, i, 1), samples[i].bytes);
    ck_assert_double_eq_tol(number(points, i, 3),
                            0.75e-3 * (double) samples[i].bytes / samples[i].time_us, 1e-3);
    ck_assert_int_eq(size(fits, 8 * i, 1), samples[i].bytes);
    ck_assert_double_eq_tol(number(fits, 8 * i, 2) / samples[i].time_us, 1, 0.02);
  }
}
END_TEST

/* ---- figures ---- */

/* Colours of plots/common.gnuplot, as gnuplot writes them into SVG. */
static const char *const category_fills[] = {
    "rgb( 23,  70, 111)", "rgb(111, 163, 216)", "rgb(195, 220, 242)", "rgb(184,  80,  13)",
    "rgb(245, 178, 124)", "rgb(107,  44, 145)", "rgb(195, 171, 222)", "rgb( 79, 138,  52)",
    "rgb(242, 204,  77)", "rgb(122, 122, 122)", "rgb(208, 208, 208)"};
G_STATIC_ASSERT(G_N_ELEMENTS(category_fills) == CATEGORY_COUNT);

static guint
count(const char *text, const char *part)
{
  guint n = 0;
  for (const char *at = strstr(text, part); at; at = strstr(at + 1, part))
    n++;
  return n;
}

/* Draws into figure.svg and gives its text.  Caller frees. */
static char *
draw(const char *const *arguments)
{
  const char *all[16] = {"plot"};
  guint n = 1;
  for (; arguments[n - 1]; n++)
    all[n] = arguments[n - 1];
  all[n] = "-o";
  all[n + 1] = "figure.svg";
  Outcome outcome = program_run(folder, all);
  ck_assert_msg(outcome.status == 0, "it says: %s", outcome.err);
  ck_assert_str_eq(outcome.out, "");
  outcome_clear(&outcome);
  g_autofree char *path = path_of("figure.svg");
  char *text = NULL;
  ck_assert(g_file_get_contents(path, &text, NULL, NULL));
  ck_assert(g_str_has_prefix(text, "<?xml"));
  ck_assert(g_utf8_validate(text, -1, NULL));
  return text;
}

static void
has_words(const char *figure, const char *const *words)
{
  for (; *words; words++)
    ck_assert_msg(strstr(figure, *words) != NULL, "no '%s' in it", *words);
}

/* An area (and a box in the key) for each category that the table has memory of, and none for
 * others. */
static void
has_areas(const char *figure, const GPtrArray *rows, guint first_column)
{
  for (guint c = 0; c < CATEGORY_COUNT; c++) {
    gint64 most = 0;
    for (guint i = 0; i < rows->len; i++)
      most = MAX(most, size(rows, i, first_column + c));
    g_autofree char *fill = g_strdup_printf("fill = '%s'", category_fills[c]);
    guint fills = count(figure, fill);
    ck_assert_msg(most > 0 ? fills >= 2 : fills == 0, "%u areas of %s", fills,
                  category_name((Category) c));
  }
}

START_TEST(the_timeline_has_an_area_for_each_category)
{
  if (!program_has_gnuplot())
    return;
  const char *name = run_names[_i];
  g_autofree char *figure = draw((const char *const[]){"timeline", name, NULL});
  g_autoptr(StoredRun) run = load(name);
  g_autoptr(GString) table = table_of(run, "timeline", &(TableView){0});
  g_autoptr(GPtrArray) rows = rows_of_block(table->str, "memory");
  has_areas(figure, rows, 3);
  g_autofree char *peak = g_strdup_printf("%.2f", (double) peak_of_report(name) / (double) MIB);
  has_words(figure, (const char *const[]){"At the peak", "Largest then", "reserved, at most", peak,
                                          "MiB", "forward", NULL});
  ck_assert((strstr(figure, "out of memory") != NULL) == (_i == 2));
}
END_TEST

START_TEST(a_step_of_the_timeline_names_its_blocks)
{
  if (!program_has_gnuplot())
    return;
  g_autofree char *figure = draw((const char *const[]){"timeline", "fsdp2", "--step", "2", NULL});
  has_words(figure, (const char *const[]){"step 2", "forward", "backward", "layers.3", NULL});
  ck_assert_ptr_null(strstr(figure, ">step 1<"));
}
END_TEST

START_TEST(streams_have_a_lane_each_below_memory)
{
  if (!program_has_gnuplot())
    return;
  g_autofree char *figure = draw((const char *const[]){"streams", "fsdp2", "--step=2", NULL});
  has_words(figure, (const char *const[]){">host<", ">compute<", ">copy in<", ">all-gather<",
                                          ">reduce-scatter<", "forward kernels", "backward kernels",
                                          "collectives", "peak", NULL});
  g_autofree char *ddp = draw((const char *const[]){"streams", "ddp", NULL});
  ck_assert_ptr_nonnull(strstr(ddp, ">all-reduce<"));
  ck_assert_ptr_null(strstr(ddp, ">all-gather<"));
}
END_TEST

START_TEST(lifetimes_have_a_panel_each_for_forward_and_backward)
{
  if (!program_has_gnuplot())
    return;
  g_autofree char *figure =
      draw((const char *const[]){"lifetimes", "fsdp2", "--module", "layers.2", NULL});
  has_words(figure, (const char *const[]){"layers.2 of tiny, fsdp2", ">forward<", ">backward<",
                                          "parameter, 38", ">all-gather<", "all-gather buffer, ",
                                          "unsharded parameter, 1.50 MiB", "kernels",
                                          "unsharded gradient, 1.50 MiB", "reduce-scatter buffer, ",
                                          ">reduce-scatter<", "sharded gradient, 38", NULL});
}
END_TEST

START_TEST(strategies_have_two_bars_each)
{
  if (!program_has_gnuplot())
    return;
  g_autofree char *figure = draw((const char *const[]){"strategies", "fsdp2", "ddp", "oom", NULL});
  g_autoptr(GString) table = g_string_new(NULL);
  memory_table_begin(table, "x");
  for (guint i = 0; i < G_N_ELEMENTS(run_names); i++) {
    g_autoptr(StoredRun) run = load(run_names[i]);
    memory_table_rows(run->recording, run_names[i], table);
  }
  g_autoptr(GPtrArray) rows = rows_of_block(table->str, "memory");
  ck_assert_uint_eq(rows->len, 6);
  has_areas(figure, rows, 5);
  ck_assert_uint_eq(count(figure, ">at rest<"), 3);
  ck_assert_uint_eq(count(figure, ">peak<"), 2);
  /* Two runs are fsdp2: they go by their folders. */
  has_words(figure, (const char *const[]){">fsdp2<", ">ddp<", ">oom<", "out of memory", NULL});
}
END_TEST

static const char sweep_table[] =
    "# highwater-sweep-1: net, fsdp2, h100-8\n"
    "# variant verdict pareto peak_allocated_bytes peak_reserved_bytes headroom_bytes step_s "
    "tokens_per_s_per_gpu exposed_communication_s collectives startup_s label "
    "fsdp.blocks_per_group\n"
    "1 fits 1 10737418240 21474836480 64424509440 1.5 1000 0.01 102 0.003 one 1\n"
    "2 fits 1 10737418240 32212254720 53687091200 1.25 1200 0.01 54 0.002 two 2\n"
    "3 fits_with_retries 0 10737418240 42949672960 42949672960 1.75 857.142857 0.01 30 0.001 four "
    "4\n"
    "4 does_not_fit 0 85899345920 85899345920 0 NaN NaN NaN NaN NaN eight 8\n"
    "5 refused 0 NaN NaN NaN NaN NaN NaN NaN NaN many 16\n";

static void
write_sweep(const char *text)
{
  g_autofree char *path = path_of("results.tsv");
  ck_assert(g_file_set_contents(path, text, -1, NULL));
}

START_TEST(a_sweep_marks_what_fits_and_counts_what_does_not)
{
  if (!program_has_gnuplot())
    return;
  write_sweep(sweep_table);
  g_autofree char *figure = draw((const char *const[]){"sweep", ".", NULL});
  has_words(figure,
            (const char *const[]){"net, fsdp2, h100-8", ">one<", ">two<", ">four<",
                                  "fits with retries", "1 of 5 do not fit", "1 of 5 refused",
                                  "step time (s)", "fsdp.blocks_per_group", NULL});
  ck_assert_ptr_null(strstr(figure, ">eight<"));
  ck_assert_ptr_null(strstr(figure, ">many<"));
}
END_TEST

/* gnuplot takes names that begin with "<" and "|" for commands, a shell what is between quotes. */
START_TEST(names_of_files_are_never_commands)
{
  if (!program_has_gnuplot())
    return;
  write_sweep(sweep_table);
  g_autofree char *table = path_of("results.tsv");
  g_autofree char *copy = path_of("< touch made; `touch made` $(touch made)");
  g_autofree char *made = path_of("made");
  g_autofree char *text = NULL;
  ck_assert(g_file_get_contents(table, &text, NULL, NULL));
  ck_assert(g_file_set_contents(copy, text, -1, NULL));
  run_ok((const char *const[]){"plot", "sweep", "< touch made; `touch made` $(touch made)", "-o",
                               "| touch made; x.png", NULL});
  g_autofree char *figure = path_of("| touch made; x.png");
  ck_assert(g_file_test(figure, G_FILE_TEST_IS_REGULAR));
  ck_assert(!g_file_test(made, G_FILE_TEST_EXISTS));
}
END_TEST

START_TEST(groups_show_memory_time_and_collectives_of_each_value)
{
  if (!program_has_gnuplot())
    return;
  write_sweep(sweep_table);
  g_autofree char *figure = draw((const char *const[]){"groups", "results.tsv", NULL});
  has_words(figure, (const char *const[]){"fsdp.blocks_per_group", ">20.0<", ">30.0<", ">40.0<",
                                          ">1.50<", ">1.25<", ">1.75<", ">102<", ">54<", ">30<",
                                          ">8<", "2 did not fit or were refused", NULL});
}
END_TEST

START_TEST(a_sweep_of_nothing_that_fits_is_drawn)
{
  if (!program_has_gnuplot())
    return;
  g_autofree char *text = g_strdup(sweep_table);
  char *first = strstr(text, "1 fits 1");
  memmove(first, strstr(text, "4 does_not_fit"), strlen(strstr(text, "4 does_not_fit")) + 1);
  write_sweep(text);
  g_autofree char *sweep = draw((const char *const[]){"sweep", ".", NULL});
  has_words(sweep, (const char *const[]){"no variant fits", "1 of 2 do not fit", NULL});
  g_autofree char *groups = draw((const char *const[]){"groups", ".", NULL});
  has_words(groups, (const char *const[]){"2 did not fit or were refused", NULL});
}
END_TEST

START_TEST(collectives_have_points_and_a_line_for_each_table)
{
  if (!program_has_gnuplot())
    return;
  static const char text[] = "# highwater-collectives-1: measured collectives\n\n\n"
                             "# tables\n# x\n0 all_gather 8 1 2 ab 0.01 0.02 a\n"
                             "1 all_reduce 16 2 2 ab 0.03 0.04 b\n\n\n"
                             "# points\n# x\n0 1024 20 1\n0 1048576 40 10\n1 1024 30 1\n"
                             "1 1048576 60 10\n\n\n"
                             "# fits\n# x\n0 1024 20 1\n0 1048576 40 10\n1 1024 30 1\n"
                             "1 1048576 60 10\n";
  g_autofree char *path = path_of("collectives.tsv");
  ck_assert(g_file_set_contents(path, text, -1, NULL));
  g_autofree char *figure = draw((const char *const[]){"collectives", "collectives.tsv", NULL});
  has_words(figure, (const char *const[]){"measured collectives", ">all-gather<", ">all-reduce<",
                                          "8 ranks, ±1.0 %", "16 ranks, 2 nodes, ±3.0 %", NULL});
  /* Points and lines of two tables in two panels. */
  ck_assert_uint_eq(count(figure, "<g id=\"gnuplot_plot_"), 8);
}
END_TEST

/* Every figure, how it is asked for. */
static const struct {
  const char *arguments[5];
} kinds[] = {
    {{"timeline", "fsdp2"}},
    {{"streams", "ddp"}},
    {{"lifetimes", "fsdp2", "--module=layers.0"}},
    {{"strategies", "ddp", "fsdp2"}},
    {{"sweep", "."}},
    {{"groups", "."}},
};

/* `plot` with the arguments of a kind; gives how many there are. */
static guint
begin_plot(int kind, const char **arguments)
{
  write_sweep(sweep_table);
  guint n = 0;
  arguments[n++] = "plot";
  for (guint i = 0; kinds[kind].arguments[i]; i++)
    arguments[n++] = kinds[kind].arguments[i];
  return n;
}

static guint32
big_endian(const guchar *bytes)
{
  return (guint32) bytes[0] << 24 | (guint32) bytes[1] << 16 | (guint32) bytes[2] << 8 | bytes[3];
}

START_TEST(figures_are_as_large_as_asked_for)
{
  if (!program_has_gnuplot())
    return;
  const char *arguments[12] = {NULL};
  guint n = begin_plot(_i, arguments);
  arguments[n++] = "--size=600x360";
  arguments[n++] = "-o";
  arguments[n] = "figure.png";
  run_ok(arguments);
  g_autofree char *path = path_of("figure.png");
  g_autofree char *bytes = NULL;
  gsize length;
  ck_assert(g_file_get_contents(path, &bytes, &length, NULL));
  ck_assert_uint_gt(length, 5000);
  ck_assert_uint_eq(big_endian((const guchar *) bytes + 16), 600);
  ck_assert_uint_eq(big_endian((const guchar *) bytes + 20), 360);
}
END_TEST

START_TEST(figures_are_drawn_in_text)
{
  if (!program_has_gnuplot())
    return;
  const char *arguments[12] = {NULL};
  guint n = begin_plot(_i, arguments);
  arguments[n] = "--terminal=dumb";
  Outcome outcome = program_run(folder, arguments);
  ck_assert_msg(outcome.status == 0, "it says: %s", outcome.err);
  ck_assert_uint_ge(count(outcome.out, "\n"), 20);
  outcome_clear(&outcome);
}
END_TEST

/* A measured run has neither phases nor steps, its allocations no module and one category. */
static void
write_measured(gboolean with_spans)
{
  g_autoptr(StoredRun) run = load("fsdp2");
  Recording *recording = run->recording;
  g_array_set_size(recording->ranges, 0);
  g_array_set_size(recording->range_events, 0);
  g_array_set_size(recording->steps, 0);
  g_array_set_size(recording->spans, with_spans ? recording->spans->len : 0);
  for (guint i = 0; i < recording->spans->len; i++) {
    Span *span = &g_array_index(recording->spans, Span, i);
    span->phase = 0;
    span->issued = 0;
    span->module = -1;
  }
  for (guint i = 0; i < recording->memory->len; i++) {
    MemoryEvent *event = &g_array_index(recording->memory, MemoryEvent, i);
    event->category = CATEGORY_OTHER;
    event->module = event->what = -1;
    event->step = 0;
  }
  g_autofree char *path = path_of("measured.json");
  ck_assert(recording_save(recording, path, NULL));
}

START_TEST(what_a_measured_run_lacks_is_left_out)
{
  if (!program_has_gnuplot())
    return;
  write_measured(TRUE);
  g_autofree char *timeline = draw((const char *const[]){"timeline", "measured.json", NULL});
  has_words(timeline, (const char *const[]){"At the peak", ">other<", NULL});
  ck_assert_ptr_null(strstr(timeline, ">forward<"));
  g_autofree char *streams = draw((const char *const[]){"streams", "measured.json", NULL});
  has_words(streams, (const char *const[]){">compute<", ">all-gather<", "other kernels", NULL});
  g_autofree char *strategies = draw((const char *const[]){"strategies", "measured.json", NULL});
  ck_assert_ptr_nonnull(strstr(strategies, ">other<"));
}
END_TEST

START_TEST(what_a_measured_run_cannot_show_is_refused_in_one_line)
{
  static const struct {
    const char *arguments[4];
    const char *message;
  } refusals[] = {
      {{"streams", "measured.json"}, "measured.json: the recording has no spans of streams"},
      {{"lifetimes", "measured.json", "--module=layers.0"}, "no memory of a module or group"},
  };
  write_measured(FALSE);
  for (guint i = 0; i < G_N_ELEMENTS(refusals); i++) {
    const char *all[10] = {"plot", "-o", "x.png"};
    for (guint n = 0; n < 4; n++)
      all[3 + n] = refusals[i].arguments[n];
    Outcome outcome = program_run(folder, all);
    ck_assert_int_eq(outcome.status, 2);
    ck_assert_msg(strstr(outcome.err, refusals[i].message) != NULL, "it says: %s", outcome.err);
    ck_assert_ptr_eq(strchr(outcome.err, '\n'), outcome.err + strlen(outcome.err) - 1);
    outcome_clear(&outcome);
  }
}
END_TEST

Suite *
test_suite(void)
{
  Suite *suite = suite_create("figures");
  TCase *tables = tcase_create("tables");
  tcase_add_unchecked_fixture(tables, make_runs, drop_runs);
  tcase_add_loop_test(tables, peaks_of_tables_are_the_reports_to_the_byte, 0,
                      G_N_ELEMENTS(run_names));
  tcase_add_test(tables, the_timeline_of_a_step_has_that_steps_peak);
  tcase_add_test(tables, blocks_are_passed_forward_and_then_back);
  tcase_add_test(tables, lanes_of_streams_have_all_spans_and_their_time);
  tcase_add_test(tables, a_module_is_gathered_then_whole_then_resharded_and_its_gradients_follow);
  tcase_add_loop_test(tables, memory_at_rest_and_at_the_peak_sums_to_the_reports, 0,
                      G_N_ELEMENTS(run_names));
  tcase_add_test(tables, groups_have_their_bytes_and_gathers);
  tcase_add_test(tables, fitted_collectives_lie_on_their_measured_points);
  suite_add_tcase(suite, tables);
  TCase *figures = tcase_create("figures");
  tcase_set_timeout(figures, 60);
  tcase_add_unchecked_fixture(figures, make_runs, drop_runs);
  tcase_add_loop_test(figures, the_timeline_has_an_area_for_each_category, 0,
                      G_N_ELEMENTS(run_names));
  tcase_add_test(figures, a_step_of_the_timeline_names_its_blocks);
  tcase_add_test(figures, streams_have_a_lane_each_below_memory);
  tcase_add_test(figures, lifetimes_have_a_panel_each_for_forward_and_backward);
  tcase_add_test(figures, strategies_have_two_bars_each);
  tcase_add_test(figures, a_sweep_marks_what_fits_and_counts_what_does_not);
  tcase_add_test(figures, names_of_files_are_never_commands);
  tcase_add_test(figures, groups_show_memory_time_and_collectives_of_each_value);
  tcase_add_test(figures, a_sweep_of_nothing_that_fits_is_drawn);
  tcase_add_test(figures, collectives_have_points_and_a_line_for_each_table);
  tcase_add_loop_test(figures, figures_are_as_large_as_asked_for, 0, G_N_ELEMENTS(kinds));
  tcase_add_loop_test(figures, figures_are_drawn_in_text, 0, G_N_ELEMENTS(kinds));
  tcase_add_test(figures, what_a_measured_run_lacks_is_left_out);
  tcase_add_test(figures, what_a_measured_run_cannot_show_is_refused_in_one_line);
  suite_add_tcase(suite, figures);
  return suite;
}
