/* gnuplot.c - runs gnuplot on one of our figure scripts. */
#include "report/gnuplot.h"
#include "base/units.h"
#include <errno.h>
#include <fcntl.h>
#include <glib/gstdio.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const FigureTerminal terminals[] = {
    {"png", "pngcairo noenhanced", 1200, 720, 11, 0, FALSE},
    {"svg", "svg noenhanced dynamic", 1200, 720, 13, 0, FALSE},
    {"pdf", "pdfcairo noenhanced", 1200, 720, 11, 48, FALSE},
    {"dumb", "dumb noenhanced", 79, 24, 0, 0, TRUE},
};

static const char *
names_of_terminals(void)
{
  return "png, svg, pdf, dumb";
}

const FigureTerminal *
figure_terminal_find(const char *name, GError **error)
{
  for (guint i = 0; i < G_N_ELEMENTS(terminals); i++)
    if (g_str_equal(name, terminals[i].name))
      return &terminals[i];
  g_set_error(error, HIGHWATER_ERROR, HIGHWATER_ERROR_USAGE, "no terminal '%s'; there are %s", name,
              names_of_terminals());
  return NULL;
}

const FigureTerminal *
figure_terminal_of_file(const char *path, GError **error)
{
  for (guint i = 0; i < G_N_ELEMENTS(terminals); i++) {
    g_autofree char *suffix = g_strconcat(".", terminals[i].name, NULL);
    if (!terminals[i].is_text && g_str_has_suffix(path, suffix))
      return &terminals[i];
  }
  g_set_error(error, HIGHWATER_ERROR, HIGHWATER_ERROR_USAGE,
              "%s: the suffix of a figure is .png, .svg or .pdf", path);
  return NULL;
}

static const char *
gnuplot_program(void)
{
  const char *given = g_getenv("HIGHWATER_GNUPLOT");
  return given && *given ? given : GNUPLOT;
}

/* The folder of the scripts.  Caller frees. */
static char *
script_folder(const char *script)
{
  const char *folder = g_getenv("HIGHWATER_PLOTS");
  if (folder && *folder)
    return g_strdup(folder);
  char *installed = g_build_filename(PKGDATADIR, "plots", NULL);
  g_autofree char *file = g_build_filename(installed, script, NULL);
  if (g_file_test(file, G_FILE_TEST_EXISTS))
    return installed;
  g_free(installed);
  return g_build_filename(SOURCE_DIR, "plots", NULL);
}

/* A string as gnuplot reads it: in single quotes only the quote itself is special.  Caller frees.
 */
static char *
quote(const char *text)
{
  g_auto(GStrv) pieces = g_strsplit(text, "'", -1);
  g_autofree char *doubled = g_strjoinv("''", pieces);
  return g_strdup_printf("'%s'", doubled);
}

/* Small figures have smaller letters. */
static void
append_terminal(const Figure *figure, int width, int height, GString *out)
{
  enum { SMALL_WIDTH = 800 };
  const FigureTerminal *terminal = figure->terminal;
  g_string_append_printf(out, "set terminal %s size ", terminal->driver);
  if (terminal->pixels_a_cm > 0)
    g_string_append_printf(out, "%.2fcm,%.2fcm", (double) width / terminal->pixels_a_cm,
                           (double) height / terminal->pixels_a_cm);
  else
    g_string_append_printf(out, "%d,%d", width, height);
  if (terminal->font > 0)
    g_string_append_printf(out, " font 'sans,%d'",
                           width < SMALL_WIDTH ? terminal->font - 2 : terminal->font);
  g_string_append(out, "; ");
}

/* What the script finds set.  Caller frees. */
static char *
preamble(const Figure *figure, const char *plots, const char *output)
{
  int width = figure->width > 0 ? figure->width : figure->terminal->width;
  int height = figure->height > 0 ? figure->height : figure->terminal->height;
  g_autofree char *folder = quote(plots);
  /* Absolute: a name that begins with "|" would be a command. */
  g_autofree char *absolute = output ? g_canonicalize_filename(output, NULL) : NULL;
  g_autofree char *file = absolute ? quote(absolute) : g_strdup("");
  GString *text = g_string_new("set encoding utf8; ");
  append_terminal(figure, width, height, text);
  g_string_append_printf(text, "set output %s; plots = %s; figure_width = %d; figure_height = %d",
                         file, folder, width, height);
  for (guint i = 0; i < figure->texts->len; i++) {
    const FigureText *item = &g_array_index(figure->texts, FigureText, i);
    g_autofree char *value = quote(item->value);
    g_string_append_printf(text, "; %s = %s", item->name, value);
  }
  return g_string_free(text, FALSE);
}

/* gnuplot's complaint without its blank lines and the "^" that points into them. */
static char *
first_complaint(const char *text)
{
  g_auto(GStrv) lines = g_strsplit(text, "\n", -1);
  for (guint i = 0; lines[i]; i++) {
    const char *line = g_strstrip(lines[i]);
    const char *colon = strstr(line, ": ");
    if (*line && !g_str_equal(line, "^") && colon)
      return g_strdup(line);
  }
  return g_strdup("it ended without a message");
}

/* Runs it; what it draws on its standard output goes to ours. */
static gboolean
run(const Figure *figure, const char *output, GError **error)
{
  g_autofree char *file = g_strconcat(figure->script, ".gnuplot", NULL);
  g_autofree char *plots = script_folder(file);
  g_autofree char *settings = preamble(figure, plots, output);
  g_autofree char *script = g_build_filename(plots, file, NULL);
  const char *program = gnuplot_program();
  const char *argv[] = {program, "-e", settings, script, NULL};
  g_autofree char *drawn = NULL;
  g_autofree char *complaints = NULL;
  g_autoptr(GError) spawn_error = NULL;
  int status;
  if (!g_spawn_sync(NULL, (char **) (gpointer) argv, NULL, G_SPAWN_SEARCH_PATH, NULL, NULL, &drawn,
                    &complaints, &status, &spawn_error)) {
    g_set_error(error, HIGHWATER_ERROR, HIGHWATER_ERROR_INPUT,
                "%s: gnuplot cannot be started; install it or set HIGHWATER_GNUPLOT", program);
    return FALSE;
  }
  if (status != 0) {
    g_autofree char *complaint = first_complaint(complaints);
    g_set_error(error, HIGHWATER_ERROR, HIGHWATER_ERROR_OUTPUT, "%s: cannot be drawn: gnuplot: %s",
                figure->subject, complaint);
    return FALSE;
  }
  fputs(drawn, stdout);
  return TRUE;
}

static gboolean
fail(const char *path, GError **error)
{
  g_set_error(error, HIGHWATER_ERROR, HIGHWATER_ERROR_OUTPUT, "%s: cannot be written: %s", path,
              g_strerror(errno));
  return FALSE;
}

/* Draws beside the target, then renames: which would do away with a device or a pipe. */
static gboolean
draw_to_file(const Figure *figure, GError **error)
{
  struct stat there;
  if (g_stat(figure->output, &there) == 0 && !S_ISREG(there.st_mode)) {
    g_set_error(error, HIGHWATER_ERROR, HIGHWATER_ERROR_OUTPUT,
                "%s: cannot be written: it is there already and is no regular file",
                figure->output);
    return FALSE;
  }
  g_autofree char *temporary = g_strconcat(figure->output, ".XXXXXX", NULL);
  mode_t mask = umask(0);
  umask(mask);
  int fd = g_mkstemp_full(temporary, O_WRONLY, 0666 & ~mask);
  if (fd < 0)
    return fail(figure->output, error);
  close(fd);
  struct stat drawn;
  gboolean ok = run(figure, temporary, error);
  if (ok && (g_stat(temporary, &drawn) != 0 || drawn.st_size == 0)) {
    g_set_error(error, HIGHWATER_ERROR, HIGHWATER_ERROR_OUTPUT, "%s: gnuplot drew nothing",
                figure->output);
    ok = FALSE;
  }
  if (ok && g_rename(temporary, figure->output) != 0)
    ok = fail(figure->output, error);
  if (!ok)
    g_unlink(temporary);
  return ok;
}

gboolean
gnuplot_draw(const Figure *figure, GError **error)
{
  return figure->output ? draw_to_file(figure, error) : run(figure, NULL, error);
}
