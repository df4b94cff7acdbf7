/* check_equivalence.c - gradients are reduced over all ranks once and updated by their owners:
 * every strategy does, and a Program in which that was broken is caught. */
#include "search/equivalence.h"
#include "simulation.h"
#include "tap_main.h"
#include <string.h>

#define SHORT "batch.sequence_length=64 "

/* The verdict on a plan with options, as text. */
static char *
verdict(const char *network, const char *plan, const char *options)
{
  g_autofree char *copy = g_strdup(options);
  g_auto(GStrv) set = g_strsplit(g_strchomp(copy), " ", -1);
  Simulation simulation = {.network = network, .plan = plan, .set = (const char *const *) set};
  g_autoptr(GError) error = NULL;
  g_autoptr(Scenario) scenario = simulation_read(&simulation, &error);
  EquivalenceReport report;
  if (scenario == NULL || !equivalence_check(scenario, 2, &report, &error))
    return g_strdup_printf("refused: %s", error->message);
  g_autoptr(GString) text = g_string_new(NULL);
  equivalence_print(&report, FALSE, text);
  equivalence_report_clear(&report);
  return g_string_free(g_steal_pointer(&text), FALSE);
}

/* ---- plans that are right ---- */

typedef struct {
  const char *network, *plan, *options;
  const char *says; /* beyond "equivalent" */
} Case;

static const Case right[] = {
    {"tiny", "ddp", SHORT, "39 parameters, each of 1 micro-batch, are reduced once over 8 ranks"},
    {"tiny", "ddp", SHORT "ddp.gradient_as_bucket_view=true", "8 to 8 of 8 ranks"},
    {"tiny", "ddp", SHORT "accumulation.steps=3", "each of 3 micro-batches"},
    {"tiny", "ddp", SHORT "accumulation.steps=3 ddp.gradient_as_bucket_view=true",
     "each of 3 micro-batches"},
    {"tiny", "ddp", SHORT "accumulation.steps=3 accumulation.sync_every_step=true",
     "each of 3 micro-batches"},
    {"tiny", "ddp", SHORT "ddp.zero_redundancy_optimizer=true", "1 to 1 of 8 ranks"},
    {"tiny", "ddp", SHORT "ddp.zero_redundancy_optimizer=true ddp.parameters_as_bucket_view=true",
     "1 to 1 of 8 ranks"},
    {"tiny", "ddp", SHORT "ddp.find_unused_parameters=true", "over 8 ranks"},
    {"tiny", "zero1", SHORT, "over 8 ranks"},
    {"tiny", "zero1", SHORT "accumulation.steps=2", "each of 2 micro-batches"},
    {"tiny", "zero1", SHORT "deepspeed.grad_accum_dtype=fp32", "over 8 ranks"},
    {"tiny", "zero1", SHORT "deepspeed.grad_accum_dtype=fp32 accumulation.steps=2",
     "each of 2 micro-batches"},
    {"tiny", "zero2", SHORT "accumulation.steps=2", "each of 2 micro-batches"},
    {"tiny", "zero2", SHORT "deepspeed.reduce_scatter=false", "over 8 ranks"},
    {"tiny", "zero2", SHORT "deepspeed.contiguous_gradients=false", "over 8 ranks"},
    {"tiny", "zero2", SHORT "deepspeed.use_multi_rank_bucket_allreduce=false", "over 8 ranks"},
    {"tiny", "zero2", SHORT "deepspeed.reduce_bucket_size=300000 deepspeed.overlap_comm=false",
     "over 8 ranks"},
    {"tiny", "zero2", SHORT "deepspeed.offload_optimizer.device=cpu",
     "names none of it: gradients were followed to there, updates were not"},
    {"tiny", "zero3", SHORT "accumulation.steps=2", "each of 2 micro-batches"},
    {"tiny", "zero3", SHORT "deepspeed.reduce_scatter=false", "over 8 ranks"},
    {"tiny", "zero3", SHORT "deepspeed.reduce_bucket_size=300000", "over 8 ranks"},
    {"tiny", "zero3", SHORT "deepspeed.offload_optimizer.device=cpu", "updates were not"},
    {"tiny", "{'strategy': 'zero0', 'mesh': {'shard': 4}, 'batch': {'sequence_length': 64}}", "",
     "over 4 ranks"},
    {"tiny", "{'strategy': 'none', 'batch': {'sequence_length': 64}}", "", "over 1 rank"},
    {"tiny", "fsdp1", SHORT "accumulation.steps=2", "each of 2 micro-batches"},
    {"tiny", "fsdp1", SHORT "fsdp.use_orig_params=false", "over 8 ranks"},
    {"tiny", "fsdp1", SHORT "mesh.shard=7", "over 7 ranks"},
    {"tiny", "fsdp1", SHORT "fsdp.cpu_offload=true", "updates were not"},
    {"tiny", "fsdp1-hybrid", SHORT, "over 16 ranks"},
    {"gpt2", "fsdp1", SHORT, "over 8 ranks"},
    {"tiny", "fsdp2", SHORT, "8 to 8 of 8 ranks"},
    {"tiny", "fsdp2", SHORT "mesh.shard=7", "7 to 7 of 7 ranks"},
    {"tiny", "fsdp2", SHORT "fsdp.blocks_per_group=3", "8 to 8 of 8 ranks"},
    {"tiny", "fsdp2", SHORT "accumulation.steps=3", "each of 3 micro-batches"},
    {"tiny", "fsdp2", SHORT "accumulation.steps=3 accumulation.sync_every_step=false",
     "each of 3 micro-batches"},
    {"tiny", "fsdp2", SHORT "fsdp.cpu_offload=true", "updates were not"},
    {"tiny", "fsdp2", SHORT "optimizer.name=none", "only reductions were followed"},
    {"tiny", "fsdp2", SHORT "optimizer.name=sgd optimizer.implementation=foreach",
     "8 to 8 of 8 ranks"},
    {"tiny", "fsdp2", SHORT "optimizer.implementation=foreach", "8 to 8 of 8 ranks"},
    {"tiny", "fsdp2", SHORT "optimizer.implementation=forloop", "8 to 8 of 8 ranks"},
    {"tiny", "fsdp2", SHORT "compile=per_block", "8 to 8 of 8 ranks"},
    {"tiny", "hsdp", SHORT "accumulation.steps=4 accumulation.all_reduce_every=2",
     "each of 4 micro-batches"},
    {"gpt2", "fsdp2", SHORT, "over 8 ranks"},
    {"tiny", "internevo", SHORT, "1 to 1 of 8 ranks"},
    {"tiny", "internevo", SHORT "mesh.shard=4 mesh.replicate=2", "over 8 ranks"},
    {"tiny", "lora", SHORT, "39 parameters are frozen"},
};

START_TEST(a_plan_reduces_every_gradient_once_and_updates_every_element_once)
{
  const Case *c = &right[_i];
  g_autofree char *text = verdict(c->network, c->plan, c->options);
  ck_assert_msg(g_str_has_prefix(text, "equivalent: ") && strstr(text, c->says) != NULL,
                "%s %s %s: %s", c->network, c->plan, c->options, text);
}
END_TEST

Suite *
test_suite(void)
{
  Suite *suite = suite_create("equivalence");
  TCase *plans = tcase_create("plans");
  tcase_add_loop_test(plans, a_plan_reduces_every_gradient_once_and_updates_every_element_once, 0,
                      G_N_ELEMENTS(right));
  suite_add_tcase(suite, plans);
  return suite;
}
