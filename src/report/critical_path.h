/* critical_path.h - what each stretch of a step hangs on, from its end back to its beginning. */
#ifndef HIGHWATER_REPORT_CRITICAL_PATH_H
#define HIGHWATER_REPORT_CRITICAL_PATH_H

#include "record/recording.h"

typedef enum {
  PATH_COMPUTE,    /* work on the compute stream */
  PATH_OTHER,      /* kernels and copies on other streams */
  PATH_COLLECTIVE, /* a collective runs */
  PATH_RANKS,      /* a collective waits for other ranks */
  PATH_HOST,       /* the host issues what comes next */
  PATH_HOST_CALL,  /* the host is in a call of its own time: cudaMalloc, cudaFree */
  PATH_KINDS
} PathKind;

/* A stretch of time in which one thing after another of a kind ended just when the next could
 * begin.
 */
typedef struct {
  SimTime start, end;
  PathKind kind;
  int stream;    /* index into stream names; of the host -1 */
  gint32 name;   /* string ids of the last span in it: what, on whose behalf, */
  gint32 module; /* and over which communicator; -1: none */
  gint32 communicator;
  int spans; /* how many spans it joins; 0: the host's time between them */
} PathStretch;

typedef struct {
  GArray *stretches;        /* PathStretch, in order of time; they cover the step without gaps */
  SimTime time[PATH_KINDS]; /* sums; together the step's duration */
  SimTime contention;       /* of it: what spans on the path took longer than alone */
  SimTime queued; /* of it: all-gathers that a collective from another stream stood behind in their
                     communicator's queue, though the step hung on that one */
} CriticalPath;

/* Of a step: its spans, from start (the end of the step before) to end.  compute_stream: index. */
CriticalPath *critical_path_new(const Recording *recording, int step, int compute_stream,
                                SimTime start, SimTime end);
void critical_path_free(CriticalPath *path);
G_DEFINE_AUTOPTR_CLEANUP_FUNC(CriticalPath, critical_path_free)

/* How long the number `most` of the longest stretches is: those at least as long are about as many.
 * 0 when there are no more. */
SimTime critical_path_length_of(const CriticalPath *path, guint most);

/* "compute", "other", "collective", "ranks", "host", "host_call". */
const char *path_kind_name(PathKind kind);

#endif
