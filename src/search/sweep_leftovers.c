/* sweep_leftovers.c - what a sweep that was killed left half written in its folder. */
#include "search/sweep_leftovers.h"

#include <glib/gstdio.h>
#include <string.h>

#include "report/run_directory.h"
#include "report/run_tables.h"
#include "search/sweep_directory.h"
#include "search/sweep_evidence.h"

/* What mkstemp() and mkdtemp() put in place of ".XXXXXX". */
#define SUFFIX_LENGTH 7

/* A RUN that was about to be replaced has this behind it. */
#define OLD ".old"

static const char *const sweep_files[] = {SWEEP_DESCRIPTION, SWEEP_LINES,      SWEEP_CSV,
                                          SWEEP_TABLE,       SWEEP_COMPARISON, NULL};
static const char *const run_files[] = {
    RUN_RECORDING,         RUN_INFO, RUN_TIMELINE, RUN_REPORT,
    RUN_NETWORK,           RUN_PLAN, RUN_CLUSTER,  EVIDENCE_EQUIVALENCE,
    EVIDENCE_VERIFICATION, NULL};

/* The name that a temporary one was to get; NULL: it is none.  Caller frees. */
static char *
intended_name(const char *name)
{
  gsize length = strlen(name);
  if (g_str_has_suffix(name, OLD))
    length -= strlen(OLD);
  if (length <= SUFFIX_LENGTH || name[length - SUFFIX_LENGTH] != '.')
    return NULL;
  for (gsize i = length - SUFFIX_LENGTH + 1; i < length; i++)
    if (!g_ascii_isalnum(name[i]))
      return NULL;
  return g_strndup(name, length - SUFFIX_LENGTH);
}

static gboolean
is_sweep_file(const char *name)
{
  return g_strv_contains(sweep_files, name);
}

static gboolean
is_evidence_file(const char *name)
{
  for (const RunTable *table = run_tables; table->name != NULL; table++)
    if (g_str_equal(table->file, name))
      return TRUE;
  return g_strv_contains(run_files, name);
}

/* Names in a folder; none when it cannot be read. */
static GPtrArray *
names_in(const char *path)
{
  GPtrArray *names = g_ptr_array_new_with_free_func(g_free);
  GDir *folder = g_dir_open(path, 0, NULL);
  for (const char *name; folder != NULL && (name = g_dir_read_name(folder)) != NULL;)
    g_ptr_array_add(names, g_strdup(name));
  if (folder != NULL)
    g_dir_close(folder);
  return names;
}

/* Removes the temporary files of those that is_ours knows, and those themselves where all must go.
 */
static void
remove_files(const char *path, gboolean (*is_ours)(const char *name), gboolean all)
{
  g_autoptr(GPtrArray) names = names_in(path);
  for (guint i = 0; i < names->len; i++) {
    const char *name = g_ptr_array_index(names, i);
    g_autofree char *intended = intended_name(name);
    g_autofree char *file = g_build_filename(path, name, NULL);
    if ((intended != NULL && is_ours(intended)) || (all && is_ours(name)))
      g_unlink(file);
  }
}

gboolean
sweep_leftovers_are_all(const char *path)
{
  if (!g_file_test(path, G_FILE_TEST_EXISTS))
    return TRUE;
  if (!g_file_test(path, G_FILE_TEST_IS_DIR))
    return FALSE;
  g_autoptr(GPtrArray) names = names_in(path);
  gboolean are_all = TRUE;
  for (guint i = 0; i < names->len && are_all; i++) {
    const char *name = g_ptr_array_index(names, i);
    g_autofree char *intended = intended_name(name);
    g_autofree char *file = g_build_filename(path, name, NULL);
    GStatBuf status;
    are_all = g_strcmp0(intended, SWEEP_DESCRIPTION) == 0 ||
              (g_str_equal(name, SWEEP_LINES) && g_stat(file, &status) == 0 && status.st_size == 0);
  }
  return are_all;
}

void
sweep_leftovers_remove(const char *path, GHashTable *labels)
{
  g_autofree char *variants = g_build_filename(path, SWEEP_VARIANTS, NULL);
  remove_files(path, is_sweep_file, FALSE);
  g_autoptr(GPtrArray) names = names_in(variants);
  for (guint i = 0; i < names->len; i++) {
    const char *name = g_ptr_array_index(names, i);
    g_autofree char *intended = intended_name(name);
    g_autofree char *folder = g_build_filename(variants, name, NULL);
    gboolean is_variant = g_hash_table_contains(labels, name);
    gboolean is_temporary =
        !is_variant && intended != NULL && g_hash_table_contains(labels, intended);
    if (is_variant || is_temporary)
      remove_files(folder, is_evidence_file, is_temporary);
    if (is_temporary)
      g_rmdir(folder);
  }
}
