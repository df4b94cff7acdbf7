/* fuzz_memory_snapshot.c - any bytes as a pickle, a memory snapshot, a Recording of it and that
 * written again. */
#include "fuzz.h"
#include "import/snapshot_recording.h"
#include "report/memory_snapshot.h"

/* A Recording that came of a snapshot is one: it holds together and can be written and read. */
static void
check_recording(const Recording *recording, const AllocatorConfig *config)
{
  const char *key;
  g_assert(recording_check(recording, &key) == NULL);
  gint64 peak = 0;
  for (guint i = 0; i < recording->memory->len; i++) {
    const MemoryEvent *event = &g_array_index(recording->memory, MemoryEvent, i);
    g_assert(event->stream < recording->streams->len && event->category < CATEGORY_COUNT);
    g_assert(event->allocated_after >= 0 && event->reserved_after >= 0);
    peak = MAX(peak, event->allocated_after);
  }
  g_assert(recording->peak.allocated <= peak);
  g_autoptr(GByteArray) bytes = memory_snapshot(recording, config);
  g_autoptr(ByteSource) source = byte_source_from_memory("written", bytes->data, bytes->len);
  g_autoptr(SnapshotFile) again = snapshot_file_read(source, 0, NULL);
  g_assert(again || recording->memory->len + recording->segments->len == 0);
}

int
LLVMFuzzerTestOneInput(const guint8 *data, gsize size)
{
  g_autoptr(ByteSource) source = byte_source_from_memory("input", data, size);
  g_autoptr(GError) error = NULL;
  g_autoptr(SnapshotFile) file = snapshot_file_read(source, -1, &error);
  g_assert((file == NULL) == (error != NULL));
  if (!file)
    return 0;
  g_autoptr(Recording) recording = snapshot_recording(file, &error);
  g_assert((recording == NULL) == (error != NULL));
  if (recording)
    check_recording(recording, &file->config);
  return 0;
}
