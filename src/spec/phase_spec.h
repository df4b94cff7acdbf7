/* phase_spec.h - what a plan does beyond its steps: how the model is made, evaluation, checkpoints
 * saved and restored. */
#ifndef HIGHWATER_SPEC_PHASE_SPEC_H
#define HIGHWATER_SPEC_PHASE_SPEC_H

#include <glib.h>

#include "base/json_reader.h"

typedef enum { INITIALIZE_META, INITIALIZE_FULL } InitializeFrom;
typedef enum { INITIALIZE_ON_DEVICE, INITIALIZE_ON_CPU } InitializeOn;
typedef enum { STATE_SHARDED, STATE_FULL } StateKind;

/* The plan's "phases".  A phase that is not given does not take place. */
typedef struct {
  struct {
    gboolean given;
    InitializeFrom from;
    InitializeOn on; /* of a full model */
  } initialize;
  struct {
    gboolean given;
    int every;                        /* after each so many steps */
    int batches;                      /* forward passes of one evaluation */
    int micro_batch, sequence_length; /* 0: the plan's own */
  } evaluate;
  struct {
    gboolean given;
    int every; /* 0: after the last step only */
    StateKind state;
    gboolean optimizer, cpu_offload;
  } save;
  struct {
    gboolean given;
    StateKind state;
    gboolean optimizer;
    char *strategy; /* who wrote it: NULL for the plan's own */
    int shard;      /* by how many ranks; 0: the plan's own */
    int blocks_per_group;
  } load;
} PhaseSpec;

/* Reads "phases" of a plan; errors stay in the reader's document.  strategies: names that
 * load.from.strategy may have, NULL-terminated. */
void phase_spec_read(JsonReader *plan, const char *const *strategies, PhaseSpec *phases);
/* Frees what it points to. */
void phase_spec_clear(PhaseSpec *phases);

/* Does the phase take place after this step (from 1) of so many? */
gboolean phase_spec_evaluates(const PhaseSpec *phases, int step, int steps);
gboolean phase_spec_saves(const PhaseSpec *phases, int step, int steps);

#endif
