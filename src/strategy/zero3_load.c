/* zero3_load.c - a checkpoint is read under ZeRO stage 3: this rank's sub-groups of the optimizer,
 * and from them its shards; parameters that persist are gathered again (deepspeed 0.19.8,
 * runtime/zero/stage3.py, _rigid_load_state_dict and checkpoint_event_epilogue).  The model's file
 * holds no weights. */
#include "strategy/zero3_private.h"
#include "strategy/zero_load.h"
#include "strategy/zero_state.h"

gint64
zero3_load(StrategyContext *x)
{
  Zero3 *z = zero3_of(x);
  g_autofree OptimizedTensor **tensors = g_new(OptimizedTensor *, MAX(z->groups, 1));
  release_all(x);
  for (int i = 0; i < z->groups; i++) {
    tensors[i] = &z->group[i].optimized;
    tensors[i]->value = z->group[i].master;
  }
  zero_load_optimizer(x, z->groups, tensors, TRUE);
  for (int i = 0; i < z->groups; i++)
    step_store_weights(x, &z->group[i]);
  secondary_forget(x);
  step_gather_persistent(x);
  return zero_owned_bytes(x, x->global_rank);
}
