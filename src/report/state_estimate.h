/* state_estimate.h - model states by formulas: ZeRO's accounting, and what DeepSpeed's own
 * estimators would say. */
#ifndef HIGHWATER_REPORT_STATE_ESTIMATE_H
#define HIGHWATER_REPORT_STATE_ESTIMATE_H

#include <glib.h>

enum { ZERO_STAGES = 4 }; /* 0: data parallelism */

/* Bytes of a rank with 16-bit parameters and gradients and fp32 Adam, and what it sends in a step
 * in elements per parameter (arXiv 1910.02054, sections 3 and 7). */
typedef struct {
  double parameters, gradients, optimizer;
  double sent;
} ZeroStates;

ZeroStates zero_states(int stage, gint64 parameters, int ranks);

typedef struct {
  gint64 parameters;
  gint64 largest_layer; /* the most elements that one module has itself; 0: not known, and stage 3
                           cannot be estimated */
  int gpus_per_node, nodes;
} EstimatedModel;

typedef struct {
  int stage; /* 2 or 3 */
  gboolean offload_optimizer, offload_parameters;
  gboolean zero_init; /* stage 3 */
} EstimatedOffload;

/* Bytes: of a GPU, and of a node's host memory. */
typedef struct {
  gint64 device, host;
} StateEstimate;

/* estimate_zero2_model_states_mem_needs and estimate_zero3_model_states_mem_needs with their buffer
 * factor of 1.5 (deepspeed 0.19.8, runtime/zero/stage_1_and_2.py and stage3.py).  They count
 * neither activations nor buckets nor what a step needs for a moment. */
StateEstimate deepspeed_estimate(const EstimatedModel *model, const EstimatedOffload *offload);

#endif
