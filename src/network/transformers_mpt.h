/* transformers_mpt.h - MPT as transformers writes it. */
#ifndef HIGHWATER_NETWORK_TRANSFORMERS_MPT_H
#define HIGHWATER_NETWORK_TRANSFORMERS_MPT_H

#include "network/family.h"

/* The network of a config.json; NULL and an error after a wrong field. */
Network *transformers_mpt_build(NetworkSpec *spec, const NetworkShape *shape, GError **error);

#endif
