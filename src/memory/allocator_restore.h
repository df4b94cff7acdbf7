/* allocator_restore.h - starts an allocator from the segments of a recorded snapshot. */
#ifndef HIGHWATER_MEMORY_ALLOCATOR_RESTORE_H
#define HIGHWATER_MEMORY_ALLOCATOR_RESTORE_H

#include "memory/caching_allocator.h"

typedef struct {
  gint64 bytes;
  gint64 requested_bytes;
  gboolean active; /* FALSE: free */
} RestoredBlock;

/* A cudaMalloc segment, or one contiguous mapped range of an expandable segment (as the
 * configuration says), tiled by its blocks in address order. */
typedef struct {
  guint64 address;
  int stream;
  gboolean small_pool;
  const RestoredBlock *blocks;
  guint n_blocks;
  /* Of an expandable range: where its reservation begins, at or below address; 0: at address, which
   * is a guess when the pages before may be unmapped. */
  guint64 reservation_address;
} RestoredSegment;

/* Fills a new allocator; segments are sorted by address.  reservation_bytes is the size of the
 * expandable reservations that exist: ranges of one stream and pool within it are taken as parts of
 * one.  handles receives one handle for each active block, in order.  Peaks begin here.
 * FALSE and error when the segments cannot be a state of the allocator (overlapping, off the pages,
 * free blocks side by side, ...): "segment 3: ...". */
gboolean caching_allocator_restore(CachingAllocator *allocator, const RestoredSegment *segments,
                                   guint n_segments, gint64 reservation_bytes, BlockHandle *handles,
                                   GError **error);

#endif
