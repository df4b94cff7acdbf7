/* cmd_import.c - highwater import: a measurement becomes a RUN, as if it had been simulated; a
 * training configuration of another program becomes a plan. */
#include "base/nearest_name.h"
#include "base/units.h"
#include "cli/plan_input.h"
#include "cli/registry.h"
#include "import/kineto_recording.h"
#include "import/snapshot_recording.h"
#include "report/run_directory.h"
#include "report/summary_json.h"
#include <stdio.h>

/* --device is not given. */
#define ANY_DEVICE G_MININT
#define RANKS_MOST (1 << 24)

/* What the command line says beside the file. */
typedef struct {
  int device; /* ANY_DEVICE: the one that has the most to say */
  int ranks;  /* of a plan; 0: as the file says */
} ImportOptions;

/* A kind of file.  read gives the Recording (the caller frees it) and adds what it knows to the
 * info; NULL and error otherwise.  A kind without it is no measurement: plan_import writes it. */
typedef struct {
  const char *name, *summary;
  Recording *(*read)(const char *file, const ImportOptions *options, RunInfo *info, GError **error);
} ImportKind;

static Recording *
import_memory_snapshot(const char *file, const ImportOptions *options, RunInfo *info,
                       GError **error)
{
  (void) info;
  g_autoptr(SnapshotFile) snapshot = snapshot_file_load(file, MAX(options->device, -1), error);
  return snapshot ? snapshot_recording(snapshot, error) : NULL;
}

static Recording *
import_kineto(const char *file, const ImportOptions *options, RunInfo *info, GError **error)
{
  g_autoptr(KinetoAbout) about = kineto_about_new();
  Recording *recording = kineto_recording_load(file, MAX(options->device, -1), about, error);
  info->device = about->machine.device[0] != '\0' ? g_strdup(about->machine.device) : NULL;
  info->rank = (int) CLAMP(about->machine.rank, 0, G_MAXINT);
  for (guint i = 0; i < about->groups->len; i++) {
    const KinetoGroup *group = &g_array_index(about->groups, KinetoGroup, i);
    if (group->ranks > 0)
      run_info_add_communicator(info, group->name, group->ranks, NULL)->stride = group->stride;
  }
  for (guint i = 0; i < about->notes->len; i++)
    run_info_warn(info, "%s", (const char *) g_ptr_array_index(about->notes, i));
  return recording;
}

static const ImportKind import_kinds[] = {
    {"kineto", "a trace of torch.profiler, .json or .json.gz", import_kineto},
    {"memory-snapshot", "a pickle of torch.cuda.memory._snapshot()", import_memory_snapshot},
    {"plan", "a configuration of DeepSpeed, accelerate, torchtitan or TrainingArguments", NULL},
};

static const ImportKind *
find_kind(const char *name, GError **error)
{
  const char *names[G_N_ELEMENTS(import_kinds) + 1] = {NULL};
  for (guint i = 0; i < G_N_ELEMENTS(import_kinds); i++) {
    if (g_str_equal(name, import_kinds[i].name))
      return &import_kinds[i];
    names[i] = import_kinds[i].name;
  }
  g_autofree char *all = g_strjoinv(", ", (char **) (gpointer) names);
  command_refuse(&command_import, error, "no kind of file '%s'; there are: %s", name, all);
  return NULL;
}

static gboolean
write_run(const char *folder, Recording *recording, RunInfo *info, GError **error)
{
  g_autoptr(ReportModel) model = report_model_new(recording, info);
  g_autofree char *report = summary_json(model);
  const StoredRun run = {.recording = recording, .info = info};
  return run_directory_write(folder, &run, report, error);
}

static gboolean
import_file(const ImportKind *kind, const char *file, const char *folder,
            const ImportOptions *options, GError **error)
{
  g_autoptr(RunInfo) info = run_info_new();
  g_autoptr(Recording) recording = kind->read(file, options, info, error);
  if (!recording)
    return FALSE;
  return write_run(folder, recording, info, error);
}

static gboolean
check_options(const ImportKind *kind, const char *output, const ImportOptions *options,
              GError **error)
{
  gboolean is_plan = kind->read == NULL;
  const char *wrong = is_plan && options->device != ANY_DEVICE ? "--device: a plan has none"
                      : !is_plan && options->ranks != 0        ? "--ranks is for plans only"
                      : options->ranks < 0 || options->ranks > RANKS_MOST
                          ? "--ranks: a number from 1 to 16777216 is needed"
                      : is_plan                  ? NULL
                      : !output                  ? "give the folder to write: -o DIR"
                      : g_str_equal(output, "-") ? "--output: a folder is needed, not standard "
                                                   "output"
                      : options->device != ANY_DEVICE && options->device < 0
                          ? "--device: a number from 0 is needed"
                          : NULL;
  return !wrong || command_refuse(&command_import, error, "%s", wrong);
}

static int
import(int argc, char **argv, GError **error)
{
  g_autofree char *output = NULL;
  ImportOptions options = {.device = ANY_DEVICE};
  const GOptionEntry entries[] = {
      {"output", 'o', 0, G_OPTION_ARG_FILENAME, &output,
       "Write the run to a folder, for plot, report and compare; a plan to a file (standard "
       "output)",
       "DIR"},
      {"device", 0, 0, G_OPTION_ARG_INT, &options.device,
       "Of several devices: which (default: the one with most events)", "N"},
      {"ranks", 0, 0, G_OPTION_ARG_INT, &options.ranks,
       "Of a plan whose file does not say how many ranks run it: how many", "N"},
      {.long_name = NULL},
  };
  g_auto(GStrv) positionals = NULL;
  if (!command_parse(&command_import, argc, argv, entries, 2, 2, &positionals, error))
    return EXIT_ANSWER_YES;
  const ImportKind *kind = find_kind(positionals[0], error);
  if (!kind || !check_options(kind, output, &options, error))
    return EXIT_ANSWER_YES;
  if (kind->read == NULL)
    plan_import(positionals[1], output, options.ranks, error);
  else
    import_file(kind, positionals[1], output, &options, error);
  return EXIT_ANSWER_YES;
}

const Command command_import = {
    .name = "import",
    .arguments = "KIND FILE [-o DIR] [--device N] [--ranks N]",
    .summary = "Make a run of what was measured, or a plan of another program's configuration",
    .run = import,
};
