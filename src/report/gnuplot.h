/* gnuplot.h - runs gnuplot on one of our figure scripts. */
#ifndef HIGHWATER_REPORT_GNUPLOT_H
#define HIGHWATER_REPORT_GNUPLOT_H

#include <glib.h>

/* A way to draw. */
typedef struct {
  const char *name;   /* "png": also the suffix of files, and --terminal's argument */
  const char *driver; /* of gnuplot, with options */
  int width, height;  /* when not asked for: pixels; characters of text */
  int font;           /* size of its letters, 0: has none */
  int pixels_a_cm;    /* of paper; 0: the driver counts pixels itself */
  gboolean is_text;   /* drawn on standard output when no file is named */
} FigureTerminal;

/* The terminal of that name, or an error that lists them. */
const FigureTerminal *figure_terminal_find(const char *name, GError **error);
/* The terminal that the file's suffix names. */
const FigureTerminal *figure_terminal_of_file(const char *path, GError **error);

/* What a script finds set: a string variable. */
typedef struct {
  char *name, *value;
} FigureText;

typedef struct {
  const char *script;  /* "timeline": plots/timeline.gnuplot */
  const char *subject; /* what is drawn, for messages: "run/timeline.tsv" */
  const GArray *texts; /* FigureText */
  const FigureTerminal *terminal;
  int width, height;  /* 0: as the terminal has it */
  const char *output; /* file, or NULL: standard output */
} Figure;

/* Draws; the file appears whole or not at all.  Scripts are in $HIGHWATER_PLOTS, else the installed
 * PKGDATADIR/plots, else the source tree; gnuplot is $HIGHWATER_GNUPLOT, else what configure found.
 * The script finds besides its texts: `plots`, the folder of the scripts, figure_width and
 * figure_height.  Errors: gnuplot missing or its first complaint, output not writable. */
gboolean gnuplot_draw(const Figure *figure, GError **error);

#endif
