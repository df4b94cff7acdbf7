/* check_accelerate.c - configurations of accelerate and of the Trainer as users have them: a small
 * network's steps take the memory that they took under accelerate 1.15's prepare() and backward(),
 * or in the Trainer's train(), with PyTorch 2.11, transformers 5.24 and DeepSpeed 0.19.8, their own
 * allocator on a stand-in device; 8 ranks, optimizers fused, micro-batches of 2 x 256 tokens,
 * labels that are the tokens, but for DeepSpeed. */
#include "import/training_config.h"
#include "small_network.h"
#include "strategy/strategy.h"
#include "tap_main.h"

#include <string.h>

#define NETWORK(type, more)                                                                        \
  "{'model_type': '" type "', 'num_hidden_layers': 2, 'hidden_size': 256, "                        \
  "'num_attention_heads': 4, 'num_key_value_heads': 2, 'intermediate_size': 384, "                 \
  "'vocab_size': 1000" more "}"
#define LLAMA NETWORK("llama", "")
#define TIED NETWORK("qwen2", ", 'tie_word_embeddings': true")

#define GPT2                                                                                       \
  "{'model_type': 'gpt2', 'n_layer': 2, 'n_embd': 256, 'n_head': 4, 'vocab_size': 1000, "          \
  "'n_positions': 512, 'embd_pdrop': 0, 'attn_pdrop': 0, 'resid_pdrop': 0}"

#define LAUNCH LAUNCHED("bf16")
#define LAUNCHED(precision)                                                                        \
  "compute_environment: LOCAL_MACHINE\ndebug: false\nmixed_precision: " precision                  \
  "\nnum_machines: 1\n"
#define FSDP LAUNCH "num_processes: 8\ndistributed_type: FSDP\n" FSDP_CONFIG
#define FSDP_CONFIG                                                                                \
  "fsdp_config:\n"                                                                                 \
  "  fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP\n  fsdp_offload_params: false\n"                \
  "  fsdp_cpu_ram_efficient_loading: true\n"
#define FSDP1                                                                                      \
  FSDP "  fsdp_version: 1\n  fsdp_backward_prefetch: BACKWARD_PRE\n  fsdp_use_orig_params: true\n"
#define FSDP2 FSDP "  fsdp_version: 2\n  fsdp_state_dict_type: SHARDED_STATE_DICT\n"
#define DEEPSPEED                                                                                  \
  LAUNCH "num_processes: 8\ndistributed_type: DEEPSPEED\ndeepspeed_config:\n"                      \
         "  gradient_accumulation_steps: 1\n  gradient_clipping: 1.0\n"                            \
         "  offload_optimizer_device: none\n"
#define DDP LAUNCH "num_processes: 8\ndistributed_type: MULTI_GPU\ngpu_ids: all\n"
#define HALF(type) LAUNCHED("fp16") "num_processes: 8\ndistributed_type: " type
#define TRAINER(more)                                                                              \
  "{\"per_device_train_batch_size\": 2, \"bf16\": true, \"max_grad_norm\": 1.0" more "}"
/* What the script says. */
#define BATCH "batch.micro_batch=2 batch.sequence_length=256"
#define ACCUMULATED BATCH " accumulation.steps=2 optimizer.clip_grad_norm=1"

/* What TrainingArguments do not say. */
#define TRAINED "batch.sequence_length=256"

static const struct {
  const char *name, *config, *network, *script;
  Peaks steps[2];
} measured[] = {
    {"one process",
     LAUNCH "num_processes: 1\ndistributed_type: 'NO'\n",
     LLAMA,
     BATCH,
     {{91066368, 113246208}, {106708992, 125829120}}},
    {"DDP", DDP, LLAMA, BATCH, {{97051648, 113246208}, {112694272, 125829120}}},
    {"DDP, two micro-batches, clipping",
     DDP,
     LLAMA,
     ACCUMULATED,
     {{106702336, 119537664}, {118683648, 130023424}}},
    {"DDP, the model's own checkpoints",
     DDP,
     LLAMA,
     BATCH " activation_checkpointing.policy=full",
     {{97051648, 113246208}, {102464512, 119537664}}},
    {"FSDP1",
     FSDP1 "  fsdp_sharding_strategy: FULL_SHARD\n",
     LLAMA,
     BATCH,
     {{82536448, 113246208}, {87572480, 113246208}}},
    {"FSDP1, gathered until backward",
     FSDP1 "  fsdp_sharding_strategy: SHARD_GRAD_OP\n",
     LLAMA,
     BATCH,
     {{83520512, 113246208}, {88556544, 113246208}}},
    {"FSDP1, its checkpoints",
     FSDP1 "  fsdp_activation_checkpointing: true\n",
     LLAMA,
     BATCH,
     {{77806080, 106954752}, {79305728, 109051904}}},
    {"FSDP1, a tied embedding, two micro-batches, clipping",
     FSDP1,
     TIED,
     ACCUMULATED,
     {{88969216, 117440512}, {90213376, 119537664}}},
    {"FSDP2",
     FSDP2 "  fsdp_reshard_after_forward: true\n",
     LLAMA,
     BATCH,
     {{82025472, 111149056}, {86088704, 113246208}}},
    {"FSDP2, a tied embedding", FSDP2, TIED, BATCH, {{82950144, 113246208}, {86765056, 113246208}}},
    {"FSDP2, its checkpoints",
     FSDP2 "  fsdp_activation_checkpointing: true\n",
     LLAMA,
     BATCH,
     {{76911104, 106954752}, {78422016, 106954752}}},
    {"FSDP2, gathered until backward, two micro-batches, clipping",
     FSDP2 "  fsdp_reshard_after_forward: false\n",
     LLAMA,
     ACCUMULATED,
     {{90054656, 115343360}, {91565568, 117440512}}},
    {"ZeRO-2",
     DEEPSPEED "  zero_stage: 2\n",
     LLAMA,
     BATCH,
     {{1083353600, 1103101952}, {1084851712, 1105199104}}},
    {"ZeRO-3",
     DEEPSPEED "  zero_stage: 3\n",
     LLAMA,
     BATCH,
     {{1081325056, 1128267776}, {1089649664, 1130364928}}},
    {"the Trainer, DDP",
     TRAINER(""),
     LLAMA,
     TRAINED,
     {{97057792, 113246208}, {112705024, 125829120}}},
    {"the Trainer, FSDP1",
     TRAINER(", \"fsdp\": \"full_shard auto_wrap\", \"fsdp_config\": {\"version\": 1, "
             "\"transformer_layer_cls_to_wrap\": [\"LlamaDecoderLayer\"]}"),
     LLAMA,
     TRAINED,
     {{81557504, 113246208}, {86595072, 113246208}}},
    {"the Trainer, FSDP2",
     TRAINER(", \"fsdp\": true, \"fsdp_config\": {\"version\": 2, "
             "\"transformer_layer_cls_to_wrap\": [\"LlamaDecoderLayer\"]}"),
     LLAMA,
     TRAINED,
     {{82030592, 111149056}, {86094848, 113246208}}},
    {"the Trainer, DDP, three micro-batches",
     TRAINER(", \"gradient_accumulation_steps\": 3"),
     LLAMA,
     TRAINED,
     {{106724864, 119537664}, {118706688, 130023424}}},
    {"the Trainer, items of each rank, losses unseen, gradients unclipped",
     "{\"per_device_train_batch_size\": 2, \"bf16\": true, \"max_grad_norm\": 0, "
     "\"average_tokens_across_devices\": false, \"logging_nan_inf_filter\": false}",
     LLAMA,
     TRAINED,
     {{97057792, 113246208}, {112705024, 125829120}}},
    {"the Trainer, FSDP2, the model's own checkpoints, two micro-batches",
     TRAINER(
         ", \"gradient_accumulation_steps\": 2, \"gradient_checkpointing\": true, \"fsdp\": true, "
         "\"fsdp_config\": {\"version\": 2, "
         "\"transformer_layer_cls_to_wrap\": [\"LlamaDecoderLayer\"]}"),
     LLAMA,
     TRAINED,
     {{79171584, 106954752}, {80683008, 109051904}}},
    {"the Trainer, DDP, an encoder, whose loss is not divided by items",
     TRAINER(""),
     "{'model_type': 'bert', 'num_hidden_layers': 2, 'hidden_size': 256, 'num_attention_heads': 4, "
     "'intermediate_size': 512, 'vocab_size': 1000, 'max_position_embeddings': 512}",
     TRAINED,
     {{98390528, 115343360}, {113185792, 125829120}}},
    {"fp16, DDP",
     HALF("MULTI_GPU\n"),
     LLAMA,
     BATCH,
     {{97054208, 113246208}, {112695808, 125829120}}},
    {"fp16, DDP, two micro-batches, clipping",
     HALF("MULTI_GPU\n"),
     LLAMA,
     ACCUMULATED,
     {{106703872, 119537664}, {118685184, 130023424}}},
    {"fp16, DDP, clipping, an optimizer that the host tells to step",
     HALF("MULTI_GPU\n"),
     LLAMA,
     BATCH " optimizer.clip_grad_norm=1 optimizer.implementation=foreach",
     {{103027712, 119537664}, {112685056, 125829120}}},
    {"fp16, FSDP1",
     HALF("FSDP\n") FSDP_CONFIG "  fsdp_version: 1\n  fsdp_backward_prefetch: BACKWARD_PRE\n",
     LLAMA,
     BATCH,
     {{82537984, 113246208}, {87574016, 113246208}}},
    {"fp16, FSDP1, clipping, an optimizer that the host tells to step",
     HALF("FSDP\n") FSDP_CONFIG "  fsdp_version: 1\n  fsdp_backward_prefetch: BACKWARD_PRE\n",
     LLAMA,
     BATCH " optimizer.clip_grad_norm=1 optimizer.implementation=foreach",
     {{82537984, 113246208}, {87572992, 113246208}}},
    {"fp16, FSDP2, clipping",
     HALF("FSDP\n") FSDP_CONFIG "  fsdp_version: 2\n  fsdp_reshard_after_forward: true\n",
     LLAMA,
     BATCH " optimizer.clip_grad_norm=1",
     {{82027008, 111149056}, {86090240, 113246208}}},
    {"the Trainer, fp16, DDP",
     "{\"per_device_train_batch_size\": 2, \"fp16\": true, \"max_grad_norm\": 1.0}",
     LLAMA,
     TRAINED,
     {{97059840, 113246208}, {112706048, 125829120}}},
    {"the Trainer, DDP, GPT-2",
     TRAINER(""),
     GPT2,
     TRAINED,
     {{117995520, 142606336}, {133747712, 153092096}}},
};

/* What the other program's configuration says, with assignments of the script. */
static Simulated *
simulate(const char *config_text, const char *network, const char *script)
{
  const TrainingConfigSettings settings = {0};
  g_autoptr(GError) error = NULL;
  g_autoptr(TrainingConfig) config =
      training_config_read("config", config_text, strlen(config_text), &settings, &error);
  ck_assert_msg(config != NULL, "%s", error != NULL ? error->message : "");
  g_autofree char *plan = training_config_plan(config);
  g_auto(GStrv) set = g_strsplit(script, " ", -1);
  return simulation_execute(&(Simulation){network, plan, (const char *const *) set, 0}, 2,
                            (gint64) 1 << 40);
}

START_TEST(a_configuration_of_accelerate_takes_the_memory_that_it_took)
{
  g_autoptr(Simulated) s = simulate(measured[_i].config, measured[_i].network, measured[_i].script);
  peaks_expect(s, measured[_i].name, measured[_i].steps, G_N_ELEMENTS(measured[_i].steps));
}
END_TEST

/* trainer.py, _loss_shifts_labels: what LOSS_MAPPING finds in the class's name. */
START_TEST(the_first_label_of_a_sequence_is_an_item_unless_the_models_name_says_causal_lm)
{
  g_autoptr(Simulated) llama = simulate(TRAINER(""), LLAMA, TRAINED);
  g_autoptr(Simulated) gpt2 = simulate(TRAINER(""), GPT2, TRAINED);
  ck_assert(llama->scenario->network->shifts_labels);
  ck_assert(!gpt2->scenario->network->shifts_labels);
}
END_TEST

Suite *
test_suite(void)
{
  Suite *suite = suite_create("accelerate");
  TCase *tcase = tcase_create("accelerate");
  tcase_add_loop_test(tcase, a_configuration_of_accelerate_takes_the_memory_that_it_took, 0,
                      G_N_ELEMENTS(measured));
  tcase_add_test(tcase,
                 the_first_label_of_a_sequence_is_an_item_unless_the_models_name_says_causal_lm);
  suite_add_tcase(suite, tcase);
  return suite;
}
