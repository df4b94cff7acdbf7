/* check_leaf_modules.c - mixtures of experts that stage 3 of DeepSpeed takes as one: small
 * networks' steps take the memory that they took under DeepSpeed 0.19.8 with transformers 5.24 and
 * PyTorch 2.11, its own allocator on a stand-in device; micro-batches of 2 x 256 tokens. */
#include "small_network.h"
#include "tap_main.h"

#define MIXTURE                                                                                    \
  ", 'hidden_size': 256, 'num_attention_heads': 4, 'num_key_value_heads': 2, 'vocab_size': 1000, " \
  "'num_experts_per_tok': 2, 'rms_norm_eps': 1e-5, 'max_position_embeddings': 4096"
#define MIXTRAL                                                                                    \
  "{'model_type': 'mixtral', 'num_hidden_layers': 2, 'intermediate_size': 128, "                   \
  "'num_local_experts': 4, 'sliding_window': null" MIXTURE "}"
#define QWEN2                                                                                      \
  "{'model_type': 'qwen2_moe', 'num_hidden_layers': 4, 'intermediate_size': 512, 'num_experts': "  \
  "4, 'moe_intermediate_size': 128, 'shared_expert_intermediate_size': 256, "                      \
  "'decoder_sparse_step': 2" MIXTURE "}"
#define QWEN3                                                                                      \
  "{'model_type': 'qwen3_moe', 'num_hidden_layers': 3, 'intermediate_size': 512, 'num_experts': "  \
  "4, 'moe_intermediate_size': 128, 'head_dim': 64" MIXTURE "}"
#define PLAN                                                                                       \
  "{'strategy': 'zero3', 'mesh': {'shard': 2}, 'batch': {'micro_batch': 2, 'sequence_length': "    \
  "256}, 'precision': {'parameters': 'bf16'}, 'optimizer': {'clip_grad_norm': 1}}"

static const struct {
  const char *name, *network, *options;
  Peaks steps[2];
} measured[] = {
    {"Mixtral", MIXTRAL, "mesh.shard=2", {{1090684928, 1151336448}, {1103385088, 1172307968}}},
    {"Mixtral, checkpointed, without reuse",
     MIXTRAL,
     "activation_checkpointing.policy=full deepspeed.stage3_max_reuse_distance=0",
     {{1088433152, 1142947840}, {1093819904, 1168113664}}},
    {"Qwen2-MoE, whose every second block has shared experts",
     QWEN2,
     "mesh.shard=2",
     {{1108234240, 1182793728}, {1130525184, 1186988032}}},
    {"Qwen3-MoE on four ranks, a small bucket, nothing persistent",
     QWEN3,
     "mesh.shard=4 deepspeed.reduce_bucket_size=300000 "
     "deepspeed.stage3_param_persistence_threshold=0",
     {{96769536, 119537664}, {107394560, 142606336}}},
};

START_TEST(a_mixture_takes_the_memory_that_it_took_as_a_leaf_module)
{
  g_auto(GStrv) set = g_strsplit(measured[_i].options, " ", -1);
  const Simulation simulation = {measured[_i].network, PLAN, (const char *const *) set, 0};
  g_autoptr(Simulated) s = simulation_execute(&simulation, 2, (gint64) 1 << 40);
  peaks_expect(s, measured[_i].name, measured[_i].steps, G_N_ELEMENTS(measured[_i].steps));
}
END_TEST

START_TEST(one_whose_input_requires_no_gradient_is_refused)
{
  const char *set[] = {"trainable=[\"*.experts.*\"]", NULL};
  g_autoptr(GError) error = NULL;
  g_autoptr(Simulated) s = simulation_try(&(Simulation){MIXTRAL, PLAN, set, 0}, 1, &error);
  ck_assert(s == NULL);
  ck_assert(test_error_says(error, "key 'trainable': not yet supported: DeepSpeed reduces "
                                   "model.layers.0.mlp, whose input requires no gradient"));
}
END_TEST

Suite *
test_suite(void)
{
  Suite *suite = suite_create("leaf modules");
  TCase *tcase = tcase_create("leaf modules");
  tcase_add_loop_test(tcase, a_mixture_takes_the_memory_that_it_took_as_a_leaf_module, 0,
                      G_N_ELEMENTS(measured));
  tcase_add_test(tcase, one_whose_input_requires_no_gradient_is_refused);
  suite_add_tcase(suite, tcase);
  return suite;
}
