/* gnuplot.h - runs gnuplot on one of our figure scripts. */
#ifndef HIGHWATER_REPORT_GNUPLOT_H
#define HIGHWATER_REPORT_GNUPLOT_H

#include <glib.h>

/* A way to draw. */
typedef struct {
  const char *name;     /* "png": also the suffix of files, and --terminal's argument */
  const char *terminal; /* gnuplot's `set terminal` */
  gboolean is_text;     /* drawn on standard output when no file is named */
} FigureTerminal;

/* The terminal of that name, or an error that lists them. */
const FigureTerminal *figure_terminal_find(const char *name, GError **error);
/* The terminal that the file's suffix names. */
const FigureTerminal *figure_terminal_of_file(const char *path, GError **error);

typedef struct {
  const char *script; /* "timeline": plots/timeline.gnuplot */
  const char *table;  /* file that it reads */
  const char *title;
  const char *settings; /* further statements for gnuplot before the script, or NULL */
  const FigureTerminal *terminal;
  const char *output; /* file, or NULL: standard output */
} Figure;

/* Draws; the file appears whole or not at all.  Scripts are in $HIGHWATER_PLOTS, else the installed
 * PKGDATADIR/plots, else the source tree; gnuplot is $HIGHWATER_GNUPLOT, else what configure found.
 * Errors: gnuplot missing or its first complaint, output not writable. */
gboolean gnuplot_draw(const Figure *figure, GError **error);

#endif
