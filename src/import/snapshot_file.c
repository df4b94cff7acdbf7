/* snapshot_file.c - a snapshot as a value: which device, made from the pickle, freed. */
#include "import/snapshot_file.h"

#include "import/snapshot_file_internal.h"

/* Snapshots with many frames are large. */
#define SNAPSHOT_MAX_BYTES ((guint64) 1 << 30)

/* A device that was out of memory had this much, if it had room for what is reserved. */
static void
find_limit(SnapshotFile *file)
{
  gint64 reserved = 0;
  if (file->config.memory_limit != G_MAXINT64)
    return;
  for (guint i = 0; i < file->segments->len; i++)
    reserved += g_array_index(file->segments, SnapshotSegment, i).bytes;
  for (guint i = 0; i < file->entries->len; i++) {
    const SnapshotEntry *entry = &g_array_index(file->entries, SnapshotEntry, i);
    if (entry->action == TRACE_OUT_OF_MEMORY)
      file->config.memory_limit = reserved + entry->device_free;
  }
}

static void
label_clear(gpointer data)
{
  SnapshotLabel *label = data;
  g_free(label->what);
  g_free(label->module);
  g_free(label->phase);
}

static void
annotation_clear(gpointer data)
{
  g_free(((SnapshotAnnotation *) data)->name);
}

static SnapshotFile *
file_new(const char *name, int device)
{
  SnapshotFile *file = g_new0(SnapshotFile, 1);
  file->name = g_strdup(name);
  file->device = device;
  file->config = allocator_config_default();
  file->entries = g_array_new(FALSE, FALSE, sizeof(SnapshotEntry));
  file->segments = g_array_new(FALSE, FALSE, sizeof(SnapshotSegment));
  file->blocks = g_array_new(FALSE, FALSE, sizeof(SnapshotBlock));
  file->labels = g_array_new(FALSE, FALSE, sizeof(SnapshotLabel));
  g_array_set_clear_func(file->labels, label_clear);
  file->annotations = g_array_new(FALSE, FALSE, sizeof(SnapshotAnnotation));
  g_array_set_clear_func(file->annotations, annotation_clear);
  return file;
}

void
snapshot_file_free(SnapshotFile *file)
{
  if (!file)
    return;
  g_array_unref(file->entries);
  g_array_unref(file->segments);
  g_array_unref(file->blocks);
  g_array_unref(file->labels);
  g_array_unref(file->annotations);
  g_free(file->name);
  g_free(file);
}

static int
busiest_device(const PickleValue *traces)
{
  guint busiest = 0;
  for (guint i = 1; i < pickle_length(traces); i++)
    if (pickle_length(pickle_item(traces, i)) > pickle_length(pickle_item(traces, busiest)))
      busiest = i;
  return (int) busiest;
}

/* A device that has neither a history nor segments is no device of this snapshot. */
static gboolean
check_device(const SnapshotFile *file, int n_traces, GError **error)
{
  if (file->entries->len > 0 || file->segments->len > 0)
    return TRUE;
  g_set_error(error, HIGHWATER_ERROR, HIGHWATER_ERROR_INPUT,
              "%s: device %d has neither a history nor segments (of devices 0..%d)", file->name,
              file->device, MAX(n_traces - 1, 0));
  return FALSE;
}

static gboolean
read_document(SnapshotReader *reader, const PickleValue *root, int device)
{
  const PickleValue *traces = pickle_get(root, "device_traces");
  const PickleValue *segments = pickle_get(root, "segments");
  SnapshotFile *file = reader->file;
  if (!traces || traces->kind != PICKLE_LIST || !segments || segments->kind != PICKLE_LIST) {
    g_set_error(reader->error, HIGHWATER_ERROR, HIGHWATER_ERROR_INPUT,
                "%s: not a memory snapshot: lists 'segments' and 'device_traces' are needed",
                file->name);
    return FALSE;
  }
  file->device = device >= 0 ? device : busiest_device(traces);
  guint n = pickle_length(traces);
  const PickleValue *trace =
      (guint) file->device < n ? pickle_item(traces, (guint) file->device) : NULL;
  snapshot_read_settings(file, pickle_get(root, "allocator_settings"));
  if (!snapshot_read_segments(reader, segments) || !snapshot_read_entries(reader, trace) ||
      !check_device(file, (int) n, reader->error))
    return FALSE;
  snapshot_read_annotations(file, pickle_get(root, "external_annotations"));
  find_limit(file);
  return TRUE;
}

SnapshotFile *
snapshot_file_read(ByteSource *source, int device, GError **error)
{
  source->limit = SNAPSHOT_MAX_BYTES;
  if (byte_source_peek(source) == 'P') {
    g_set_error(error, HIGHWATER_ERROR, HIGHWATER_ERROR_INPUT,
                "%s: begins like an archive of torch.save(): a snapshot is written by "
                "pickle.dump() or torch.cuda.memory._dump_snapshot()",
                source->name);
    return NULL;
  }
  g_autoptr(Pickle) pickle = pickle_read(source, error);
  if (!pickle)
    return NULL;
  g_autoptr(SnapshotFile) file = file_new(source->name, device);
  g_autoptr(GHashTable) known = g_hash_table_new(NULL, NULL);
  GError *wrong = NULL;
  SnapshotReader reader = {.file = file, .known = known, .error = &wrong};
  if (read_document(&reader, &pickle->root, device))
    return g_steal_pointer(&file);
  g_propagate_error(error, wrong);
  return NULL;
}

SnapshotFile *
snapshot_file_load(const char *path, int device, GError **error)
{
  g_autoptr(ByteSource) source = byte_source_open(path, error);
  return source ? snapshot_file_read(source, device, error) : NULL;
}
