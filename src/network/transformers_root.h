/* transformers_root.h - the call of a model of transformers in the training loop, and what is true
 * of all of them. */
#ifndef HIGHWATER_NETWORK_TRANSFORMERS_ROOT_H
#define HIGHWATER_NETWORK_TRANSFORMERS_ROOT_H

#include "network/builder.h"

#define TRANSFORMERS_INPUTS 4
/* Room for what an output may hold: a value of each block, and some more. */
#define TRANSFORMERS_RESULTS (8 + BUILDER_MOST_BLOCKS)

/* The root's forward(): is given names; of the results the first is the loss, the others are what
 * the output holds besides, in order.  Returns how many. */
typedef struct {
  int inputs;
  ValueInfo input[TRANSFORMERS_INPUTS];
  int (*forward)(Builder *b, gconstpointer model, const Val *inputs, Val *results);
  gconstpointer model;
  gboolean without_labels; /* it is given none, whose items the Trainer could count */
} TransformersRoot;

/* Writes the network's main function: loss = model(**inputs).loss; del out. */
void transformers_write_root(Builder *b, const TransformersRoot *root);

#endif
