/* layers_lora.h - linear layers with low-rank adapters around them. */
#ifndef HIGHWATER_NETWORK_LAYERS_LORA_H
#define HIGHWATER_NETWORK_LAYERS_LORA_H

#include "network/layers.h"

/* Opens the module of an adapter around a layer called `name`, if it is to have one: its base layer
 * is then the child that is defined next.  Returns the module, or 0. */
int lora_begin(Builder *b, const char *name);
/* Defines the adapter's weights behind the base layer of these sizes, and closes its module.  With
 * adapter 0 nothing. */
void lora_end(Builder *b, int adapter, gint64 out, gint64 in, Linear *layer);

/* The adapter's call around its layer; base: the layer's own call. */
Val lora_linear(Builder *b, Val x, Linear layer, Val (*base)(Builder *b, Val x, Linear layer));

#endif
