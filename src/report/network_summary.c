/* network_summary.c - what a network consists of and costs. */
#include "report/network_summary.h"

#include <string.h>

#include "report/block_activations.h"

/* ---- activations ---- */

/* The plan with every block checkpointed by this policy, and nothing of the step beyond one
 * micro-batch. */
static PlanSpec
plan_under(const PlanSpec *plan, CheckpointPolicy policy)
{
  PlanSpec variant = *plan;
  variant.checkpointing.policy = policy;
  variant.checkpointing.every = 1;
  variant.checkpointing.fraction = 1;
  variant.checkpointing.blocks = NULL;
  if (policy == CHECKPOINT_NONE)
    variant.checkpointing.around = AROUND_MODULE;
  variant.accumulation.steps = 1;
  variant.optimizer.clip_grad_norm = 0;
  return variant;
}

/* Bytes that each block keeps under the policy (gint64), or NULL and error.  The network is built
 * anew: what its ops are can depend on the policy. */
static GArray *
activations_under(const NetworkSummaryInput *in, CheckpointPolicy policy, GError **error)
{
  PlanSpec plan = plan_under(in->plan, policy);
  NetworkShape shape = lower_shape(&plan, in->device);
  g_autoptr(Network) network = network_build(in->spec, &shape, error);
  if (network == NULL)
    return NULL;
  LowerInput lowering = {.network = network,
                         .plan = &plan,
                         .device = in->device,
                         .strategy = in->strategy,
                         .steps = 1};
  g_autoptr(Lowered) lowered = lower(&lowering, error);
  return lowered != NULL ? block_activations(lowered->program, network) : NULL;
}

/* ---- blocks ---- */

static void
block_line_clear(gpointer data)
{
  g_free(((BlockLine *) data)->path);
}

static gint64
block_parameters(const Network *network, int block)
{
  const Block *b = network_block(network, block);
  gint64 elements = 0;
  for (int i = 0; i < b->parameter_count; i++)
    elements += network_parameter(network, b->first_parameter + i)->elements;
  return elements;
}

/* Joins a block to the last line when it is like the ones there. */
static void
add_block(NetworkSummary *s, int block, const gint64 bytes[SUMMARY_POLICIES])
{
  BlockLine *last =
      s->blocks->len > 0 ? &g_array_index(s->blocks, BlockLine, s->blocks->len - 1) : NULL;
  if (last != NULL && blocks_are_alike(s->network, last->first, block) &&
      memcmp(last->activation_bytes, bytes, sizeof last->activation_bytes) == 0) {
    last->count++;
    return;
  }
  BlockLine line = {.first = block, .count = 1, .parameters = block_parameters(s->network, block)};
  memcpy(line.activation_bytes, bytes, sizeof line.activation_bytes);
  g_array_append_val(s->blocks, line);
}

static gboolean
fill_blocks(NetworkSummary *s, const NetworkSummaryInput *in, GError **error)
{
  GArray *kept[SUMMARY_POLICIES] = {NULL};
  gboolean ok = TRUE;
  for (int policy = 0; policy < SUMMARY_POLICIES && ok; policy++) {
    kept[policy] = activations_under(in, (CheckpointPolicy) policy, error);
    ok = kept[policy] != NULL;
  }
  for (guint i = 0; ok && i < s->network->blocks->len; i++) {
    gint64 bytes[SUMMARY_POLICIES];
    for (int policy = 0; policy < SUMMARY_POLICIES; policy++) {
      bytes[policy] = g_array_index(kept[policy], gint64, i);
      s->activation_bytes[policy] = MAX(s->activation_bytes[policy], bytes[policy]);
    }
    s->planned_bytes += bytes[checkpoint_spec_of_block(&in->plan->checkpointing, (int) i)];
    add_block(s, (int) i, bytes);
  }
  for (int policy = 0; policy < SUMMARY_POLICIES; policy++)
    g_clear_pointer(&kept[policy], g_array_unref);
  for (guint i = 0; i < s->blocks->len; i++) {
    BlockLine *line = &g_array_index(s->blocks, BlockLine, i);
    line->path = block_run_path(s->network, line->first, line->count);
  }
  return ok;
}

/* ---- groups ---- */

gint64
unit_padding_bytes(const NetworkSummary *s, const Unit *unit)
{
  gint64 bytes = unit->elements * dtype_size(s->network->shape.precision.weights);
  return MAX(unit->unsharded_bytes - bytes, 0);
}

/* ---- all ---- */

static void
fill_figures(NetworkSummary *s)
{
  const Network *n = s->network;
  NetworkFlops flops = network_flops(n);
  double tokens = (double) n->shape.micro_batch * (double) network_positions(n);
  s->flops_per_token = (NetworkFlops){flops.forward / tokens, flops.backward / tokens};
  s->model_flops_per_token = network_model_flops_per_token(n);
  s->parameters = network_parameter_count(n);
  for (guint i = 0; i < n->parameters->len; i++) {
    const Parameter *p = network_parameter(n, (int) i);
    s->trainable_parameters += p->trainable ? p->elements : 0;
  }
}

NetworkSummary *
network_summary_new(const NetworkSummaryInput *in, GError **error)
{
  g_autoptr(NetworkSummary) s = g_new0(NetworkSummary, 1);
  s->spec = in->spec;
  s->network = in->network;
  s->plan = in->plan;
  s->blocks = g_array_new(FALSE, FALSE, sizeof(BlockLine));
  g_array_set_clear_func(s->blocks, block_line_clear);
  s->modules = module_lines(in->network);
  fill_figures(s);
  LowerInput lowering = {.network = in->network,
                         .plan = in->plan,
                         .device = in->device,
                         .strategy = in->strategy,
                         .steps = 1};
  s->lowered = lower(&lowering, error);
  if (s->lowered == NULL || !fill_blocks(s, in, error))
    return NULL;
  return g_steal_pointer(&s);
}

void
network_summary_free(NetworkSummary *s)
{
  if (s == NULL)
    return;
  g_array_unref(s->modules);
  g_array_unref(s->blocks);
  lowered_free(s->lowered);
  g_free(s);
}
