/* small_network.c - small networks beside what transformers took for them. */
#include "small_network.h"

#include "tap_main.h"

const char small_network_plan[] =
    "{'strategy': 'fsdp2', 'mesh': {'shard': 2}, 'batch': {'micro_batch': 2, "
    "'sequence_length': 256}, 'precision': {'parameters': 'fp32', 'compute': 'bf16', "
    "'reduce': 'fp32'}, 'optimizer': {'name': 'adamw', 'implementation': 'fused', "
    "'zero_grad': 'end'}, 'activation_checkpointing': {'around': 'module'}}";

void
peaks_expect(const Simulated *s, const char *name, const Peaks *steps, guint n)
{
  for (guint i = 0; i < n; i++) {
    const StepRecord *step = &g_array_index(s->recording->steps, StepRecord, i);
    const Peaks *want = &steps[i];
    ck_assert_msg(step->peak_allocated == want->allocated && step->peak_reserved == want->reserved,
                  "%s, step %u: %" G_GINT64_FORMAT " and %" G_GINT64_FORMAT
                  " bytes, not %" G_GINT64_FORMAT " and %" G_GINT64_FORMAT,
                  name, i + 1, step->peak_allocated, step->peak_reserved, want->allocated,
                  want->reserved);
  }
}

void
small_network_expect(const SmallNetwork *measured)
{
  const char *set[] = {NULL, NULL};
  if (measured->checkpointed)
    set[0] = "activation_checkpointing.policy=full";
  small_network_expect_with(measured, set);
}

void
small_network_expect_with(const SmallNetwork *measured, const char *const *set)
{
  g_autofree char *network =
      g_strdup_printf("{%s, 'implementation': {'code': 'transformers', 'attention': '%s'}}",
                      measured->config, measured->eager ? "eager" : "sdpa");
  g_autoptr(Simulated) s =
      simulation_execute(&(Simulation){network, small_network_plan, set, 0}, 2, (gint64) 1 << 40);
  ck_assert_msg(network_parameter_count(s->scenario->network) == measured->parameters,
                "%s: %" G_GINT64_FORMAT " parameters", measured->name,
                network_parameter_count(s->scenario->network));
  peaks_expect(s, measured->name, measured->steps, G_N_ELEMENTS(measured->steps));
}

void
small_network_refuse(const char *config, const char *says)
{
  g_autofree char *network = g_strdup_printf("{%s}", config);
  g_autoptr(GError) error = NULL;
  g_autoptr(Simulated) s =
      simulation_try(&(Simulation){network, small_network_plan, NULL, 0}, 1, &error);
  ck_assert_msg(s == NULL, "%s is accepted", network);
  ck_assert(test_error_says(error, says));
}
