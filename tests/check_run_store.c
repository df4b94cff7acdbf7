/* check_run_store.c - a RUN read again is the run that was written: its reports are the same to the
 * byte, and asked for again it is simulated the same.  Also what run.json refuses. */
#include <glib/gstdio.h>
#include <string.h>

#include "report/run_directory.h"
#include "report/run_info_store.h"
#include "report/summary_json.h"
#include "report/summary_text.h"
#include "report_fixture.h"
#include "simulate/run_store.h"
#include "tap_main.h"

static char *folder;

static void
setup(void)
{
  folder = test_folder_new();
}

static void
teardown(void)
{
  test_folder_remove(folder);
}

/* ---- runs ---- */

/* What one run covers: `has` is a word of its report that shows that it does. */
typedef struct {
  const char *plan, *cluster;
  const char *set[4];
  const char *has;
  int steps;
  gboolean all_ranks;
  gint64 memory_limit;
} Case;

static const Case cases[] = {
    {"fsdp2", "h100-8", {NULL}, "fsdp2", 3, FALSE, 0},
    {"zero3", "h100-8", {NULL}, "zero3", 2, FALSE, 0},
    {"ddp", "h100-8", {NULL}, "ddp", 2, FALSE, 0},
    {"fsdp1-hybrid", "h100-8", {"fsdp.cpu_offload=false"}, "replicate", 2, FALSE, 0},
    {"fsdp2", "h100-8", {NULL}, "DOES NOT FIT", 2, FALSE, 100 << 20},
    {"fsdp2", "h100-8", {"failure.rank=3", "failure.at=step 2 backward 0.4"}, "stuck", 3, FALSE, 0},
    {"hsdp",
     "h100-8",
     {"mesh.replicate=2", "failure.rank=3", "failure.at=step 2 optimizer 0.5"},
     "copies on",
     3,
     FALSE,
     0},
    {"fsdp2",
     "h100-8",
     {"phases={\"load\": {\"from\": {\"shard\": 2}}, \"save\": {\"state\": \"full\"}, "
      "\"evaluate\": {\"every\": 1}, \"initialize\": {\"from\": \"meta\"}}"},
     "evaluate",
     2,
     FALSE,
     0},
    {"fsdp2", "h100-8", {"ranks.slow=[{\"rank\": 1, \"compute\": 1.5}]"}, "slowest", 2, FALSE, 0},
    {"fsdp2", "h100-8", {NULL}, "ranks", 2, TRUE, 0},
    {"fsdp2", "h100-8", {"fsdp.prefetch_budget=1MiB"}, "budget", 2, FALSE, 0},
    {"fsdp2", "h100-8", {"retain=[{\"group\": \"layers.1\"}]"}, "stay in memory", 2, FALSE, 0},
    {"fsdp2", "h100-8", {NULL}, "repeat", 40, FALSE, 0},
};

static void
ask(const Case *c, char **set, RunRequest *request)
{
  g_autoptr(GError) error = NULL;
  *request = (RunRequest){
      .steps = c->steps,
      .all_ranks = c->all_ranks,
      .memory_limit = c->memory_limit,
      .keep_spans = TRUE,
      .inputs.assignments = set,
  };
  gboolean ok = input_text_read("network", "tiny", &request->inputs.network, &error) &&
                input_text_read("plan", c->plan, &request->inputs.plan, &error) &&
                input_text_read("cluster", c->cluster, &request->inputs.cluster, &error);
  ck_assert_msg(ok, "%s", error ? error->message : "");
}

/* Text of all there is to say, and JSON.  Caller frees. */
static char *
reports(const Recording *recording, const RunInfo *info)
{
  g_autoptr(ReportModel) model = report_model_new(recording, info);
  GString *text = g_string_new(NULL);
  summary_text(model, &(TextStyle){.verbose = TRUE}, text);
  g_autofree char *json = summary_json(model);
  g_string_append(text, json);
  return g_string_free(text, FALSE);
}

static StoredRun *
load(const char *path)
{
  g_autoptr(GError) error = NULL;
  StoredRun *run = stored_run_load(path, &error);
  ck_assert_msg(run != NULL, "%s", error ? error->message : path);
  return run;
}

/* Fails with the first line that differs: reports are too long for Check's messages. */
static void
assert_same_lines(const char *actual, const char *expected)
{
  g_auto(GStrv) a = g_strsplit(actual, "\n", -1), b = g_strsplit(expected, "\n", -1);
  for (guint i = 0; a[i] != NULL && b[i] != NULL; i++)
    ck_assert_msg(strcmp(a[i], b[i]) == 0, "line %u: '%.500s' instead of '%.500s'", i + 1, a[i],
                  b[i]);
  ck_assert_int_eq(strlen(actual), strlen(expected));
}

START_TEST(a_run_read_again_is_reported_in_the_same_bytes)
{
  const Case *c = &cases[_i];
  g_autofree char **set = g_memdup2(c->set, sizeof c->set);
  g_autofree char *path = g_build_filename(folder, "run", NULL);
  g_autoptr(GError) error = NULL;
  RunRequest request;
  RunResult result = {0}, again = {0};
  ask(c, set, &request);
  ck_assert_msg(run_simulation(&request, &result, &error), "%s", error ? error->message : "");
  g_autofree char *expected = reports(result.recording, result.info);
  ck_assert_msg(strstr(expected, c->has) != NULL, "no '%s' in the reports", c->has);
  ck_assert_msg(run_store(path, &request, &result, NULL, &error), "%s",
                error ? error->message : "");

  g_autoptr(StoredRun) run = load(path);
  g_autofree char *stored = reports(run->recording, run->info);
  assert_same_lines(stored, expected);
  ck_assert_int_eq(run->steps, c->steps);
  ck_assert_int_eq(run->all_ranks, c->all_ranks);
  ck_assert_int_eq(run->memory_limit, c->memory_limit);

  run_request_clear(&request);
  ck_assert_msg(run_request_from_stored(run, &request, &error), "%s", error ? error->message : "");
  request.keep_spans = TRUE;
  ck_assert_msg(run_simulation(&request, &again, &error), "%s", error ? error->message : "");
  g_autofree char *simulated = reports(again.recording, again.info);
  assert_same_lines(simulated, expected);
  run_request_clear(&request);
  run_result_clear(&result);
  run_result_clear(&again);
}
END_TEST

/* ---- what is not there ---- */

static void
write_fixture(const char *path)
{
  g_autoptr(Recording) recording = fixture_recording();
  g_autoptr(RunInfo) info = fixture_info();
  const StoredRun run = {.recording = recording, .info = info};
  ck_assert(run_directory_write(path, &run, NULL, NULL));
}

START_TEST(a_run_without_run_json_is_read_with_nothing_known)
{
  g_autofree char *path = g_build_filename(folder, "run", NULL);
  g_autofree char *file = g_build_filename(path, "run.json", NULL);
  write_fixture(path);
  ck_assert_int_eq(g_unlink(file), 0);
  g_autoptr(StoredRun) run = load(path);
  ck_assert_ptr_null(run->info->model);
  ck_assert_int_eq(run->info->rank_without_room, -1);
  ck_assert_int_eq(run->steps, 0);
  ck_assert_ptr_null(run->network);
  ck_assert_int_eq(run->recording->peak.allocated, 1536 * MIB);
}
END_TEST

START_TEST(a_recording_alone_is_read_too)
{
  g_autofree char *path = g_build_filename(folder, "run", NULL);
  g_autofree char *file = g_build_filename(path, "recording.json", NULL);
  write_fixture(path);
  g_autoptr(StoredRun) run = load(file);
  ck_assert_int_eq(run->recording->peak.allocated, 1536 * MIB);
  ck_assert_ptr_null(run->info->model);
}
END_TEST

START_TEST(a_measured_run_cannot_be_simulated_again)
{
  g_autofree char *path = g_build_filename(folder, "run", NULL);
  g_autoptr(GError) error = NULL;
  RunRequest request;
  write_fixture(path);
  g_autoptr(StoredRun) run = load(path);
  ck_assert(!run_request_from_stored(run, &request, &error));
  ck_assert(test_error_says(error, "/run: has no network.json"));
  run_request_clear(&request);
}
END_TEST

START_TEST(other_folders_are_refused)
{
  g_autoptr(GError) error = NULL, missing = NULL;
  ck_assert_ptr_null(stored_run_load(folder, &error));
  ck_assert(test_error_says(error, "not a folder written by 'highwater run --output'"));
  g_autofree char *path = g_build_filename(folder, "nowhere", NULL);
  ck_assert_ptr_null(stored_run_load(path, &missing));
  ck_assert(test_error_says(missing, "cannot be read"));
}
END_TEST

/* ---- run.json ---- */

START_TEST(every_digit_is_kept)
{
  g_autoptr(RunInfo) info = fixture_info();
  RunAsked asked = {7, 3, TRUE, 123456789012345}, read;
  info->model_flops = 1.0 / 3 * 1e17;
  info->elements_sent = 0.1 + 0.2;
  g_autofree char *text = run_info_print(info, &asked);
  g_autoptr(RunInfo) copy = run_info_parse("run.json", text, strlen(text), &read, NULL);
  ck_assert_ptr_nonnull(copy);
  ck_assert(copy->model_flops == info->model_flops);
  ck_assert(copy->elements_sent == info->elements_sent);
  ck_assert_int_eq(copy->parameters, ((gint64) 1 << 53) - 1);
  ck_assert_int_eq(read.steps, 7);
  ck_assert_int_eq(read.rank, 3);
  ck_assert(read.all_ranks);
  ck_assert_int_eq(read.memory_limit, 123456789012345);
}
END_TEST

#define INFO(text) "{\"format\": \"highwater-run-1\", \"info\": {" text "}}"

static const struct {
  const char *text, *says;
} refused[] = {
    {"{}", "run.json: key 'format'"},
    {"{\"format\": \"highwater-run-2\"}", "key 'format'"},
    {"{\"format\": \"highwater-run-1\", \"infos\": {}}", "unknown key 'infos'"},
    {INFO("\"modell\": \"x\""), "unknown key 'info.modell'; did you mean 'model'?"},
    {INFO("\"model\": 3"), "key 'info.model': a string is needed"},
    {INFO("\"parameters\": -1"), "key 'info.parameters'"},
    {INFO("\"parameters\": 1.5"), "key 'info.parameters'"},
    {INFO("\"shard\": 3000000000"), "key 'info.shard'"},
    {INFO("\"split_tied\": 1"), "key 'info.split_tied': true or false"},
    {INFO("\"peak_flops\": 1e999"), "key 'info.peak_flops'"},
    {INFO("\"equivalent_zero_stage\": 4"), "info.equivalent_zero_stage"},
    {INFO("\"compile\": \"all\""), "key 'info.compile'"},
    {INFO("\"groups\": [{\"parameters\": 1}]"), "key 'info.groups[0].name'"},
    {INFO("\"groups\": [{\"name\": \"a\", \"modules\": [1]}]"), "info.groups[0].modules"},
    {INFO("\"groups\": {}"), "key 'info.groups': an array is needed"},
    {INFO("\"constants\": [{\"name\": \"a\", \"origin\": \"guessed\"}]"), "constants[0].origin"},
    {INFO("\"phases\": [{\"name\": \"load\", \"source_bytes\": [0.5]}]"), "source_bytes"},
    {INFO("\"warnings\": \"none\""), "key 'info.warnings': is not an array"},
    {INFO("\"failure\": {\"parameters\": {\"copies_on\": [[3, 2]]}}"), "parameters.copies_on"},
    {INFO("\"failure\": {\"parameters\": {\"copies_on\": [[0, 2], [3, 4]]}}"), "with gaps"},
    {INFO("\"failure\": {\"at\": {\"phase\": \"lunch\"}}"), "key 'info.failure.at.phase'"},
    {INFO("\"ranks\": []"), "key 'info.ranks': an object is needed"},
};

START_TEST(what_is_not_as_described_is_refused_in_one_line)
{
  g_autoptr(GError) error = NULL;
  RunAsked asked;
  ck_assert_ptr_null(
      run_info_parse("run.json", refused[_i].text, strlen(refused[_i].text), &asked, &error));
  ck_assert(test_error_says(error, refused[_i].says));
  ck_assert_ptr_null(strchr(error->message, '\n'));
}
END_TEST

START_TEST(what_is_absent_is_not_known)
{
  static const char text[] = "{\"format\": \"highwater-run-1\"}";
  RunAsked asked;
  g_autoptr(RunInfo) info = run_info_parse("run.json", text, strlen(text), &asked, NULL);
  ck_assert_ptr_nonnull(info);
  g_autoptr(RunInfo) empty = run_info_new();
  g_autofree char *read = run_info_print(info, &asked);
  g_autofree char *expected = run_info_print(empty, &(RunAsked){0});
  ck_assert_str_eq(read, expected);
}
END_TEST

Suite *
test_suite(void)
{
  Suite *suite = suite_create("run_store");
  TCase *tcase = tcase_create("run_store");
  tcase_add_checked_fixture(tcase, setup, teardown);
  tcase_set_timeout(tcase, 60);
  tcase_add_loop_test(tcase, a_run_read_again_is_reported_in_the_same_bytes, 0,
                      G_N_ELEMENTS(cases));
  tcase_add_test(tcase, a_run_without_run_json_is_read_with_nothing_known);
  tcase_add_test(tcase, a_recording_alone_is_read_too);
  tcase_add_test(tcase, a_measured_run_cannot_be_simulated_again);
  tcase_add_test(tcase, other_folders_are_refused);
  tcase_add_test(tcase, every_digit_is_kept);
  tcase_add_loop_test(tcase, what_is_not_as_described_is_refused_in_one_line, 0,
                      G_N_ELEMENTS(refused));
  tcase_add_test(tcase, what_is_absent_is_not_known);
  suite_add_tcase(suite, tcase);
  return suite;
}
