/* workers.h - pieces of work done on as many cores as there are. */
#ifndef HIGHWATER_SEARCH_WORKERS_H
#define HIGHWATER_SEARCH_WORKERS_H

#include <glib.h>

/* Borrowed; done and stops may be NULL. */
typedef struct {
  int workers; /* 0: as many as the machine has cores */
  /* Does piece i; in a thread of its own, at the same time as others. */
  void (*work)(guint i, gpointer user);
  /* In the caller's thread, in the order in which they are done. */
  void (*done)(guint i, gpointer user);
  /* Asked about ten times a second, in the caller's thread; TRUE: no further piece is begun. */
  gboolean (*stops)(gpointer user);
  gpointer user;
} Workers;

/* Does so many pieces, and returns how many are done: all of them unless it was stopped.  Those
 * that were begun by then end, and are done. */
guint workers_run(guint count, const Workers *workers);

#endif
