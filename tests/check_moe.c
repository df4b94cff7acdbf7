/* check_moe.c - mixtures of experts: parameters and peaks of memory of small networks as PyTorch
 * 2.11 and transformers 5.24 have them, with the real allocator; groups of experts; how the plan
 * says that experts are computed and tokens fall on them; FLOPs; what is refused.
 *
 * What each op allocates is check_op.c's matter. */
#include <string.h>

#include "network/network_flops.h"
#include "simulation.h"
#include "small_network.h"
#include "tap_main.h"

/* All networks are 256 wide, with 4 heads and 1000 words. */
#define NETWORK(type, layers, more)                                                                \
  "{'model_type': '" type "', 'num_hidden_layers': " layers ", 'hidden_size': 256, "               \
  "'intermediate_size': 128, 'num_attention_heads': 4, 'vocab_size': 1000, " more "}"
#define OLMOE(experts, k)                                                                          \
  NETWORK("olmoe", "2", "'num_experts': " experts ", 'num_experts_per_tok': " k)
#define MIXTRAL                                                                                    \
  NETWORK("mixtral", "2",                                                                          \
          "'num_key_value_heads': 2, 'num_local_experts': 4, 'num_experts_per_tok': 2")
#define QWEN2                                                                                      \
  NETWORK("qwen2_moe", "2",                                                                        \
          "'moe_intermediate_size': 64, 'shared_expert_intermediate_size': 192, 'num_experts': "   \
          "16, 'num_experts_per_tok': 4")
#define QWEN3(layers, dense)                                                                       \
  NETWORK("qwen3_moe", layers,                                                                     \
          "'num_key_value_heads': 4, 'head_dim': 64, 'moe_intermediate_size': 64, 'num_experts': " \
          "16, 'num_experts_per_tok': 8, 'norm_topk_prob': true, 'mlp_only_layers': [" dense "]")
#define GRANITE                                                                                    \
  NETWORK("granitemoe", "2",                                                                       \
          "'num_key_value_heads': 4, 'tie_word_embeddings': true, 'num_local_experts': 32, "       \
          "'num_experts_per_tok': 8")

#define DEEPSEEK(type, layers, more)                                                               \
  NETWORK(type, layers,                                                                            \
          "'num_key_value_heads': 4, 'n_routed_experts': 32, 'moe_intermediate_size': 64, "        \
          "'kv_lora_rank': 64, 'first_k_dense_replace': 1, " more)
#define DEEPSEEK_V3                                                                                \
  DEEPSEEK("deepseek_v3", "3",                                                                     \
           "'n_group': 4, 'topk_group': 2, 'q_lora_rank': 96, 'num_experts_per_tok': 8")

#define GPT_OSS(heads)                                                                             \
  "{'model_type': 'gpt_oss', 'num_hidden_layers': 2, 'hidden_size': 256, 'intermediate_size': "    \
  "128, 'vocab_size': 1000, 'head_dim': 64, 'num_key_value_heads': 4, 'num_local_experts': 8, "    \
  "'num_experts_per_tok': 2, 'num_attention_heads': " heads "}"

#define BALANCED(type, more) NETWORK(type, "2", more ", 'output_router_logits': true")

#define PLAN                                                                                       \
  "{'strategy': 'fsdp2', 'mesh': {'shard': 8}, 'optimizer': {'name': 'adamw', 'implementation': "  \
  "'fused', 'zero_grad': 'end'}, 'precision': {'compute': 'bf16', 'reduce': 'fp32'}, 'fsdp': "     \
  "{'reshard_after_forward': true}}"
#define BATCH(n, length) "batch.micro_batch=" n, "batch.sequence_length=" length

/* ---- parameters, by the name within a block ---- */

static const struct {
  const char *network;
  const char *feed_forward; /* of block 0, with the norms around it */
} blocks[] = {
    {OLMOE("64", "8"), "mlp.gate.weight[64,256] mlp.experts.gate_up_proj[64,256,256] "
                       "mlp.experts.down_proj[64,256,128] input_layernorm.weight[256] "
                       "post_attention_layernorm.weight[256]"},
    {MIXTRAL,
     "mlp.gate.weight[4,256] mlp.experts.gate_up_proj[4,256,256] mlp.experts.down_proj[4,256,128] "
     "input_layernorm.weight[256] post_attention_layernorm.weight[256]"},
    {QWEN2, "mlp.gate.weight[16,256] mlp.experts.gate_up_proj[16,128,256] "
            "mlp.experts.down_proj[16,256,64] mlp.shared_expert.gate_proj.weight[192,256] "
            "mlp.shared_expert.up_proj.weight[192,256] mlp.shared_expert.down_proj.weight[256,192] "
            "mlp.shared_expert_gate.weight[1,256] input_layernorm.weight[256] "
            "post_attention_layernorm.weight[256]"},
    {QWEN3("2", ""),
     "mlp.experts.gate_up_proj[16,128,256] mlp.experts.down_proj[16,256,64] "
     "mlp.gate.weight[16,256] input_layernorm.weight[256] post_attention_layernorm.weight[256]"},
    {NETWORK("deepseek_v2", "2",
             "'n_routed_experts': 32, 'moe_intermediate_size': 64, 'num_experts_per_tok': 6"),
     "mlp.experts.gate_up_proj[32,128,256] mlp.experts.down_proj[32,256,64] "
     "mlp.gate.weight[32,256] mlp.shared_experts.gate_proj.weight[128,256] "
     "mlp.shared_experts.up_proj.weight[128,256] mlp.shared_experts.down_proj.weight[256,128] "
     "input_layernorm.weight[256] post_attention_layernorm.weight[256]"},
    {DEEPSEEK_V3, /* its first block is dense */
     "mlp.gate_proj.weight[128,256] mlp.up_proj.weight[128,256] mlp.down_proj.weight[256,128] "
     "input_layernorm.weight[256] post_attention_layernorm.weight[256]"},
    {GPT_OSS("4"),
     "mlp.router.weight[8,256] mlp.router.bias[8] mlp.experts.gate_up_proj[8,256,256] "
     "mlp.experts.gate_up_proj_bias[8,256] mlp.experts.down_proj[8,128,256] "
     "mlp.experts.down_proj_bias[8,256] input_layernorm.weight[256] "
     "post_attention_layernorm.weight[256]"},
    {GRANITE,
     "input_layernorm.weight[256] post_attention_layernorm.weight[256] "
     "block_sparse_moe.router.weight[32,256] block_sparse_moe.experts.gate_up_proj[32,256,256] "
     "block_sparse_moe.experts.down_proj[32,256,128]"},
};

START_TEST(a_mixtures_parameters_are_those_of_transformers_in_its_order)
{
  g_autoptr(GError) error = NULL;
  g_autoptr(Scenario) s = simulation_read(&(Simulation){blocks[_i].network, PLAN, NULL, 0}, &error);
  ck_assert_msg(s != NULL, "%s", error != NULL ? error->message : "");
  g_autofree char *text = parameters_text(s->network, "model.layers.0.", "self_attn");
  ck_assert_str_eq(text, blocks[_i].feed_forward);
}
END_TEST

/* ---- peaks ---- */

enum { STEPS = 3 };

static const struct {
  const char *network;
  const char *set[5];
  gint64 allocated[STEPS], reserved[STEPS];
} runs[] = {
    {OLMOE("64", "8"),
     {BATCH("1", "2048")},
     {235573760, 249247744, 249247744},
     {337641472, 341835776, 341835776}},
    {MIXTRAL,
     {BATCH("2", "512")},
     {102001152, 108556800, 108556800},
     {146800640, 148897792, 148897792}},
    {MIXTRAL,
     {BATCH("2", "512"), "activation_checkpointing={\"policy\": \"full\", \"around\": \"module\"}"},
     {93855232, 96353280, 96353280},
     {132120576, 134217728, 134217728}},
    {MIXTRAL,
     {BATCH("2", "512"), "precision.compute=fp32"},
     {149696512, 152194560, 152194560},
     {190840832, 192937984, 192937984}},
    {MIXTRAL,
     {BATCH("2", "64"), "moe.experts=batched"},
     {194000384, 196498432, 196498432},
     {253755392, 255852544, 255852544}},
    {QWEN2, {BATCH("2", "256")}, {94615552, 98179072, 98179072}, {140509184, 142606336, 142606336}},
    {QWEN3("2", ""),
     {BATCH("2", "256")},
     {103235584, 105874944, 105874944},
     {136314880, 138412032, 138412032}},
    {QWEN3("3", "1"), /* the second block has no experts */
     {BATCH("1", "256")},
     {90174464, 93320192, 93320192},
     {136314880, 140509184, 140509184}},
    {GRANITE,
     {BATCH("2", "256")},
     {115355136, 122458624, 122458624},
     {176160768, 184549376, 184549376}},
    {DEEPSEEK_V3,
     {BATCH("2", "256")},
     {126686208, 131576320, 131576320},
     {171966464, 176160768, 176160768}},
    {DEEPSEEK("deepseek_v3", "2",
              "'n_group': 4, 'topk_group': 2, 'q_lora_rank': 96, 'num_experts_per_tok': 8, "
              "'rope_interleave': false, 'norm_topk_prob': false, 'implementation': {'attention': "
              "'eager'}"),
     {BATCH("2", "128")},
     {93224960, 96145408, 96145408},
     {132120576, 134217728, 134217728}},
    {DEEPSEEK("deepseek_v2", "3", "'q_lora_rank': 96, 'num_experts_per_tok': 6"),
     {BATCH("2", "256")},
     {120373248, 125361664, 125361664},
     {169869312, 176160768, 176160768}},
    {DEEPSEEK("deepseek_v2", "2",
              "'n_group': 4, 'topk_group': 2, 'topk_method': 'group_limited_greedy', "
              "'q_lora_rank': null, 'num_experts_per_tok': 6"),
     {BATCH("1", "256")},
     {89905152, 93494272, 93494272},
     {150994944, 155189248, 155189248}},
    {GPT_OSS("4"),
     {BATCH("2", "256")},
     {92452864, 98112512, 98112512},
     {136314880, 138412032, 138412032}},
    {GPT_OSS("16"),
     {BATCH("1", "2048")},
     {809418752, 812862976, 812862976},
     {1080033280, 1084227584, 1084227584}},
    /* routers' logits are kept, and make a loss in all but DeepSeek's models */
    {BALANCED("mixtral",
              "'num_key_value_heads': 2, 'num_local_experts': 4, 'num_experts_per_tok': 2"),
     {BATCH("2", "512")},
     {102017536, 108573184, 108573184},
     {146800640, 148897792, 148897792}},
    {BALANCED("olmoe", "'num_experts': 16, 'num_experts_per_tok': 2"),
     {BATCH("1", "4096"), "activation_checkpointing={\"policy\": \"full\", \"around\": \"module\"}",
      "precision.output=fp32"},
     {156892672, 161104896, 161104896},
     {199229440, 203423744, 203423744}},
    {BALANCED("gpt_oss", "'head_dim': 64, 'num_key_value_heads': 4, 'num_local_experts': 8, "
                         "'num_experts_per_tok': 2"),
     {BATCH("1", "512")},
     {96541696, 100307968, 100307968},
     {136314880, 138412032, 138412032}},
    {DEEPSEEK("deepseek_v3", "3",
              "'n_group': 4, 'topk_group': 2, 'q_lora_rank': 96, 'num_experts_per_tok': 8, "
              "'output_router_logits': true"),
     {BATCH("2", "256")},
     {126686208, 131576320, 131576320},
     {171966464, 176160768, 176160768}},
    /* fully_shard() of every block's experts, then of every block */
    {OLMOE("16", "2"),
     {BATCH("2", "256"), "fsdp.groups=[\"model.layers.*.mlp.experts\", \"model.layers.*\"]"},
     {93531648, 97743872, 97743872},
     {136314880, 140509184, 140509184}},
};

START_TEST(peaks_are_those_of_pytorch)
{
  const Simulation simulation = {runs[_i].network, PLAN, runs[_i].set, 0};
  g_autoptr(Simulated) s = simulation_execute(&simulation, STEPS, G_MAXINT64);
  simulated_check(s);
  for (int i = 0; i < STEPS; i++) {
    const StepRecord *step = &g_array_index(s->recording->steps, StepRecord, (guint) i);
    ck_assert_int_eq(step->peak_allocated, runs[_i].allocated[i]);
    ck_assert_int_eq(step->peak_reserved, runs[_i].reserved[i]);
  }
}
END_TEST

/* ---- the same under strategies but FSDP2, on two ranks ---- */

#define FIELDS(type, more)                                                                         \
  "'model_type': '" type "', 'num_hidden_layers': 2, 'hidden_size': 256, 'intermediate_size': "    \
  "128, 'num_attention_heads': 4, 'vocab_size': 1000, " more
#define MIXTRAL_FIELDS                                                                             \
  FIELDS("mixtral", "'num_key_value_heads': 2, 'num_local_experts': 4, 'num_experts_per_tok': 2")
#define OLMOE_FIELDS FIELDS("olmoe", "'num_experts': 16, 'num_experts_per_tok': 2")

static const struct {
  SmallNetwork network;
  const char *set[8];
} elsewhere[] = {
    {{"mixtral, ddp under autocast",
      MIXTRAL_FIELDS,
      FALSE,
      FALSE,
      1694976,
      {{102670336, 119537664}, {119518720, 132120576}}},
     {"strategy=ddp", "mesh.shard=1", "mesh.replicate=2", "precision.autocast=true", NULL}},
    {{"mixtral, ddp in two micro-batches",
      MIXTRAL_FIELDS,
      FALSE,
      FALSE,
      1694976,
      {{118538240, 125829120}, {132108800, 140509184}}},
     {"strategy=ddp", "mesh.shard=1", "mesh.replicate=2", "precision.compute=fp32",
      "accumulation.steps=2", "accumulation.sync_every_step=false", NULL}},
    {{"mixtral, fsdp1",
      MIXTRAL_FIELDS,
      FALSE,
      FALSE,
      1694976,
      {{88488448, 153092096}, {97168384, 161480704}}},
     {"strategy=fsdp1", NULL}},
    {{"olmoe, fsdp1 in two micro-batches",
      OLMOE_FIELDS,
      FALSE,
      FALSE,
      4192512,
      {{111056384, 201326592}, {127836160, 207618048}}},
     {"strategy=fsdp1", "optimizer.clip_grad_norm=1", "accumulation.steps=2",
      "accumulation.sync_every_step=false", NULL}},
    {{"mixtral, ZeRO-2",
      MIXTRAL_FIELDS,
      FALSE,
      FALSE,
      1694976,
      {{1088322560, 1105199104}, {1095603712, 1105199104}}},
     {"strategy=zero2", "precision.parameters=bf16", "precision.reduce=bf16",
      "optimizer.implementation=foreach", "optimizer.clip_grad_norm=1", NULL}},
    {{"olmoe, ZeRO-1",
      OLMOE_FIELDS,
      FALSE,
      FALSE,
      4192512,
      {{1101965824, 1130364928}, {1118736384, 2130706432}}},
     {"strategy=zero1", "precision.parameters=bf16", "precision.reduce=bf16",
      "optimizer.implementation=foreach", "optimizer.clip_grad_norm=1", NULL}},
    {{"olmoe, ZeRO-3: routers give back three tensors",
      OLMOE_FIELDS,
      FALSE,
      FALSE,
      4192512,
      {{1117789696, 1195376640}, {1132690432, 1197473792}}},
     {"strategy=zero3", "precision.parameters=bf16", "precision.reduce=bf16",
      "optimizer.implementation=foreach", "optimizer.clip_grad_norm=1", NULL}},
};

START_TEST(peaks_under_other_strategies_are_those_of_pytorch)
{
  small_network_expect_with(&elsewhere[_i].network, elsewhere[_i].set);
}
END_TEST

/* transformers' loop over 4 experts that have 256 tokens each; its second step is not recorded,
 * since a stand-in device finds no tokens. */
START_TEST(the_first_step_of_a_loop_over_experts_has_pytorchs_peak)
{
  const char *const set[] = {BATCH("2", "256"), "moe.experts=eager", NULL};
  g_autoptr(Simulated) s = simulation_execute(&(Simulation){MIXTRAL, PLAN, set, 0}, 1, G_MAXINT64);
  const StepRecord *step = &g_array_index(s->recording->steps, StepRecord, 0);
  ck_assert_int_eq(step->peak_allocated, 86467072);
  ck_assert_int_eq(step->peak_reserved, 134217728);
}
END_TEST

/* ---- groups ---- */

/* 16 experts of 3 x 256 x 128 in bf16. */
START_TEST(experts_are_gathered_as_a_group_of_their_own)
{
  const char *const set[] = {
      BATCH("1", "64"), "fsdp.groups=[\"model.layers.*.mlp.experts\", \"model.layers.*\"]", NULL};
  const gint64 experts = 16 * 3 * 256 * 128;
  g_autoptr(Simulated) s = simulation_lower(&(Simulation){OLMOE("16", "2"), PLAN, set, 0}, 1);
  const Collective *c;
  int gathers = 0;
  for (guint at = 0; (c = simulated_next_collective(s, 0, &at)) != NULL;)
    gathers += c->kind == COLLECTIVE_ALL_GATHER && c->bytes == experts * 2;
  ck_assert_int_eq(gathers, 4); /* two blocks, forward and backward */
}
END_TEST

/* ---- load ---- */

/* 128 tokens, 2 of 8 experts each: 32 a mean expert.  Pairs of int64 say where tokens are. */
static const struct {
  const char *imbalance;
  gint64 busiest;
} loads[] = {{"moe.load_imbalance=1", 32},
             {"moe.load_imbalance=1.5", 48},
             {"moe.load_imbalance=2.01", 65},
             {"moe.load_imbalance=4", 128}};

START_TEST(the_busiest_expert_of_a_loop_has_so_many_times_the_mean)
{
  const char *const set[] = {BATCH("1", "128"), "moe.experts=eager", loads[_i].imbalance, NULL};
  g_autoptr(Simulated) s = simulation_lower(&(Simulation){OLMOE("8", "2"), PLAN, set, 0}, 1);
  Allocations tokens = simulated_allocations(s, 0, "tokens of an expert");
  ck_assert_int_eq(tokens.largest, 16 * loads[_i].busiest);
  ck_assert_int_eq(tokens.bytes, 2 * 16 * 128 * 2); /* all pairs of both blocks */
  /* three in a row would be impossible where one expert has every token: 7 share the rest */
  ck_assert_int_eq(tokens.count, 2 * 8);
}
END_TEST

/* Rows that the network's first grouped product is padded to. */
static gint64
padded_rows(const Network *n)
{
  for (guint f = 0; f < n->functions->len; f++) {
    const Function *function = network_function(n, (int) f);
    for (guint i = 0; i < function->kernels->len; i++) {
      const OpKernel *kernel = &g_array_index(function->kernels, OpKernel, i);
      if (strcmp(kernel->name, "grouped_mm") == 0)
        return kernel->kernel.m;
    }
  }
  return -1;
}

/* 512 tokens, 2 of 8 experts each, are 128 a mean expert, one tile of rows.  With 4 times the mean
 * the busiest has four tiles, and the others' 74 tokens are as long as a tile of 128. */
START_TEST(a_grouped_product_rounds_every_experts_rows_to_tiles)
{
  const char *const even[] = {BATCH("1", "512"), NULL};
  const char *const uneven[] = {BATCH("1", "512"), "moe.load_imbalance=4", NULL};
  g_autoptr(Simulated) s = simulation_lower(&(Simulation){OLMOE("8", "2"), PLAN, even, 0}, 1);
  ck_assert_int_eq(padded_rows(s->scenario->network), 8 * 128);
  g_autoptr(Simulated) t = simulation_lower(&(Simulation){OLMOE("8", "2"), PLAN, uneven, 0}, 1);
  ck_assert_int_eq(padded_rows(t->scenario->network), 4 * 128 + 7 * 128);
}
END_TEST

/* ---- FLOPs ---- */

/* With twice as many experts only the router's product grows: 2 x 256 x 8 FLOPs more for each of 64
 * tokens and both blocks, and twice that backward. */
START_TEST(experts_that_a_token_is_not_sent_to_cost_no_flops)
{
  static const char *const implementations[] = {"moe.experts=grouped", "moe.experts=batched",
                                                "moe.experts=eager"};
  for (int i = 0; i < 3; i++) {
    const char *const set[] = {BATCH("1", "64"), implementations[i], NULL};
    g_autoptr(Simulated) few = simulation_lower(&(Simulation){OLMOE("8", "2"), PLAN, set, 0}, 1);
    g_autoptr(Simulated) many = simulation_lower(&(Simulation){OLMOE("16", "2"), PLAN, set, 0}, 1);
    NetworkFlops a = network_flops(few->scenario->network);
    NetworkFlops b = network_flops(many->scenario->network);
    ck_assert_double_eq_tol(b.forward - a.forward, 2.0 * 2 * 256 * 8 * 64, 1);
    ck_assert_double_eq_tol(b.backward - a.backward, 2.0 * 4 * 256 * 8 * 64, 1);
  }
}
END_TEST

/* 6 FLOPs for each parameter that a token meets: of 16 experts of 3 x 256 x 128 two; embeddings are
 * looked up.  Attention: 12 x 2 blocks x 256 x 64. */
START_TEST(the_convention_counts_active_parameters)
{
  const char *const set[] = {BATCH("1", "64"), NULL};
  g_autoptr(Simulated) s = simulation_lower(&(Simulation){OLMOE("16", "2"), PLAN, set, 0}, 1);
  const Network *n = s->scenario->network;
  double active =
      (double) (network_parameter_count(n) - 1000 * 256 - 2 * 14 * (gint64) 3 * 256 * 128);
  ck_assert_double_eq_tol(network_model_flops_per_token(n), 6 * active + 12.0 * 2 * 256 * 64, 1);
}
END_TEST

/* ---- what is refused ---- */

static const struct {
  const char *network, *option, *message;
} refusals[] = {
    {OLMOE("8", "2"), "moe.load_imbalance=4.5",
     "key 'moe.load_imbalance': 4.5 is more than 4, where one of 8 experts has every token"},
    {OLMOE("8", "2"), "moe.load_imbalance=0.5", "key 'moe.load_imbalance'"},
    {OLMOE("8", "2"), "moe.experts=looped", "key 'moe.experts'"},
    {OLMOE("8", "9"), "", "key 'num_experts_per_tok': 9 are more than the 8 experts"},
    {OLMOE("4097", "2"), "", "key 'num_experts': 4097 is not in 1..4096"},
    {DEEPSEEK("deepseek_v3", "2", "'n_shared_experts': 1099511627776"), "",
     "key 'n_shared_experts'"},
    {OLMOE("8", "2"), "compile=per_block", "key 'compile': mixtures of experts are not compiled"},
    {NETWORK("qwen3_moe", "2", "'mlp_only_layers': [0, 1], 'output_router_logits': true"), "",
     "key 'output_router_logits': no layer has a router"},
    {NETWORK("mixtral", "2", "'experts_implementation': 'eager'"), "",
     "key 'experts_implementation': is the plan's to say: moe.experts"},
    {NETWORK("mixtral", "2", "'partial_rotary_factor': 0.5"), "",
     "key 'partial_rotary_factor': the rotation of a part of a head is not known of mixtral"},
    {NETWORK("mixtral", "2", "'router_jitter_noise': 0.1"), "", "key 'router_jitter_noise'"},
    {NETWORK("qwen3_moe", "2", "'mlp_only_layers': 1"), "", "key 'mlp_only_layers'"},
    {DEEPSEEK("deepseek_v3", "2", "'n_group': 3"), "", "key 'n_group': 3 does not divide"},
    {DEEPSEEK("deepseek_v3", "2", "'n_group': 4, 'topk_group': 5"), "",
     "key 'topk_group': 5 are more than the groups"},
    {DEEPSEEK("deepseek_v2", "2", "'num_experts_per_tok': 6, 'topk_method': 'noaux_tc'"), "",
     "key 'topk_method': 'noaux_tc' is not greedy or group_limited_greedy"},
    {DEEPSEEK("deepseek_v2", "2", "'topk_method': 'greedy'"), "",
     "key 'num_experts_per_tok' is missing"},
    {NETWORK("gpt_oss", "2", "'implementation': {'attention': 'flash'}"), "",
     "the attention of gpt_oss is eager"},
    {NETWORK("mixtral", "2", "'hidden_act': 'snake'"), "", "key 'hidden_act'"},
};

START_TEST(what_is_not_computed_is_refused)
{
  g_autofree char *message = simulation_refusal(refusals[_i].network, PLAN, refusals[_i].option);
  ck_assert_msg(strstr(message, refusals[_i].message) != NULL, "%s", message);
}
END_TEST

Suite *
test_suite(void)
{
  Suite *suite = suite_create("moe");
  TCase *tests = tcase_create("moe");
  tcase_add_loop_test(tests, a_mixtures_parameters_are_those_of_transformers_in_its_order, 0,
                      G_N_ELEMENTS(blocks));
  tcase_add_loop_test(tests, peaks_are_those_of_pytorch, 0, G_N_ELEMENTS(runs));
  tcase_add_loop_test(tests, peaks_under_other_strategies_are_those_of_pytorch, 0,
                      G_N_ELEMENTS(elsewhere));
  tcase_add_test(tests, the_first_step_of_a_loop_over_experts_has_pytorchs_peak);
  tcase_add_test(tests, experts_are_gathered_as_a_group_of_their_own);
  tcase_add_loop_test(tests, the_busiest_expert_of_a_loop_has_so_many_times_the_mean, 0,
                      G_N_ELEMENTS(loads));
  tcase_add_test(tests, a_grouped_product_rounds_every_experts_rows_to_tiles);
  tcase_add_test(tests, experts_that_a_token_is_not_sent_to_cost_no_flops);
  tcase_add_test(tests, the_convention_counts_active_parameters);
  tcase_add_loop_test(tests, what_is_not_computed_is_refused, 0, G_N_ELEMENTS(refusals));
  suite_add_tcase(suite, tests);
  return suite;
}
