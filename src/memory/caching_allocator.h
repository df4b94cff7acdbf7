/* caching_allocator.h - PyTorch's CUDACachingAllocator as a state machine without a clock.
 *
 * Rounding, two pools, per-stream best fit, split and merge, record_stream, the retry chain,
 * garbage collection, max_split_size, roundup_power2_divisions, expandable segments and statistics.
 * Device time enters only through the callbacks in AllocatorHost: whoever drives the allocator says
 * when an event on a stream has completed. */
#ifndef HIGHWATER_MEMORY_CACHING_ALLOCATOR_H
#define HIGHWATER_MEMORY_CACHING_ALLOCATOR_H

#include <glib.h>

typedef struct _CachingAllocator CachingAllocator;

/* A live allocation, as the caller holds it: an index that stays valid until it is freed. */
typedef gint32 BlockHandle;
#define BLOCK_NONE ((BlockHandle) -1)

/* c10's kSmallSize and kSmallBuffer: requests up to the first, rounded, are of the small pool,
 * whose cudaMalloc segments have the second.  No free block of the large pool is smaller than the
 * first, but for expandable segments. */
#define ALLOCATOR_SMALL_REQUEST ((gint64) 1 << 20)
#define ALLOCATOR_SMALL_SEGMENT ((gint64) 1 << 21)

/* roundup_power2_divisions can differ by size: one value for each power of two from 1 MiB (and all
 * below) to 32 GiB (and all above). */
#define ALLOCATOR_SIZE_CLASSES 16

typedef struct {
  gint64 memory_limit; /* bytes the device can hold; G_MAXINT64: no limit */
  /* Bytes of segments this process may have (set_per_process_memory_fraction); G_MAXINT64: no such
   * limit.  Garbage collection works only under it, as in PyTorch. */
  gint64 process_limit;
  gboolean expandable_segments;
  gint64 device_total_bytes;           /* size of an expandable reservation is 1 1/8 of it */
  gint64 max_split_size;               /* bytes; G_MAXINT64: no limit (the default) */
  gint64 max_non_split_rounding;       /* bytes; 20 MiB by default */
  double garbage_collection_threshold; /* share of process_limit; 0: off */
  int roundup_power2_divisions;        /* 0: off; else one value for all sizes */
  /* By size; used in place of roundup_power2_divisions when that is -1. */
  int roundup_power2_by_size[ALLOCATOR_SIZE_CLASSES];
  gint64 large_segment_size; /* bytes; 20 MiB by default */
  /* cudaMalloc's addresses go up from here, reservations of expandable segments down (or begin
   * above, when it is 0); a multiple of 2 MiB. */
  guint64 address_base;
} AllocatorConfig;

/* PyTorch's defaults, without a limit. */
AllocatorConfig allocator_config_default(void);

/* What a request of bytes > 0 is rounded up to: the least size of its block. */
gint64 allocator_round_request(const AllocatorConfig *config, gint64 bytes);

typedef enum {
  SEGMENT_ALLOC,
  SEGMENT_FREE,
  SEGMENT_MAP,
  SEGMENT_UNMAP,
} SegmentAction;

/* What the allocator asks of the world.  Every callback may be NULL: events are then complete at
 * once and segment operations unobserved. */
typedef struct {
  gpointer user;
  /* Records an event on stream now; returns its token.  Each event is given back once, by
   * event_done answering TRUE or by synchronize_event. */
  guint64 (*record_event)(gpointer user, int stream);
  /* TRUE when the event has completed. */
  gboolean (*event_done)(gpointer user, guint64 event);
  /* Blocks the host until the event has completed. */
  void (*synchronize_event)(gpointer user, guint64 event);
  /* A segment came or went (cudaMalloc, cudaFree, map, unmap), with its address and size in bytes.
   */
  void (*segment)(gpointer user, SegmentAction action, int stream, guint64 address, gint64 bytes);
  /* A free that had to wait for events is complete; its handle is valid for the last time. */
  void (*free_completed)(gpointer user, BlockHandle block);
  /* Where the driver puts the next segment or reservation of that size, when that is known (a
   * replay of what a real one did).  FALSE, or an address that is taken: first fit decides. */
  gboolean (*place)(gpointer user, int stream, gint64 bytes, guint64 *address);
} AllocatorHost;

/* Counters as torch.cuda.memory_stats has them: bytes unless said otherwise. */
typedef struct {
  gint64 current;
  gint64 peak;
  gint64 allocated; /* sum of all increases */
  gint64 freed;     /* sum of all decreases */
} AllocatorStat;

typedef struct {
  AllocatorStat allocated_bytes;                /* rounded sizes of live allocations */
  AllocatorStat requested_bytes;                /* their requested sizes, pending frees included */
  AllocatorStat active_bytes;                   /* allocated, and freed but waiting for events */
  AllocatorStat reserved_bytes;                 /* segments and mapped pages */
  AllocatorStat inactive_split_bytes;           /* free parts of split segments (not expandable) */
  AllocatorStat segments;                       /* count of cudaMalloc segments */
  AllocatorStat allocations;                    /* count of live allocations */
  AllocatorStat reserved_small, reserved_large; /* bytes by pool */
  gint64 num_alloc_retries;
  gint64 num_ooms;
  gint64 num_device_alloc; /* cudaMalloc and map calls */
  gint64 num_device_free;
} AllocatorStats;

/* Why an allocation failed, as PyTorch's message tells it. */
typedef struct {
  gint64 requested_bytes; /* the tensor's size */
  gint64 segment_bytes;   /* what cudaMalloc was asked for */
  gint64 limit_bytes;     /* the lower of the device's and the process's limit */
  gint64 allocated_bytes;
  gint64 reserved_bytes;
} AllocatorFailure;

/* What cudaMalloc is asked for when no free block does for a request of bytes > 0: the figure of
 * PyTorch's message when it fails. */
gint64 allocator_segment_bytes(const AllocatorConfig *config, gint64 bytes);

/* host may be NULL. */
CachingAllocator *caching_allocator_new(const AllocatorConfig *config, const AllocatorHost *host);
void caching_allocator_free(CachingAllocator *allocator);
G_DEFINE_AUTOPTR_CLEANUP_FUNC(CachingAllocator, caching_allocator_free)

/* Allocates bytes > 0 for a stream (a small non-negative number; order of first use is their
 * order).  BLOCK_NONE on out of memory, *failure (may be NULL) then says why; the state is that
 * after all retries. */
BlockHandle caching_allocator_malloc(CachingAllocator *allocator, gint64 bytes, int stream,
                                     AllocatorFailure *failure);
/* What malloc would do now, once frees whose events are done are completed. */
typedef enum {
  MALLOC_REUSES,   /* hand out a free block */
  MALLOC_GROWS,    /* take a new segment or map pages */
  MALLOC_COLLECTS, /* first give back some of what is free: by age, or oversize blocks */
  MALLOC_WAITS,    /* first wait for all frees and give back what is free then; it may yet fail */
} MallocOutlook;
MallocOutlook caching_allocator_outlook(CachingAllocator *allocator, gint64 bytes, int stream);
/* The tensor is dead: reusable at once (TRUE), or when the events of recorded streams complete. */
gboolean caching_allocator_release(CachingAllocator *allocator, BlockHandle block);
/* The block is used on another stream too (Tensor.record_stream).  No effect for its own stream. */
void caching_allocator_record_stream(CachingAllocator *allocator, BlockHandle block, int stream);
/* torch.cuda.empty_cache(). */
void caching_allocator_empty_cache(CachingAllocator *allocator);
/* Changes the device's limit from now on (a device that shrinks after construction); its total size
 * is then at most that. */
void caching_allocator_set_limit(CachingAllocator *allocator, gint64 bytes);

/* Address and rounded size of a live block. */
guint64 caching_allocator_address(const CachingAllocator *allocator, BlockHandle block);
gint64 caching_allocator_block_size(const CachingAllocator *allocator, BlockHandle block);

const AllocatorStats *caching_allocator_stats(const CachingAllocator *allocator);
/* peak := current, for every statistic. */
void caching_allocator_reset_peak(CachingAllocator *allocator);

/* Blocks of all segments in address order, for snapshots: callback per block. */
typedef struct {
  guint64 segment_address;
  gint64 segment_bytes;
  guint64 address;
  gint64 bytes;
  gint64 requested_bytes;
  int stream;
  gboolean small_pool, expandable;
  enum { BLOCK_INACTIVE, BLOCK_ALLOCATED, BLOCK_PENDING_FREE } state;
} BlockInfo;
void caching_allocator_visit(const CachingAllocator *allocator,
                             void (*visit)(const BlockInfo *, gpointer), gpointer user);

/* Free bytes cached per stream: reserved but not active. */
gint64 caching_allocator_cached_bytes(const CachingAllocator *allocator, int stream);

/* Invariants: blocks tile segments, free neighbours are merged, sets and counters agree.  Aborts
 * with a message when one is broken.  Slow; for tests and HIGHWATER_CHECK=1. */
void caching_allocator_check(const CachingAllocator *allocator);

#endif
