/* check_zero3.c - DeepSpeed's ZeRO stage 3: what is fetched and when, what it lives in, what the
 * host waits for, what a rank keeps on the device and on the host.
 *
 * Expectations are worked out by hand from deepspeed 0.19.8's code (the file is named where it
 * matters) or published; whether every allocation is in its place is compared with recorded traces
 * elsewhere. */
#include "base/units.h"
#include "simulation.h"
#include "tap_main.h"
#include <math.h>
#include <string.h>

#define NO_LIMIT ((gint64) 1 << 60)

/* Five linear layers of 60 x 60 without biases: five parameters of 3600 elements.  Each is owned by
 * a module inside a module that owns nothing, inside the root: modules are fetched in the order
 * root, layer 0, its linear, layer 1, its linear ... and in backward root, layer 4, its linear,
 * layer 3 ... */
static const char five[] =
    "{'family': 'blocks', 'hidden': 60, 'embedding': false, 'head': false, 'loss': 'sum',"
    " 'blocks': [{'repeat': 5, 'ops': [{'op': 'linear', 'out': 60}]}]}";
enum { FIVE = 5, WIDTH = 3600, ALL = FIVE * WIDTH, BYTES = 2 * WIDTH, RANKS = 4 };

/* Small parameters would all be persistent; the bucket is not what is looked at. */
static const char plan[] =
    "{'strategy': 'zero3', 'mesh': {'shard': 4},"
    " 'batch': {'micro_batch': 1, 'sequence_length': 8}, 'precision': {'parameters': 'bf16'},"
    " 'optimizer': {'implementation': 'foreach'},"
    " 'deepspeed': {'stage3_param_persistence_threshold': 0, 'reduce_bucket_size': 18000}}";

#define PREFETCH(elements) "deepspeed.stage3_prefetch_bucket_size=" #elements
#define REUSE(elements) "deepspeed.stage3_max_reuse_distance=" #elements
#define LIVE(elements) "deepspeed.stage3_max_live_parameters=" #elements
#define PERSIST(elements) "deepspeed.stage3_param_persistence_threshold=" #elements
#define BUCKET(elements) "deepspeed.reduce_bucket_size=" #elements
#define NO_AHEAD PREFETCH(0) " " REUSE(0)

static Simulated *
lower_options(const char *network, const char *options)
{
  return simulation_lower_options(network, plan, options, 0, 3);
}

/* ---- what a Program holds */

static const Storage *
storage_of(const Simulated *s, const ProgramOp *op)
{
  return &g_array_index(s->lowered->program->storages, Storage, op->a);
}

/* Bytes that the op brings to, or takes from, a category and space. */
static gint64
change(const Simulated *s, const ProgramOp *op, Category category, gboolean device)
{
  if (op->kind != PROGRAM_ALLOC && op->kind != PROGRAM_FREE)
    return 0;
  const Storage *storage = storage_of(s, op);
  if (storage->category != category || (storage->space == SPACE_DEVICE) != device)
    return 0;
  return op->kind == PROGRAM_ALLOC ? storage->bytes : -storage->bytes;
}

/* ---- what is fetched together */

/* Elements of the step's all-gathers in their order, in units of a parameter: "2 1 1". */
static char *
gathers(const Simulated *s, int step)
{
  return simulated_collective_bytes(s, step, COLLECTIVE_ALL_GATHER, "", BYTES);
}

static const struct {
  const char *options;
  int step; /* from 0 */
  const char *expected;
} gather_cases[] = {
    /* The first step is recorded: every use fetches, whatever is wanted ahead or kept. */
    {"", 0, "1 1 1 1 1 1 1 1 1 1"},
    {PERSIST(3599), 0, "1 1 1 1 1 1 1 1 1 1"},
    {NO_AHEAD, 1, "1 1 1 1 1 1 1 1 1 1"},
    /* 5e7 elements ahead: all of them when the root is fetched, and nothing goes before its last
     * use. */
    {"", 1, "5"},
    {REUSE(0), 1, "5"},
    /* One ahead, for every module.  At layer 2 all of p4, p3, p2 are under way: they are marked for
     * backward and cost nothing; p1 and p0 have gone by then and are fetched for backward. */
    {PREFETCH(3600) " " REUSE(0), 1, "1 1 1 1 1 1 1"},
    /* The bucket is compared before a parameter is added: two of 3600 go into 4000. */
    {PREFETCH(4000) " " REUSE(0), 1, "2 2 1"},
    /* At most 7200 at once: p0 and p1; when p0 has gone there is place for p2 ... */
    {LIVE(7200) " " REUSE(0), 1, "2 1 1 1 1 1 1 1"},
    /* ... but what reuse keeps is kept, and what a module needs it gets. */
    {LIVE(7200), 1, "2 1 1 1"},
    {LIVE(0) " " REUSE(0), 1, "1 1 1 1 1 1 1 1 1 1"},
    /* Between p4's use in forward and that in backward nothing lies; between p3's lie p4's two,
     * 7200 elements: it is kept if that is less than the distance. */
    {PREFETCH(0) " " REUSE(1), 1, "1 1 1 1 1 1 1 1 1"},
    {PREFETCH(0) " " REUSE(7200), 1, "1 1 1 1 1 1 1 1 1"},
    {PREFETCH(0) " " REUSE(7201), 1, "1 1 1 1 1 1 1 1"},
    {PREFETCH(0) " " REUSE(28800), 1, "1 1 1 1 1 1"},
    {PREFETCH(0) " " REUSE(28801), 1, "1 1 1 1 1"},
    /* Persistent parameters are fetched after the optimizer's step only. */
    {NO_AHEAD " " PERSIST(3600), 1, "1 1 1 1 1"},
    {NO_AHEAD " " PERSIST(3599), 1, "1 1 1 1 1 1 1 1 1 1"},
    /* All of them together may have 7200 elements: p0 and p1. */
    {NO_AHEAD " " PERSIST(3600) " deepspeed.stage3_model_persistence_threshold=7200", 1,
     "1 1 1 1 1 1 1 1"},
    /* Sequentially: ahead by one parameter only, whatever the bucket. */
    {PREFETCH(4000) " " REUSE(0) " deepspeed.stage3_allgather_sequential=true", 1, "1 1 1 1 1 1 1"},
    /* By an all-reduce of a buffer that is zero elsewhere; a single one is gathered. */
    {PREFETCH(4000) " " REUSE(0) " deepspeed.stage3_use_all_reduce_for_fetch_params=true", 1, "1"},
    /* Each micro-batch fetches; a trace spans one. */
    {NO_AHEAD " accumulation.steps=2", 1, "1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1"},
    {"accumulation.steps=2", 0, "1 1 1 1 1 1 1 1 1 1 5"},
    /* One rank has everything. */
    {NO_AHEAD " mesh.shard=1", 1, ""},
};

START_TEST(the_trace_decides_what_is_fetched_ahead_and_kept)
{
  g_autoptr(Simulated) s = lower_options(five, gather_cases[_i].options);
  g_autofree char *sizes = gathers(s, gather_cases[_i].step);
  ck_assert_str_eq(sizes, gather_cases[_i].expected);
}
END_TEST

/* ---- what fetched parameters live in */

/* Bytes that are alive when each of the first `n` products is launched. */
static void
at_products(const Simulated *s, Category category, int n, gint64 *alive)
{
  const Program *program = s->lowered->program;
  const GArray *ops = simulated_ops(s, 1);
  gint64 bytes = 0;
  int seen = 0;
  for (guint i = 0; i < ops->len && seen < n; i++) {
    const ProgramOp *op = &g_array_index(ops, ProgramOp, i);
    bytes += change(s, op, category, TRUE);
    if (op->kind == PROGRAM_LAUNCH &&
        g_array_index(program->kernels, Kernel, op->a).kind == KERNEL_GEMM)
      alive[seen++] = bytes;
  }
  ck_assert_int_eq(seen, n);
}

/* Gathered by twos (p0 p1, p2 p3, p4): the first to be fetched of a pair copies both out of the
 * buffer, which goes when the second is fetched; p4's buffer is p4. */
START_TEST(a_shared_buffer_lives_until_its_last_parameter_is_fetched)
{
  static const int buffers[FIVE] = {4, 2, 2, 0, 0}, parameters[FIVE] = {3, 3, 5, 5, 5};
  g_autoptr(Simulated) s = lower_options(five, PREFETCH(4000) " " REUSE(0));
  gint64 alive[FIVE];
  at_products(s, CATEGORY_ALL_GATHER_BUFFER, FIVE, alive);
  for (int i = 0; i < FIVE; i++)
    ck_assert_int_eq(alive[i], buffers[i] * BYTES);
  at_products(s, CATEGORY_UNSHARDED_PARAMETER, FIVE, alive);
  for (int i = 0; i < FIVE; i++)
    ck_assert_int_eq(alive[i], parameters[i] * BYTES);
}
END_TEST

START_TEST(without_looking_ahead_one_parameter_is_whole_at_a_time)
{
  g_autoptr(Simulated) s = lower_options(five, NO_AHEAD);
  gint64 alive[FIVE];
  at_products(s, CATEGORY_UNSHARDED_PARAMETER, FIVE, alive);
  for (int i = 0; i < FIVE; i++)
    ck_assert_int_eq(alive[i], BYTES);
}
END_TEST

/* q = ceil(3600 / 7) = 515 of every rank: 3605 elements are gathered, and 3600 copied out. */
START_TEST(shards_are_padded_by_the_parameter)
{
  g_autoptr(Simulated) single = lower_options(five, NO_AHEAD " mesh.shard=7");
  g_autoptr(Simulated) pair = lower_options(five, PREFETCH(4000) " mesh.shard=7");
  ck_assert_int_eq(simulated_allocations(single, 1, "layers.3.linear.weight").largest, 2 * 3605);
  ck_assert_int_eq(simulated_allocations(pair, 1, "gathered parameters").largest, 2 * 2 * 3605);
  ck_assert_int_eq(simulated_allocations(pair, 1, "layers.3.linear.weight").largest, 2 * 3600);
  ck_assert_int_eq(simulated_collectives(single, 1, COLLECTIVE_ALL_GATHER).elements,
                   2 * FIVE * 3605);
  ck_assert_int_eq(simulated_collectives(single, 1, COLLECTIVE_REDUCE_SCATTER).elements,
                   FIVE * 3605);
}
END_TEST

/* free_param: the memory belongs to another stream than the one that has used it. */
START_TEST(released_memory_waits_for_the_compute_stream)
{
  g_autoptr(Simulated) s = lower_options(five, NO_AHEAD);
  const GArray *ops = simulated_ops(s, 1);
  int recorded = 0;
  for (guint i = 0; i < ops->len; i++) {
    const ProgramOp *op = &g_array_index(ops, ProgramOp, i);
    if (op->kind == PROGRAM_RECORD_STREAM &&
        storage_of(s, op)->category == CATEGORY_UNSHARDED_PARAMETER) {
      ck_assert_int_eq(op->stream, STREAM_COMPUTE);
      recorded++;
    }
  }
  ck_assert_int_eq(recorded, 2 * FIVE);
}
END_TEST

/* What a recomputed forward saves for its backward stays when the module releases it, and backward
 * fetches it again: a checkpointed layer's weights are there twice.  Two blocks of three layers.
 * Backward of the last layer fetches its weight before it asks for what forward would have saved;
 * then the block is recomputed, and pins three.  Backward of the middle layer fetches the pinned
 * one again, when the last one has gone. */
START_TEST(recomputation_pins_the_weights_that_it_saves)
{
  static const char blocks[] =
      "{'family': 'blocks', 'hidden': 60, 'embedding': false, 'head': false, 'loss': 'sum',"
      " 'blocks': [{'repeat': 2, 'ops': [{'op': 'linear', 'out': 60}, {'op': 'linear', 'out': 60},"
      " {'op': 'linear', 'out': 60}]}]}";
  g_autoptr(Simulated) s = lower_options(blocks, NO_AHEAD " activation_checkpointing.policy=full");
  static const int whole[12] = {1, 1, 1, 1, 1, 1, 2, 3, 3, 3, 3, 3};
  gint64 alive[G_N_ELEMENTS(whole)];
  at_products(s, CATEGORY_UNSHARDED_PARAMETER, G_N_ELEMENTS(whole), alive);
  for (guint i = 0; i < G_N_ELEMENTS(whole); i++)
    ck_assert_int_eq(alive[i], whole[i] * BYTES);
}
END_TEST

/* ---- the host */

/* Up to two fetches and up to two reductions may be under way: the fourth of either waits for the
 * first.  Later steps begin with pending ones.  Reductions: one for each parameter. */
static const struct {
  int step, waits;
} limit_cases[] = {{0, 2 * FIVE - 3 + FIVE - 3}, {1, 2 * FIVE + FIVE}, {2, 2 * FIVE + FIVE}};

START_TEST(the_host_runs_two_fetches_and_two_reductions_ahead)
{
  g_autoptr(Simulated) s = lower_options(five, NO_AHEAD " " BUCKET(3600));
  ck_assert_int_eq(simulated_count(s, limit_cases[_i].step, PROGRAM_EVENT_SYNC),
                   limit_cases[_i].waits);
}
END_TEST

/* ---- the bucket */

static const struct {
  const char *options;
  int scatters;       /* reduce-scatters */
  gint64 all_reduced; /* elements, beside the norm's one */
} bucket_cases[] = {
    {BUCKET(18000), 1, 0},
    {BUCKET(17999), 2, 0},
    {BUCKET(8000), 3, 0},
    {BUCKET(3600), 5, 0},
    {BUCKET(1000), 5, 0}, /* none fits: each is reduced where it lies */
    {BUCKET(8000) " deepspeed.overlap_comm=false", 3, 0},
    {BUCKET(8000) " deepspeed.contiguous_gradients=false", 3, 0},
    {BUCKET(8000) " accumulation.steps=3", 9, 0}, /* every micro-batch */
    {BUCKET(8000) " deepspeed.reduce_scatter=false", 0, ALL},
    {BUCKET(1000) " deepspeed.reduce_scatter=false", 5, 0},
};

START_TEST(a_bucket_is_reduced_before_it_would_overflow)
{
  g_autoptr(Simulated) s = lower_options(five, bucket_cases[_i].options);
  CollectiveTotal scattered = simulated_collectives(s, 1, COLLECTIVE_REDUCE_SCATTER);
  CollectiveTotal summed = simulated_collectives(s, 1, COLLECTIVE_ALL_REDUCE);
  int times = strstr(bucket_cases[_i].options, "accumulation") ? 3 : 1;
  ck_assert_int_eq(scattered.count, bucket_cases[_i].scatters);
  ck_assert_int_eq(scattered.elements, bucket_cases[_i].scatters > 0 ? times * ALL : 0);
  ck_assert_int_eq(summed.elements, bucket_cases[_i].all_reduced + 1);
}
END_TEST

/* It is there for good, whatever the model's size; 5e8 elements if nothing is said. */
START_TEST(there_is_one_bucket_and_it_stays)
{
  g_autoptr(Simulated) usual = lower_options(five, BUCKET(500000000));
  g_autoptr(Simulated) none = lower_options(five, "deepspeed.contiguous_gradients=false");
  ck_assert_int_eq(simulated_bytes_alive(usual, 3, CATEGORY_REDUCE_SCATTER_BUFFER), 1000000000);
  ck_assert_int_eq(simulated_bytes_alive(none, 3, CATEGORY_REDUCE_SCATTER_BUFFER), 0);
}
END_TEST

/* ---- the optimizer's step */

/* Sub-groups close when they have reached the size: 900 elements a parameter on four ranks.  Each
 * makes its gradients flat and then fp32; a parameter alone is flat already. */
static const struct {
  const char *options;
  int groups;
  gint64 largest; /* elements */
} group_cases[] = {
    {"deepspeed.sub_group_size=1000000000", 1, 4500},
    {"deepspeed.sub_group_size=1801", 2, 2700},
    {"deepspeed.sub_group_size=1800", 3, 1800},
    {"deepspeed.sub_group_size=1", 5, 900},
};

START_TEST(the_optimizer_takes_one_sub_group_after_the_other)
{
  g_autoptr(Simulated) s = lower_options(five, group_cases[_i].options);
  Allocations wide = simulated_allocations(s, 1, "fp32 gradient");
  Allocations flat = simulated_allocations(s, 1, "flat gradient");
  gboolean alone = group_cases[_i].largest == 900;
  ck_assert_int_eq(wide.count, group_cases[_i].groups);
  ck_assert_int_eq(wide.largest, 4 * group_cases[_i].largest);
  ck_assert_int_eq(wide.bytes, 4 * ALL / RANKS);
  ck_assert_int_eq(flat.largest, alone ? 0 : 2 * group_cases[_i].largest);
  /* a norm of each, and no other sum over ranks: bf16 does not overflow */
  ck_assert_int_eq(simulated_collectives(s, 1, COLLECTIVE_ALL_REDUCE).elements,
                   group_cases[_i].groups);
}
END_TEST

/* ---- what stays */

/* Shards of 16 bits, their gradients, and twelve bytes of masters and Adam: 16 N / d, by parameters
 * that are padded one by one; persistent ones are whole beside. */
START_TEST(what_stays_is_divided_by_the_ranks)
{
  static const int many[] = {1, 2, 3, 7, 8, 64, 1000};
  for (guint k = 0; k < G_N_ELEMENTS(many); k++) {
    gint64 shard = FIVE * ceil_div(WIDTH, many[k]);
    g_autofree char *options =
        g_strdup_printf("mesh.shard=%d %s", many[k], _i > 0 ? PERSIST(3600) : PERSIST(0));
    g_autoptr(Simulated) s = lower_options(five, options);
    gint64 whole = _i > 0 && many[k] > 1 ? 2 * shard * many[k] : 0;
    ck_assert_int_eq(simulated_bytes_alive(s, 3, CATEGORY_PARAMETER), 2 * shard + whole);
    ck_assert_int_eq(simulated_bytes_alive(s, 3, CATEGORY_SHARDED_GRADIENT), 2 * shard);
    ck_assert_int_eq(simulated_bytes_alive(s, 3, CATEGORY_OPTIMIZER_STATE), 12 * shard);
  }
}
END_TEST

/* 16 bytes a parameter become 16 / d: d times less (arXiv 1910.02054, section 3), buckets apart. */
START_TEST(stage_3_divides_all_model_states)
{
  static const Category states[] = {CATEGORY_PARAMETER, CATEGORY_OPTIMIZER_STATE,
                                    CATEGORY_SHARDED_GRADIENT, CATEGORY_UNSHARDED_GRADIENT};
  g_autoptr(Simulated) s = lower_options(five, "mesh.shard=225");
  gint64 bytes = 0;
  for (guint c = 0; c < G_N_ELEMENTS(states); c++)
    bytes += simulated_bytes_alive(s, 3, states[c]);
  ck_assert_double_eq_tol((double) bytes / ALL, 16.0 / 225, 1e-12);
}
END_TEST

/* The paper's three elements a parameter: gathered in forward and in backward, and reduced.  What
 * is kept from forward to backward is gathered once. */
static const struct {
  const char *options;
  double sent; /* in the ring algorithm, in units of (d - 1) / d elements a parameter */
} traffic_cases[] = {{NO_AHEAD, 3}, {"", 2}, {NO_AHEAD " accumulation.steps=4", 12}};

START_TEST(stage_3_sends_what_the_paper_says)
{
  g_autofree char *options = g_strconcat("mesh.shard=5 ", traffic_cases[_i].options, NULL);
  g_auto(GStrv) set = g_strsplit(g_strchomp(options), " ", -1);
  g_autoptr(Simulated) s =
      simulation_lower(&(Simulation){five, plan, (const char *const *) set, 0}, 3);
  double sent = simulated_collectives(s, 1, COLLECTIVE_ALL_GATHER).sent +
                simulated_collectives(s, 1, COLLECTIVE_REDUCE_SCATTER).sent;
  ck_assert_double_eq_tol(sent / ALL / 0.8, traffic_cases[_i].sent, 1e-9);
}
END_TEST

/* ---- construction */

/* The most that parameters take at any time. */
static gint64
most_of_parameters(const Simulated *s)
{
  const GArray *ops = simulated_ops(s, -1);
  gint64 bytes = 0, most = 0;
  for (guint i = 0; i < ops->len; i++) {
    bytes += change(s, &g_array_index(ops, ProgramOp, i), CATEGORY_PARAMETER, TRUE);
    most = MAX(most, bytes);
  }
  return most;
}

/* On 60 ranks a shard has 60 elements.  A module at a time: one whole, and all shards; else the
 * whole model and the first shard. */
START_TEST(zero_init_never_holds_the_whole_model)
{
  g_autoptr(Simulated) whole = lower_options(five, "mesh.shard=60");
  g_autoptr(Simulated) parts = lower_options(five, "mesh.shard=60 deepspeed.zero_init=true");
  ck_assert_int_eq(most_of_parameters(whole), FIVE * BYTES + 120);
  ck_assert_int_eq(most_of_parameters(parts), BYTES + FIVE * 120);
}
END_TEST

/* Shards go to the host one by one, the cache is emptied, and they come back as one; it is emptied
 * once more when deepspeed.initialize is over. */
START_TEST(shards_become_one_by_way_of_the_host)
{
  g_autoptr(Simulated) s = lower_options(five, "");
  ck_assert_double_eq(simulated_copied(s, -1, "shard to host"), 2 * ALL / RANKS);
  ck_assert_double_eq(simulated_copied(s, -1, "shards to device"), 2 * ALL / RANKS);
  ck_assert_int_ge(simulated_count(s, -1, PROGRAM_EMPTY_CACHE), 1);
}
END_TEST

/* ---- on the host */

static const struct {
  const char *options;
  gint64 parameters, gradients, states;                   /* bytes on the device, of one rank */
  gint64 there_parameters, there_gradients, there_states; /* and on the host */
} host_cases[] = {
    /* 4500 elements of every rank.  Offloaded gradients: 16 bits as reduced, 32 for the optimizer.
     */
    {"deepspeed.offload_optimizer.device=cpu", 9000, 0, 0, 0, 9000 + 18000, 3 * 18000},
    {"deepspeed.offload_param.device=cpu", 0, 9000, 3 * 18000, 9000, 0, 0},
    {"deepspeed.offload_param.device=cpu deepspeed.offload_optimizer.device=cpu", 0, 0, 0, 9000,
     9000 + 18000, 3 * 18000},
};

START_TEST(what_is_offloaded_is_on_the_host)
{
  g_autoptr(Simulated) s = lower_options(five, host_cases[_i].options);
  ck_assert_int_eq(simulated_bytes_alive(s, 3, CATEGORY_PARAMETER), host_cases[_i].parameters);
  ck_assert_int_eq(simulated_bytes_alive(s, 3, CATEGORY_SHARDED_GRADIENT),
                   host_cases[_i].gradients);
  ck_assert_int_eq(simulated_bytes_alive(s, 3, CATEGORY_OPTIMIZER_STATE), host_cases[_i].states);
  ck_assert_int_eq(simulated_host_bytes_alive(s, 3, CATEGORY_PARAMETER),
                   host_cases[_i].there_parameters);
  ck_assert_int_eq(simulated_host_bytes_alive(s, 3, CATEGORY_SHARDED_GRADIENT),
                   host_cases[_i].there_gradients);
  ck_assert_int_eq(simulated_host_bytes_alive(s, 3, CATEGORY_OPTIMIZER_STATE),
                   host_cases[_i].there_states);
}
END_TEST

/* A gradient goes to the host and back in 16 bits, and in the last micro-batch once more in 32, all
 * of this rank's shard; the new weights come back in 16. */
START_TEST(gradients_go_to_the_host_and_weights_come_back)
{
  const double elements = ALL / RANKS;
  int steps = _i + 1;
  g_autofree char *options =
      g_strdup_printf("deepspeed.offload_optimizer.device=cpu accumulation.steps=%d", steps);
  g_autoptr(Simulated) s = lower_options(five, options);
  ck_assert_double_eq(simulated_copied(s, 1, "gradient to host"), elements * (2 * steps + 4));
  ck_assert_double_eq(simulated_copied(s, 1, "gradient to device"), elements * 2 * steps);
  ck_assert_double_eq(simulated_copied(s, 1, "weights to device"), elements * 2);
}
END_TEST

/* Adam reads 16 bytes an element and writes 12, then makes 16 bits of 32: 34 bytes of 1,800,000
 * elements are 58.4 MiB. */
START_TEST(the_host_reads_and_writes_what_its_optimizer_needs)
{
  static const char wide[] =
      "{'family': 'blocks', 'hidden': 1200, 'embedding': false, 'head': false, 'loss': 'sum',"
      " 'blocks': [{'repeat': 5, 'ops': [{'op': 'linear', 'out': 1200}]}]}";
  g_autoptr(Simulated) s = lower_options(wide, "deepspeed.offload_optimizer.device=cpu");
  const GArray *ops = simulated_ops(s, 1);
  int mebibytes = 0;
  for (guint i = 0; i < ops->len; i++) {
    const ProgramOp *op = &g_array_index(ops, ProgramOp, i);
    mebibytes += op->kind == PROGRAM_HOST_WORK && op->a == HOST_WORK_MEMORY ? op->b : 0;
  }
  ck_assert_int_eq(mebibytes, 59);
}
END_TEST

/* 0.4 of the sub-groups of a parameter each, of which the last ones are on the host. */
START_TEST(a_part_of_the_optimizer_can_stay)
{
  g_autoptr(Simulated) s = lower_options(five, "deepspeed.offload_optimizer.device=cpu"
                                               " deepspeed.offload_optimizer.ratio=0.4"
                                               " deepspeed.sub_group_size=1");
  ck_assert_int_eq(simulated_host_bytes_alive(s, 3, CATEGORY_OPTIMIZER_STATE), 12 * 2 * 900);
  ck_assert_int_eq(simulated_bytes_alive(s, 3, CATEGORY_OPTIMIZER_STATE), 12 * 3 * 900);
}
END_TEST

/* Every fetch brings a shard to the device. */
START_TEST(offloaded_parameters_come_to_the_device_for_every_fetch)
{
  g_autoptr(Simulated) s = lower_options(five, "deepspeed.offload_param.device=cpu " NO_AHEAD);
  ck_assert_double_eq(simulated_copied(s, 1, "shard to device"), 2.0 * 2 * ALL / RANKS);
  ck_assert_double_eq(simulated_copied(s, 1, "weights to host"), 2.0 * ALL / RANKS);
}
END_TEST

/* ---- pads */

/* On more than a thousand ranks pads are counted and not listed: as many bytes, in blocks of 512,
 * as there would be for each rank and gradient. */
START_TEST(pads_of_many_ranks_take_what_they_would_one_by_one)
{
  static const int many[] = {1025, 1700, 4096, 65536};
  g_autofree char *set = g_strdup_printf("mesh.shard=%d " NO_AHEAD, many[_i]);
  g_autoptr(Simulated) s = lower_options(five, set);
  const Network *network = s->scenario->network;
  gint64 expected = 0;
  for (int rank = 0; rank < many[_i]; rank++)
    for (guint p = 0; p < network->parameters->len; p++) {
      gint64 elements = network_parameter(network, (int) p)->elements;
      gint64 shard = ceil_div(elements, many[_i]);
      gint64 missing = shard - CLAMP(elements - rank * shard, 0, shard);
      expected += round_up(2 * missing, 512);
    }
  Allocations one = simulated_allocations(s, 1, "padding of a gradient");
  Allocations together = simulated_allocations(s, 1, "padding of gradients");
  ck_assert_int_gt(together.count, 0);
  ck_assert_int_lt(together.count + one.count, 100);
  gint64 bytes = together.bytes + 512 * one.count;
  ck_assert_int_eq(bytes, expected);
}
END_TEST

/* ---- hpZ */

/* Elements that the communicator of this many ranks gathers in a step. */
static gint64
gathered_over(const Simulated *s, int step, int ranks)
{
  const Program *program = s->lowered->program;
  const GArray *ops = simulated_ops(s, step);
  gint64 bytes = 0;
  for (guint i = 0; i < ops->len; i++) {
    const ProgramOp *op = &g_array_index(ops, ProgramOp, i);
    if (op->kind != PROGRAM_COLLECTIVE)
      continue;
    const Collective *c = &g_array_index(program->collectives, Collective, op->a);
    const Communicator *group =
        &g_array_index(program->communicators, Communicator, c->communicator);
    if (c->kind == COLLECTIVE_ALL_GATHER && group->ranks == ranks)
      bytes += c->bytes;
  }
  return bytes / 2;
}

/* Eight ranks by twos: forward gathers over all eight, backward over the two, from shards of a half
 * that are made when a parameter is first released. */
START_TEST(backward_gathers_from_the_neighbours)
{
  g_autoptr(Simulated) s =
      lower_options(five, "mesh.shard=8 deepspeed.zero_hpz_partition_size=2 " NO_AHEAD);
  Allocations secondary = simulated_allocations(s, 1, "secondary shard");
  ck_assert_int_eq(secondary.count, FIVE);
  ck_assert_int_eq(secondary.bytes, 2 * ALL / 2);
  ck_assert_int_eq(gathered_over(s, 1, 8), ALL);
  ck_assert_int_eq(gathered_over(s, 1, 2), ALL);
  ck_assert_int_eq(simulated_bytes_alive(s, 3, CATEGORY_PARAMETER), 2 * ALL / 8);
}
END_TEST

/* ---- what people measured */

/* deepspeedai/DeepSpeed#3734: LLaMA-13B on 8 devices is steady at 25.3 GiB with ZeRO-3: 16 N / 8,
 * the bucket and the norms' weights. */
START_TEST(llama_13b_on_eight_devices_with_stage_3)
{
  const char *const set[] = {"mesh.shard=8", "batch.sequence_length=128", BUCKET(500000000),
                             PERSIST(100000), NULL};
  g_autoptr(Simulated) s = simulation_lower(&(Simulation){"llama-2-13b", plan, set, 0}, 3);
  gint64 bytes = 0;
  for (int c = 0; c < CATEGORY_COUNT; c++)
    bytes += simulated_bytes_alive(s, 3, (Category) c);
  ck_assert_double_eq_tol((double) bytes / (double) GIB, 25.3, 0.15);
}
END_TEST

/* ---- refusals */

static const struct {
  const char *set, *message;
} refused[] = {
    {"deepspeed.stage=2", "key 'deepspeed.stage': strategy zero3 is stage 3"},
    {"deepspeed.stage3_module_granularity_threshold=100",
     "key 'deepspeed.stage3_module_granularity_threshold': not yet supported"},
    {"deepspeed.zero_hpz_partition_size=3",
     "key 'deepspeed.zero_hpz_partition_size': 3 does not divide mesh.shard 4"},
    {"deepspeed.offload_param.device=nvme",
     "key 'deepspeed.offload_param.device': nvme is not yet supported: none or cpu"},
    {"deepspeed.offload_optimizer.device=nvme",
     "key 'deepspeed.offload_optimizer.device': nvme is not yet supported: none or cpu"},
};

START_TEST(what_stage_3_cannot_honour_is_refused)
{
  g_autofree char *message = simulation_refusal(five, plan, refused[_i].set);
  g_autofree char *expected = g_strconcat("plan.json: ", refused[_i].message, NULL);
  ck_assert_str_eq(message, expected);
}
END_TEST

Suite *
test_suite(void)
{
  Suite *suite = suite_create("zero3");
  TCase *fetching = tcase_create("fetching"), *reducing = tcase_create("reducing");
  TCase *kept = tcase_create("what is kept"), *host = tcase_create("on the host");
  TCase *known = tcase_create("measured");
  tcase_set_timeout(known, 60);
  tcase_add_loop_test(fetching, the_trace_decides_what_is_fetched_ahead_and_kept, 0,
                      G_N_ELEMENTS(gather_cases));
  tcase_add_test(fetching, a_shared_buffer_lives_until_its_last_parameter_is_fetched);
  tcase_add_test(fetching, without_looking_ahead_one_parameter_is_whole_at_a_time);
  tcase_add_test(fetching, shards_are_padded_by_the_parameter);
  tcase_add_test(fetching, released_memory_waits_for_the_compute_stream);
  tcase_add_test(fetching, recomputation_pins_the_weights_that_it_saves);
  tcase_add_loop_test(fetching, the_host_runs_two_fetches_and_two_reductions_ahead, 0,
                      G_N_ELEMENTS(limit_cases));
  tcase_add_loop_test(reducing, a_bucket_is_reduced_before_it_would_overflow, 0,
                      G_N_ELEMENTS(bucket_cases));
  tcase_add_test(reducing, there_is_one_bucket_and_it_stays);
  tcase_add_loop_test(reducing, the_optimizer_takes_one_sub_group_after_the_other, 0,
                      G_N_ELEMENTS(group_cases));
  tcase_add_loop_test(kept, what_stays_is_divided_by_the_ranks, 0, 2);
  tcase_add_test(kept, stage_3_divides_all_model_states);
  tcase_add_loop_test(kept, stage_3_sends_what_the_paper_says, 0, G_N_ELEMENTS(traffic_cases));
  tcase_add_test(kept, zero_init_never_holds_the_whole_model);
  tcase_add_test(kept, shards_become_one_by_way_of_the_host);
  tcase_add_loop_test(host, what_is_offloaded_is_on_the_host, 0, G_N_ELEMENTS(host_cases));
  tcase_add_loop_test(host, gradients_go_to_the_host_and_weights_come_back, 0, 3);
  tcase_add_test(host, the_host_reads_and_writes_what_its_optimizer_needs);
  tcase_add_test(host, a_part_of_the_optimizer_can_stay);
  tcase_add_test(host, offloaded_parameters_come_to_the_device_for_every_fetch);
  tcase_add_loop_test(host, pads_of_many_ranks_take_what_they_would_one_by_one, 0, 4);
  tcase_add_test(host, backward_gathers_from_the_neighbours);
  tcase_add_test(known, llama_13b_on_eight_devices_with_stage_3);
  tcase_add_loop_test(known, what_stage_3_cannot_honour_is_refused, 0, G_N_ELEMENTS(refused));
  suite_add_tcase(suite, fetching);
  suite_add_tcase(suite, reducing);
  suite_add_tcase(suite, kept);
  suite_add_tcase(suite, host);
  suite_add_tcase(suite, known);
  return suite;
}
