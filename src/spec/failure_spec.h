/* failure_spec.h - a worker's failure as a plan asks for it: which rank, and when. */
#ifndef HIGHWATER_SPEC_FAILURE_SPEC_H
#define HIGHWATER_SPEC_FAILURE_SPEC_H

#include <glib.h>

#include "base/json_reader.h"

/* Phases of a step, in their order. */
typedef enum {
  FAILURE_ZERO_GRAD,
  FAILURE_FORWARD,
  FAILURE_BACKWARD,
  FAILURE_CLIP,
  FAILURE_OPTIMIZER,
  FAILURE_PHASES
} FailurePhase;

typedef struct {
  gboolean given; /* FALSE: nobody fails, and the rest means nothing */
  int rank;       /* global */
  int step;       /* from 1 */
  FailurePhase phase;
  int micro_batch; /* from 0, of forward and backward */
  double fraction; /* of the phase's time, 0 to 1 */
  gboolean last_save_given;
  int last_save; /* the step after which training was saved last; 0: its beginning */
} FailureSpec;

/* Name of a phase as plans and Programs write it: "zero_grad". */
const char *failure_phase_name(FailurePhase phase);

/* Reads the key "failure" of a plan with so many ranks and micro-batches a step.  Mistakes are the
 * reader's. */
void failure_spec_read(JsonReader *plan, int ranks, int micro_batches, FailureSpec *spec);

#endif
