/* state_estimate.c - model states by formulas: ZeRO's accounting, and what DeepSpeed's own
 * estimators would say. */
#include "report/state_estimate.h"

/* Bytes a parameter: in 16 bits; of fp32 master weights and Adam's two moments. */
enum { HALF = 2, OPTIMIZER = 12 };
/* 16-bit and fp32 gradients, fp32 weights, two moments. */
enum { DEEPSPEED_STATES = 18 };
#define HOST_BUFFER_FACTOR 1.5

ZeroStates
zero_states(int stage, gint64 parameters, int ranks)
{
  double n = (double) parameters, share = n / ranks;
  return (ZeroStates){
      .parameters = HALF * (stage >= 3 ? share : n),
      .gradients = HALF * (stage >= 2 ? share : n),
      .optimizer = OPTIMIZER * (stage >= 1 ? share : n),
      .sent = ranks == 1   ? 0
              : stage >= 3 ? 3
                           : 2,
  };
}

static StateEstimate
estimate_stage2(const EstimatedModel *m, gboolean offload)
{
  double n = (double) m->parameters;
  int gpus = m->gpus_per_node * m->nodes;
  if (offload)
    return (StateEstimate){HALF * m->parameters,
                           (gint64) (n * MAX(4 * gpus, 16) * HOST_BUFFER_FACTOR)};
  return (StateEstimate){HALF * m->parameters + (gint64) (DEEPSPEED_STATES * n / gpus),
                         (gint64) (n * 4 * m->gpus_per_node * HOST_BUFFER_FACTOR)};
}

/* Host memory: what is offloaded, or what building the whole model on every rank takes. */
static double
stage3_host(const EstimatedModel *m, const EstimatedOffload *o)
{
  double n = (double) m->parameters, building = 4.0 * m->gpus_per_node;
  if (!o->offload_optimizer)
    return (o->zero_init ? (double) m->largest_layer : n) * building;
  double kept = (double) (o->offload_parameters ? DEEPSPEED_STATES : DEEPSPEED_STATES - HALF);
  kept /= m->nodes;
  return n * (o->zero_init ? kept : MAX(building, kept));
}

static StateEstimate
estimate_stage3(const EstimatedModel *m, const EstimatedOffload *o)
{
  double n = (double) m->parameters;
  int gpus = m->gpus_per_node * m->nodes;
  double divided = !o->offload_optimizer ? DEEPSPEED_STATES : o->offload_parameters ? 0 : HALF;
  return (StateEstimate){4 * m->largest_layer + (gint64) (divided * n / gpus),
                         (gint64) (stage3_host(m, o) * HOST_BUFFER_FACTOR)};
}

StateEstimate
deepspeed_estimate(const EstimatedModel *model, const EstimatedOffload *offload)
{
  return offload->stage == 2 ? estimate_stage2(model, offload->offload_optimizer)
                             : estimate_stage3(model, offload);
}
