/* check_classic.c - decoders with LayerNorm and a plain feed-forward, from GPT-Neo to Falcon: a
 * small network of each family has as many parameters as transformers' model of the same
 * config.json, and its steps reach the same peaks of memory (small_network.h). */
#include "small_network.h"
#include "tap_main.h"

/* A row is a name, a config, whether attention is eager and blocks are
 * checkpointed, parameters, and the peaks of two steps */
static const SmallNetwork measured[] = {
    {"GPT-NeoX",
     "'model_type': 'gpt_neox', 'hidden_size': 256, 'intermediate_size': 1024, "
     "'num_hidden_layers': 2, 'num_attention_heads': 4, 'vocab_size': 1000, 'rotary_pct': 0.25, "
     "'max_position_embeddings': 2048, 'tie_word_embeddings': false, 'use_parallel_residual': true",
     FALSE,
     FALSE,
     2092032,
     {{88368640, 157286400}, {99495424, 165675008}}},
    {"GPT-NeoX, checkpointed",
     "'model_type': 'gpt_neox', 'hidden_size': 256, 'intermediate_size': 1024, "
     "'num_hidden_layers': 2, 'num_attention_heads': 4, 'vocab_size': 1000, 'rotary_pct': 0.25, "
     "'max_position_embeddings': 2048, 'tie_word_embeddings': false, 'use_parallel_residual': true",
     FALSE,
     TRUE,
     2092032,
     {{87842304, 153092096}, {96224768, 163577856}}},
    {"GPT-NeoX, one after the other, dropouts, no biases, eager",
     "'model_type': 'gpt_neox', 'hidden_size': 256, 'intermediate_size': 1024, "
     "'num_hidden_layers': 2, 'num_attention_heads': 4, 'vocab_size': 1000, 'rotary_pct': 0.25, "
     "'max_position_embeddings': 2048, 'tie_word_embeddings': false, 'use_parallel_residual': "
     "false, 'hidden_dropout': 0.1, 'attention_dropout': 0.1, 'attention_bias': false",
     TRUE,
     FALSE,
     2089984,
     {{96467456, 159383552}, {106456576, 167772160}}},
    {"GPT-J",
     "'model_type': 'gptj', 'n_embd': 256, 'n_layer': 2, 'n_head': 4, 'n_positions': 512, "
     "'rotary_dim': 32, 'vocab_size': 1000, 'tie_word_embeddings': false",
     FALSE,
     FALSE,
     2089960,
     {{93776384, 163577856}, {103845888, 171966464}}},
    {"GPT-J, dropouts, eager",
     "'model_type': 'gptj', 'n_embd': 256, 'n_layer': 2, 'n_head': 4, 'n_positions': 512, "
     "'rotary_dim': 32, 'vocab_size': 1000, 'tie_word_embeddings': false, 'resid_pdrop': 0.1, "
     "'embd_pdrop': 0.1",
     TRUE,
     FALSE,
     2089960,
     {{101622272, 167772160}, {111872000, 176160768}}},
    {"GPT-Neo, dropouts",
     "'model_type': 'gpt_neo', 'hidden_size': 256, 'num_layers': 2, 'num_heads': 4, "
     "'attention_types': [[['global', 'local'], 1]], 'vocab_size': 1000, "
     "'max_position_embeddings': 512, 'window_size': 256, 'resid_dropout': 0.1, 'embed_dropout': "
     "0.1, 'attention_dropout': 0.1",
     TRUE,
     FALSE,
     1965568,
     {{103557632, 167772160}, {113312768, 174063616}}},
    {"GPT-Neo, checkpointed: a block's probabilities outlive it",
     "'model_type': 'gpt_neo', 'hidden_size': 256, 'num_layers': 2, 'num_heads': 4, "
     "'attention_types': [[['global', 'local'], 1]], 'vocab_size': 1000, "
     "'max_position_embeddings': 512, 'window_size': 256",
     TRUE,
     TRUE,
     1965568,
     {{95433216, 157286400}, {103310848, 165675008}}},
    {"Phi, grouped",
     "'model_type': 'phi', 'hidden_size': 256, 'intermediate_size': 1024, 'num_hidden_layers': 2, "
     "'num_attention_heads': 4, 'num_key_value_heads': 2, 'vocab_size': 1000, "
     "'tie_word_embeddings': false, 'partial_rotary_factor': 0.5, 'max_position_embeddings': 2048",
     FALSE,
     FALSE,
     1960424,
     {{93096960, 163577856}, {102783488, 169869312}}},
    {"Phi, dropouts, another GELU",
     "'model_type': 'phi', 'hidden_size': 256, 'intermediate_size': 1024, 'num_hidden_layers': 2, "
     "'num_attention_heads': 4, 'num_key_value_heads': 4, 'vocab_size': 1000, "
     "'tie_word_embeddings': false, 'partial_rotary_factor': 0.5, 'max_position_embeddings': 2048, "
     "'resid_pdrop': 0.1, 'embd_pdrop': 0.1, 'attention_dropout': 0.1, 'hidden_act': 'gelu_fast'",
     FALSE,
     FALSE,
     2092008,
     {{100961792, 169869312}, {111172608, 178257920}}},
    {"OPT, dropout",
     "'model_type': 'opt', 'hidden_size': 256, 'ffn_dim': 1024, 'num_hidden_layers': 2, "
     "'num_attention_heads': 4, 'vocab_size': 1000, 'word_embed_proj_dim': 256, "
     "'max_position_embeddings': 512, 'do_layer_norm_before': true",
     FALSE,
     FALSE,
     1967616,
     {{86153728, 153092096}, {95869440, 161480704}}},
    {"OPT, checkpointed",
     "'model_type': 'opt', 'hidden_size': 256, 'ffn_dim': 1024, 'num_hidden_layers': 2, "
     "'num_attention_heads': 4, 'vocab_size': 1000, 'word_embed_proj_dim': 256, "
     "'max_position_embeddings': 512, 'do_layer_norm_before': true, 'dropout': 0.0",
     FALSE,
     TRUE,
     1967616,
     {{86809088, 150994944}, {94697984, 159383552}}},
    {"OPT as the 350m: projections, norms last",
     "'model_type': 'opt', 'hidden_size': 256, 'ffn_dim': 1024, 'num_hidden_layers': 2, "
     "'num_attention_heads': 4, 'vocab_size': 1000, 'word_embed_proj_dim': 128, "
     "'max_position_embeddings': 512, 'do_layer_norm_before': false, 'dropout': 0.0",
     FALSE,
     FALSE,
     1904640,
     {{85182976, 153092096}, {94837248, 159383552}}},
    {"BLOOM, six heads",
     "'model_type': 'bloom', 'hidden_size': 288, 'n_layer': 2, 'n_head': 6, 'vocab_size': 1000",
     TRUE,
     FALSE,
     2287296,
     {{106048000, 174063616}, {115228672, 184549376}}},
    {"BLOOM, dropout",
     "'model_type': 'bloom', 'hidden_size': 256, 'n_layer': 2, 'n_head': 4, 'vocab_size': 1000, "
     "'hidden_dropout': 0.1",
     TRUE,
     FALSE,
     1836544,
     {{97407488, 161480704}, {104768512, 167772160}}},
    {"BLOOM, checkpointed",
     "'model_type': 'bloom', 'hidden_size': 256, 'n_layer': 2, 'n_head': 4, 'vocab_size': 1000",
     TRUE,
     TRUE,
     1836544,
     {{94139904, 155189248}, {101500928, 163577856}}},
    {"Falcon, one head of keys",
     "'model_type': 'falcon', 'hidden_size': 256, 'num_hidden_layers': 2, 'num_attention_heads': "
     "4, 'vocab_size': 1000, 'multi_query': true, 'new_decoder_architecture': false, "
     "'parallel_attn': true, 'bias': false, 'alibi': false",
     FALSE,
     FALSE,
     1633792,
     {{92589056, 153092096}, {99131904, 159383552}}},
    {"Falcon, checkpointed",
     "'model_type': 'falcon', 'hidden_size': 256, 'num_hidden_layers': 2, 'num_attention_heads': "
     "4, 'vocab_size': 1000, 'multi_query': true, 'new_decoder_architecture': false, "
     "'parallel_attn': true, 'bias': false, 'alibi': false",
     FALSE,
     TRUE,
     1633792,
     {{88852480, 148897792}, {95395328, 155189248}}},
    {"Falcon, new architecture",
     "'model_type': 'falcon', 'hidden_size': 256, 'num_hidden_layers': 2, 'num_attention_heads': "
     "4, 'num_kv_heads': 2, 'vocab_size': 1000, 'multi_query': true, 'new_decoder_architecture': "
     "true, 'parallel_attn': true, 'bias': false, 'alibi': false",
     FALSE,
     FALSE,
     1700352,
     {{84753408, 153092096}, {94445056, 159383552}}},
    {"Falcon, ALiBi, biases, dropouts",
     "'model_type': 'falcon', 'hidden_size': 256, 'num_hidden_layers': 2, 'num_attention_heads': "
     "4, 'vocab_size': 1000, 'multi_query': false, 'new_decoder_architecture': false, "
     "'parallel_attn': false, 'bias': true, 'alibi': true, 'hidden_dropout': 0.1, "
     "'attention_dropout': 0.1",
     FALSE,
     FALSE,
     1836032,
     {{86932992, 153092096}, {96904192, 161480704}}},
    {"GPTBigCode, dropouts",
     "'model_type': 'gpt_bigcode', 'n_embd': 256, 'n_layer': 2, 'n_head': 4, 'n_inner': 1024, "
     "'n_positions': 512, 'vocab_size': 1000, 'multi_query': true",
     FALSE,
     FALSE,
     1769728,
     {{86278656, 153092096}, {96183296, 161480704}}},
    {"GPTBigCode, checkpointed",
     "'model_type': 'gpt_bigcode', 'n_embd': 256, 'n_layer': 2, 'n_head': 4, 'n_inner': 1024, "
     "'n_positions': 512, 'vocab_size': 1000, 'multi_query': true, 'resid_pdrop': 0.0, "
     "'embd_pdrop': 0.0, 'attn_pdrop': 0.0",
     FALSE,
     TRUE,
     1769728,
     {{85486592, 150994944}, {92580864, 157286400}}},
    {"GPTBigCode, all heads, eager",
     "'model_type': 'gpt_bigcode', 'n_embd': 256, 'n_layer': 2, 'n_head': 4, 'n_inner': 1024, "
     "'n_positions': 512, 'vocab_size': 1000, 'multi_query': false",
     TRUE,
     FALSE,
     1967104,
     {{96223232, 157286400}, {105720320, 165675008}}},
    {"MPT, clipped",
     "'model_type': 'mpt', 'd_model': 256, 'n_heads': 4, 'n_layers': 2, 'max_seq_len': 512, "
     "'vocab_size': 1000, 'tie_word_embeddings': true, 'attn_config': {'clip_qkv': 8.0}",
     TRUE,
     FALSE,
     1830144,
     {{95144960, 157286400}, {103310336, 163577856}}},
    {"MPT, six heads, checkpointed",
     "'model_type': 'mpt', 'd_model': 288, 'n_heads': 6, 'n_layers': 2, 'max_seq_len': 512, "
     "'vocab_size': 1000, 'tie_word_embeddings': true",
     TRUE,
     TRUE,
     2280096,
     {{96786944, 148897792}, {105918976, 157286400}}},
};

START_TEST(a_small_network_takes_the_memory_that_transformers_took)
{
  small_network_expect(&measured[_i]);
}
END_TEST

static const SmallNetwork autocast[] = {
    {"OPT with a GELU in Python: powers are in fp32",
     "'model_type': 'opt', 'hidden_size': 256, 'ffn_dim': 384, 'num_hidden_layers': 2, "
     "'num_attention_heads': 4, 'vocab_size': 1000, 'word_embed_proj_dim': 256, "
     "'activation_function': 'gelu_new', 'dropout': 0",
     FALSE,
     FALSE,
     1704192,
     {{95447040, 115343360}, {110585856, 123731968}}},
    {"Phi: a concatenation promotes without a copy",
     "'model_type': 'phi', 'hidden_size': 256, 'intermediate_size': 384, 'num_hidden_layers': 2, "
     "'num_attention_heads': 4, 'vocab_size': 1000",
     FALSE,
     FALSE,
     1435368,
     {{92264448, 115343360}, {106837504, 127926272}}},
};

START_TEST(under_autocast_it_takes_what_transformers_took)
{
  static const char *const set[] = {"strategy=none", "mesh.shard=1", "precision.autocast=true",
                                    NULL};
  small_network_expect_with(&autocast[_i], set);
}
END_TEST

#define NEOX(more)                                                                                 \
  "'model_type': 'gpt_neox', 'hidden_size': 64, 'num_hidden_layers': 2, "                          \
  "'num_attention_heads': 4, 'vocab_size': 100" more
#define OPT(more)                                                                                  \
  "'model_type': 'opt', 'hidden_size': 64, 'num_hidden_layers': 2, 'num_attention_heads': 4, "     \
  "'vocab_size': 100" more
#define GPT_NEO(more)                                                                              \
  "'model_type': 'gpt_neo', 'hidden_size': 64, 'num_layers': 2, 'num_heads': 4, "                  \
  "'vocab_size': 100" more
#define GPTJ(more)                                                                                 \
  "'model_type': 'gptj', 'n_embd': 64, 'n_layer': 2, 'n_head': 4, 'vocab_size': 100" more
#define PHI(more)                                                                                  \
  "'model_type': 'phi', 'hidden_size': 64, 'num_hidden_layers': 2, 'num_attention_heads': 4, "     \
  "'vocab_size': 100" more
#define BLOOM(more)                                                                                \
  "'model_type': 'bloom', 'n_embed': 64, 'n_layer': 2, 'n_head': 4, 'vocab_size': 100" more
#define FALCON(more)                                                                               \
  "'model_type': 'falcon', 'hidden_size': 64, 'num_hidden_layers': 2, "                            \
  "'num_attention_heads': 4, 'vocab_size': 100" more
#define BIGCODE(more)                                                                              \
  "'model_type': 'gpt_bigcode', 'n_embd': 64, 'n_layer': 2, 'n_head': 4, 'vocab_size': 100" more
#define MPT(more)                                                                                  \
  "'model_type': 'mpt', 'd_model': 64, 'n_layers': 2, 'n_heads': 4, 'vocab_size': 100, "           \
  "'implementation': 'transformers'" more

static const struct {
  const char *config;
  const char *says;
} refused[] = {
    {NEOX(", 'implementation': 'torchtitan'"),
     "key 'implementation': 'torchtitan' is not known for gpt_neox"},
    {NEOX(", 'rotary_pct': 0.2"), "is no even number of elements"},
    {NEOX(", 'rope_scaling': {'type': 'ntk'}"), "key 'rope_scaling.type': 'ntk' is not one of"},
    {NEOX(", 'hidden_dropout': 1.5"), "key 'hidden_dropout': 1.5 is not in 0..1"},
    {NEOX(", 'hidden_act': 'mish'"), "key 'hidden_act': 'mish' is not one of"},
    {OPT(", 'layerdrop': 0.1"), "key 'layerdrop': layers that are left out are not supported: 0"},
    {OPT(", 'layer_norm_elementwise_affine': false"),
     "key 'layer_norm_elementwise_affine': false is not supported"},
    {OPT(", 'max_position_embeddings': 128"),
     "key 'max_position_embeddings': 128 positions are fewer than the plan's sequence_length 256"},
    {GPT_NEO(""), "key 'attention_types': 24 layers, but the network has 2"},
    {GPT_NEO(", 'attention_types': [[['global'], 1]]"),
     "key 'attention_types': 1 layers, but the network has 2"},
    {GPT_NEO(", 'attention_types': [[['sparse'], 2]]"), "key 'attention_types': must be a list of"},
    {GPT_NEO(", 'attention_types': [[['global'], 2]], 'implementation': {'attention': 'flash'}"),
     "key 'implementation': the attention of gpt_neo is eager"},
    {GPTJ(", 'rotary_dim': 24"), "key 'rotary_dim': must be an even number up to the head's 16"},
    {GPTJ(", 'rotary_dim': null"), "key 'rotary_dim': must be an even number up to the head's 16"},
    {PHI(", 'qk_layernorm': true"), "key 'qk_layernorm': true is not supported"},
    {BLOOM(", 'pretraining_tp': 4, 'slow_but_exact': true"),
     "key 'slow_but_exact': true is not supported"},
    {FALCON(", 'num_ln_in_parallel_attn': 2"), "key 'num_ln_in_parallel_attn': must be 1, or 2"},
    {FALCON(", 'new_decoder_architecture': true, 'parallel_attn': false"),
     "key 'parallel_attn': false is not supported"},
    {FALCON(", 'new_decoder_architecture': true, 'num_kv_heads': 3"),
     "key 'num_kv_heads': 3 does not divide the 4 attention heads"},
    {FALCON(", 'implementation': {'attention': 'eager'}"),
     "key 'implementation': the attention of falcon is sdpa, efficient or math"},
    {BIGCODE(", 'add_cross_attention': true"), "key 'add_cross_attention': true is not supported"},
    {MPT(", 'attn_config': {'prefix_lm': true}"), "key 'attn_config.prefix_lm': is not supported"},
};

START_TEST(a_field_that_changes_the_computation_is_honoured_or_refused_by_name)
{
  small_network_refuse(refused[_i].config, refused[_i].says);
}
END_TEST

/* An MPT config runs as llm-foundry does unless the file asks for transformers: only the latter has
 * eager attention whatever attn_impl says. */
START_TEST(mpt_is_transformers_only_where_the_file_says_so)
{
  const char *types[] = {"MPTBlock", "MptBlock"};
  const char *configs[] = {"{'model_type': 'mpt', 'd_model': 64, 'n_layers': 2, 'n_heads': 4, "
                           "'vocab_size': 100}",
                           "{" MPT("") "}"};
  for (int i = 0; i < 2; i++) {
    g_autoptr(Simulated) s =
        simulation_lower(&(Simulation){configs[i], small_network_plan, NULL, 0}, 1);
    const Network *n = s->scenario->network;
    ck_assert_str_eq(network_module(n, network_block(n, 0)->module)->type, types[i]);
  }
}
END_TEST

Suite *
test_suite(void)
{
  Suite *suite = suite_create("classic decoders");
  TCase *tcase = tcase_create("measured");
  tcase_add_loop_test(tcase, under_autocast_it_takes_what_transformers_took, 0,
                      G_N_ELEMENTS(autocast));
  tcase_add_loop_test(tcase, a_small_network_takes_the_memory_that_transformers_took, 0,
                      G_N_ELEMENTS(measured));
  suite_add_tcase(suite, tcase);
  tcase = tcase_create("fields");
  tcase_add_loop_test(tcase, a_field_that_changes_the_computation_is_honoured_or_refused_by_name, 0,
                      G_N_ELEMENTS(refused));
  tcase_add_test(tcase, mpt_is_transformers_only_where_the_file_says_so);
  suite_add_tcase(suite, tcase);
  return suite;
}
