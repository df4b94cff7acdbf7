/* fsdp2_init.c - fully_shard of a model that has its parameters: on the device, or on the host,
 * from where each call moves those of its group (torch/distributed/fsdp/_fully_shard/_fsdp_init.py,
 * _move_states_to_device; _fsdp_param.py, _init_sharded_param). */
#include "program/meaning.h"
#include "strategy/fsdp2_private.h"

void
fsdp2_holds(StrategyContext *x, int parameter)
{
  const Fsdp2 *f = fsdp2_of(x);
  const ParameterState *p = &x->parameters[parameter];
  gint64 first = p->ignored ? 0 : x->rank * f->shards[parameter].padded_elements;
  gint64 elements = p->ignored ? p->local_elements : f->shards[parameter].local_elements;
  strategy_holds(x, p->sharded, f->stored, (StateRange){parameter, first, elements}, 0);
}

/* The group's parameters as the model made them become its shards: all of these are made, then the
 * originals go. */
static void
shard_group(StrategyContext *x, const Group *g)
{
  const Fsdp2 *f = fsdp2_of(x);
  g_autofree StorageId *whole = g_new(StorageId, MAX(g->count, 1));
  for (int i = 0; i < g->count; i++) {
    ParameterState *p = &x->parameters[g->parameter[i]];
    const Shard *shard = &g->shard[i];
    whole[i] = p->sharded;
    p->sharded =
        live_storage_alloc(x->live, shard->padded_elements * dtype_size(f->stored), STREAM_COMPUTE,
                           parameter_purpose(x, g->parameter[i], CATEGORY_PARAMETER));
    fsdp2_holds(x, g->parameter[i]);
    group_operand(x, whole[i], f->stored, ROLE_READ);
    group_operand(x, p->sharded, f->stored, ROLE_WRITE);
    g_autofree char *meaning = meaning_text("take_slice", 1, "ranks", (double) f->ranks);
    strategy_launch_as(x, STREAM_COMPUTE, "copy",
                       2.0 * (double) shard->local_elements * dtype_size(f->stored), meaning);
  }
  for (int i = 0; i < g->count; i++)
    live_storage_drop(x->live, whole[i]);
}

/* The group that fully_shard is called for as the n-th one; the root is last. */
static const Group *
called_as(const Fsdp2 *f, int n)
{
  for (int i = 1; i < f->count; i++)
    if (f->groups[i].unit->made == n)
      return &f->groups[i];
  return &f->groups[0];
}

void
fsdp2_construct_from_full(StrategyContext *x)
{
  Fsdp2 *f = fsdp2_of(x);
  gboolean on_host = x->plan->phases.initialize.on == INITIALIZE_ON_CPU;
  if (on_host)
    strategy_construct_on_host(x);
  else
    strategy_construct_whole(x);
  for (int i = 1; i <= f->count; i++) {
    const Group *g = called_as(f, i);
    for (int k = 0; k < g->count && on_host; k++)
      strategy_move_to_device(x, g->parameter[k]);
    shard_group(x, g);
    for (int k = 0; k < g->count; k++) {
      ParameterState *p = &x->parameters[g->parameter[k]];
      p->unsharded = NO_STORAGE;
      p->local_elements = g->shard[k].local_elements;
    }
  }
}
