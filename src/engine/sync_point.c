/* sync_point.c - firing, and the ring of streams that wait. */
#include "engine/engine_private.h"

SyncPoint *
sync_point_new(Engine *engine, const char *prefix, gint64 number)
{
  SyncPoint *point = pool_take(&engine->points);

  *point = (SyncPoint){.time = NOT_FIRED, .prefix = prefix, .number = number};
  return point;
}

gboolean
sync_point_fired(const SyncPoint *point)
{
  return point->time != NOT_FIRED;
}

SimTime
sync_point_time(const SyncPoint *point)
{
  g_assert(sync_point_fired(point));
  return point->time;
}

void
sync_point_reset(SyncPoint *point)
{
  g_assert(point->last_waiter == NULL);
  point->time = NOT_FIRED;
}

void
sync_point_add_waiter(SyncPoint *point, Stream *stream)
{
  Stream *last = point->last_waiter;

  if (last != NULL) {
    stream->next_waiter = last->next_waiter;
    last->next_waiter = stream;
  } else {
    stream->next_waiter = stream;
  }
  point->last_waiter = stream;
}

void
sync_point_fire(Engine *engine, SyncPoint *point)
{
  Stream *last = point->last_waiter;
  Stream *stream = last;

  g_assert(!sync_point_fired(point));
  point->time = engine_time(engine);
  point->last_waiter = NULL;
  if (last == NULL)
    return;
  do {
    stream = stream->next_waiter;
    stream_wake(stream);
  } while (stream != last);
}
