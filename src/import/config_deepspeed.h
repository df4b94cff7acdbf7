/* config_deepspeed.h - DeepSpeed's configuration, by itself or inside of another one. */
#ifndef HIGHWATER_IMPORT_CONFIG_DEEPSPEED_H
#define HIGHWATER_IMPORT_CONFIG_DEEPSPEED_H

#include "import/config_reader.h"

/* What an enclosing configuration says, which "auto" stands for. */
typedef struct {
  const char *who;          /* "TrainingArguments"; NULL: there is none */
  int ranks, micro, steps;  /* 0: not said */
  double clip;              /* negative: not said */
  const char *dtype;        /* "fp32", "bf16", "fp16"; NULL: not said */
  gboolean is_dtype_strict; /* also where it is fp32, another one in the file is an error */
  const char *optimizer, *implementation; /* of the plan; NULL: not said */
} DeepSpeedOutside;

DeepSpeedOutside deepspeed_outside_none(void);
/* r->root is the configuration. */
void config_read_deepspeed(ConfigReader *r, const DeepSpeedOutside *outside);

#endif
