/* rate_group.c - which works of a group run, and how fast that lets each of them be. */
#include "engine/engine_private.h"

#include <string.h>

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
  group->rates = g_new0(double, classes);
  g_ptr_array_add(engine->groups, group);
  return group;
}

void
rate_group_free(RateGroup *group)
{
  g_free(group->running);
  g_free(group->settled);
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

void
rate_group_add(RateGroup *group, Stream *stream)
{
  int rate_class = stream_work(stream)->rate_class;

  g_assert(rate_class >= 0 && rate_class < group->classes);
  group->running[rate_class]++;
  stream->group_next = NULL;
  stream->group_before = group->last;
  if (group->last != NULL)
    group->last->group_next = stream;
  else
    group->first = stream;
  group->last = stream;
  unsettle(group);
}

void
rate_group_remove(RateGroup *group, Stream *stream)
{
  group->running[stream_work(stream)->rate_class]--;
  if (stream->group_before != NULL)
    stream->group_before->group_next = stream->group_next;
  else
    group->first = stream->group_next;
  if (stream->group_next != NULL)
    stream->group_next->group_before = stream->group_before;
  else
    group->last = stream->group_before;
  unsettle(group);
}

static void
ask_for_rates(RateGroup *group)
{
  gsize bytes = sizeof(int) * (gsize) group->classes;

  if (memcmp(group->running, group->settled, bytes) == 0)
    return;
  memcpy(group->settled, group->running, bytes);
  for (int c = 0; c < group->classes; c++) {
    group->rates[c] = group->rate(group->user, c, group->running);
    g_assert(group->rates[c] > 0);
  }
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
  group->unsettled = FALSE;
  ask_for_rates(group);
  for (Stream *stream = group->first; stream != NULL; stream = stream->group_next)
    set_rate(stream, group->rates[stream_work(stream)->rate_class]);
}
