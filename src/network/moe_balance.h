/* moe_balance.h - the loss that keeps the experts of mixtures evenly used, made of what their
 * routers gave in all layers. */
#ifndef HIGHWATER_NETWORK_MOE_BALANCE_H
#define HIGHWATER_NETWORK_MOE_BALANCE_H

#include "network/moe.h"

/* load_balancing_loss_func(): logits [tokens, experts] of each layer, borrowed. */
Val moe_balance_loss(Builder *b, const MoeStyle *style, int layers, const Val *logits);
/* loss += coefficient * balance, in place; balance is borrowed. */
Val moe_balance_add(Builder *b, double coefficient, Val loss, Val balance);

#endif
