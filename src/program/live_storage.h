/* live_storage.h - storages counted by their holders while a Program is written.
 *
 * A storage is allocated when it is made and freed when its last holder lets go: rule L1 of eager
 * PyTorch.  ALLOC and FREE go to the builder at that moment. */
#ifndef HIGHWATER_PROGRAM_LIVE_STORAGE_H
#define HIGHWATER_PROGRAM_LIVE_STORAGE_H

#include "program/program_builder.h"

typedef struct _LiveStorages LiveStorages;

/* Id of a storage in the Program, or NO_STORAGE (a tensor of zero bytes, or one that nobody
 * counts). */
typedef gint32 StorageId;
#define NO_STORAGE ((StorageId) -1)

/* builder is borrowed and must outlive it. */
LiveStorages *live_storages_new(ProgramBuilder *builder);
void live_storages_free(LiveStorages *live);

/* What a storage is for, as reports name it. */
typedef struct {
  Category category;
  gint32 module; /* id, or -1 */
  gint32 what;   /* name id */
} StoragePurpose;

/* Allocates; the caller is its one holder.  bytes 0: nothing happens, NO_STORAGE. */
StorageId live_storage_alloc(LiveStorages *live, gint64 bytes, StreamId stream,
                             StoragePurpose purpose);
/* The same in the host's memory, pageable or pinned; the stream is of no account there. */
StorageId live_storage_alloc_in(LiveStorages *live, Space space, gint64 bytes, StreamId stream,
                                StoragePurpose purpose);
/* One more holder; NO_STORAGE is ignored. */
void live_storage_hold(LiveStorages *live, StorageId storage);
/* One holder less; the last one frees.  NO_STORAGE is ignored. */
void live_storage_drop(LiveStorages *live, StorageId storage);
/* *storage lets go and becomes NO_STORAGE. */
void live_storage_clear(LiveStorages *live, StorageId *storage);
/* The storage is used on this stream too (Tensor.record_stream); nothing on its own stream. */
void live_storage_record_stream(LiveStorages *live, StorageId storage, StreamId stream);
int live_storage_holders(const LiveStorages *live, StorageId storage);
/* What it turned out to be: a temporary that autograd saved, a gradient that a parameter took. */
void live_storage_set_purpose(LiveStorages *live, StorageId storage, StoragePurpose purpose);
/* The same for what was only a temporary so far; anything else keeps its category. */
void live_storage_promote(LiveStorages *live, StorageId storage, Category category);
/* A flat view of the whole storage as elements of dtype: a tensor id, made once. */
gint32 live_storage_tensor(LiveStorages *live, StorageId storage, DType dtype);
gint64 live_storage_bytes(const LiveStorages *live, StorageId storage);
/* Bytes of all storages alive on the device, each rounded up to a multiple of unit. */
gint64 live_storages_bytes(const LiveStorages *live, gint64 unit);
Space live_storage_space(const LiveStorages *live, StorageId storage);
StreamId live_storage_stream(const LiveStorages *live, StorageId storage);

#endif
