/* check_reports.c - the model of a report (times and exposure worked out on paper, groups,
 * verdicts), its JSON and its text, and the timeline table.  Not pinned: the text's exact layout
 * beyond tests/data/report*.txt. */
#include "report/gathers.h"
#include "report/interval_set.h"
#include "report/run_tables.h"
#include "report/summary.h"
#include "report/summary_json.h"
#include "report/summary_text.h"
#include "report/timeline_table.h"
#include "report_fixture.h"
#include "table_rows.h"
#include "tap_main.h"
#include <cjson/cJSON.h>
#include <string.h>

#define US(microseconds) ((SimTime) (microseconds) *1000)

/* A report of the fixture, and what it borrows. */
typedef struct {
  Recording *recording;
  RunInfo *info;
  ReportModel *model;
} Report;

static Report
report_of(Recording *recording, RunInfo *info)
{
  return (Report){recording, info, report_model_new(recording, info)};
}

static Report
report_new(void)
{
  return report_of(fixture_recording(), fixture_info());
}

static void
report_clear(Report *report)
{
  report_model_free(report->model);
  run_info_free(report->info);
  recording_free(report->recording);
}

/* ---- sets of moments ---- */

START_TEST(intervals_merge_when_they_touch_in_whatever_order_they_come)
{
  static const SimTime orders[][3][2] = {
      {{0, 10}, {10, 20}, {30, 40}},
      {{30, 40}, {10, 20}, {0, 10}},
      {{10, 20}, {30, 40}, {0, 10}},
      {{0, 15}, {5, 20}, {30, 40}},
  };
  g_autoptr(IntervalSet) set = interval_set_new();
  for (int i = 0; i < 3; i++)
    interval_set_add(set, orders[_i][i][0], orders[_i][i][1]);
  ck_assert_int_eq(interval_set_length(set), 30);
  interval_set_add(set, 15, 35);
  ck_assert_int_eq(interval_set_length(set), 40);
  interval_set_add(set, 50, 50);
  ck_assert_int_eq(interval_set_length(set), 40);
}
END_TEST

START_TEST(an_overlap_is_what_two_sets_share)
{
  g_autoptr(IntervalSet) a = interval_set_new();
  g_autoptr(IntervalSet) b = interval_set_new();
  interval_set_add(a, 0, 10);
  interval_set_add(a, 20, 30);
  interval_set_add(a, 40, 50);
  interval_set_add(b, 5, 25);
  interval_set_add(b, 30, 45);
  ck_assert_int_eq(interval_set_overlap(a, b), 5 + 5 + 5);
  ck_assert_int_eq(interval_set_overlap(b, a), 15);
}
END_TEST

/* As many random sets as moments are compared with one flag a moment. */
START_TEST(sets_agree_with_one_flag_a_moment)
{
  enum { MOMENTS = 64 };
  g_autoptr(GRand) random = g_rand_new_with_seed(7);
  for (int round = 0; round < 500; round++) {
    gboolean flags[2][MOMENTS] = {{0}};
    IntervalSet *sets[2];
    for (int s = 0; s < 2; s++) {
      sets[s] = interval_set_new();
      for (int n = g_rand_int_range(random, 0, 12); n > 0; n--) {
        int start = g_rand_int_range(random, 0, MOMENTS);
        int end = g_rand_int_range(random, start, MOMENTS);
        interval_set_add(sets[s], start, end);
        for (int i = start; i < end; i++)
          flags[s][i] = TRUE;
      }
    }
    int length = 0, both = 0;
    for (int i = 0; i < MOMENTS; i++) {
      length += flags[0][i];
      both += flags[0][i] && flags[1][i];
    }
    ck_assert_int_eq(interval_set_length(sets[0]), length);
    ck_assert_int_eq(interval_set_overlap(sets[0], sets[1]), both);
    interval_set_free(sets[0]);
    interval_set_free(sets[1]);
  }
}
END_TEST

/* ---- the model ---- */

START_TEST(a_step_lasts_from_the_end_of_the_one_before)
{
  Report report = report_new();
  const StepSummary *first = &g_array_index(report.model->steps, StepSummary, 0);
  const StepSummary *last = report_model_last_step(report.model);
  ck_assert_int_eq(first->start, US(1000));
  ck_assert_int_eq(first->duration, US(1000));
  ck_assert_int_eq(last->index, 2);
  ck_assert_int_eq(last->start, US(2000));
  ck_assert_int_eq(last->duration, US(1000));
  ck_assert_uint_eq(last->phases->len, 4);
  report_clear(&report);
}
END_TEST

START_TEST(the_steps_time_is_compute_and_exposed_communication_and_the_host)
{
  Report report = report_new();
  const TimeSummary *time = &report.model->time;
  ck_assert(time->known);
  ck_assert_int_eq(time->step, US(1000));
  ck_assert_int_eq(time->compute, US(600));
  ck_assert_int_eq(time->communication, US(470));
  ck_assert_int_eq(time->exposed, US(300));
  ck_assert_int_eq(time->host_bound, US(100));
  ck_assert_int_eq(time->bound, BOUND_COMPUTE);
  ck_assert_double_eq_tol(time->tokens_per_s, 8192 / 1e-3, 1e-3);
  ck_assert_double_eq_tol(time->mfu, 0.3, 1e-12);
  ck_assert_double_eq_tol(time->hfu, 0.4, 1e-12);
  report_clear(&report);
}
END_TEST

START_TEST(the_bound_is_the_largest_share)
{
  /* With all kernels shortened to 10 us, compute is busy for 50 us of the step: A 2000-2010, B
   * 2150-2160, C 2300-2310, D 2600-2610, E 2700-2710.  Of 470 us of collectives, 2600-2610 lies
   * behind compute: 460 are exposed, 490 the host's. Without the step's last 100 us it is
   * communication. */
  Recording *recording = fixture_recording();
  for (guint i = 0; i < recording->spans->len; i++) {
    Span *span = &g_array_index(recording->spans, Span, i);
    if (span->kind != SPAN_COLLECTIVE)
      span->end = span->start + US(10);
  }
  RunInfo *info = fixture_info();
  ReportModel *model = report_model_new(recording, info);
  ck_assert_int_eq(model->time.exposed, US(460));
  ck_assert_int_eq(model->time.host_bound, US(490));
  ck_assert_int_eq(model->time.bound, BOUND_HOST);
  report_model_free(model);
  g_array_index(recording->steps, StepRecord, 1).end = US(2900);
  model = report_model_new(recording, info);
  ck_assert_int_eq(model->time.bound, BOUND_COMMUNICATION);
  report_model_free(model);
  run_info_free(info);
  recording_free(recording);
}
END_TEST

START_TEST(communication_is_counted_by_communicator_and_collective)
{
  static const struct {
    const char *communicator, *collective;
    gint64 count, bytes, time, exposed; /* MiB, us */
  } expected[] = {
      {"shard", "all_gather", 3, 3, 50 + 100 + 150, 0 + 50 + 50},
      {"shard", "reduce_scatter", 2, 4, 120 + 100, 100 + 100},
      {"replicate", "all_reduce", 1, 3, 100, 100},
  };
  Report report = report_new();
  ck_assert_uint_eq(report.model->communication->len, G_N_ELEMENTS(expected));
  for (guint i = 0; i < G_N_ELEMENTS(expected); i++) {
    const CommunicationSummary *summary =
        &g_array_index(report.model->communication, CommunicationSummary, i);
    ck_assert_str_eq(summary->communicator, expected[i].communicator);
    ck_assert_str_eq(summary->collective, expected[i].collective);
    ck_assert_int_eq(summary->count, expected[i].count);
    ck_assert_int_eq(summary->bytes, expected[i].bytes * MIB);
    ck_assert_int_eq(summary->time, US(expected[i].time));
    ck_assert_int_eq(summary->exposed, US(expected[i].exposed));
  }
  const CommunicationSummary *first =
      &g_array_index(report.model->communication, CommunicationSummary, 0);
  ck_assert_int_eq(first->info->ranks, 4);
  report_clear(&report);
}
END_TEST

static void
assert_pass(const GroupPass *pass, gint64 compute, gint64 gather, gint64 needed, gint64 ready)
{
  ck_assert_int_eq(pass->compute, US(compute));
  ck_assert_int_eq(pass->gathered, gather > 0);
  ck_assert_int_eq(pass->gather, US(gather));
  if (gather > 0) {
    ck_assert_int_eq(pass->needed, US(needed));
    ck_assert_int_eq(pass->ready, US(ready));
  }
}

static void
assert_gather(const Gather *gather, guint group, int begun, int needed, int ready)
{
  ck_assert_uint_eq(gather->group, group);
  ck_assert(gather->is_used);
  ck_assert_int_eq(gather->begun, US(begun));
  ck_assert_int_eq(gather->needed, US(needed));
  ck_assert_int_eq(gather->ready, US(ready));
  ck_assert_int_eq(gather->waited, US(MAX(ready - needed, 0)));
}

/* Only step 2 gathers: what A, B and D wait for. */
START_TEST(each_gather_knows_when_it_was_needed_and_ready)
{
  g_autoptr(Recording) recording = fixture_recording();
  g_autoptr(RunInfo) info = fixture_info();
  g_autoptr(GArray) gathers = gathers_find(recording, info, 0);
  g_autoptr(GArray) of_first = gathers_find(recording, info, 1);
  ck_assert_uint_eq(of_first->len, 0);
  ck_assert_uint_eq(gathers->len, 3);
  assert_gather(&g_array_index(gathers, Gather, 0), 0, 1950, 2000, 2000);
  assert_gather(&g_array_index(gathers, Gather, 1), 1, 2050, 2100, 2150);
  assert_gather(&g_array_index(gathers, Gather, 2), 0, 2400, 2500, 2550);
  ck_assert_str_eq(g_array_index(gathers, Gather, 0).phase, "forward");
  ck_assert_str_eq(g_array_index(gathers, Gather, 2).phase, "backward");
}
END_TEST

/* The host had not come to the kernel yet: until then the stream did not wait for the gather.  And
 * what is gathered again before its time is not used by kernels of before. */
START_TEST(a_gather_is_waited_for_from_when_the_kernel_was_issued)
{
  g_autoptr(Recording) recording = fixture_recording();
  g_autoptr(RunInfo) info = fixture_info();
  g_array_index(recording->spans, Span, 4).issued = US(2130); /* B */
  g_array_index(recording->spans, Span, 6).issued = US(2550); /* layers.0 again */
  g_autoptr(GArray) gathers = gathers_find(recording, info, 2);
  assert_gather(&g_array_index(gathers, Gather, 1), 1, 2050, 2130, 2150);
  ck_assert(!g_array_index(gathers, Gather, 2).is_used);
}
END_TEST

START_TEST(the_table_of_gathers_has_a_row_for_each)
{
  g_autoptr(Recording) recording = fixture_recording();
  g_autoptr(RunInfo) info = fixture_info();
  g_autoptr(GString) out = g_string_new(NULL);
  const RunTable *table = run_table_find("gathers", NULL);
  ck_assert(run_table_write(table, recording, info, &(TableView){0}, out, NULL));
  ck_assert_ptr_nonnull(strstr(out->str, "\n2 layers.1 forward 0 NaN 0.002050000 0.002150000 "
                                         "0.002100000 0.000100000 0.000050000 1048576\n"));
}
END_TEST

START_TEST(groups_know_what_they_gather_and_compute)
{
  Report report = report_new();
  const GroupSummary *groups = &g_array_index(report.model->groups, GroupSummary, 0);
  ck_assert_uint_eq(report.model->groups->len, 3);
  ck_assert_int_eq(groups[0].all_gathers, 2);
  ck_assert_int_eq(groups[0].reduce_scatters, 1);
  assert_pass(&groups[0].forward, 100, 50, 2000, 2000);
  assert_pass(&groups[0].backward, 100, 150, 2500, 2550);
  ck_assert_int_eq(groups[1].all_gathers, 1);
  ck_assert_int_eq(groups[1].reduce_scatters, 1);
  assert_pass(&groups[1].forward, 150, 100, 2100, 2150);
  assert_pass(&groups[1].backward, 200, 0, 0, 0);
  ck_assert_int_eq(groups[2].all_gathers, 0);
  report_clear(&report);
}
END_TEST

START_TEST(the_longest_module_path_decides_the_group)
{
  RunInfo *info = run_info_new();
  run_info_add_group(info, "root", (const char *[]){"", NULL});
  run_info_add_group(info, "block", (const char *[]){"layers.1", NULL});
  run_info_add_group(info, "inner", (const char *[]){"layers.1.w", NULL});
  run_info_add_group(info, "other", (const char *[]){"layers.10", "layers.0", NULL});
  Report report = report_of(fixture_recording(), info);
  /* Kernels of layers.0.w are the last group's, of layers.1.w "inner"'s; layers.10 is no prefix of
   * either, and layers.1 only a shorter one. */
  const GroupSummary *groups = &g_array_index(report.model->groups, GroupSummary, 0);
  ck_assert_int_eq(groups[0].forward.compute, 0);
  ck_assert_int_eq(groups[1].forward.compute, 0);
  ck_assert_int_eq(groups[2].forward.compute, US(150));
  ck_assert_int_eq(groups[3].forward.compute, US(100));
  /* Collectives name layers.0 and layers.1. */
  ck_assert_int_eq(groups[1].reduce_scatters, 1);
  ck_assert_int_eq(groups[3].all_gathers, 2);
  report_clear(&report);
}
END_TEST

START_TEST(without_phases_of_spans_the_hosts_phase_decides)
{
  Recording *recording = fixture_recording();
  for (guint i = 0; i < recording->spans->len; i++)
    g_array_index(recording->spans, Span, i).phase = 0;
  Report report = report_of(recording, fixture_info());
  /* The host was in forward until 2050, in backward until 2200: kernel A began in the first, B in
   * the second, the others in neither; gathers at 1950 and 2050. */
  const GroupSummary *groups = &g_array_index(report.model->groups, GroupSummary, 0);
  assert_pass(&groups[0].forward, 100, 50, 2000, 2000);
  assert_pass(&groups[1].backward, 150, 100, 2100, 2150);
  report_clear(&report);
}
END_TEST

START_TEST(later_micro_batches_do_not_count_for_a_groups_pass)
{
  Recording *recording = fixture_recording();
  g_array_index(recording->ranges, Range, 5).micro_batch = 1; /* backward of step 2 */
  Report report = report_of(recording, fixture_info());
  const GroupSummary *groups = &g_array_index(report.model->groups, GroupSummary, 0);
  assert_pass(&groups[0].forward, 100, 50, 2000, 2000);
  assert_pass(&groups[0].backward, 0, 0, 0, 0);
  ck_assert_int_eq(groups[0].all_gathers, 2);
  report_clear(&report);
}
END_TEST

START_TEST(retries_make_it_slow_and_a_rank_without_room_makes_it_not_fit)
{
  Report report = report_new();
  ck_assert_int_eq(report.model->verdict, VERDICT_FITS);
  ck_assert_int_eq(report.model->headroom, 100 * MIB);
  report_clear(&report);

  Recording *recording = fixture_recording();
  g_array_index(recording->steps, StepRecord, 1).allocator_retries = 2;
  report = report_of(recording, fixture_info());
  ck_assert_int_eq(report.model->verdict, VERDICT_FITS_WITH_RETRIES);
  ck_assert_int_eq(report.model->allocator_retries, 2);
  report_clear(&report);

  RunInfo *info = fixture_info();
  info->rank_without_room = 5;
  report = report_of(fixture_recording(), info);
  ck_assert_int_eq(report.model->verdict, VERDICT_DOES_NOT_FIT);
  ck_assert_uint_eq(report.model->warnings->len, 1);
  report_clear(&report);
}
END_TEST

START_TEST(the_step_that_runs_out_of_memory_has_no_time)
{
  Recording *recording = fixture_recording();
  fixture_run_out_of_memory(recording);
  Report report = report_of(recording, fixture_info());
  ck_assert_int_eq(report.model->verdict, VERDICT_DOES_NOT_FIT);
  ck_assert_int_eq(report_model_last_step(report.model)->index, 1);
  ck_assert_int_eq(report.model->time.step, US(1000));
  ck_assert_int_eq(report.model->time.compute, US(700));
  report_clear(&report);

  recording = fixture_recording();
  fixture_run_out_of_memory(recording);
  recording->out_of_memory.step = 1;
  g_array_set_size(recording->steps, 1);
  report = report_of(recording, fixture_info());
  ck_assert_ptr_null(report_model_last_step(report.model));
  ck_assert(!report.model->time.known);
  report_clear(&report);
}
END_TEST

START_TEST(modules_at_the_peak_are_summed_by_block)
{
  static const struct {
    const char *module;
    gint64 mib;
  } expected[] = {
      {"output", 700 + 100},
      {"layers.1", 300 + 150 + 60 + 4},
      {"layers.0", 150 + 50 + 10 + 6 + 5},
      {"", 1},
  };
  Report report = report_new();
  ck_assert_uint_eq(report.model->modules_at_peak->len, G_N_ELEMENTS(expected));
  for (guint i = 0; i < G_N_ELEMENTS(expected); i++) {
    const ModuleBytes *entry = &g_array_index(report.model->modules_at_peak, ModuleBytes, i);
    ck_assert_str_eq(entry->module, expected[i].module);
    ck_assert_int_eq(entry->bytes, expected[i].mib * MIB);
  }
  report_clear(&report);
}
END_TEST

START_TEST(what_is_retained_is_named_with_who_holds_it)
{
  RunInfo *info = fixture_info();
  run_info_add_retained(info, "layers.1", "a clone, until end_of_backward", 416 * MIB);
  Report report = report_of(fixture_recording(), info);
  ck_assert_uint_eq(report.model->warnings->len, 1);
  const char *warning = g_ptr_array_index(report.model->warnings, 0);
  ck_assert_ptr_nonnull(strstr(warning, "layers.1"));
  ck_assert_ptr_nonnull(strstr(warning, "a clone, until end_of_backward"));
  ck_assert_ptr_nonnull(strstr(warning, "416 MiB"));
  report_clear(&report);
}
END_TEST

START_TEST(without_spans_of_the_step_its_time_is_not_split)
{
  Recording *recording = fixture_recording();
  g_array_set_size(recording->spans, 1); /* of step 1 */
  Report report = report_of(recording, fixture_info());
  ck_assert(report.model->time.known);
  ck_assert(!report.model->time.is_split);
  ck_assert_int_eq(report.model->time.host_bound, 0);
  g_autofree char *json = summary_json(report.model);
  ck_assert_ptr_nonnull(strstr(json, "\"host_bound_s\":\tnull"));
  g_autoptr(GString) text = g_string_new(NULL);
  summary_text(report.model, &(TextStyle){.verbose = FALSE}, text);
  ck_assert_ptr_null(strstr(text->str, "bound by"));
  report_clear(&report);
}
END_TEST

/* ---- JSON ---- */

/* The keys that programs rely on, by object: design of the report, format 1. */
static const struct {
  const char *object; /* path; [] is an array's first element */
  const char *keys;
} required_keys[] = {
    {"", "format model fits allocator_retries headroom_bytes equivalent_zero_stage "
         "elements_sent_per_parameter elements_sent_per_parameter_by_paper out_of_memory "
         "memory steps repeated_steps time "
         "communication host_copies groups failure warnings"},
    {"model", "name parameters trainable_parameters"},
    {"out_of_memory", "step phase module requested_bytes segment_bytes what message"},
    {"memory", "capacity_bytes at_rest_bytes peak_allocated_bytes peak_reserved_bytes "
               "outside_allocator_bytes host_pinned_bytes host_pageable_bytes peak"},
    {"memory/peak", "step phase module time_s categories largest"},
    {"memory/peak/categories",
     "parameter optimizer_state sharded_gradient unsharded_parameter unsharded_gradient "
     "all_gather_buffer reduce_scatter_buffer activation temporary workspace other"},
    {"memory/peak/largest[]", "bytes category module what"},
    {"steps[]", "index time_s peak_allocated_bytes peak_reserved_bytes allocator_retries phases"},
    {"steps[]/phases[]",
     "name micro_batch start_s end_s peak_allocated_bytes peak_reserved_bytes end_allocated_bytes"},
    {"time", "step_s tokens_per_s_per_gpu mfu hfu compute_s communication_s "
             "exposed_communication_s host_bound_s"},
    {"communication[]", "communicator collective count bytes time_s exposed_s"},
    {"host_copies", "count bytes time_s"},
    {"groups[]", "name modules parameters unsharded_bytes shard_bytes all_gathers reduce_scatters "
                 "forward backward"},
    {"groups[]/forward", "compute_s gather_s gather_needed_s gather_ready_s"},
    {"groups[]/backward", "compute_s gather_s gather_needed_s gather_ready_s"},
};

/* The value at "memory/peak/largest[]". */
static const cJSON *
at(const cJSON *root, const char *path)
{
  g_auto(GStrv) parts = g_strsplit(path, "/", -1);
  for (guint i = 0; root && parts[i] && *path; i++) {
    gsize length = strlen(parts[i]);
    gboolean is_array = g_str_has_suffix(parts[i], "[]");
    if (is_array)
      parts[i][length - 2] = '\0';
    root = cJSON_GetObjectItemCaseSensitive(root, parts[i]);
    if (is_array && root)
      root = cJSON_GetArrayItem(root, 0);
  }
  ck_assert_msg(root != NULL, "nothing at %s", path);
  return root;
}

static double
number_at(const cJSON *root, const char *path)
{
  const cJSON *value = at(root, path);
  ck_assert_msg(cJSON_IsNumber(value), "%s is no number", path);
  return value->valuedouble;
}

static const char *
text_at(const cJSON *root, const char *path)
{
  const cJSON *value = at(root, path);
  ck_assert_msg(cJSON_IsString(value), "%s is no text", path);
  return value->valuestring;
}

/* The report's document; after parsing, as others see it.  Caller deletes. */
static cJSON *
parsed(const Report *report)
{
  g_autofree char *text = summary_json(report->model);
  ck_assert(g_str_has_suffix(text, "}\n"));
  cJSON *root = cJSON_Parse(text);
  ck_assert_ptr_nonnull(root);
  return root;
}

START_TEST(json_has_every_key)
{
  Recording *recording = fixture_recording();
  fixture_run_out_of_memory(recording);
  recording->out_of_memory.step = 3; /* step 2 and its communication are complete */
  Report report = report_of(recording, fixture_info());
  cJSON *root = parsed(&report);
  for (guint i = 0; i < G_N_ELEMENTS(required_keys); i++) {
    const cJSON *object = at(root, required_keys[i].object);
    g_auto(GStrv) keys = g_strsplit(required_keys[i].keys, " ", -1);
    for (guint k = 0; keys[k]; k++)
      ck_assert_msg(cJSON_HasObjectItem(object, keys[k]), "'%s' lacks '%s'",
                    required_keys[i].object, keys[k]);
  }
  ck_assert_int_eq(cJSON_GetArraySize(at(root, "memory/peak/categories")), CATEGORY_COUNT);
  cJSON_Delete(root);
  report_clear(&report);
}
END_TEST

START_TEST(json_has_the_values_worked_out_by_hand)
{
  static const struct {
    const char *path;
    double value;
  } expected[] = {
      {"model/trainable_parameters", 1000},
      {"allocator_retries", 0},
      {"headroom_bytes", 100.0 * MIB},
      {"equivalent_zero_stage", 3},
      {"memory/capacity_bytes", 2000.0 * MIB},
      {"memory/at_rest_bytes", 400.0 * MIB},
      {"memory/peak_allocated_bytes", 1536.0 * MIB},
      {"memory/peak_reserved_bytes", 1900.0 * MIB},
      {"memory/outside_allocator_bytes", 48.0 * MIB},
      {"memory/peak/step", 2},
      {"memory/peak/time_s", 2100e-6},
      {"memory/peak/categories/activation", 1000.0 * MIB},
      {"memory/peak/categories/parameter", 400.0 * MIB},
      {"memory/peak/categories/workspace", 0},
      {"memory/peak/largest[]/bytes", 700.0 * MIB},
      {"steps[]/index", 1},
      {"steps[]/time_s", 1e-3},
      {"steps[]/peak_allocated_bytes", 1200.0 * MIB},
      {"steps[]/phases[]/start_s", 1000e-6},
      {"steps[]/phases[]/end_s", 1010e-6},
      {"steps[]/phases[]/end_allocated_bytes", 400.0 * MIB},
      {"time/step_s", 1e-3},
      {"time/compute_s", 600e-6},
      {"time/communication_s", 470e-6},
      {"time/exposed_communication_s", 300e-6},
      {"time/host_bound_s", 100e-6},
      {"time/mfu", 0.3},
      {"time/hfu", 0.4},
      {"time/tokens_per_s_per_gpu", 8192e3},
      {"communication[]/count", 3},
      {"communication[]/bytes", 3.0 * MIB},
      {"communication[]/time_s", 300e-6},
      {"communication[]/exposed_s", 100e-6},
      {"groups[]/parameters", 1000},
      {"groups[]/all_gathers", 2},
      {"groups[]/backward/gather_needed_s", 2500e-6},
      {"groups[]/backward/gather_ready_s", 2550e-6},
  };
  Report report = report_new();
  cJSON *root = parsed(&report);
  for (guint i = 0; i < G_N_ELEMENTS(expected); i++) {
    double value = number_at(root, expected[i].path);
    ck_assert_msg(ABS(value - expected[i].value) <= 1e-12 * MAX(1, expected[i].value),
                  "%s is %.17g", expected[i].path, value);
  }
  ck_assert_str_eq(text_at(root, "format"), "highwater-report-1");
  ck_assert_str_eq(text_at(root, "model/name"), "two-groups");
  ck_assert_str_eq(text_at(root, "memory/peak/phase"), "backward");
  ck_assert_str_eq(text_at(root, "memory/peak/largest[]/what"), "log_softmax");
  ck_assert_str_eq(text_at(root, "memory/peak/largest[]/category"), "activation");
  ck_assert_str_eq(text_at(root, "groups[]/modules[]"), "layers.0");
  ck_assert(cJSON_IsTrue(at(root, "fits")));
  ck_assert(cJSON_IsNull(at(root, "out_of_memory")));
  ck_assert_int_eq(cJSON_GetArraySize(at(root, "memory/peak/largest")), 10);
  ck_assert_int_eq(cJSON_GetArraySize(at(root, "steps")), 2);
  cJSON_Delete(root);
  report_clear(&report);
}
END_TEST

START_TEST(json_integers_keep_every_digit)
{
  Report report = report_new();
  g_autofree char *text = summary_json(report.model);
  ck_assert_ptr_nonnull(strstr(text, "9007199254740991"));
  report_clear(&report);
}
END_TEST

START_TEST(json_categories_sum_to_the_peak)
{
  Report report = report_new();
  cJSON *root = parsed(&report);
  double sum = 0;
  const cJSON *category;
  cJSON_ArrayForEach(category, at(root, "memory/peak/categories")) sum += category->valuedouble;
  ck_assert_double_eq(sum, number_at(root, "memory/peak_allocated_bytes"));
  cJSON_Delete(root);
  report_clear(&report);
}
END_TEST

START_TEST(json_tells_out_of_memory)
{
  Recording *recording = fixture_recording();
  fixture_run_out_of_memory(recording);
  Report report = report_of(recording, fixture_info());
  cJSON *root = parsed(&report);
  ck_assert(cJSON_IsFalse(at(root, "fits")));
  ck_assert_double_eq(number_at(root, "out_of_memory/step"), 2);
  ck_assert_str_eq(text_at(root, "out_of_memory/phase"), "backward");
  ck_assert_double_eq(number_at(root, "out_of_memory/requested_bytes"), 599.0 * MIB + 5);
  ck_assert_double_eq(number_at(root, "out_of_memory/segment_bytes"), 600.0 * MIB);
  ck_assert_str_eq(text_at(root, "out_of_memory/what"), "log_softmax");
  ck_assert_ptr_nonnull(strstr(text_at(root, "out_of_memory/message"), "600 MiB"));
  cJSON_Delete(root);
  report_clear(&report);
}
END_TEST

START_TEST(json_says_null_for_what_is_not_known)
{
  Recording *recording = recording_new(); /* nothing happened, no limit */
  Report report = report_of(recording, run_info_new());
  cJSON *root = parsed(&report);
  static const char *const unknown[] = {"model/name",
                                        "time/step_s",
                                        "time/mfu",
                                        "headroom_bytes",
                                        "memory/peak/phase",
                                        "time/host_bound_s",
                                        "memory/capacity_bytes",
                                        "equivalent_zero_stage",
                                        "elements_sent_per_parameter"};
  for (guint i = 0; i < G_N_ELEMENTS(unknown); i++)
    ck_assert_msg(cJSON_IsNull(at(root, unknown[i])), "%s is not null", unknown[i]);
  ck_assert_int_eq(cJSON_GetArraySize(at(root, "steps")), 0);
  cJSON_Delete(root);
  report_clear(&report);
}
END_TEST

/* ---- text ---- */

static void
assert_text(const Report *report, const TextStyle *style, const char *file)
{
  g_autoptr(GString) text = g_string_new(NULL);
  summary_text(report->model, style, text);
  g_autofree char *path = test_source_path(file);
  g_autofree char *expected = NULL;
  if (g_getenv("GOLDEN_UPDATE"))
    g_file_set_contents(path, text->str, -1, NULL);
  ck_assert(g_file_get_contents(path, &expected, NULL, NULL));
  ck_assert_str_eq(text->str, expected);
}

START_TEST(the_text_is_one_screen)
{
  Report report = report_new();
  report.info->parameters = 8030000000;
  assert_text(&report, &(TextStyle){.verbose = FALSE}, "tests/data/report.txt");
  report_clear(&report);
}
END_TEST

START_TEST(verbose_adds_tables)
{
  Report report = report_new();
  report.info->parameters = 8030000000;
  assert_text(&report, &(TextStyle){.verbose = TRUE, .ascii = TRUE},
              "tests/data/report_verbose.txt");
  report_clear(&report);
}
END_TEST

START_TEST(the_text_tells_out_of_memory_first)
{
  Recording *recording = fixture_recording();
  fixture_run_out_of_memory(recording);
  Report report = report_of(recording, fixture_info());
  report.info->parameters = 8030000000;
  assert_text(&report, &(TextStyle){.verbose = FALSE}, "tests/data/report_out_of_memory.txt");
  report_clear(&report);
}
END_TEST

static char *
text_in(const Report *report, const TextStyle *style)
{
  GString *text = g_string_new(NULL);
  summary_text(report->model, style, text);
  return g_string_free(text, FALSE);
}

START_TEST(ascii_is_ascii_and_colour_adds_only_escapes)
{
  Report report = report_new();
  g_autofree char *plain = text_in(&report, &(TextStyle){.verbose = TRUE, .ascii = TRUE});
  ck_assert(g_str_is_ascii(plain));
  ck_assert_ptr_null(strchr(plain, '\033'));
  g_autofree char *coloured =
      text_in(&report, &(TextStyle){.verbose = TRUE, .ascii = TRUE, .colour = TRUE});
  ck_assert_ptr_nonnull(strstr(coloured, "\033[1;32mFITS\033[0m"));
  g_autoptr(GRegex) escapes = g_regex_new("\033\\[[0-9;]*m", 0, 0, NULL);
  g_autofree char *stripped = g_regex_replace(escapes, coloured, -1, 0, "", 0, NULL);
  ck_assert_str_eq(stripped, plain);
  report_clear(&report);
}
END_TEST

START_TEST(a_recording_of_nothing_gives_a_text)
{
  Report report = report_of(recording_new(), run_info_new());
  g_autofree char *text = text_in(&report, &(TextStyle){.verbose = TRUE});
  ck_assert_ptr_nonnull(strstr(text, "MEMORY  not recorded\n"));
  ck_assert_ptr_nonnull(strstr(text, "STEP    not recorded\n"));
  report_clear(&report);
}
END_TEST

/* Words of a report that a measured run has no grounds for. */
static void
assert_claims_nothing(const char *text)
{
  static const char *const claims[] = {
      "unknown", "0 parameters",         "no plan",      "over 1",      "per rank",
      "FITS",    "no allocator retries", "construction", "no step was", "nan",
      "inf"};
  for (guint i = 0; i < G_N_ELEMENTS(claims); i++)
    ck_assert_msg(strstr(text, claims[i]) == NULL, "'%s' in:\n%.900s", claims[i], text);
}

/* As a snapshot of memory leaves it: sizes and names, no steps, phases, modules, or limit. */
START_TEST(a_recording_of_memory_alone_is_reported_as_that)
{
  Recording *recording = fixture_recording();
  g_array_set_size(recording->spans, 0);
  g_array_set_size(recording->ranges, 0);
  g_array_set_size(recording->steps, 0);
  recording->capacity_bytes = G_MAXINT64;
  recording->construction_allocated = recording->construction_reserved = 0;
  recording->peak.step = 0;
  recording->peak.phase = recording->peak.module = -1;
  Report report = report_of(recording, run_info_new());
  g_autofree char *text = text_in(&report, &(TextStyle){.verbose = FALSE});
  g_autofree char *json = summary_json(report.model);
  assert_claims_nothing(text);
  ck_assert_ptr_nonnull(strstr(text, "MEMORY  1.86 GiB reserved\n"));
  ck_assert_ptr_nonnull(strstr(text, "PEAK    1.50 GiB allocated 2.10 ms after the beginning\n"));
  ck_assert_ptr_nonnull(strstr(text, "STEP    not recorded\n"));
  ck_assert_ptr_nonnull(strstr(text, "log_softmax of output"));
  ck_assert_ptr_nonnull(strstr(json, "\"strategy\":\tnull"));
  ck_assert_ptr_nonnull(strstr(json, "\"parameters\":\tnull"));
  report_clear(&report);
}
END_TEST

/* As a profiler's trace leaves it: what streams did, and no memory. */
START_TEST(a_recording_of_time_alone_is_reported_as_that)
{
  Recording *recording = fixture_recording();
  g_array_set_size(recording->memory, 0);
  g_array_set_size(recording->peak.live, 0);
  g_array_set_size(recording->ranges, 0);
  memset(recording->peak.categories, 0, sizeof recording->peak.categories);
  recording->peak.allocated = recording->peak.reserved = 0;
  recording->capacity_bytes = G_MAXINT64;
  recording->construction_allocated = recording->construction_reserved = 0;
  for (guint i = 0; i < recording->spans->len; i++)
    g_array_index(recording->spans, Span, i).phase = 0;
  for (guint i = 0; i < recording->steps->len; i++) {
    StepRecord *step = &g_array_index(recording->steps, StepRecord, i);
    step->peak_allocated = step->peak_reserved = step->end_allocated = 0;
  }
  Report report = report_of(recording, run_info_new());
  g_autofree char *text = text_in(&report, &(TextStyle){.verbose = TRUE});
  g_autofree char *json = summary_json(report.model);
  assert_claims_nothing(text);
  ck_assert_ptr_nonnull(strstr(text, "MEMORY  not recorded\n"));
  ck_assert_ptr_null(strstr(text, "0 B"));
  ck_assert_ptr_null(strstr(text, "PEAK"));
  ck_assert_ptr_null(strstr(text, "At the peak"));
  ck_assert_ptr_nonnull(strstr(text, "STEP    1.00 ms"));
  ck_assert_ptr_nonnull(strstr(text, "all-gather"));
  ck_assert_ptr_nonnull(strstr(json, "\"verdict\":\tnull"));
  report_clear(&report);
}
END_TEST

/* ---- the timeline ---- */

static GString *
table_of(const Recording *recording, guint max_changes, gboolean corners)
{
  GString *table = g_string_new(NULL);
  timeline_table(recording, &(TimelineStyle){.max_changes = max_changes, .corners = corners},
                 table);
  return table;
}

START_TEST(the_timeline_has_a_row_a_change_whose_categories_sum_to_allocated)
{
  Recording *recording = fixture_recording();
  g_autoptr(GString) table = table_of(recording, 100, FALSE);
  ck_assert(g_str_has_prefix(table->str, "# highwater-timeline-1: two-groups, fsdp2\n"));
  g_autoptr(GPtrArray) rows = rows_of_block(table->str, "memory");
  ck_assert_uint_eq(rows->len, recording->memory->len);
  for (guint i = 0; i < rows->len; i++) {
    const MemoryEvent *event = &g_array_index(recording->memory, MemoryEvent, i);
    ck_assert_uint_eq(g_strv_length(g_ptr_array_index(rows, i)), 3 + CATEGORY_COUNT);
    ck_assert_int_eq(size(rows, i, 1), event->allocated_after);
    ck_assert_int_eq(size(rows, i, 2), event->reserved_after);
    gint64 sum = 0;
    for (guint c = 0; c < CATEGORY_COUNT; c++)
      sum += size(rows, i, 3 + c);
    ck_assert_int_eq(sum, event->allocated_after);
  }
  ck_assert_str_eq(cell(rows, 6, 0), "0.002100000");
  ck_assert_int_eq(size(rows, 6, 3 + CATEGORY_ACTIVATION), 1000 * MIB);
  recording_free(recording);
}
END_TEST

START_TEST(phases_steps_and_marks_are_blocks_of_their_own)
{
  Recording *recording = fixture_recording();
  fixture_run_out_of_memory(recording);
  g_autoptr(GString) table = table_of(recording, 100, FALSE);
  g_autoptr(GPtrArray) phases = rows_of_block(table->str, "phases");
  ck_assert_uint_eq(phases->len, 1 + 7);
  ck_assert_str_eq(cell(phases, 0, 4), "construction");
  g_autofree char *phase = g_strjoinv(" ", g_ptr_array_index(phases, 6));
  ck_assert_str_eq(phase, "0.002050000 0.002200000 2 0 backward 1610612736 1992294400");
  g_autoptr(GPtrArray) steps = rows_of_block(table->str, "steps");
  ck_assert_uint_eq(steps->len, 3);
  ck_assert_str_eq(cell(steps, 0, 1), "0.001000000"); /* construction */
  g_autofree char *step = g_strjoinv(" ", g_ptr_array_index(steps, 2));
  ck_assert_str_eq(step, "0.001800000 0.002300000 0.003000000 2 1610612736 1992294400");
  g_autoptr(GPtrArray) marks = rows_of_block(table->str, "marks");
  ck_assert_uint_eq(marks->len, 3);
  ck_assert_str_eq(cell(marks, 0, 0), "capacity");
  ck_assert_int_eq(size(marks, 0, 2), 2000 * MIB);
  ck_assert_str_eq(cell(marks, 1, 0), "peak");
  ck_assert_str_eq(cell(marks, 1, 1), "0.002100000");
  ck_assert_int_eq(size(marks, 1, 2), 1536 * MIB);
  ck_assert_str_eq(cell(marks, 2, 0), "out_of_memory");
  ck_assert_int_eq(size(marks, 2, 2), 2500 * MIB);
  recording_free(recording);
}
END_TEST

START_TEST(corners_show_what_was_before_each_change)
{
  Recording *recording = fixture_recording();
  g_autoptr(GString) table = table_of(recording, 100, TRUE);
  g_autoptr(GPtrArray) rows = rows_of_block(table->str, "memory");
  guint corners = 2 * recording->memory->len - 1;
  ck_assert_uint_eq(rows->len, corners + 1);
  /* What is there last stays until the last phase ends. */
  ck_assert_str_eq(cell(rows, corners, 0), "0.002300000");
  ck_assert_int_eq(size(rows, corners, 1), 536 * MIB);
  for (guint i = 1; i < corners; i += 2) {
    ck_assert_str_eq(cell(rows, i, 0), cell(rows, i + 1, 0));
    for (guint c = 1; c < 3 + CATEGORY_COUNT; c++)
      ck_assert_str_eq(cell(rows, i, c), cell(rows, i - 1, c));
  }
  recording_free(recording);
}
END_TEST

/* A thousand random changes. */
static Recording *
long_recording(void)
{
  Recording *recording = recording_new();
  g_autoptr(GRand) random = g_rand_new_with_seed(3);
  gint64 allocated = 0, reserved = 0;
  for (int i = 0; i < 1000; i++) {
    gint64 bytes = g_rand_int_range(random, 1, 1 << 20);
    gboolean frees = i % 2 == 1;
    MemoryEvent event = {.time = i, .block_bytes = frees ? -allocated / 2 : bytes};
    event.requested_bytes = event.block_bytes;
    allocated += event.block_bytes;
    reserved = MAX(reserved, allocated + g_rand_int_range(random, 0, 100));
    event.allocated_after = allocated;
    event.reserved_after = reserved;
    event.category = frees ? CATEGORY_ACTIVATION : CATEGORY_TEMPORARY;
    g_array_append_val(recording->memory, event);
  }
  return recording;
}

START_TEST(a_thinned_timeline_keeps_peaks_and_only_true_rows)
{
  Recording *recording = long_recording();
  g_autoptr(GString) all_table = table_of(recording, 1000, FALSE);
  g_autoptr(GString) few_table = table_of(recording, 40, FALSE);
  g_autoptr(GPtrArray) all = rows_of_block(all_table->str, "memory");
  g_autoptr(GPtrArray) few = rows_of_block(few_table->str, "memory");
  ck_assert_uint_eq(all->len, 1000);
  ck_assert_uint_le(few->len, 40);
  ck_assert_uint_ge(few->len, 10); /* half of the rows are for waits, and there are none */
  gint64 peaks[2][2] = {{0}};
  for (guint i = 0, next = 0; i < all->len; i++) {
    for (guint c = 0; c < 2; c++)
      peaks[0][c] = MAX(peaks[0][c], size(all, i, 1 + c));
    if (next == few->len || !g_str_equal(cell(all, i, 0), cell(few, next, 0)))
      continue;
    g_autofree char *full = g_strjoinv(" ", g_ptr_array_index(all, i));
    g_autofree char *kept = g_strjoinv(" ", g_ptr_array_index(few, next));
    ck_assert_str_eq(full, kept);
    for (guint c = 0; c < 2; c++)
      peaks[1][c] = MAX(peaks[1][c], size(few, next, 1 + c));
    next++;
    ck_assert(i < all->len - 1 || next == few->len);
  }
  ck_assert_int_eq(peaks[0][0], peaks[1][0]);
  ck_assert_int_eq(peaks[0][1], peaks[1][1]);
  recording_free(recording);
}
END_TEST

START_TEST(a_thinned_timeline_keeps_what_held_during_a_wait)
{
  Recording *recording = long_recording();
  for (guint i = 500; i < 1000; i++)
    g_array_index(recording->memory, MemoryEvent, i).time += 1000000;
  g_autoptr(GString) table = table_of(recording, 40, FALSE);
  g_autoptr(GPtrArray) rows = rows_of_block(table->str, "memory");
  guint before = 0;
  while (before + 1 < rows->len && number(rows, before + 1, 0) < 1e-3)
    before++;
  ck_assert_str_eq(cell(rows, before, 0), "0.000000499");
  ck_assert_int_eq(size(rows, before, 1),
                   g_array_index(recording->memory, MemoryEvent, 499).allocated_after);
  recording_free(recording);
}
END_TEST

START_TEST(the_timeline_of_a_part_begins_and_ends_with_what_held_there)
{
  Recording *recording = fixture_recording();
  g_autoptr(GString) table = g_string_new(NULL);
  const TimelineStyle style = {.max_changes = 100, .corners = TRUE, .from = 1650000, .to = 1900000};
  timeline_table(recording, &style, table);
  g_autoptr(GPtrArray) rows = rows_of_block(table->str, "memory");
  ck_assert_str_eq(cell(rows, 0, 0), "0.001650000");
  ck_assert_int_eq(size(rows, 0, 1), 1200 * MIB);
  ck_assert_str_eq(cell(rows, rows->len - 1, 0), "0.001900000");
  ck_assert_int_eq(size(rows, rows->len - 1, 1), 536 * MIB);
  g_autoptr(GPtrArray) marks = rows_of_block(table->str, "marks");
  ck_assert_str_eq(cell(marks, 1, 0), "peak");
  ck_assert_str_eq(cell(marks, 1, 1), "0.001650000");
  ck_assert_int_eq(size(marks, 1, 2), 1200 * MIB);
  /* Alive then: parameters, an activation and a temporary, which have no names. */
  g_autoptr(GPtrArray) alive = rows_of_block(table->str, "alive");
  ck_assert_uint_eq(alive->len, 3);
  ck_assert_int_eq(size(alive, 0, 0), 500 * MIB);
  ck_assert_str_eq(cell(alive, 0, 2), "temporary");
  recording_free(recording);
}
END_TEST

START_TEST(a_block_without_rows_is_left_out)
{
  Recording *recording = recording_new();
  g_autoptr(GString) table = table_of(recording, 100, TRUE);
  ck_assert_ptr_null(strstr(table->str, "# memory"));
  ck_assert_ptr_null(strstr(table->str, "# modules"));
  ck_assert_ptr_nonnull(strstr(table->str, "\n\n\n# phases\n"));
  recording_free(recording);
}
END_TEST

START_TEST(memory_from_before_the_recording_counts_as_other)
{
  Recording *recording = fixture_recording();
  for (guint i = 0; i < recording->memory->len; i++)
    g_array_index(recording->memory, MemoryEvent, i).allocated_after += 11 * MIB;
  g_autoptr(GString) table = table_of(recording, 100, FALSE);
  g_autoptr(GPtrArray) rows = rows_of_block(table->str, "memory");
  for (guint i = 0; i < rows->len; i++)
    ck_assert_int_eq(size(rows, i, 3 + CATEGORY_OTHER), 11 * MIB);
  recording_free(recording);
}
END_TEST

static TCase *
add_case(Suite *suite, const char *name)
{
  TCase *tcase = tcase_create(name);
  suite_add_tcase(suite, tcase);
  return tcase;
}

Suite *
test_suite(void)
{
  Suite *suite = suite_create("reports");
  TCase *sets = add_case(suite, "interval sets");
  tcase_add_loop_test(sets, intervals_merge_when_they_touch_in_whatever_order_they_come, 0, 4);
  tcase_add_test(sets, an_overlap_is_what_two_sets_share);
  tcase_add_test(sets, sets_agree_with_one_flag_a_moment);
  TCase *model = add_case(suite, "model");
  tcase_add_test(model, a_step_lasts_from_the_end_of_the_one_before);
  tcase_add_test(model, the_steps_time_is_compute_and_exposed_communication_and_the_host);
  tcase_add_test(model, the_bound_is_the_largest_share);
  tcase_add_test(model, communication_is_counted_by_communicator_and_collective);
  tcase_add_test(model, each_gather_knows_when_it_was_needed_and_ready);
  tcase_add_test(model, a_gather_is_waited_for_from_when_the_kernel_was_issued);
  tcase_add_test(model, the_table_of_gathers_has_a_row_for_each);
  tcase_add_test(model, groups_know_what_they_gather_and_compute);
  tcase_add_test(model, the_longest_module_path_decides_the_group);
  tcase_add_test(model, without_phases_of_spans_the_hosts_phase_decides);
  tcase_add_test(model, later_micro_batches_do_not_count_for_a_groups_pass);
  tcase_add_test(model, retries_make_it_slow_and_a_rank_without_room_makes_it_not_fit);
  tcase_add_test(model, the_step_that_runs_out_of_memory_has_no_time);
  tcase_add_test(model, modules_at_the_peak_are_summed_by_block);
  tcase_add_test(model, what_is_retained_is_named_with_who_holds_it);
  tcase_add_test(model, without_spans_of_the_step_its_time_is_not_split);
  TCase *json = add_case(suite, "JSON");
  tcase_add_test(json, json_has_every_key);
  tcase_add_test(json, json_has_the_values_worked_out_by_hand);
  tcase_add_test(json, json_integers_keep_every_digit);
  tcase_add_test(json, json_categories_sum_to_the_peak);
  tcase_add_test(json, json_tells_out_of_memory);
  tcase_add_test(json, json_says_null_for_what_is_not_known);
  TCase *text = add_case(suite, "text");
  tcase_add_test(text, the_text_is_one_screen);
  tcase_add_test(text, verbose_adds_tables);
  tcase_add_test(text, the_text_tells_out_of_memory_first);
  tcase_add_test(text, ascii_is_ascii_and_colour_adds_only_escapes);
  tcase_add_test(text, a_recording_of_nothing_gives_a_text);
  tcase_add_test(text, a_recording_of_memory_alone_is_reported_as_that);
  tcase_add_test(text, a_recording_of_time_alone_is_reported_as_that);
  TCase *timeline = add_case(suite, "timeline");
  tcase_add_test(timeline, the_timeline_has_a_row_a_change_whose_categories_sum_to_allocated);
  tcase_add_test(timeline, phases_steps_and_marks_are_blocks_of_their_own);
  tcase_add_test(timeline, corners_show_what_was_before_each_change);
  tcase_add_test(timeline, a_thinned_timeline_keeps_peaks_and_only_true_rows);
  tcase_add_test(timeline, a_thinned_timeline_keeps_what_held_during_a_wait);
  tcase_add_test(timeline, the_timeline_of_a_part_begins_and_ends_with_what_held_there);
  tcase_add_test(timeline, a_block_without_rows_is_left_out);
  tcase_add_test(timeline, memory_from_before_the_recording_counts_as_other);
  return suite;
}
