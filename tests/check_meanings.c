/* check_meanings.c - networks as transformers writes them, executed on numbers: what each of their
 * kernels computes is known, so that a sharded run equals an unsharded one.  That the numbers are
 * PyTorch's is pinned by numeric_torch.sh. */
#include <string.h>

#include "quick.h"
#include "simulate/verification.h"
#include "simulation.h"
#include "tap_main.h"

/* What they are besides small; tied ones say so. */
typedef struct {
  const char *model_type, *fields;
} Architecture;

#define HIDDEN "'hidden_size': 16, "
#define HEADS HIDDEN "'num_attention_heads': 4, 'num_key_value_heads': 2"
#define WIDE HIDDEN "'num_attention_heads': 2, 'num_key_value_heads': 2"
#define POSITIONS "'max_position_embeddings': 16"

static const Architecture architectures[] = {
    {"llama", HEADS},
    {"llama", HEADS ", 'attention_bias': true, 'mlp_bias': true"},
    {"llama", HEADS ", 'head_dim': 6"},
    {"llama", HEADS ", 'implementation': {'attention': 'eager'}, 'attention_dropout': 0.2"},
    {"llama", HEADS ", 'implementation': {'attention': 'math'}"},
    {"llama", HEADS ", 'attention_dropout': 0.2"}, /* composed in fp32, else flash */
    {"mistral", HEADS ", 'sliding_window': 3"},
    {"mistral", HEADS ", 'sliding_window': 3, 'implementation': {'attention': 'eager'}"},
    {"mistral", HEADS ", 'sliding_window': 3, 'implementation': {'attention': 'flash'}"},
    {"mistral", HEADS ", 'sliding_window': 3, 'implementation': {'attention': 'math'}"},
    {"qwen2", HEADS ", 'use_sliding_window': true, 'sliding_window': 3, 'max_window_layers': 1"},
    {"qwen3", HEADS ", 'head_dim': 8"},
    {"gemma", HEADS ", 'head_dim': 8"},
    {"gemma2", HEADS ", 'head_dim': 8, 'sliding_window': 3"},
    {"gemma3_text", HEADS ", 'head_dim': 8, 'sliding_window': 3"},
    {"gpt2", WIDE ", 'attn_pdrop': 0, " POSITIONS},
    {"gpt2", WIDE ", 'attn_pdrop': 0, 'activation_function': 'gelu_pytorch_tanh', " POSITIONS},
    {"gpt_neox", WIDE ", 'rotary_pct': 0.5"},
    {"gpt_neox", WIDE ", 'implementation': {'attention': 'eager'}"},
    {"gptj", WIDE ", 'rotary_dim': 4, 'attn_pdrop': 0"},
    {"gpt_bigcode", WIDE ", " POSITIONS},
    {"phi", WIDE},
    {"phi3", HEADS},
    {"olmo", HEADS ", 'clip_qkv': 0.5"},
    {"olmo2", HEADS},
    {"cohere", HEADS ", 'use_qk_norm': true"},
    {"cohere2", HEADS ", 'sliding_window': 3"},
    {"granite", HEADS ", 'embedding_multiplier': 12, 'residual_multiplier': 0.2"},
    {"starcoder2", HEADS ", 'residual_dropout': 0.1"},
    {"stablelm", WIDE ", 'qk_layernorm': true"},
    {"stablelm", "'hidden_size': 36, 'num_attention_heads': 18, 'num_key_value_heads': 9, "
                 "'partial_rotary_factor': 1, 'qk_layernorm': true"},
    {"smollm3", HEADS},
    {"glm", HEADS ", 'head_dim': 8"},
    {"glm4", HEADS ", 'head_dim': 8"},
    {"internlm2", HEADS},
    {"gpt2", WIDE ", " POSITIONS}, /* attention drops out */
    {"llama", HEADS ", 'implementation': {'code': 'torchtitan', 'rope': 'rotate_half'}"},
    {"qwen3", HEADS ", 'head_dim': 8, 'implementation': 'torchtitan'"},
};

#define SMALL "'intermediate_size': 24, 'num_hidden_layers': 2, 'vocab_size': 19"
#define FSDP2                                                                                      \
  "{'strategy': 'fsdp2', 'mesh': {'shard': 2}, 'batch': {'micro_batch': 2, 'sequence_length': 8}," \
  " 'precision': {'compute': 'bf16', 'reduce': 'fp32'}, 'optimizer': {'clip_grad_norm': 1}}"
#define AUTOCAST                                                                                   \
  "{'strategy': 'ddp', 'mesh': {'replicate': 2}, 'accumulation': {'steps': 2},"                    \
  " 'batch': {'micro_batch': 1, 'sequence_length': 7}, 'precision': {'compute': 'bf16', "          \
  "'autocast': true},"                                                                             \
  " 'activation_checkpointing': {'policy': 'full'}}"
#define DISPATCHED                                                                                 \
  "{'strategy': 'zero3', 'mesh': {'shard': 2}, 'batch': {'micro_batch': 1, 'sequence_length': 8}," \
  " 'activation_checkpointing': {'policy': 'selective_op'}, 'precision': {'parameters': 'bf16'}}"

static const char *const plans[] = {FSDP2, AUTOCAST, DISPATCHED};

static gboolean
run(const char *network, const char *plan, VerificationReport *report, GError **error)
{
  VerificationRequest request = {.steps = 2, .seed = 1, .orders = 1, .tolerance = 1e-9};
  gboolean ok = simulation_inputs(network, plan, "", &request.inputs, error) &&
                verify(&request, report, error);
  simulation_inputs_clear(&request.inputs);
  return ok;
}

static void
check(const Architecture *a, const char *plan, gboolean tied)
{
  VerificationReport report = {0};
  g_autoptr(GError) error = NULL;
  g_autofree char *network =
      g_strdup_printf("{'model_type': '%s', 'tie_word_embeddings': %s, " SMALL ", %s}",
                      a->model_type, tied ? "true" : "false", a->fields);
  gboolean ok = run(network, plan, &report, &error);
  ck_assert_msg(ok, "%s, %s: %s", a->model_type, a->fields, ok ? "" : error->message);
  ck_assert_msg(report.fault == NULL, "%s, %s: %s", a->model_type, a->fields, report.fault);
  for (guint i = 0; i < report.steps->len; i++) {
    const VerifiedStep *s = &g_array_index(report.steps, VerifiedStep, i);
    ck_assert_double_gt(s->loss, 1); /* a network that has learned nothing: about ln(19) = 2.9 */
    ck_assert_double_lt(s->loss, 12);
    ck_assert_double_gt(s->norm, 0);
  }
  verification_report_clear(&report);
}

START_TEST(a_model_of_transformers_equals_an_unsharded_run)
{
  for (guint i = 0; i < G_N_ELEMENTS(plans); i++)
    check(&architectures[_i], plans[i], FALSE);
}
END_TEST

START_TEST(a_tied_embedding_gets_both_gradients)
{
  check(&architectures[0], AUTOCAST, TRUE);
}
END_TEST

/* Which rows of which experts, tables that a checkpoint holds, biases of positions. */
START_TEST(what_nobody_has_said_is_refused_by_name)
{
  static const struct {
    Architecture architecture;
    const char *says;
  } unsaid[] = {
      {{"mixtral", HEADS}, "kernel topk: nobody has said what it computes"},
      {{"gpt_neo", HIDDEN "'num_heads': 2, 'attention_types': [[['global', 'local'], 1]]"},
       "kernel where = where_buffer: nobody has said what it computes"},
      {{"bloom", HIDDEN "'n_head': 2"}, "reads alibi, and nobody has said what is in it"},
  };
  VerificationReport report = {0};
  g_autoptr(GError) error = NULL;
  g_autofree char *network =
      g_strdup_printf("{'model_type': '%s', 'tie_word_embeddings': false, " SMALL ", %s}",
                      unsaid[_i].architecture.model_type, unsaid[_i].architecture.fields);
  ck_assert(!run(network, FSDP2, &report, &error));
  ck_assert_msg(strstr(error->message, unsaid[_i].says) != NULL, "%s", error->message);
  verification_report_clear(&report);
}
END_TEST

static int
some(int all)
{
  return quick() ? MIN(all, 6) : all;
}

Suite *
test_suite(void)
{
  Suite *suite = suite_create("meanings");
  TCase *tcase = tcase_create("transformers");
  tcase_set_timeout(tcase, 120);
  tcase_add_loop_test(tcase, a_model_of_transformers_equals_an_unsharded_run, 0,
                      some((int) G_N_ELEMENTS(architectures)));
  tcase_add_test(tcase, a_tied_embedding_gets_both_gradients);
  tcase_add_loop_test(tcase, what_nobody_has_said_is_refused_by_name, 0, 3);
  suite_add_tcase(suite, tcase);
  return suite;
}
