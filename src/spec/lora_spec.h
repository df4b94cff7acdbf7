/* lora_spec.h - low-rank adapters beside linear layers: the plan's "lora". */
#ifndef HIGHWATER_SPEC_LORA_SPEC_H
#define HIGHWATER_SPEC_LORA_SPEC_H

#include "base/json_reader.h"
#include "spec/dtype.h"
#include <glib.h>

/* Whose forward() adds them. */
typedef enum {
  LORA_PEFT, /* result + B(A(dropout(x))) * scaling, with casts around it */
  LORA_PLAIN /* base(x) + B(A(x)) */
} LoraCode;

typedef struct {
  gint64 rank;
  LoraCode code;
  gboolean dropout;   /* its probability is above 0 */
  gboolean all;       /* every linear layer of the blocks, no targets */
  GPtrArray *targets; /* char *: patterns of a path, or of its end */
} LoraSpec;

/* The object under "lora", for parameters of this dtype; NULL when it is absent.  What is wrong is
 * the reader's error. */
LoraSpec *lora_spec_read(JsonReader *reader, DType parameters);
void lora_spec_free(LoraSpec *lora);

/* Do the targets name the layer of this path? */
gboolean lora_spec_targets(const LoraSpec *lora, const char *path);
/* Does one target match the path? */
gboolean lora_target_matches(const char *target, const char *path);

#endif
