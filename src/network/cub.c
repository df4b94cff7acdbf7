/* cub.c - temporary storage that cub's device algorithms ask for, as PyTorch is compiled with them.
 */
#include "network/cub.h"

#include "base/units.h"

static gint64
cub_align(gint64 bytes)
{
  return round_up(bytes, 256);
}

int
cub_bits(gint64 most)
{
  int bits = 1;
  while (most >>= 1)
    bits++;
  return bits;
}

/* One block sorts what fits in its tile; else onesweep: a second buffer of keys and values when
 * there is more than one pass, a look-back entry a tile and histograms of 2048 bytes a pass of 8
 * bits. */
gint64
cub_sort_pairs_bytes(gint64 n, int bits)
{
  enum { SINGLE_TILE = 2304, TILE = 4608, LOOK_BACK = 1024, HISTOGRAM = 2048, DIGIT_BITS = 8 };
  gint64 passes = ceil_div(bits, DIGIT_BITS);
  if (n <= SINGLE_TILE)
    return 1;
  return (passes > 1 ? 2 * cub_align(8 * n) : 0) + LOOK_BACK * ceil_div(n, TILE) +
         HISTOGRAM * passes + 511;
}

gint64
cub_unique_bytes(gint64 n)
{
  return cub_align(8 * (ceil_div(n, 2240) + 32)) + 767;
}

/* A tile's state: a flag and a value, 16 bytes where the two do not fit in 8. */
gint64
cub_scan_bytes(gint64 n, gint64 element)
{
  gint64 state = element > 4 ? 16 : 8;
  return cub_align(state * (ceil_div(n, 896) + 32)) + 511;
}

gint64
cub_select_bytes(gint64 n)
{
  return cub_align(8 * (ceil_div(n, 4224) + 32)) + 511;
}

/* One block where a tile is enough; else a partial sum a block of a grid five times as large as is
 * resident. */
gint64
cub_sum_bytes(gint64 n, DeviceLimits device)
{
  enum { SINGLE_TILE = 4096, THREADS = 256, OVERSUBSCRIPTION = 5 };
  if (n <= SINGLE_TILE)
    return 1;
  gint64 blocks = (gint64) OVERSUBSCRIPTION * (device.max_threads_per_sm / THREADS) * device.sms;
  return cub_align(4 * blocks) + 255;
}
