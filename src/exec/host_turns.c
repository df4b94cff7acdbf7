/* host_turns.c - hosts as fibers, and who of them goes on next. */
#include "exec/host_turns.h"

#include "exec/fiber.h"

struct _HostTurn {
  HostTurns *turns;
  Fiber *fiber;
  Stream *stream; /* its waits, so that the engine knows of them */
  guint number;
  guint64 waits;     /* how often it has waited */
  gboolean is_awake; /* FALSE: it waits */
  SimTime time;      /* at which it wants to look */
};

struct _HostTurns {
  Engine *engine;
  GPtrArray *all;     /* HostTurn * */
  GPtrArray *ready;   /* of them, those that can go on now */
  GPtrArray *looking; /* a heap by time and number: those that want to look */
  guint waiting;      /* how many wait for points */
};

static void
turn_free(gpointer data)
{
  HostTurn *turn = data;
  fiber_free(turn->fiber);
  g_free(turn);
}

HostTurns *
host_turns_new(Engine *engine)
{
  HostTurns *turns = g_new0(HostTurns, 1);
  turns->engine = engine;
  turns->all = g_ptr_array_new_with_free_func(turn_free);
  turns->ready = g_ptr_array_new();
  turns->looking = g_ptr_array_new();
  return turns;
}

void
host_turns_free(HostTurns *turns)
{
  g_ptr_array_unref(turns->ready);
  g_ptr_array_unref(turns->looking);
  g_ptr_array_unref(turns->all);
  g_free(turns);
}

HostTurn *
host_turns_add(HostTurns *turns, const char *name, void (*body)(gpointer user), gpointer user)
{
  HostTurn *turn = g_new0(HostTurn, 1);
  *turn = (HostTurn){.turns = turns,
                     .fiber = fiber_new(body, user),
                     .stream = stream_new(turns->engine, name),
                     .number = turns->all->len};
  g_ptr_array_add(turns->all, turn);
  return turn;
}

/* ---- the heap of those that want to look ---- */

static HostTurn *
at(const GPtrArray *heap, guint i)
{
  return g_ptr_array_index(heap, i);
}

static gboolean
comes_before(const HostTurn *a, const HostTurn *b)
{
  return a->time != b->time ? a->time < b->time : a->number < b->number;
}

static void
exchange(GPtrArray *heap, guint i, guint k)
{
  gpointer kept = heap->pdata[i];
  heap->pdata[i] = heap->pdata[k];
  heap->pdata[k] = kept;
}

static void
heap_push(GPtrArray *heap, HostTurn *turn)
{
  g_ptr_array_add(heap, turn);
  for (guint i = heap->len - 1; i > 0 && comes_before(at(heap, i), at(heap, (i - 1) / 2));
       i = (i - 1) / 2)
    exchange(heap, i, (i - 1) / 2);
}

static HostTurn *
heap_pop(GPtrArray *heap)
{
  HostTurn *first = at(heap, 0);
  heap->pdata[0] = heap->pdata[heap->len - 1];
  g_ptr_array_set_size(heap, (gint) heap->len - 1);
  for (guint i = 0, child = 1; child < heap->len; i = child, child = 2 * i + 1) {
    if (child + 1 < heap->len && comes_before(at(heap, child + 1), at(heap, child)))
      child++;
    if (!comes_before(at(heap, child), at(heap, i)))
      break;
    exchange(heap, i, child);
  }
  return first;
}

/* ---- who goes on ---- */

/* Moves the clock to the time of the first that looks, as far as no other host wakes up before.
 * That one can go on then. */
static void
serve_first_look(HostTurns *turns)
{
  SimTime time = at(turns->looking, 0)->time;
  while (turns->ready->len == 0 && engine_next_time(turns->engine) <= time)
    engine_step(turns->engine);
  if (turns->ready->len > 0)
    return;
  engine_run_to(turns->engine, time);
  g_ptr_array_add(turns->ready, heap_pop(turns->looking));
}

/* No host is behind any more: the clock may run until one wakes up.  When nothing is left to happen
 * all that still wait are told. */
static void
serve_waiting(HostTurns *turns)
{
  while (turns->ready->len == 0 && engine_step(turns->engine))
    ;
  for (guint i = 0; turns->ready->len == 0 && i < turns->all->len; i++)
    if (!fiber_is_over(at(turns->all, i)->fiber))
      fiber_resume(at(turns->all, i)->fiber);
}

void
host_turns_run(HostTurns *turns)
{
  for (guint i = turns->all->len; i > 0; i--)
    g_ptr_array_add(turns->ready, at(turns->all, i - 1));
  for (;;) {
    if (turns->ready->len > 0)
      fiber_resume(
          ((HostTurn *) g_ptr_array_steal_index(turns->ready, turns->ready->len - 1))->fiber);
    else if (turns->looking->len > 0)
      serve_first_look(turns);
    else if (turns->waiting > 0)
      serve_waiting(turns);
    else
      break;
  }
}

/* ---- from inside ---- */

void
host_turn_look(HostTurn *turn, SimTime now)
{
  turn->time = now;
  heap_push(turn->turns->looking, turn);
  fiber_pause(turn->fiber);
}

static void
wake(gpointer user, guint64 tag)
{
  HostTurn *turn = user;
  if (turn->is_awake || turn->waits != tag)
    return; /* it was told that this would never come */
  turn->is_awake = TRUE;
  g_ptr_array_add(turn->turns->ready, turn);
}

gboolean
host_turn_wait(HostTurn *turn, SimTime now, SyncPoint *point)
{
  if (sync_point_fired(point))
    return TRUE;
  Work waking = {.finished = wake, .user = turn, .tag = ++turn->waits};
  stream_wait(turn->stream, now, point);
  stream_submit(turn->stream, now, &waking);
  turn->turns->waiting++;
  turn->is_awake = FALSE;
  fiber_pause(turn->fiber);
  turn->is_awake = TRUE;
  turn->turns->waiting--;
  return sync_point_fired(point);
}
