/* zero_state.c - which rank holds which elements of the fp32 weights and their moments under ZeRO
 * (deepspeed 0.19.8, runtime/zero/stage_1_and_2.py and partition_parameters.py). */
#include "strategy/zero_state.h"

#include "base/units.h"
#include "strategy/zero_flat.h"

int
zero_state_ranks(const StrategyContext *x)
{
  return x->plan->shard * x->plan->replicate;
}

/* Equal partitions of one flat buffer, wherever they fall. */
void
zero_stage12_state_ranges(const StrategyContext *x, StateLayout *layout)
{
  DeepSpeed d;
  ZeroFlat flat;
  FlatSlice slice;
  deepspeed_read(&d, x->plan, x->network, g_str_equal(x->plan->strategy, "zero1") ? 1 : 2, 0);
  zero_flat_init(&flat, &d, x->network);
  for (int k = 0; k < flat.count; k++)
    for (int i = 0; zero_flat_slice(&flat, x->network, flat.order[k], i, &slice); i++)
      state_layout_add(layout, slice.rank,
                       (StateRange){flat.order[k], slice.first, slice.elements});
  zero_flat_clear(&flat);
}

/* Each parameter by itself: ceil(elements / ranks) a rank, the last ones padded. */
void
zero3_state_ranges(const StrategyContext *x, StateLayout *layout)
{
  for (guint i = 0; i < x->network->parameters->len; i++) {
    gint64 elements = network_parameter(x->network, (int) i)->elements;
    gint64 share = ceil_div(elements, layout->ranks);
    for (int rank = 0; rank < layout->ranks && rank * share < elements; rank++)
      state_layout_add(layout, rank,
                       (StateRange){(gint32) i, rank * share, MIN(share, elements - rank * share)});
  }
}
