/* oom_search.h - which allocation of a plan a message about memory running out can be. */
#ifndef HIGHWATER_SEARCH_OOM_SEARCH_H
#define HIGHWATER_SEARCH_OOM_SEARCH_H

#include "import/oom_message.h"
#include "report/host_places.h"
#include "simulate/run_simulation.h"

/* An allocation that asks cudaMalloc for what the message says. */
typedef struct {
  guint event; /* of run.recording's memory */
  gint32 module, what;
  guint8 category;
  HostPlace place;
  gint64 requested_bytes, segment_bytes;
  gint64 allocated, reserved; /* before it, in a simulation without limit */
  gint64 distance; /* bytes between `allocated` and what the message can mean; 0: it agrees, or the
                      message does not say */
  gboolean fails;  /* a simulation with the memory that the message tells of runs out here */
  gboolean named;  /* the message names it */
} OomCandidate;

typedef struct {
  RunResult run;            /* without limit */
  GArray *candidates;       /* OomCandidate, likeliest first: those that fail, that are named, then
                               by distance and in order of events */
  guint allocations;        /* of all sizes, in the construction and all steps */
  OomFigure limit;          /* bytes of segments that the message leaves to the allocator */
  gboolean simulated_limit; /* it was simulated: */
  gboolean fits;            /* and memory does not run out; TRUE also where it was not */
  char *runs_out;           /* one line: where it runs out in the middle of `limit`; NULL: not */
} OomSearch;

/* Simulates the request without a limit, and with those that the message can mean.  NULL and error
 * when the inputs do not go together. */
OomSearch *oom_search_new(const RunRequest *request, const OomMessage *message, GError **error);
void oom_search_free(OomSearch *search);
G_DEFINE_AUTOPTR_CLEANUP_FUNC(OomSearch, oom_search_free)

/* "more than 96.0 MiB and at most 98.0 MiB": requests that become such a segment; NULL: none of
 * that size is asked for.  Caller frees. */
char *oom_requests(const OomFigure *tried);

#endif
