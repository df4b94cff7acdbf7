/* recording.c - the value that every report reads: its strings, step durations and who is alive. */
#include "record/recording.h"

#include <string.h>

Recording *
recording_new(void)
{
  Recording *recording = g_new0(Recording, 1);
  recording->title = g_strdup("");
  recording->strings = g_ptr_array_new_with_free_func(g_free);
  recording->string_ids = g_hash_table_new(g_str_hash, g_str_equal);
  recording->streams = g_ptr_array_new_with_free_func(g_free);
  recording->spans = g_array_new(FALSE, FALSE, sizeof(Span));
  recording->memory = g_array_new(FALSE, FALSE, sizeof(MemoryEvent));
  recording->segments = g_array_new(FALSE, FALSE, sizeof(SegmentEvent));
  recording->completions = g_array_new(FALSE, FALSE, sizeof(CompletionEvent));
  recording->ranges = g_array_new(FALSE, FALSE, sizeof(Range));
  recording->range_events = g_array_new(FALSE, FALSE, sizeof(RangeEvents));
  recording->steps = g_array_new(FALSE, FALSE, sizeof(StepRecord));
  recording->beyond = g_array_new(FALSE, FALSE, sizeof(BeyondRecord));
  recording->waits = g_array_new(FALSE, FALSE, sizeof(Wait));
  recording->cached = g_array_new(FALSE, FALSE, sizeof(gint64));
  recording->peak.live = g_array_new(FALSE, FALSE, sizeof(LiveTensor));
  recording->peak.phase = recording->peak.module = -1;
  recording->out_of_memory.phase = recording->out_of_memory.module = -1;
  recording->out_of_memory.what = -1;
  recording->capacity_bytes = G_MAXINT64;
  return recording;
}

void
recording_free(Recording *recording)
{
  if (recording == NULL)
    return;
  g_free(recording->title);
  g_free(recording->stuck);
  g_hash_table_unref(recording->string_ids);
  g_ptr_array_unref(recording->strings);
  g_ptr_array_unref(recording->streams);
  g_array_unref(recording->spans);
  g_array_unref(recording->memory);
  g_array_unref(recording->segments);
  g_array_unref(recording->completions);
  g_array_unref(recording->ranges);
  g_array_unref(recording->range_events);
  g_array_unref(recording->steps);
  g_array_unref(recording->beyond);
  g_array_unref(recording->waits);
  g_array_unref(recording->cached);
  g_array_unref(recording->peak.live);
  g_free(recording);
}

gint32
recording_string(Recording *recording, const char *text)
{
  gpointer known = g_hash_table_lookup(recording->string_ids, text);
  if (known != NULL)
    return GPOINTER_TO_INT(known) - 1;
  char *copy = g_strdup(text);
  g_ptr_array_add(recording->strings, copy);
  g_hash_table_insert(recording->string_ids, copy, GUINT_TO_POINTER(recording->strings->len));
  return (gint32) recording->strings->len - 1;
}

gint32
recording_find_string(const Recording *recording, const char *text)
{
  return GPOINTER_TO_INT(g_hash_table_lookup(recording->string_ids, text)) - 1;
}

const char *
recording_text(const Recording *recording, gint32 id)
{
  if (id < 0)
    return NULL;
  g_assert((guint) id < recording->strings->len);
  return g_ptr_array_index(recording->strings, id);
}

SimTime
recording_step_duration(const Recording *recording, guint i)
{
  const StepRecord *step = &g_array_index(recording->steps, StepRecord, i);
  SimTime before = i == 0 ? step->start : step[-1].end;
  for (guint k = 0; i > 0 && k < recording->beyond->len; k++) {
    const BeyondRecord *beyond = &g_array_index(recording->beyond, BeyondRecord, k);
    if (g_array_index(recording->ranges, Range, beyond->range).step == step[-1].index)
      before = MAX(before, beyond->end);
  }
  return step->end - before;
}

gboolean
recording_is_beyond(const Recording *recording, gint32 range)
{
  for (guint i = 0; i < recording->beyond->len; i++)
    if (g_array_index(recording->beyond, BeyondRecord, i).range == range)
      return TRUE;
  return FALSE;
}

/* Events in order of size, largest first; equal ones in order of time. */
static int
compare_size(gconstpointer a, gconstpointer b, gpointer user)
{
  const MemoryEvent *events = user;
  guint i = *(const guint *) a, j = *(const guint *) b;
  if (events[i].block_bytes != events[j].block_bytes)
    return events[i].block_bytes > events[j].block_bytes ? -1 : 1;
  return i < j ? -1 : i > j;
}

GArray *
recording_live(const Recording *recording, guint n)
{
  const MemoryEvent *events = (const MemoryEvent *) (gpointer) recording->memory->data;
  g_assert(n <= recording->memory->len);
  /* alive[a]: allocation a lives; born: the events that began allocations, in order. */
  g_autofree gboolean *alive = g_new0(gboolean, n + 1);
  for (guint i = 0; i < n; i++)
    alive[events[i].allocation] = events[i].requested_bytes > 0;
  g_autoptr(GArray) born = g_array_new(FALSE, FALSE, sizeof(guint));
  for (guint i = 0; i < n; i++)
    if (events[i].requested_bytes > 0 && alive[events[i].allocation])
      g_array_append_val(born, i);
  g_array_sort_with_data(born, compare_size, (gpointer) recording->memory->data);

  GArray *live = g_array_sized_new(FALSE, FALSE, sizeof(LiveTensor), born->len);
  for (guint i = 0; i < born->len; i++) {
    const MemoryEvent *event = &events[g_array_index(born, guint, i)];
    LiveTensor tensor = {.bytes = event->block_bytes,
                         .category = event->category,
                         .module = event->module,
                         .what = event->what};
    g_array_append_val(live, tensor);
  }
  return live;
}
