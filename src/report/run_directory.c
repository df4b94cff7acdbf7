/* run_directory.c - writes a RUN beside its place, then renames it. */
#include "report/run_directory.h"
#include "base/output_file.h"
#include "report/run_info_store.h"
#include "report/timeline_table.h"
#include <errno.h>
#include <glib/gstdio.h>
#include <string.h>

static const char *const file_names[] = {RUN_RECORDING, RUN_INFO,    RUN_TIMELINE, RUN_REPORT,
                                         RUN_NETWORK,   RUN_PROGRAM, RUN_PLAN,     RUN_CLUSTER};

static gboolean
is_our_file(const char *name)
{
  for (guint i = 0; i < G_N_ELEMENTS(file_names); i++)
    if (g_str_equal(name, file_names[i]))
      return TRUE;
  return FALSE;
}

/* TRUE when the path is free, an empty folder, or a RUN with nothing else in it. */
static gboolean
may_be_replaced(const char *path)
{
  if (!g_file_test(path, G_FILE_TEST_EXISTS))
    return TRUE;
  GDir *folder = g_dir_open(path, 0, NULL);
  if (!folder)
    return FALSE;
  gboolean ours = TRUE;
  const char *name;
  while (ours && (name = g_dir_read_name(folder)))
    ours = is_our_file(name);
  g_dir_close(folder);
  return ours;
}

static void
remove_run(const char *path)
{
  for (guint i = 0; i < G_N_ELEMENTS(file_names); i++) {
    g_autofree char *file = g_build_filename(path, file_names[i], NULL);
    g_unlink(file);
  }
  g_rmdir(path);
}

static gboolean
write_document(const char *folder, const char *name, const char *text, GError **error)
{
  if (!text)
    return TRUE;
  g_autofree char *path = g_build_filename(folder, name, NULL);
  return output_file_write(path, text, strlen(text), error);
}

static gboolean
write_files(const char *folder, const StoredRun *run, const char *report, GError **error)
{
  const RunAsked asked = {run->steps, run->rank, run->all_ranks, run->memory_limit};
  g_autofree char *path = g_build_filename(folder, RUN_RECORDING, NULL);
  const TimelineStyle style = {.max_changes = TIMELINE_FIGURE_CHANGES, .corners = TRUE};
  g_autoptr(GString) timeline = g_string_new(NULL);
  timeline_table(run->recording, &style, timeline);
  g_autofree char *info = run_info_print(run->info, &asked);
  return recording_save(run->recording, path, error) &&
         write_document(folder, RUN_INFO, info, error) &&
         write_document(folder, RUN_TIMELINE, timeline->str, error) &&
         write_document(folder, RUN_REPORT, report, error) &&
         write_document(folder, RUN_NETWORK, run->network, error) &&
         write_document(folder, RUN_PROGRAM, run->program, error) &&
         write_document(folder, RUN_PLAN, run->plan, error) &&
         write_document(folder, RUN_CLUSTER, run->cluster, error);
}

static gboolean
fail(const char *path, GError **error)
{
  g_set_error(error, HIGHWATER_ERROR, HIGHWATER_ERROR_OUTPUT, "%s: cannot be written: %s",
              output_file_name(path), g_strerror(errno));
  return FALSE;
}

/* Gives the finished folder its name; a RUN of that name goes only once the new one is there. */
static gboolean
move_into_place(const char *temporary, const char *path, GError **error)
{
  if (!g_file_test(path, G_FILE_TEST_EXISTS))
    return g_rename(temporary, path) == 0 || fail(path, error);
  g_autofree char *old = g_strconcat(temporary, ".old", NULL);
  if (g_rename(path, old) != 0)
    return fail(path, error);
  if (g_rename(temporary, path) != 0) {
    fail(path, error);
    g_rename(old, path);
    return FALSE;
  }
  remove_run(old);
  return TRUE;
}

gboolean
run_directory_write(const char *given, const StoredRun *run, const char *report, GError **error)
{
  g_autofree char *name = g_strdup(given);
  for (gsize end = strlen(name); end > 1 && name[end - 1] == G_DIR_SEPARATOR; end--)
    name[end - 1] = '\0';
  g_autofree char *path = output_file_target(name);
  if (!may_be_replaced(path)) {
    g_set_error(error, HIGHWATER_ERROR, HIGHWATER_ERROR_OUTPUT,
                "%s: is there already and is not a folder written by 'highwater run --output'",
                path);
    return FALSE;
  }
  g_autofree char *temporary = g_strconcat(path, ".XXXXXX", NULL);
  if (!g_mkdtemp_full(temporary, 0777))
    return fail(path, error);
  if (write_files(temporary, run, report, error) && move_into_place(temporary, path, error))
    return TRUE;
  remove_run(temporary);
  return FALSE;
}
