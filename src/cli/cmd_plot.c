/* cmd_plot.c - highwater plot: figures of runs, sweeps and measurements, drawn by gnuplot. */
#include "base/units.h"
#include "cli/figure_kinds.h"
#include "cli/registry.h"
#include <stdio.h>
#include <string.h>

/* The command line. */
typedef struct {
  char *output, *terminal, *size, *module, *from, *to;
  int step;
} Arguments;

static void
arguments_clear(Arguments *arguments)
{
  char *const texts[] = {arguments->output, arguments->terminal, arguments->size,
                         arguments->module, arguments->from,     arguments->to};
  for (guint i = 0; i < G_N_ELEMENTS(texts); i++)
    g_free(texts[i]);
}

static gboolean refuse(GError **error, const char *format, ...) G_GNUC_PRINTF(2, 3);

static gboolean
refuse(GError **error, const char *format, ...)
{
  va_list values;
  va_start(values, format);
  g_autofree char *text = g_strdup_vprintf(format, values);
  va_end(values);
  g_set_error(error, HIGHWATER_ERROR, HIGHWATER_ERROR_USAGE, "plot: %s", text);
  return FALSE;
}

/* ---- how it is drawn ---- */

static gboolean
choose_terminal(const Arguments *arguments, Figure *figure, GError **error)
{
  const char *terminal = arguments->terminal, *output = arguments->output;
  if (!terminal && !output)
    return refuse(error, "give a file with -o FILE, or draw here with --terminal dumb");
  figure->output = output;
  figure->terminal =
      terminal ? figure_terminal_find(terminal, error) : figure_terminal_of_file(output, error);
  if (!figure->terminal)
    return FALSE;
  if (!output && !figure->terminal->is_text)
    return refuse(error, "--terminal %s needs a file: -o FILE", terminal);
  return TRUE;
}

/* Sizes that gnuplot draws within seconds. */
enum { LEAST_PIXELS = 200, MOST_PIXELS = 8192, LEAST_CHARACTERS = 20, MOST_CHARACTERS = 1000 };

static gboolean
choose_size(const Arguments *arguments, Figure *figure, GError **error)
{
  if (!arguments->size)
    return TRUE;
  gboolean is_text = figure->terminal->is_text;
  int least = is_text ? LEAST_CHARACTERS : LEAST_PIXELS;
  int most = is_text ? MOST_CHARACTERS : MOST_PIXELS;
  int end = 0;
  if (sscanf(arguments->size, "%5dx%5d%n", &figure->width, &figure->height, &end) == 2 &&
      arguments->size[end] == '\0' && MIN(figure->width, figure->height) >= least &&
      MAX(figure->width, figure->height) <= most)
    return TRUE;
  return refuse(error, "--size %s: it is WIDTHxHEIGHT, each %d..%d", arguments->size, least, most);
}

/* ---- what is drawn ---- */

/* "1.25s", "350ms", "80us"; seconds without a unit. */
static gboolean
parse_moment(const char *option, const char *text, SimTime *time, GError **error)
{
  static const struct {
    const char *name;
    double ns;
  } units[] = {{"", 1e9}, {"s", 1e9}, {"ms", 1e6}, {"us", 1e3}, {"ns", 1}};
  char *end;
  double number = g_ascii_strtod(text, &end);
  for (guint i = 0; i < G_N_ELEMENTS(units) && end != text; i++)
    if (g_str_equal(end, units[i].name) && number >= 0 && number * units[i].ns < 9e15) {
      *time = (SimTime) (number * units[i].ns);
      return TRUE;
    }
  return refuse(error, "--%s %s: it is a time since the run began: 1.25s, 350ms, 80us", option,
                text);
}

static gboolean
check_options(const FigureKind *kind, const Arguments *arguments, GError **error)
{
  const struct {
    const char *name;
    gboolean given;
    guint option;
  } options[] = {{"step", arguments->step != 0, FIGURE_STEP},
                 {"from", arguments->from != NULL, FIGURE_TIMES},
                 {"to", arguments->to != NULL, FIGURE_TIMES},
                 {"module", arguments->module != NULL, FIGURE_MODULE}};
  for (guint i = 0; i < G_N_ELEMENTS(options); i++)
    if (options[i].given && !(kind->options & options[i].option))
      return refuse(error, "the figure %s does not take --%s", kind->name, options[i].name);
  if (kind->options & FIGURE_MODULE && !arguments->module)
    return refuse(error, "the figure %s is of one module: --module layers.3", kind->name);
  if (arguments->step != 0 && (arguments->from || arguments->to))
    return refuse(error, "give --step, or --from and --to");
  if (arguments->step < 0)
    return refuse(error, "--step %d: steps count from 1", arguments->step);
  return TRUE;
}

static gboolean
choose_view(const Arguments *arguments, TableView *view, GError **error)
{
  *view = (TableView){.module = arguments->module, .step = arguments->step};
  if (arguments->from && !parse_moment("from", arguments->from, &view->from, error))
    return FALSE;
  if (arguments->to && !parse_moment("to", arguments->to, &view->to, error))
    return FALSE;
  if (arguments->to && view->to <= view->from)
    return refuse(error, "--to %s is not after --from", arguments->to);
  return TRUE;
}

static gboolean
draw(const FigureKind *kind, const FigureRequest *request, Figure *figure, GError **error)
{
  FigureTables tables;
  figure_tables_init(&tables);
  figure->script = kind->name;
  figure->subject = request->inputs[0];
  figure->texts = tables.texts;
  gboolean ok = kind->make(kind, request, &tables, error) && gnuplot_draw(figure, error);
  figure_tables_clear(&tables);
  return ok;
}

static gboolean
plot_inputs(const FigureKind *kind, char *const *inputs, const Arguments *arguments, GError **error)
{
  Figure figure = {0};
  FigureRequest request = {.inputs = inputs};
  if (kind->most_inputs == 1 && inputs[1])
    return refuse(error, "the figure %s is of one %s", kind->name, kind->inputs);
  return choose_terminal(arguments, &figure, error) && choose_size(arguments, &figure, error) &&
         check_options(kind, arguments, error) && choose_view(arguments, &request.view, error) &&
         draw(kind, &request, &figure, error);
}

static int
plot(int argc, char **argv, GError **error)
{
  Arguments arguments = {0};
  const GOptionEntry entries[] = {
      {"output", 'o', 0, G_OPTION_ARG_FILENAME, &arguments.output,
       "Write the figure to FILE; its suffix says how: .png, .svg, .pdf", "FILE"},
      {"terminal", 0, 0, G_OPTION_ARG_STRING, &arguments.terminal,
       "Draw as png, svg, pdf, or dumb: in text, here unless -o is given", "NAME"},
      {"size", 0, 0, G_OPTION_ARG_STRING, &arguments.size,
       "Width and height in pixels (default 1200x720), of dumb in characters (79x24)", "WxH"},
      {"step", 0, 0, G_OPTION_ARG_INT, &arguments.step,
       "Only that step (timeline, streams, lifetimes)", "N"},
      {"from", 0, 0, G_OPTION_ARG_STRING, &arguments.from,
       "Only from that time on: 1.25s, 350ms (timeline, streams)", "TIME"},
      {"to", 0, 0, G_OPTION_ARG_STRING, &arguments.to, "Only until that time (timeline, streams)",
       "TIME"},
      {"module", 0, 0, G_OPTION_ARG_STRING, &arguments.module,
       "The module or group whose lifetimes are drawn", "M"},
      {.long_name = NULL},
  };
  g_auto(GStrv) positionals = NULL;
  if (command_parse(&command_plot, argc, argv, entries, 2, -1, &positionals, error)) {
    const FigureKind *kind = figure_kind_find(positionals[0], error);
    if (kind)
      plot_inputs(kind, positionals + 1, &arguments, error);
  }
  arguments_clear(&arguments);
  return EXIT_ANSWER_YES;
}

const Command command_plot = {
    .name = "plot",
    .arguments = "timeline|streams|lifetimes|strategies|sweep|groups|collectives INPUT... -o FILE",
    .summary = "Draw a figure, with gnuplot",
    .run = plot,
};
