/* progress_line.c - how far long work is, in the last line of a terminal. */
#include "cli/progress_line.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define BAR_WIDTH 24
#define DRAW_EVERY 100000 /* microseconds */

ProgressLine
progress_line_begin(void)
{
  const char *terminal = g_getenv("TERM");
  gboolean can_rewrite = terminal != NULL && strcmp(terminal, "dumb") != 0;
  return (ProgressLine){.is_shown = isatty(STDERR_FILENO) && can_rewrite,
                        .begun = g_get_monotonic_time()};
}

static void
append_rate(GString *text, double rate)
{
  if (rate >= 1)
    g_string_append_printf(text, "  %.0f/s", rate);
  else
    g_string_append_printf(text, "  %.1f s each", 1 / rate);
}

static void
append_left(GString *text, double seconds)
{
  if (seconds >= 3600)
    g_string_append_printf(text, "  %.1f h left", seconds / 3600);
  else if (seconds >= 120)
    g_string_append_printf(text, "  %.0f min left", seconds / 60);
  else
    g_string_append_printf(text, "  %.0f s left", seconds);
}

char *
progress_line_text(guint done, guint fresh, guint all, double seconds, const char *note)
{
  GString *text = g_string_new("[");
  guint filled = all > 0 ? (guint) ((guint64) BAR_WIDTH * done / all) : BAR_WIDTH;
  for (guint i = 0; i < BAR_WIDTH; i++)
    g_string_append_c(text, i < filled ? '=' : i == filled ? '>' : ' ');
  g_string_append_printf(text, "]  %u/%u", done, all);
  if (fresh > 0 && seconds > 0) {
    append_rate(text, fresh / seconds);
    append_left(text, (all - done) * seconds / fresh);
  }
  if (note != NULL)
    g_string_append_printf(text, "  %s", note);
  return g_string_free(text, FALSE);
}

void
progress_line_draw(ProgressLine *line, guint done, guint fresh, guint all, const char *note)
{
  gint64 now = g_get_monotonic_time();
  if (!line->is_shown || (done < all && now - line->drawn < DRAW_EVERY))
    return;
  g_autofree char *text =
      progress_line_text(done, fresh, all, (double) (now - line->begun) / 1e6, note);
  line->drawn = now;
  fprintf(stderr, "\r\033[K%s", text);
  fflush(stderr);
}

void
progress_line_end(const ProgressLine *line)
{
  if (line->is_shown)
    fputs("\r\033[K", stderr);
}
