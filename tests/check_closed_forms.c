/* check_closed_forms.c - every strategy's closed form against what is lowered, on several networks
 * and 1, 2, 3, 8 and 64 ranks; how the stages of ZeRO differ; steps that repeat byte for byte.
 *
 * A loop over the registry: a strategy that refuses a number of ranks must be one that has no
 * shards, and then it is asked for as many replicas.  Plans here are plain ones, for which every
 * closed form is known; check_strategies.c draws the others. */
#include "exec/executor.h"
#include "report/state_estimate.h"
#include "simulation.h"
#include "tap_main.h"

#include <string.h>

#define STEPS 5
#define WITHOUT_LIMIT ((gint64) 1 << 60)

/* Rows that no number of ranks here divides; rows that all do; more ranks than some have rows. */
static const char *const networks[] = {
    "{'model_type': 'llama', 'hidden_size': 64, 'intermediate_size': 160, 'num_hidden_layers': 2,"
    " 'num_attention_heads': 4, 'num_key_value_heads': 2, 'vocab_size': 251,"
    " 'implementation': 'torchtitan'}",
    "{'model_type': 'gpt2', 'n_embd': 64, 'n_layer': 2, 'n_head': 4, 'vocab_size': 257,"
    " 'n_positions': 64, 'implementation': 'transformers'}",
    "{'family': 'blocks', 'hidden': 192, 'embedding': false, 'head': false, 'loss': 'sum',"
    " 'blocks': [{'repeat': 2, 'ops': [{'op': 'linear', 'out': 192, 'bias': true}]}]}",
    "{'family': 'blocks', 'hidden': 5, 'vocabulary': 11, 'blocks': [{'repeat': 3, 'ops': ["
    "{'op': 'linear', 'out': 7, 'bias': true}, {'op': 'gelu'}, {'op': 'linear', 'out': 5}]}]}",
};
static const int rank_counts[] = {1, 2, 3, 8, 64};

enum { NETWORKS = G_N_ELEMENTS(networks), RANK_COUNTS = G_N_ELEMENTS(rank_counts) };

static const char plan[] =
    "{'strategy': 'none', 'batch': {'micro_batch': 2, 'sequence_length': 24}}";

/* Small pieces, so that there are several buckets and nothing stays gathered for being small. */
static const char *const of_deepspeed[] = {"deepspeed.reduce_bucket_size=9000",
                                           "deepspeed.stage3_param_persistence_threshold=0"};

static guint
count_strategies(void)
{
  guint n = 0;
  while (strategies()[n] != NULL)
    n++;
  return n;
}

/* One strategy over so many ranks. */
typedef struct {
  const Strategy *strategy;
  const char *network;
  int ranks, steps;
  const char *options[3]; /* assignments; NULL: none */
} Case;

static gboolean
is_deepspeed(const Strategy *strategy)
{
  return strategy->section != NULL && strcmp(strategy->section->name, "deepspeed") == 0;
}

/* FSDP1 names what it does with replicas. */
static gboolean
takes_replicas(const Strategy *strategy)
{
  return strcmp(strategy->name, "ddp") == 0 || strcmp(strategy->name, "none") == 0;
}

/* NULL when the strategy has no ranks to spread over: plain training on one device. */
static Simulated *
lower_case(const Case *c, int rank)
{
  g_autoptr(GPtrArray) set = g_ptr_array_new_with_free_func(g_free);
  if (strcmp(c->strategy->name, "none") == 0 && c->ranks > 1)
    return NULL;
  g_ptr_array_add(set, g_strconcat("strategy=", c->strategy->name, NULL));
  g_ptr_array_add(
      set,
      g_strdup_printf("mesh.%s=%d", takes_replicas(c->strategy) ? "replicate" : "shard", c->ranks));
  for (guint i = 0; is_deepspeed(c->strategy) && i < G_N_ELEMENTS(of_deepspeed); i++)
    g_ptr_array_add(set, g_strdup(of_deepspeed[i]));
  for (guint i = 0; i < G_N_ELEMENTS(c->options) && c->options[i] != NULL; i++)
    g_ptr_array_add(set, g_strdup(c->options[i]));
  g_ptr_array_add(set, NULL);
  return simulation_lower(&(Simulation){c->network, plan, (const char *const *) set->pdata, rank},
                          c->steps);
}

/* ---- closed forms */

static gint64
elements_of(const Simulated *s, CollectiveKind kind)
{
  return simulated_collectives(s, s->lowered->program->steps - 1, kind).elements;
}

static void
compare_with_closed_form(const Case *c, int rank)
{
  g_autoptr(Simulated) s = lower_case(c, rank);
  if (s == NULL || !s->lowered->has_expected)
    return;
  const ExpectedTotals *e = &s->lowered->expected;
  const struct {
    const char *what;
    gint64 expected, found;
  } totals[] = {
      {"gathered", e->elements_gathered, elements_of(s, COLLECTIVE_ALL_GATHER)},
      {"reduced", e->elements_reduced, elements_of(s, COLLECTIVE_REDUCE_SCATTER)},
      {"all-reduced", e->elements_all_reduced, elements_of(s, COLLECTIVE_ALL_REDUCE)},
      {"held", e->parameter_bytes, simulated_bytes_alive(s, c->steps, CATEGORY_PARAMETER)},
  };
  for (guint i = 0; i < G_N_ELEMENTS(totals); i++)
    ck_assert_msg(totals[i].expected != EXPECTED_UNKNOWN && totals[i].expected == totals[i].found,
                  "%s, rank %d of %d, %s: %s: %" G_GINT64_FORMAT ", closed form %" G_GINT64_FORMAT,
                  c->strategy->name, rank, c->ranks, c->network, totals[i].what, totals[i].found,
                  totals[i].expected);
}

/* _i: strategy, network.  Uneven shards make the first and the last rank differ. */
START_TEST(closed_forms_are_what_is_lowered)
{
  for (int k = 0; k < RANK_COUNTS; k++) {
    const Case c = {.strategy = strategies()[_i / NETWORKS],
                    .network = networks[_i % NETWORKS],
                    .ranks = rank_counts[k],
                    .steps = 3};
    compare_with_closed_form(&c, 0);
    compare_with_closed_form(&c, c.ranks - 1);
  }
}
END_TEST

/* Whatever the closed form says: the ranks that share a copy hold all of it, each element once and
 * padding; whoever shares nothing holds it alone. */
START_TEST(ranks_that_share_a_copy_hold_all_of_it)
{
  const Strategy *strategy = strategies()[_i];
  for (int k = 0; k < NETWORKS; k++) {
    const Case c = {.strategy = strategy,
                    .network = networks[k],
                    .ranks = takes_replicas(strategy) ? 1 : 3,
                    .steps = 3};
    gint64 held = 0, whole = 0;
    int spread = 1;
    for (int rank = 0; rank < spread; rank++) {
      g_autoptr(Simulated) s = lower_case(&c, rank);
      spread = s->lowered->spread.parameters;
      held += simulated_bytes_alive(s, c.steps, CATEGORY_PARAMETER);
      whole = network_parameter_count(s->scenario->network) * 4;
    }
    ck_assert_int_ge(held, whole);
    ck_assert_int_lt(held, whole + whole / 2); /* a small network is padded by much */
  }
}
END_TEST

/* ---- ZeRO's stages (arXiv 1910.02054, sections 3, 5 and 7) */

/* 64 blocks of 1024 parameters: as good as no padding on 64 ranks. */
static const char even[] =
    "{'family': 'blocks', 'hidden': 64, 'embedding': false, 'head': false, 'loss': 'sum',"
    " 'blocks': [{'repeat': 64, 'ops': [{'op': 'numbers', 'parameters': 1024,"
    " 'activation_bytes': 4096}]}]}";
#define EVEN_PARAMETERS (64 * 1024)
#define EVEN_RANKS 64

static const struct {
  const char *set;
  int stage, paper; /* elements sent a parameter: by the paper, */
  double really;    /* and really */
} staged[] = {
    {"strategy=zero0", 0, 2, 2},
    {"strategy=zero1", 1, 2, 3},
    {"strategy=zero2", 2, 2, 3},
    {"strategy=zero2 deepspeed.use_multi_rank_bucket_allreduce=false", 2, 2, 2},
    {"strategy=zero3", 3, 3, 3},
    {"strategy=fsdp1 fsdp.sharding_strategy=SHARD_GRAD_OP", 2, 2, 2},
    {"strategy=fsdp1 fsdp.sharding_strategy=FULL_SHARD", 3, 3, 3},
    {"strategy=fsdp2 fsdp.reshard_after_forward=false", 2, 2, 2},
    {"strategy=fsdp2 fsdp.reshard_after_forward=true", 3, 3, 3},
};

/* In the units of the ring algorithm, of which (d - 1) / d is divided out. */
static double
elements_sent(const Simulated *s)
{
  double sent = 0;
  for (int kind = 0; kind < COLLECTIVE_KIND_COUNT; kind++)
    sent += simulated_collectives(s, STEPS - 1, (CollectiveKind) kind).sent;
  return sent / EVEN_PARAMETERS * EVEN_RANKS / (EVEN_RANKS - 1);
}

static Simulated *
lower_staged(const char *text)
{
  g_autofree char *all =
      g_strconcat(text, " precision.parameters=bf16 mesh.shard=64 optimizer.implementation=foreach",
                  strstr(text, "zero") != NULL ? " deepspeed.reduce_bucket_size=1024"
                                                 " deepspeed.stage3_param_persistence_threshold=0"
                                                 " deepspeed.stage3_max_reuse_distance=0"
                                                 " deepspeed.stage3_prefetch_bucket_size=0"
                                               : "",
                  NULL);
  g_auto(GStrv) set = g_strsplit(all, " ", -1);
  /* the last rank owns the last blocks, whose gradients backward reduces first */
  return simulation_lower(&(Simulation){even, plan, (const char *const *) set, EVEN_RANKS - 1},
                          STEPS);
}

/* A reduce to each owner sends less than a ring counts for an all-reduce: DeepSpeed's stage 2
 * without the shared buckets is 2, by default it is 3. */
START_TEST(traffic_is_the_stages_and_what_is_really_sent)
{
  g_autoptr(Simulated) s = lower_staged(staged[_i].set);
  ck_assert_int_eq(s->lowered->zero_stage, staged[_i].stage);
  ck_assert_double_eq(zero_states(staged[_i].stage, EVEN_PARAMETERS, EVEN_RANKS).sent,
                      staged[_i].paper);
  ck_assert_double_eq_tol(elements_sent(s), staged[_i].really, 0.05);
}
END_TEST

/* Model states when backward ends, in bytes a parameter, and all activations of that step.  What
 * stage 1 reduces after the graph has run, its epilogue, is not backward's any more. */
static void
weigh(const char *text, double *states, gint64 *activations)
{
  static const Category of_states[] = {CATEGORY_PARAMETER, CATEGORY_OPTIMIZER_STATE,
                                       CATEGORY_SHARDED_GRADIENT, CATEGORY_UNSHARDED_GRADIENT};
  g_autoptr(Simulated) s = lower_staged(text);
  const Program *program = s->lowered->program;
  const GArray *ops = program_step(program, STEPS - 1)->ops;
  gint64 bytes = 0;
  *activations = 0;
  for (guint c = 0; c < G_N_ELEMENTS(of_states); c++)
    bytes += simulated_bytes_alive(s, STEPS - 1, of_states[c]);
  for (guint i = 0; i < ops->len; i++) {
    const ProgramOp *op = &g_array_index(ops, ProgramOp, i);
    if (op->kind == PROGRAM_RANGE_PUSH && (strcmp(program_text(program, op->a), "optimizer") == 0 ||
                                           strcmp(program_text(program, op->a), "epilogue") == 0))
      break;
    if (op->kind != PROGRAM_ALLOC && op->kind != PROGRAM_FREE)
      continue;
    const Storage *storage = &g_array_index(program->storages, Storage, op->a);
    if (op->kind == PROGRAM_ALLOC && storage->category == CATEGORY_ACTIVATION)
      *activations += storage->bytes;
    for (guint c = 0; c < G_N_ELEMENTS(of_states); c++)
      if (storage->category == of_states[c])
        bytes += op->kind == PROGRAM_ALLOC ? storage->bytes : -storage->bytes;
  }
  *states = (double) bytes / EVEN_PARAMETERS;
}

/* 16 bytes a parameter with d ranks become 4 + 12/d, 2 + 14/d, 16/d: none > 1 > 2 > 3, with limits
 * of 4, 8 and d times; what the computation keeps is the same in all. */
START_TEST(each_stage_holds_less_than_the_one_before)
{
  static const char *const stages[] = {"strategy=zero0", "strategy=zero1", "strategy=zero2",
                                       "strategy=zero3"};
  const double d = EVEN_RANKS, paper[] = {16, 4 + 12 / d, 2 + 14 / d, 16 / d};
  double states[4];
  gint64 activations[4];
  for (int stage = 0; stage < 4; stage++) {
    weigh(stages[stage], &states[stage], &activations[stage]);
    ck_assert_msg(states[stage] > 0.99 * paper[stage] && states[stage] < 1.05 * paper[stage],
                  "stage %d: %g bytes a parameter, by the paper %g", stage, states[stage],
                  paper[stage]);
    ck_assert(stage == 0 || states[stage] < states[stage - 1]);
    ck_assert_int_eq(activations[stage], activations[0]);
  }
}
END_TEST

/* ---- steps repeat */

/* Lists of allocations: what comes and goes, in order, with its sizes. */
static char *
allocations_of(const Simulated *s, int step)
{
  GString *text = g_string_new(NULL);
  program_print_allocations(s->lowered->program, program_step(s->lowered->program, step), text);
  return g_string_free(text, FALSE);
}

/* What the step allocated and did not free, in bytes, beyond what it freed of the step before. */
static void
frees_what_it_allocates(const Case *c, const Simulated *s, int step)
{
  const Program *program = s->lowered->program;
  const GArray *ops = program_step(program, step)->ops;
  gint64 balance[CATEGORY_COUNT] = {0};
  for (guint i = 0; i < ops->len; i++) {
    const ProgramOp *op = &g_array_index(ops, ProgramOp, i);
    if (op->kind != PROGRAM_ALLOC && op->kind != PROGRAM_FREE)
      continue;
    const Storage *storage = &g_array_index(program->storages, Storage, op->a);
    balance[storage->category] += op->kind == PROGRAM_ALLOC ? storage->bytes : -storage->bytes;
  }
  for (int k = 0; k < CATEGORY_COUNT; k++)
    ck_assert_msg(balance[k] == 0, "%s, %s: step %d leaves %" G_GINT64_FORMAT " bytes of %s",
                  c->strategy->name, c->network, step + 1, balance[k], category_name((Category) k));
}

/* When gradients are set to None at its end, a step leaves none of what it made; what strategies
 * keep gathered or in buckets is their own. */
static void
leaves_no_transients(const Case *c, const Simulated *s)
{
  static const Category transient[] = {CATEGORY_ACTIVATION, CATEGORY_TEMPORARY,
                                       CATEGORY_UNSHARDED_PARAMETER, CATEGORY_ALL_GATHER_BUFFER};
  for (guint i = 0; i < G_N_ELEMENTS(transient); i++) {
    gint64 left = simulated_bytes_alive(s, STEPS, transient[i]);
    ck_assert_msg(left == 0, "%s, %s: %" G_GINT64_FORMAT " bytes of %s are left", c->strategy->name,
                  c->network, left, category_name(transient[i]));
  }
  gint64 gradients = simulated_bytes_alive(s, STEPS, CATEGORY_SHARDED_GRADIENT);
  if (!c->strategy->keeps_gradients && !is_deepspeed(c->strategy))
    ck_assert_int_eq(gradients + simulated_bytes_alive(s, STEPS, CATEGORY_UNSHARDED_GRADIENT), 0);
}

static void
repeats(const Case *c, const Simulated *s)
{
  g_autofree char *before = allocations_of(s, STEPS - 2), *last = allocations_of(s, STEPS - 1);
  ck_assert_msg(strcmp(before, last) == 0, "%s, %s: steps %d and %d allocate differently",
                c->strategy->name, c->network, STEPS - 1, STEPS);
  ExecutorConfig config = {.cluster = s->scenario->cluster,
                           .allocator = allocator_config_default()};
  config.allocator.memory_limit = WITHOUT_LIMIT;
  g_autoptr(Recording) r = executor_run(s->lowered->program, &config);
  const StepRecord *steps = &g_array_index(r->steps, StepRecord, 0);
  ck_assert_uint_eq(r->steps->len, STEPS);
  ck_assert_int_eq(steps[STEPS - 1].peak_allocated, steps[STEPS - 2].peak_allocated);
  ck_assert_int_eq(steps[STEPS - 1].end_allocated, steps[STEPS - 2].end_allocated);
}

/* _i: strategy, network; with accumulation and without, gradients dropped at either end. */
START_TEST(steady_steps_repeat_and_leave_nothing)
{
  static const char *const options[][3] = {
      {"optimizer.zero_grad=end", NULL, NULL},
      {"optimizer.zero_grad=end", "accumulation.steps=3", "accumulation.sync_every_step=false"},
      {"optimizer.zero_grad=start", "activation_checkpointing.policy=full", NULL},
  };
  for (guint i = 0; i < G_N_ELEMENTS(options); i++) {
    Case c = {.strategy = strategies()[_i / NETWORKS],
              .network = networks[_i % NETWORKS],
              .ranks = strcmp(strategies()[_i / NETWORKS]->name, "none") == 0 ? 1 : 3,
              .steps = STEPS};
    memcpy(c.options, options[i], sizeof(c.options));
    g_autoptr(Simulated) s = lower_case(&c, 0);
    ck_assert_ptr_nonnull(s);
    frees_what_it_allocates(&c, s, STEPS - 1);
    repeats(&c, s);
    if (strcmp(options[i][0], "optimizer.zero_grad=end") == 0)
      leaves_no_transients(&c, s);
  }
}
END_TEST

/* ---- many steps */

static Recording *
run_steps(const Simulated *s, gboolean stops)
{
  ExecutorConfig config = {.cluster = s->scenario->cluster,
                           .allocator = allocator_config_default(),
                           .stops_when_steady = stops};
  config.allocator.memory_limit = WITHOUT_LIMIT;
  return executor_run(s->lowered->program, &config);
}

/* A run that stops when it is steady ends with a step like the last of the whole run; one that
 * never is runs to its end.  Spans, which are of the last step, are there in both. */
START_TEST(steps_left_out_are_like_the_last)
{
  enum { MANY = 20 };
  const Case c = {.strategy = strategies()[_i],
                  .network = networks[0],
                  .ranks = strcmp(strategies()[_i]->name, "none") == 0 ? 1 : 8,
                  .steps = MANY};
  g_autoptr(Simulated) s = lower_case(&c, 0);
  g_autoptr(Recording) whole = run_steps(s, FALSE), stopped = run_steps(s, TRUE);
  guint n = stopped->steps->len;
  ck_assert_uint_eq(whole->steps->len, MANY);
  ck_assert_uint_le(n, MANY);
  const StepRecord *last = &g_array_index(whole->steps, StepRecord, MANY - 1);
  const StepRecord *same = &g_array_index(stopped->steps, StepRecord, n - 1);
  ck_assert_int_eq(same->peak_allocated, last->peak_allocated);
  ck_assert_int_eq(same->peak_reserved, last->peak_reserved);
  ck_assert_int_eq(same->end_allocated, last->end_allocated);
  ck_assert_int_eq(recording_step_duration(stopped, n - 1),
                   recording_step_duration(whole, MANY - 1));
  ck_assert_uint_eq(stopped->spans->len, whole->spans->len);
  if (strcmp(c.strategy->name, "fsdp2") == 0 || strcmp(c.strategy->name, "ddp") == 0)
    ck_assert_uint_lt(n, 8);
}
END_TEST

Suite *
test_suite(void)
{
  Suite *suite = suite_create("closed forms");
  TCase *tests = tcase_create("closed forms");
  int n = (int) count_strategies();
  tcase_set_timeout(tests, 120);
  tcase_add_loop_test(tests, closed_forms_are_what_is_lowered, 0, n * NETWORKS);
  tcase_add_loop_test(tests, ranks_that_share_a_copy_hold_all_of_it, 0, n);
  tcase_add_loop_test(tests, traffic_is_the_stages_and_what_is_really_sent, 0,
                      G_N_ELEMENTS(staged));
  tcase_add_test(tests, each_stage_holds_less_than_the_one_before);
  tcase_add_loop_test(tests, steady_steps_repeat_and_leave_nothing, 0, n * NETWORKS);
  tcase_add_loop_test(tests, steps_left_out_are_like_the_last, 0, n);
  suite_add_tcase(suite, tests);
  return suite;
}
