/* network_flops.c - sums the FLOPs of a network's kernels over its functions. */
#include "network/network_flops.h"

double
network_counted_flops(const Kernel *kernel)
{
  switch (kernel->kind) {
  case KERNEL_ATTENTION_FORWARD:
    return 2 * kernel->flops;
  case KERNEL_ATTENTION_BACKWARD:
    return 2 * kernel->flops * 4 / 5;
  case KERNEL_WHOLE_ATTENTION_BACKWARD:
    return kernel->flops * 4 / 5;
  default:
    return kernel->flops;
  }
}

static double
done_flops(const Kernel *kernel)
{
  return kernel->flops;
}

typedef double (*FlopsOf)(const Kernel *kernel);

/* FLOPs of the kernels that steps [first, end) of a function launch. */
static double
launched(const Function *f, gint32 first, gint32 end, FlopsOf flops_of)
{
  double flops = 0;
  for (gint32 i = first; i < end; i++) {
    const OpStep *step = &g_array_index(f->steps, OpStep, i);
    if (step->action == STEP_LAUNCH)
      flops += flops_of(&g_array_index(f->kernels, OpKernel, step->index).kernel);
  }
  return flops;
}

static NetworkFlops
function_flops(const Network *network, int function, FlopsOf flops_of)
{
  const Function *f = network_function(network, function);
  NetworkFlops sum = {0, 0};
  for (guint i = 0; i < f->statements->len; i++) {
    const Statement *s = &g_array_index(f->statements, Statement, i);
    if (s->kind == STATEMENT_OP) {
      const Op *op = &g_array_index(f->ops, Op, s->a);
      sum.forward += launched(f, op->forward, op->backward, flops_of);
      sum.backward += launched(f, op->backward, op->end, flops_of);
    } else if (s->kind == STATEMENT_CALL) {
      NetworkFlops called = function_flops(network, s->a, flops_of);
      sum.forward += called.forward;
      sum.backward += called.backward;
    }
  }
  return sum;
}

NetworkFlops
network_flops(const Network *network)
{
  return function_flops(network, network->main, done_flops);
}

double
network_model_flops_per_token(const Network *network)
{
  if (network->stacks > 1) {
    NetworkFlops counted = function_flops(network, network->main, network_counted_flops);
    double tokens = (double) (network->shape.micro_batch * network_positions(network));
    return (counted.forward + counted.backward) / tokens;
  }
  gint64 unused = network->embedding_parameters + network->idle_parameters;
  double parameters = (double) (network_parameter_count(network) - unused);
  double square = (double) network->attention_width * (double) network_positions(network);
  return 6 * parameters + 12.0 * network->blocks->len * square;
}
