/* check_torchtitan.c - torchtitan's Qwen3 and DeepSeek V3: parameters in its order, their number,
 * and peaks of memory of small networks as its release 0.2.2 on PyTorch 2.11 has them, with the
 * real allocator; the hook that balances experts; what is refused.
 *
 * Reserved memory is compared from the second step on: of the first it depends on where the small
 * buffers of a mixture came to lie when the model was made. */
#include <string.h>

#include "network/network_flops.h"
#include "simulation.h"
#include "tap_main.h"

/* All networks are 256 wide, with 4 heads, 3 layers and 1000 words. */
#define TITAN ", 'implementation': 'torchtitan'"
#define NETWORK(type, more)                                                                        \
  "{'model_type': '" type "', 'hidden_size': 256, 'intermediate_size': 768, 'num_hidden_layers': " \
  "3, 'num_attention_heads': 4, 'vocab_size': 1000, " more "}"
#define QWEN3(more) NETWORK("qwen3", "'num_key_value_heads': 2" more)
#define QWEN3_MOE(more) QWEN3_MIXED("16", more)
#define QWEN3_MIXED(experts, more)                                                                 \
  NETWORK("qwen3_moe",                                                                             \
          "'num_key_value_heads': 2, 'head_dim': 64, 'moe_intermediate_size': 64, "                \
          "'num_experts': " experts ", 'num_experts_per_tok': 8, 'norm_topk_prob': true" more)
#define DEEPSEEK(type, more)                                                                       \
  NETWORK(type, "'num_key_value_heads': 4, 'moe_intermediate_size': 64, 'n_routed_experts': 32, "  \
                "'first_k_dense_replace': 1, 'kv_lora_rank': 64" more)
#define V3(more)                                                                                   \
  DEEPSEEK("deepseek_v3", ", 'n_shared_experts': 1, 'num_experts_per_tok': 8, 'n_group': 4, "      \
                          "'topk_group': 2, 'q_lora_rank': 96" more)
#define V2(more) DEEPSEEK("deepseek_v2", ", 'n_shared_experts': 2, 'num_experts_per_tok': 6" more)

#define PLAN                                                                                       \
  "{'strategy': 'fsdp2', 'mesh': {'shard': 8}, 'optimizer': {'name': 'adamw', 'implementation': "  \
  "'fused', 'zero_grad': 'end'}, 'precision': {'compute': 'bf16', 'reduce': 'fp32'}, 'fsdp': "     \
  "{'reshard_after_forward': true}, 'batch': {'micro_batch': 2, 'sequence_length': 256}}"

/* ---- parameters ---- */

#define ATTENTION                                                                                  \
  "attention.q_norm.weight[64] attention.k_norm.weight[64] attention.wq.weight[256,256] "          \
  "attention.wk.weight[128,256] attention.wv.weight[128,256] attention.wo.weight[256,256] "
#define LATENT                                                                                     \
  "attention.wkv_a.weight[128,256] attention.kv_norm.weight[64] attention.wkv_b.weight[1024,64] "  \
  "attention.wo.weight[256,512] "
#define NORMS "attention_norm.weight[256] ffn_norm.weight[256]"
#define EXPERTS(n)                                                                                 \
  "moe.experts.w1[" n ",64,256] moe.experts.w2[" n ",256,64] moe.experts.w3[" n ",64,256] "        \
  "moe.router.gate.weight[" n ",256]"
#define SHARED(n)                                                                                  \
  " moe.shared_experts.w1.weight[" n ",256] moe.shared_experts.w2.weight[256," n "] "              \
  "moe.shared_experts.w3.weight[" n ",256]"
#define DENSE                                                                                      \
  "feed_forward.w1.weight[768,256] feed_forward.w2.weight[256,768] "                               \
  "feed_forward.w3.weight[768,256]"

static const struct {
  const char *network;
  int block;
  const char *parameters; /* named_parameters() of the block */
} blocks[] = {
    {QWEN3_MOE(TITAN), 0, ATTENTION EXPERTS("16") " " NORMS},
    {QWEN3(", 'head_dim': 64" TITAN), 2, ATTENTION DENSE " " NORMS},
    {V3(TITAN), 0,
     "attention.wq_a.weight[96,256] attention.q_norm.weight[96] "
     "attention.wq_b.weight[768,96] " LATENT NORMS " " DENSE},
    {V3(TITAN), 1,
     "attention.wq_a.weight[96,256] attention.q_norm.weight[96] "
     "attention.wq_b.weight[768,96] " LATENT NORMS " " EXPERTS("32") SHARED("64")},
    {V2(", 'q_lora_rank': null" TITAN), 2,
     "attention.wq.weight[768,256] " LATENT NORMS " " EXPERTS("32") SHARED("128")},
};

START_TEST(a_blocks_parameters_are_torchtitans_in_its_order)
{
  g_autoptr(GError) error = NULL;
  g_autoptr(Scenario) s = simulation_read(&(Simulation){blocks[_i].network, PLAN, NULL, 0}, &error);
  ck_assert_msg(s != NULL, "%s", error != NULL ? error->message : "");
  g_autofree char *prefix = g_strdup_printf("layers.%d.", blocks[_i].block);
  g_autofree char *text = parameters_text(s->network, prefix, NULL);
  ck_assert_str_eq(text, blocks[_i].parameters);
}
END_TEST

/* torchtitan's flavors (models/qwen3, models/deepseek_v3), counted on its own classes. */
#define FLAVOR_QWEN3(type, layers, hidden, heads, kv, ffn, more)                                   \
  "{'model_type': '" type "', 'num_hidden_layers': " layers ", 'hidden_size': " hidden             \
  ", 'num_attention_heads': " heads ", 'num_key_value_heads': " kv ", 'head_dim': 128, "           \
  "'intermediate_size': " ffn ", 'vocab_size': 151936" more TITAN "}"
#define FLAVOR_DEEPSEEK(type, layers, hidden, heads, ffn, words, more)                             \
  "{'model_type': '" type "', 'num_hidden_layers': " layers ", 'hidden_size': " hidden             \
  ", 'num_attention_heads': " heads ", 'num_key_value_heads': " heads                              \
  ", 'intermediate_size': " ffn ", 'vocab_size': " words ", 'kv_lora_rank': 512" more TITAN "}"

static const struct {
  const char *name, *network;
  gint64 parameters;
} flavors[] = {
    {"Qwen3 0.6B",
     FLAVOR_QWEN3("qwen3", "28", "1024", "16", "8", "3072", ", 'tie_word_embeddings': true"),
     596049920},
    {"Qwen3 32B", FLAVOR_QWEN3("qwen3", "64", "5120", "64", "8", "25600", ""), 32762123264},
    {"Qwen3 30B-A3B",
     FLAVOR_QWEN3("qwen3_moe", "48", "2048", "32", "4", "6144",
                  ", 'num_experts': 128, 'num_experts_per_tok': 8, 'moe_intermediate_size': 768"),
     30532122624},
    {"Qwen3 235B-A22B",
     FLAVOR_QWEN3("qwen3_moe", "94", "4096", "64", "4", "12288",
                  ", 'num_experts': 128, 'num_experts_per_tok': 8, 'moe_intermediate_size': 1536"),
     235093634560},
    {"DeepSeek 16B",
     FLAVOR_DEEPSEEK("deepseek_v2", "27", "2048", "16", "10944", "102400",
                     ", 'n_routed_experts': 64, 'n_shared_experts': 2, 'num_experts_per_tok': 6, "
                     "'moe_intermediate_size': 1408, 'first_k_dense_replace': 1, 'q_lora_rank': "
                     "null"),
     15706484224},
    {"DeepSeek 236B",
     FLAVOR_DEEPSEEK("deepseek_v2", "60", "5120", "128", "12288", "102400",
                     ", 'n_routed_experts': 160, 'n_shared_experts': 2, 'num_experts_per_tok': 6, "
                     "'moe_intermediate_size': 1536, 'first_k_dense_replace': 1, 'q_lora_rank': "
                     "1536, 'topk_method': 'group_limited_greedy', 'n_group': 8, 'topk_group': 3"),
     235741434880},
    {"DeepSeek 671B", FLAVOR_DEEPSEEK("deepseek_v3", "61", "7168", "128", "18432", "129280", ""),
     671026404352},
};

START_TEST(torchtitans_flavors_have_their_sizes)
{
  static const char plan[] = "{'batch': {'sequence_length': 16}}";
  g_autoptr(GError) error = NULL;
  g_autoptr(Scenario) s =
      simulation_read(&(Simulation){flavors[_i].network, plan, NULL, 0}, &error);
  ck_assert_msg(s != NULL, "%s: %s", flavors[_i].name, error != NULL ? error->message : "");
  ck_assert_int_eq(network_usual_count(s->network), flavors[_i].parameters);
}
END_TEST

/* ---- peaks ---- */

enum { STEPS = 3 };

#define CHECKPOINTED(policy)                                                                       \
  "activation_checkpointing={\"policy\": \"" policy "\", \"around\": \"module\"}"

static const struct {
  const char *network;
  const char *set[5];
  gint64 parameters, allocated[STEPS], reserved; /* in the last step */
} runs[] = {
    {QWEN3(TITAN), {NULL}, 3463680, {96949248, 100442112, 100442112}, 146800640},
    {QWEN3(", 'tie_word_embeddings': true" TITAN),
     {NULL},
     3207680,
     {96309248, 99545600, 99545600},
     144703488},
    /* tied after fully_shard() has split the weight */
    {QWEN3(", 'tie_word_embeddings': true" TITAN),
     {"fsdp.embedding=own", "fsdp.head=own", "optimizer.clip_grad_norm=1",
      "accumulation={\"steps\": 2, \"sync_every_step\": false}"},
     3207680,
     {110166016, 113402368, 113402368},
     159383552},
    {QWEN3_MOE(", 'implementation': {'code': 'torchtitan', 'attention': 'efficient'}"),
     {"precision.compute=fp32"},
     3475584,
     {143555584, 154081792, 154081792},
     199229440},
    {QWEN3_MOE(TITAN), {NULL}, 3475584, {112549376, 117640704, 117640704}, 161480704},
    {QWEN3_MOE(TITAN),
     {CHECKPOINTED("full")},
     3475584,
     {97375232, 100881920, 100881920},
     130023424},
    {QWEN3_MOE(TITAN),
     {"moe.experts=eager"},
     3475584,
     {112103424, 115610112, 115610112},
     163577856},
    {QWEN3_MOE(TITAN),
     {"moe.experts=eager", CHECKPOINTED("selective_op")},
     3475584,
     {97366528, 100873216, 100873216},
     136314880},
    {V3(TITAN), {"moe.experts=eager"}, 5347552, {118890496, 124273152, 124273152}, 159383552},
    /* 24 rows for 32 experts */
    {V3(TITAN),
     {"moe.experts=eager", "batch={\"micro_batch\": 1, \"sequence_length\": 3}"},
     5347552,
     {90383872, 95766528, 95766528},
     134217728},
    {V3(TITAN), {NULL}, 5347552, {119451136, 126680576, 126680576}, 157286400},
    {V3(TITAN), {CHECKPOINTED("full")}, 5347552, {107745792, 113128448, 113128448}, 142606336},
    {V3(TITAN),
     {CHECKPOINTED("selective_op")},
     5347552,
     {109556224, 114938880, 114938880},
     144703488},
    /* in fp32 the rotated part of a head is seen as complex numbers where it is */
    {V3(TITAN), {"precision.compute=fp32"}, 5347552, {157840896, 169653248, 169653248}, 239075328},
    {V2(", 'q_lora_rank': null" TITAN),
     {NULL},
     5740480,
     {114814464, 121906176, 121906176},
     176160768},
    {V2(", 'q_lora_rank': 96, 'topk_method': 'group_limited_greedy', 'n_group': 4, 'topk_group': "
        "2" TITAN),
     {"batch.micro_batch=1"},
     5445856,
     {99675648, 105156608, 105156608},
     150994944},
};

START_TEST(peaks_are_those_of_pytorch)
{
  const Simulation simulation = {runs[_i].network, PLAN, runs[_i].set, 0};
  g_autoptr(Simulated) s = simulation_execute(&simulation, STEPS, G_MAXINT64);
  simulated_check(s);
  ck_assert_int_eq(network_parameter_count(s->scenario->network), runs[_i].parameters);
  for (int i = 0; i < STEPS; i++) {
    const StepRecord *step = &g_array_index(s->recording->steps, StepRecord, (guint) i);
    ck_assert_int_eq(step->peak_allocated, runs[_i].allocated[i]);
    if (i == STEPS - 1)
      ck_assert_int_eq(step->peak_reserved, runs[_i].reserved);
  }
}
END_TEST

/* ---- experts ---- */

/* In the function that blocks with a mixture share.  DeepSeek's model arguments ask for sm_90,
 * Qwen3's do not. */
static const struct {
  const char *network, *cluster;
  int products;
} devices[] = {
    {V3(TITAN), "h100-8", 3}, {V3(TITAN), "a100-80gb-8", 0}, {QWEN3_MOE(TITAN), "a100-80gb-8", 3}};

START_TEST(deepseeks_experts_have_one_product_where_the_device_has_it)
{
  g_autoptr(GError) error = NULL;
  ScenarioInputs inputs = {0};
  ck_assert(simulation_inputs(devices[_i].network, PLAN, "", &inputs, &error));
  input_text_clear(&inputs.cluster);
  ck_assert(input_text_read("cluster", devices[_i].cluster, &inputs.cluster, &error));
  g_autoptr(Scenario) s = scenario_new(&inputs, 0, &error);
  ck_assert_msg(s != NULL, "%s", error != NULL ? error->message : "");
  simulation_inputs_clear(&inputs);
  int products = 0;
  for (guint i = 0; i < s->network->functions->len; i++) {
    const Function *f = network_function(s->network, (int) i);
    for (guint k = 0; k < f->ops->len; k++)
      products += strcmp(g_array_index(f->ops, Op, k).info->name, "grouped_mm") == 0;
  }
  ck_assert_int_eq(products, devices[_i].products);
}
END_TEST

/* ---- balance ---- */

/* Two mixtures of 32 experts: all counts in fp32, and with a recomputation, which counts tokens
 * twice, half of each first.  Qwen3's training has no such hook. */
static const struct {
  const char *network, *option;
  int all, halves;
} balances[] = {
    {V3(TITAN), "", 1, 0}, {V3(TITAN), CHECKPOINTED("full"), 1, 2}, {QWEN3_MOE(TITAN), "", 0, 0}};

START_TEST(a_hook_before_the_step_balances_deepseeks_experts)
{
  const char *const set[] = {balances[_i].option, NULL};
  const Simulation simulation = {balances[_i].network, PLAN, *set[0] != '\0' ? set : NULL, 0};
  g_autoptr(Simulated) s = simulation_lower(&simulation, 1);
  Allocations all = simulated_allocations(s, 0, "tokens of experts");
  Allocations halves = simulated_allocations(s, 0, "half of the tokens");
  ck_assert_int_eq(all.count, balances[_i].all);
  ck_assert_int_eq(all.bytes, balances[_i].all * 2 * 32 * 4);
  ck_assert_int_eq(halves.count, balances[_i].halves);
  ck_assert_int_eq(halves.bytes, balances[_i].halves * 32 * 4);
}
END_TEST

/* ---- norms ---- */

/* Under autocast projections are bf16 and gains are not: F.rms_norm of queries (4 heads of 128) and
 * keys (2) squares a copy in fp32.  The stream is fp32, so that the blocks' norms are one kernel.
 */
START_TEST(norms_of_another_dtype_than_their_gain_are_composed)
{
  static const char plan[] = "{'strategy': 'none', 'precision': {'compute': 'bf16', 'autocast': "
                             "true}, 'batch': {'micro_batch': 2, 'sequence_length': 256}}";
  const gint64 rows = 2 * 256, layers = 3;
  g_autoptr(Simulated) s = simulation_lower(&(Simulation){QWEN3(TITAN), plan, NULL, 0}, 1);
  Allocations squares = simulated_allocations(s, 0, "pow");
  ck_assert_int_eq(squares.count, layers * 2);
  ck_assert_int_eq(squares.bytes, layers * rows * (4 + 2) * 128 * 4);
}
END_TEST

/* ---- FLOPs ---- */

/* Padded rows are not asked for: with twice as many experts only the router's product grows, by 2 x
 * 256 x 16 FLOPs for each of 512 tokens and the three blocks, and twice that backward. */
START_TEST(rows_that_experts_are_padded_with_cost_no_flops)
{
  g_autoptr(Simulated) few = simulation_lower(&(Simulation){QWEN3_MOE(TITAN), PLAN, NULL, 0}, 1);
  g_autoptr(Simulated) many =
      simulation_lower(&(Simulation){QWEN3_MIXED("32", TITAN), PLAN, NULL, 0}, 1);
  NetworkFlops a = network_flops(few->scenario->network);
  NetworkFlops b = network_flops(many->scenario->network);
  ck_assert_double_eq_tol(b.forward - a.forward, 3 * 2.0 * 256 * 16 * 512, 1);
  ck_assert_double_eq_tol(b.backward - a.backward, 3 * 4.0 * 256 * 16 * 512, 1);
}
END_TEST

/* ---- what is refused ---- */

static const struct {
  const char *network, *option, *message;
} refusals[] = {
    {QWEN3(", 'use_sliding_window': true" TITAN), "",
     "key 'use_sliding_window': torchtitan's model has no such thing"},
    {QWEN3(", 'attention_bias': true" TITAN), "", "key 'attention_bias'"},
    {QWEN3(", 'attention_dropout': 0.1" TITAN), "", "key 'attention_dropout'"},
    {QWEN3(", 'hidden_act': 'gelu'" TITAN), "", "key 'hidden_act'"},
    {QWEN3(", 'implementation': {'code': 'torchtitan', 'rope': 'rotate_half'}"), "",
     "key 'implementation': 'rope' is of torchtitan's Llama alone"},
    {QWEN3(", 'implementation': {'code': 'torchtitan', 'kv_heads': 'repeated'}"), "",
     "key 'implementation': 'kv_heads' is of torchtitan's Llama alone"},
    {QWEN3_MOE(", 'mlp_only_layers': [1]" TITAN), "",
     "key 'mlp_only_layers': torchtitan has a mixture in every block"},
    {QWEN3_MOE(", 'decoder_sparse_step': 2" TITAN), "", "key 'decoder_sparse_step'"},
    {QWEN3_MOE(TITAN), "moe.experts=batched",
     "key 'moe.experts': torchtitan has none that are batched"},
    {QWEN3_MOE(TITAN), "moe.load_imbalance=2.5",
     "key 'moe.load_imbalance': 2.5 is more than 2, where one of 16 experts has every token"},
    {V3(", 'tie_word_embeddings': true" TITAN), "", "key 'tie_word_embeddings'"},
    {V3(", 'scoring_func': 'softplus'" TITAN), "",
     "key 'scoring_func': 'softplus' is not sigmoid or softmax"},
    {DEEPSEEK("deepseek_v3", ", 'n_group': 32, 'topk_group': 8" TITAN), "",
     "key 'n_group': torchtitan's groups have at least two experts"},
    {"{'model_type': 'gpt_oss', 'num_hidden_layers': 2, 'hidden_size': 256, 'intermediate_size': "
     "128, 'vocab_size': 1000, 'num_attention_heads': 4" TITAN "}",
     "", "key 'implementation': 'torchtitan' is not known for gpt_oss: only transformers"},
};

START_TEST(what_torchtitan_does_not_have_is_refused_by_its_name)
{
  g_autofree char *message = simulation_refusal(refusals[_i].network, PLAN, refusals[_i].option);
  ck_assert_msg(strstr(message, refusals[_i].message) != NULL, "%s", message);
}
END_TEST

Suite *
test_suite(void)
{
  Suite *suite = suite_create("torchtitan");
  TCase *tests = tcase_create("torchtitan");
  tcase_add_loop_test(tests, a_blocks_parameters_are_torchtitans_in_its_order, 0,
                      G_N_ELEMENTS(blocks));
  tcase_add_loop_test(tests, torchtitans_flavors_have_their_sizes, 0, G_N_ELEMENTS(flavors));
  tcase_add_loop_test(tests, peaks_are_those_of_pytorch, 0, G_N_ELEMENTS(runs));
  tcase_add_loop_test(tests, deepseeks_experts_have_one_product_where_the_device_has_it, 0,
                      G_N_ELEMENTS(devices));
  tcase_add_loop_test(tests, a_hook_before_the_step_balances_deepseeks_experts, 0,
                      G_N_ELEMENTS(balances));
  tcase_add_test(tests, norms_of_another_dtype_than_their_gain_are_composed);
  tcase_add_test(tests, rows_that_experts_are_padded_with_cost_no_flops);
  tcase_add_loop_test(tests, what_torchtitan_does_not_have_is_refused_by_its_name, 0,
                      G_N_ELEMENTS(refusals));
  suite_add_tcase(suite, tests);
  return suite;
}
