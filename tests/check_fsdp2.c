/* check_fsdp2.c - FSDP2's less usual options: an all-reduce every n micro-batches, groups by lists
 * of modules (which FSDP1 has too).
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
  return simulation_lower_options(network, plan, options, 0, STEPS);
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

/* ---- groups by lists */

static char *
program_text_of(const Simulated *s)
{
  GString *text = g_string_new(NULL);
  program_print(s->lowered->program, text);
  return g_string_free(text, FALSE);
}

/* The same groups said in two ways. */
static const struct {
  const char *usual, *listed;
} same_groups[] = {
    {"fsdp.blocks_per_group=1", "fsdp.groups=[\"layers.*\"]"},
    {"fsdp.blocks_per_group=2", "fsdp.groups=[[\"layers.0\",\"layers.1\"],[\"layers.2\","
                                "\"layers.3\"],[\"layers.4\"]]"},
    {"fsdp.blocks_per_group=5", "fsdp.groups=[[\"layers.?\"]]"},
    {"strategy=fsdp1 mesh.replicate=1 fsdp.reshard_after_forward=null",
     "strategy=fsdp1 mesh.replicate=1 fsdp.reshard_after_forward=null"
     " fsdp.groups=[\"layers.*\"]"},
};

START_TEST(listed_groups_are_those_of_the_usual_options)
{
  g_autoptr(Simulated) usual = lower_options(five, same_groups[_i].usual);
  g_autoptr(Simulated) listed = lower_options(five, same_groups[_i].listed);
  g_autofree char *a = program_text_of(usual), *b = program_text_of(listed);
  ck_assert_str_eq(a, b);
}
END_TEST

typedef struct {
  const char *name;
  gint64 elements;
} ExpectedUnit;

static void
assert_units(const char *network, const char *options, const ExpectedUnit *expected, guint n)
{
  g_autoptr(Simulated) s = lower_options(network, options);
  ck_assert_uint_eq(s->lowered->units->len, n);
  for (guint i = 0; i < n; i++) {
    const Unit *unit = g_ptr_array_index(s->lowered->units, i);
    ck_assert_str_eq(unit->name, expected[i].name);
    ck_assert_int_eq(unit->elements, expected[i].elements);
  }
}

/* An inner call comes first and takes its parameters; the outer one has the rest of its module.
 * Units are in the order of their modules. */
START_TEST(an_outer_group_has_what_inner_ones_left)
{
  static const char two[] =
      "{'family': 'blocks', 'hidden': 8, 'embedding': false, 'head': false, 'loss': 'sum',"
      " 'blocks': [{'repeat': 2, 'ops': [{'op': 'linear', 'name': 'up', 'out': 10},"
      " {'op': 'linear', 'name': 'down', 'out': 8}, {'op': 'rms_norm'}]}]}";
  static const ExpectedUnit expected[] = {
      {"root", 8}, {"layers.0", 80 + 8}, {"layers.0.up", 80}, {"layers.1.down", 160}};
  assert_units(two,
               "fsdp.groups=[[\"layers.1.down\",\"layers.1.up\"],\"layers.0.up\",\"layers.0\"]",
               expected, G_N_ELEMENTS(expected));
}
END_TEST

/* Kinds and sizes of collectives of a step, in order. */
static GString *
collectives_of(const Simulated *s)
{
  GString *text = g_string_new(NULL);
  guint at = 0;
  const Collective *c;
  while ((c = simulated_next_collective(s, 1, &at)) != NULL)
    g_string_append_printf(text, "%d %" G_GINT64_FORMAT "\n", c->kind, c->bytes);
  return text;
}

/* "The pre-hook runs upon the first module pre-forward, and the post-hook runs upon the last"
 * (_register_group_forward_hooks): the order of calls counts, not that of the list. */
START_TEST(a_group_is_gathered_for_the_module_that_is_called_first)
{
  g_autoptr(Simulated) a = lower_options(five, "fsdp.groups=[[\"layers.1\",\"layers.3\"]]");
  g_autoptr(Simulated) b = lower_options(five, "fsdp.groups=[[\"layers.3\",\"layers.1\"]]");
  g_autoptr(GString) first = collectives_of(a), second = collectives_of(b);
  ck_assert_str_eq(first->str, second->str);
}
END_TEST

/* The state of a group inside of a checkpoint's region is not in backward when the region runs
 * again: it begins a forward of its own, whose parameters stay until its backward, which therefore
 * gathers nothing (_fsdp_state.py, _pre_forward; is_bw() in post_forward). */
START_TEST(a_group_inside_of_a_checkpoint_is_unsharded_in_the_recomputation)
{
  static const char two[] =
      "{'family': 'blocks', 'hidden': 8, 'embedding': false, 'head': false, 'loss': 'sum',"
      " 'blocks': [{'repeat': 2, 'ops': [{'op': 'linear', 'name': 'up', 'out': 10},"
      " {'op': 'linear', 'name': 'down', 'out': 8}, {'op': 'rms_norm'}]}]}";
  g_autoptr(Simulated) s = lower_options(two, "fsdp.groups=[\"layers.*.up\",\"layers.*\"]"
                                              " activation_checkpointing.policy=full");
  const Program *program = s->lowered->program;
  const GArray *ops = program_step(program, 1)->ops;
  int depth = 0, recompute = 0, unsharded = 0, inside = 0;
  for (guint i = 0; i < ops->len; i++) {
    const ProgramOp *op = &g_array_index(ops, ProgramOp, i);
    depth += (op->kind == PROGRAM_RANGE_PUSH) - (op->kind == PROGRAM_RANGE_POP);
    if (op->kind == PROGRAM_RANGE_PUSH && op->b == RANGE_HOOK &&
        strcmp(program_text(program, op->a), "recompute") == 0)
      recompute = depth;
    if (op->kind == PROGRAM_RANGE_POP && depth < recompute)
      recompute = 0;
    if (op->kind != PROGRAM_ALLOC)
      continue;
    const Storage *storage = &g_array_index(program->storages, Storage, op->a);
    gboolean is_inner = storage->category == CATEGORY_UNSHARDED_PARAMETER &&
                        strcmp(program_text(program, storage->what), "layers.0.up.weight") == 0;
    unsharded += is_inner;
    inside += is_inner && recompute > 0;
  }
  ck_assert_int_eq(unsharded, 2);
  ck_assert_int_eq(inside, 1);
}
END_TEST

/* ---- refusals */

static const struct {
  const char *set, *says;
} refused[] = {
    {"mesh.replicate=1 accumulation.all_reduce_every=2", "accumulation.all_reduce_every"},
    {"accumulation.all_reduce_every=0", "accumulation.all_reduce_every"},
    {"optimizer.name=sgd", "fused SGD has no sharding strategy"},
    {"strategy=fsdp1 mesh.replicate=1 fsdp.reshard_after_forward=null"
     " accumulation.all_reduce_every=2",
     "accumulation.all_reduce_every"},
    {"fsdp.groups=[[\"layer.0\"]]", "no module matches 'layer.0'; did you mean 'layers.0'?"},
    {"fsdp.groups=[\"layers.*.*.*\"]", "no module matches 'layers.*.*.*'"},
    {"fsdp.groups=[\"layers\"]", "'layers' is never called"},
    {"fsdp.groups=[\"\"]", "the model itself is a group without being listed"},
    {"fsdp.groups=[[\"layers.0\",\"layers.?\"]]", "'layers.0' is in one list twice"},
    {"fsdp.groups=[[\"layers.0\"],\"layers.?\"]", "'layers.0' is in two groups"},
    {"fsdp.groups=[\"layers.0\",\"layers.0.linear\"]",
     "'layers.0.linear' is in two groups, or inside of one that is listed before it"},
    {"fsdp.groups=[\"layers.0.linear\",\"layers.0\"]",
     "no parameters are left for the group 'layers.0'"},
    {"strategy=fsdp1 mesh.replicate=1 fsdp.reshard_after_forward=null"
     " fsdp.groups=[\"layers.0.linear\"] activation_checkpointing.policy=full",
     "inside of a checkpointed block: not yet supported with fsdp1"},
    {"fsdp.groups=[\"layers.0.linear\"] compile=per_block",
     "inside of a compiled block: not yet supported"},
    {"fsdp.groups=[\"layers.0\"] fsdp.blocks_per_group=2", "fsdp.blocks_per_group"},
    {"precision.compute=null precision.reduce=null optimizer.implementation=forloop"
     " fsdp.ignored=[\"layers.0.*\"] phases.initialize.from=full phases.initialize.on=cpu",
     "fully_shard does not move ignored parameters"},
    {"fsdp.groups=[\"layers.0\"] fsdp.reshard_last_block=false", "fsdp.reshard_last_block"},
    {"fsdp.groups=[]", "must be a list of names and of lists of names"},
    {"fsdp.groups=[[]]", "must be a list of names and of lists of names"},
    {"fsdp.groups=[[1]]", "must be a list of names and of lists of names"},
    {"strategy=fsdp1 mesh.replicate=1 fsdp.reshard_after_forward=null fsdp.groups=[[\"layers.0\"]]",
     "fsdp1 wraps single modules"},
};

/* Embedding and output layer of one weight are one parameter only if one call sees both. */
START_TEST(a_tied_weight_is_in_one_group_or_refused)
{
  static const char tied[] = "{'model_type': 'llama', 'hidden_size': 64, 'intermediate_size': 160,"
                             " 'num_hidden_layers': 2, 'num_attention_heads': 4, 'vocab_size': 250,"
                             " 'tie_word_embeddings': true, 'implementation': 'torchtitan'}";
  static const char *const split[] = {"fsdp.groups=[\"tok_embeddings\"]", NULL};
  g_autoptr(GError) error = NULL;
  g_autoptr(Simulated) s = simulation_try(&(Simulation){tied, plan, split, 0}, STEPS, &error);
  ck_assert_ptr_null(s);
  ck_assert(test_error_says(error, "'tok_embeddings' and 'output' share a weight"));
  static const ExpectedUnit expected[] = {{"root", 2 * (4 * 4096 + 3 * 64 * 160 + 2 * 64) + 64},
                                          {"output", 250 * 64}};
  assert_units(tied, "fsdp.groups=[[\"output\",\"tok_embeddings\"]]", expected,
               G_N_ELEMENTS(expected));
}
END_TEST

START_TEST(what_fsdp_cannot_honour_is_refused_by_name)
{
  g_autofree char *message = simulation_refusal(five, plan, refused[_i].set);
  ck_assert_msg(strstr(message, refused[_i].says) != NULL, "%s", message);
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
  tcase_add_loop_test(tests, listed_groups_are_those_of_the_usual_options, 0,
                      G_N_ELEMENTS(same_groups));
  tcase_add_test(tests, an_outer_group_has_what_inner_ones_left);
  tcase_add_test(tests, a_group_is_gathered_for_the_module_that_is_called_first);
  tcase_add_test(tests, a_group_inside_of_a_checkpoint_is_unsharded_in_the_recomputation);
  tcase_add_test(tests, a_tied_weight_is_in_one_group_or_refused);
  tcase_add_loop_test(tests, what_fsdp_cannot_honour_is_refused_by_name, 0, G_N_ELEMENTS(refused));
  suite_add_tcase(suite, tests);
  return suite;
}
