/* check_strategies.c - what every strategy keeps to, whatever the network and the plan: a loop over
 * the registry, so that a new one is tested the day it is added.
 *
 * Small networks of each family, plans of many kinds; a plan may be refused, but what is lowered
 * passes the checker, leaves nothing behind, sends what the strategy's closed form says, is the
 * same again for the same input, and goes together with the other ranks' Programs.  Whether the
 * order is the real framework's is not asked here. */
#include "base/units.h"
#include "exec/executor.h"
#include "quick.h"
#include "simulation.h"
#include "tap_main.h"
#include <string.h>

#define STEPS 3
#define WITHOUT_LIMIT ((gint64) 1 << 60)

/* ---- what is tried */

static const char *const networks[] = {
    "{'model_type': 'llama', 'hidden_size': 64, 'intermediate_size': 160, 'num_hidden_layers': 3,"
    " 'num_attention_heads': 4, 'num_key_value_heads': 2, 'vocab_size': 250,"
    " 'implementation': 'torchtitan'}",
    "{'model_type': 'llama', 'hidden_size': 64, 'intermediate_size': 160, 'num_hidden_layers': 3,"
    " 'num_attention_heads': 4, 'num_key_value_heads': 2, 'vocab_size': 250,"
    " 'tie_word_embeddings': true, 'implementation': 'transformers'}",
    "{'model_type': 'gpt2', 'n_embd': 64, 'n_layer': 3, 'n_head': 4, 'vocab_size': 257,"
    " 'n_positions': 64, 'implementation': 'nanogpt'}",
    "{'model_type': 'gpt2', 'n_embd': 64, 'n_layer': 3, 'n_head': 4, 'vocab_size': 257,"
    " 'n_positions': 64, 'implementation': 'transformers'}",
    "{'family': 'blocks', 'hidden': 60, 'vocabulary': 100, 'blocks': ["
    " {'repeat': 2, 'ops': [{'op': 'layer_norm'}, {'op': 'linear', 'out': 90, 'bias': true},"
    " {'op': 'gelu'}, {'op': 'linear', 'out': 60}, {'op': 'add', 'with': 'input'}]},"
    " {'ops': [{'op': 'numbers', 'parameters': 1001, 'activation_bytes': 5000}]}]}",
    "{'family': 'blocks', 'hidden': 64, 'embedding': false, 'head': false, 'loss': 'sum',"
    " 'blocks': [{'repeat': 2, 'ops': [{'op': 'rms_norm'}, {'op': 'attention', 'heads': 4,"
    " 'kv_heads': 2}]}]}",
};

/* One thing that plans differ in: each choice is assignments with spaces between. */
typedef struct {
  const char *const *choices;
  guint n;
} Dimension;
#define DIMENSION(choices)                                                                         \
  {                                                                                                \
    choices, G_N_ELEMENTS(choices)                                                                 \
  }

static const char *const meshes[] = {
    "mesh.shard=1",     "mesh.shard=2",     "mesh.shard=3",
    "mesh.shard=4",     "mesh.shard=8",     "mesh.shard=2 mesh.replicate=2",
    "mesh.replicate=2", "mesh.replicate=3", "mesh.shard=3 mesh.replicate=2",
    "mesh.replicate=8",
};
static const char *const precisions[] = {
    "precision.compute=fp32",
    "precision.compute=bf16 precision.reduce=fp32",
    "precision.compute=bf16 precision.autocast=true",
    "precision.compute=bf16 precision.reduce=bf16",
    "precision.parameters=bf16 precision.reduce=bf16",
    "precision.compute=bf16 precision.reduce=fp32 precision.output=fp32",
};
static const char *const policies[] = {
    "activation_checkpointing.policy=none",
    "activation_checkpointing.policy=full",
    "activation_checkpointing.policy=every_n activation_checkpointing.every=2",
    "activation_checkpointing.policy=fraction activation_checkpointing.fraction=0.5",
    "activation_checkpointing.policy=selective_op",
    "activation_checkpointing.policy=full activation_checkpointing.around=fsdp",
};
static const char *const accumulations[] = {
    "accumulation.steps=1",
    "accumulation.steps=3 accumulation.sync_every_step=true",
    "accumulation.steps=2 accumulation.sync_every_step=false",
    ("accumulation.steps=3 accumulation.sync_every_step=false"
     " accumulation.reshard_after_backward=false"),
    "accumulation.steps=2 accumulation.set_last_backward=true",
    "accumulation.steps=4 accumulation.all_reduce_every=3",
};
static const char *const optimizers[] = {
    "optimizer.implementation=fused optimizer.clip_grad_norm=1.0",
    "optimizer.implementation=foreach optimizer.clip_grad_norm=null",
    "optimizer.implementation=forloop optimizer.zero_grad=end",
    "optimizer.implementation=composer",
    "optimizer.name=sgd optimizer.implementation=foreach",
    "optimizer.name=none",
};
static const char *const trained[] = {
    "trainable=null",
    "lora=null",
    "trainable=[\"*.1.*\"]",
    "trainable=[\"!*.0.*\",\"!*bias\"]",
    "lora={\"rank\":4,\"targets\":\"all-linear\"}",
    "lora={\"rank\":3,\"targets\":[\"*.1.*\"],\"dropout\":0.1} trainable=[\"*lora*\",\"*norm*\"]",
};
static const char *const compilations[] = {"compile=none", "compile=per_block"};
static const Dimension common[] = {
    DIMENSION(meshes),     DIMENSION(policies), DIMENSION(accumulations), DIMENSION(precisions),
    DIMENSION(optimizers), DIMENSION(trained),  DIMENSION(compilations),
};

static const char *const groups[] = {"fsdp.blocks_per_group=1", "fsdp.blocks_per_group=0",
                                     "fsdp.blocks_per_group=2",
                                     "fsdp.groups=[[\"layers.0\",\"layers.1\"],\"layers.2\"]",
                                     "fsdp.groups=[\"layers.1.*\",\"layers.2.feed_forward\"]"};
static const char *const places[] = {"fsdp.embedding=root", "fsdp.embedding=own fsdp.head=own",
                                     "fsdp.embedding=own", "fsdp.head=own fsdp.reshard_head=true"};
static const char *const reshards[] = {"fsdp.reshard_after_forward=null",
                                       "fsdp.reshard_after_forward=true",
                                       "fsdp.reshard_after_forward=false",
                                       "fsdp.reshard_after_forward=2",
                                       "fsdp.reshard_after_forward=2 fsdp.reshard_root=false",
                                       "fsdp.reshard_last_block=false"};
static const char *const prefetches[] = {"fsdp.forward_prefetch=0", "fsdp.forward_prefetch=1",
                                         "fsdp.backward_prefetch=2",
                                         "fsdp.forward_prefetch=3 fsdp.backward_prefetch=1"};
static const char *const left_alone[] = {
    "fsdp.ignored=null", "fsdp.ignored=[\"*.1.*\"] trainable=[\"!*.1.*\"]",
    ("fsdp.ignored=[\"*norm*\",\"*.0.*\"] optimizer.clip_grad_norm=null optimizer.name=sgd "
     "optimizer.implementation=forloop")};
static const char *const memories[] = {"fsdp.cpu_offload=false", "fsdp.cpu_offload=true",
                                       "fsdp.cpu_offload=true fsdp.pin_memory=false"};
static const Dimension of_fsdp[] = {DIMENSION(groups),   DIMENSION(places),
                                    DIMENSION(reshards), DIMENSION(prefetches),
                                    DIMENSION(memories), DIMENSION(left_alone)};

static const char *const wrappings[] = {"fsdp.blocks_per_group=1", "fsdp.wrap=all",
                                        "fsdp.blocks_per_group=0",
                                        "fsdp.groups=[\"layers.1.*\",\"layers.1\"]"};
static const char *const shardings[] = {
    "fsdp.sharding_strategy=FULL_SHARD", "fsdp.sharding_strategy=SHARD_GRAD_OP",
    "fsdp.sharding_strategy=NO_SHARD", "fsdp.sharding_strategy=HYBRID_SHARD",
    "fsdp.sharding_strategy=_HYBRID_SHARD_ZERO2"};
static const char *const limits[] = {"fsdp.limit_all_gathers=true", "fsdp.limit_all_gathers=false"};
static const char *const directions[] = {"fsdp.backward_prefetch=pre",
                                         "fsdp.backward_prefetch=post",
                                         "fsdp.backward_prefetch=none fsdp.forward_prefetch=1"};
static const char *const places_of_shards[] = {"fsdp.cpu_offload=false", "fsdp.cpu_offload=true"};
static const char *const views[] = {"fsdp.use_orig_params=true", "fsdp.use_orig_params=false"};
static const Dimension of_fsdp1[] = {DIMENSION(wrappings),        DIMENSION(shardings),
                                     DIMENSION(limits),           DIMENSION(directions),
                                     DIMENSION(places_of_shards), DIMENSION(views)};

static const char *const buckets[] = {"ddp.gradient_as_bucket_view=false",
                                      "ddp.gradient_as_bucket_view=true"};
static const char *const searches[] = {"ddp.find_unused_parameters=false",
                                       "ddp.find_unused_parameters=true"};
static const char *const partitions[] = {
    "ddp.zero_redundancy_optimizer=false", "ddp.zero_redundancy_optimizer=true",
    "ddp.zero_redundancy_optimizer=true ddp.parameters_as_bucket_view=true"};
static const Dimension of_ddp[] = {DIMENSION(buckets), DIMENSION(searches), DIMENSION(partitions)};

static const char *const gradient_buckets[] = {
    "deepspeed.reduce_bucket_size=500000000",
    "deepspeed.reduce_bucket_size=3000",
    "deepspeed.reduce_bucket_size=\"auto\"",
    "deepspeed.reduce_bucket_size=20000 deepspeed.overlap_comm=true",
    "deepspeed.contiguous_gradients=false deepspeed.reduce_bucket_size=20000",
    "deepspeed.contiguous_gradients=false deepspeed.overlap_comm=true",
};
static const char *const reductions[] = {
    "deepspeed.reduce_scatter=true",
    "deepspeed.reduce_scatter=false",
    "deepspeed.use_multi_rank_bucket_allreduce=false",
};
static const char *const gradient_dtypes[] = {"deepspeed.grad_accum_dtype=null",
                                              "deepspeed.grad_accum_dtype=\"fp32\""};
static const char *const orders[] = {"deepspeed.round_robin_gradients=false",
                                     "deepspeed.round_robin_gradients=true",
                                     "deepspeed.parameter_alignment=true"};
static const char *const offloads[] = {
    "deepspeed.offload_optimizer.device=none",
    "deepspeed.offload_optimizer.device=cpu",
    "deepspeed.offload_optimizer.device=cpu deepspeed.offload_optimizer.pin_memory=false",
};

static const Dimension of_deepspeed[] = {DIMENSION(gradient_buckets), DIMENSION(reductions),
                                         DIMENSION(gradient_dtypes), DIMENSION(orders),
                                         DIMENSION(offloads)};
static const char *const fetches[] = {
    "deepspeed.stage3_prefetch_bucket_size=50000000",
    "deepspeed.stage3_param_persistence_threshold=1000",
    "deepspeed.stage3_param_persistence_threshold=0 deepspeed.zero_init=true",
    "deepspeed.stage3_param_persistence_threshold=0 deepspeed.stage3_prefetch_bucket_size=0"
    " deepspeed.stage3_max_reuse_distance=0",
    "deepspeed.stage3_param_persistence_threshold=100 deepspeed.stage3_max_reuse_distance=9000"
    " deepspeed.stage3_prefetch_bucket_size=5000 deepspeed.stage3_max_live_parameters=20000"
    " deepspeed.sub_group_size=4000",
    "deepspeed.stage3_param_persistence_threshold=0 deepspeed.memory_efficient_linear=false"
    " deepspeed.stage3_max_reuse_distance=0 deepspeed.stage3_allgather_sequential=true",
    "deepspeed.stage3_param_persistence_threshold=0"
    " deepspeed.stage3_use_all_reduce_for_fetch_params=true",
};

static const char *const homes[] = {
    "deepspeed.offload_optimizer.device=none",
    "deepspeed.zero_hpz_partition_size=1",
    "deepspeed.offload_optimizer.device=cpu",
    "deepspeed.offload_optimizer.device=cpu deepspeed.offload_optimizer.ratio=0.5"
    " deepspeed.sub_group_size=4000",
    "deepspeed.offload_optimizer.device=cpu deepspeed.offload_param.device=cpu"
    " deepspeed.offload_param.pin_memory=false",
    "deepspeed.offload_param.device=cpu",
};

static const Dimension of_zero3[] = {DIMENSION(gradient_buckets), DIMENSION(reductions),
                                     DIMENSION(gradient_dtypes),  DIMENSION(orders),
                                     DIMENSION(fetches),          DIMENSION(homes)};

static const char *const internevo_buckets[] = {
    "internevo.reduce_bucket_size=536870912", "internevo.reduce_bucket_size=20000",
    "internevo.reduce_bucket_size=1", "internevo.overlap_sync_grad=false"};
static const Dimension of_internevo[] = {DIMENSION(internevo_buckets)};

/* What the strategies' own sections can say; the first that fits: of a strategy, or of a section.
 */
static const struct {
  const char *name;
  const Dimension *dimensions;
  guint n;
} sections[] = {
    {"fsdp1", of_fsdp1, G_N_ELEMENTS(of_fsdp1)},
    {"fsdp", of_fsdp, G_N_ELEMENTS(of_fsdp)},
    {"ddp", of_ddp, G_N_ELEMENTS(of_ddp)},
    {"internevo", of_internevo, G_N_ELEMENTS(of_internevo)},
    {"zero3", of_zero3, G_N_ELEMENTS(of_zero3)},
    {"deepspeed", of_deepspeed, G_N_ELEMENTS(of_deepspeed)},
};

static const char plan[] =
    "{'strategy': 'none', 'batch': {'micro_batch': 2, 'sequence_length': 24}}";

/* ---- one plan */

typedef struct {
  const char *network;
  GPtrArray *set; /* char *, NULL-terminated when complete */
} Case;

static Case
case_new(const char *network, const Strategy *strategy)
{
  Case c = {network, g_ptr_array_new_with_free_func(g_free)};
  g_ptr_array_add(c.set, g_strconcat("strategy=", strategy->name, NULL));
  return c;
}

static void
case_add(Case *c, const char *assignments)
{
  g_auto(GStrv) words = g_strsplit(assignments, " ", -1);
  for (char **word = words; *word; word++)
    g_ptr_array_add(c->set, g_strdup(*word));
}

static void
add_choices(Case *c, const Dimension *dimensions, guint n, GRand *random)
{
  for (guint i = 0; i < n; i++)
    case_add(c, dimensions[i].choices[g_rand_int_range(random, 0, (gint32) dimensions[i].n)]);
}

static void
add_section(Case *c, const Strategy *strategy, GRand *random)
{
  const char *section = strategy->section != NULL ? strategy->section->name : "";
  guint i = 0;
  while (i < G_N_ELEMENTS(sections) && strcmp(sections[i].name, strategy->name) != 0 &&
         strcmp(sections[i].name, section) != 0)
    i++;
  if (i < G_N_ELEMENTS(sections))
    add_choices(c, sections[i].dimensions, sections[i].n, random);
}

static void
case_clear(Case *c)
{
  g_ptr_array_unref(c->set);
}
G_DEFINE_AUTO_CLEANUP_CLEAR_FUNC(Case, case_clear)

/* As one would type it, to find a failure again.  Caller frees. */
static char *
case_text(const Case *c)
{
  GString *text = g_string_new(c->network);
  for (guint i = 0; i < c->set->len && c->set->pdata[i]; i++)
    g_string_append_printf(text, " --set %s", (char *) c->set->pdata[i]);
  return g_string_free(text, FALSE);
}

static Simulation
simulation_of(const Case *c, int rank)
{
  return (Simulation){c->network, plan, (const char *const *) c->set->pdata, rank};
}

#define CHECK_CASE(condition, c, ...)                                                              \
  do {                                                                                             \
    if (!(condition)) {                                                                            \
      g_autofree char *what_ = g_strdup_printf(__VA_ARGS__);                                       \
      g_autofree char *text_ = case_text(c);                                                       \
      ck_abort_msg("%s: %s", what_, text_);                                                        \
    }                                                                                              \
  } while (0)

/* ---- the rules */

static void
passes_the_checker(const Case *c, const Simulated *s)
{
  g_autoptr(GError) error = NULL;
  gboolean passes = program_check(s->lowered->program, &error);
  CHECK_CASE(passes, c, "%s", error ? error->message : "no message");
}

/* Nothing that a step made for itself outlives it, and steps stop growing. */
static void
leaves_nothing_behind(const Case *c, const Simulated *s)
{
  static const Category transient[] = {CATEGORY_ACTIVATION, CATEGORY_TEMPORARY,
                                       CATEGORY_ALL_GATHER_BUFFER, CATEGORY_UNSHARDED_PARAMETER};
  for (int k = 0; k < CATEGORY_COUNT; k++) {
    gint64 before = simulated_bytes_alive(s, STEPS - 1, (Category) k);
    gint64 after = simulated_bytes_alive(s, STEPS, (Category) k);
    CHECK_CASE(before == after, c,
               "%s: %" G_GINT64_FORMAT " bytes after step 2, then %" G_GINT64_FORMAT,
               category_name((Category) k), before, after);
    CHECK_CASE(after >= 0, c, "%s: more is freed than allocated", category_name((Category) k));
  }
  /* ZeRO-3 keeps parameters below its persistence threshold gathered. */
  gboolean keeps_full =
      strcmp(s->scenario->strategy->name, "zero3") == 0 &&
      plan_spec_number(s->scenario->plan, "stage3_param_persistence_threshold") > 0;
  for (guint i = 0; i < G_N_ELEMENTS(transient) - keeps_full; i++) {
    gint64 left = simulated_bytes_alive(s, STEPS, transient[i]);
    CHECK_CASE(left == 0, c, "%" G_GINT64_FORMAT " bytes of %s are left", left,
               category_name(transient[i]));
  }
}

static void
sends_what_was_expected(const Case *c, const Simulated *s)
{
  if (!s->lowered->has_expected)
    return;
  const ExpectedTotals *expected = &s->lowered->expected;
  const struct {
    CollectiveKind kind;
    gint64 elements;
  } totals[] = {{COLLECTIVE_ALL_GATHER, expected->elements_gathered},
                {COLLECTIVE_REDUCE_SCATTER, expected->elements_reduced},
                {COLLECTIVE_ALL_REDUCE, expected->elements_all_reduced}};
  for (guint i = 0; i < G_N_ELEMENTS(totals); i++) {
    if (totals[i].elements == EXPECTED_UNKNOWN)
      continue;
    gint64 elements = simulated_collectives(s, STEPS - 1, totals[i].kind).elements;
    CHECK_CASE(elements == totals[i].elements, c,
               "%s: %" G_GINT64_FORMAT " elements, expected %" G_GINT64_FORMAT,
               program_collective_name(totals[i].kind), elements, totals[i].elements);
  }
  gint64 held = simulated_bytes_alive(s, STEPS, CATEGORY_PARAMETER);
  CHECK_CASE(held == expected->parameter_bytes, c,
             "%" G_GINT64_FORMAT " bytes of parameters, expected %" G_GINT64_FORMAT, held,
             expected->parameter_bytes);
  if (s->scenario->strategy->section == NULL ||
      strcmp(s->scenario->strategy->section->name, "deepspeed") == 0)
    return;
  gint64 sent = simulated_collectives(s, STEPS - 1, COLLECTIVE_BROADCAST).elements;
  CHECK_CASE(sent == expected->elements_broadcast, c,
             "%" G_GINT64_FORMAT " elements broadcast, expected %" G_GINT64_FORMAT, sent,
             expected->elements_broadcast);
  gint64 there = simulated_host_bytes_alive(s, STEPS, CATEGORY_PARAMETER);
  CHECK_CASE(there == expected->host_parameter_bytes, c,
             "%" G_GINT64_FORMAT " bytes of parameters on the host, expected %" G_GINT64_FORMAT,
             there, expected->host_parameter_bytes);
}

/* Printed text is compared: it is all there is to a Program. */
static void
is_the_same_again(const Case *c, const Simulated *s)
{
  Simulation simulation = simulation_of(c, 0);
  g_autoptr(Simulated) again = simulation_lower(&simulation, STEPS);
  g_autoptr(GString) first = g_string_new(NULL), second = g_string_new(NULL);
  program_print(s->lowered->program, first);
  program_print(again->lowered->program, second);
  CHECK_CASE(g_string_equal(first, second), c, "lowered again, the Program is another");
}

static void
agrees_with_the_last_rank(const Case *c, const Simulated *s)
{
  const PlanSpec *p = s->scenario->plan;
  Simulation simulation = simulation_of(c, p->shard * p->replicate - 1);
  g_autoptr(Simulated) other = simulation_lower(&simulation, STEPS);
  g_autoptr(GError) error = NULL;
  gboolean agree = program_check_agreement(s->lowered->program, other->lowered->program, &error);
  CHECK_CASE(agree, c, "%s", error ? error->message : "no message");
}

static void
runs_to_its_end(const Case *c, const Simulated *s)
{
  ExecutorConfig config = {.cluster = s->scenario->cluster,
                           .allocator = allocator_config_default()};
  config.allocator.memory_limit = WITHOUT_LIMIT;
  g_autoptr(Recording) r = executor_run(s->lowered->program, &config);
  CHECK_CASE(r->stuck == NULL, c, "%s", r->stuck);
  CHECK_CASE(!r->out_of_memory.happened && r->steps->len == STEPS, c, "the run ends early");
  const StepRecord *steps = &g_array_index(r->steps, StepRecord, 0);
  CHECK_CASE(steps[1].end_allocated == steps[2].end_allocated, c,
             "%" G_GINT64_FORMAT " bytes are allocated after step 2, %" G_GINT64_FORMAT " after 3",
             steps[1].end_allocated, steps[2].end_allocated);
}

/* FALSE when the plan is refused, which takes one line.  What takes long is asked of every third
 * Program. */
static gboolean
try_case(Case *c, guint number)
{
  g_ptr_array_add(c->set, NULL);
  Simulation simulation = simulation_of(c, 0);
  g_autoptr(GError) error = NULL;
  g_autoptr(Simulated) s = simulation_try(&simulation, STEPS, &error);
  if (s == NULL) {
    CHECK_CASE(error != NULL && error->domain == HIGHWATER_ERROR, c, "refused without a reason");
    CHECK_CASE(strchr(error->message, '\n') == NULL, c, "more than a line: %s", error->message);
    return FALSE;
  }
  passes_the_checker(c, s);
  leaves_nothing_behind(c, s);
  sends_what_was_expected(c, s);
  static void (*const slow[])(const Case *c, const Simulated *s) = {
      is_the_same_again, agrees_with_the_last_rank, runs_to_its_end};
  slow[number % G_N_ELEMENTS(slow)](c, s);
  return TRUE;
}

/* ---- tests */

static guint
count_strategies(void)
{
  guint n = 0;
  while (strategies()[n] != NULL)
    n++;
  return n;
}

/* A mesh, a policy and an accumulation, the rest by lot; a refused plan is drawn again, up to so
 * many times. */
static gboolean
try_draws(const char *network, const Strategy *strategy, guint choice, GRand *random, guint number)
{
  enum { DRAWS = 3 };
  for (int draw = 0; draw < DRAWS; draw++) {
    g_auto(Case) c = case_new(network, strategy);
    case_add(&c, common[0].choices[choice % common[0].n]);
    case_add(&c, common[1].choices[choice / common[0].n % common[1].n]);
    case_add(&c, common[2].choices[choice / common[0].n / common[1].n]);
    add_choices(&c, common + 3, G_N_ELEMENTS(common) - 3, random);
    add_section(&c, strategy, random);
    if (try_case(&c, number))
      return TRUE;
  }
  return FALSE;
}

/* A third of the combinations of mesh, policy and accumulation, others under each network. */
static gboolean
has_its_turn(guint choice, guint test)
{
  guint mesh = choice % common[0].n, rest = choice / common[0].n;
  return (mesh + rest % common[1].n + rest / common[1].n + test) % 3 == 0;
}

START_TEST(what_is_lowered_keeps_to_the_rules)
{
  const Strategy *strategy = strategies()[_i / (int) G_N_ELEMENTS(networks)];
  const char *network = networks[_i % (int) G_N_ELEMENTS(networks)];
  g_autoptr(GRand) random = g_rand_new_with_seed((guint32) _i);
  guint lowered = 0, most = quick() ? 4 : G_MAXUINT;
  for (guint i = 0; i < common[0].n * common[1].n * common[2].n && lowered < most; i++)
    if (has_its_turn(i, (guint) _i))
      lowered += try_draws(network, strategy, i, random, lowered);
  ck_assert_msg(lowered >= 1, "%s: only %u plans were accepted", strategy->name, lowered);
}
END_TEST

/* ---- sharding */

/* Bytes of a category after the steps, summed over the ranks of the shard group. */
static gint64
bytes_of_all_ranks(const char *network, const char *const *set, int ranks, Category category)
{
  gint64 bytes = 0;
  for (int rank = 0; rank < ranks; rank++) {
    g_autoptr(Simulated) s = simulation_lower(&(Simulation){network, plan, set, rank}, STEPS);
    bytes += simulated_bytes_alive(s, STEPS, category);
  }
  return bytes;
}

START_TEST(one_shard_holds_what_an_unsharded_rank_holds)
{
  const char *const none[] = {"strategy=none", "precision.compute=fp32", NULL};
  const char *const fsdp2[] = {"strategy=fsdp2", "precision.compute=fp32", NULL};
  const char *network = networks[_i];
  g_autoptr(Simulated) a = simulation_lower(&(Simulation){network, plan, none, 0}, STEPS);
  g_autoptr(Simulated) b = simulation_lower(&(Simulation){network, plan, fsdp2, 0}, STEPS);
  static const Category same[] = {CATEGORY_PARAMETER, CATEGORY_OPTIMIZER_STATE, CATEGORY_OTHER,
                                  CATEGORY_WORKSPACE};
  for (guint i = 0; i < G_N_ELEMENTS(same); i++)
    ck_assert_int_eq(simulated_bytes_alive(a, STEPS, same[i]),
                     simulated_bytes_alive(b, STEPS, same[i]));
  ck_assert_int_eq(simulated_bytes_alive(a, STEPS, CATEGORY_UNSHARDED_GRADIENT),
                   simulated_bytes_alive(b, STEPS, CATEGORY_SHARDED_GRADIENT));
}
END_TEST

/* Padding is not optimized: Adam's states are of the rows that there are. */
START_TEST(the_ranks_together_hold_the_whole_optimizer_state)
{
  static const char *const mesh[] = {"mesh.shard=2", "mesh.shard=3", "mesh.shard=8"};
  static const int ranks[] = {2, 3, 8};
  const char *network = networks[_i];
  const char *const none[] = {"strategy=none", "precision.compute=fp32",
                              "optimizer.implementation=foreach", NULL};
  gint64 whole = bytes_of_all_ranks(network, none, 1, CATEGORY_OPTIMIZER_STATE);
  ck_assert_int_gt(whole, 0);
  for (guint i = 0; i < G_N_ELEMENTS(ranks); i++) {
    const char *const set[] = {"strategy=fsdp2", "optimizer.implementation=foreach", mesh[i], NULL};
    ck_assert_int_eq(bytes_of_all_ranks(network, set, ranks[i], CATEGORY_OPTIMIZER_STATE), whole);
    ck_assert_int_ge(bytes_of_all_ranks(network, set, ranks[i], CATEGORY_PARAMETER), whole / 2);
  }
}
END_TEST

START_TEST(names_of_strategies_are_found_again)
{
  ck_assert_uint_ge(count_strategies(), 3);
  for (guint i = 0; i < count_strategies(); i++)
    ck_assert_ptr_eq(strategy_find(strategies()[i]->name), strategies()[i]);
  ck_assert_ptr_null(strategy_find("fsdp"));
}
END_TEST

Suite *
test_suite(void)
{
  Suite *suite = suite_create("strategies");
  TCase *tests = tcase_create("strategies");
  int n = G_N_ELEMENTS(networks);
  tcase_set_timeout(tests, 120);
  tcase_add_test(tests, names_of_strategies_are_found_again);
  tcase_add_loop_test(tests, what_is_lowered_keeps_to_the_rules, 0, (int) count_strategies() * n);
  tcase_add_loop_test(tests, one_shard_holds_what_an_unsharded_rank_holds, 0, n);
  tcase_add_loop_test(tests, the_ranks_together_hold_the_whole_optimizer_state, 0, n);
  suite_add_tcase(suite, tests);
  return suite;
}
