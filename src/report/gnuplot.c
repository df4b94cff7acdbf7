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
    {"png", "pngcairo noenhanced size 1200,720 font 'sans,11'", FALSE},
    {"svg", "svg noenhanced size 1200,720 dynamic font 'sans,13'", FALSE},
    {"pdf", "pdfcairo noenhanced size 25cm,15cm font 'sans,11'", FALSE},
    {"dumb", "dumb noenhanced size 79,24", TRUE},
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

/* Caller frees. */
static char *
script_path(const char *name)
{
  g_autofree char *file = g_strconcat(name, ".gnuplot", NULL);
  const char *folder = g_getenv("HIGHWATER_PLOTS");
  if (folder && *folder)
    return g_build_filename(folder, file, NULL);
  char *installed = g_build_filename(PKGDATADIR, "plots", file, NULL);
  if (g_file_test(installed, G_FILE_TEST_EXISTS))
    return installed;
  g_free(installed);
  return g_build_filename(SOURCE_DIR, "plots", file, NULL);
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

/* What the script finds set.  Caller frees. */
static char *
preamble(const Figure *figure, const char *output)
{
  g_autofree char *table = quote(figure->table);
  g_autofree char *title = quote(figure->title);
  g_autofree char *file = output ? quote(output) : NULL;
  return g_strdup_printf(
      "set encoding utf8; set terminal %s; set output %s; table = %s; title = %s; %s",
      figure->terminal->terminal, file ? file : "", table, title,
      figure->settings ? figure->settings : "");
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
  g_autofree char *settings = preamble(figure, output);
  g_autofree char *script = script_path(figure->script);
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
                figure->table, complaint);
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
