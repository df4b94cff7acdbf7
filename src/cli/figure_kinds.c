/* figure_kinds.c - the figures that `highwater plot` draws, and the tables that they are made of.
 */
#include "cli/figure_kinds.h"
#include "base/category.h"
#include "base/output_file.h"
#include "report/memory_table.h"
#include "report/stored_run.h"
#include "report/timeline_table.h"
#include <errno.h>
#include <glib/gstdio.h>
#include <stdio.h>
#include <string.h>

/* ---- tables in a folder ---- */

static void
clear_text(gpointer data)
{
  FigureText *text = data;
  g_free(text->name);
  g_free(text->value);
}

void
figure_tables_init(FigureTables *tables)
{
  *tables = (FigureTables){.texts = g_array_new(FALSE, FALSE, sizeof(FigureText))};
  g_array_set_clear_func(tables->texts, clear_text);
}

static void
remove_folder(const char *folder)
{
  GDir *dir = g_dir_open(folder, 0, NULL);
  const char *name;
  while (dir && (name = g_dir_read_name(dir))) {
    g_autofree char *path = g_build_filename(folder, name, NULL);
    g_unlink(path);
  }
  if (dir)
    g_dir_close(dir);
  g_rmdir(folder);
}

void
figure_tables_clear(FigureTables *tables)
{
  if (tables->folder)
    remove_folder(tables->folder);
  g_free(tables->folder);
  g_array_unref(tables->texts);
}

/* Control characters become blanks: XML has none. */
static void
set_text(FigureTables *tables, const char *name, const char *value)
{
  const FigureText text = {g_strdup(name), g_utf8_make_valid(value, -1)};
  for (char *c = text.value; *c; c++)
    if (g_ascii_iscntrl(*c))
      *c = ' ';
  g_array_append_val(tables->texts, text);
}

/* A number for the script, which reads it as text. */
static void
set_seconds(FigureTables *tables, const char *name, SimTime time)
{
  g_autofree char *text = g_strdup_printf("%" G_GINT64_FORMAT ".%09" G_GINT64_FORMAT,
                                          time / 1000000000, time % 1000000000);
  set_text(tables, name, text);
}

/* Writes a table; the script finds its file under `name`. */
static gboolean
add_table(FigureTables *tables, const char *name, const GString *text, GError **error)
{
  if (!tables->folder && !(tables->folder = g_dir_make_tmp("highwater-plot-XXXXXX", error)))
    return FALSE;
  g_autofree char *file = g_strconcat(name, ".tsv", NULL);
  g_autofree char *path = g_build_filename(tables->folder, file, NULL);
  if (!output_file_write(path, text->str, text->len, error))
    return FALSE;
  set_text(tables, name, path);
  return TRUE;
}

static void
set_categories(FigureTables *tables)
{
  g_autoptr(GString) text = g_string_new(NULL);
  for (int i = 0; i < CATEGORY_COUNT; i++)
    g_string_append_printf(text, "%s%s", i > 0 ? " " : "", category_name((Category) i));
  set_text(tables, "categories", text->str);
}

/* ---- figures of a run ---- */

/* "llama-3-8b, fsdp2 over 8 x h100-sxm-80gb", as far as it is known.  Caller frees. */
static char *
title_of_run(const StoredRun *run)
{
  const RunInfo *info = run->info;
  GString *title = g_string_new(run->recording->title);
  if (info->strategy)
    g_string_append_printf(title, ", %s", info->strategy);
  if (info->device && info->shard > 0)
    g_string_append_printf(title, " over %d × %s", info->shard * MAX(1, info->replicate),
                           info->device);
  else if (info->device)
    g_string_append_printf(title, " on %s", info->device);
  return g_strdelimit(g_string_free(title, FALSE), "\t\r\n", ' ');
}

static gboolean
prefix_input(const char *input, GError **error)
{
  g_prefix_error(error, "%s: ", input);
  return FALSE;
}

static gboolean
add_run_table(const StoredRun *run, const char *name, const TableView *view, FigureTables *tables,
              GError **error)
{
  const RunTable *table = run_table_find(name, error);
  g_autoptr(GString) text = g_string_new(NULL);
  if (!table || !run_table_write(table, run->recording, run->info, view, text, error))
    return prefix_input(run->folder, error);
  return add_table(tables, name, text, error);
}

static StoredRun *
load(const FigureRequest *request, FigureTables *tables, GError **error)
{
  StoredRun *run = stored_run_load(request->inputs[0], error);
  if (!run)
    return NULL;
  g_autofree char *title = title_of_run(run);
  set_text(tables, "title", title);
  set_categories(tables);
  return run;
}

static gboolean
is_seen(const TableView *view, SimTime from, SimTime to)
{
  return to > view->from && (view->to == 0 || from < view->to);
}

static gboolean
any_memory_before(const GArray *memory, SimTime to)
{
  return memory->len > 0 && (to == 0 || g_array_index(memory, MemoryEvent, 0).time < to);
}

static gboolean
any_seen(const Recording *recording, const TableView *view)
{
  gboolean any = FALSE;
  for (guint i = 0; i < recording->memory->len && !any; i++) {
    SimTime time = g_array_index(recording->memory, MemoryEvent, i).time;
    any = is_seen(view, time, time);
  }
  for (guint i = 0; i < recording->spans->len && !any; i++) {
    const Span *span = &g_array_index(recording->spans, Span, i);
    any = is_seen(view, span->start, span->end);
  }
  return any;
}

/* gnuplot would draw axes of nothing, or complain.  A step always has something. */
static gboolean
check_times(const StoredRun *run, const FigureKind *kind, const TableView *view, GError **error)
{
  if (view->step > 0 || !table_view_is_part(view))
    return TRUE;
  gboolean of_memory = g_str_equal(kind->table, "timeline");
  const char *wrong = !any_seen(run->recording, view) ? "nothing happens between --from and --to"
                      : of_memory && !any_memory_before(run->recording->memory, view->to)
                          ? "nothing is allocated before --to"
                          : NULL;
  if (wrong)
    g_set_error(error, HIGHWATER_ERROR, HIGHWATER_ERROR_USAGE, "%s: %s", run->folder, wrong);
  return !wrong;
}

/* Sets the view's times, and for the script those that the figure shows: 0 to 0 for all. */
static gboolean
narrow(const StoredRun *run, const FigureKind *kind, TableView *view, FigureTables *tables,
       GError **error)
{
  const RunTable *table = run_table_find(kind->table, NULL);
  if (!run_table_narrow(table, run->recording, view, error))
    return prefix_input(run->folder, error);
  if (!check_times(run, kind, view, error))
    return FALSE;
  set_seconds(tables, "view_from", view->from);
  set_seconds(tables, "view_to", view->to);
  return TRUE;
}

static gboolean
make_timeline(const FigureKind *kind, const FigureRequest *request, FigureTables *tables,
              GError **error)
{
  TableView view = request->view;
  view.max_rows = 2 * TIMELINE_FIGURE_CHANGES;
  g_autoptr(StoredRun) run = load(request, tables, error);
  if (!run)
    return FALSE;
  if (run->recording->memory->len == 0) {
    g_set_error(error, HIGHWATER_ERROR, HIGHWATER_ERROR_INPUT,
                "%s: the recording has no allocations", run->folder);
    return FALSE;
  }
  return narrow(run, kind, &view, tables, error) &&
         add_run_table(run, kind->table, &view, tables, error);
}

/* The step of the highest moment, if it is done; else the last that is; 0: none. */
static int
step_to_show(const Recording *recording)
{
  guint steps = recording->steps->len - (recording->out_of_memory.happened ? 1 : 0);
  if (recording->steps->len == 0 || steps == 0)
    return 0;
  int last = g_array_index(recording->steps, StepRecord, steps - 1).index;
  return recording->peak.step >= 1 && recording->peak.step <= last ? recording->peak.step : last;
}

/* Both halves of the figure show the same time: of a step until all that it issued is done. */
static gboolean
make_streams(const FigureKind *kind, const FigureRequest *request, FigureTables *tables,
             GError **error)
{
  enum { SPANS_OF_FIGURE = 4096 };
  g_autoptr(StoredRun) run = load(request, tables, error);
  if (!run)
    return FALSE;
  TableView view = request->view;
  view.max_rows = SPANS_OF_FIGURE;
  if (!table_view_is_part(&view))
    view.step = step_to_show(run->recording);
  return narrow(run, kind, &view, tables, error) &&
         add_run_table(run, kind->table, &view, tables, error) &&
         add_run_table(run, "timeline", &view, tables, error);
}

static gboolean
make_lifetimes(const FigureKind *kind, const FigureRequest *request, FigureTables *tables,
               GError **error)
{
  g_autoptr(StoredRun) run = load(request, tables, error);
  if (!run)
    return FALSE;
  set_text(tables, "module", request->view.module ? request->view.module : "");
  return add_run_table(run, kind->table, &request->view, tables, error);
}

/* ---- a bar for each run ---- */

/* The strategy, or the folder when several runs have the same one.  Borrowed from the runs. */
static const char *
name_of_run(const GPtrArray *runs, guint i)
{
  const StoredRun *run = runs->pdata[i];
  const char *strategy = run->info->strategy;
  gboolean is_clear = strategy != NULL;
  for (guint j = 0; j < runs->len && is_clear; j++) {
    const StoredRun *other = runs->pdata[j];
    is_clear = j == i || g_strcmp0(other->info->strategy, strategy) != 0;
  }
  if (is_clear)
    return strategy;
  const char *slash = strrchr(run->folder, G_DIR_SEPARATOR);
  return slash ? slash + 1 : run->folder;
}

/* Of the networks that are in it. */
static char *
title_of_runs(const GPtrArray *runs)
{
  g_autoptr(GString) title = g_string_new(NULL);
  for (guint i = 0; i < runs->len; i++) {
    const StoredRun *run = runs->pdata[i];
    gboolean known = FALSE;
    for (guint j = 0; j < i && !known; j++)
      known = g_str_equal(((const StoredRun *) runs->pdata[j])->recording->title,
                          run->recording->title);
    if (!known)
      g_string_append_printf(title, "%s%s", title->len > 0 ? ", " : "", run->recording->title);
  }
  return g_strdup(title->str);
}

static gboolean
make_strategies(const FigureKind *kind, const FigureRequest *request, FigureTables *tables,
                GError **error)
{
  g_autoptr(GPtrArray) runs = g_ptr_array_new_with_free_func((GDestroyNotify) stored_run_free);
  for (guint i = 0; request->inputs[i]; i++) {
    StoredRun *run = stored_run_load(request->inputs[i], error);
    if (!run)
      return FALSE;
    for (gsize end = strlen(run->folder); end > 1 && run->folder[end - 1] == G_DIR_SEPARATOR; end--)
      run->folder[end - 1] = '\0';
    g_ptr_array_add(runs, run);
  }
  g_autofree char *title = title_of_runs(runs);
  g_autoptr(GString) text = g_string_new(NULL);
  memory_table_begin(text, title);
  for (guint i = 0; i < runs->len; i++)
    memory_table_rows(((const StoredRun *) runs->pdata[i])->recording, name_of_run(runs, i), text);
  set_text(tables, "title", title);
  set_categories(tables);
  return add_table(tables, kind->table, text, error);
}

/* ---- figures of tables that are there ---- */

/* A table's first two lines, "# FORMAT: TITLE" and "# COLUMN COLUMN ...". */
typedef struct {
  char *title, *columns; /* columns may be NULL */
} TableHead;

static gboolean
read_head(const char *path, const char *format, TableHead *head, GError **error)
{
  FILE *file = fopen(path, "r");
  if (!file) {
    g_set_error(error, HIGHWATER_ERROR, HIGHWATER_ERROR_INPUT, "%s: %s", path, g_strerror(errno));
    return FALSE;
  }
  g_autofree char *begins = g_strdup_printf("# %s: ", format);
  char line[2048];
  if (fgets(line, sizeof line, file) && g_str_has_prefix(line, begins))
    head->title = g_strdup(g_strchomp(line + strlen(begins)));
  if (head->title && fgets(line, sizeof line, file) && g_str_has_prefix(line, "# "))
    head->columns = g_strdup(g_strchomp(line + 2));
  fclose(file);
  if (!head->title)
    g_set_error(error, HIGHWATER_ERROR, HIGHWATER_ERROR_INPUT,
                "%s: line 1: does not begin with '%s'", path, begins);
  return head->title != NULL;
}

/* A file, or the file of that name in a folder.  Its path is absolute, since gnuplot takes a name
 * that begins with "<" for a command. */
static gboolean
use_table(const char *input, const FigureKind *kind, const char *format, FigureTables *tables,
          GError **error)
{
  gboolean is_folder = g_file_test(input, G_FILE_TEST_IS_DIR);
  g_autofree char *path = is_folder ? g_build_filename(input, kind->table, NULL) : g_strdup(input);
  TableHead head = {0};
  if (is_folder && !g_file_test(path, G_FILE_TEST_EXISTS)) {
    g_set_error(error, HIGHWATER_ERROR, HIGHWATER_ERROR_INPUT,
                "%s: the figure %s is of a %s, and there is no %s in this folder", input,
                kind->name, kind->inputs, kind->table);
    return FALSE;
  }
  if (!read_head(path, format, &head, error))
    return FALSE;
  g_autofree char *absolute = g_canonicalize_filename(path, NULL);
  set_text(tables, "title", head.title);
  set_text(tables, "columns", head.columns ? head.columns : "");
  set_text(tables, "table", absolute);
  g_free(head.title);
  g_free(head.columns);
  return TRUE;
}

static gboolean
make_of_sweep(const FigureKind *kind, const FigureRequest *request, FigureTables *tables,
              GError **error)
{
  return use_table(request->inputs[0], kind, "highwater-sweep-1", tables, error);
}

static gboolean
make_collectives(const FigureKind *kind, const FigureRequest *request, FigureTables *tables,
                 GError **error)
{
  return use_table(request->inputs[0], kind, "highwater-collectives-1", tables, error);
}

const FigureKind figure_kinds[] = {
    {"timeline", "RUN", "memory by category over time, the peak and what is alive there", 1,
     FIGURE_STEP | FIGURE_TIMES, "timeline", make_timeline},
    {"streams", "RUN", "what the host and each stream do, beside memory", 1,
     FIGURE_STEP | FIGURE_TIMES, "streams", make_streams},
    {"lifetimes", "RUN", "parameters and gradients of one module through forward and backward", 1,
     FIGURE_STEP | FIGURE_MODULE, "lifetimes", make_lifetimes},
    {"strategies", "RUN...", "memory of several runs, a bar each", -1, 0, "memory",
     make_strategies},
    {"sweep", "SWEEP", "peak against step time of every variant", 1, 0, "results.tsv",
     make_of_sweep},
    {"groups", "SWEEP", "peak, step time and collectives against what was varied first", 1, 0,
     "results.tsv", make_of_sweep},
    {"collectives", "FILE", "measured collectives and the lines fitted to them", 1, 0,
     "collectives.tsv", make_collectives},
    {0},
};

const FigureKind *
figure_kind_find(const char *name, GError **error)
{
  g_autoptr(GString) names = g_string_new(NULL);
  for (const FigureKind *kind = figure_kinds; kind->name; kind++) {
    if (g_str_equal(name, kind->name))
      return kind;
    g_string_append_printf(names, "%s%s", names->len > 0 ? ", " : "", kind->name);
  }
  g_set_error(error, HIGHWATER_ERROR, HIGHWATER_ERROR_USAGE, "plot: no figure '%s'; there are: %s",
              name, names->str);
  return NULL;
}
