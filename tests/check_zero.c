/* check_zero.c - DeepSpeed's ZeRO stages 0 to 2: how the flat buffer is cut, how many buckets there
 * are and what goes through them, what a rank keeps, and what people measured.
 *
 * Expectations are worked out by hand from deepspeed 0.19.8's code (the file is named where it
 * matters) or published; whether every allocation is in its place is compared with recorded traces
 * elsewhere. */
#include "base/units.h"
#include "simulation.h"
#include "strategy/zero_flat.h"
#include "tap_main.h"
#include <math.h>
#include <string.h>

#define NO_LIMIT ((gint64) 1 << 60)

/* Five linear layers of 60 x 60 without biases: five parameters of 3600 elements and nothing else.
 */
static const char five[] =
    "{'family': 'blocks', 'hidden': 60, 'embedding': false, 'head': false, 'loss': 'sum',"
    " 'blocks': [{'repeat': 5, 'ops': [{'op': 'linear', 'out': 60}]}]}";
enum { FIVE = 5, WIDTH = 3600, ALL = FIVE * WIDTH };

static const char plan[] =
    "{'strategy': 'zero2', 'batch': {'micro_batch': 1, 'sequence_length': 8},"
    " 'precision': {'parameters': 'bf16'}, 'optimizer': {'implementation': 'fused'}}";

static Simulated *
lower_rank(const char *network, const char *const *set, int rank)
{
  return simulation_lower(&(Simulation){network, plan, set, rank}, 3);
}

/* ---- the flat buffer */

/* A buffer for ranks of the network; d has only what its layout depends on. */
static ZeroFlat
lay_out(const Network *network, int ranks, int rank, gboolean round_robin, gboolean aligned)
{
  const DeepSpeed d = {.ranks = ranks,
                       .rank = rank,
                       .element = 2,
                       .round_robin_gradients = round_robin,
                       .parameter_alignment = aligned};
  ZeroFlat flat;
  zero_flat_init(&flat, &d, network);
  return flat;
}

static const char odd[] =
    "{'model_type': 'gpt2', 'n_embd': 36, 'n_layer': 2, 'n_head': 3, 'vocab_size': 101,"
    " 'n_positions': 24, 'implementation': 'nanogpt'}";

/* Every element of every parameter belongs to exactly one rank, in order, and what a rank calls its
 * own is what the others see as its. */
START_TEST(slices_of_all_ranks_cover_every_parameter_once)
{
  static const int many[] = {1, 2, 3, 8, 64, 1000};
  g_autoptr(Scenario) s = simulation_read(&(Simulation){odd, plan, NULL, 0}, NULL);
  for (guint k = 0; k < G_N_ELEMENTS(many); k++) {
    for (int rank = 0; rank < many[k]; rank += MAX(1, many[k] / 7)) {
      ZeroFlat flat = lay_out(s->network, many[k], rank, _i & 1, _i >> 1);
      gint64 own = 0;
      for (int p = 0; p < flat.count; p++) {
        gint64 covered = 0;
        FlatSlice slice;
        for (int i = 0; zero_flat_slice(&flat, s->network, p, i, &slice); i++) {
          ck_assert_int_eq(slice.first, covered);
          ck_assert_int_gt(slice.elements, 0);
          ck_assert_int_eq((flat.offset[p] + slice.first) / flat.partition, slice.rank);
          covered += slice.elements;
          own += slice.rank == rank ? slice.elements : 0;
        }
        ck_assert_int_eq(covered, network_parameter(s->network, p)->elements);
      }
      gint64 mine = 0;
      for (guint i = 0; i < flat.own->len; i++)
        mine +=
            zero_flat_own_slice(&flat, s->network, g_array_index(flat.own, int, i), rank).elements;
      ck_assert_int_eq(own, mine);
      zero_flat_clear(&flat);
    }
  }
}
END_TEST

/* The heaviest rank is the first of those whose own parameters, each counted whole, are largest. */
START_TEST(no_rank_owns_more_than_the_heaviest)
{
  g_autoptr(Scenario) s = simulation_read(&(Simulation){odd, plan, NULL, 0}, NULL);
  for (int ranks = 1; ranks <= 20; ranks++) {
    gint64 whole[20];
    int first = 0;
    for (int rank = 0; rank < ranks; rank++) {
      ZeroFlat flat = lay_out(s->network, ranks, rank, _i & 1, _i >> 1);
      whole[rank] = flat.own_whole;
      if (whole[rank] > whole[first])
        first = rank;
      if (rank == ranks - 1)
        ck_assert_int_eq(zero_flat_heaviest_rank(&flat, s->network), first);
      zero_flat_clear(&flat);
    }
  }
}
END_TEST

/* nccl_start_alignment_factor 2: a multiple of twice the ranks, and the smallest. */
START_TEST(the_buffer_is_padded_to_twice_the_ranks)
{
  g_autoptr(Scenario) s = simulation_read(&(Simulation){odd, plan, NULL, 0}, NULL);
  gint64 elements = network_parameter_count(s->network);
  for (int ranks = 1; ranks <= 70; ranks++) {
    ZeroFlat flat = lay_out(s->network, ranks, ranks - 1, FALSE, FALSE);
    ck_assert_int_eq(flat.padded % (2 * ranks), 0);
    ck_assert_int_eq(flat.partition * ranks, flat.padded);
    ck_assert(flat.padded >= elements && flat.padded < elements + 2 * ranks);
    ck_assert_int_eq(flat.tail, MIN(flat.partition, flat.padded - elements));
    zero_flat_clear(&flat);
  }
}
END_TEST

/* p0 p3, p1 p4, p2 on three ranks. */
START_TEST(round_robin_deals_parameters_like_cards)
{
  static const int expected[FIVE] = {0, 3, 1, 4, 2};
  g_autoptr(Scenario) s = simulation_read(&(Simulation){five, plan, NULL, 0}, NULL);
  ZeroFlat flat = lay_out(s->network, 3, 0, TRUE, FALSE);
  for (int i = 0; i < FIVE; i++) {
    ck_assert_int_eq(flat.order[i], expected[i]);
    ck_assert_int_eq(flat.offset[expected[i]], i * WIDTH);
  }
  zero_flat_clear(&flat);
}
END_TEST

/* 16 bytes are eight elements of 16 bits. */
START_TEST(aligned_parameters_begin_at_16_bytes)
{
  g_autoptr(Scenario) s = simulation_read(&(Simulation){odd, plan, NULL, 0}, NULL);
  ZeroFlat flat = lay_out(s->network, 4, 0, FALSE, TRUE);
  for (int p = 0; p < flat.count; p++)
    ck_assert_int_eq(flat.offset[p] % 8, 0);
  ck_assert_int_gt(flat.elements, network_parameter_count(s->network));
  zero_flat_clear(&flat);
}
END_TEST

/* ---- construction */

/* 2 N of parameters and as much again until they are views of the flat buffer; then master weights.
 */
START_TEST(parameters_and_the_flat_buffer_exist_together_for_a_moment)
{
  const char *const set[] = {"mesh.shard=4", NULL};
  g_autoptr(Simulated) s = simulation_execute(&(Simulation){five, plan, set, 0}, 1, NO_LIMIT);
  gint64 block = ceil_div(2 * WIDTH, 512) * 512, flat = ceil_div(2 * ALL, 512) * 512;
  ck_assert_int_eq(s->recording->construction_peak_allocated, FIVE * block + flat);
  ck_assert_int_eq(simulated_allocations(s, -1, "placeholder").count, 0);
}
END_TEST

/* available_memory() is short of the second copy: by way of the host, an fp32 element each. */
START_TEST(a_tight_device_flattens_on_the_host)
{
  g_autoptr(Scenario) s = simulation_read(&(Simulation){five, plan, NULL, 0}, NULL);
  s->memory_limit = 3 * ALL;
  g_autoptr(Lowered) lowered = scenario_lower(s, 0, 1, NULL);
  Simulated simulated = {.scenario = s, .lowered = lowered};
  Allocations left = simulated_allocations(&simulated, -1, "placeholder");
  ck_assert_int_eq(left.count, FIVE);
  ck_assert_int_eq(left.bytes, FIVE * 4);
  const GArray *ops = simulated_ops(&simulated, -1);
  int copies = 0, emptied = 0;
  for (guint i = 0; i < ops->len; i++) {
    copies += g_array_index(ops, ProgramOp, i).kind == PROGRAM_COPY;
    emptied += g_array_index(ops, ProgramOp, i).kind == PROGRAM_EMPTY_CACHE;
  }
  ck_assert_int_eq(copies, FIVE + 1);
  ck_assert_int_eq(emptied, 3); /* before flattening, on the way, and after initialize() */
}
END_TEST

/* FP16_UnfusedOptimizer makes a whole step with zeros: 2 parameters, 4 master, 2 and 4 gradients, 8
 * Adam, and foreach's square roots 4. */
START_TEST(stage_0_peaks_at_24_bytes_a_parameter_before_training)
{
  const char *const set[] = {"strategy=zero0", "optimizer.implementation=foreach", NULL};
  g_autoptr(Simulated) s = simulation_execute(&(Simulation){five, plan, set, 0}, 1, NO_LIMIT);
  double bytes = (double) s->recording->construction_peak_allocated;
  ck_assert_double_eq_tol(bytes / ALL, 24, 1.0); /* blocks are rounded to 512 bytes */
}
END_TEST

/* ---- buckets */

static const struct {
  const char *options;                 /* with blanks between */
  int in_first_micro_batches, in_step; /* buckets allocated, of a step of three micro-batches */
} bucket_cases[] = {
    /* one bucket in every backward of stage 2, kept by stage 1 until its reduction */
    {"strategy=zero2", 1, 3},
    {"strategy=zero1", 1, 1},
    {"strategy=zero2 deepspeed.overlap_comm=true", 2, 6},
    {"strategy=zero1 deepspeed.overlap_comm=true", 2, 2},
    {"strategy=zero2 deepspeed.contiguous_gradients=false", 0, 0},
    {"strategy=zero2 deepspeed.contiguous_gradients=false deepspeed.overlap_comm=true", 0, 0},
    {"strategy=zero0", 0, 0},
    {"strategy=zero1 deepspeed.grad_accum_dtype=\"fp32\"", 0, 0}, /* BF16_Optimizer */
};

static char **
words_of(const char *options, const char *more)
{
  g_autofree char *text = g_strconcat(options, " ", more, NULL);
  return g_strsplit(text, " ", -1);
}

/* 5e8 elements, whatever the model's size: elements of two bytes, not bytes. */
START_TEST(buckets_have_the_size_of_the_option_and_not_of_the_model)
{
  const char *options = bucket_cases[_i].options;
  g_auto(GStrv) one = words_of(options, "mesh.shard=2");
  g_auto(GStrv) three = words_of(options, "mesh.shard=2 accumulation.steps=3");
  g_autoptr(Simulated) a = lower_rank(five, (const char *const *) one, 0);
  g_autoptr(Simulated) b = lower_rank(five, (const char *const *) three, 0);
  Allocations once = simulated_allocations(a, 1, "gradient bucket");
  ck_assert_int_eq(once.count, bucket_cases[_i].in_first_micro_batches);
  ck_assert_int_eq(once.bytes, once.count * G_GINT64_CONSTANT(1000000000));
  ck_assert_int_eq(simulated_allocations(b, 1, "gradient bucket").count, bucket_cases[_i].in_step);
}
END_TEST

/* transformers, integrations/deepspeed.py. */
START_TEST(auto_is_the_hidden_size_squared)
{
  const char *const set[] = {"mesh.shard=2", "deepspeed.reduce_bucket_size=\"auto\"", NULL};
  g_autoptr(Simulated) s = lower_rank(five, set, 0);
  ck_assert_int_eq(simulated_allocations(s, 1, "gradient bucket").bytes, 2 * 60 * 60);
}
END_TEST

/* Five gradients of 3600 elements become ready one after another, on partitions of 4500.  One that
 * no bucket holds is sent by itself, slice after slice until more than a bucket's elements have
 * come together: p0 and p4 whole, p1 as 900 + 2700 at once, p2 as 1800 and 1800, p3 as 2700 and
 * 900. */
static const struct {
  int bucket, all_reduces;
} flush_cases[] = {
    {18000, 1}, /* all fit */
    {17999, 2}, /* the last one does not */
    {8000, 3},  /* two and two and one */
    {3600, 5},  /* one at a time */
    {1000, 7},  /* none fits */
};

START_TEST(a_bucket_is_reduced_before_it_would_overflow)
{
  g_autofree char *bucket =
      g_strdup_printf("deepspeed.reduce_bucket_size=%d", flush_cases[_i].bucket);
  const char *const set[] = {"mesh.shard=4", bucket, NULL};
  g_autoptr(Simulated) s = lower_rank(five, set, 0);
  CollectiveTotal sent = simulated_collectives(s, 1, COLLECTIVE_ALL_REDUCE);
  ck_assert_int_eq(sent.count, flush_cases[_i].all_reduces + 2); /* overflow flag and norm */
  ck_assert_int_eq(sent.elements, ALL + 2);
  Allocations buckets = simulated_allocations(s, 1, "gradient bucket");
  ck_assert_int_eq(buckets.bytes, 2 * flush_cases[_i].bucket);
}
END_TEST

/* On five ranks every parameter is one rank's partition: a bucket of one is reduced in place, one
 * of two or more is copied for the all-reduce.  On four ranks partitions are of 4500, so that all
 * parameters but the first are cut. */
static const struct {
  const char *ranks, *bucket;
  int copies;
  gint64 largest; /* elements */
} copy_cases[] = {
    {"mesh.shard=5", "3600", 0, 0},      {"mesh.shard=5", "8000", 2, 7200},
    {"mesh.shard=5", "18000", 1, 18000}, {"mesh.shard=4", "3600", 3, 3600},
    {"mesh.shard=4", "1000", 1, 3600},   {"mesh.shard=1", "18000", 0, 0},
};

START_TEST(what_belongs_to_several_ranks_is_copied_for_its_all_reduce)
{
  g_autofree char *bucket =
      g_strconcat("deepspeed.reduce_bucket_size=", copy_cases[_i].bucket, NULL);
  const char *const set[] = {copy_cases[_i].ranks, bucket, NULL};
  g_autoptr(Simulated) s = lower_rank(five, set, 0);
  Allocations copies = simulated_allocations(s, 1, "flattened gradients");
  ck_assert_int_eq(copies.count, copy_cases[_i].copies);
  ck_assert_int_eq(copies.largest, 2 * copy_cases[_i].largest);
}
END_TEST

START_TEST(a_plain_all_reduce_needs_no_copy)
{
  const char *const set[] = {"mesh.shard=4", "deepspeed.reduce_scatter=false", NULL};
  g_autoptr(Simulated) s = lower_rank(five, set, 0);
  ck_assert_int_eq(simulated_allocations(s, 1, "flattened gradients").count, 0);
  ck_assert_int_eq(simulated_collectives(s, 1, COLLECTIVE_ALL_REDUCE).elements, ALL + 2);
}
END_TEST

/* use_multi_rank_bucket_allreduce false: each rank's slices go to it in one reduce. */
START_TEST(a_reduce_for_each_owner_sends_every_element_once)
{
  const char *const set[] = {"mesh.shard=4", "deepspeed.use_multi_rank_bucket_allreduce=false",
                             NULL};
  g_autoptr(Simulated) s = lower_rank(five, set, 0);
  CollectiveTotal sent = simulated_collectives(s, 1, COLLECTIVE_REDUCE);
  ck_assert_int_eq(sent.count, 4);
  ck_assert_int_eq(sent.elements, ALL);
  ck_assert_int_eq(simulated_collectives(s, 1, COLLECTIVE_ALL_REDUCE).elements, 2);
}
END_TEST

/* ---- what a rank keeps */

/* Partitions of 4500: rank 0 has p0 and a quarter of p1, rank 1 three quarters of p1 and half of
 * p2, and each keeps whole parameters. */
static const struct {
  int rank, parameters;
} own_cases[] = {{0, 2}, {1, 2}, {2, 2}, {3, 2}};

START_TEST(gradients_of_own_parameters_are_kept_whole)
{
  const char *const set[] = {"mesh.shard=4", NULL};
  g_autoptr(Simulated) s = lower_rank(five, set, own_cases[_i].rank);
  Allocations own = simulated_allocations(s, 1, "gradients of own parameters");
  ck_assert_int_eq(own.count, 1);
  ck_assert_int_eq(own.bytes, 2 * WIDTH * own_cases[_i].parameters);
}
END_TEST

/* Stage 2 with fp32 accumulation adds slices to a partition of exactly 1/d in fp32. */
START_TEST(fp32_accumulation_keeps_the_partition_only)
{
  const char *const set[] = {"mesh.shard=4", "deepspeed.grad_accum_dtype=\"fp32\"",
                             "accumulation.steps=2", NULL};
  g_autoptr(Simulated) s = lower_rank(five, set, 1);
  ck_assert_int_eq(simulated_allocations(s, 1, "gradients of own parameters").count, 0);
  Allocations partition = simulated_allocations(s, 1, "gradient partition");
  ck_assert_int_eq(partition.count, 1);
  ck_assert_int_eq(partition.bytes, 4 * ALL / 4);
  ck_assert_int_eq(simulated_allocations(s, 1, "fp32 gradient").count, 0);
}
END_TEST

/* The step: partition 4500, its gradient flattened in 16 bits, then in fp32; the norm takes each
 * slice in fp64, and rank 1's largest is three quarters of 3600. */
START_TEST(the_step_makes_this_ranks_gradient_in_fp32)
{
  const char *const set[] = {"mesh.shard=4", NULL};
  g_autoptr(Simulated) s = lower_rank(five, set, 1);
  ck_assert_int_eq(simulated_allocations(s, 1, "flat gradient").bytes, 2 * ALL / 4);
  ck_assert_int_eq(simulated_allocations(s, 1, "fp32 gradient").bytes, 4 * ALL / 4);
  ck_assert_int_eq(simulated_allocations(s, 1, "to_copy").largest, 8 * WIDTH * 3 / 4);
}
END_TEST

/* Bytes that stay, per parameter and on d ranks: 2 + 12 / d; 4 more of gradients for
 * BF16_Optimizer; 2 + 4 + 8 without ZeRO. */
static const struct {
  const char *options;
  double whole, divided;
} rest_cases[] = {
    {"strategy=zero0", 14, 0},
    {"strategy=zero1", 2, 12},
    {"strategy=zero2", 2, 12},
    {"strategy=zero2 deepspeed.grad_accum_dtype=\"fp32\"", 2, 12},
    {"strategy=zero1 deepspeed.grad_accum_dtype=\"fp32\"", 6, 12},
};

START_TEST(what_stays_between_steps_is_what_the_stage_divides)
{
  static const Category states[] = {CATEGORY_PARAMETER, CATEGORY_OPTIMIZER_STATE,
                                    CATEGORY_SHARDED_GRADIENT, CATEGORY_UNSHARDED_GRADIENT};
  static const int many[] = {1, 2, 3, 8, 64};
  for (guint k = 0; k < G_N_ELEMENTS(many); k++) {
    g_autofree char *mesh =
        g_strdup_printf("mesh.shard=%d optimizer.implementation=foreach", many[k]);
    g_auto(GStrv) set = words_of(rest_cases[_i].options, mesh);
    g_autoptr(Simulated) s = lower_rank(five, (const char *const *) set, 0);
    gint64 bytes = 0, padded = ceil_div(ALL, 2 * many[k]) * 2 * many[k];
    for (guint c = 0; c < G_N_ELEMENTS(states); c++)
      bytes += simulated_bytes_alive(s, 3, states[c]);
    double elements = rest_cases[_i].divided > 0 ? (double) padded : ALL;
    ck_assert_double_eq((double) bytes,
                        elements * (rest_cases[_i].whole + rest_cases[_i].divided / many[k]));
  }
}
END_TEST

/* ---- ZeRO's accounting (arXiv 1910.02054, section 3) */

/* Parameters, gradients and optimizer state when the graph has run and nothing was reduced yet
 * beyond what backward did; buckets, which are fixed, apart. */
static double
model_states(const char *const *set)
{
  static const Category states[] = {CATEGORY_PARAMETER, CATEGORY_OPTIMIZER_STATE,
                                    CATEGORY_SHARDED_GRADIENT, CATEGORY_UNSHARDED_GRADIENT};
  g_autoptr(Simulated) s = lower_rank(five, set, 0);
  const Program *program = s->lowered->program;
  const GArray *ops = simulated_ops(s, 1);
  gint64 bytes = 0;
  for (guint c = 0; c < G_N_ELEMENTS(states); c++)
    bytes += simulated_bytes_alive(s, 1, states[c]);
  for (guint i = 0; i < ops->len; i++) {
    const ProgramOp *op = &g_array_index(ops, ProgramOp, i);
    if (op->kind == PROGRAM_RANGE_PUSH && strcmp(program_text(program, op->a), "optimizer") == 0)
      break;
    if (op->kind == PROGRAM_RANGE_PUSH && strcmp(program_text(program, op->a), "epilogue") == 0)
      break;
    if (op->kind != PROGRAM_ALLOC && op->kind != PROGRAM_FREE)
      continue;
    const Storage *storage = &g_array_index(program->storages, Storage, op->a);
    for (guint c = 0; c < G_N_ELEMENTS(states); c++)
      if (storage->category == states[c])
        bytes += op->kind == PROGRAM_ALLOC ? storage->bytes : -storage->bytes;
  }
  return (double) bytes / ALL;
}

/* On many ranks 16 bytes a parameter become 4 with stage 1 and 2 with stage 2.  Stage 2 on ranks
 * that own more than a partition's worth of whole parameters keeps a little more. */
START_TEST(stages_save_what_the_paper_says)
{
  const char *const none[] = {"strategy=zero0", "mesh.shard=225", NULL};
  const char *const one[] = {"strategy=zero1", "mesh.shard=225", NULL};
  const char *const two[] = {"strategy=zero2", "mesh.shard=225",
                             "deepspeed.reduce_bucket_size=3600", NULL};
  double states = model_states(none), stage1 = model_states(one), stage2 = model_states(two);
  ck_assert_double_eq_tol(states, 16, 0.1);
  ck_assert_double_eq_tol(states / stage1, 4, 0.1);
  ck_assert_double_eq_tol(states / stage2, 8, 0.5);
}
END_TEST

/* By the paper stages 0 to 2 send 2 elements a parameter.  Stages 1 and 2 really all-reduce, and
 * gather: 3; with a reduce for each owner it is 2 as in the paper. */
static const struct {
  const char *options;
  double sent; /* in the ring algorithm, of d ranks in units of (d - 1) / d elements a parameter */
} traffic_cases[] = {
    {"strategy=zero0", 2},
    {"strategy=zero1", 3},
    {"strategy=zero2", 3},
    {"strategy=zero2 deepspeed.reduce_scatter=false", 3},
};

START_TEST(stages_1_and_2_send_half_more_than_the_paper_says)
{
  g_auto(GStrv) set = words_of(traffic_cases[_i].options, "mesh.shard=5");
  g_autoptr(Simulated) s = lower_rank(five, (const char *const *) set, 0);
  double sent = 0;
  for (int kind = 0; kind < COLLECTIVE_KIND_COUNT; kind++)
    sent += simulated_collectives(s, 1, (CollectiveKind) kind).sent;
  ck_assert_double_eq_tol(sent / ALL / 0.8, traffic_cases[_i].sent, 1e-3);
}
END_TEST

/* Accumulation: stage 2 reduces every micro-batch, the others once. */
START_TEST(only_stage_2_reduces_every_micro_batch)
{
  static const char *const strategies[] = {"strategy=zero0", "strategy=zero1", "strategy=zero2"};
  static const int times[] = {1, 1, 4};
  const char *const set[] = {strategies[_i], "mesh.shard=4", "accumulation.steps=4", NULL};
  g_autoptr(Simulated) s = lower_rank(five, set, 0);
  gint64 sent = simulated_collectives(s, 1, COLLECTIVE_ALL_REDUCE).elements;
  ck_assert_int_eq(sent, times[_i] * ALL + (_i > 0 ? 2 : 0));
}
END_TEST

/* ---- what people measured */

static double
peak_mib(const char *const *set)
{
  static const char gpt2[] =
      "{'model_type': 'gpt2', 'n_embd': 1984, 'n_layer': 36, 'n_head': 16, 'vocab_size': 50257,"
      " 'n_positions': 1024, 'implementation': 'transformers'}";
  g_autoptr(Simulated) s = simulation_execute(&(Simulation){gpt2, plan, set, 0}, 2, NO_LIMIT);
  return (double) g_array_index(s->recording->steps, StepRecord, 1).peak_allocated / MIB;
}

/* deepspeedai/DeepSpeed#1302: ZeRO-2 on a model of about 1.8 billion parameters.  overlap_comm adds
 * a bucket of 5e8 elements, 954 MiB; with both, 1e8 instead of 5e8 elements take 1,527 MiB away.
 * nvidia-smi counts in steps of 2 MiB. */
START_TEST(overlap_adds_a_bucket_and_smaller_buckets_take_it_away)
{
#define COMMON                                                                                     \
  "mesh.shard=8", "precision.parameters=fp16", "batch.sequence_length=1024",                       \
      "optimizer.implementation=fused"
  const char *const one[] = {COMMON, NULL};
  const char *const two[] = {COMMON, "deepspeed.overlap_comm=true", NULL};
  const char *const small[] = {COMMON, "deepspeed.overlap_comm=true",
                               "deepspeed.reduce_bucket_size=1e8", NULL};
#undef COMMON
  double both = peak_mib(two);
  ck_assert_double_eq_tol(both - peak_mib(one), 954, 3);
  ck_assert_double_eq_tol(both - peak_mib(small), 1527, 3);
}
END_TEST

/* deepspeedai/DeepSpeed#3734: LLaMA-13B on 8 devices is steady at 45.46 GiB with ZeRO-2:
 * parameters, master weights, Adam and this rank's gradients. */
START_TEST(llama_13b_on_eight_devices_with_stage_2)
{
  const char *const set[] = {"mesh.shard=8", "batch.sequence_length=128", NULL};
  g_autoptr(Simulated) s = lower_rank("llama-2-13b", set, 0);
  double bytes = (double) (simulated_bytes_alive(s, 3, CATEGORY_PARAMETER) +
                           simulated_bytes_alive(s, 3, CATEGORY_OPTIMIZER_STATE) +
                           simulated_allocations(s, 1, "gradients of own parameters").bytes);
  ck_assert_double_eq_tol(bytes / (double) GIB, 45.46, 0.1);
}
END_TEST

/* ---- refusals */

static const struct {
  const char *set, *message;
} refused[] = {
    {"strategy=zero2 deepspeed.stage=1", "key 'deepspeed.stage': strategy zero2 is stage 2"},
    {"strategy=zero1 deepspeed.offload_param.device=cpu",
     "key 'deepspeed.offload_param.device': only stage 3 offloads parameters"},
    {"strategy=zero2 deepspeed.offload_optimizer.device=nvme",
     "key 'deepspeed.offload_optimizer.device': nvme is not yet supported: none or cpu"},
    {"strategy=zero0 deepspeed.offload_optimizer.device=cpu",
     "key 'deepspeed.offload_optimizer.device': stage 0 offloads nothing"},
    {"strategy=zero2 deepspeed.compute_grad_norm=false optimizer.clip_grad_norm=1",
     "key 'deepspeed.compute_grad_norm': false needs optimizer.clip_grad_norm off"},
    {"strategy=zero0 deepspeed.compute_grad_norm=false",
     "key 'deepspeed.compute_grad_norm': false is for stages 1 and 2"},
    {"strategy=zero1 accumulation.sync_every_step=true",
     "key 'accumulation.sync_every_step': zero1 reduces at the last micro-batch only"},
    {"strategy=zero2 mesh.replicate=2",
     "key 'mesh.replicate': zero2 shards over all ranks: use mesh.shard"},
    {"strategy=zero2 deepspeed.offload_optimizer.devise=cpu",
     "unknown key 'deepspeed.offload_optimizer.devise'; did you mean 'device'?"},
    {"strategy=zero2 deepspeed.zenflow=1", "key 'deepspeed.zenflow': not yet supported"},
};

START_TEST(what_a_stage_cannot_honour_is_refused)
{
  g_autofree char *options = g_strconcat(refused[_i].set, " mesh.shard=2", NULL);
  g_autofree char *message = simulation_refusal(five, plan, options);
  g_autofree char *expected = g_strconcat("plan.json: ", refused[_i].message, NULL);
  ck_assert_str_eq(message, expected);
}
END_TEST

Suite *
test_suite(void)
{
  Suite *suite = suite_create("zero");
  TCase *flat = tcase_create("flat buffer"), *buckets = tcase_create("buckets");
  TCase *kept = tcase_create("what is kept"), *known = tcase_create("measured");
  tcase_set_timeout(known, 60);
  tcase_add_loop_test(flat, slices_of_all_ranks_cover_every_parameter_once, 0, 4);
  tcase_add_loop_test(flat, no_rank_owns_more_than_the_heaviest, 0, 4);
  tcase_add_test(flat, the_buffer_is_padded_to_twice_the_ranks);
  tcase_add_test(flat, round_robin_deals_parameters_like_cards);
  tcase_add_test(flat, aligned_parameters_begin_at_16_bytes);
  tcase_add_test(flat, parameters_and_the_flat_buffer_exist_together_for_a_moment);
  tcase_add_test(flat, a_tight_device_flattens_on_the_host);
  tcase_add_test(flat, stage_0_peaks_at_24_bytes_a_parameter_before_training);
  tcase_add_loop_test(buckets, buckets_have_the_size_of_the_option_and_not_of_the_model, 0,
                      G_N_ELEMENTS(bucket_cases));
  tcase_add_test(buckets, auto_is_the_hidden_size_squared);
  tcase_add_loop_test(buckets, a_bucket_is_reduced_before_it_would_overflow, 0,
                      G_N_ELEMENTS(flush_cases));
  tcase_add_loop_test(buckets, what_belongs_to_several_ranks_is_copied_for_its_all_reduce, 0,
                      G_N_ELEMENTS(copy_cases));
  tcase_add_test(buckets, a_plain_all_reduce_needs_no_copy);
  tcase_add_test(buckets, a_reduce_for_each_owner_sends_every_element_once);
  tcase_add_loop_test(kept, gradients_of_own_parameters_are_kept_whole, 0, G_N_ELEMENTS(own_cases));
  tcase_add_test(kept, fp32_accumulation_keeps_the_partition_only);
  tcase_add_test(kept, the_step_makes_this_ranks_gradient_in_fp32);
  tcase_add_loop_test(kept, what_stays_between_steps_is_what_the_stage_divides, 0,
                      G_N_ELEMENTS(rest_cases));
  tcase_add_test(kept, stages_save_what_the_paper_says);
  tcase_add_loop_test(kept, stages_1_and_2_send_half_more_than_the_paper_says, 0,
                      G_N_ELEMENTS(traffic_cases));
  tcase_add_loop_test(kept, only_stage_2_reduces_every_micro_batch, 0, 3);
  tcase_add_test(known, overlap_adds_a_bucket_and_smaller_buckets_take_it_away);
  tcase_add_test(known, llama_13b_on_eight_devices_with_stage_2);
  tcase_add_loop_test(known, what_a_stage_cannot_honour_is_refused, 0, G_N_ELEMENTS(refused));
  suite_add_tcase(suite, flat);
  suite_add_tcase(suite, buckets);
  suite_add_tcase(suite, kept);
  suite_add_tcase(suite, known);
  return suite;
}
