/* fuzz_recording.c - any bytes as a recording; one that is accepted holds together. */
#include "fuzz.h"
#include "record/recording.h"

static void
check_ids(const Recording *recording)
{
  for (guint i = 0; i < recording->spans->len; i++) {
    const Span *span = &g_array_index(recording->spans, Span, i);
    recording_text(recording, span->name);
    recording_text(recording, span->module);
    recording_text(recording, span->communicator);
    g_assert(span->stream < recording->streams->len);
  }
  for (guint i = 0; i < recording->ranges->len; i++)
    recording_text(recording, g_array_index(recording->ranges, Range, i).name);
  recording_text(recording, recording->peak.phase);
  recording_text(recording, recording->peak.module);
  recording_text(recording, recording->out_of_memory.what);
}

static void
check_live(const Recording *recording)
{
  for (guint n = 0; n <= recording->memory->len; n++) {
    g_autoptr(GArray) live = recording_live(recording, n);
    g_assert(live->len <= n);
    for (guint i = 0; i < live->len; i++)
      g_assert(g_array_index(live, LiveTensor, i).category < CATEGORY_COUNT);
  }
}

int
LLVMFuzzerTestOneInput(const guint8 *data, gsize size)
{
  g_autoptr(GError) error = NULL;
  g_autoptr(Recording) recording = recording_parse("input", (const char *) data, size, &error);
  g_assert((recording == NULL) == (error != NULL));
  if (recording == NULL)
    return 0;
  const char *key;
  g_assert(recording_check(recording, &key) == NULL);
  check_ids(recording);
  check_live(recording);
  for (guint i = 0; i < recording->steps->len; i++)
    g_assert(recording_step_duration(recording, i) >= 0);
  return 0;
}
