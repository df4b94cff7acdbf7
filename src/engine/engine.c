/* engine.c - the clock: takes events in order and hands them to whom they concern. */
#include "engine/engine_private.h"

Engine *
engine_new(void)
{
  Engine *engine = g_new0(Engine, 1);

  event_queue_init(&engine->queue);
  engine->streams = g_ptr_array_new();
  engine->links = g_ptr_array_new();
  engine->groups = g_ptr_array_new();
  engine->meetings = g_ptr_array_new();
  engine->calls = g_array_new(FALSE, FALSE, sizeof(Call));
  engine->free_calls = g_array_new(FALSE, FALSE, sizeof(guint));
  pool_init(&engine->points, sizeof(SyncPoint));
  pool_init(&engine->chunks, sizeof(ItemChunk));
  pool_init(&engine->stream_pool, sizeof(Stream));
  return engine;
}

static void
free_all(GPtrArray *objects, GDestroyNotify free_object)
{
  g_ptr_array_set_free_func(objects, free_object);
  g_ptr_array_free(objects, TRUE);
}

void
engine_free(Engine *engine)
{
  if (engine == NULL)
    return;
  event_queue_clear(&engine->queue);
  free_all(engine->streams, (GDestroyNotify) stream_clear);
  free_all(engine->links, (GDestroyNotify) shared_link_free);
  free_all(engine->groups, (GDestroyNotify) rate_group_free);
  free_all(engine->meetings, (GDestroyNotify) rendezvous_free);
  g_array_free(engine->calls, TRUE);
  g_array_free(engine->free_calls, TRUE);
  pool_clear(&engine->points);
  pool_clear(&engine->chunks);
  pool_clear(&engine->stream_pool);
  g_free(engine);
}

SimTime
engine_now(const Engine *engine)
{
  return event_queue_now(&engine->queue);
}

guint64
engine_event_count(const Engine *engine)
{
  return engine->event_count;
}

char *
engine_label(const char *prefix, gint64 number)
{
  if (number < 0)
    return g_strdup(prefix);
  return g_strdup_printf("%s %" G_GINT64_FORMAT, prefix, number);
}

/* ---- calls ---- */

void
engine_call_at(Engine *engine, SimTime time, EngineCallback callback, gpointer user, guint64 tag)
{
  Call call = {callback, user, tag};
  guint slot = engine->calls->len;

  if (engine->free_calls->len > 0) {
    slot = g_array_index(engine->free_calls, guint, engine->free_calls->len - 1);
    g_array_set_size(engine->free_calls, engine->free_calls->len - 1);
    g_array_index(engine->calls, Call, slot) = call;
  } else {
    g_array_append_val(engine->calls, call);
  }
  engine_push(engine, time, EVENT_CALL, slot);
}

static void
run_call(Engine *engine, guint slot)
{
  /* A copy: the callback may ask for more calls, which may move the table. */
  Call call = g_array_index(engine->calls, Call, slot);

  g_array_append_val(engine->free_calls, slot);
  call.callback(call.user, call.tag);
}

/* ---- running ---- */

/* Groups first: a rate limits the transfers of its works. */
static void
settle(Engine *engine)
{
  RateGroup *group = engine->unsettled_groups;
  SharedLink *link;

  engine->unsettled_groups = NULL;
  for (; group != NULL; group = group->next_unsettled)
    rate_group_settle(group);

  link = engine->unsettled_links;
  engine->unsettled_links = NULL;
  for (; link != NULL; link = link->next_unsettled)
    shared_link_settle(link);
}

/* Makes sure that the next event is known: what has changed at this instant takes effect before the
 * clock moves on. */
static inline void
settle_before_moving(Engine *engine)
{
  gboolean unsettled = engine->unsettled_groups != NULL || engine->unsettled_links != NULL;

  if (G_UNLIKELY(unsettled) && event_queue_next_time(&engine->queue) > engine_now(engine))
    settle(engine);
}

/* Processes the next event, if there is one. */
static inline gboolean
step(Engine *engine)
{
  Event event;
  guint index;

  settle_before_moving(engine);
  if (!event_queue_pop(&engine->queue, &event))
    return FALSE;
  index = event_target(&event) >> EVENT_KIND_BITS;
  engine->event_count++;
  switch ((EventKind) (event_target(&event) & ((1 << EVENT_KIND_BITS) - 1))) {
  case EVENT_WAKE:
    stream_advance(g_ptr_array_index(engine->streams, index));
    break;
  case EVENT_ALARM:
    if (!stream_alarm(g_ptr_array_index(engine->streams, index), event.id))
      engine->event_count--;
    break;
  case EVENT_CALL:
    run_call(engine, index);
    break;
  }
  return TRUE;
}

gboolean
engine_step(Engine *engine)
{
  return step(engine);
}

SimTime
engine_next_time(Engine *engine)
{
  settle_before_moving(engine);
  return event_queue_next_time(&engine->queue);
}

void
engine_run(Engine *engine)
{
  while (step(engine))
    ;
}

gboolean
engine_run_until(Engine *engine, const SyncPoint *point)
{
  while (!sync_point_fired(point) && step(engine))
    ;
  return sync_point_fired(point);
}

void
engine_run_to(Engine *engine, SimTime time)
{
  for (;;) {
    settle_before_moving(engine);
    if (event_queue_next_time(&engine->queue) > time)
      break;
    step(engine);
  }
  event_queue_advance(&engine->queue, time);
}
