/* snapshot_file.h - what torch.cuda.memory._snapshot() says, pickled, of one device: the
 * allocator's history and its segments at the end. */
#ifndef HIGHWATER_IMPORT_SNAPSHOT_FILE_H
#define HIGHWATER_IMPORT_SNAPSHOT_FILE_H

#include "base/units.h"
#include "import/allocation_trace.h"

/* What a list of frames says.  Strings may be NULL: it does not. */
typedef struct {
  char *what, *module; /* of the tensor */
  /* Snapshots of simulated runs say more: */
  gboolean simulated;
  char *phase;
  int step, micro_batch; /* micro_batch: -1: none */
  gboolean beyond;       /* after the step */
} SnapshotLabel;

/* An entry of the history. */
typedef struct {
  guint64 address, stream;
  gint64 bytes;       /* alloc, free: requested; segments: their size */
  gint64 time_us;     /* when the snapshot says it */
  gint64 device_free; /* out of memory only */
  gint32 label;       /* index into labels, or -1 */
  gint8 category;     /* Category; -1: it does not say */
  guint8 action;      /* TraceAction */
} SnapshotEntry;

typedef enum { SNAPSHOT_INACTIVE, SNAPSHOT_ALLOCATED, SNAPSHOT_PENDING_FREE } SnapshotState;

typedef struct {
  guint64 address;
  gint64 bytes, requested_bytes;
  gint32 label;
  guint8 state; /* SnapshotState */
} SnapshotBlock;

typedef struct {
  guint64 address, stream;
  gint64 bytes;
  guint first_block, n_blocks; /* in blocks; they tile it */
  gboolean small_pool, expandable;
} SnapshotSegment;

/* A range that the program named (record_function). */
typedef struct {
  gint64 time_us;
  char *name;
  gboolean ends;
} SnapshotAnnotation;

typedef struct {
  char *name;
  int device;
  GArray *entries;     /* SnapshotEntry, in order of time */
  GArray *segments;    /* SnapshotSegment, by address */
  GArray *blocks;      /* SnapshotBlock */
  GArray *labels;      /* SnapshotLabel */
  GArray *annotations; /* SnapshotAnnotation, in order of time */
  AllocatorConfig config;
} SnapshotFile;

/* device: -1: the one with most entries.  NULL and error when it is no such pickle, or what it says
 * cannot be. */
SnapshotFile *snapshot_file_load(const char *path, int device, GError **error);
/* The same from any source. */
SnapshotFile *snapshot_file_read(ByteSource *source, int device, GError **error);
void snapshot_file_free(SnapshotFile *file);
G_DEFINE_AUTOPTR_CLEANUP_FUNC(SnapshotFile, snapshot_file_free)

#endif
