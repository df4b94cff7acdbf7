/* watching.c - long work seen from the command line: a progress line, and an end when a signal
 * comes. */
#include "cli/watching.h"

#define STATUS_OF_SIGNAL 128

void
watching_begin(Watching *watching)
{
  watching->line = progress_line_begin();
  interrupts_hold(&watching->interrupts);
}

gboolean
watching_stops(gpointer watching)
{
  return interrupts_came(&((Watching *) watching)->interrupts);
}

void
watching_end(Watching *watching)
{
  interrupts_release(&watching->interrupts);
  progress_line_end(&watching->line);
}

int
watching_status(const Watching *watching)
{
  return STATUS_OF_SIGNAL + watching->interrupts.signal;
}
