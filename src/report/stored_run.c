/* stored_run.c - reads the files of a RUN. */
#include "report/stored_run.h"
#include "base/json_document.h"
#include "base/units.h"
#include "report/run_directory.h"
#include "report/run_info_store.h"

static char *
path_in(const char *folder, const char *name)
{
  return g_build_filename(folder, name, NULL);
}

/* The text of a file of the RUN that need not be there: *text is NULL then. */
static gboolean
read_text(const char *folder, const char *name, char **text, gsize *length, GError **error)
{
  g_autofree char *path = path_in(folder, name);
  *text = NULL;
  *length = 0;
  if (!g_file_test(path, G_FILE_TEST_EXISTS))
    return TRUE;
  *text = json_text_load(path, length, error);
  return *text != NULL;
}

static gboolean
read_info(StoredRun *run, GError **error)
{
  g_autofree char *path = path_in(run->folder, RUN_INFO), *text = NULL;
  gsize length;
  RunAsked asked = {0};
  if (!read_text(run->folder, RUN_INFO, &text, &length, error))
    return FALSE;
  run->info = text != NULL ? run_info_parse(path, text, length, &asked, error) : run_info_new();
  run->steps = asked.steps;
  run->rank = asked.rank;
  run->all_ranks = asked.all_ranks;
  run->memory_limit = asked.memory_limit;
  return run->info != NULL;
}

static gboolean
read_documents(StoredRun *run, GError **error)
{
  gsize length;
  return read_text(run->folder, RUN_NETWORK, &run->network, &length, error) &&
         read_text(run->folder, RUN_PROGRAM, &run->program, &length, error) &&
         read_text(run->folder, RUN_PLAN, &run->plan, &length, error) &&
         read_text(run->folder, RUN_CLUSTER, &run->cluster, &length, error);
}

static gboolean
read_folder(StoredRun *run, GError **error)
{
  g_autofree char *path = path_in(run->folder, RUN_RECORDING);
  if (!g_file_test(path, G_FILE_TEST_EXISTS)) {
    g_set_error(error, HIGHWATER_ERROR, HIGHWATER_ERROR_INPUT,
                "%s: not a folder written by 'highwater run --output': it has no " RUN_RECORDING,
                run->folder);
    return FALSE;
  }
  run->recording = recording_load(path, error);
  return run->recording != NULL && read_info(run, error) && read_documents(run, error);
}

StoredRun *
stored_run_load(const char *folder, GError **error)
{
  g_autoptr(StoredRun) run = g_new0(StoredRun, 1);
  run->folder = g_strdup(folder);
  if (g_file_test(folder, G_FILE_TEST_IS_DIR))
    return read_folder(run, error) ? g_steal_pointer(&run) : NULL;
  run->recording = recording_load(folder, error);
  if (run->recording == NULL)
    return NULL;
  run->info = run_info_new();
  return g_steal_pointer(&run);
}

void
stored_run_free(StoredRun *run)
{
  if (run == NULL)
    return;
  char *const texts[] = {run->folder, run->network, run->program, run->plan, run->cluster};
  for (guint i = 0; i < G_N_ELEMENTS(texts); i++)
    g_free(texts[i]);
  recording_free(run->recording);
  run_info_free(run->info);
  g_free(run);
}
