/* ddp_buffers.h - DDP's broadcast of the model's buffers before a forward
 * (DistributedDataParallel._sync_buffers). */
#ifndef HIGHWATER_STRATEGY_DDP_BUFFERS_H
#define HIGHWATER_STRATEGY_DDP_BUFFERS_H

#include "strategy/strategy.h"

/* Registered buffers of one dtype that lie flat for a broadcast: as many as 250 MiB hold. */
typedef struct {
  DType dtype;
  gint64 elements;
  GArray *members; /* int: buffers */
} BufferBucket;

/* The buckets of a network's buffers (BufferBucket), in the order in which they are sent.  Caller
 * frees. */
GArray *ddp_buffer_buckets(const Network *network);
/* Elements in them. */
gint64 ddp_buffers_elements(const GArray *buckets);
/* Sends them from rank 0 to all.  At most two are under way. */
void ddp_buffers_broadcast(StrategyContext *x, const GArray *buckets, gint32 communicator);

#endif
