/* check_range_map.c - a checkpoint read into other groups or another number of shards: every
 * element arrives at the rank that holds it, from the rank that wrote it, exactly once.  Random
 * layouts are checked element by element; layouts of the strategies by what their frameworks say of
 * them. */
#include "base/units.h"
#include "lower/lower.h"
#include "simulation.h"
#include "strategy/range_map.h"
#include "tap_main.h"
#include <string.h>

#define PARAMETERS 5
#define MOST_ELEMENTS 40
#define TRIES 300

static const gint64 sizes[PARAMETERS] = {MOST_ELEMENTS, 1, 17, 8, 33};

static gint64
total(void)
{
  gint64 sum = 0;
  for (int i = 0; i < PARAMETERS; i++)
    sum += sizes[i];
  return sum;
}

/* ---- random layouts */

/* Everything in one row of elements, cut at random places: some ranks get nothing. */
static StateLayout *
cut_flat(GRand *random, int ranks)
{
  StateLayout *layout = state_layout_new(ranks);
  gint64 at = 0, ends[16];
  for (int i = 0; i < ranks; i++)
    ends[i] = i + 1 == ranks ? total() : g_rand_int_range(random, 0, (gint32) total() + 1);
  for (int i = 0; i < ranks; i++)
    for (int k = i + 1; k < ranks; k++)
      if (ends[k] < ends[i]) {
        gint64 swapped = ends[i];
        ends[i] = ends[k];
        ends[k] = swapped;
      }
  int rank = 0;
  for (int p = 0; p < PARAMETERS; p++)
    for (gint64 first = 0; first < sizes[p];) {
      while (ends[rank] <= at)
        rank++;
      gint64 elements = MIN(sizes[p] - first, ends[rank] - at);
      state_layout_add(layout, rank, (StateRange){p, first, elements});
      first += elements;
      at += elements;
    }
  return layout;
}

/* Each parameter by itself, in equal parts rounded up, given to the ranks in a random rotation. */
static StateLayout *
cut_each(GRand *random, int ranks)
{
  StateLayout *layout = state_layout_new(ranks);
  for (int p = PARAMETERS - 1; p >= 0; p--) { /* the order in a file is of no account */
    gint64 part = ceil_div(sizes[p], ranks);
    int turn = g_rand_int_range(random, 0, ranks);
    for (int i = 0; i < ranks; i++)
      state_layout_add(layout, (i + turn) % ranks,
                       (StateRange){p, i * part, MIN(part, sizes[p] - i * part)});
  }
  return layout;
}

static StateLayout *
random_layout(GRand *random)
{
  int ranks = g_rand_int_range(random, 1, 12);
  return g_rand_boolean(random) ? cut_flat(random, ranks) : cut_each(random, ranks);
}

/* Who holds an element; -1: nobody; fails when two do. */
static int
holder(const StateLayout *layout, int parameter, gint64 element)
{
  int found = -1;
  for (int rank = 0; rank < layout->ranks; rank++) {
    const GArray *held = g_ptr_array_index(layout->held, (guint) rank);
    for (guint i = 0; i < held->len; i++) {
      const StateRange *r = &g_array_index(held, StateRange, i);
      if (r->parameter != parameter || element < r->first || element >= r->first + r->elements)
        continue;
      ck_assert_int_eq(found, -1);
      found = rank;
    }
  }
  return found;
}

/* How often each element arrives at each rank, counted one by one. */
static void
check_map(const StateLayout *source, const StateLayout *target)
{
  for (int rank = 0; rank < target->ranks; rank++) {
    int arrived[PARAMETERS][MOST_ELEMENTS] = {{0}};
    g_autoptr(GArray) reads = range_map(source, target, rank);
    for (guint i = 0; i < reads->len; i++) {
      const StateRead *read = &g_array_index(reads, StateRead, i);
      for (gint64 e = 0; e < read->range.elements; e++) {
        gint64 element = read->range.first + e;
        ck_assert_int_eq(holder(source, read->range.parameter, element), read->source);
        arrived[read->range.parameter][element]++;
      }
    }
    for (int p = 0; p < PARAMETERS; p++)
      for (gint64 e = 0; e < sizes[p]; e++)
        ck_assert_int_eq(arrived[p][e], holder(target, p, e) == rank);
  }
}

START_TEST(every_element_arrives_once_between_random_layouts)
{
  GRand *random = g_rand_new_with_seed(20240717);
  for (int i = 0; i < TRIES; i++) {
    g_autoptr(StateLayout) source = random_layout(random);
    g_autoptr(StateLayout) target = random_layout(random);
    g_autofree char *fault = range_map_fault(source, target, sizes, PARAMETERS);
    ck_assert_msg(fault == NULL, "%s", fault);
    if (i % 10 == 0)
      check_map(source, target);
  }
  g_rand_free(random);
}
END_TEST

/* A range that is taken away, given twice, shifted or lengthened is found, whichever it is. */
START_TEST(every_damage_is_a_fault)
{
  GRand *random = g_rand_new_with_seed(7);
  for (int i = 0; i < TRIES; i++) {
    g_autoptr(StateLayout) source = random_layout(random);
    g_autoptr(StateLayout) target = random_layout(random);
    StateLayout *damaged = g_rand_boolean(random) ? source : target;
    GArray *held;
    do
      held = g_ptr_array_index(damaged->held, (guint) g_rand_int_range(random, 0, damaged->ranks));
    while (held->len == 0);
    guint at = (guint) g_rand_int_range(random, 0, (gint32) held->len);
    StateRange *range = &g_array_index(held, StateRange, at);
    switch (i % 4) {
    case 0:
      g_array_remove_index(held, at);
      break;
    case 1:
      state_layout_add(damaged, g_rand_int_range(random, 0, damaged->ranks), *range);
      break;
    case 2:
      range->first++;
      break;
    default:
      range->elements++;
    }
    g_autofree char *fault = range_map_fault(source, target, sizes, PARAMETERS);
    ck_assert_ptr_nonnull(fault);
  }
  g_rand_free(random);
}
END_TEST

/* ---- layouts of strategies */

/* Rows of no nice number: 250 words, 3 heads of 10. */
static const char network[] =
    "{'model_type': 'llama', 'hidden_size': 30, 'intermediate_size': 77, 'num_hidden_layers': 3,"
    " 'num_attention_heads': 3, 'num_key_value_heads': 1, 'vocab_size': 250,"
    " 'implementation': 'torchtitan'}";

static const struct {
  const char *plan;
  gboolean shards;
} kinds[] = {
    {"{'strategy': 'none'}", FALSE},
    {"{'strategy': 'fsdp2', 'precision': {'compute': 'bf16'}}", TRUE},
    {"{'strategy': 'fsdp2', 'fsdp': {'blocks_per_group': 2}}", TRUE},
    {"{'strategy': 'fsdp1', 'precision': {'compute': 'bf16'}}", TRUE},
    {"{'strategy': 'fsdp1', 'fsdp': {'sharding_strategy': 'SHARD_GRAD_OP'}}", TRUE},
    {"{'strategy': 'zero1', 'precision': {'parameters': 'bf16'}}", TRUE},
    {"{'strategy': 'zero2', 'precision': {'parameters': 'bf16'},"
     " 'deepspeed': {'round_robin_gradients': true}}",
     TRUE},
    {"{'strategy': 'zero3', 'precision': {'parameters': 'bf16'}}", TRUE},
};

typedef struct {
  Scenario *scenario;
  StateLayout *layout;
} Kind;

static Kind
layout_of(guint kind, int ranks)
{
  g_autofree char *mesh = g_strdup_printf("mesh.shard=%d", kinds[kind].shards ? ranks : 1);
  const char *const set[] = {mesh, "batch.sequence_length=16", NULL};
  g_autoptr(GError) error = NULL;
  Kind k = {simulation_read(&(Simulation){network, kinds[kind].plan, set, 0}, &error), NULL};
  ck_assert_msg(k.scenario != NULL, "%s", error ? error->message : "");
  LowerInput input = {.network = k.scenario->network,
                      .plan = k.scenario->plan,
                      .device = k.scenario->cluster->device,
                      .strategy = k.scenario->strategy,
                      .steps = 1};
  k.layout = lower_state_layout(&input, &error);
  ck_assert_msg(k.layout != NULL, "%s", error ? error->message : "");
  return k;
}

static void
kind_free(Kind k)
{
  state_layout_free(k.layout);
  scenario_free(k.scenario);
}

START_TEST(a_state_moves_between_any_two_strategies)
{
  static const int counts[] = {1, 2, 3, 7, 16, 64};
  GRand *random = g_rand_new_with_seed((guint32) _i + 1);
  for (guint to = 0; to < G_N_ELEMENTS(kinds); to++) {
    Kind a = layout_of((guint) _i, counts[g_rand_int_range(random, 0, G_N_ELEMENTS(counts))]);
    Kind b = layout_of(to, counts[g_rand_int_range(random, 0, G_N_ELEMENTS(counts))]);
    const Network *n = a.scenario->network;
    g_autofree gint64 *elements = g_new(gint64, n->parameters->len);
    gint64 sum = 0, held = 0;
    for (guint i = 0; i < n->parameters->len; i++)
      sum += elements[i] = network_parameter(n, (int) i)->elements;
    g_autofree char *fault = range_map_fault(a.layout, b.layout, elements, n->parameters->len);
    ck_assert_msg(fault == NULL, "%s", fault);
    for (int rank = 0; rank < b.layout->ranks; rank++)
      held += state_layout_elements(b.layout, rank);
    ck_assert_int_eq(held, sum);
    kind_free(a);
    kind_free(b);
  }
  g_rand_free(random);
}
END_TEST

/* torch.chunk: 250 rows on 16 ranks are 15 of 16 rows and one of 10; on 64, 62 of 4, one of 2 and
 * one that has none. */
START_TEST(fsdp2_holds_rows_as_torch_chunk_cuts_them)
{
  static const struct {
    int ranks, rank;
    gint64 first, rows;
  } cases[] = {{16, 0, 0, 16}, {16, 15, 240, 10}, {64, 61, 244, 4}, {64, 62, 248, 2}};
  for (guint i = 0; i < G_N_ELEMENTS(cases); i++) {
    Kind k = layout_of(1, cases[i].ranks);
    const GArray *held = g_ptr_array_index(k.layout->held, (guint) cases[i].rank);
    const StateRange *embedding = &g_array_index(held, StateRange, 0);
    ck_assert_int_eq(embedding->parameter, 0);
    ck_assert_int_eq(embedding->first, cases[i].first * 30);
    ck_assert_int_eq(embedding->elements, cases[i].rows * 30);
    kind_free(k);
  }
  Kind k = layout_of(1, 64);
  ck_assert_int_eq(state_layout_elements(k.layout, 63), 0); /* of 30 and 77 rows neither */
  kind_free(k);
}
END_TEST

/* partition_parameters.py: ceil(7500 / 16) = 469 elements of the embedding, whatever its rows are.
 */
START_TEST(zero3_holds_elements_whatever_the_rows)
{
  Kind k = layout_of(7, 16);
  const GArray *held = g_ptr_array_index(k.layout->held, 1);
  const StateRange *embedding = &g_array_index(held, StateRange, 0);
  ck_assert_int_eq(embedding->first, 469);
  ck_assert_int_eq(embedding->elements, 469);
  kind_free(k);
}
END_TEST

Suite *
test_suite(void)
{
  Suite *suite = suite_create("range map");
  TCase *maps = tcase_create("maps");
  tcase_add_test(maps, every_element_arrives_once_between_random_layouts);
  tcase_add_test(maps, every_damage_is_a_fault);
  suite_add_tcase(suite, maps);
  TCase *layouts = tcase_create("layouts");
  tcase_add_loop_test(layouts, a_state_moves_between_any_two_strategies, 0, G_N_ELEMENTS(kinds));
  tcase_add_test(layouts, fsdp2_holds_rows_as_torch_chunk_cuts_them);
  tcase_add_test(layouts, zero3_holds_elements_whatever_the_rows);
  suite_add_tcase(suite, layouts);
  return suite;
}
