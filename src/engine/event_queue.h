/* event_queue.h - pending events in the total order (time, order of insertion).
 *
 * A 4-ary heap of 16-byte events, plus a lane for those that are due at the very time of the event
 * taken last: they need no heap, since each is later in the order than everything already there.
 * Chains of zero duration thus cost O(1). */
#ifndef HIGHWATER_ENGINE_EVENT_QUEUE_H
#define HIGHWATER_ENGINE_EVENT_QUEUE_H

#include <glib.h>

#include "base/units.h"

/* Whom an event concerns: a number that the caller knows how to read, below 2^EVENT_TARGET_BITS.
 * The rest of an id counts insertions: room for 10^12 of them. */
#define EVENT_TARGET_BITS 24
#define EVENT_TARGETS (1u << EVENT_TARGET_BITS)

/* One pending event.  `id` grows with every insertion and is never 0: it breaks ties of time, and
 * two events never share one. */
typedef struct {
  SimTime time;
  guint64 id; /* insertion number, then target */
} Event;
G_STATIC_ASSERT(sizeof(Event) == 16);

/* Fields are private. */
typedef struct {
  Event *heap; /* heap[1..4] fill one cache line, and so does every other node's set of children */
  gpointer heap_block;
  gsize heap_count, heap_capacity;
  gboolean root_taken; /* heap[0] was given out and waits to be overwritten */
  Event *lane;         /* ring buffer; its capacity is a power of two */
  gsize lane_first, lane_count, lane_capacity;
  SimTime now;
  guint64 next_id;
} EventQueue;

void event_queue_init(EventQueue *queue);
void event_queue_clear(EventQueue *queue);

/* Inserts an event at a time that is not before event_queue_now().  Returns its id. */
guint64 event_queue_push(EventQueue *queue, SimTime time, guint target);

/* Takes the earliest event out; of equal times, the one inserted first.  FALSE when none is left.
 */
gboolean event_queue_pop(EventQueue *queue, Event *event);

/* Time of the earliest event, SIM_TIME_MAX when there is none. */
SimTime event_queue_next_time(const EventQueue *queue);

/* Moves the clock forward to a time that no pending event precedes. */
void event_queue_advance(EventQueue *queue, SimTime time);

/* Time of the event taken last, or advanced to; at first 0. */
static inline SimTime
event_queue_now(const EventQueue *queue)
{
  return queue->now;
}

static inline guint
event_target(const Event *event)
{
  return (guint) (event->id & (EVENT_TARGETS - 1));
}

#endif
