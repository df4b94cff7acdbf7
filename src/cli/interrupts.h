/* interrupts.h - SIGINT and SIGTERM as something to ask for, while there is work to bring to an
 * end. */
#ifndef HIGHWATER_CLI_INTERRUPTS_H
#define HIGHWATER_CLI_INTERRUPTS_H

#include <glib.h>
#include <signal.h>

/* While held, they wait. */
typedef struct {
  sigset_t before; /* blocked signals */
  int signal;      /* the one that came; 0: none */
} Interrupts;

/* In this thread, and those that it makes. */
void interrupts_hold(Interrupts *interrupts);
/* Has one come?  From then on a second one ends the program. */
gboolean interrupts_came(Interrupts *interrupts);
void interrupts_release(Interrupts *interrupts);

#endif
