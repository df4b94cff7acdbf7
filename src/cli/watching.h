/* watching.h - long work seen from the command line: a progress line, and an end when a signal
 * comes. */
#ifndef HIGHWATER_CLI_WATCHING_H
#define HIGHWATER_CLI_WATCHING_H

#include "cli/interrupts.h"
#include "cli/progress_line.h"

typedef struct {
  Interrupts interrupts;
  ProgressLine line;
} Watching;

void watching_begin(Watching *watching);
/* Has a signal come?  Of type gboolean (*)(gpointer), as work asks it. */
gboolean watching_stops(gpointer watching);
/* Takes the line away and lets signals through. */
void watching_end(Watching *watching);
/* The exit status of a program that the signal ended, as shells report it. */
int watching_status(const Watching *watching);

#endif
