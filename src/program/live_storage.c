/* live_storage.c - storages counted by their holders while a Program is written. */
#include "program/live_storage.h"

#include "base/units.h"

typedef struct {
  gint32 holders;
  gint32 tensor; /* flat view of all of it, or -1 */
  guint8 dtype;  /* of that view */
} Count;

struct _LiveStorages {
  ProgramBuilder *builder;
  GArray *counts; /* Count, by storage id */
};

LiveStorages *
live_storages_new(ProgramBuilder *builder)
{
  LiveStorages *live = g_new0(LiveStorages, 1);
  live->builder = builder;
  live->counts = g_array_new(FALSE, TRUE, sizeof(Count));
  return live;
}

void
live_storages_free(LiveStorages *live)
{
  if (live == NULL)
    return;
  g_array_unref(live->counts);
  g_free(live);
}

static Count *
count_of(const LiveStorages *live, StorageId storage)
{
  g_assert(storage >= 0 && (guint) storage < live->counts->len);
  return &g_array_index(live->counts, Count, storage);
}

/* The Program's own record, to read or to amend. */
static Storage *
record_of(const LiveStorages *live, StorageId storage)
{
  const Program *program = program_builder_program(live->builder);
  return &g_array_index(program->storages, Storage, storage);
}

StorageId
live_storage_alloc(LiveStorages *live, gint64 bytes, StreamId stream, StoragePurpose purpose)
{
  return live_storage_alloc_in(live, SPACE_DEVICE, bytes, stream, purpose);
}

StorageId
live_storage_alloc_in(LiveStorages *live, Space space, gint64 bytes, StreamId stream,
                      StoragePurpose purpose)
{
  if (bytes == 0)
    return NO_STORAGE;
  Storage record = {
      .bytes = bytes,
      .space = (guint8) space,
      .category = (guint8) purpose.category,
      .stream = (guint8) stream,
      .module = purpose.module,
      .what = purpose.what,
  };
  StorageId storage = program_builder_storage(live->builder, &record);
  if ((guint) storage >= live->counts->len)
    g_array_set_size(live->counts, (guint) storage + 1);
  *count_of(live, storage) = (Count){.holders = 1, .tensor = -1};
  program_builder_alloc(live->builder, storage);
  return storage;
}

void
live_storage_hold(LiveStorages *live, StorageId storage)
{
  if (storage != NO_STORAGE)
    count_of(live, storage)->holders++;
}

void
live_storage_drop(LiveStorages *live, StorageId storage)
{
  if (storage == NO_STORAGE)
    return;
  Count *count = count_of(live, storage);
  g_assert(count->holders > 0);
  if (--count->holders == 0)
    program_builder_release(live->builder, storage);
}

void
live_storage_clear(LiveStorages *live, StorageId *storage)
{
  StorageId old = *storage;
  *storage = NO_STORAGE;
  live_storage_drop(live, old);
}

void
live_storage_record_stream(LiveStorages *live, StorageId storage, StreamId stream)
{
  if (storage != NO_STORAGE && live_storage_stream(live, storage) != stream)
    program_builder_record_stream(live->builder, storage, stream);
}

int
live_storage_holders(const LiveStorages *live, StorageId storage)
{
  return storage == NO_STORAGE ? 0 : count_of(live, storage)->holders;
}

void
live_storage_set_purpose(LiveStorages *live, StorageId storage, StoragePurpose purpose)
{
  if (storage == NO_STORAGE)
    return;
  Storage *record = record_of(live, storage);
  record->category = (guint8) purpose.category;
  record->module = purpose.module;
  record->what = purpose.what;
}

void
live_storage_promote(LiveStorages *live, StorageId storage, Category category)
{
  if (storage != NO_STORAGE && record_of(live, storage)->category == CATEGORY_TEMPORARY)
    record_of(live, storage)->category = (guint8) category;
}

gint32
live_storage_tensor(LiveStorages *live, StorageId storage, DType dtype)
{
  Count *count = count_of(live, storage);
  if (count->tensor < 0 || count->dtype != dtype) {
    gint64 elements = record_of(live, storage)->bytes / dtype_size(dtype);
    count->tensor = program_builder_flat_tensor(live->builder, storage, 0, elements, dtype);
    count->dtype = (guint8) dtype;
  }
  return count->tensor;
}

gint64
live_storage_bytes(const LiveStorages *live, StorageId storage)
{
  return storage == NO_STORAGE ? 0 : record_of(live, storage)->bytes;
}

gint64
live_storages_bytes(const LiveStorages *live, gint64 unit)
{
  gint64 total = 0;
  for (guint i = 0; i < live->counts->len; i++)
    if (g_array_index(live->counts, Count, i).holders > 0 &&
        record_of(live, (StorageId) i)->space == SPACE_DEVICE)
      total += ceil_div(record_of(live, (StorageId) i)->bytes, unit) * unit;
  return total;
}

StreamId
live_storage_stream(const LiveStorages *live, StorageId storage)
{
  return (StreamId) record_of(live, storage)->stream;
}

Space
live_storage_space(const LiveStorages *live, StorageId storage)
{
  return (Space) record_of(live, storage)->space;
}
