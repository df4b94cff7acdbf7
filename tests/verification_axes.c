/* verification_axes.c - groups, reshard policies, prefetching, checkpoints, accumulation, meshes,
 * precisions, optimizers and the like of every strategy. */
#include "verification_axes.h"

#include "numeric/numeric_random.h"

#define ATTENTION "trainable=[\"*.attention.*\"]"
#define ADAPTERS "lora={\"rank\":2,\"targets\":[\"*.wq\",\"*.w2\"]}"
#define KEPT(as, until)                                                                            \
  "retain=[{\"group\":\"layers.1\",\"as\":\"" as "\",\"until\":\"" until "\"}]"
#define ON_CPU "{\"device\":\"cpu\"}"
#define PINNED_ON_CPU "{\"device\":\"cpu\",\"pin_memory\":true}"

#define SCALED "precision.compute=fp16 precision.grad_scaler=true"
#define UNCLIPPED "optimizer.clip_grad_norm=0 optimizer.implementation=fused"

/* ---- of many strategies ---- */

static const Setting networks[] = {{"", NULL, 0, 0},  {"", GPT2, 0, 0},        {"", TIED, 0, 0},
                                   {"", DROPS, 0, 0}, {ATTENTION, NULL, 0, 0}, {0}};
static const Setting adapters[] = {{ADAPTERS, NULL, 0, 0}, {0}};
static const Setting optimizers[] = {
    {"optimizer.name=sgd", NULL, 0, 0},
    {"optimizer.name=adam optimizer.implementation=foreach", NULL, 0, 0},
    {"optimizer.implementation=forloop", NULL, 0, 0},
    {"optimizer.clip_grad_norm=0", NULL, 0, 0},
    {0}};
static const Setting checkpoints[] = {
    {"activation_checkpointing.policy=full", NULL, 0, 0},
    {"activation_checkpointing.policy=every_n activation_checkpointing.every=2", NULL, 0, 0},
    {"activation_checkpointing.policy=selective_op", NULL, 0, 0},
    {0}};
static const Setting accumulation[] = {{"accumulation.steps=3", NULL, 0, 0}, {0}};
static const Setting deferred[] = {
    {"accumulation.steps=3 accumulation.sync_every_step=false", NULL, 0, 0}, {0}};

/* ---- ddp ---- */

static const Setting ddp_options[] = {
    {"ddp.gradient_as_bucket_view=true accumulation.steps=2", NULL, 0, 0},
    {"ddp.find_unused_parameters=true", NULL, 0, 0},
    {"loop=trainer accumulation.steps=2", DROPS, 0, 0},
    {SCALED " precision.autocast=true", NULL, 0, 0},
    {SCALED " precision.autocast=true " UNCLIPPED, NULL, 0, 0},
    {"ddp.zero_redundancy_optimizer=true", NULL, 0, 0},
    {"ddp.zero_redundancy_optimizer=true ddp.parameters_as_bucket_view=true", NULL, 0, 0},
    {0}};
static const Setting ddp_accumulation[] = {
    {"accumulation.steps=3 accumulation.sync_every_step=true", NULL, 0, 0}, {0}};

/* ---- FSDP ---- */

static const Setting fsdp2_groups[] = {{"fsdp.blocks_per_group=2", NULL, 0, 0},
                                       {"fsdp.blocks_per_group=0", NULL, 0, 0},
                                       {"fsdp.embedding=own", TIED, 0, 0},
                                       {"fsdp.head=own", NULL, 0, 0},
                                       {"fsdp.head=own fsdp.reshard_head=true", NULL, 0, 0},
                                       {0}};
static const Setting fsdp2_reshard[] = {{"fsdp.reshard_after_forward=true", NULL, 0, 0},
                                        {"fsdp.reshard_after_forward=false", NULL, 0, 0},
                                        {"fsdp.reshard_after_forward=2", NULL, 4, 2},
                                        {"fsdp.reshard_last_block=false", NULL, 0, 0},
                                        {0}};
static const Setting prefetch[] = {{"fsdp.forward_prefetch=1", NULL, 0, 0},
                                   {"fsdp.backward_prefetch=1", NULL, 0, 0},
                                   {"fsdp.forward_prefetch=2 fsdp.backward_prefetch=2", NULL, 0, 0},
                                   {0}};
static const Setting fsdp2_accumulation[] = {
    {"accumulation.steps=2 accumulation.reshard_after_backward=false", NULL, 0, 0},
    {"accumulation.steps=2 accumulation.sync_every_step=false accumulation.set_last_backward=true",
     NULL, 0, 0},
    {0}};
static const Setting fsdp_mesh[] = {
    {"mesh.replicate=2", NULL, 0, 0},
    {"mesh.replicate=2 accumulation.steps=4 accumulation.all_reduce_every=2", NULL, 2, 0},
    {0}};
static const Setting fsdp_precision[] = {
    {"precision.compute=fp32", NULL, 0, 0}, {"precision.reduce=bf16", NULL, 0, 0}, {0}};
static const Setting fsdp2_rest[] = {
    {"fsdp.cpu_offload=true", NULL, 0, 0},
    {"fsdp.cpu_offload=true fsdp.pin_memory=false accumulation.steps=2", NULL, 0, 0},
    {"optimizer.zero_grad=end", NULL, 0, 0},
    {"loop=trainer trainer.nan_filter=false", DROPS, 0, 0},
    {SCALED, NULL, 0, 0},
    {"allocator.roundup_power2_divisions=4", NULL, 0, 0},
    {"phases.initialize={\"from\":\"full\",\"on\":\"cpu\"}", NULL, 0, 0},
    {KEPT("clone", "end_of_step"), NULL, 0, 0},
    {KEPT("unsharded", "end_of_backward"), NULL, 0, 0},
    {0}};
static const Setting fsdp1_sharding[] = {
    {"fsdp.sharding_strategy=SHARD_GRAD_OP", NULL, 0, 0},
    {"fsdp.sharding_strategy=HYBRID_SHARD mesh.replicate=2", NULL, 2, 0},
    {"fsdp.sharding_strategy=_HYBRID_SHARD_ZERO2 mesh.replicate=2", NULL, 2, 0},
    {0}};
static const Setting fsdp1_prefetch[] = {{"fsdp.forward_prefetch=1", NULL, 0, 0},
                                         {"fsdp.backward_prefetch=post", NULL, 0, 0},
                                         {"fsdp.backward_prefetch=none", NULL, 0, 0},
                                         {"fsdp.limit_all_gathers=false", NULL, 0, 0},
                                         {0}};
static const Setting fsdp1_rest[] = {{SCALED, NULL, 0, 0},
                                     {SCALED " " UNCLIPPED, NULL, 0, 0},
                                     {"fsdp.use_orig_params=false", NULL, 0, 0},
                                     {"fsdp.cpu_offload=true", NULL, 2, 0},
                                     {"fsdp.blocks_per_group=0", NULL, 0, 0},
                                     {KEPT("unsharded", "end_of_step"), NULL, 0, 0},
                                     {0}};

/* ---- DeepSpeed ---- */

static const Setting deepspeed_precision[] = {{"precision.parameters=fp32", NULL, 0, 0},
                                              {"precision.parameters=fp16", NULL, 0, 0},
                                              {"deepspeed.grad_accum_dtype=fp32", NULL, 0, 0},
                                              {0}};
static const Setting stage12_options[] = {
    {"deepspeed.overlap_comm=true", NULL, 0, 0},
    {"deepspeed.reduce_bucket_size=600", NULL, 0, 0},
    {"deepspeed.contiguous_gradients=false", NULL, 0, 0},
    {"deepspeed.reduce_scatter=false", NULL, 0, 0},
    {"deepspeed.use_multi_rank_bucket_allreduce=false", NULL, 0, 0},
    {"deepspeed.parameter_alignment=true", NULL, 0, 0},
    {"deepspeed.round_robin_gradients=true", NULL, 0, 0},
    {0}};
static const Setting offload[] = {
    {"deepspeed.offload_optimizer=" ON_CPU, NULL, 0, 0},
    {"deepspeed.offload_optimizer=" PINNED_ON_CPU " accumulation.steps=2", NULL, 0, 0},
    {0}};
static const Setting zero3_options[] = {
    {"deepspeed.stage3_param_persistence_threshold=0", NULL, 0, 0},
    {"deepspeed.sub_group_size=600", NULL, 0, 0},
    {"deepspeed.zero_init=true", NULL, 0, 0},
    {"deepspeed.reduce_scatter=false", NULL, 0, 0},
    {"deepspeed.zero_hpz_partition_size=2", NULL, 2, 2},
    {"deepspeed.offload_optimizer=" ON_CPU " deepspeed.offload_param=" PINNED_ON_CPU, NULL, 0, 0},
    {"deepspeed.offload_optimizer={\"device\":\"cpu\",\"ratio\":0.5} deepspeed.sub_group_size=600",
     NULL, 0, 0},
    {0}};

/* ---- InternEvo ---- */

static const Setting internevo_options[] = {{"internevo.overlap_sync_grad=false", NULL, 0, 0},
                                            {"internevo.reduce_bucket_size=600", NULL, 0, 0},
                                            {"mesh.replicate=2", NULL, 0, 0},
                                            {"precision.parameters=fp32", NULL, 0, 0},
                                            {0}};
static const Setting internevo_networks[] = {
    {"", NULL, 0, 0}, {"", TIED, 0, 0}, {"", DROPS, 0, 0}, {0}};

#define AXES(...) ((const Setting *const[]){__VA_ARGS__, NULL})

const VariedStrategy varied_strategies[] = {
    {"ddp", DDP, "mesh.replicate",
     AXES(networks, adapters, optimizers, checkpoints, accumulation, deferred, ddp_options,
          ddp_accumulation)},
    {"fsdp2", FSDP2, "mesh.shard",
     AXES(networks, adapters, optimizers, checkpoints, accumulation, deferred, fsdp2_groups,
          fsdp2_reshard, prefetch, fsdp2_accumulation, fsdp_mesh, fsdp_precision, fsdp2_rest)},
    {"fsdp1", FSDP1, "mesh.shard",
     AXES(networks, adapters, optimizers, checkpoints, accumulation, deferred, fsdp1_sharding,
          fsdp1_prefetch, fsdp_precision, fsdp1_rest)},
    {"zero0", ZERO0, "mesh.shard",
     AXES(networks, adapters, optimizers, checkpoints, accumulation, deepspeed_precision)},
    {"zero1", ZERO1, "mesh.shard",
     AXES(networks, adapters, optimizers, checkpoints, accumulation, deepspeed_precision,
          stage12_options, offload)},
    {"zero2", ZERO2, "mesh.shard",
     AXES(networks, adapters, optimizers, checkpoints, accumulation, deepspeed_precision,
          stage12_options, offload)},
    {"zero3", ZERO3, "mesh.shard",
     AXES(networks, adapters, optimizers, checkpoints, accumulation, deepspeed_precision,
          zero3_options, offload)},
    {"internevo", INTERNEVO, "mesh.shard",
     AXES(internevo_networks, optimizers, checkpoints, accumulation, internevo_options)},
};

int
varied_strategy_count(void)
{
  return (int) G_N_ELEMENTS(varied_strategies);
}

/* ---- cases ---- */

static gboolean
is_for(const Setting *s, int ranks)
{
  return ranks >= s->least && (s->multiple == 0 || ranks % s->multiple == 0);
}

static void
add_case(const VariedStrategy *strategy, int ranks, const char *options, const char *network,
         GArray *cases)
{
  Plan plan = {
      network != NULL ? network : LLAMA, strategy->plan,
      g_strdup_printf("%s=%d%s%s", strategy->mesh, ranks, options[0] != '\0' ? " " : "", options)};
  g_array_append_val(cases, plan);
}

static void
plan_clear(gpointer plan)
{
  g_free((char *) (gsize) ((Plan *) plan)->options);
}

/* One setting of each of three axes, which do not give the same key. */
static void
add_combination(const VariedStrategy *strategy, int ranks, guint64 key, GArray *cases)
{
  enum { COMBINED = 3 };
  g_autoptr(GString) options = g_string_new(NULL);
  const char *network = NULL;
  gint64 axes = 0;
  while (strategy->axes[axes] != NULL)
    axes++;
  gint64 axis = numeric_choice(key, 0, axes);
  for (int i = 0; i < COMBINED; i++, axis = (axis + 2) % axes) {
    gint64 n = 0;
    while (strategy->axes[axis][n].options != NULL)
      n++;
    const Setting *s = &strategy->axes[axis][numeric_choice(key, (guint64) i + 1, n)];
    if (!is_for(s, ranks))
      continue;
    g_string_append_printf(options, "%s%s", options->len > 0 && s->options[0] != '\0' ? " " : "",
                           s->options);
    network = s->network != NULL ? s->network : network;
  }
  add_case(strategy, ranks, options->str, network, cases);
}

GArray *
varied_cases(const VariedStrategy *strategy, int ranks, int combined)
{
  GArray *cases = g_array_new(FALSE, FALSE, sizeof(Plan));
  g_array_set_clear_func(cases, plan_clear);
  for (const Setting *const *axis = strategy->axes; *axis != NULL; axis++)
    for (const Setting *s = *axis; s->options != NULL; s++)
      if (is_for(s, ranks))
        add_case(strategy, ranks, s->options, s->network, cases);
  guint64 key = numeric_key_add(numeric_key(1, strategy->name), (guint64) ranks);
  for (int i = 0; i < combined; i++)
    add_combination(strategy, ranks, numeric_key_add(key, (guint64) i), cases);
  return cases;
}
