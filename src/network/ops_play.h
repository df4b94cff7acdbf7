/* ops_play.h - an exported network while it is written through the builder. */
#ifndef HIGHWATER_NETWORK_OPS_PLAY_H
#define HIGHWATER_NETWORK_OPS_PLAY_H

#include "network/ops_format.h"

typedef struct {
  const OpsFormat *format;
  Builder *b;
  GHashTable *modules;    /* path -> index */
  GHashTable *parameters; /* full name -> index */
  guint ties;             /* defined */
  int tied_module;        /* has a weight of its own in place of another's, or -1 */
  int tied_weight, split_weight;
} Ops;

/* Defines all modules and parameters (ops_modules.c). */
void ops_define_modules(Ops *ops);
/* What a value of the file is under the plan: what the exported model computed in its dtype is in
 * the plan's. */
ValueInfo ops_planned(const Ops *ops, const ValueInfo *value);
/* Writes a function's statements into the builder's open one.  base: path of its block, "".
 * Fills results, after an error with any value;
 * returns how many there are. */
int ops_play(const Ops *ops, const OpsFunction *function, const char *base, const Val *args,
             Val *results);

#endif
