/* engine.h - a discrete-event engine: a clock, streams of work, sync points, rendezvous, rates and
 * shared links.
 *
 * Time is integer nanoseconds; events are ordered by (time, order of insertion), so the same calls
 * give the same history.  Callbacks come from the functions that run the engine and from no other.
 * Objects belong to the engine and are freed with it.  A wrong call (a time in the past, a party
 * that comes twice, a rate of zero) is a broken invariant and aborts. */
#ifndef HIGHWATER_ENGINE_ENGINE_H
#define HIGHWATER_ENGINE_ENGINE_H

#include <glib.h>

#include "base/units.h"
#include "engine/rate_group.h"
#include "engine/rendezvous.h"
#include "engine/shared_link.h"
#include "engine/stream.h"
#include "engine/sync_point.h"

typedef struct _Engine Engine;

Engine *engine_new(void);
void engine_free(Engine *engine);
G_DEFINE_AUTOPTR_CLEANUP_FUNC(Engine, engine_free)

/* Current time, ns; during a callback, the time of its event. */
SimTime engine_now(const Engine *engine);

/* Calls callback(user, tag) at time, which is not before now. */
void engine_call_at(Engine *engine, SimTime time, EngineCallback callback, gpointer user,
                    guint64 tag);

/* Runs one event.  FALSE when none is left. */
gboolean engine_step(Engine *engine);
/* When the next event is due; SIM_TIME_MAX when none is left. */
SimTime engine_next_time(Engine *engine);

/* Runs until no event is left. */
void engine_run(Engine *engine);

/* Runs until the point has fired, or no event is left.  TRUE when it fired. */
gboolean engine_run_until(Engine *engine, const SyncPoint *point);

/* Runs everything due up to and including time, which is not before now, and moves the clock there:
 * what a party that looks without waiting would see at that time. */
void engine_run_to(Engine *engine, SimTime time);

/* Events processed so far. */
guint64 engine_event_count(const Engine *engine);

/* When a run ended with items that never came to their turn or never ended: one line for each
 * stream that waits, naming for what, and who never came:
 *   "compute waits for sync point 'gathered 12', which nothing records"
 *   "compute waits for sync point 'gathered 12', which copy would record"
 *   "link 0 waits in rendezvous 'reduce 7', which lacks parties 1-2, 5"
 * Empty when nothing is stuck.  Caller frees. */
char *engine_stuck_report(const Engine *engine);

#endif
