/* check_parameter_counts.c - networks have as many parameters as the models whose config.json they
 * are built from: those of a few published models, and of all that the reference data has a count
 * for. */
#include <string.h>

#include "network/family.h"
#include "simulation.h"
#include "tap_main.h"

/* Published models, by the figures of their papers and model cards; counts are those of the tensors
 * in their checkpoints, a tied weight once. */
static const struct {
  const char *name, *config;
  gint64 parameters;
} published[] = {
    {"Qwen3-0.6B",
     "'model_type': 'qwen3', 'num_hidden_layers': 28, 'hidden_size': 1024, 'head_dim': 128, "
     "'num_attention_heads': 16, 'num_key_value_heads': 8, 'intermediate_size': 3072, "
     "'vocab_size': 151936, 'tie_word_embeddings': true",
     596049920},
    {"Phi-3-mini",
     "'model_type': 'phi3', 'num_hidden_layers': 32, 'hidden_size': 3072, "
     "'num_attention_heads': 32, 'intermediate_size': 8192, 'vocab_size': 32064",
     3821079552},
    {"Phi-4-mini",
     "'model_type': 'phi3', 'num_hidden_layers': 32, 'hidden_size': 3072, "
     "'num_attention_heads': 24, 'num_key_value_heads': 8, 'intermediate_size': 8192, "
     "'vocab_size': 200064, 'tie_word_embeddings': true, 'partial_rotary_factor': 0.75",
     3836021760},
    {"Gemma 2B",
     "'model_type': 'gemma', 'num_hidden_layers': 18, 'hidden_size': 2048, 'head_dim': 256, "
     "'num_attention_heads': 8, 'num_key_value_heads': 1, 'intermediate_size': 16384, "
     "'vocab_size': 256000",
     2506172416},
    {"Gemma 2 9B",
     "'model_type': 'gemma2', 'num_hidden_layers': 42, 'hidden_size': 3584, 'head_dim': 256, "
     "'num_attention_heads': 16, 'num_key_value_heads': 8, 'intermediate_size': 14336, "
     "'vocab_size': 256000",
     9241705984},
    {"Gemma 3 1B",
     "'model_type': 'gemma3_text', 'num_hidden_layers': 26, 'hidden_size': 1152, 'head_dim': 256, "
     "'num_attention_heads': 4, 'num_key_value_heads': 1, 'intermediate_size': 6912, "
     "'vocab_size': 262144",
     999885952},
    {"Granite 3.0 8B",
     "'model_type': 'granite', 'num_hidden_layers': 40, 'hidden_size': 4096, "
     "'num_attention_heads': 32, 'num_key_value_heads': 8, 'intermediate_size': 12800, "
     "'vocab_size': 49155, 'tie_word_embeddings': true",
     8170848256},
    {"Command R 35B",
     "'model_type': 'cohere', 'num_hidden_layers': 40, 'hidden_size': 8192, "
     "'num_attention_heads': 64, 'intermediate_size': 22528, 'vocab_size': 256000",
     34980831232},
    {"Command R+ (norms of queries and keys)",
     "'model_type': 'cohere', 'num_hidden_layers': 64, 'hidden_size': 12288, "
     "'num_attention_heads': 96, 'num_key_value_heads': 8, 'intermediate_size': 33792, "
     "'vocab_size': 256000, 'use_qk_norm': true",
     103810674688},
    {"OLMo 1B",
     "'model_type': 'olmo', 'num_hidden_layers': 16, 'hidden_size': 2048, "
     "'num_attention_heads': 16, 'intermediate_size': 8192, 'vocab_size': 50304, "
     "'tie_word_embeddings': true",
     1176764416},
    {"OLMo 2 1B",
     "'model_type': 'olmo2', 'num_hidden_layers': 16, 'hidden_size': 2048, "
     "'num_attention_heads': 16, 'intermediate_size': 8192, 'vocab_size': 100352",
     1484916736},
    {"Mixtral 8x7B",
     "'model_type': 'mixtral', 'num_hidden_layers': 32, 'hidden_size': 4096, "
     "'num_attention_heads': 32, 'num_key_value_heads': 8, 'intermediate_size': 14336, "
     "'vocab_size': 32000",
     46702792704},
    {"Qwen3-30B-A3B",
     "'model_type': 'qwen3_moe', 'num_hidden_layers': 48, 'hidden_size': 2048, 'head_dim': 128, "
     "'num_attention_heads': 32, 'num_key_value_heads': 4, 'intermediate_size': 6144, "
     "'vocab_size': 151936",
     30532122624},
    {"OLMoE 1B-7B",
     "'model_type': 'olmoe', 'num_hidden_layers': 16, 'hidden_size': 2048, "
     "'num_attention_heads': 16, 'intermediate_size': 1024, 'vocab_size': 50304",
     6919161856},
    {"DeepSeek V2 Lite",
     "'model_type': 'deepseek_v2', 'num_hidden_layers': 27, 'hidden_size': 2048, "
     "'num_attention_heads': 16, 'intermediate_size': 10944, 'vocab_size': 102400, 'q_lora_rank': "
     "null, 'moe_intermediate_size': 1408, 'num_experts_per_tok': 6, 'first_k_dense_replace': 1",
     15706484224},
    {"gpt-oss 20b",
     "'model_type': 'gpt_oss', 'num_hidden_layers': 24, 'hidden_size': 2880, "
     "'num_attention_heads': 64, 'num_key_value_heads': 8, 'intermediate_size': 2880, "
     "'vocab_size': 201088, 'num_local_experts': 32",
     20914757184},
    {"StarCoder2 7B",
     "'model_type': 'starcoder2', 'num_hidden_layers': 32, 'hidden_size': 4608, "
     "'num_attention_heads': 36, 'num_key_value_heads': 4, 'intermediate_size': 18432, "
     "'vocab_size': 49152",
     7173923840},
    {"StableLM 3B 4E1T",
     "'model_type': 'stablelm', 'num_hidden_layers': 32, 'hidden_size': 2560, "
     "'num_attention_heads': 32, 'intermediate_size': 6912, 'vocab_size': 50304",
     2795443200},
    {"StableLM 2 1.6B",
     "'model_type': 'stablelm', 'num_hidden_layers': 24, 'hidden_size': 2048, "
     "'num_attention_heads': 32, 'intermediate_size': 5632, 'vocab_size': 100352, "
     "'use_qkv_bias': true",
     1644515328},
    {"StableLM 2 12B",
     "'model_type': 'stablelm', 'num_hidden_layers': 40, 'hidden_size': 5120, "
     "'num_attention_heads': 32, 'num_key_value_heads': 8, 'intermediate_size': 13824, "
     "'vocab_size': 100352, 'qk_layernorm': true, 'use_parallel_residual': true",
     12143185920},
    {"SmolLM3 3B",
     "'model_type': 'smollm3', 'num_hidden_layers': 36, 'hidden_size': 2048, "
     "'num_attention_heads': 16, 'num_key_value_heads': 4, 'intermediate_size': 11008, "
     "'vocab_size': 128256",
     3075098624},
    {"GLM-4 9B",
     "'model_type': 'glm', 'num_hidden_layers': 40, 'hidden_size': 4096, 'head_dim': 128, "
     "'num_attention_heads': 32, 'num_key_value_heads': 2, 'intermediate_size': 13696, "
     "'vocab_size': 151552",
     9399951360},
    {"InternLM2 7B",
     "'model_type': 'internlm2', 'num_hidden_layers': 32, 'hidden_size': 4096, "
     "'num_attention_heads': 32, 'num_key_value_heads': 8, 'intermediate_size': 14336, "
     "'vocab_size': 92544, 'bias': false",
     7737708544},
};

static const char plan[] = "{'batch': {'sequence_length': 16}}";

/* Parameters of the network, or -1 where its family is not known. */
static gint64
count_parameters(const char *name, const char *config)
{
  g_autoptr(GError) error = NULL;
  g_autoptr(NetworkSpec) spec = network_spec_parse(name, config, strlen(config), &error);
  ck_assert_msg(spec != NULL, "%s: %s", name, error != NULL ? error->message : "");
  if (network_family_find(spec, NULL) == NULL)
    return -1;
  g_autoptr(Scenario) s = simulation_read(&(Simulation){config, plan, NULL, 0}, &error);
  ck_assert_msg(s != NULL, "%s: %s", name, error != NULL ? error->message : "");
  return network_usual_count(s->network);
}

START_TEST(published_models_have_their_published_sizes)
{
  g_autofree char *config = g_strdelimit(g_strdup_printf("{%s}", published[_i].config), "'", '"');
  ck_assert_msg(count_parameters(published[_i].name, config) == published[_i].parameters,
                "%s: %" G_GINT64_FORMAT, published[_i].name,
                count_parameters(published[_i].name, config));
}
END_TEST

/* The reference data's table: name,model_type,parameters,note. */
START_TEST(every_config_with_a_known_count_has_it)
{
  g_autofree char *folder = test_reference_path("reference/models");
  if (folder == NULL) {
    test_note("no reference/models here");
    return;
  }
  g_autofree char *table = g_build_filename(folder, "parameters.csv", NULL), *text = NULL;
  ck_assert(g_file_get_contents(table, &text, NULL, NULL));
  g_auto(GStrv) lines = g_strsplit(g_strstrip(text), "\n", -1);
  int compared = 0, unknown = 0;
  for (int i = 1; lines[i] != NULL; i++) {
    g_auto(GStrv) cells = g_strsplit(lines[i], ",", 4);
    g_autofree char *file = g_strconcat(cells[0], ".json", NULL);
    g_autofree char *path = g_build_filename(folder, file, NULL), *config = NULL;
    ck_assert_msg(g_file_get_contents(path, &config, NULL, NULL), "%s", path);
    gint64 want = g_ascii_strtoll(cells[2], NULL, 10), have = count_parameters(cells[0], config);
    ck_assert_msg(have < 0 || have == want,
                  "%s: %" G_GINT64_FORMAT " parameters, not %" G_GINT64_FORMAT, cells[0], have,
                  want);
    *(have < 0 ? &unknown : &compared) += 1;
  }
  test_note("%d networks compared, %d of families that are not known", compared, unknown);
  ck_assert_int_gt(compared, 50);
}
END_TEST

Suite *
test_suite(void)
{
  Suite *suite = suite_create("parameter counts");
  TCase *tcase = tcase_create("counts");
  tcase_set_timeout(tcase, 60);
  tcase_add_loop_test(tcase, published_models_have_their_published_sizes, 0,
                      G_N_ELEMENTS(published));
  tcase_add_test(tcase, every_config_with_a_known_count_has_it);
  suite_add_tcase(suite, tcase);
  return suite;
}
