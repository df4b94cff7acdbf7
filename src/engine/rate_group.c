/* rate_group.c - which works of a group run, and how fast that lets each of them be. */
#include "engine/engine_private.h"

RateGroup *
rate_group_new(Engine *engine, int classes, RateFunction rate, gpointer user)
{
  RateGroup *group = g_new0(RateGroup, 1);

  g_assert(classes >= 1);
  group->engine = engine;
  group->rate = rate;
  group->user = user;
  group->classes = classes;
  group->running = g_new0(int, classes);
  group->settled = g_new0(int, classes);
  group->touched = g_new(int, classes);
  group->is_touched = g_new0(gboolean, classes);
  group->rates = g_new0(double, classes);
  g_ptr_array_add(engine->groups, group);
  return group;
}

void
rate_group_free(RateGroup *group)
{
  g_free(group->running);
  g_free(group->settled);
  g_free(group->touched);
  g_free(group->is_touched);
  g_free(group->rates);
  g_free(group);
}

static void
unsettle(RateGroup *group)
{
  if (group->unsettled)
    return;
  group->unsettled = TRUE;
  group->next_unsettled = group->engine->unsettled_groups;
  group->engine->unsettled_groups = group;
}

/* A work of that class begins (1) or ends (-1). */
static void
count(RateGroup *group, int rate_class, int change)
{
  group->running[rate_class] += change;
  group->total += change;
  if (!group->is_touched[rate_class]) {
    group->is_touched[rate_class] = TRUE;
    group->touched[group->n_touched++] = rate_class;
  }
  unsettle(group);
}

void
rate_group_add(RateGroup *group, Stream *stream)
{
  int rate_class = stream_work(stream)->rate_class;

  g_assert(rate_class >= 0 && rate_class < group->classes);
  stream->group_next = NULL;
  stream->group_before = group->last;
  if (group->last != NULL)
    group->last->group_next = stream;
  else
    group->first = stream;
  group->last = stream;
  count(group, rate_class, 1);
}

void
rate_group_remove(RateGroup *group, Stream *stream)
{
  if (stream->group_before != NULL)
    stream->group_before->group_next = stream->group_next;
  else
    group->first = stream->group_next;
  if (stream->group_next != NULL)
    stream->group_next->group_before = stream->group_before;
  else
    group->last = stream->group_before;
  count(group, stream_work(stream)->rate_class, -1);
}

/* Whether other numbers of works run than when rates were last asked for. */
static gboolean
has_changed(RateGroup *group)
{
  gboolean changed = FALSE;

  for (int i = 0; i < group->n_touched; i++) {
    int rate_class = group->touched[i];

    changed |= group->running[rate_class] != group->settled[rate_class];
    group->settled[rate_class] = group->running[rate_class];
    group->is_touched[rate_class] = FALSE;
  }
  group->n_touched = 0;
  return changed;
}

static void
set_rate(Stream *stream, double rate)
{
  if (stream->rate == rate)
    return;
  stream->rate = rate;
  if (stream->phase == PHASE_DURATION)
    stream_set_speed(stream, rate);
  else if (stream->phase == PHASE_TRANSFER)
    shared_link_unsettle(stream_work(stream)->link);
}

void
rate_group_settle(RateGroup *group)
{
  gboolean changed = has_changed(group);

  group->unsettled = FALSE;
  for (Stream *stream = group->first; stream != NULL; stream = stream->group_next) {
    int rate_class = stream_work(stream)->rate_class;

    if (changed) {
      group->rates[rate_class] = group->rate(group->user, rate_class, group->running, group->total);
      g_assert(group->rates[rate_class] > 0);
    }
    set_rate(stream, group->rates[rate_class]);
  }
}
