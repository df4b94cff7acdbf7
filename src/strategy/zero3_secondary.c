/* zero3_secondary.c - hpZ: a second, coarser shard of each parameter over few neighbouring ranks,
 * made when the parameter is first released after a step and gathered from until the next one
 * (partition_parameters.py, _partition_param_sec; stage3.py, invalidate_secondary_tensor). */
#include "strategy/zero3_private.h"

gint64
secondary_elements(const Zero3 *z, int parameter)
{
  return z->parameter[parameter].shard * z->ds.ranks / z->ds.secondary_ranks;
}

/* Where it is kept: with the shards. */
static StorageId
allocate(StrategyContext *x, int parameter)
{
  Zero3 *z = zero3_of(x);
  gint64 bytes = secondary_elements(z, parameter) * z->ds.element;
  StoragePurpose purpose = parameter_purpose(x, parameter, CATEGORY_PARAMETER);
  purpose.what = program_builder_name(x->builder, "secondary shard");
  if (offload_is_parameters(z))
    return offload_allocate(x, z->ds.parameter_pinned, bytes, CATEGORY_PARAMETER,
                            "secondary shard");
  return live_storage_alloc(x->live, bytes, STREAM_COMPUTE, purpose);
}

void
secondary_keep(StrategyContext *x, int parameter)
{
  Zero3 *z = zero3_of(x);
  Zero3Parameter *p = &z->parameter[parameter];
  const ParameterState *state = &x->parameters[parameter];
  if (z->ds.secondary_ranks <= 1 || p->secondary != NO_STORAGE)
    return;
  gint64 elements = secondary_elements(z, parameter);
  gint64 first = elements * (z->ds.rank % z->ds.secondary_ranks);
  gint64 there = CLAMP(p->elements - first, 0, elements);
  p->secondary = allocate(x, parameter);
  if (there > 0)
    zero3_part(x, state->unsharded, state->offset + first, there, z->ds.model, ROLE_READ);
  zero3_operand(x, p->secondary, z->ds.model, ROLE_WRITE);
  if (offload_is_parameters(z))
    strategy_copy(x, STREAM_COMPUTE, "shard to host", (double) (there * z->ds.element));
  else
    strategy_launch(x, STREAM_COMPUTE, "copy", 2.0 * (double) (elements * z->ds.element));
  program_builder_stream_sync(x->builder, STREAM_COMPUTE);
}

void
secondary_forget(StrategyContext *x)
{
  Zero3 *z = zero3_of(x);
  for (int i = 0; i < z->trained_count; i++)
    live_storage_clear(x->live, &z->parameter[z->trained[i]].secondary);
}
