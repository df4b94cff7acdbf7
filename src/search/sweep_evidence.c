/* sweep_evidence.c - what stands behind a variant's figures: its run in a folder of its own. */
#include "search/sweep_evidence.h"

#include <errno.h>
#include <glib/gstdio.h>
#include <string.h>

#include "base/output_file.h"
#include "base/text_table.h"
#include "report/groups_table.h"
#include "report/run_directory.h"
#include "report/summary_json.h"
#include "search/equivalence.h"
#include "simulate/run_store.h"

/* Files of the RUN itself are no tables beside it. */
static gboolean
is_beside(const RunTable *table)
{
  return !table->of_module && !g_str_equal(table->file, RUN_TIMELINE);
}

/* ---- writing ---- */

/* What an interrupted sweep left: the RUN replaces itself only where nothing else is. */
static void
remove_beside(const char *folder)
{
  for (const RunTable *table = run_tables; table->name != NULL; table++) {
    g_autofree char *file = g_build_filename(folder, table->file, NULL);
    if (is_beside(table))
      g_unlink(file);
  }
  g_autofree char *equivalence = g_build_filename(folder, EVIDENCE_EQUIVALENCE, NULL);
  g_autofree char *verification = g_build_filename(folder, EVIDENCE_VERIFICATION, NULL);
  g_unlink(equivalence);
  g_unlink(verification);
}

static gboolean
write_run(const char *folder, const RunRequest *request, const RunResult *result, GError **error)
{
  g_autofree char *parent = g_path_get_dirname(folder);
  g_autoptr(ReportModel) model = report_model_new(result->recording, result->info);
  g_autofree char *report = summary_json(model);
  if (g_mkdir_with_parents(parent, 0777) != 0) {
    g_set_error(error, HIGHWATER_ERROR, HIGHWATER_ERROR_OUTPUT, "%s: cannot be written: %s", parent,
                g_strerror(errno));
    return FALSE;
  }
  remove_beside(folder);
  return run_store(folder, request, result, report, error);
}

/* A table that has nothing to say of this run is left out. */
static gboolean
write_tables(const char *folder, const RunResult *result, GError **error)
{
  const TableView all = {0};
  for (const RunTable *table = run_tables; table->name != NULL; table++) {
    g_autoptr(GString) text = g_string_new(NULL);
    g_autofree char *file = g_build_filename(folder, table->file, NULL);
    if (is_beside(table) &&
        run_table_write(table, result->recording, result->info, &all, text, NULL) &&
        !output_file_write(file, text->str, text->len, error))
      return FALSE;
  }
  return TRUE;
}

/* From the second on steps are steady. */
static gboolean
check_equivalence(const RunRequest *request, EquivalenceReport *report, GError **error)
{
  g_autoptr(Scenario) scenario = scenario_new(&request->inputs, request->rank, error);
  return scenario != NULL && equivalence_check(scenario, MIN(request->steps, 2), report, error);
}

static gboolean
write_equivalence(const char *folder, const RunRequest *request, GError **error)
{
  g_autofree char *file = g_build_filename(folder, EVIDENCE_EQUIVALENCE, NULL);
  g_autoptr(GString) text = g_string_new(NULL);
  g_autoptr(GError) reason = NULL;
  EquivalenceReport report;
  if (check_equivalence(request, &report, &reason)) {
    equivalence_print(&report, TRUE, text);
    equivalence_report_clear(&report);
  } else {
    g_string_append_printf(text, "not checked: %s\n", reason->message);
  }
  return output_file_write(file, text->str, text->len, error);
}

gboolean
sweep_evidence_write_verification(const char *folder, const char *json, GError **error)
{
  g_autofree char *file = g_build_filename(folder, EVIDENCE_VERIFICATION, NULL);
  return !sweep_evidence_is_there(folder) || output_file_write(file, json, strlen(json), error);
}

gboolean
sweep_evidence_write(const char *folder, const Trial *trial, const RunResult *result,
                     GError **error)
{
  g_autofree char **all = run_request_assignments(trial->request, trial->assignments);
  RunRequest request = *trial->request;
  request.inputs.assignments = all;
  return write_run(folder, &request, result, error) && write_tables(folder, result, error) &&
         write_equivalence(folder, &request, error);
}

/* ---- reading ---- */

gboolean
sweep_evidence_is_there(const char *folder)
{
  g_autofree char *file = g_build_filename(folder, EVIDENCE_EQUIVALENCE, NULL); /* the last one */
  return g_file_test(file, G_FILE_TEST_EXISTS);
}

static char *
read_file(const char *folder, const char *name)
{
  g_autofree char *file = g_build_filename(folder, name, NULL);
  char *text = NULL;
  return g_file_get_contents(file, &text, NULL, NULL) ? text : NULL;
}

char *
sweep_evidence_equivalence(const char *folder)
{
  char *text = read_file(folder, EVIDENCE_EQUIVALENCE);
  if (text != NULL)
    text[strcspn(text, "\n")] = '\0';
  return text;
}

/* Cells of a row are separated by one blank; those of the heading come after "# ". */
static void
add_cells(TextTable *table, const char *row, guint columns)
{
  g_auto(GStrv) cells = g_strsplit(row, " ", (gint) columns);
  if (g_strv_length(cells) == columns)
    text_table_row_array(table, (const char *const *) cells);
}

void
sweep_evidence_groups(const char *folder, GString *out)
{
  g_autofree char *text = read_file(folder, "groups.tsv");
  g_auto(GStrv) lines = g_strsplit(text != NULL ? text : "", "\n", -1);
  g_autoptr(TextTable) table = text_table_new("lrrrrrl");
  gboolean is_inside = FALSE;
  for (char **line = lines; *line != NULL; line++) {
    if (g_str_equal(*line, "# groups"))
      is_inside = TRUE;
    else if (is_inside && **line == '\0')
      break;
    else if (is_inside)
      add_cells(table, *line + (g_str_has_prefix(*line, "# ") ? 2 : 0), 7);
  }
  text_table_print(table, 2, out);
}
