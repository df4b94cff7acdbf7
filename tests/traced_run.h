/* traced_run.h - a run of the network "tiny" as a Chrome trace, read back: what tests look for in
 * the exported file. */
#ifndef HIGHWATER_TESTS_TRACED_RUN_H
#define HIGHWATER_TESTS_TRACED_RUN_H

#include <cjson/cJSON.h>

#include "simulate/run_simulation.h"

typedef struct {
  const char *plan;   /* a preset */
  const char *set[6]; /* "mesh.shard=4", ... */
  int steps;
  gint64 memory_limit; /* 0: the device's */
} TracedCase;

/* An event; texts are borrowed, "" and -1 where it has none.  Times are ns. */
typedef struct {
  char type;
  const char *category, *name;
  gint64 start, end;
  int process, thread;
  const cJSON *arguments;
  gint64 id; /* of a flow */
} TracedEvent;

typedef struct {
  RunResult run;
  GString *text;
  cJSON *root;
  GArray *events; /* TracedEvent, as in the file */
} TracedRun;

/* A refusal fails the test. */
TracedRun *traced_run_new(const TracedCase *c);
void traced_run_free(TracedRun *run);
G_DEFINE_AUTOPTR_CLEANUP_FUNC(TracedRun, traced_run_free)

/* Events of a document, which is borrowed. */
GArray *traced_events(const cJSON *root);

/* An argument: "" or -1 when there is none. */
const char *traced_text(const TracedEvent *event, const char *key);
gint64 traced_number(const TracedEvent *event, const char *key);

/* What the trace processor of Perfetto would complain of: slices of a track that overlap in part or
 * are stacked higher than it allows, flows whose ends are in no slice, that end before they begin,
 * have no beginning or two.  Fails the test with the first one.  Returns how many flows lead from
 * slices of one name to slices of the other (NULL: any). */
guint traced_flows_between(const GArray *events, const char *kind, const char *from,
                           const char *to);

#endif
