/* family.h - a family of models: which config.json it reads and how its forward() goes. */
#ifndef HIGHWATER_NETWORK_FAMILY_H
#define HIGHWATER_NETWORK_FAMILY_H

#include "network/network.h"
#include "spec/network_spec.h"

typedef struct {
  const char *name;               /* "llama" */
  const char *summary;            /* one line for `list` */
  const char *const *model_types; /* config.json's model_type, NULL-terminated */
  gboolean limits_length; /* a sequence is at most what the config allows, where the plan does not
                             say how long it is */
  /* Writes the network for a shape.  Errors name file and key. */
  Network *(*build)(NetworkSpec *spec, const NetworkShape *shape, GError **error);
} NetworkFamily;

/* Every family, in the order of src/local.mk, NULL-terminated. */
const NetworkFamily *const *network_families(void);
/* The family of a model_type, or NULL and an error that lists what is known. */
const NetworkFamily *network_family_find(const NetworkSpec *spec, GError **error);
/* Builds a network of whatever family the spec is of. */
Network *network_build(NetworkSpec *spec, const NetworkShape *shape, GError **error);

#endif
