/* engine_private.h - the structs behind the engine's types, and what its files need of each other.
 */
#ifndef HIGHWATER_ENGINE_ENGINE_PRIVATE_H
#define HIGHWATER_ENGINE_ENGINE_PRIVATE_H

#include "engine/engine.h"
#include "engine/event_queue.h"
#include "engine/item_queue.h"
#include "engine/pool.h"

/* ---- events: a kind, and an index into the engine's table of that kind ---- */

typedef enum {
  EVENT_WAKE,  /* the stream's next item may come to its turn */
  EVENT_ALARM, /* what the stream runs may have ended */
  EVENT_CALL,  /* a call asked for with engine_call_at() */
} EventKind;
#define EVENT_KIND_BITS 2

typedef struct {
  EngineCallback callback;
  gpointer user;
  guint64 tag;
} Call;

struct _Engine {
  EventQueue queue;
  guint64 event_count;
  GPtrArray *streams;               /* Stream * */
  GPtrArray *links;                 /* SharedLink * */
  GPtrArray *groups;                /* RateGroup * */
  GPtrArray *meetings;              /* Rendezvous * */
  GArray *calls;                    /* Call, in slots that are used again */
  GArray *free_calls;               /* guint: slots without a pending call */
  Pool points, chunks, stream_pool; /* SyncPoint, ItemChunk, Stream */
  /* Groups and links whose running works have changed at this instant.  They are settled once,
   * before the clock moves: only then do rates matter. */
  RateGroup *unsettled_groups;
  SharedLink *unsettled_links;
};

static inline SimTime
engine_time(const Engine *engine)
{
  return event_queue_now(&engine->queue);
}

/* Returns the event's id. */
static inline guint64
engine_push(Engine *engine, SimTime time, EventKind kind, guint index)
{
  return event_queue_push(&engine->queue, time, index << EVENT_KIND_BITS | kind);
}

/* "PREFIX NUMBER", or "PREFIX" when number < 0.  Caller frees. */
char *engine_label(const char *prefix, gint64 number);

/* ---- streams ---- */

typedef enum {
  STREAM_IDLE,       /* no items */
  STREAM_WAKING,     /* an EVENT_WAKE is pending */
  STREAM_ADVANCING,  /* inside stream_advance(), or in a callback on the way to it */
  STREAM_AT_POINT,   /* its first item waits for a sync point */
  STREAM_AT_MEETING, /* its first item waits in a rendezvous */
  STREAM_RUNNING,    /* its first item is a work that runs */
} StreamState;

typedef enum {
  PHASE_DURATION,
  PHASE_TRANSFER,
  PHASE_OVER, /* done, but other parties of the rendezvous are not */
} Phase;

/* How far a work has come in its phase.  `left` is exact as of `since`; only `end` is rounded. */
typedef struct {
  double left;  /* ns at full rate, or bytes */
  double speed; /* how much of it a nanosecond takes away */
  SimTime since;
} Progress;

struct _Stream {
  Engine *engine;
  ItemQueue queue;
  guint index;  /* in engine->streams */
  guint8 state; /* StreamState */
  guint8 phase; /* Phase, while running */
  /* When the running phase ends as things stand, and the pending alarm for it.  An alarm may ring
   * early: works that are slowed down keep theirs and set a new one when it rings. */
  SimTime end, alarm_time;
  guint64 alarm_id;
  Progress progress;
  double rate;                       /* of its group; 0 until the group is settled */
  Stream *next_waiter;               /* at the same sync point */
  Stream *group_next, *group_before; /* works of the same group */
  Stream *link_next, *link_before;   /* transfers over the same link */
  double share;                      /* of the link, bytes per ns: scratch of its settling */
  char *name;
} __attribute__((aligned(64))); /* what a plain work needs is in the first two cache lines */

static inline const Work *
stream_work(const Stream *stream)
{
  return &((const WorkItem *) (gconstpointer) item_queue_first(&stream->queue))->work;
}

/* Frees what the stream holds, not the stream. */
void stream_clear(Stream *stream);
/* Has the stream look at its first item at the current time. */
void stream_wake(Stream *stream);
/* Handles EVENT_WAKE. */
void stream_advance(Stream *stream);
/* Handles EVENT_ALARM; FALSE when the alarm was no longer the stream's own. */
gboolean stream_alarm(Stream *stream, guint64 id);
/* Starts the work that is the stream's first item; duration replaces the work's own. */
void stream_begin_work(Stream *stream, SimTime duration);
/* Ends it and goes on to the next item. */
void stream_finish_work(Stream *stream);
/* From now on a nanosecond takes `speed` away of what is left of the phase. */
void stream_set_speed(Stream *stream, double speed);

/* ---- sync points ---- */

#define NOT_FIRED ((SimTime) -1)

struct _SyncPoint {
  SimTime time; /* NOT_FIRED until it fires */
  const char *prefix;
  gint64 number;
  Stream *last_waiter; /* the waiters form a ring, in order of arrival, that the last one closes */
};
G_STATIC_ASSERT(sizeof(SyncPoint) == 32);

void sync_point_fire(Engine *engine, SyncPoint *point);
void sync_point_add_waiter(SyncPoint *point, Stream *stream);

/* ---- rendezvous ---- */

struct _Rendezvous {
  Engine *engine;
  const char *prefix;
  gint64 number;
  int parties, arrived, over;
  SimTime duration; /* the longest of those arrived */
  Stream **party;   /* NULL: has not arrived */
  SimTime *since;   /* when each arrived last */
  SimTime *waited;  /* for others, all times together */
};

/* The stream's first item has come to its turn. */
void rendezvous_arrive(Rendezvous *rendezvous, Stream *stream);
/* The stream's own part is done. */
void rendezvous_party_over(Rendezvous *rendezvous);
void rendezvous_free(Rendezvous *rendezvous);

/* ---- rate groups ---- */

struct _RateGroup {
  Engine *engine;
  RateFunction rate;
  gpointer user;
  int classes;
  int *running; /* works of each class */
  int total;    /* of all classes */
  int *settled; /* running, as it was when rates were last asked for */
  int *touched; /* classes whose works began or ended since then, each once */
  int n_touched;
  gboolean *is_touched;
  double *rates; /* of the classes that ran when they were last asked for; 0 at first */
  Stream *first, *last;
  gboolean unsettled;
  RateGroup *next_unsettled;
};

void rate_group_add(RateGroup *group, Stream *stream);
void rate_group_remove(RateGroup *group, Stream *stream);
/* Asks for rates again if what runs has changed and re-times the works whose rate did. */
void rate_group_settle(RateGroup *group);
void rate_group_free(RateGroup *group);

/* ---- shared links ---- */

struct _SharedLink {
  Engine *engine;
  double capacity, flow_limit; /* bytes per ns */
  double finished_bytes;       /* of transfers that are over */
  Stream *first, *last;
  int flows;
  gboolean unsettled;
  SharedLink *next_unsettled;
  char *name;
};

/* Begins and ends the transfer of the stream's running work. */
void shared_link_add(SharedLink *link, Stream *stream);
void shared_link_remove(SharedLink *link, Stream *stream);
/* The limit of a transfer has changed. */
void shared_link_unsettle(SharedLink *link);
/* Shares the capacity out again and re-times the transfers whose share changed. */
void shared_link_settle(SharedLink *link);
void shared_link_free(SharedLink *link);

#endif
