/* allocator_sizes.c - what a request becomes: rounded size, pool, segment size, whether to split.
 *
 * c10/cuda/CUDACachingAllocator.cpp: round_size, roundup_power2_next_division, get_pool,
 * get_allocation_size, should_split; c10/core/AllocatorConfig.cpp: roundup_power2_divisions. */
#include "memory/allocator_internal.h"

/* Where the driver's addresses lie on x86-64 Linux: viewers may hold them in doubles. */
#define USUAL_ADDRESS_BASE ((guint64) 0x7f0000000000)

AllocatorConfig
allocator_config_default(void)
{
  return (AllocatorConfig){
      .memory_limit = G_MAXINT64,
      .process_limit = G_MAXINT64,
      .device_total_bytes = (gint64) 1 << 40,
      .max_split_size = G_MAXINT64,
      .max_non_split_rounding = 20 * MIB,
      .large_segment_size = 20 * MIB,
      .address_base = USUAL_ADDRESS_BASE,
  };
}

static int
floor_log2(gint64 n)
{
  return 63 - __builtin_clzll((unsigned long long) n);
}

/* Divisions per power of two for requests of that many bytes; 0 or 1: plain rounding. */
static int
divisions_for(const AllocatorConfig *config, gint64 bytes)
{
  if (config->roundup_power2_divisions >= 0)
    return config->roundup_power2_divisions;
  int above_mib = floor_log2(bytes) - floor_log2(MIB);
  return config->roundup_power2_by_size[CLAMP(above_mib, 0, ALLOCATOR_SIZE_CLASSES - 1)];
}

/* The next of `divisions` equal steps between two powers of two, at or above bytes. */
static gint64
next_division(gint64 bytes, int divisions)
{
  gint64 power = (gint64) 1 << floor_log2(bytes);
  if (power == bytes)
    return bytes;
  gint64 step = power >> floor_log2(divisions);
  return step > 0 ? round_up(bytes, step) : 2 * power;
}

gint64
allocator_round_request(const AllocatorConfig *config, gint64 bytes)
{
  bytes = MIN(bytes, LARGEST_REQUEST);
  if (bytes < MIN_BLOCK_BYTES)
    return MIN_BLOCK_BYTES;
  int divisions = divisions_for(config, bytes);
  if (divisions > 1 && bytes > MIN_BLOCK_BYTES * divisions)
    return next_division(bytes, divisions);
  return round_up(bytes, MIN_BLOCK_BYTES);
}

static gint64
segment_bytes_for(const AllocatorConfig *config, gint64 bytes)
{
  if (bytes <= SMALL_REQUEST_BYTES)
    return SMALL_SEGMENT_BYTES;
  if (bytes < MIN_LARGE_SEGMENT)
    return config->large_segment_size;
  return round_up(bytes, LARGE_SEGMENT_GRANULE);
}

Request
allocator_request(const AllocatorConfig *config, gint64 bytes, int stream)
{
  gint64 rounded = allocator_round_request(config, bytes);
  return (Request){
      .requested_bytes = bytes,
      .bytes = rounded,
      .segment_bytes = segment_bytes_for(config, rounded),
      .stream = stream,
      .pool = rounded <= SMALL_REQUEST_BYTES ? POOL_SMALL : POOL_LARGE,
  };
}

gint64
allocator_segment_bytes(const AllocatorConfig *config, gint64 bytes)
{
  return allocator_request(config, bytes, 0).segment_bytes;
}

gboolean
allocator_should_split(const AllocatorConfig *config, const Block *block, gint64 bytes)
{
  gint64 rest = block->bytes - bytes;
  if (block->pool == POOL_SMALL || config->expandable_segments)
    return rest >= MIN_BLOCK_BYTES;
  return bytes < config->max_split_size && rest > SMALL_REQUEST_BYTES;
}
