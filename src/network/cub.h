/* cub.h - temporary storage that cub's device algorithms ask for, as PyTorch is compiled with them.
 *
 * Sizes are aligned as cub aligns its temporaries; tiles are those of its policies for sm_90. */
#ifndef HIGHWATER_NETWORK_CUB_H
#define HIGHWATER_NETWORK_CUB_H

#include "network/op.h"

/* DeviceRadixSort::SortPairs of n 8-byte keys with 8-byte values, of whose keys so many bits count.
 */
gint64 cub_sort_pairs_bytes(gint64 n, int bits);
/* How many bits numbers up to `most` have. */
int cub_bits(gint64 most);
/* DeviceSelect::UniqueByKey of n 8-byte keys. */
gint64 cub_unique_bytes(gint64 n);
/* DeviceScan of n elements of so many bytes. */
gint64 cub_scan_bytes(gint64 n, gint64 element);
/* DeviceSelect::Flagged of n positions. */
gint64 cub_select_bytes(gint64 n);
/* DeviceReduce::Sum of n elements to an int. */
gint64 cub_sum_bytes(gint64 n, DeviceLimits device);

#endif
