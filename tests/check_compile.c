/* check_compile.c - blocks under torch.compile: which ops one kernel computes, how many bytes it
 * moves, what is saved for backward by each kind of checkpointing, and that a step with compiled
 * blocks does the same products as one without.
 *
 * Sizes are worked out by hand from the rules of AOTAutograd's partitioner
 * (torch/_functorch/partitioners.py) and Inductor's scheduler; nothing here was measured. */
#include <string.h>

#include "network/compiled.h"
#include "scenario_fixture.h"
#include "simulation.h"

/* T tokens of width D, K key heads' width, F of the MLP; per block, bf16. */
enum { T = 32, D = 64, K = 32, F = 96, HEADS = 4, NORM = 2 * D, RSTD = 4 * T };
enum { TABLE = 8 * T * (D / HEADS / 2) }; /* complex numbers for half a head */

#define LLAMA(implementation)                                                                      \
  "{\"model_type\": \"llama\", \"hidden_size\": 64, \"intermediate_size\": 96, "                   \
  "\"num_hidden_layers\": 4, \"num_attention_heads\": 4, \"num_key_value_heads\": 2, "             \
  "\"vocab_size\": 100, \"implementation\": " implementation "}"
#define TORCHTITAN "\"torchtitan\""
#define COMPOSITE "{\"code\": \"torchtitan\", \"rms_norm\": \"composite\"}"
#define PLAN(checkpointing)                                                                        \
  "{\"compile\": \"per_block\", \"precision\": {\"parameters\": \"bf16\"}, "                       \
  "\"batch\": {\"sequence_length\": 32}, \"activation_checkpointing\": " checkpointing "}"
#define NONE "{\"policy\": \"none\"}"
#define FULL "{\"policy\": \"full\"}"
#define SELECTED "{\"policy\": \"selective_op\"}"

#define LINEAR(name) "{\"op\": \"linear\", \"out\": 64, \"name\": \"" name "\"}"

static const CompiledBlock *
compiled_of(const Scenario *s, int block)
{
  int compiled = network_block(s->network, block)->compiled;
  ck_assert_int_ge(compiled, 0);
  return g_ptr_array_index(s->network->compiled, compiled);
}

/* ---- kernels */

typedef struct {
  int generated, products, attention, again;
  double bytes; /* of generated kernels */
} Count;

static Count
count(const CompiledGraph *graph)
{
  Count n = {0};
  for (guint i = 0; i < graph->kernels->len; i++) {
    const CompiledKernel *k = &g_array_index(graph->kernels, CompiledKernel, i);
    n.products += k->kernel.kind == KERNEL_GEMM;
    n.attention +=
        k->kernel.kind == KERNEL_ATTENTION_FORWARD || k->kernel.kind == KERNEL_ATTENTION_BACKWARD;
    n.again += k->recomputes;
    if (!g_str_has_prefix(k->name, "fused"))
      continue;
    n.generated++;
    n.bytes += k->kernel.bytes;
  }
  return n;
}

/* The first norm reads and writes d (4d bytes a token), RoPE q and k (4d, 4kv), the sum and the
 * second norm read x and attention's output and write (6d), SiLU times up 6f; the last sum reads x,
 * attention's output and the MLP's and writes (8d), since the sum before it is cheap to compute
 * again.  18d + 4(d + kv) + 6f, besides gains, tables and one number a row. */
START_TEST(forward_of_a_llama_block_is_six_generated_kernels)
{
  static const char *const networks[] = {LLAMA(TORCHTITAN), LLAMA(COMPOSITE)};
  for (guint i = 0; i < G_N_ELEMENTS(networks); i++) {
    g_autoptr(Scenario) s = fixture_good_scenario(networks[i], PLAN(NONE));
    Count n = count(&compiled_of(s, 0)->forward);
    ck_assert_int_eq(n.generated, 6);
    ck_assert_int_eq(n.products, 7);
    ck_assert_int_eq(n.attention, 1);
    ck_assert_double_eq(n.bytes,
                        T * (18.0 * D + 4.0 * (D + K) + 6.0 * F) + 2 * NORM + 2 * RSTD + 2 * TABLE);
  }
}
END_TEST

/* SiLU times up reads three and writes two (10f), RoPE 4(d + kv).  A norm's kernel reads the
 * gradients of the layers behind it, what it normalised and the gradient that goes past it, and
 * writes: 12d for two layers with the input as a sum of two, or for three layers.  Its gain's reads
 * as much without the last two: 8d. */
START_TEST(backward_of_a_llama_block_is_seven_generated_kernels)
{
  g_autoptr(Scenario) s = fixture_good_scenario(LLAMA(TORCHTITAN), PLAN(NONE));
  Count n = count(&compiled_of(s, 0)->backward);
  ck_assert_int_eq(n.generated, 7);
  ck_assert_int_eq(n.products, 14);
  ck_assert_int_eq(n.attention, 1);
  ck_assert_int_eq(n.again, 0);
  /* gains are read by all four kernels of norms, and written by two; each reads a number a row */
  double small = 6 * NORM + 4 * RSTD + 2 * TABLE;
  ck_assert_double_eq(n.bytes, T * (40.0 * D + 4.0 * (D + K) + 10.0 * F) + small);
}
END_TEST

/* ---- memory while a graph runs */

/* Every buffer that a kernel reads is there: given, made before or saved; what is made in the place
 * of another is as large, and that one is used no more. */
static void
check_graph(const CompiledBlock *compiled, const CompiledGraph *graph, gboolean backward)
{
  g_autofree gboolean *there = g_new0(gboolean, compiled->buffers->len + 1);
  for (guint i = 0; i < compiled->buffers->len; i++) {
    const CompiledBuffer *buffer = compiled_buffer(compiled, (gint32) i);
    there[i] = buffer->origin == COMPILED_PARAMETER ||
               (buffer->origin == COMPILED_ARGUMENT && (!backward || buffer->saved)) ||
               (backward && (buffer->origin == COMPILED_INCOMING || buffer->saved));
  }
  for (guint k = 0; k < graph->kernels->len; k++) {
    const CompiledKernel *kernel = &g_array_index(graph->kernels, CompiledKernel, k);
    for (int i = 0; i < kernel->operands; i++) {
      const CompiledOperand *o =
          &g_array_index(graph->operands, CompiledOperand, kernel->first_operand + i);
      if (o->role == ROLE_READ)
        ck_assert_msg(there[o->buffer], "%s reads what is not there", kernel->name);
    }
    for (int i = 0; i < kernel->operands; i++) {
      const CompiledOperand *o =
          &g_array_index(graph->operands, CompiledOperand, kernel->first_operand + i);
      const CompiledBuffer *buffer = compiled_buffer(compiled, o->buffer);
      if (o->role == ROLE_READ)
        continue;
      ck_assert(!there[o->buffer]);
      there[o->buffer] = TRUE;
      if (buffer->takes < 0)
        continue;
      const CompiledBuffer *old = compiled_buffer(compiled, buffer->takes);
      ck_assert_int_eq(value_bytes(&old->info), value_bytes(&buffer->info));
      ck_assert_int_eq(backward ? old->last_backward : old->last_forward, (gint32) k);
      there[buffer->takes] = FALSE;
    }
  }
}

/* ---- what is saved */

/* Bytes that are made in forward and saved. */
static gint64
saved_bytes(const CompiledBlock *compiled)
{
  gint64 bytes = 0;
  for (guint i = 0; i < compiled->buffers->len; i++) {
    const CompiledBuffer *buffer = compiled_buffer(compiled, (gint32) i);
    if (buffer->saved && buffer->origin == COMPILED_MADE)
      bytes += value_bytes(&buffer->info);
  }
  return bytes;
}

static gboolean
saves_argument(const CompiledBlock *compiled)
{
  for (guint i = 0; i < compiled->buffers->len; i++)
    if (compiled_buffer(compiled, (gint32) i)->origin == COMPILED_ARGUMENT &&
        compiled_buffer(compiled, (gint32) i)->number == 0)
      return compiled_buffer(compiled, (gint32) i)->saved;
  return FALSE;
}

/* logsumexp and the two numbers of attention's generator */
enum { ATTENTION_REST = 4 * HEADS * T + 16 + 8 };

/* Inputs of products: both norms' results (2d each), attention's (2d), the MLP's product (2f);
 * inputs of attention: q, k and v after RoPE (2d, 2kv, 2kv); results of products that are not
 * computed again: attention's output layer (2d), gate and up (2f each); a number a row for each
 * norm.  The input is given.  Neither the sum between nor SiLU's result is saved, whatever the
 * norms look like op by op. */
START_TEST(without_checkpointing_inputs_of_products_are_saved)
{
  static const char *const networks[] = {LLAMA(TORCHTITAN), LLAMA(COMPOSITE)};
  for (guint i = 0; i < G_N_ELEMENTS(networks); i++) {
    g_autoptr(Scenario) s = fixture_good_scenario(networks[i], PLAN(NONE));
    ck_assert_int_eq(saved_bytes(compiled_of(s, 0)),
                     T * (10 * D + 4 * K + 6 * F) + 2 * RSTD + ATTENTION_REST);
    ck_assert(saves_argument(compiled_of(s, 0)));
  }
}
END_TEST

START_TEST(a_chain_of_pointwise_ops_saves_what_it_begins_with)
{
  static const struct {
    const char *ops;
    int tensors; /* [32, 64] in bf16 */
  } cases[] = {
      /* the first layer's result, and what the second layer reads */
      {LINEAR("a") ", {\"op\": \"gelu\"}, " LINEAR("b"), 2},
      {LINEAR("a") ", {\"op\": \"gelu\"}, {\"op\": \"silu\"}, {\"op\": \"gelu\"}, " LINEAR("b"), 2},
      /* nothing behind the chain: its beginning alone */
      {LINEAR("a") ", {\"op\": \"gelu\"}, {\"op\": \"silu\"}", 1},
      /* the chain begins with the argument, and a sum needs nothing */
      {"{\"op\": \"gelu\"}, {\"op\": \"silu\"}", 0},
      {LINEAR("a") ", {\"op\": \"add\", \"with\": \"input\"}", 0},
  };
  for (guint i = 0; i < G_N_ELEMENTS(cases); i++) {
    g_autofree char *network = g_strdup_printf("%s", cases[i].ops);
    g_autofree char *config = g_strconcat(
        "{\"family\": \"blocks\", \"hidden\": 64, \"embedding\": false, \"head\": false, "
        "\"loss\": \"sum\", \"blocks\": [{\"ops\": [{\"op\": \"linear\", \"out\": 64, \"name\": "
        "\"first\"}]}, {\"ops\": [",
        network, "]}]}", NULL);
    g_autoptr(Scenario) s = fixture_good_scenario(config, PLAN(NONE));
    ck_assert_msg(saved_bytes(compiled_of(s, 1)) == cases[i].tensors * T * D * 2, "%s: %ld",
                  cases[i].ops, (long) saved_bytes(compiled_of(s, 1)));
  }
}
END_TEST

/* Everything that backward needs is computed again, but for the last product, which it does not. */
/* A value that twelve others are made of: its gradient is the sum of twelve. */
START_TEST(gradients_of_many_uses_are_all_added)
{
  enum { USES = 12 };
  g_autoptr(GString) ops = g_string_new(
      "{'op': 'linear', 'out': 64, 'name': 'first', 'as': 'x'}, {'op': 'linear', 'out': 64, "
      "'name': 'l0', 'as': 'sum'}");
  for (int i = 1; i < USES; i++)
    g_string_append_printf(ops,
                           ", {'op': 'linear', 'out': 64, 'name': 'l%d', 'from': 'x'}, "
                           "{'op': 'add', 'with': 'sum', 'as': 'sum'}",
                           i);
  g_autofree char *config =
      g_strconcat("{'family': 'blocks', 'hidden': 64, 'embedding': false, 'head': false, 'loss': "
                  "'sum', 'blocks': [{'ops': [",
                  ops->str, "]}]}", NULL);
  g_strdelimit(config, "'", '"');
  g_autoptr(Scenario) s = fixture_good_scenario(config, PLAN(NONE));
  const CompiledBlock *compiled = compiled_of(s, 0);
  check_graph(compiled, &compiled->backward, TRUE);
  int read = 0;
  for (guint i = 0; i < compiled->backward.kernels->len; i++) {
    const CompiledKernel *k = &g_array_index(compiled->backward.kernels, CompiledKernel, i);
    if (g_str_has_prefix(k->name, "fused"))
      for (int o = 0; o < k->operands; o++)
        read += g_array_index(compiled->backward.operands, CompiledOperand, k->first_operand + o)
                    .role == ROLE_READ;
  }
  ck_assert_int_ge(read, USES);
}
END_TEST

/* Each of 200 products of a value with itself is made of two of the one before: 2^200 reads if
 * nobody remembered what he has read. */
/* Six heads are more than one call of split gives: a kernel joins the gradients that norms of
 * several heads give, of queries and of keys.  A name has the first few of what is fused. */
START_TEST(gradients_of_all_heads_are_joined)
{
  static const char network[] =
      "{\"model_type\": \"stablelm\", \"hidden_size\": 96, \"intermediate_size\": 96, "
      "\"num_hidden_layers\": 2, \"num_attention_heads\": 6, \"num_key_value_heads\": 6, "
      "\"vocab_size\": 100, \"qk_layernorm\": true}";
  g_autoptr(Scenario) s = fixture_good_scenario(network, PLAN(NONE));
  const CompiledGraph *graph = &compiled_of(s, 0)->backward;
  int joining = 0;
  check_graph(compiled_of(s, 0), graph, TRUE);
  for (guint i = 0; i < graph->kernels->len; i++)
    joining += strstr(g_array_index(graph->kernels, CompiledKernel, i).name,
                      "native_layer_norm_native_layer_norm") != NULL;
  ck_assert_int_ge(joining, 2);
}
END_TEST

START_TEST(a_chain_that_doubles_is_followed_once)
{
  g_autoptr(GString) ops = g_string_new("{'op': 'linear', 'out': 64, 'name': 'l', 'as': 'x'}");
  for (int i = 0; i < 200; i++)
    g_string_append(ops, ", {'op': 'mul', 'with': 'x', 'as': 'x'}");
  g_autofree char *config =
      g_strconcat("{'family': 'blocks', 'hidden': 64, 'embedding': false, 'head': false, 'loss': "
                  "'sum', 'blocks': [{'ops': [",
                  ops->str, "]}]}", NULL);
  g_strdelimit(config, "'", '"');
  static const char *const plans[] = {PLAN(NONE), PLAN(FULL)};
  for (guint i = 0; i < G_N_ELEMENTS(plans); i++) {
    g_autoptr(Scenario) s = fixture_good_scenario(config, plans[i]);
    ck_assert_int_eq(count(&compiled_of(s, 0)->forward).generated, 1);
    ck_assert_int_le(saved_bytes(compiled_of(s, 0)), T * D * 2);
  }
}
END_TEST

START_TEST(full_checkpointing_saves_the_arguments)
{
  g_autoptr(Scenario) s = fixture_good_scenario(LLAMA(TORCHTITAN), PLAN(FULL));
  const CompiledBlock *compiled = compiled_of(s, 0);
  Count n = count(&compiled->backward);
  ck_assert_int_eq(saved_bytes(compiled), 0);
  ck_assert(saves_argument(compiled));
  ck_assert_int_eq(n.products, 14 + 6);
  ck_assert_int_eq(n.attention, 2);
}
END_TEST

/* torchtitan's list: attention's results, and every second product from the first: q, v, w1 and w2,
 * of which backward has no use for the last, nor for q, k and v but through RoPE. */
START_TEST(selective_checkpointing_saves_what_its_list_names)
{
  g_autoptr(Scenario) s = fixture_good_scenario(LLAMA(TORCHTITAN), PLAN(SELECTED));
  const CompiledBlock *compiled = compiled_of(s, 0);
  Count n = count(&compiled->backward);
  ck_assert_int_eq(saved_bytes(compiled), T * (2 * D + 2 * K + 2 * D + 2 * F) + ATTENTION_REST);
  ck_assert_int_eq(n.products, 14 + 3); /* k, o and w3 */
  ck_assert_int_eq(n.attention, 1);
}
END_TEST

START_TEST(blocks_are_compiled_once_for_each_policy)
{
  g_autoptr(Scenario) all = fixture_good_scenario(LLAMA(TORCHTITAN), PLAN(NONE));
  g_autoptr(Scenario) half = fixture_good_scenario(
      LLAMA(TORCHTITAN), PLAN("{\"policy\": \"fraction\", \"fraction\": 0.5}"));
  ck_assert_uint_eq(all->network->compiled->len, 1);
  ck_assert_uint_eq(half->network->compiled->len, 2);
  for (int i = 0; i < 4; i++) /* the first and every second */
    ck_assert((saved_bytes(compiled_of(half, i)) == 0) == (i % 2 == 0));
}
END_TEST

START_TEST(without_the_key_nothing_is_compiled)
{
  g_autoptr(Scenario) s = fixture_good_scenario(LLAMA(TORCHTITAN), FIXTURE_PLAN("32"));
  ck_assert_uint_eq(s->network->compiled->len, 0);
  ck_assert_int_eq(network_block(s->network, 0)->compiled, -1);
}
END_TEST

START_TEST(kernels_find_what_they_read)
{
  static const char *const networks[] = {
      LLAMA(TORCHTITAN),
      LLAMA(COMPOSITE),
      LLAMA("\"transformers\""),
      "{\"model_type\": \"gpt2\", \"n_embd\": 64, \"n_layer\": 2, \"n_head\": 4, \"n_positions\": "
      "128, \"vocab_size\": 100}",
      "{\"model_type\": \"mpt\", \"d_model\": 64, \"n_layers\": 2, \"n_heads\": 4, \"vocab_size\": "
      "100, \"attn_config\": {\"attn_impl\": \"torch\", \"alibi\": true}}",
  };
  static const char *const plans[] = {PLAN(NONE), PLAN(FULL), PLAN(SELECTED)};
  for (guint i = 0; i < G_N_ELEMENTS(networks); i++)
    for (guint k = 0; k < G_N_ELEMENTS(plans); k++) {
      g_autoptr(Scenario) s = fixture_good_scenario(networks[i], plans[k]);
      check_graph(compiled_of(s, 0), &compiled_of(s, 0)->forward, FALSE);
      check_graph(compiled_of(s, 0), &compiled_of(s, 0)->backward, TRUE);
    }
}
END_TEST

/* ---- a step */

static const char llama[] =
    "{'model_type': 'llama', 'hidden_size': 64, 'intermediate_size': 96, 'num_hidden_layers': 4,"
    " 'num_attention_heads': 4, 'num_key_value_heads': 2, 'vocab_size': 100,"
    " 'implementation': 'torchtitan'}";

/* FLOPs of products and attention, kernels on the compute stream, and the host's work of a kind in
 * the second step. */
typedef struct {
  double flops;
  int kernels, regions, eager;
} Step;

static Step
step_of(const char *strategy, const char *policy, const char *compile)
{
  g_autofree char *plan = g_strdup_printf(
      "{'strategy': '%s', 'compile': '%s', 'batch': {'micro_batch': 1, 'sequence_length': 32}, "
      "'activation_checkpointing': {'policy': '%s'}}",
      strategy, compile, policy);
  g_autoptr(Simulated) s = simulation_lower(&(Simulation){llama, plan, NULL, 0}, 2);
  const Program *program = s->lowered->program;
  const GArray *ops = program_step(program, 1)->ops;
  Step step = {0};
  for (guint i = 0; i < ops->len; i++) {
    const ProgramOp *op = &g_array_index(ops, ProgramOp, i);
    if (op->kind == PROGRAM_LAUNCH && op->stream == STREAM_COMPUTE) {
      step.flops += g_array_index(program->kernels, Kernel, op->a).flops;
      step.kernels++;
    }
    if (op->kind == PROGRAM_HOST_WORK && op->a == HOST_WORK_COMPILED_REGION)
      step.regions += op->b;
    if (op->kind == PROGRAM_HOST_WORK && op->a == HOST_WORK_OP_FORWARD)
      step.eager += op->b;
  }
  return step;
}

START_TEST(a_compiled_step_does_the_same_products_with_fewer_kernels)
{
  static const char *const strategies_tried[] = {"none",  "ddp",   "fsdp1",
                                                 "fsdp2", "zero1", "internevo"};
  static const char *const policies[] = {"none", "full", "selective_op"};
  for (guint i = 0; i < G_N_ELEMENTS(strategies_tried); i++)
    for (guint k = 0; k < G_N_ELEMENTS(policies); k++) {
      Step eager = step_of(strategies_tried[i], policies[k], "none");
      Step compiled = step_of(strategies_tried[i], policies[k], "per_block");
      ck_assert_double_eq_tol(compiled.flops, eager.flops, 1e-9 * eager.flops);
      ck_assert_int_lt(compiled.kernels, eager.kernels);
      ck_assert_int_eq(compiled.regions, 2 * 4); /* forward and backward of each block */
      ck_assert_int_eq(eager.regions, 0);
      ck_assert_int_lt(compiled.eager, eager.eager);
    }
}
END_TEST

START_TEST(the_loss_is_compiled_when_the_network_says_so)
{
  g_autoptr(Scenario) s = fixture_good_scenario(
      LLAMA("{\"code\": \"torchtitan\", \"loss\": \"compiled\"}"), PLAN(NONE));
  const Function *f = network_function(s->network, s->network->main);
  gboolean found = FALSE;
  for (guint i = 0; i < f->ops->len; i++) {
    const char *name = g_array_index(f->ops, Op, i).info->name;
    found |= strcmp(name, "fused_cross_entropy") == 0;
    ck_assert_str_ne(name, "log_softmax");
  }
  ck_assert(found);
}
END_TEST

START_TEST(what_cannot_be_compiled_is_refused)
{
  static const struct {
    const char *plan, *message;
  } cases[] = {
      {"{'strategy': 'fsdp2', 'compile': 'per_block', 'activation_checkpointing': {'policy': "
       "'full', 'around': 'fsdp'}, 'batch': {'sequence_length': 32}}",
       "key 'activation_checkpointing.around': compiled blocks have their checkpoints inside"},
      {"{'strategy': 'zero3', 'compile': 'per_block', 'batch': {'sequence_length': 32}}",
       "key 'compile': strategy zero3 has hooks on every module"},
      {"{'strategy': 'fsdp2', 'mesh': {'shard': 2}, 'compile': 'per_block', 'batch': "
       "{'sequence_length': 32}, 'fsdp': {'groups': ['layers.1.attention']}}",
       "key 'fsdp.groups': 'layers.1.attention' lies inside of a compiled block"},
  };
  for (guint i = 0; i < G_N_ELEMENTS(cases); i++) {
    g_autoptr(GError) error = NULL;
    ck_assert_ptr_null(simulation_try(&(Simulation){llama, cases[i].plan, NULL, 0}, 1, &error));
    ck_assert(test_error_says(error, cases[i].message));
  }
}
END_TEST

Suite *
test_suite(void)
{
  Suite *suite = suite_create("compile");
  TCase *kernels = tcase_create("kernels"), *saved = tcase_create("saved"),
        *step = tcase_create("step");
  tcase_add_test(kernels, forward_of_a_llama_block_is_six_generated_kernels);
  tcase_add_test(kernels, backward_of_a_llama_block_is_seven_generated_kernels);
  tcase_add_test(kernels, kernels_find_what_they_read);
  tcase_add_test(saved, without_checkpointing_inputs_of_products_are_saved);
  tcase_add_test(saved, a_chain_of_pointwise_ops_saves_what_it_begins_with);
  tcase_add_test(saved, gradients_of_many_uses_are_all_added);
  tcase_add_test(saved, gradients_of_all_heads_are_joined);
  tcase_add_test(saved, a_chain_that_doubles_is_followed_once);
  tcase_add_test(saved, full_checkpointing_saves_the_arguments);
  tcase_add_test(saved, selective_checkpointing_saves_what_its_list_names);
  tcase_add_test(saved, blocks_are_compiled_once_for_each_policy);
  tcase_add_test(saved, without_the_key_nothing_is_compiled);
  tcase_add_test(step, a_compiled_step_does_the_same_products_with_fewer_kernels);
  tcase_add_test(step, the_loss_is_compiled_when_the_network_says_so);
  tcase_add_test(step, what_cannot_be_compiled_is_refused);
  suite_add_tcase(suite, kernels);
  suite_add_tcase(suite, saved);
  suite_add_tcase(suite, step);
  return suite;
}
