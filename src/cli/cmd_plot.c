/* cmd_plot.c - highwater plot: figures of a RUN, drawn by gnuplot. */
#include "base/category.h"
#include "base/nearest_name.h"
#include "base/units.h"
#include "cli/registry.h"
#include "report/gnuplot.h"
#include "report/run_directory.h"
#include "report/timeline_table.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>

/* A figure reads one file of a RUN. */
typedef struct {
  const char *name, *table;
  const char *first_line;  /* how the table begins; the title follows */
  char *(*settings)(void); /* for the script; caller frees */
} FigureKind;

/* The names of the table's columns, in words. */
static char *
timeline_settings(void)
{
  GString *text = g_string_new("categories = '");
  for (int i = 0; i < CATEGORY_COUNT; i++) {
    g_autofree char *name = g_strdelimit(g_strdup(category_name((Category) i)), "_", ' ');
    g_string_append_printf(text, "\"%s\" ", name);
  }
  return g_string_free(g_string_append_c(text, '\''), FALSE);
}

static const FigureKind figure_kinds[] = {
    {"timeline", RUN_TIMELINE, "# " TIMELINE_FORMAT ": ", timeline_settings},
};

static const FigureKind *
find_kind(const char *name, GError **error)
{
  const char *names[G_N_ELEMENTS(figure_kinds) + 1] = {NULL};
  for (guint i = 0; i < G_N_ELEMENTS(figure_kinds); i++) {
    if (g_str_equal(name, figure_kinds[i].name))
      return &figure_kinds[i];
    names[i] = figure_kinds[i].name;
  }
  g_autofree char *all = g_strjoinv(", ", (char **) (gpointer) names);
  g_set_error(error, HIGHWATER_ERROR, HIGHWATER_ERROR_USAGE, "plot: no figure '%s'; there are: %s",
              name, all);
  return NULL;
}

/* The title on a table's first line; NULL and error when it is not such a table.  Caller frees. */
static char *
read_title(const char *run, const char *table, const FigureKind *kind, GError **error)
{
  FILE *file = fopen(table, "r");
  if (!file) {
    g_set_error(error, HIGHWATER_ERROR, HIGHWATER_ERROR_INPUT,
                "%s: not a folder written by 'highwater run --output': %s: %s", run, kind->table,
                g_strerror(errno));
    return NULL;
  }
  char line[512];
  gboolean ok = fgets(line, sizeof line, file) && g_str_has_prefix(line, kind->first_line);
  fclose(file);
  if (!ok) {
    g_set_error(error, HIGHWATER_ERROR, HIGHWATER_ERROR_INPUT,
                "%s: line 1: does not begin with '%s'", table, kind->first_line);
    return NULL;
  }
  return g_utf8_make_valid(g_strchomp(line + strlen(kind->first_line)), -1);
}

static gboolean
draw(const FigureKind *kind, const char *run, const char *output, const char *terminal,
     GError **error)
{
  Figure figure = {.script = kind->name, .output = output};
  if (!terminal && !output) {
    g_set_error(error, HIGHWATER_ERROR, HIGHWATER_ERROR_USAGE,
                "plot: give a file with -o FILE, or draw here with --terminal dumb");
    return FALSE;
  }
  figure.terminal =
      terminal ? figure_terminal_find(terminal, error) : figure_terminal_of_file(output, error);
  if (!figure.terminal)
    return FALSE;
  if (!output && !figure.terminal->is_text) {
    g_set_error(error, HIGHWATER_ERROR, HIGHWATER_ERROR_USAGE,
                "plot: --terminal %s needs a file: -o FILE", terminal);
    return FALSE;
  }
  g_autofree char *table = g_build_filename(run, kind->table, NULL);
  g_autofree char *title = read_title(run, table, kind, error);
  if (!title)
    return FALSE;
  g_autofree char *settings = kind->settings();
  figure.table = table;
  figure.title = title;
  figure.settings = settings;
  return gnuplot_draw(&figure, error);
}

static int
plot(int argc, char **argv, GError **error)
{
  g_autofree char *output = NULL;
  g_autofree char *terminal = NULL;
  const GOptionEntry entries[] = {
      {"output", 'o', 0, G_OPTION_ARG_FILENAME, &output,
       "Write the figure to FILE; its suffix says how: .png, .svg, .pdf", "FILE"},
      {"terminal", 0, 0, G_OPTION_ARG_STRING, &terminal,
       "Draw as png, svg, pdf, or dumb: in text, here unless -o is given", "NAME"},
      {.long_name = NULL},
  };
  g_auto(GStrv) positionals = NULL;
  if (!command_parse(&command_plot, argc, argv, entries, 2, 2, &positionals, error))
    return EXIT_ANSWER_YES;
  const FigureKind *kind = find_kind(positionals[0], error);
  if (kind)
    draw(kind, positionals[1], output, terminal, error);
  return EXIT_ANSWER_YES;
}

const Command command_plot = {
    .name = "plot",
    .arguments = "timeline RUN -o FILE | --terminal dumb",
    .summary = "Draw a figure of a run, with gnuplot",
    .run = plot,
};
