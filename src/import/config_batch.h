/* config_batch.h - what configurations say about sizes of batches and numbers of ranks, brought
 * together. */
#ifndef HIGHWATER_IMPORT_CONFIG_BATCH_H
#define HIGHWATER_IMPORT_CONFIG_BATCH_H

#include "import/config_reader.h"

/* Ranks where nothing says how many: a node of eight, or as many of them as the sizes allow. */
#define CONFIG_RANKS_USUAL 8

/* 0 and "auto": not said. */
typedef struct {
  const char *total_key, *micro_key, *steps_key; /* keys of r */
  int total, micro, steps;
  int ranks;
  int micro_default;                       /* where nothing says it */
  const char *micro_reason, *steps_reason; /* and who would say it */
} ConfigBatch;

/* Reads the three keys, finds what is missing, and gives the plan batch.micro_batch and
 * accumulation.steps; b->ranks is set, too, and the caller lays out the mesh.  Sizes that
 * contradict each other are an error that names them. */
void config_batch_resolve(ConfigReader *r, ConfigBatch *b);
/* The settings' number of ranks beside that of a key (0: none); an error if they differ. */
int config_ranks(ConfigReader *r, const char *key, int ranks);
/* So many ranks, or the usual number where 0 are said. */
int config_ranks_or_usual(int ranks);
/* Parameters, autocast and outputs of accelerate's mixed precision, FSDP2's and DeepSpeed's apart.
 */
void config_default_autocast(ConfigReader *r);
/* The gradient scaler that accelerate makes for this dtype, fp16 alone, DeepSpeed's apart. */
void config_default_scaler(ConfigReader *r, const char *dtype);

/* What accelerate's Accelerator does in a training loop, DeepSpeed's apart. */
void config_default_loop(ConfigReader *r);
/* What DDP's constructor does with arguments that accelerate leaves out. */
void config_default_ddp(ConfigReader *r);

#endif
