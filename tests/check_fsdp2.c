/* check_fsdp2.c - FSDP2's less usual options: an all-reduce every n micro-batches.
 *
 * Expectations are worked out by hand from PyTorch's code (the file is named where it matters). */
#include "base/units.h"
#include "simulation.h"
#include "tap_main.h"
#include <string.h>

#define STEPS 3

/* Five linear layers of 60 x 60 without biases: five parameters of 3600 elements, each a group; the
 * root has none. */
static const char five[] =
    "{'family': 'blocks', 'hidden': 60, 'embedding': false, 'head': false, 'loss': 'sum',"
    " 'blocks': [{'repeat': 5, 'ops': [{'op': 'linear', 'out': 60}]}]}";
enum { FIVE = 5, WIDTH = 3600, RANKS = 4, SHARD = WIDTH / RANKS };

static const char plan[] = "{'strategy': 'fsdp2', 'mesh': {'shard': 4, 'replicate': 2},"
                           " 'batch': {'micro_batch': 1, 'sequence_length': 8},"
                           " 'precision': {'compute': 'bf16', 'reduce': 'fp32'},"
                           " 'optimizer': {'implementation': 'fused'},"
                           " 'fsdp': {'reshard_after_forward': true}}";

static Simulated *
lower_options(const char *network, const char *options)
{
  g_auto(GStrv) set = g_strsplit(options, " ", -1);
  return simulation_lower(
      &(Simulation){network, plan, set[0] ? (const char *const *) set : NULL, 0}, STEPS);
}

/* ---- all-reduces every n micro-batches */

enum { MICRO_BATCHES = 5 };

/* Collectives of a kind that backward of each micro-batch issues, and the bytes called "reduce-
 * scatter output" that it leaves alive, in the second step. */
typedef struct {
  int count[MICRO_BATCHES];
  gint64 left[MICRO_BATCHES];
} Backwards;

static gint64
change_of(const Program *program, const ProgramOp *op, Category category)
{
  if (op->kind != PROGRAM_ALLOC && op->kind != PROGRAM_FREE)
    return 0;
  const Storage *storage = &g_array_index(program->storages, Storage, op->a);
  if (storage->category != category)
    return 0;
  return op->kind == PROGRAM_ALLOC ? storage->bytes : -storage->bytes;
}

static Backwards
backwards_of(const Simulated *s, CollectiveKind kind, Category category)
{
  const Program *program = s->lowered->program;
  const GArray *ops = program_step(program, 1)->ops;
  Backwards all = {0};
  gint64 alive = simulated_bytes_alive(s, 1, category);
  int depth = 0, inside = -1, micro_batch = -1;
  for (guint i = 0; i < ops->len; i++) {
    const ProgramOp *op = &g_array_index(ops, ProgramOp, i);
    alive += change_of(program, op, category);
    depth += (op->kind == PROGRAM_RANGE_PUSH) - (op->kind == PROGRAM_RANGE_POP);
    if (op->kind == PROGRAM_RANGE_PUSH && op->b == RANGE_PHASE &&
        strcmp(program_text(program, op->a), "backward") == 0) {
      inside = depth;
      micro_batch = op->c;
    }
    if (op->kind == PROGRAM_RANGE_POP && depth < inside) {
      all.left[micro_batch] = alive;
      inside = -1;
    }
    if (op->kind == PROGRAM_COLLECTIVE && inside >= 0)
      all.count[micro_batch] += g_array_index(program->collectives, Collective, op->a).kind == kind;
  }
  return all;
}

/* Every micro-batch reduces over the shards; the second, the fourth and, as the last, the fifth sum
 * over the replicas too. */
START_TEST(replicas_are_summed_every_n_micro_batches_and_at_the_end)
{
  static const int summed[MICRO_BATCHES] = {0, FIVE, 0, FIVE, FIVE};
  g_autoptr(Simulated) s =
      lower_options(five, "accumulation.steps=5 accumulation.all_reduce_every=2");
  Backwards sums = backwards_of(s, COLLECTIVE_ALL_REDUCE, CATEGORY_REDUCE_SCATTER_BUFFER);
  Backwards scatters = backwards_of(s, COLLECTIVE_REDUCE_SCATTER, CATEGORY_REDUCE_SCATTER_BUFFER);
  for (int i = 0; i < MICRO_BATCHES; i++) {
    ck_assert_int_eq(sums.count[i], summed[i]);
    ck_assert_int_eq(scatters.count[i], FIVE);
  }
}
END_TEST

/* foreach_reduce keeps partial_reduce_output, of each group in the reduce dtype, until the next
 * all-reduce takes it in: fp32 shards of all parameters between micro-batches. */
START_TEST(shards_that_are_not_summed_yet_are_kept)
{
  static const gboolean kept[MICRO_BATCHES] = {TRUE, FALSE, TRUE, FALSE, FALSE};
  g_autoptr(Simulated) s =
      lower_options(five, "accumulation.steps=5 accumulation.all_reduce_every=2");
  Backwards all = backwards_of(s, COLLECTIVE_ALL_REDUCE, CATEGORY_REDUCE_SCATTER_BUFFER);
  for (int i = 0; i < MICRO_BATCHES; i++)
    ck_assert_int_eq(all.left[i], kept[i] ? FIVE * SHARD * 4 : 0);
}
END_TEST

/* Sharded gradients do not exist before the first all-reduce; with one at the end they are made in
 * the last micro-batch. */
START_TEST(gradients_wait_for_the_first_sum)
{
  g_autoptr(Simulated) s = lower_options(
      five, "accumulation.steps=5 accumulation.all_reduce_every=1024 optimizer.zero_grad=end");
  Backwards all = backwards_of(s, COLLECTIVE_ALL_REDUCE, CATEGORY_SHARDED_GRADIENT);
  for (int i = 0; i < MICRO_BATCHES; i++)
    ck_assert_int_eq(all.left[i], i == MICRO_BATCHES - 1 ? FIVE * SHARD * 4 : 0);
}
END_TEST

/* What is only synchronized at the end has nothing to keep. */
START_TEST(without_synchronization_it_changes_nothing)
{
  g_autoptr(Simulated) a =
      lower_options(five, "accumulation.steps=3 accumulation.sync_every_step=false");
  g_autoptr(Simulated) b = lower_options(
      five,
      "accumulation.steps=3 accumulation.sync_every_step=false accumulation.all_reduce_every=2");
  g_autoptr(GString) first = g_string_new(NULL), second = g_string_new(NULL);
  program_print(a->lowered->program, first);
  program_print(b->lowered->program, second);
  ck_assert_str_eq(first->str, second->str);
}
END_TEST

/* ---- refusals */

static const struct {
  const char *set, *key;
} refused[] = {
    {"mesh.replicate=1 accumulation.all_reduce_every=2", "accumulation.all_reduce_every"},
    {"accumulation.all_reduce_every=0", "accumulation.all_reduce_every"},
    {"strategy=fsdp1 mesh.replicate=1 fsdp.reshard_after_forward=null"
     " accumulation.all_reduce_every=2",
     "accumulation.all_reduce_every"},
};

START_TEST(what_fsdp2_cannot_honour_is_refused_with_its_key)
{
  g_auto(GStrv) set = g_strsplit(refused[_i].set, " ", -1);
  g_autoptr(GError) error = NULL;
  g_autoptr(Simulated) s =
      simulation_try(&(Simulation){five, plan, (const char *const *) set, 0}, STEPS, &error);
  ck_assert_ptr_null(s);
  ck_assert_msg(strstr(error->message, refused[_i].key) != NULL, "%s", error->message);
}
END_TEST

Suite *
test_suite(void)
{
  Suite *suite = suite_create("fsdp2");
  TCase *tests = tcase_create("fsdp2");
  tcase_add_test(tests, replicas_are_summed_every_n_micro_batches_and_at_the_end);
  tcase_add_test(tests, shards_that_are_not_summed_yet_are_kept);
  tcase_add_test(tests, gradients_wait_for_the_first_sum);
  tcase_add_test(tests, without_synchronization_it_changes_nothing);
  tcase_add_loop_test(tests, what_fsdp2_cannot_honour_is_refused_with_its_key, 0,
                      G_N_ELEMENTS(refused));
  suite_add_tcase(suite, tests);
  return suite;
}
