/* check_trainable.c - parameters that do not train, and adapters that do: which names a list of
 * patterns chooses, what autograd saves and computes then, what is reduced and optimized.
 *
 * Expectations are worked out by hand from PyTorch's rules (an op saves what the gradients that
 * somebody wants need).  Whole runs are compared with recorded ones where the reference data is
 * there. */
#include "base/units.h"
#include "recorded_run.h"
#include "simulation.h"
#include "tap_main.h"
#include <string.h>

#define STEPS 3

/* ---- patterns */

/* Patterns with spaces between, a name, whether it is chosen. */
static const struct {
  const char *patterns, *name;
  gboolean chosen;
} choices[] = {
    {"*", "layers.0.wq.weight", TRUE},
    {"layers.*", "layers.0.wq.weight", TRUE},
    {"layers.*", "model.layers.0.wq.weight", FALSE},
    {"*.wq.*", "layers.0.wq.weight", TRUE},
    {"*.wq", "layers.0.wq.weight", FALSE},
    {"layers.?.*", "layers.7.wq.weight", TRUE},
    {"layers.?.*", "layers.17.wq.weight", FALSE},
    {"layers.[1-3].*", "layers.2.wq.weight", TRUE},
    {"layers.[1-3].*", "layers.4.wq.weight", FALSE},
    {"layers.[!1-3].*", "layers.4.wq.weight", TRUE},
    {"*w[qv].*", "layers.0.wk.weight", FALSE},
    {"a[b", "a[b", TRUE},
    {"*weight*t", "weight.weight.t", TRUE},
    {"norm.weight", "norm.weight", TRUE},
    {"norm.weigh", "norm.weight", FALSE},
    /* the last one that matches decides */
    {"* !*.bias", "norm.bias", FALSE},
    {"* !*.bias", "norm.weight", TRUE},
    {"* !*.bias norm.*", "norm.bias", TRUE},
    /* a list of exclusions leaves the rest in */
    {"!embed.*", "embed.weight", FALSE},
    {"!embed.*", "norm.weight", TRUE},
    {"!embed.* norm.*", "head.weight", TRUE},
    {"norm.* !norm.bias", "head.weight", FALSE},
};

START_TEST(the_last_pattern_that_matches_a_name_decides)
{
  g_auto(GStrv) words = g_strsplit(choices[_i].patterns, " ", -1);
  g_autoptr(GPtrArray) list = g_ptr_array_new();
  for (char **word = words; *word != NULL; word++)
    g_ptr_array_add(list, *word);
  const NamePatterns patterns = {list};
  ck_assert_msg(name_patterns_choose(&patterns, choices[_i].name) == choices[_i].chosen, "%s: %s",
                choices[_i].patterns, choices[_i].name);
}
END_TEST

/* ---- five linear layers */

/* Five linear layers of 60 x 60 without biases; the input requires no gradient. */
static const char five[] =
    "{'family': 'blocks', 'hidden': 60, 'embedding': false, 'head': false, 'loss': 'sum',"
    " 'blocks': [{'repeat': 5, 'ops': [{'op': 'linear', 'out': 60}]}]}";
enum { WIDTH = 3600, TOKENS = 8 };

static const char plan[] = "{'strategy': 'none', 'optimizer': {'implementation': 'fused'},"
                           " 'batch': {'micro_batch': 1, 'sequence_length': 8}}";

static Simulated *
lower_options(const char *network, const char *options)
{
  return simulation_lower_options(network, plan, options, 0, STEPS);
}

/* Tensors of a category that a step allocates, and their bytes. */
static int
allocated(const Simulated *s, int step, Category category, gint64 *bytes)
{
  const GArray *ops = simulated_ops(s, step);
  int count = 0;
  *bytes = 0;
  for (guint i = 0; i < ops->len; i++) {
    const ProgramOp *op = &g_array_index(ops, ProgramOp, i);
    if (op->kind != PROGRAM_ALLOC)
      continue;
    const Storage *storage = &g_array_index(s->lowered->program->storages, Storage, op->a);
    if (storage->category != category)
      continue;
    count++;
    *bytes += storage->bytes;
  }
  return count;
}

/* Kernels of that name in a step. */
static int
launched(const Simulated *s, int step, const char *name)
{
  const Program *program = s->lowered->program;
  const GArray *ops = simulated_ops(s, step);
  int count = 0;
  for (guint i = 0; i < ops->len; i++) {
    const ProgramOp *op = &g_array_index(ops, ProgramOp, i);
    if (op->kind == PROGRAM_LAUNCH)
      count += strcmp(program_text(program, g_array_index(program->kernels, Kernel, op->a).name),
                      name) == 0;
  }
  return count;
}

/* Which layers train; kept activations: inputs of trained layers that are no inputs of the model;
 * products of a step: five forward, in backward one for each weight that trains and one for each
 * input below which something trains. */
static const struct {
  const char *trainable;
  int activations, products, trained;
} linears[] = {
    {"trainable=null", 4, 5 + 5 + 4, 5},
    {"trainable=[\"layers.0.*\"]", 0, 5 + 1 + 4, 1},
    {"trainable=[\"layers.2.*\"]", 1, 5 + 1 + 2, 1},
    {"trainable=[\"layers.4.*\"]", 1, 5 + 1 + 0, 1},
    {"trainable=[\"!layers.[13].*\"]", 2, 5 + 3 + 4, 3},
};

START_TEST(a_layer_keeps_its_input_for_its_weight_and_its_weight_for_its_input)
{
  g_autoptr(Simulated) s = lower_options(five, linears[_i].trainable);
  gint64 bytes;
  ck_assert_int_eq(allocated(s, 1, CATEGORY_ACTIVATION, &bytes), linears[_i].activations);
  ck_assert_int_eq(bytes, linears[_i].activations * TOKENS * 60 * 4);
  ck_assert_int_eq(launched(s, 1, "mm"), linears[_i].products);
  ck_assert_int_eq(allocated(s, 1, CATEGORY_UNSHARDED_GRADIENT, &bytes), linears[_i].trained);
}
END_TEST

START_TEST(the_optimizer_has_states_of_what_trains)
{
  g_autoptr(Simulated) s = lower_options(five, linears[_i].trainable);
  gint64 trained = linears[_i].trained;
  ck_assert_int_eq(simulated_bytes_alive(s, STEPS, CATEGORY_OPTIMIZER_STATE),
                   trained * (8 * WIDTH + 4)); /* two moments, and a step counter */
  ck_assert_int_eq(simulated_bytes_alive(s, STEPS, CATEGORY_PARAMETER), 5 * 4 * WIDTH);
  ck_assert_int_eq(network_trainable_count(s->scenario->network), trained * WIDTH);
}
END_TEST

/* A frozen block needs no recomputation: nothing in it was saved. */
START_TEST(checkpointing_runs_again_what_backward_comes_to)
{
  const char *options = "activation_checkpointing.policy=full trainable=[\"layers.3.*\"]";
  g_autoptr(Simulated) s = lower_options(five, options);
  /* forward; of the fourth layer its weight's gradient, of the fifth its input's.  Both are run
   * again, which stops at the only product, before it */
  ck_assert_int_eq(launched(s, 1, "mm"), 5 + 1 + 1);
}
END_TEST

/* ---- groups */

/* Blocks of two linear layers, 60 x 90 and 90 x 60. */
static const char pairs[] =
    "{'family': 'blocks', 'hidden': 60, 'embedding': false, 'head': false, 'loss': 'sum',"
    " 'blocks': [{'repeat': 2, 'ops': [{'op': 'linear', 'name': 'up', 'out': 90},"
    " {'op': 'linear', 'name': 'down', 'out': 60}]}]}";
enum { MATRIX = 60 * 90 };

START_TEST(fsdp2_reduces_what_trains_of_a_group)
{
  g_autoptr(Simulated) s = lower_options(
      pairs, "strategy=fsdp2 mesh.shard=3 trainable=[\"layers.0.up.*\",\"layers.1.*\"]");
  CollectiveTotal reduced = simulated_collectives(s, 1, COLLECTIVE_REDUCE_SCATTER);
  CollectiveTotal gathered = simulated_collectives(s, 1, COLLECTIVE_ALL_GATHER);
  ck_assert_int_eq(reduced.count, 2);
  ck_assert_int_eq(reduced.elements, 3 * MATRIX);
  ck_assert_int_eq(gathered.elements, 2 * 4 * MATRIX);
  ck_assert_int_eq(simulated_bytes_alive(s, STEPS, CATEGORY_SHARDED_GRADIENT), 4 * MATRIX);
}
END_TEST

/* A third of three matrices on each rank, and the ignored one whole, whose gradient goes nowhere.
 * Adapters that are ignored make a list of whole tensors, which anything may clip. */
START_TEST(fsdp2_leaves_ignored_parameters_alone)
{
  g_autoptr(Simulated) s =
      lower_options(pairs, "strategy=fsdp2 mesh.shard=3 fsdp.ignored=[\"layers.1.up.*\"] "
                           "optimizer.implementation=forloop");
  ck_assert_int_eq(simulated_bytes_alive(s, STEPS, CATEGORY_PARAMETER), 4 * 2 * MATRIX);
  ck_assert_int_eq(simulated_collectives(s, 1, COLLECTIVE_REDUCE_SCATTER).elements, 3 * MATRIX);
  ck_assert_int_eq(simulated_bytes_alive(s, STEPS, CATEGORY_OPTIMIZER_STATE), 2 * 4 * 2 * MATRIX);
  static const char adapters[] = "strategy=fsdp2 mesh.shard=4 fsdp.ignored=[\"*lora*\"] "
                                 "lora={\"rank\":4,\"targets\":[\"down\"]} "
                                 "optimizer.clip_grad_norm=1.0";
  g_autoptr(Simulated) t = lower_options(pairs, adapters);
  ck_assert_int_eq(simulated_collectives(t, 1, COLLECTIVE_REDUCE_SCATTER).count, 0);
  ck_assert_int_eq(simulated_collectives(t, 1, COLLECTIVE_ALL_REDUCE).count, 0);
}
END_TEST

static const struct {
  const char *set, *text;
} mixtures[] = {
    {"optimizer.implementation=fused", "key 'optimizer.implementation': only forloop"},
    {"optimizer.implementation=forloop optimizer.clip_grad_norm=1.0",
     "key 'optimizer.clip_grad_norm': PyTorch cannot clip"},
    {"precision.compute=bf16", "key 'fsdp.ignored': ignored parameters keep their dtype fp32"},
    {"fsdp.ignored=[\"layer.*\"]", "'layer.*' matches no parameter"},
    {"fsdp.ignored=[[\"layers.*\"]]", "must be a list of patterns, not of lists"},
    {"strategy=fsdp1", "key 'fsdp.ignored': not yet supported under fsdp1"},
};

START_TEST(whole_tensors_beside_sharded_ones_are_refused_as_pytorch_does)
{
  g_autofree char *options =
      g_strconcat("strategy=fsdp2 mesh.shard=4 fsdp.ignored=[\"*.up.*\"] ", mixtures[_i].set, NULL);
  g_auto(GStrv) set = g_strsplit(options, " ", -1);
  g_autoptr(GError) error = NULL;
  g_autoptr(Simulated) s =
      simulation_try(&(Simulation){pairs, plan, (const char *const *) set, 0}, STEPS, &error);
  ck_assert_ptr_null(s);
  ck_assert(test_error_says(error, mixtures[_i].text));
}
END_TEST

/* The flat parameter has one gradient; .grad is set for what trains alone. */
START_TEST(fsdp1_reduces_all_of_a_group_in_which_something_trains)
{
  g_autoptr(Simulated) s = lower_options(
      pairs, "strategy=fsdp1 mesh.shard=3 trainable=[\"layers.1.up.*\"] optimizer.name=sgd");
  CollectiveTotal reduced = simulated_collectives(s, 1, COLLECTIVE_REDUCE_SCATTER);
  ck_assert_int_eq(reduced.count, 1);
  ck_assert_int_eq(reduced.elements, 2 * MATRIX);
  /* momentum of the first rank's third of both: all of it is of the first matrix */
  ck_assert_int_eq(simulated_bytes_alive(s, STEPS, CATEGORY_OPTIMIZER_STATE), 4 * 2 * MATRIX / 3);
}
END_TEST

/* Without use_orig_params the optimizer has the flat parameter, whose last share is padded: 10800
 * elements over 7 ranks are 1543 each; FSDP1 raises where only some of it trains. */
START_TEST(fsdp1_without_original_parameters_optimizes_flat_ones)
{
  g_autoptr(Simulated) s = lower_options(
      pairs, "strategy=fsdp1 mesh.shard=7 fsdp.use_orig_params=false trainable=[\"layers.1.*\"]");
  ck_assert_int_eq(simulated_bytes_alive(s, STEPS, CATEGORY_OPTIMIZER_STATE), 8 * 1543 + 4);
  ck_assert_int_eq(simulated_bytes_alive(s, STEPS, CATEGORY_PARAMETER), 2 * 4 * 1543);
  ck_assert_int_eq(simulated_collectives(s, 1, COLLECTIVE_REDUCE_SCATTER).elements, 7 * 1543);
  static const char *const mixed[] = {"strategy=fsdp1", "mesh.shard=7",
                                      "fsdp.use_orig_params=false", "trainable=[\"*.down.*\"]",
                                      NULL};
  g_autoptr(GError) error = NULL;
  g_autoptr(Simulated) refused =
      simulation_try(&(Simulation){pairs, plan, mixed, 0}, STEPS, &error);
  ck_assert_ptr_null(refused);
  ck_assert(test_error_says(error, "key 'fsdp.use_orig_params': false, but 'layers.0.up.weight'"));
}
END_TEST

START_TEST(ddp_has_buckets_for_what_trains)
{
  g_autoptr(Simulated) s =
      lower_options(pairs, "strategy=ddp mesh.replicate=2 trainable=[\"*.down.*\"]");
  ck_assert_int_eq(simulated_collectives(s, 1, COLLECTIVE_ALL_REDUCE).elements, 2 * MATRIX);
  ck_assert_int_eq(simulated_bytes_alive(s, STEPS, CATEGORY_REDUCE_SCATTER_BUFFER), 2 * 4 * MATRIX);
}
END_TEST

/* CheckpointFunction's output requires a gradient only if an input does. */
START_TEST(a_reentrant_checkpoint_without_a_gradient_to_its_input_is_refused)
{
  static const char *const set[] = {"strategy=fsdp1",
                                    "mesh.shard=2",
                                    "activation_checkpointing.policy=full",
                                    "activation_checkpointing.around=fsdp",
                                    "trainable=[\"layers.1.*\"]",
                                    NULL};
  g_autoptr(GError) error = NULL;
  g_autoptr(Simulated) s = simulation_try(&(Simulation){pairs, plan, set, 0}, STEPS, &error);
  ck_assert_ptr_null(s);
  ck_assert(test_error_says(error, "the input of block 1 requires no gradient"));
}
END_TEST

/* ---- adapters */

START_TEST(adapters_have_the_names_and_shapes_of_peft)
{
  g_autoptr(Simulated) s =
      lower_options(pairs, "lora={\"rank\":4,\"targets\":[\"down\"],\"alpha\":16}");
  const Network *n = s->scenario->network;
  static const struct {
    const char *name;
    gint64 rows, columns;
    gboolean trains;
  } expected[] = {
      {"layers.0.up.weight", 90, 60, FALSE},
      {"layers.0.down.base_layer.weight", 60, 90, FALSE},
      {"layers.0.down.lora_A.default.weight", 4, 90, TRUE},
      {"layers.0.down.lora_B.default.weight", 60, 4, TRUE},
  };
  ck_assert_uint_eq(n->parameters->len, 2 * G_N_ELEMENTS(expected));
  for (guint i = 0; i < G_N_ELEMENTS(expected); i++) {
    const Parameter *p = network_parameter(n, (int) i);
    ck_assert_str_eq(p->name, expected[i].name);
    ck_assert_int_eq(p->shape[0], expected[i].rows);
    ck_assert_int_eq(p->shape[1], expected[i].columns);
    ck_assert_int_eq(p->trainable, expected[i].trains);
  }
}
END_TEST

/* Which tensors of its own an adapted layer makes in forward, a line of code each. */
static const struct {
  const char *lora;
  int adds, scalings, dropouts;
} codes[] = {
    {"\"code\":\"plain\"", 1, 0, 0},
    {"\"code\":\"peft\"", 1, 1, 0},
    {"\"dropout\":0.1", 1, 1, 1},
};

START_TEST(an_adapter_adds_scales_and_drops_as_its_code_says)
{
  g_autofree char *options = g_strdup_printf(
      "lora={\"rank\":4,\"targets\":[\"layers.1.down\"],%s} optimizer.name=none", codes[_i].lora);
  g_autoptr(Simulated) s = lower_options(pairs, options);
  ck_assert_int_eq(launched(s, 1, "add"), codes[_i].adds);
  ck_assert_int_eq(launched(s, 1, "mul_scalar"), 2 * codes[_i].scalings); /* and its gradient */
  ck_assert_int_eq(launched(s, 1, "native_dropout"), codes[_i].dropouts);
  /* four layers, A and B; gradients of B and A, and of what goes into B */
  ck_assert_int_eq(launched(s, 1, "mm"), 4 + 2 + 2 + 1);
}
END_TEST

START_TEST(adapters_and_other_parameters_can_train_together)
{
  g_autoptr(Simulated) s =
      lower_options(pairs, "lora={\"rank\":2,\"targets\":\"all-linear\"} "
                           "trainable=[\"*.lora_[AB].*\",\"layers.0.up.base_layer.*\"]");
  ck_assert_int_eq(network_trainable_count(s->scenario->network), 4 * 2 * (60 + 90) + MATRIX);
}
END_TEST

/* ---- recorded runs */

static const char *const recorded[] = {
    "1b_lora16",      "1b_lora16_bf16",         "7b_lora16",
    "7b_lora16_noac", "7b_frozen_all_but_last", "7b_frozen_all_but_last_noac",
};

/* Who trains in the recorded run, as keys of a plan: its adapters are base(x) + B(A(x)) around all
 * four projections. */
static char *
recorded_training(const cJSON *config)
{
  int rank = recorded_int(config, "lora");
  if (rank > 0)
    return g_strdup_printf("'lora': {'rank': %d, 'code': 'plain', 'targets': ['w[qkvo]']}", rank);
  return g_strdup_printf("'trainable': ['layers.%d.*']", recorded_int(config, "n_layers") - 1);
}

static char *
recorded_run_plan(const cJSON *config)
{
  g_autofree char *training = recorded_training(config);
  return g_strdup_printf("{'strategy': 'fsdp2', 'mesh': {'shard': %d},"
                         " 'batch': {'micro_batch': %d, 'sequence_length': %d},"
                         " 'precision': {'parameters': '%s', 'compute': 'bf16', 'reduce': 'fp32'},"
                         " 'activation_checkpointing': {'policy': '%s'},"
                         " 'optimizer': {'implementation': '%s'},"
                         " 'fsdp': {'reshard_after_forward': %s}, %s}",
                         recorded_int(config, "world"), recorded_int(config, "batch"),
                         recorded_int(config, "seq"), recorded_text(config, "param_dtype"),
                         recorded_text(config, "ac"), recorded_text(config, "opt_impl"),
                         recorded_text(config, "raf"), training);
}

START_TEST(recorded_runs_have_the_same_peaks_to_the_byte)
{
  cJSON *run;
  g_autoptr(Simulated) s = recorded_run_compare(recorded[_i], recorded_run_plan, &run);
  if (s == NULL)
    return;
  ck_assert_int_eq(network_trainable_count(s->scenario->network),
                   recorded_number(run, "n_trainable"));
  ck_assert_int_eq(network_parameter_count(s->scenario->network), recorded_number(run, "n_params"));
  cJSON_Delete(run);
}
END_TEST

/* fully_shard of the embedding alone makes two weights of a tied one; whether they train was said
 * when they were one, of the embedding's name (named_parameters). */
START_TEST(both_parts_of_a_split_weight_train_or_neither)
{
  static const char tied[] = "{'model_type': 'llama', 'hidden_size': 64, 'intermediate_size': 160,"
                             " 'num_hidden_layers': 2, 'num_attention_heads': 4, 'vocab_size': 250,"
                             " 'tie_word_embeddings': true, 'implementation': 'torchtitan'}";
  static const gint64 table = 250 * 64, norm = 64;
  g_autoptr(Simulated) frozen = lower_options(
      tied, "strategy=fsdp2 fsdp.embedding=own trainable=[\"!tok_embeddings.*\",\"!layers.*\"]");
  g_autoptr(Simulated) trained = lower_options(
      tied, "strategy=fsdp2 fsdp.embedding=own trainable=[\"tok_embeddings.*\",\"norm.*\"]");
  ck_assert_int_eq(network_trainable_count(frozen->scenario->network), norm);
  ck_assert_int_eq(network_trainable_count(trained->scenario->network), 2 * table + norm);
}
END_TEST

Suite *
test_suite(void)
{
  Suite *suite = suite_create("trainable");
  TCase *tests = tcase_create("trainable");
  tcase_add_loop_test(tests, the_last_pattern_that_matches_a_name_decides, 0,
                      G_N_ELEMENTS(choices));
  tcase_add_loop_test(tests, a_layer_keeps_its_input_for_its_weight_and_its_weight_for_its_input, 0,
                      G_N_ELEMENTS(linears));
  tcase_add_loop_test(tests, the_optimizer_has_states_of_what_trains, 0, G_N_ELEMENTS(linears));
  tcase_add_test(tests, checkpointing_runs_again_what_backward_comes_to);
  tcase_add_test(tests, fsdp2_reduces_what_trains_of_a_group);
  tcase_add_test(tests, fsdp2_leaves_ignored_parameters_alone);
  tcase_add_loop_test(tests, whole_tensors_beside_sharded_ones_are_refused_as_pytorch_does, 0,
                      G_N_ELEMENTS(mixtures));
  tcase_add_test(tests, fsdp1_reduces_all_of_a_group_in_which_something_trains);
  tcase_add_test(tests, fsdp1_without_original_parameters_optimizes_flat_ones);
  tcase_add_test(tests, ddp_has_buckets_for_what_trains);
  tcase_add_test(tests, a_reentrant_checkpoint_without_a_gradient_to_its_input_is_refused);
  tcase_add_test(tests, both_parts_of_a_split_weight_train_or_neither);
  tcase_add_test(tests, adapters_have_the_names_and_shapes_of_peft);
  tcase_add_loop_test(tests, an_adapter_adds_scales_and_drops_as_its_code_says, 0,
                      G_N_ELEMENTS(codes));
  tcase_add_test(tests, adapters_and_other_parameters_can_train_together);
  tcase_add_loop_test(tests, recorded_runs_have_the_same_peaks_to_the_byte, 0,
                      G_N_ELEMENTS(recorded));
  suite_add_tcase(suite, tests);
  return suite;
}
