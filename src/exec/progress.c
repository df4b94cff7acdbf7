/* progress.c - what a device that never gets anywhere by itself has done. */
#include "exec/progress.h"

void
progress_init(Progress *progress, gboolean endless)
{
  *progress = (Progress){.endless = endless};
  if (endless)
    progress->points = g_hash_table_new_full(NULL, NULL, NULL, g_free);
}

void
progress_clear(Progress *progress)
{
  g_clear_pointer(&progress->points, g_hash_table_unref);
}

void
progress_record(Progress *progress, StreamId stream, SyncPoint *point)
{
  if (!progress->endless)
    return;
  Clock *clock = &progress->streams[stream];
  clock->at[stream]++;
  g_hash_table_insert(progress->points, point, g_memdup2(clock, sizeof(*clock)));
}

/* NULL for a point that was never recorded. */
static const Clock *
clock_of(const Progress *progress, SyncPoint *point)
{
  return progress->endless ? g_hash_table_lookup(progress->points, point) : NULL;
}

void
progress_wait(Progress *progress, StreamId stream, SyncPoint *point)
{
  const Clock *clock = clock_of(progress, point);
  if (clock != NULL)
    access_clock_join(&progress->streams[stream], clock);
}

void
progress_finish(Progress *progress, SyncPoint *point)
{
  const Clock *clock = clock_of(progress, point);
  if (clock != NULL)
    access_clock_join(&progress->done, clock);
}

gboolean
progress_is_done(const Progress *progress, SyncPoint *point)
{
  if (!progress->endless)
    return sync_point_fired(point);
  const Clock *clock = clock_of(progress, point);
  for (int i = 0; clock != NULL && i < STREAM_COUNT; i++)
    if (clock->at[i] > progress->done.at[i])
      return FALSE;
  return clock != NULL;
}
