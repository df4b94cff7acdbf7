/* check_families.c - what families make of a config: modules and parameters in order, with names
 * and shapes as in PyTorch's state_dict; the ops of a block; which attention runs; what is refused,
 * in which words.
 *
 * Names and orders are those of torchtitan's models/llama3, nanoGPT's model.py and transformers'
 * modeling_*.py.  When references go is check_builder.c's matter, sizes of activations are
 * check_show.c's. */
#include <glib.h>

#include "base/units.h"
#include "scenario_fixture.h"
#include "simulation.h"

#define LLAMA(more)                                                                                \
  "{\"model_type\": \"llama\", \"hidden_size\": 64, \"intermediate_size\": 96, "                   \
  "\"num_hidden_layers\": 2, \"num_attention_heads\": 4, \"num_key_value_heads\": 2, "             \
  "\"vocab_size\": 100" more "}"
#define GPT2(more)                                                                                 \
  "{\"model_type\": \"gpt2\", \"n_embd\": 64, \"n_layer\": 2, \"n_head\": 4, "                     \
  "\"n_positions\": 128, \"vocab_size\": 100" more "}"
#define MPT(more)                                                                                  \
  "{\"model_type\": \"mpt\", \"d_model\": 64, \"n_layers\": 2, \"n_heads\": 4, "                   \
  "\"max_seq_len\": 128, \"vocab_size\": 100" more "}"
/* twice as wide: 2^40 times their width is more than a tensor may have */
#define WIDE_LLAMA                                                                                 \
  "{\"model_type\": \"llama\", \"hidden_size\": 128, \"intermediate_size\": 96, "                  \
  "\"num_hidden_layers\": 2, \"num_attention_heads\": 4, \"vocab_size\": 100}"
#define WIDE_GPT2                                                                                  \
  "{\"model_type\": \"gpt2\", \"n_embd\": 128, \"n_layer\": 2, \"n_head\": 4, "                    \
  "\"n_positions\": 128, \"vocab_size\": 100}"
#define TORCHTITAN ", \"implementation\": \"torchtitan\""
#define NANOGPT ", \"implementation\": \"nanogpt\""
#define PLAN FIXTURE_PLAN("32")

/* Paths of the modules, in order, without those of the blocks after the first. */
static char *
modules_text(const Network *n)
{
  GString *text = g_string_new(NULL);
  for (guint i = 1; i < n->modules->len; i++)
    if (network_module(n, (int) i)->block <= 0)
      g_string_append_printf(text, "%s%s", text->len > 0 ? " " : "",
                             network_module(n, (int) i)->path);
  return g_string_free(text, FALSE);
}

/* The ops of the first block that launch kernels, by name. */
static char *
block_ops_text(const Network *n)
{
  const Function *f = network_function(n, network_block(n, 0)->function);
  GString *text = g_string_new(NULL);
  for (guint i = 0; i < f->ops->len; i++) {
    const Op *op = &g_array_index(f->ops, Op, i);
    gboolean launches = FALSE;
    for (gint32 k = op->forward; k < op->backward; k++)
      launches |= g_array_index(f->steps, OpStep, k).action == STEP_LAUNCH;
    if (launches)
      g_string_append_printf(text, "%s%s", text->len > 0 ? " " : "", op->info->name);
  }
  return g_string_free(text, FALSE);
}

static void
expect_parameters(const char *config, const char *expected)
{
  g_autoptr(Scenario) s = fixture_good_scenario(config, PLAN);
  g_autofree char *text = parameters_text(s->network, "", NULL);
  ck_assert_str_eq(text, expected);
}

static void
expect_modules(const char *config, const char *expected)
{
  g_autoptr(Scenario) s = fixture_good_scenario(config, PLAN);
  g_autofree char *text = modules_text(s->network);
  ck_assert_str_eq(text, expected);
}

static void
expect_block_ops(const char *config, const char *plan, const char *expected)
{
  g_autoptr(Scenario) s = fixture_good_scenario(config, plan);
  g_autofree char *text = block_ops_text(s->network);
  ck_assert_str_eq(text, expected);
}

/* ---- parameters and modules ---- */

#define TITAN_BLOCK(i)                                                                             \
  "layers." i ".attention.wq.weight[64,64] layers." i ".attention.wk.weight[32,64] "               \
  "layers." i ".attention.wv.weight[32,64] layers." i ".attention.wo.weight[64,64] "               \
  "layers." i ".feed_forward.w1.weight[96,64] layers." i ".feed_forward.w2.weight[64,96] "         \
  "layers." i ".feed_forward.w3.weight[96,64] layers." i ".attention_norm.weight[64] "             \
  "layers." i ".ffn_norm.weight[64] "

START_TEST(llama_of_torchtitan_has_its_parameters_in_its_order)
{
  expect_parameters(LLAMA(TORCHTITAN),
                    "tok_embeddings.weight[100,64] " TITAN_BLOCK("0")
                        TITAN_BLOCK("1") "norm.weight[64] output.weight[100,64]");
  expect_modules(
      LLAMA(TORCHTITAN),
      "tok_embeddings layers layers.0 layers.0.attention layers.0.attention.wq "
      "layers.0.attention.wk "
      "layers.0.attention.wv layers.0.attention.wo layers.0.feed_forward layers.0.feed_forward.w1 "
      "layers.0.feed_forward.w2 layers.0.feed_forward.w3 layers.0.attention_norm layers.0.ffn_norm "
      "norm output");
}
END_TEST

#define HUB_BLOCK(i)                                                                               \
  "model.layers." i ".self_attn.q_proj.weight[64,64] model.layers." i                              \
  ".self_attn.k_proj.weight[32,64] "                                                               \
  "model.layers." i ".self_attn.v_proj.weight[32,64] model.layers." i                              \
  ".self_attn.o_proj.weight[64,64] "                                                               \
  "model.layers." i ".mlp.gate_proj.weight[96,64] model.layers." i ".mlp.up_proj.weight[96,64] "   \
  "model.layers." i ".mlp.down_proj.weight[64,96] model.layers." i ".input_layernorm.weight[64] "  \
  "model.layers." i ".post_attention_layernorm.weight[64] "

START_TEST(llama_of_transformers_has_its_parameters_in_its_order)
{
  expect_parameters(LLAMA(""), "model.embed_tokens.weight[100,64] " HUB_BLOCK("0")
                                   HUB_BLOCK("1") "model.norm.weight[64] lm_head.weight[100,64]");
  expect_modules(
      LLAMA(""),
      "model model.embed_tokens model.layers model.layers.0 model.layers.0.self_attn "
      "model.layers.0.self_attn.q_proj model.layers.0.self_attn.k_proj "
      "model.layers.0.self_attn.v_proj model.layers.0.self_attn.o_proj model.layers.0.mlp "
      "model.layers.0.mlp.gate_proj model.layers.0.mlp.up_proj model.layers.0.mlp.down_proj "
      "model.layers.0.mlp.act_fn model.layers.0.input_layernorm "
      "model.layers.0.post_attention_layernorm model.norm "
      "model.rotary_emb lm_head");
}
END_TEST

#define NANO_BLOCK(i)                                                                              \
  "layers." i ".ln_1.weight[64] layers." i ".ln_1.bias[64] layers." i ".ln_2.weight[64] "          \
  "layers." i ".ln_2.bias[64] layers." i ".c_attn.weight[192,64] layers." i ".c_attn.bias[192] "   \
  "layers." i ".c_proj.weight[64,64] layers." i ".c_proj.bias[64] layers." i                       \
  ".fc.weight[256,64] layers." i ".fc.bias[256] layers." i ".proj.weight[64,256] "                 \
  "layers." i ".proj.bias[64] "

START_TEST(gpt2_of_nanogpt_has_its_parameters_in_its_order_and_a_tied_output)
{
  expect_parameters(GPT2(NANOGPT), "tok_embeddings.weight[100,64] wpe.weight[128,64] " NANO_BLOCK(
                                       "0") NANO_BLOCK("1") "norm.weight[64] norm.bias[64]");
  g_autoptr(Scenario) s = fixture_good_scenario(GPT2(NANOGPT), PLAN);
  ck_assert_str_eq(network_module(s->network, network_tie(s->network, 0)->module)->path, "output");
  ck_assert_str_eq(network_parameter(s->network, network_tie(s->network, 0)->parameter)->name,
                   "tok_embeddings.weight");
}
END_TEST

/* Conv1D keeps its weight as [in, out]. */
#define HUB_GPT2_BLOCK(i)                                                                          \
  "transformer.h." i ".ln_1.weight[64] transformer.h." i ".ln_1.bias[64] "                         \
  "transformer.h." i ".attn.c_attn.weight[64,192] transformer.h." i ".attn.c_attn.bias[192] "      \
  "transformer.h." i ".attn.c_proj.weight[64,64] transformer.h." i ".attn.c_proj.bias[64] "        \
  "transformer.h." i ".ln_2.weight[64] transformer.h." i ".ln_2.bias[64] "                         \
  "transformer.h." i ".mlp.c_fc.weight[64,256] transformer.h." i ".mlp.c_fc.bias[256] "            \
  "transformer.h." i ".mlp.c_proj.weight[256,64] transformer.h." i ".mlp.c_proj.bias[64] "

START_TEST(gpt2_of_transformers_has_its_parameters_in_its_order)
{
  expect_parameters(
      GPT2(""), "transformer.wte.weight[100,64] transformer.wpe.weight[128,64] " HUB_GPT2_BLOCK("0")
                    HUB_GPT2_BLOCK("1") "transformer.ln_f.weight[64] transformer.ln_f.bias[64]");
}
END_TEST

#define MPT_BLOCK(i)                                                                               \
  "transformer.blocks." i ".norm_1.weight[64] transformer.blocks." i ".norm_1.bias[64] "           \
  "transformer.blocks." i ".attn.Wqkv.weight[192,64] transformer.blocks." i                        \
  ".attn.Wqkv.bias[192] transformer.blocks." i ".attn.out_proj.weight[64,64] "                     \
  "transformer.blocks." i ".attn.out_proj.bias[64] transformer.blocks." i                          \
  ".norm_2.weight[64] transformer.blocks." i ".norm_2.bias[64] transformer.blocks." i              \
  ".ffn.up_proj.weight[256,64] transformer.blocks." i ".ffn.up_proj.bias[256] "                    \
  "transformer.blocks." i ".ffn.down_proj.weight[64,256] transformer.blocks." i                    \
  ".ffn.down_proj.bias[64] "

START_TEST(mpt_has_llm_foundrys_parameters_and_multiplies_by_its_embedding)
{
  expect_parameters(MPT(""),
                    "transformer.wte.weight[100,64] transformer.wpe.weight[128,64] " MPT_BLOCK("0")
                        MPT_BLOCK("1") "transformer.norm_f.weight[64] transformer.norm_f.bias[64]");
}
END_TEST

/* no_bias takes biases away from norms too; ALiBi the positions; multi-query attention has one key
 * head (16 wide); an output layer of its own comes last. */
START_TEST(mpt_has_what_its_config_leaves_it)
{
  expect_parameters(
      "{\"model_type\": \"mpt\", \"d_model\": 64, \"n_layers\": 1, \"n_heads\": 4, "
      "\"expansion_ratio\": 2, \"vocab_size\": 100, \"no_bias\": true, "
      "\"tie_word_embeddings\": false, \"attn_config\": {\"alibi\": true, \"qk_ln\": true, "
      "\"attn_type\": \"multiquery_attention\"}}",
      "transformer.wte.weight[100,64] transformer.blocks.0.norm_1.weight[64] "
      "transformer.blocks.0.attn.Wqkv.weight[96,64] transformer.blocks.0.attn.q_ln.weight[64] "
      "transformer.blocks.0.attn.k_ln.weight[16] transformer.blocks.0.attn.out_proj.weight[64,64] "
      "transformer.blocks.0.norm_2.weight[64] transformer.blocks.0.ffn.up_proj.weight[128,64] "
      "transformer.blocks.0.ffn.down_proj.weight[64,128] transformer.norm_f.weight[64] "
      "lm_head.weight[100,64]");
}
END_TEST

/* llm-foundry's scripts/train/benchmarking/README.md: the 125M and the 7B model at 2048 tokens. */
START_TEST(mpt_has_as_many_parameters_as_llm_foundry_prints)
{
  static const struct {
    const char *config;
    gint64 parameters;
  } cases[] = {
      {"{\"model_type\": \"mpt\", \"d_model\": 768, \"n_layers\": 12, \"n_heads\": 12, "
       "\"vocab_size\": 50368}",
       125311488},
      {"{\"model_type\": \"mpt\", \"d_model\": 4096, \"n_layers\": 32, \"n_heads\": 32, "
       "\"vocab_size\": 50368}",
       6658859008},
  };
  for (guint i = 0; i < G_N_ELEMENTS(cases); i++) {
    g_autoptr(Scenario) s = fixture_good_scenario(cases[i].config, PLAN);
    ck_assert_int_eq(network_parameter_count(s->network), cases[i].parameters);
  }
}
END_TEST

START_TEST(an_output_of_its_own_or_a_tied_one_as_the_config_says)
{
  g_autoptr(Scenario) tied =
      fixture_good_scenario(LLAMA(TORCHTITAN ", \"tie_word_embeddings\": true"), PLAN);
  g_autoptr(Scenario) own =
      fixture_good_scenario(GPT2(NANOGPT ", \"tie_word_embeddings\": false"), PLAN);
  const Parameter *last =
      network_parameter(tied->network, (int) tied->network->parameters->len - 1);
  ck_assert_str_eq(last->name, "norm.weight");
  ck_assert_str_eq(network_module(tied->network, network_tie(tied->network, 0)->module)->path,
                   "output");
  last = network_parameter(own->network, (int) own->network->parameters->len - 1);
  ck_assert_str_eq(last->name, "output.weight");
  ck_assert_uint_eq(own->network->ties->len, 0);
}
END_TEST

/* Names of the parameters called bias in the first block. */
static char *
biases_text(const char *config)
{
  g_autoptr(Scenario) s = fixture_good_scenario(config, PLAN);
  const Block *block = network_block(s->network, 0);
  GString *text = g_string_new(NULL);
  for (int i = 0; i < block->parameter_count; i++) {
    const Parameter *p = network_parameter(s->network, block->first_parameter + i);
    const char *path = network_module(s->network, p->module)->path;
    if (g_str_equal(parameter_short_name(p), "bias"))
      g_string_append_printf(text, "%s%s", text->len > 0 ? " " : "", strrchr(path, '.') + 1);
  }
  return g_string_free(text, FALSE);
}

START_TEST(biases_are_where_the_config_has_them)
{
  static const struct {
    const char *config, *expected;
  } cases[] = {
      {LLAMA(TORCHTITAN), ""},
      {LLAMA(TORCHTITAN ", \"attention_bias\": true"), "wq wk wv wo"},
      {LLAMA(TORCHTITAN ", \"mlp_bias\": true"), "w1 w2 w3"},
      {"{\"model_type\": \"qwen2\", \"hidden_size\": 64, \"intermediate_size\": 96, "
       "\"num_hidden_layers\": 1, "
       "\"num_attention_heads\": 4, \"vocab_size\": 100}",
       "q_proj k_proj v_proj"},
      {"{\"model_type\": \"mistral\", \"hidden_size\": 64, \"intermediate_size\": 96, "
       "\"num_hidden_layers\": 1, "
       "\"num_attention_heads\": 4, \"vocab_size\": 100}",
       ""},
  };
  for (guint i = 0; i < G_N_ELEMENTS(cases); i++) {
    g_autofree char *text = biases_text(cases[i].config);
    ck_assert_str_eq(text, cases[i].expected);
  }
}
END_TEST

START_TEST(head_dim_may_differ_from_the_width_over_the_heads)
{
  g_autoptr(Scenario) s = fixture_good_scenario(LLAMA(TORCHTITAN ", \"head_dim\": 32"), PLAN);
  const Block *block = network_block(s->network, 0);
  const gint64 *q = network_parameter(s->network, block->first_parameter)->shape;
  const gint64 *k = network_parameter(s->network, block->first_parameter + 1)->shape;
  const gint64 *o = network_parameter(s->network, block->first_parameter + 3)->shape;
  ck_assert_int_eq(q[0], 4 * 32);
  ck_assert_int_eq(k[0], 2 * 32);
  ck_assert_int_eq(o[0], 64);
  ck_assert_int_eq(o[1], 4 * 32);
  ck_assert_int_eq(s->network->attention_width, 4 * 32);
}
END_TEST

START_TEST(missing_fields_have_the_defaults_of_transformers)
{
  /* as many key heads as heads; GPT-2's MLP four times as wide; 1024 positions */
  g_autoptr(Scenario) llama = fixture_good_scenario(
      "{\"model_type\": \"llama\", \"hidden_size\": 64, \"intermediate_size\": 96, "
      "\"num_hidden_layers\": 1, "
      "\"num_attention_heads\": 4, \"num_key_value_heads\": null, \"vocab_size\": 100" TORCHTITAN
      "}",
      PLAN);
  g_autoptr(Scenario) gpt2 =
      fixture_good_scenario("{\"model_type\": \"gpt2\", \"n_embd\": 64, \"n_layer\": 1, "
                            "\"n_head\": 4, \"n_inner\": null, \"vocab_size\": 100}",
                            PLAN);
  ck_assert_int_eq(network_parameter(llama->network, 2)->shape[0], 64);
  ck_assert_int_eq(network_parameter(gpt2->network, 1)->shape[0], 1024);
  ck_assert_int_eq(network_parameter(gpt2->network, 10)->shape[1], 256);
}
END_TEST

/* ---- blocks ---- */

START_TEST(blocks_that_are_alike_share_a_function)
{
  static const char *const configs[] = {LLAMA(TORCHTITAN), LLAMA(""), GPT2(NANOGPT), GPT2("")};
  for (guint i = 0; i < G_N_ELEMENTS(configs); i++) {
    g_autoptr(Scenario) s = fixture_good_scenario(configs[i], PLAN);
    const Network *n = s->network;
    ck_assert_uint_eq(n->blocks->len, 2);
    ck_assert_int_eq(network_block(n, 0)->function, network_block(n, 1)->function);
    ck_assert_int_eq(network_block(n, 0)->parameter_count, network_block(n, 1)->parameter_count);
    ck_assert_uint_eq(n->embedding_modules->len, 1);
    ck_assert_uint_eq(n->head_modules->len, 2); /* final norm and output layer */
  }
}
END_TEST

#define TITAN_ROPE "to_copy mul_complex to_copy "
#define HALF_ROPE "mul neg cat mul add "

START_TEST(a_torchtitan_block_launches_what_its_forward_says)
{
  expect_block_ops(LLAMA(TORCHTITAN), PLAN,
                   "fused_rms_norm mm mm mm " TITAN_ROPE TITAN_ROPE "flash_attention mm add "
                   "fused_rms_norm mm silu mm mul mm add");
}
END_TEST

START_TEST(a_transformers_block_launches_what_its_forward_says)
{
  /* LlamaRMSNorm: to fp32, x^2, mean, + eps, rsqrt, x *, to bf16, weight * */
  static const char norm[] = "to_copy pow mean add_scalar rsqrt mul to_copy mul ";
  g_autofree char *expected =
      g_strconcat(norm, "mm mm mm " HALF_ROPE HALF_ROPE "flash_attention mm add ", norm,
                  "mm silu mm mul mm add", NULL);
  expect_block_ops(LLAMA(""), PLAN, expected);
}
END_TEST

START_TEST(a_gpt2_block_has_one_projection_and_its_own_gelu)
{
  static const char attention[] = "native_layer_norm addmm flash_attention addmm ";
  /* NewGELUActivation: 0.5 * x * (1 + tanh(c * (x + 0.044715 * x^3))) */
  static const char new_gelu[] = "mul_scalar pow mul_scalar add mul_scalar tanh add_scalar mul ";
  g_autofree char *nano =
      g_strconcat(attention, "add native_layer_norm addmm gelu addmm add", NULL);
  g_autofree char *hub = g_strconcat(attention, "native_dropout add native_layer_norm addmm ",
                                     new_gelu, "addmm native_dropout add", NULL);
  g_autofree char *hub_fused =
      g_strconcat(attention, "add native_layer_norm addmm gelu addmm add", NULL);
  expect_block_ops(GPT2(NANOGPT), PLAN, nano);
  expect_block_ops(GPT2(""), PLAN, hub);
  expect_block_ops(GPT2(", \"resid_pdrop\": 0, \"activation_function\": \"gelu_pytorch_tanh\""),
                   PLAN, hub_fused);
}
END_TEST

START_TEST(an_mpt_block_is_fused_or_composed_as_attn_impl_says)
{
  expect_block_ops(MPT(""), PLAN,
                   "native_layer_norm addmm flash_attention addmm add native_layer_norm addmm gelu "
                   "addmm add");
  /* q k^T, scaled, + ALiBi, a new causal mask, softmax, times v, heads side by side again; heads of
   * one sequence are views for a product */
  expect_block_ops(MPT(", \"no_bias\": true, \"attn_config\": {\"attn_impl\": \"torch\", "
                       "\"alibi\": true, \"clip_qkv\": 6}"),
                   PLAN,
                   "native_layer_norm mm clamp bmm mul_scalar add create create create create "
                   "masked_fill softmax to_copy bmm clone mm add native_layer_norm mm gelu mm add");
}
END_TEST

/* Triton's kernel wants a key head for each query head; FlashAttention-2 does not. */
START_TEST(mpt_repeats_key_heads_where_its_kernel_needs_them)
{
#define GROUPED(impl)                                                                              \
  MPT(", \"attn_config\": {\"attn_type\": \"grouped_query_attention\", \"kv_n_heads\": 2, "        \
      "\"attn_impl\": \"" impl "\"}")
  static const char rest[] = "flash_attention addmm add native_layer_norm addmm gelu addmm add";
  g_autofree char *flash = g_strconcat("native_layer_norm addmm ", rest, NULL);
  g_autofree char *triton = g_strconcat("native_layer_norm addmm clone clone ", rest, NULL);
  expect_block_ops(GROUPED("flash"), PLAN, flash);
  expect_block_ops(GROUPED("triton"), PLAN, triton);
}
END_TEST

/* composer/metrics/nlp.py: two metrics, each a cross entropy under autocast. */
START_TEST(llm_foundry_measures_each_batch_again_unless_told_not_to)
{
  g_autoptr(Scenario) with = fixture_good_scenario(MPT(""), PLAN);
  g_autoptr(Scenario) without = fixture_good_scenario(
      MPT(", \"implementation\": {\"code\": \"llm-foundry\", \"train_metrics\": false}"), PLAN);
  ck_assert_int_eq(without->network->after_backward, -1);
  ck_assert_int_ge(with->network->after_backward, 0);
  const Function *f = network_function(with->network, with->network->after_backward);
  GString *text = g_string_new(NULL);
  for (guint i = 0; i < f->ops->len; i++) {
    const Op *op = &g_array_index(f->ops, Op, i);
    ck_assert_int_eq(op->node, FALSE);
    g_string_append_printf(text, "%s ", op->info->name);
  }
  ck_assert_str_eq(text->str,
                   "view log_softmax to_copy nll_loss view log_softmax to_copy nll_loss ");
  g_string_free(text, TRUE);
}
END_TEST

START_TEST(llm_foundrys_loss_is_one_kernel_and_a_mean)
{
  g_autoptr(Scenario) s = fixture_good_scenario(MPT(""), PLAN);
  const Function *f = network_function(s->network, s->network->main);
  ck_assert_uint_ge(f->ops->len, 3);
  const Op *last = &g_array_index(f->ops, Op, f->ops->len - 1);
  ck_assert_str_eq(last[-2].info->name, "fused_cross_entropy");
  ck_assert_str_eq(last[-1].info->name, "sum");
  ck_assert_str_eq(last[0].info->name, "div_scalar");
}
END_TEST

/* Which kernel computes the attention of a block: the first op with attention in its name, or
 * "bmm". */
static const char *
attention_of(const char *config, const char *plan)
{
  g_autoptr(Scenario) s = fixture_good_scenario(config, plan);
  const Function *f = network_function(s->network, network_block(s->network, 0)->function);
  for (guint i = 0; i < f->ops->len; i++) {
    const char *name = g_array_index(f->ops, Op, i).info->name;
    if (g_str_has_suffix(name, "attention") || g_str_equal(name, "bmm"))
      return name;
  }
  return "none";
}

#define ATTENTION(name)                                                                            \
  ", \"implementation\": {\"code\": \"torchtitan\", \"attention\": \"" name "\"}"
#define MHA(more)                                                                                  \
  "{\"model_type\": \"llama\", \"hidden_size\": 64, \"intermediate_size\": 96, "                   \
  "\"num_hidden_layers\": 1, \"num_attention_heads\": 4, \"vocab_size\": 100" more "}"
#define FP32_PLAN "{\"batch\": {\"sequence_length\": 32}}"

/* sdp_utils.cpp: flash wants 16 bits and no mask, efficient as many key heads as heads, else the
 * composed form. */
START_TEST(the_attention_kernel_is_the_preferred_one_where_it_can_run)
{
  static const struct {
    const char *config, *plan, *expected;
  } cases[] = {
      {LLAMA(TORCHTITAN), PLAN, "flash_attention"},
      {MHA(TORCHTITAN), FP32_PLAN, "efficient_attention"},
      {LLAMA(TORCHTITAN), FP32_PLAN, "bmm"},
      {LLAMA(ATTENTION("flash")), FP32_PLAN, "bmm"},
      {MHA(ATTENTION("efficient")), PLAN, "efficient_attention"},
      {LLAMA(ATTENTION("efficient")), PLAN, "bmm"},
      {LLAMA(ATTENTION("math")), PLAN, "bmm"},
  };
  for (guint i = 0; i < G_N_ELEMENTS(cases); i++)
    ck_assert_str_eq(attention_of(cases[i].config, cases[i].plan), cases[i].expected);
}
END_TEST

START_TEST(key_heads_are_copied_before_attention_when_the_implementation_repeats_them)
{
  expect_block_ops(LLAMA(", \"implementation\": {\"code\": \"torchtitan\", \"kv_heads\": "
                         "\"repeated\", \"rope\": \"none\"}"),
                   PLAN,
                   "fused_rms_norm mm mm mm clone clone flash_attention mm add fused_rms_norm mm "
                   "silu mm mul mm add");
}
END_TEST

START_TEST(a_mistral_window_shorter_than_the_sequence_needs_a_mask)
{
#define MISTRAL(window)                                                                            \
  "{\"model_type\": \"mistral\", \"hidden_size\": 64, \"intermediate_size\": 96, "                 \
  "\"num_hidden_layers\": 1, \"num_attention_heads\": 4, \"vocab_size\": 100, "                    \
  "\"sliding_window\": " window "}"
  ck_assert_str_eq(attention_of(MISTRAL("16"), PLAN), "efficient_attention");
  ck_assert_str_eq(attention_of(MISTRAL("64"), PLAN), "flash_attention");
  ck_assert_str_eq(attention_of(MISTRAL("null"), PLAN), "flash_attention");
}
END_TEST

START_TEST(the_loss_is_divided_by_the_micro_batches_when_there_are_several)
{
  static const char *const plans[] = {
      PLAN, "{\"precision\": {\"parameters\": \"bf16\"}, \"batch\": {\"sequence_length\": 32}, "
            "\"accumulation\": {\"steps\": 2}}"};
  for (guint i = 0; i < 2; i++) {
    g_autoptr(Scenario) s = fixture_good_scenario(LLAMA(TORCHTITAN), plans[i]);
    const Function *f = network_function(s->network, s->network->main);
    const Op *last = &g_array_index(f->ops, Op, f->ops->len - 1);
    ck_assert_str_eq(last->info->name, i == 0 ? "nll_loss" : "div_scalar");
  }
}
END_TEST

START_TEST(the_loss_is_in_the_dtype_that_the_implementation_says)
{
#define LOSS(name) ", \"implementation\": {\"code\": \"torchtitan\", \"loss\": \"" name "\"}"
  static const struct {
    const char *config;
    DType expected;
  } cases[] = {{LLAMA(LOSS("fp32")), DTYPE_FP32},
               {LLAMA(LOSS("model")), DTYPE_BF16},
               {LLAMA(""), DTYPE_FP32}};
  for (guint i = 0; i < G_N_ELEMENTS(cases); i++) {
    g_autoptr(Scenario) s = fixture_good_scenario(cases[i].config, PLAN);
    const Function *f = network_function(s->network, s->network->main);
    ck_assert_int_eq(g_array_index(f->values, ValueInfo, f->result).dtype, cases[i].expected);
  }
}
END_TEST

/* ---- refusals ---- */

#define HUGE "1099511627776" /* 2^40 */

START_TEST(a_config_that_cannot_be_is_refused_with_its_file_and_key)
{
  static const struct {
    const char *config, *message;
  } cases[] = {
      {"{\"model_type\": \"mamba\"}", "net.json: key 'model_type': 'mamba' is not one of llama,"},
      {"{\"model_type\": \"llama\"}", "net.json: key 'hidden_size' is missing"},
      {"{\"model_type\": \"gpt2\"}", "net.json: key 'hidden_size' is missing"},
  };
  for (guint i = 0; i < G_N_ELEMENTS(cases); i++) {
    g_autoptr(GError) error = NULL;
    ck_assert_ptr_null(fixture_scenario(cases[i].config, PLAN, &error));
    ck_assert(test_error_says(error, cases[i].message));
  }
}
END_TEST

/* A config with one field replaced (or added) by this JSON.  Caller frees. */
static char *
with_field(const char *config, const char *key, const char *value)
{
  cJSON *root = cJSON_Parse(config);
  cJSON_DeleteItemFromObjectCaseSensitive(root, key);
  cJSON_AddRawToObject(root, key, value);
  char *text = cJSON_PrintUnformatted(root), *copy = g_strdup(text);
  cJSON_free(text);
  cJSON_Delete(root);
  return copy;
}

START_TEST(a_wrong_field_is_refused_with_its_file_and_key)
{
  static const struct {
    const char *config, *key, *value, *message;
  } cases[] = {
      {LLAMA(""), "num_hidden_layers", "0", "net.json: key 'num_hidden_layers': 0 is not in 1.."},
      {LLAMA(""), "num_hidden_layers", "-3", "net.json: key 'num_hidden_layers': -3 is not in 1.."},
      {LLAMA(""), "num_hidden_layers", "4097",
       "net.json: key 'num_hidden_layers': 4097 is not in 1..4096"},
      {LLAMA(""), "num_hidden_layers", HUGE,
       "net.json: key 'num_hidden_layers': " HUGE " is not in 1..4096"},
      {LLAMA(""), "num_hidden_layers", "2.5",
       "net.json: key 'num_hidden_layers': 2.5 is not a whole number"},
      {LLAMA(""), "num_hidden_layers", "\"2\"",
       "net.json: key 'num_hidden_layers': a whole number is needed"},
      {LLAMA(""), "hidden_size", "-64", "net.json: key 'hidden_size': -64 is not in 1.."},
      {LLAMA(""), "hidden_size", "1e400", "net.json: key 'hidden_size'"},
      {LLAMA(""), "vocab_size", "0", "net.json: key 'vocab_size': 0 is not in 1.."},
      {LLAMA(""), "num_attention_heads", "3",
       "net.json: key 'num_key_value_heads': 2 does not divide the 3 attention heads"},
      {LLAMA(""), "num_key_value_heads", "3",
       "net.json: key 'num_key_value_heads': 3 does not divide the 4 attention heads"},
      {LLAMA(""), "num_key_value_heads", "8",
       "net.json: key 'num_key_value_heads': 8 does not divide the 4 attention heads"},
      {LLAMA(""), "num_attention_heads", "6",
       "net.json: key 'num_attention_heads': 6 does not divide the width 64"},
      {LLAMA(""), "head_dim", "15", "net.json: key 'head_dim': 15 is odd"},
      {WIDE_LLAMA, "vocab_size", HUGE,
       "net.json: key 'vocab_size': " HUGE " x 128 elements are too many"},
      {WIDE_LLAMA, "intermediate_size", HUGE,
       "net.json: key 'intermediate_size': " HUGE " x 128 elements are too many"},
      {LLAMA(""), "hidden_size", HUGE,
       "net.json: key 'intermediate_size': 96 x " HUGE " elements are too many"},
      {LLAMA(""), "head_dim", HUGE,
       "net.json: key 'num_attention_heads': 4398046511104 x 64 elements are too many"},
      {LLAMA(""), "hidden_act", "\"maxout\"",
       "net.json: key 'hidden_act': 'maxout' is not one of silu, "},
      {GPT2(""), "n_layer", "0", "net.json: key 'n_layer': 0 is not in 1.."},
      {GPT2(""), "n_layer", "100000", "net.json: key 'n_layer': 100000 is not in 1..4096"},
      {GPT2(""), "n_head", "3", "net.json: key 'n_head': 3 does not divide the width 64"},
      {GPT2(""), "n_embd", HUGE,
       "net.json: key 'n_embd': 3298534883328 x " HUGE " elements are too many"},
      {WIDE_GPT2, "n_inner", HUGE, "net.json: key 'n_inner': " HUGE " x 128 elements are too many"},
      {WIDE_GPT2, "n_positions", HUGE,
       "net.json: key 'n_positions': " HUGE " x 128 elements are too many"},
      {GPT2(""), "n_positions", "16",
       "net.json: key 'n_positions': 16 positions are fewer than the plan's sequence_length 32"},
      {GPT2(""), "activation_function", "\"relu\"",
       "net.json: key 'activation_function': 'relu' is not supported"},
      {MPT(""), "n_heads", "3", "net.json: key 'n_heads': 3 does not divide the width 64"},
      {MPT(""), "max_seq_len", "16",
       "net.json: key 'max_seq_len': 16 positions are fewer than the plan's sequence_length 32"},
      {MPT(""), "norm_type", "\"rmsnorm\"",
       "net.json: key 'norm_type': 'rmsnorm' is not supported"},
      {MPT(""), "attn_config", "{\"rope\": true}",
       "net.json: key 'attn_config.rope': is not supported"},
      {MPT(""), "attn_config", "{\"attn_impl\": \"sdpa\"}",
       "net.json: key 'attn_config.attn_impl': 'sdpa' is not one of torch, flash, triton"},
      {MPT(""), "attn_config", "{\"attn_type\": \"grouped_query_attention\", \"kv_n_heads\": 3}",
       "net.json: key 'attn_config.kv_n_heads': 3 does not divide the 4 heads"},
      {MPT(""), "d_model", HUGE,
       "net.json: key 'd_model': 3298534883328 x " HUGE " elements are too many"},
      {MPT(""), "expansion_ratio", HUGE, "net.json: key 'expansion_ratio': "},
      {MPT(""), "implementation", "\"torchtitan\"",
       "net.json: key 'implementation': mpt has llm-foundry's code or transformers'"},
      {LLAMA(""), "implementation", "\"llm-foundry\"",
       "net.json: key 'implementation': llm-foundry's code is of mpt alone"},
      {LLAMA(""), "implementation", "{\"train_metrics\": true}",
       "net.json: key 'implementation': train_metrics are llm-foundry's alone"},
  };
  for (guint i = 0; i < G_N_ELEMENTS(cases); i++) {
    g_autoptr(GError) error = NULL;
    g_autofree char *config = with_field(cases[i].config, cases[i].key, cases[i].value);
    ck_assert_msg(fixture_scenario(config, PLAN, &error) == NULL, "%s: %s is accepted",
                  cases[i].key, cases[i].value);
    ck_assert(test_error_says(error, cases[i].message));
    ck_assert_ptr_null(strchr(error->message, '\n'));
  }
}
END_TEST

START_TEST(sizes_beyond_63_bits_are_errors_and_do_not_wrap)
{
  /* 2^40 squared is 2^80: as an int64 it would be 0 */
  g_autoptr(GError) error = NULL;
  g_autofree char *wide = with_field(LLAMA(TORCHTITAN), "hidden_size", HUGE);
  g_autofree char *config = with_field(wide, "vocab_size", HUGE);
  ck_assert_ptr_null(fixture_scenario(config, PLAN, &error));
  ck_assert(test_error_says(error, "net.json: key 'intermediate_size'"));
}
END_TEST

START_TEST(a_batch_that_is_too_large_for_the_network_is_an_error_that_names_it)
{
  static const char *const configs[] = {LLAMA(TORCHTITAN), LLAMA("")};
  for (guint i = 0; i < G_N_ELEMENTS(configs); i++) {
    g_autoptr(GError) error = NULL;
    ck_assert_ptr_null(fixture_scenario(
        configs[i], "{\"batch\": {\"micro_batch\": 1048576, \"sequence_length\": 2147483647}}",
        &error));
    ck_assert(test_error_says(error, "net.json: "));
    ck_assert(
        test_error_says(error, "batch.micro_batch 1048576 and batch.sequence_length 2147483647"));
  }
}
END_TEST

START_TEST(more_parameters_than_can_be_counted_are_an_error)
{
  /* 2^22 x 2^22 in each of seven matrices of 4096 blocks */
  g_autoptr(GError) error = NULL;
  ck_assert_ptr_null(
      fixture_scenario("{\"model_type\": \"llama\", \"hidden_size\": 4194304, "
                       "\"intermediate_size\": 4194304, \"num_hidden_layers\": 4096, "
                       "\"num_attention_heads\": 4096, \"vocab_size\": 100" TORCHTITAN "}",
                       PLAN, &error));
  ck_assert(test_error_says(error, "net.json: "));
  ck_assert(test_error_says(error, "more than 2^50 parameters"));
}
END_TEST

START_TEST(more_parameter_tensors_than_operands_can_name_are_an_error)
{
  /* the embedding, then nine a block: number 16384 has index 16383 = 1 + 9 * 1820 + 2, wv */
  g_autoptr(GError) error = NULL;
  g_autofree char *config = with_field(LLAMA(TORCHTITAN), "num_hidden_layers", "4096");
  g_autofree char *most = with_field(LLAMA(TORCHTITAN), "num_hidden_layers", "1820");
  ck_assert_ptr_null(fixture_scenario(config, PLAN, &error));
  ck_assert(test_error_says(error, "net.json: layers.1820.attention.wv.weight: "));
  ck_assert(test_error_says(error, "more than 16383 parameter tensors"));
  g_autoptr(Scenario) s = fixture_good_scenario(most, PLAN);
  ck_assert_uint_eq(s->network->parameters->len, 3 + 9 * 1820);
}
END_TEST

Suite *
test_suite(void)
{
  Suite *suite = suite_create("families");
  TCase *modules = tcase_create("modules"), *blocks = tcase_create("blocks"),
        *refusals = tcase_create("refusals");
  tcase_add_test(modules, llama_of_torchtitan_has_its_parameters_in_its_order);
  tcase_add_test(modules, llama_of_transformers_has_its_parameters_in_its_order);
  tcase_add_test(modules, gpt2_of_nanogpt_has_its_parameters_in_its_order_and_a_tied_output);
  tcase_add_test(modules, gpt2_of_transformers_has_its_parameters_in_its_order);
  tcase_add_test(modules, mpt_has_llm_foundrys_parameters_and_multiplies_by_its_embedding);
  tcase_add_test(modules, mpt_has_what_its_config_leaves_it);
  tcase_add_test(modules, mpt_has_as_many_parameters_as_llm_foundry_prints);
  tcase_add_test(modules, an_output_of_its_own_or_a_tied_one_as_the_config_says);
  tcase_add_test(modules, biases_are_where_the_config_has_them);
  tcase_add_test(modules, head_dim_may_differ_from_the_width_over_the_heads);
  tcase_add_test(modules, missing_fields_have_the_defaults_of_transformers);
  tcase_add_test(blocks, blocks_that_are_alike_share_a_function);
  tcase_add_test(blocks, a_torchtitan_block_launches_what_its_forward_says);
  tcase_add_test(blocks, a_transformers_block_launches_what_its_forward_says);
  tcase_add_test(blocks, a_gpt2_block_has_one_projection_and_its_own_gelu);
  tcase_add_test(blocks, an_mpt_block_is_fused_or_composed_as_attn_impl_says);
  tcase_add_test(blocks, mpt_repeats_key_heads_where_its_kernel_needs_them);
  tcase_add_test(blocks, llm_foundry_measures_each_batch_again_unless_told_not_to);
  tcase_add_test(blocks, llm_foundrys_loss_is_one_kernel_and_a_mean);
  tcase_add_test(blocks, the_attention_kernel_is_the_preferred_one_where_it_can_run);
  tcase_add_test(blocks,
                 key_heads_are_copied_before_attention_when_the_implementation_repeats_them);
  tcase_add_test(blocks, a_mistral_window_shorter_than_the_sequence_needs_a_mask);
  tcase_add_test(blocks, the_loss_is_divided_by_the_micro_batches_when_there_are_several);
  tcase_add_test(blocks, the_loss_is_in_the_dtype_that_the_implementation_says);
  tcase_add_test(refusals, a_config_that_cannot_be_is_refused_with_its_file_and_key);
  tcase_add_test(refusals, a_wrong_field_is_refused_with_its_file_and_key);
  tcase_add_test(refusals, sizes_beyond_63_bits_are_errors_and_do_not_wrap);
  tcase_add_test(refusals, a_batch_that_is_too_large_for_the_network_is_an_error_that_names_it);
  tcase_add_test(refusals, more_parameters_than_can_be_counted_are_an_error);
  tcase_add_test(refusals, more_parameter_tensors_than_operands_can_name_are_an_error);
  suite_add_tcase(suite, modules);
  suite_add_tcase(suite, blocks);
  suite_add_tcase(suite, refusals);
  return suite;
}
