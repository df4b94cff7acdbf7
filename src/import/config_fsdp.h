/* config_fsdp.h - the settings of FSDP that accelerate and TrainingArguments share. */
#ifndef HIGHWATER_IMPORT_CONFIG_FSDP_H
#define HIGHWATER_IMPORT_CONFIG_FSDP_H

#include "import/config_reader.h"

typedef struct {
  int version; /* where fsdp_version is missing */
  const char *version_reason;
  int ranks;            /* 0: not said */
  int machines;         /* 0: not said, one */
  int shard, replicate; /* a mesh that another section gives; 0: none */
  const char *dtype;    /* mixed precision: "bf16", "fp16", or NULL */
  const char *strategy; /* the sharding strategy from elsewhere; NULL */
  gboolean wraps;       /* blocks are wrapped unless the section says otherwise */
  gboolean offloads;    /* parameters are offloaded, says another key */
  gboolean checkpoints; /* gradient_checkpointing of TrainingArguments is true */
} FsdpOutside;

/* r->root is the section; its keys may have the prefix fsdp_ or lack it. */
void config_read_fsdp(ConfigReader *r, const FsdpOutside *outside);
/* FSDP1's name of a strategy, from its name in any case or its number (1 to 5); NULL. */
const char *config_sharding_strategy(const char *text);

#endif
