/* fsdp_options.h - the plan's section "fsdp", which FSDP1 and FSDP2 share. */
#ifndef HIGHWATER_STRATEGY_FSDP_OPTIONS_H
#define HIGHWATER_STRATEGY_FSDP_OPTIONS_H

#include "spec/option.h"

/* Values of "sharding_strategy" (torch.distributed.fsdp.ShardingStrategy), in the table's order. */
typedef enum {
  FULL_SHARD,
  SHARD_GRAD_OP,
  NO_SHARD,
  HYBRID_SHARD,
  HYBRID_SHARD_ZERO2
} ShardingStrategy;
/* Values of "embedding"; "head" has the first two. */
typedef enum { PLACE_ROOT, PLACE_OWN, PLACE_UNTIED } EmbeddingPlace;
/* Values of "backward_prefetch" where it is a name (BackwardPrefetch; none is None). */
typedef enum { PREFETCH_PRE, PREFETCH_POST, PREFETCH_NONE } BackwardPrefetch;

extern const OptionSection fsdp_section;

#endif
