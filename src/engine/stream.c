/* stream.c - items of a stream in their turn, and the phases of the work that runs. */
#include "engine/engine_private.h"

/* Longest time that a phase may be estimated at: about 146 years. */
#define LONGEST_PHASE ((double) (G_MAXINT64 / 2))

Stream *
stream_new(Engine *engine, const char *name)
{
  Stream *stream = g_new0(Stream, 1);

  stream->engine = engine;
  stream->name = g_strdup(name);
  stream->index = engine->streams->len;
  g_assert(stream->index < EVENT_TARGETS >> EVENT_KIND_BITS);
  g_ptr_array_add(engine->streams, stream);
  return stream;
}

void
stream_free(Stream *stream)
{
  g_free(stream->name);
  g_free(stream);
}

const char *
stream_name(const Stream *stream)
{
  return stream->name;
}

gboolean
stream_is_idle(const Stream *stream)
{
  return stream->state == STREAM_IDLE;
}

/* ---- queue ---- */

static inline void
wake_at(Stream *stream, SimTime time)
{
  stream->state = STREAM_WAKING;
  engine_push(stream->engine, time, EVENT_WAKE, stream->index);
}

void
stream_wake(Stream *stream)
{
  wake_at(stream, engine_time(stream->engine));
}

/* After an item was added: an idle stream has to be told. */
static inline void
added(Stream *stream, SimTime not_before)
{
  if (stream->state == STREAM_IDLE)
    wake_at(stream, MAX(not_before, engine_time(stream->engine)));
}

void
stream_submit(Stream *stream, SimTime not_before, const Work *work)
{
  Item *item = item_queue_add(&stream->queue, &stream->engine->chunks, ITEM_WORK);

  g_assert(work->duration >= 0 && work->link_bytes >= 0);
  item->not_before = not_before;
  ((WorkItem *) item)->work = *work;
  added(stream, not_before);
}

static inline void
add_point(Stream *stream, SimTime not_before, ItemKind kind, SyncPoint *point)
{
  Item *item = item_queue_add(&stream->queue, &stream->engine->chunks, kind);

  item->not_before = not_before;
  ((PointItem *) item)->point = point;
  added(stream, not_before);
}

void
stream_record(Stream *stream, SimTime not_before, SyncPoint *point)
{
  add_point(stream, not_before, ITEM_RECORD, point);
}

void
stream_wait(Stream *stream, SimTime not_before, SyncPoint *point)
{
  add_point(stream, not_before, ITEM_WAIT, point);
}

/* Passes a record or a wait.  FALSE when it has to wait. */
static inline gboolean
pass_point(Stream *stream, const Item *item)
{
  SyncPoint *point = ((const PointItem *) item)->point;

  if (item->kind == ITEM_RECORD) {
    sync_point_fire(stream->engine, point);
  } else if (point->time == NOT_FIRED) {
    stream->state = STREAM_AT_POINT;
    sync_point_add_waiter(point, stream);
    return FALSE;
  }
  item_queue_remove(&stream->queue, &stream->engine->chunks);
  return TRUE;
}

void
stream_advance(Stream *stream)
{
  const Item *item;

  stream->state = STREAM_ADVANCING;
  while ((item = item_queue_first(&stream->queue)) != NULL) {
    if (item->not_before > engine_time(stream->engine)) {
      wake_at(stream, item->not_before);
      return;
    }
    if (item->kind == ITEM_WORK) {
      const Work *work = stream_work(stream);

      if (work->rendezvous != NULL)
        rendezvous_arrive(work->rendezvous, stream);
      else
        stream_begin_work(stream, work->duration);
      return;
    }
    if (!pass_point(stream, item))
      return;
  }
  stream->state = STREAM_IDLE;
}

/* ---- the running work ---- */

/* The phase ends at end as things stand. */
static inline void
set_end(Stream *stream, SimTime end)
{
  stream->end = end;
  if (stream->alarm_id != 0 && stream->alarm_time <= end)
    return;
  stream->alarm_time = end;
  stream->alarm_id = engine_push(stream->engine, end, EVENT_ALARM, stream->index);
}

void
stream_set_speed(Stream *stream, double speed)
{
  Progress *progress = &stream->progress;
  SimTime now = engine_time(stream->engine);
  double left = progress->left - progress->speed * (double) (now - progress->since);
  double needed;

  g_assert(speed > 0);
  progress->left = MAX(left, 0);
  progress->since = now;
  progress->speed = speed;
  needed = progress->left / speed;
  g_assert(needed < LONGEST_PHASE);
  set_end(stream, now + (SimTime) (needed + 0.5));
}

static void
begin_phase(Stream *stream, Phase phase, double amount)
{
  stream->phase = phase;
  stream->alarm_id = 0;
  stream->progress = (Progress){.left = amount, .since = engine_time(stream->engine)};
}

/* What a work did is done, unless it has still to wait for the other parties. */
static void
work_over(Stream *stream, const Work *work)
{
  stream->phase = PHASE_OVER;
  if (work->rendezvous != NULL)
    rendezvous_party_over(work->rendezvous);
  else
    stream_finish_work(stream);
}

static void
phase_over(Stream *stream)
{
  const Work *work = stream_work(stream);

  if (stream->phase == PHASE_TRANSFER) {
    shared_link_remove(work->link, stream);
  } else if (work->link != NULL && work->link_bytes > 0) {
    begin_phase(stream, PHASE_TRANSFER, work->link_bytes);
    shared_link_add(work->link, stream);
    return;
  }
  work_over(stream, work);
}

gboolean
stream_alarm(Stream *stream, guint64 id)
{
  if (id != stream->alarm_id)
    return FALSE;
  stream->alarm_id = 0;
  if (stream->end > engine_time(stream->engine)) {
    set_end(stream, stream->end);
    return FALSE;
  }
  phase_over(stream);
  return TRUE;
}

void
stream_begin_work(Stream *stream, SimTime duration)
{
  const Work *work = stream_work(stream);

  stream->state = STREAM_RUNNING;
  if (work->group != NULL) {
    begin_phase(stream, PHASE_DURATION, (double) duration);
    stream->rate = 0;
    rate_group_add(work->group, stream);
  } else {
    stream->phase = PHASE_DURATION;
    stream->alarm_id = 0;
    stream->rate = 1;
    set_end(stream, engine_time(stream->engine) + duration);
  }
  if (work->started != NULL)
    work->started(work->user, work->tag);
}

void
stream_finish_work(Stream *stream)
{
  const Work *work = stream_work(stream);
  EngineCallback finished = work->finished;
  gpointer user = work->user;
  guint64 tag = work->tag;

  if (work->group != NULL)
    rate_group_remove(work->group, stream);
  item_queue_remove(&stream->queue, &stream->engine->chunks);
  stream->state = STREAM_ADVANCING;
  if (finished != NULL)
    finished(user, tag);
  stream_advance(stream);
}
