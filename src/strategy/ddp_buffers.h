/* ddp_buffers.h - DDP's broadcast_buffers: before a forward the first rank's registered buffers are
 * sent to all. */
#ifndef HIGHWATER_STRATEGY_DDP_BUFFERS_H
#define HIGHWATER_STRATEGY_DDP_BUFFERS_H

#include "strategy/strategy.h"

/* Issues it; nothing without buffers. */
void ddp_buffers_broadcast(StrategyContext *x, gint32 communicator);
/* Elements that it sends. */
gint64 ddp_buffers_elements(const Network *network);

#endif
