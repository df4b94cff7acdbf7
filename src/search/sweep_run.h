/* sweep_run.h - tries the variants of a sweep that are not done yet, and keeps what comes of them.
 */
#ifndef HIGHWATER_SEARCH_SWEEP_RUN_H
#define HIGHWATER_SEARCH_SWEEP_RUN_H

#include "search/sweep_directory.h"

/* How far a sweep is. */
typedef struct {
  guint all;                /* variants */
  guint before;             /* of them done when it began */
  guint done;               /* of them done now, those included */
  const SweepVariant *best; /* that fits and costs least so far; NULL: none */
} SweepProgress;

/* Borrowed; each pointer may be NULL. */
typedef struct {
  int workers;               /* 0: as many as the machine has cores */
  SweepDirectory *directory; /* to keep results in */
  gboolean verifies;         /* executes the variants' schedules on numbers, too */
  gboolean has_evidence;     /* each variant's, too: needs a directory */
  void (*progress)(const SweepProgress *progress, gpointer user); /* after each variant */
  gboolean (*stops)(gpointer user); /* TRUE: no further variant is begun */
  gpointer user;
} SweepWatch;

/* Tries them, judges, and writes the directory's tables.  *is_complete: FALSE when it was stopped.
 * FALSE and error when something cannot be written. */
gboolean sweep_run(Sweep *sweep, const SweepRequest *request, const SweepWatch *watch,
                   gboolean *is_complete, GError **error);

#endif
