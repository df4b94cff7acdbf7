/* rendezvous.c - parties arrive, begin together and end together. */
#include "engine/engine_private.h"

Rendezvous *
rendezvous_new(Engine *engine, const char *prefix, gint64 number, int parties)
{
  Rendezvous *rendezvous = g_new0(Rendezvous, 1);

  g_assert(parties >= 1);
  rendezvous->engine = engine;
  rendezvous->prefix = prefix;
  rendezvous->number = number;
  rendezvous->parties = parties;
  rendezvous->party = g_new0(Stream *, parties);
  rendezvous->since = g_new0(SimTime, parties);
  rendezvous->waited = g_new0(SimTime, parties);
  g_ptr_array_add(engine->meetings, rendezvous);
  return rendezvous;
}

void
rendezvous_free(Rendezvous *rendezvous)
{
  g_free(rendezvous->party);
  g_free(rendezvous->since);
  g_free(rendezvous->waited);
  g_free(rendezvous);
}

void
rendezvous_arrive(Rendezvous *rendezvous, Stream *stream)
{
  const Work *work = stream_work(stream);

  g_assert(work->party >= 0 && work->party < rendezvous->parties);
  g_assert(rendezvous->party[work->party] == NULL);
  rendezvous->party[work->party] = stream;
  rendezvous->since[work->party] = engine_time(rendezvous->engine);
  rendezvous->duration = MAX(rendezvous->duration, work->duration);
  stream->state = STREAM_AT_MEETING;
  if (++rendezvous->arrived < rendezvous->parties)
    return;
  for (int i = 0; i < rendezvous->parties; i++) {
    rendezvous->waited[i] += engine_time(rendezvous->engine) - rendezvous->since[i];
    stream_begin_work(rendezvous->party[i], rendezvous->duration);
  }
}

SimTime
rendezvous_arrived(const Rendezvous *rendezvous, int party)
{
  return rendezvous->since[party];
}

SimTime
rendezvous_waited(const Rendezvous *rendezvous, int party)
{
  return rendezvous->waited[party];
}

void
rendezvous_party_over(Rendezvous *rendezvous)
{
  if (++rendezvous->over < rendezvous->parties)
    return;
  rendezvous->arrived = rendezvous->over = 0;
  rendezvous->duration = 0;
  /* A party that goes on may arrive for the next time at once: its place is free by then. */
  for (int i = 0; i < rendezvous->parties; i++) {
    Stream *stream = rendezvous->party[i];

    rendezvous->party[i] = NULL;
    stream_finish_work(stream);
  }
}
