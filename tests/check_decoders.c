/* check_decoders.c - decoders of the llama kind: a small network of each family has as many
 * parameters as transformers' model of the same config.json, and its steps reach the same peaks of
 * memory (small_network.h). */
#include "small_network.h"
#include "tap_main.h"

#define CONFIG(type, layers, more)                                                                 \
  "'model_type': '" type "', 'num_hidden_layers': " layers ", 'hidden_size': 256, "                \
  "'num_attention_heads': 4, 'num_key_value_heads': 2, 'intermediate_size': 384, "                 \
  "'vocab_size': 1000" more

static const SmallNetwork measured[] = {
    {"llama, attention dropout",
     CONFIG("llama", "2", ", 'attention_dropout': 0.1"),
     FALSE,
     FALSE,
     1496320,
     {{84779520, 117440512}, {94311936, 121634816}}},
    {"llama, attention dropout, eager",
     CONFIG("llama", "2", ", 'attention_dropout': 0.1"),
     TRUE,
     FALSE,
     1496320,
     {{93280256, 119537664}, {102206976, 125829120}}},
    {"llama, dynamic frequencies",
     CONFIG("llama", "2", ", 'rope_scaling': {'rope_type': 'dynamic', 'factor': 2.0}"),
     FALSE,
     FALSE,
     1496320,
     {{84779520, 117440512}, {94311936, 121634816}}},
    {"qwen2, a window from the second layer on",
     CONFIG("qwen2", "2",
            ", 'use_sliding_window': true, 'sliding_window': 128, 'max_window_layers': 1, "
            "'tie_word_embeddings': true"),
     FALSE,
     FALSE,
     1241344,
     {{85331456, 117440512}, {93848576, 123731968}}},
    {"qwen3, checkpointed",
     CONFIG("qwen3", "2", ", 'head_dim': 64, 'tie_word_embeddings': true"),
     FALSE,
     TRUE,
     1240576,
     {{81927168, 111149056}, {86904832, 115343360}}},
    {"phi3",
     CONFIG("phi3", "2", ""),
     FALSE,
     FALSE,
     1496320,
     {{86090240, 117440512}, {95619584, 123731968}}},
    {"phi3, dropouts",
     CONFIG("phi3", "2", ", 'resid_pdrop': 0.1, 'attention_dropout': 0.1"),
     FALSE,
     FALSE,
     1496320,
     {{86614528, 117440512}, {96143872, 123731968}}},
    {"phi3, three quarters rotated",
     CONFIG("phi3", "2", ", 'partial_rotary_factor': 0.75, 'tie_word_embeddings': true"),
     FALSE,
     FALSE,
     1240320,
     {{85049856, 117440512}, {93554688, 121634816}}},
    {"phi3, a window",
     CONFIG("phi3", "2", ", 'sliding_window': 128"),
     FALSE,
     FALSE,
     1496320,
     {{85826048, 117440512}, {95355392, 123731968}}},
    {"gemma",
     CONFIG("gemma", "2", ", 'head_dim': 64"),
     FALSE,
     FALSE,
     1240320,
     {{84809216, 115343360}, {93580288, 121634816}}},
    {"gemma2, eager as it must be",
     CONFIG("gemma2", "2", ", 'head_dim': 64, 'sliding_window': 128"),
     FALSE,
     FALSE,
     1241344,
     {{98109440, 125829120}, {107763712, 130023424}}},
    {"gemma2, checkpointed",
     CONFIG("gemma2", "2", ", 'head_dim': 64, 'sliding_window': 128"),
     FALSE,
     TRUE,
     1241344,
     {{89059328, 115343360}, {94036992, 119537664}}},
    {"gemma3, windows in two of three layers",
     CONFIG("gemma3_text", "3",
            ", 'head_dim': 64, 'sliding_window': 128, 'sliding_window_pattern': 2"),
     FALSE,
     FALSE,
     1734272,
     {{103175680, 134217728}, {113740800, 142606336}}},
    {"gemma3, checkpointed",
     CONFIG("gemma3_text", "3",
            ", 'head_dim': 64, 'sliding_window': 128, 'sliding_window_pattern': 2"),
     FALSE,
     TRUE,
     1734272,
     {{88501760, 117440512}, {95464448, 123731968}}},
    {"granite",
     CONFIG(
         "granite", "2",
         ", 'embedding_multiplier': 12, 'residual_multiplier': 0.22, 'tie_word_embeddings': true"),
     FALSE,
     FALSE,
     1240320,
     {{83755520, 115343360}, {92263424, 121634816}}},
    {"cohere",
     CONFIG("cohere", "2", ""),
     FALSE,
     FALSE,
     1239808,
     {{83231232, 115343360}, {92519936, 119537664}}},
    {"cohere, norms of queries and keys",
     CONFIG("cohere", "2", ", 'use_qk_norm': true"),
     FALSE,
     FALSE,
     1240576,
     {{87980544, 121634816}, {97275392, 125829120}}},
    {"cohere, eager",
     CONFIG("cohere", "2", ""),
     TRUE,
     FALSE,
     1239808,
     {{92515840, 119537664}, {99366400, 121634816}}},
    {"olmo",
     CONFIG("olmo", "2", ", 'tie_word_embeddings': true"),
     FALSE,
     FALSE,
     1239040,
     {{81858560, 113246208}, {91016704, 117440512}}},
    {"olmo, clipped",
     CONFIG("olmo", "2", ", 'clip_qkv': 8, 'tie_word_embeddings': true"),
     FALSE,
     FALSE,
     1239040,
     {{82907136, 113246208}, {92065280, 119537664}}},
    {"olmo2",
     CONFIG("olmo2", "2", ""),
     FALSE,
     FALSE,
     1497088,
     {{89247744, 119537664}, {98851328, 125829120}}},
    {"olmo2, checkpointed",
     CONFIG("olmo2", "2", ""),
     FALSE,
     TRUE,
     1497088,
     {{84582912, 113246208}, {90585088, 119537664}}},
    {"starcoder2",
     CONFIG("starcoder2", "2", ""),
     FALSE,
     FALSE,
     1047808,
     {{79531520, 106954752}, {87793152, 111149056}}},
    {"starcoder2, a window and dropouts",
     CONFIG("starcoder2", "2",
            ", 'sliding_window': 128, 'residual_dropout': 0.1, 'embedding_dropout': 0.1, "
            "'attention_dropout': 0.1"),
     FALSE,
     FALSE,
     1047808,
     {{80936960, 109051904}, {89495040, 113246208}}},
    {"stablelm, biases and dropout",
     CONFIG("stablelm", "2", ", 'use_qkv_bias': true, 'hidden_dropout': 0.1"),
     FALSE,
     FALSE,
     1498624,
     {{83440128, 113246208}, {93511680, 119537664}}},
    {"stablelm, side by side",
     CONFIG("stablelm", "2", ", 'use_parallel_residual': true"),
     FALSE,
     FALSE,
     1496576,
     {{81464320, 111149056}, {91121664, 117440512}}},
    {"stablelm, a norm for each head",
     CONFIG("stablelm", "2", ", 'qk_layernorm': true, 'use_parallel_residual': true"),
     FALSE,
     FALSE,
     1497344,
     {{82310144, 113246208}, {91982848, 117440512}}},
    {"stablelm, a norm for each of many heads",
     "'model_type': 'stablelm', 'num_hidden_layers': 2, 'hidden_size': 512, "
     "'num_attention_heads': 16, 'num_key_value_heads': 2, 'intermediate_size': 384, "
     "'vocab_size': 1000, 'qk_layernorm': true",
     FALSE,
     FALSE,
     3389568,
     {{96805376, 161480704}, {111311360, 174063616}}},
    {"smollm3",
     CONFIG("smollm3", "2", ", 'no_rope_layers': [1, 0]"),
     FALSE,
     FALSE,
     1240320,
     {{83755520, 115343360}, {92263424, 119537664}}},
    {"smollm3, a window where nothing is rotated",
     CONFIG("smollm3", "2",
            ", 'no_rope_layers': [1, 0], 'use_sliding_window': true, 'sliding_window': 128"),
     FALSE,
     FALSE,
     1240320,
     {{84278784, 115343360}, {92786688, 121634816}}},
    {"olmo3",
     CONFIG("olmo3", "2", ", 'sliding_window': 128"),
     FALSE,
     FALSE,
     1497088,
     {{90294272, 121634816}, {99897856, 125829120}}},
    {"cohere2, rotated where there is a window",
     CONFIG("cohere2", "4", ", 'sliding_window': 128"),
     FALSE,
     FALSE,
     2223360,
     {{95181312, 130023424}, {108412416, 138412032}}},
    {"glm",
     CONFIG("glm", "2", ", 'head_dim': 64"),
     FALSE,
     FALSE,
     1497344,
     {{86356480, 117440512}, {95897088, 123731968}}},
    {"glm4, norms after too",
     CONFIG("glm4", "2", ", 'head_dim': 64"),
     FALSE,
     FALSE,
     1498368,
     {{89974272, 121634816}, {99060224, 127926272}}},
};

START_TEST(a_small_network_takes_the_memory_that_transformers_took)
{
  small_network_expect(&measured[_i]);
}
END_TEST

#define GEMMA CONFIG("gemma", "2", ", 'head_dim': 64")
#define DROPPED CONFIG("llama", "2", ", 'attention_dropout': 0.1")

static const struct {
  SmallNetwork network;
  const char *set[3];
} in_one_dtype[] = {
    {{"gemma, whose scale of embeddings is no copy",
      GEMMA,
      FALSE,
      FALSE,
      1240320,
      {{99709952, 144703488}, {106444800, 148897792}}},
     {"precision.compute=fp32", NULL}},
    {{"gemma in bf16, as its scale",
      GEMMA,
      FALSE,
      FALSE,
      1240320,
      {{83569664, 113246208}, {89862656, 115343360}}},
     {"precision.parameters=bf16", "precision.reduce=bf16", NULL}},
    {{"llama, dropout of composed attention",
      DROPPED,
      FALSE,
      FALSE,
      1496320,
      {{105961984, 142606336}, {114193408, 150994944}}},
     {"precision.compute=fp32", NULL}},
    {{"llama, the same computed again",
      DROPPED,
      FALSE,
      FALSE,
      1496320,
      {{93836800, 136314880}, {99832832, 142606336}}},
     {"precision.compute=fp32", "activation_checkpointing.policy=full", NULL}},
};

START_TEST(without_mixed_precision_it_takes_what_transformers_took)
{
  small_network_expect_with(&in_one_dtype[_i].network, in_one_dtype[_i].set);
}
END_TEST

/* ---- fields */

static const struct {
  const char *config;
  const char *says;
} refused[] = {
    {CONFIG("llama", "2", ", 'rope_scaling': {'type': 'ntk'}"),
     "key 'rope_scaling.type': 'ntk' is not one of default, linear,"},
    {CONFIG("qwen3", "2", ", 'head_dim': 0"), "key 'head_dim': 0 is not in 1.."},
    {CONFIG("phi3", "2", ", 'implementation': 'torchtitan'"),
     "key 'implementation': 'torchtitan' is not known for phi3: only transformers"},
    {CONFIG("phi3", "2", ", 'partial_rotary_factor': 1.5"),
     "key 'partial_rotary_factor': 1.5 is not in 0..1"},
    {CONFIG("phi3", "2", ", 'partial_rotary_factor': 0.33"),
     "key 'partial_rotary_factor': 0.33 of a head of 64 is no even number of elements"},
    {CONFIG("phi3", "2", ", 'resid_pdrop': 2"), "key 'resid_pdrop': 2 is not in 0..1"},
    {CONFIG("gemma", "2", ", 'use_bidirectional_attention': true"),
     "key 'use_bidirectional_attention': attention to later tokens is not supported"},
    {CONFIG("gemma2", "2", ", 'layer_types': ['full_attention']"),
     "key 'layer_types': must be a list of one name for each of 2 layers"},
    {CONFIG("gemma2", "2", ", 'layer_types': ['full_attention', 'chunked_attention']"),
     "key 'layer_types': 'chunked_attention' is not one of full_attention, sliding_attention"},
    {CONFIG("gemma3", "2", ""), "key 'text_config' is missing"},
    {CONFIG("gemma3", "2", ", 'text_config': {}, 'vision_config': {'hidden_size': 8}"),
     "key 'vision_config': images are not supported"},
    {CONFIG("gemma3_text", "2", ", 'final_logit_softcapping': -1"),
     "key 'final_logit_softcapping': -1 is not a positive number"},
    {CONFIG("smollm3", "2", ", 'no_rope_layers': [1]"),
     "key 'no_rope_layers': must be a list of one 0 or 1 for each of 2 layers"},
};

START_TEST(a_field_that_changes_the_computation_is_honoured_or_refused_by_name)
{
  small_network_refuse(refused[_i].config, refused[_i].says);
}
END_TEST

/* Networks that are the same one, written in two ways. */
static const struct {
  const char *one, *other;
} same[] = {
    {CONFIG("phi3", "2", ", 'partial_rotary_factor': 0.5"),
     CONFIG("phi3", "2", ", 'rope_parameters': {'partial_rotary_factor': 0.5}")},
    {CONFIG("gemma2", "2", ", 'sliding_window': 128"),
     CONFIG("gemma2", "2",
            ", 'sliding_window': 128, 'layer_types': ['sliding_attention', 'full_attention']")},
    {CONFIG("gemma3_text", "2", ", 'sliding_window': 128"),
     CONFIG("gemma3_text", "2",
            ", 'sliding_window': 128, 'layer_types': ['sliding_attention', 'sliding_attention']")},
    {CONFIG("smollm3", "4", ""), CONFIG("smollm3", "4", ", 'no_rope_layers': [1, 1, 1, 0]")},
    {CONFIG("gemma3_text", "2", ""),
     "'model_type': 'gemma3', 'text_config': {" CONFIG("gemma3_text", "2", "") "}"},
    {CONFIG("mistral", "2", ", 'sliding_window': 128, 'implementation': {'attention': 'flash'}"),
     CONFIG("mistral", "2", ", 'implementation': {'attention': 'flash'}")},
    {CONFIG("gemma", "2", ", 'hidden_act': 'silu'"),
     CONFIG("gemma", "2", ", 'hidden_act': 'swish'")},
};

static Peaks
peaks_of(const char *config)
{
  g_autofree char *network = g_strdup_printf("{%s}", config);
  g_autoptr(Simulated) s =
      simulation_execute(&(Simulation){network, small_network_plan, NULL, 0}, 2, (gint64) 1 << 40);
  const StepRecord *step = &g_array_index(s->recording->steps, StepRecord, 1);
  return (Peaks){step->peak_allocated, step->peak_reserved};
}

START_TEST(what_a_config_may_say_in_two_ways_means_the_same)
{
  Peaks one = peaks_of(same[_i].one), other = peaks_of(same[_i].other);
  ck_assert_int_eq(one.allocated, other.allocated);
  ck_assert_int_eq(one.reserved, other.reserved);
}
END_TEST

/* Its projection has a key head's queries, keys and values side by side: where key heads are fewer,
 * heads of queries are made one after the other by a copy of 2 x 256 x 256 elements in bf16, else
 * by a view. */
START_TEST(internlm2_copies_queries_where_key_heads_are_fewer)
{
  const gint64 copy = 2 * (gint64) 256 * 256 * 2;
  gint64 bytes[2];
  for (int i = 0; i < 2; i++) {
    g_autofree char *network = g_strdup_printf(
        "{'model_type': 'internlm2', 'num_hidden_layers': 1, 'hidden_size': 256, 'vocab_size': "
        "1000, "
        "'num_attention_heads': 4, 'num_key_value_heads': %d, 'intermediate_size': 384}",
        4 >> i);
    g_autoptr(Simulated) s =
        simulation_lower(&(Simulation){network, small_network_plan, NULL, 0}, 1);
    bytes[i] = simulated_allocations(s, 0, "clone").bytes;
  }
  ck_assert_int_eq(bytes[1] - bytes[0], copy);
}
END_TEST

/* InternLM2's modules have names of their own, and one projection of [(heads + 2 kv_heads) * 64,
 * 256]. */
START_TEST(internlm2_has_one_projection_under_its_own_names)
{
  g_autofree char *network = g_strdup_printf("{%s}", CONFIG("internlm2", "1", ", 'bias': false"));
  g_autoptr(Simulated) s = simulation_lower(&(Simulation){network, small_network_plan, NULL, 0}, 1);
  static const char *const names[] = {"model.tok_embeddings.weight",
                                      "model.layers.0.attention.wqkv.weight",
                                      "model.layers.0.attention.wo.weight",
                                      "model.layers.0.feed_forward.w1.weight",
                                      "model.layers.0.feed_forward.w3.weight",
                                      "model.layers.0.feed_forward.w2.weight",
                                      "model.layers.0.attention_norm.weight",
                                      "model.layers.0.ffn_norm.weight",
                                      "model.norm.weight",
                                      "output.weight"};
  const Network *n = s->scenario->network;
  ck_assert_uint_eq(n->parameters->len, G_N_ELEMENTS(names));
  for (guint i = 0; i < n->parameters->len; i++)
    ck_assert_str_eq(network_parameter(n, (int) i)->name, names[i]);
  ck_assert_int_eq(network_parameter(n, 1)->shape[0], (4 + 2 * 2) * 64);
}
END_TEST

Suite *
test_suite(void)
{
  Suite *suite = suite_create("decoders");
  TCase *tcase = tcase_create("measured");
  tcase_add_loop_test(tcase, a_small_network_takes_the_memory_that_transformers_took, 0,
                      G_N_ELEMENTS(measured));
  tcase_add_loop_test(tcase, without_mixed_precision_it_takes_what_transformers_took, 0,
                      G_N_ELEMENTS(in_one_dtype));
  suite_add_tcase(suite, tcase);
  tcase = tcase_create("fields");
  tcase_add_loop_test(tcase, a_field_that_changes_the_computation_is_honoured_or_refused_by_name, 0,
                      G_N_ELEMENTS(refused));
  tcase_add_loop_test(tcase, what_a_config_may_say_in_two_ways_means_the_same, 0,
                      G_N_ELEMENTS(same));
  tcase_add_test(tcase, internlm2_has_one_projection_under_its_own_names);
  tcase_add_test(tcase, internlm2_copies_queries_where_key_heads_are_fewer);
  suite_add_tcase(suite, tcase);
  return suite;
}
