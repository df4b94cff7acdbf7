/* checkpoint_spec.h - which blocks recompute their activations, and how. */
#ifndef HIGHWATER_SPEC_CHECKPOINT_SPEC_H
#define HIGHWATER_SPEC_CHECKPOINT_SPEC_H

#include <glib.h>

#include "base/json_reader.h"

typedef enum {
  CHECKPOINT_NONE,
  CHECKPOINT_FULL,
  CHECKPOINT_EVERY_N,
  CHECKPOINT_FRACTION,
  CHECKPOINT_SELECTIVE_OP,
} CheckpointPolicy;
typedef enum { AROUND_MODULE, AROUND_FSDP } CheckpointAround;

/* Ops whose outputs selective_op keeps. */
typedef enum {
  KEEP_ALTERNATE_MM, /* attention, and every second mm of a block, the first one included */
  KEEP_MATMUL,       /* attention, and every matrix product */
  KEEP_ATTENTION,
} KeptOps;

/* Blocks that have a policy of their own. */
typedef struct {
  int first, last;         /* from 0, both included */
  CheckpointPolicy policy; /* none, full or selective_op */
} BlockCheckpoints;

typedef struct {
  CheckpointPolicy policy;
  int every;
  double fraction;
  CheckpointAround around;
  gboolean wrapper;    /* PyTorch's checkpoint_wrapper, and not the model's own way */
  gboolean early_stop; /* a recomputation ends when backward has what it needs */
  KeptOps keep;        /* of selective_op */
  GArray *blocks;      /* BlockCheckpoints, of different blocks, by first; NULL: none */
} CheckpointSpec;

/* The plan's section "activation_checkpointing".  Errors are left in the reader's document. */
void checkpoint_spec_read(JsonReader *reader, CheckpointSpec *spec);
void checkpoint_spec_clear(CheckpointSpec *spec);

/* What becomes of a block (from 0): none, full or selective_op. */
CheckpointPolicy checkpoint_spec_of_block(const CheckpointSpec *spec, int block);
/* Can there be a block of that policy (none, full or selective_op)?  How many blocks there are is
 * not asked. */
gboolean checkpoint_spec_has(const CheckpointSpec *spec, CheckpointPolicy policy);
/* Can there be a block that recomputes anything? */
gboolean checkpoint_spec_recomputes(const CheckpointSpec *spec);

/* The policy, and what selective_op keeps, as written in plans: "every_n", "matmul". */
const char *checkpoint_policy_name(CheckpointPolicy policy);
const char *checkpoint_keep_name(KeptOps keep);

/* "full", "every 2", "full, blocks 0-7 none".  Caller frees. */
char *checkpoint_spec_text(const CheckpointSpec *spec);

#endif
