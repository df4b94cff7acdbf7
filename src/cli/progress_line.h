/* progress_line.h - how far long work is, in the last line of a terminal. */
#ifndef HIGHWATER_CLI_PROGRESS_LINE_H
#define HIGHWATER_CLI_PROGRESS_LINE_H

#include <glib.h>

typedef struct {
  gboolean is_shown; /* standard error is a terminal */
  gint64 begun;      /* monotonic, microseconds */
  gint64 drawn;
} ProgressLine;

ProgressLine progress_line_begin(void);
/* done of all, `fresh` of them in this run; note (may be NULL) is put behind.  Drawn at most ten
 * times a second. */
void progress_line_draw(ProgressLine *line, guint done, guint fresh, guint all, const char *note);
/* Takes the line away. */
void progress_line_end(const ProgressLine *line);

/* The line without its terminal: "[====>     ]  12/64   23/s   2 s left   note".  seconds: since it
 * began.  Caller frees. */
char *progress_line_text(guint done, guint fresh, guint all, double seconds, const char *note);

#endif
