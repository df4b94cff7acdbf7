/* allocator_internal.h - the state behind caching_allocator.h, shared by the files of the
 * allocator.
 *
 * Blocks live in one array and are named by index.  A segment is a chain of blocks that are
 * neighbours in address (prev, next): one cudaMalloc, or one address reservation of an expandable
 * segment, whose blocks may be unmapped.  A block is in exactly one state: allocated; waiting for
 * events (events > 0); free (mapped, in its pool's set); unmapped (in the set of unmapped). */
#ifndef HIGHWATER_MEMORY_ALLOCATOR_INTERNAL_H
#define HIGHWATER_MEMORY_ALLOCATOR_INTERNAL_H

#include "base/units.h"
#include "memory/address_space.h"
#include "memory/caching_allocator.h"
#include "memory/free_set.h"

/* c10/core/AllocatorConfig.h */
#define MIN_BLOCK_BYTES ((gint64) 512) /* kMinBlockSize: rounding and smallest remainder */
#define SMALL_REQUEST_BYTES ALLOCATOR_SMALL_REQUEST
#define SMALL_SEGMENT_BYTES ALLOCATOR_SMALL_SEGMENT
#define MIN_LARGE_SEGMENT (10 * MIB)    /* kMinLargeAlloc: from here a segment of its own */
#define LARGE_SEGMENT_GRANULE (2 * MIB) /* kRoundLarge */
/* No device comes near: a larger request can only fail, and sums of some stay below 2^63. */
#define LARGEST_REQUEST ((gint64) 1 << 56)

typedef enum { POOL_SMALL, POOL_LARGE, POOL_COUNT } PoolKind;

typedef struct {
  guint64 address;
  gint64 bytes; /* 0: the entry is unused, `next` leads to the next unused one */
  gint64 requested_bytes;
  gint64 idle_since;      /* the pool's search count when the block became free */
  BlockHandle prev, next; /* neighbours in the segment */
  gint32 reservation;     /* index, or -1: a cudaMalloc segment */
  gint32 stream;
  gint32 uses;   /* first of the recorded streams in `uses`, or -1 */
  gint32 events; /* events outstanding before the block is free */
  guint8 pool;   /* PoolKind */
  guint8 allocated, mapped;
} Block;
G_STATIC_ASSERT(sizeof(Block) == 64);

/* A recorded stream of a live block: a list node in one array. */
typedef struct {
  gint32 stream;
  gint32 next;
} StreamUse;

/* An address reservation of expandable segments. */
typedef struct {
  guint64 address;
  gint64 bytes; /* 0: destroyed, the entry may be used again */
  gint64 page;  /* bytes mapped at a time */
} Reservation;

typedef struct {
  guint64 event;
  BlockHandle block;
} PendingFree;

/* First in, first out: a ring whose capacity is a power of two, or 0. */
typedef struct {
  PendingFree *items;
  guint head, count, capacity;
} PendingQueue;

/* What the allocator keeps for each stream. */
typedef struct {
  FreeSet free[POOL_COUNT];     /* mapped free blocks by (bytes, address) */
  FreeSet unmapped[POOL_COUNT]; /* by address: their key has bytes 0 */
  PendingQueue pending;         /* in order of recording */
  gint64 cached_bytes;
} StreamPools;

struct _CachingAllocator {
  AllocatorConfig config;
  AllocatorHost host;
  AllocatorStats stats;

  Block *blocks;
  gint32 n_blocks, blocks_capacity;
  BlockHandle unused_block;
  GArray *uses; /* StreamUse */
  gint32 unused_use;
  GArray *reservations; /* Reservation */

  StreamPools **streams; /* by stream number */
  int n_streams;
  gint64 n_pending;                /* entries in all pending queues */
  gint64 search_count[POOL_COUNT]; /* get_free_blocks_call_count */

  AddressSpace segments;   /* of cudaMalloc */
  AddressSpace reservable; /* of cuMemAddressReserve */
  gint64 device_bytes;     /* physical memory taken from the device */
  gboolean check_always;   /* HIGHWATER_CHECK=1 */
};

/* One call of malloc. */
typedef struct {
  gint64 requested_bytes;
  gint64 bytes;         /* rounded */
  gint64 segment_bytes; /* what cudaMalloc would be asked for */
  int stream;
  PoolKind pool;
} Request;

/* ---- allocator_sizes.c */
Request allocator_request(const AllocatorConfig *config, gint64 bytes, int stream);
gboolean allocator_should_split(const AllocatorConfig *config, const Block *block, gint64 bytes);

/* ---- block_pool.c */
StreamPools *block_pool_stream(CachingAllocator *allocator, int stream);
/* A new block with everything but its place in a chain zero: free, mapped, in no set. */
BlockHandle block_new(CachingAllocator *allocator, const Block *like, guint64 address,
                      gint64 bytes);
void block_recycle(CachingAllocator *allocator, BlockHandle block);
/* Puts block between two neighbours (or NONE). */
void block_link(CachingAllocator *allocator, BlockHandle block, BlockHandle prev, BlockHandle next);
/* Into and out of the set of free blocks, or of unmapped ones. */
void block_pool_insert(CachingAllocator *allocator, BlockHandle block);
void block_pool_remove(CachingAllocator *allocator, BlockHandle block);
/* Lets into absorb its neighbour other when that is idle and mapped likewise; returns the bytes
 * absorbed, or 0.  into is in no set. */
gint64 block_absorb(CachingAllocator *allocator, BlockHandle into, BlockHandle other);
/* Cuts the low part off a free block that is in no set; the rest goes back to its pool.  Returns
 * the low part. */
BlockHandle block_split(CachingAllocator *allocator, BlockHandle block, gint64 bytes);
/* The free block that serves a request best; FALSE: none does. */
gboolean block_pool_find(const CachingAllocator *allocator, const Request *request,
                         FreePosition *position);
/* get_free_block: the same, taken out of its set; NONE. */
BlockHandle block_pool_take(CachingAllocator *allocator, const Request *request);
/* All free blocks of a pool in the order of streams, sizes and addresses: an array of BlockHandle.
 * Caller frees. */
GArray *block_pool_list(const CachingAllocator *allocator, PoolKind pool);

/* ---- segments.c */
/* alloc_block: a new segment, or grown one, with a free block of at least the request's size that
 * is in no set; NONE when the device or the process has no room. */
BlockHandle segment_acquire(CachingAllocator *allocator, const Request *request);
/* TRUE when segment_acquire would find room. */
gboolean segment_has_room(const CachingAllocator *allocator, const Request *request);
/* Makes a segment at a known address (restoring a snapshot); the space must be claimed. */
BlockHandle segment_new(CachingAllocator *allocator, const Block *like, guint64 address,
                        gint64 bytes);
/* Gives a segment back to the device: its one block is free and in its set. */
void segment_release(CachingAllocator *allocator, BlockHandle block);

/* ---- expandable_segments.c */
BlockHandle expandable_acquire(CachingAllocator *allocator, const Request *request);
/* Bytes of pages that expandable_acquire would have to map. */
gint64 expandable_missing_bytes(const CachingAllocator *allocator, const Request *request);
/* Unmaps the whole pages of a free block; the reservation goes when nothing of it is mapped. */
void expandable_release(CachingAllocator *allocator, BlockHandle block);
gint32 expandable_reservation_new(CachingAllocator *allocator, guint64 address, gint64 bytes,
                                  gint64 page);
gint64 expandable_page(const AllocatorConfig *config, PoolKind pool);
gint64 expandable_reservation_bytes(const AllocatorConfig *config, PoolKind pool);

/* ---- allocator_release.c */
gboolean release_available_cached_blocks(CachingAllocator *allocator, const Request *request);
/* TRUE when that would release something, enough or not. */
gboolean has_available_cached_blocks(const CachingAllocator *allocator, const Request *request);
gboolean release_cached_blocks(CachingAllocator *allocator, const Request *request);
void garbage_collect_cached_blocks(CachingAllocator *allocator);
gboolean garbage_collection_is_on(const AllocatorConfig *config);
/* Reserved bytes above the threshold; 0 when collection is off. */
gint64 garbage_excess(const CachingAllocator *allocator);
/* TRUE when collecting now would free something. */
gboolean garbage_collection_is_due(const CachingAllocator *allocator);

/* ---- allocator_events.c */
void stream_uses_add(CachingAllocator *allocator, BlockHandle block, int stream);
/* Records an event on every stream that uses the block. */
void pending_free_record(CachingAllocator *allocator, BlockHandle block);
/* Frees the blocks whose events have completed; with wait, waits for all. */
void pending_free_process(CachingAllocator *allocator, gboolean wait);

/* ---- caching_allocator.c */
/* free_block: the block's last use is over. */
void block_free(CachingAllocator *allocator, BlockHandle block);

/* ---- allocator_stats.c */
/* Sums of all changes may pass 2^63 in an endless run; they stop there. */
static inline void
stat_change(AllocatorStat *stat, gint64 delta)
{
  stat->current += delta;
  if (stat->current > stat->peak)
    stat->peak = stat->current;
  gint64 *sum = delta > 0 ? &stat->allocated : &stat->freed;
  if (__builtin_add_overflow(*sum, ABS(delta), sum))
    *sum = G_MAXINT64;
}
/* Reserved memory comes or goes, with the host's callback. */
void stats_reserved(CachingAllocator *allocator, const Block *block, SegmentAction action,
                    AddressRange range);

static inline gboolean
block_is_split(const Block *block)
{
  return block->prev != BLOCK_NONE || block->next != BLOCK_NONE;
}

/* Neither allocated nor waiting for events: free or unmapped. */
static inline gboolean
block_is_idle(const Block *block)
{
  return !block->allocated && block->events == 0;
}

static inline Block *
block_at(const CachingAllocator *allocator, BlockHandle block)
{
  return &allocator->blocks[block];
}

#endif
