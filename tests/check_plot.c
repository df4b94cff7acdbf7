/* check_plot.c - RUN folders (whole or not at all) and highwater plot on them, by the program
 * itself: figures of every kind, each refusal.  Not pinned: what a figure looks like. */
#include "base/output_file.h"
#include "program_run.h"
#include "report/run_directory.h"
#include "report_fixture.h"
#include "tap_main.h"
#include <glib/gstdio.h>
#include <string.h>
#include <sys/stat.h>

/* ---- a folder to work in ---- */

static char *folder;

static void
make_folder(void)
{
  folder = test_folder_new();
}

static void
drop_folder(void)
{
  test_folder_remove(folder);
}

static char *
path_of(const char *name)
{
  return g_build_filename(folder, name, NULL);
}

static guint
count_files(const char *path)
{
  GDir *dir = g_dir_open(path, 0, NULL);
  ck_assert_ptr_nonnull(dir);
  guint count = 0;
  while (g_dir_read_name(dir))
    count++;
  g_dir_close(dir);
  return count;
}

/* Takes the recording. */
static gboolean
write_recording(const char *path, Recording *recording, GError **error)
{
  RunInfo *info = run_info_new();
  char document[] = "{}\n";
  const StoredRun run = {
      .recording = recording, .info = info, .network = document, .plan = document};
  gboolean ok = run_directory_write(path, &run, document, error);
  run_info_free(info);
  recording_free(recording);
  return ok;
}

static gboolean
write_run(const char *path, GError **error)
{
  return write_recording(path, fixture_recording(), error);
}

/* ---- RUN folders ---- */

START_TEST(a_run_holds_the_recording_the_table_and_the_inputs)
{
  static const char *const files[] = {"recording.json", "run.json",     "timeline.tsv",
                                      "report.json",    "network.json", "plan.json"};
  g_autofree char *run = path_of("run");
  ck_assert(write_run(run, NULL));
  for (guint i = 0; i < G_N_ELEMENTS(files); i++) {
    g_autofree char *file = g_build_filename(run, files[i], NULL);
    ck_assert_msg(g_file_test(file, G_FILE_TEST_IS_REGULAR), "%s is missing", files[i]);
  }
  ck_assert_uint_eq(count_files(run), G_N_ELEMENTS(files)); /* cluster was not given */
  ck_assert_uint_eq(count_files(folder), 1);
  g_autofree char *file = g_build_filename(run, "recording.json", NULL);
  g_autoptr(Recording) loaded = recording_load(file, NULL);
  ck_assert_ptr_nonnull(loaded);
  ck_assert_int_eq(loaded->peak.allocated, 1536 * MIB);
  ck_assert_int_eq(g_array_index(loaded->spans, Span, 1).phase, 5);
}
END_TEST

START_TEST(a_run_replaces_a_run_and_an_empty_folder)
{
  g_autofree char *run = path_of("run/");
  g_autofree char *table = path_of("run/timeline.tsv");
  g_mkdir(run, 0777);
  ck_assert(write_run(run, NULL));
  ck_assert(g_file_set_contents(table, "old", 3, NULL));
  ck_assert(write_run(run, NULL));
  g_autofree char *text = NULL;
  ck_assert(g_file_get_contents(table, &text, NULL, NULL));
  ck_assert(g_str_has_prefix(text, "# highwater-timeline-1: "));
  ck_assert_uint_eq(count_files(folder), 1);
}
END_TEST

START_TEST(what_is_not_a_run_is_not_replaced)
{
  g_autofree char *run = path_of("home");
  g_autofree char *other = path_of("home/thesis.tex");
  g_mkdir(run, 0777);
  ck_assert(g_file_set_contents(other, "x", 1, NULL));
  g_autoptr(GError) error = NULL;
  ck_assert(!write_run(run, &error));
  ck_assert(test_error_says(error, "home: is there already"));
  ck_assert(g_file_test(other, G_FILE_TEST_EXISTS));
  ck_assert(!write_run(other, NULL));
  ck_assert_uint_eq(count_files(folder), 1);
}
END_TEST

START_TEST(a_run_that_cannot_be_written_leaves_nothing)
{
  g_autofree char *run = path_of("missing/run");
  g_autoptr(GError) error = NULL;
  ck_assert(!write_run(run, &error));
  ck_assert(test_error_says(error, "missing/run: cannot be written: No such file or directory"));
  ck_assert_uint_eq(count_files(folder), 0);
}
END_TEST

/* ---- figures ---- */

static Outcome
highwater_plot(const char *const *arguments)
{
  const char *all[16] = {"plot"};
  for (guint i = 0; arguments[i]; i++)
    all[i + 1] = arguments[i];
  return program_run(folder, all);
}

static const struct {
  const char *file, *begins;
} figures[] = {
    {"figure.png", "\x89PNG\r\n"},
    {"figure.svg", "<?xml"},
    {"figure.pdf", "%PDF-"},
};

START_TEST(the_suffix_says_how_a_figure_is_drawn)
{
  if (!program_has_gnuplot())
    return;
  g_autofree char *run = path_of("run");
  ck_assert(write_run(run, NULL));
  Outcome outcome =
      highwater_plot((const char *const[]){"timeline", "run", "-o", figures[_i].file, NULL});
  ck_assert_str_eq(outcome.err, "");
  ck_assert_str_eq(outcome.out, "");
  ck_assert_int_eq(outcome.status, 0);
  g_autofree char *path = path_of(figures[_i].file);
  g_autofree char *bytes = NULL;
  gsize length;
  ck_assert(g_file_get_contents(path, &bytes, &length, NULL));
  ck_assert_uint_gt(length, 4000);
  ck_assert_int_eq(memcmp(bytes, figures[_i].begins, strlen(figures[_i].begins)), 0);
  ck_assert_uint_eq(count_files(folder), 2);
  outcome_clear(&outcome);
}
END_TEST

START_TEST(a_figure_tells_peak_capacity_phases_and_steps)
{
  if (!program_has_gnuplot())
    return;
  static const char *const words[] = {"peak 1.50 GiB",
                                      "1.95",
                                      "two-groups, fsdp2",
                                      "reserved, at most",
                                      "forward",
                                      "backward",
                                      ">opt<",
                                      "step 1",
                                      "step 2",
                                      "activation",
                                      "sharded gradient",
                                      "log_softmax",
                                      "Largest then"};
  g_autofree char *run = path_of("run");
  g_autofree char *path = path_of("figure.svg");
  ck_assert(write_run(run, NULL));
  Outcome outcome =
      highwater_plot((const char *const[]){"timeline", "run", "-o", "figure.svg", NULL});
  ck_assert_int_eq(outcome.status, 0);
  g_autofree char *text = NULL;
  ck_assert(g_file_get_contents(path, &text, NULL, NULL));
  for (guint i = 0; i < G_N_ELEMENTS(words); i++)
    ck_assert_msg(strstr(text, words[i]) != NULL, "no '%s' in it", words[i]);
  /* Categories without memory are not in the key. */
  ck_assert_ptr_null(strstr(text, "workspace"));
  outcome_clear(&outcome);
}
END_TEST

START_TEST(a_run_that_ended_in_construction_is_drawn)
{
  if (!program_has_gnuplot())
    return;
  g_autofree char *run = path_of("run");
  Recording *recording = fixture_recording();
  fixture_run_out_of_memory(recording);
  g_array_set_size(recording->ranges, 0);
  g_array_set_size(recording->spans, 0);
  g_array_set_size(recording->steps, 0);
  g_array_set_size(recording->memory, 1);
  ck_assert(write_recording(run, recording, NULL));
  Outcome outcome =
      highwater_plot((const char *const[]){"timeline", "run", "-o", "figure.svg", NULL});
  ck_assert_str_eq(outcome.err, "");
  ck_assert_int_eq(outcome.status, 0);
  outcome_clear(&outcome);
}
END_TEST

START_TEST(dumb_draws_in_the_terminal)
{
  if (!program_has_gnuplot())
    return;
  g_autofree char *run = path_of("run");
  ck_assert(write_run(run, NULL));
  Outcome outcome =
      highwater_plot((const char *const[]){"timeline", "run", "--terminal", "dumb", NULL});
  ck_assert_int_eq(outcome.status, 0);
  ck_assert_str_eq(outcome.err, "");
  ck_assert_ptr_nonnull(strstr(outcome.out, "peak 1.50 GiB"));
  ck_assert_ptr_nonnull(strstr(outcome.out, "reserved"));
  ck_assert_uint_eq(count_files(folder), 1);
  outcome_clear(&outcome);
}
END_TEST

START_TEST(a_title_with_quotes_is_drawn_as_it_is)
{
  if (!program_has_gnuplot())
    return;
  g_autofree char *run = path_of("it's a run; set output 'x'");
  g_autofree char *path = path_of("figure.svg");
  Recording *recording = fixture_recording();
  g_free(recording->title);
  recording->title = g_strdup("it's a \"title\" with_under^scores\nand lines");
  ck_assert(write_recording(run, recording, NULL));
  Outcome outcome = highwater_plot((const char *const[]){"timeline", run, "-o", path, NULL});
  ck_assert_str_eq(outcome.err, "");
  g_autofree char *text = NULL;
  ck_assert(g_file_get_contents(path, &text, NULL, NULL));
  ck_assert_ptr_nonnull(strstr(text, "with_under^scores and lines"));
  outcome_clear(&outcome);
}
END_TEST

/* Each is refused with exit 2 and one line that has this in it; no file appears. */
static const struct {
  const char *gnuplot; /* NULL: as configured */
  const char *arguments[8];
  const char *message;
} refusals[] = {
    {NULL, {"timeline", "run"}, "give a file with -o FILE"},
    {NULL, {"timeline"}, "too few arguments"},
    {NULL,
     {"timelime", "run", "-o", "x.png"},
     "no figure 'timelime'; there are: timeline, streams"},
    {NULL, {"timeline", "run", "run", "-o", "x.png"}, "the figure timeline is of one RUN"},
    {NULL, {"timeline", "run", "-o", "x.png", "--size", "big"}, "--size big: it is WIDTHxHEIGHT"},
    {NULL, {"timeline", "run", "-o", "x.png", "--size", "5x5"}, "each 200..8192"},
    {NULL, {"timeline", "run", "-o", "x.png", "--step", "3"}, "run: no step 3; the run has 2"},
    {NULL, {"timeline", "run", "-o", "x.png", "--from", "1h"}, "--from 1h: it is a time since"},
    {NULL,
     {"timeline", "run", "-o", "x.png", "--to=1", "--step=1"},
     "give --step, or --from and --to"},
    {NULL, {"timeline", "run", "-o", "x.png", "--module=a"}, "timeline does not take --module"},
    {NULL, {"lifetimes", "run", "-o", "x.png"}, "is of one module: --module layers.3"},
    {NULL, {"lifetimes", "run", "-o", "x.png", "--module=layers.7"}, "or group 'layers.7'"},
    {NULL,
     {"sweep", "run", "-o", "x.png"},
     "run: the figure sweep is of a SWEEP, and there is no results.tsv"},
    {NULL,
     {"groups", "other/timeline.tsv", "-o", "x.png"},
     "line 1: does not begin with '# highwater-sweep-1: '"},
    {NULL, {"timeline", "run", "-o", "x.gif"}, "x.gif: the suffix of a figure is"},
    {NULL, {"timeline", "run", "--terminal", "gif"}, "no terminal 'gif'"},
    {NULL, {"timeline", "run", "--terminal", "png"}, "--terminal png needs a file"},
    {NULL, {"timeline", "missing", "-o", "x.png"}, "missing: cannot be read: No such file"},
    {NULL, {"timeline", "other", "-o", "x.png"}, "it has no recording.json"},
    {NULL, {"timeline", "run", "-o", "missing/x.png"}, "missing/x.png: cannot be written"},
    {"/missing/gnuplot", {"timeline", "run", "-o", "x.png"}, "/missing/gnuplot: gnuplot cannot"},
    {"/missing/gnuplot", {"timeline", "run", "--terminal", "dumb"}, "set HIGHWATER_GNUPLOT"},
    {"false", {"timeline", "run", "-o", "x.png"}, "gnuplot: it ended without a message"},
    {"true", {"timeline", "run", "-o", "x.png"}, "x.png: gnuplot drew nothing"},
};

START_TEST(wrong_usage_and_input_is_one_line_and_leaves_no_file)
{
  g_autofree char *run = path_of("run");
  g_autofree char *other = path_of("other");
  g_autofree char *table = path_of("other/timeline.tsv");
  ck_assert(write_run(run, NULL));
  g_mkdir(other, 0777);
  ck_assert(g_file_set_contents(table, "no table", -1, NULL));
  if (refusals[_i].gnuplot)
    g_setenv("HIGHWATER_GNUPLOT", refusals[_i].gnuplot, TRUE);
  Outcome outcome = highwater_plot(refusals[_i].arguments);
  ck_assert_int_eq(outcome.status, 2);
  ck_assert_str_eq(outcome.out, "");
  ck_assert(g_str_has_prefix(outcome.err, "highwater: "));
  ck_assert_msg(strstr(outcome.err, refusals[_i].message) != NULL, "it says: %s", outcome.err);
  ck_assert_ptr_eq(strchr(outcome.err, '\n'), outcome.err + strlen(outcome.err) - 1);
  ck_assert_uint_eq(count_files(folder), 2);
  outcome_clear(&outcome);
}
END_TEST

START_TEST(a_pipe_is_not_replaced_by_a_figure)
{
  g_autofree char *run = path_of("run");
  g_autofree char *pipe = path_of("x.png");
  ck_assert(write_run(run, NULL));
  ck_assert_int_eq(mkfifo(pipe, 0600), 0);
  Outcome outcome = highwater_plot((const char *const[]){"timeline", "run", "-o", "x.png", NULL});
  ck_assert_int_eq(outcome.status, 2);
  ck_assert_ptr_nonnull(strstr(outcome.err, "x.png: cannot be written: it is there already"));
  struct stat status;
  ck_assert(stat(pipe, &status) == 0 && S_ISFIFO(status.st_mode));
  ck_assert_uint_eq(count_files(folder), 2);
  outcome_clear(&outcome);
}
END_TEST

START_TEST(what_gnuplot_complains_of_is_passed_on)
{
  if (!program_has_gnuplot())
    return;
  g_autofree char *run = path_of("run");
  g_autofree char *script = path_of("timeline.gnuplot");
  ck_assert(write_run(run, NULL));
  ck_assert(g_file_set_contents(script, "plot nothing\n", -1, NULL));
  g_setenv("HIGHWATER_PLOTS", folder, TRUE);
  Outcome outcome = highwater_plot((const char *const[]){"timeline", "run", "-o", "x.png", NULL});
  ck_assert_int_eq(outcome.status, 2);
  ck_assert(g_str_has_prefix(outcome.err, "highwater: run: cannot be drawn: gnuplot: "));
  ck_assert_ptr_eq(strchr(outcome.err, '\n'), outcome.err + strlen(outcome.err) - 1);
  ck_assert_uint_eq(count_files(folder), 2);
  outcome_clear(&outcome);
}
END_TEST

Suite *
test_suite(void)
{
  Suite *suite = suite_create("plot");
  TCase *run = tcase_create("RUN folders");
  tcase_add_checked_fixture(run, make_folder, drop_folder);
  tcase_add_test(run, a_run_holds_the_recording_the_table_and_the_inputs);
  tcase_add_test(run, a_run_replaces_a_run_and_an_empty_folder);
  tcase_add_test(run, what_is_not_a_run_is_not_replaced);
  tcase_add_test(run, a_run_that_cannot_be_written_leaves_nothing);
  suite_add_tcase(suite, run);
  TCase *plot = tcase_create("figures");
  tcase_set_timeout(plot, 60);
  tcase_add_checked_fixture(plot, make_folder, drop_folder);
  tcase_add_loop_test(plot, the_suffix_says_how_a_figure_is_drawn, 0, G_N_ELEMENTS(figures));
  tcase_add_test(plot, a_figure_tells_peak_capacity_phases_and_steps);
  tcase_add_test(plot, a_run_that_ended_in_construction_is_drawn);
  tcase_add_test(plot, dumb_draws_in_the_terminal);
  tcase_add_test(plot, a_title_with_quotes_is_drawn_as_it_is);
  tcase_add_loop_test(plot, wrong_usage_and_input_is_one_line_and_leaves_no_file, 0,
                      G_N_ELEMENTS(refusals));
  tcase_add_test(plot, a_pipe_is_not_replaced_by_a_figure);
  tcase_add_test(plot, what_gnuplot_complains_of_is_passed_on);
  suite_add_tcase(suite, plot);
  return suite;
}
