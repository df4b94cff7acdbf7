/* report_output.c - how a report looks where it is read. */
#include "cli/report_output.h"
#include <unistd.h>

static gboolean
wants_colour(void)
{
  const char *terminal = g_getenv("TERM");
  const char *no_colour = g_getenv("NO_COLOR");
  return isatty(STDOUT_FILENO) && terminal && !g_str_equal(terminal, "dumb") &&
         !(no_colour && *no_colour);
}

TextStyle
report_style(gboolean verbose, gboolean plain)
{
  return (TextStyle){
      .verbose = verbose,
      .colour = !plain && wants_colour(),
      .ascii = !g_get_charset(NULL),
  };
}
