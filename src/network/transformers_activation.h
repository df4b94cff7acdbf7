/* transformers_activation.h - transformers' table of activation functions (ACT2FN), by the name
 * that a config.json gives in hidden_act. */
#ifndef HIGHWATER_NETWORK_TRANSFORMERS_ACTIVATION_H
#define HIGHWATER_NETWORK_TRANSFORMERS_ACTIVATION_H

#include "network/layers.h"

typedef struct {
  const char *name; /* as in a config */
  const char *type; /* of the module */
  Val (*forward)(Builder *b, Val x);
} Activation;

/* The activation of that name, or NULL. */
const Activation *activation_find(const char *name);
/* The field's activation; a name that is not known is reported, and the table's first one given. */
const Activation *activation_read(NetworkSpec *spec, const char *names, const char *fallback);
/* Defines its module under this name; returns the module's index. */
int activation_define(Builder *b, const Activation *activation, const char *name);
/* The module's call. */
Val activation_call(Builder *b, const Activation *activation, int module, Val x);

#endif
