/* engine.h - a discrete-event engine: a clock, streams of work, sync points, rendezvous and shared links.
 *
 * Time is integer nanoseconds; events are ordered by (time, sequence number), so the same calls give the same history.
 * A Stream runs its items in submission order, one at a time.  An item never starts before its `not_before` time: the
 * party that submits may run ahead of the clock.  Objects belong to the engine and are freed with it. */
#ifndef HIGHWATER_ENGINE_ENGINE_H
#define HIGHWATER_ENGINE_ENGINE_H

#include <glib.h>

#include "base/units.h"

typedef struct _Engine Engine;
typedef struct _Stream Stream;
typedef struct _SyncPoint SyncPoint;
typedef struct _Rendezvous Rendezvous;
typedef struct _SharedLink SharedLink;
typedef struct _RateGroup RateGroup;

typedef void (*EngineCallback)(gpointer user, guint64 tag);

Engine *engine_new(void);
void engine_free(Engine *engine);
G_DEFINE_AUTOPTR_CLEANUP_FUNC(Engine, engine_free)
/* Current time; during a callback, the time of its event. */
SimTime engine_now(const Engine *engine);
/* Calls callback(user, tag) at time (not before now). */
void engine_call_at(Engine *engine, SimTime time, EngineCallback callback, gpointer user, guint64 tag);
/* Runs until no event is left. */
void engine_run(Engine *engine);
/* Runs until the point has fired, or no event is left.  TRUE when it fired. */
gboolean engine_run_until(Engine *engine, const SyncPoint *point);
/* Events processed so far. */
guint64 engine_event_count(const Engine *engine);
/* When engine_run() ended with items that never ran: one line for each party that still waits, naming for what and who
 * never came ("compute waits for sync point 'gathered 12'", "rendezvous 'reduce 7' lacks party 3").  Empty string when
 * nothing is stuck.  Caller frees. */
char *engine_stuck_report(const Engine *engine);

/* ---- work ---- */

/* What runs on a stream.  `started` and `finished` (both may be NULL) are called with user and tag when the work begins
 * and ends; engine_now() is that time. */
typedef struct {
  SimTime duration;         /* at full rate, ns */
  RateGroup *group;         /* NULL: always at full rate */
  int rate_class;           /* which kind of work of the group it is */
  SharedLink *link;         /* NULL: none.  Otherwise `link_bytes` are moved over it after `duration` (its latency) */
  double link_bytes;
  Rendezvous *rendezvous;   /* NULL: none.  Otherwise begins when the last party's item has come to its turn */
  EngineCallback started, finished;
  gpointer user;
  guint64 tag;
} Work;

/* name is copied and appears in reports. */
Stream *stream_new(Engine *engine, const char *name);
/* Appends work. */
void stream_submit(Stream *stream, SimTime not_before, const Work *work);
/* Appends "fire point when everything before it on this stream is done". */
void stream_record(Stream *stream, SimTime not_before, SyncPoint *point);
/* Appends "go on only when point has fired". */
void stream_wait(Stream *stream, SimTime not_before, SyncPoint *point);

/* ---- sync points: fire once ---- */

SyncPoint *sync_point_new(Engine *engine, const char *name);
gboolean sync_point_fired(const SyncPoint *point);
/* Time it fired; valid when fired. */
SimTime sync_point_time(const SyncPoint *point);
/* Makes it unfired again, for reuse by a later record; nothing may be waiting for it. */
void sync_point_reset(SyncPoint *point);

/* ---- rendezvous: work on several streams that begins when the last party arrives ----
 * Each party submits one Work with this rendezvous; all begin together.  The duration is that of the longest. */
Rendezvous *rendezvous_new(Engine *engine, const char *name, int parties);

/* ---- rates: work that runs slower or faster depending on what else runs ----
 * Whenever work of the group starts or ends, rate(user, rate_class, running) is asked again for every class:
 * running[c] is how many works of class c run now; the answer, > 0, is the fraction of full speed. */
typedef double (*RateFunction)(gpointer user, int rate_class, const int *running);
RateGroup *rate_group_new(Engine *engine, int classes, RateFunction rate, gpointer user);

/* ---- shared links: flows over the same link share its capacity max-min fairly ---- */
/* capacity in bytes per second; flow_limit (bytes per second, <= 0: none) is the most that one flow can take. */
SharedLink *shared_link_new(Engine *engine, const char *name, double capacity, double flow_limit);
/* Bytes moved so far. */
double shared_link_bytes(const SharedLink *link);

#endif
