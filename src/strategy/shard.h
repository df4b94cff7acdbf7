/* shard.h - sharding along dimension 0, as torch.chunk cuts it. */
#ifndef HIGHWATER_STRATEGY_SHARD_H
#define HIGHWATER_STRATEGY_SHARD_H

#include "network/network.h"

/* One parameter over n ranks: every rank stores a padded chunk of ceil(d0 / n) rows. */
typedef struct {
  gint64 padded_elements; /* of every rank: P */
  gint64 full_elements;   /* n * P: what an all-gather of it holds */
  gint64 local_elements;  /* of this rank, without padding */
} Shard;

/* The padded elements alone: at most those of the parameter. */
gint64 shard_padded_elements(const Parameter *parameter, int ranks);
Shard shard_of(const Parameter *parameter, int ranks, int rank);
/* Do two ranks hold different numbers of rows of some parameter? */
gboolean shards_differ(const Network *network, int ranks, int a, int b);

#endif
