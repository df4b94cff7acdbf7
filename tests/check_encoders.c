/* check_encoders.c - encoders and encoder-decoders: a small network of each family has as many
 * parameters as transformers' model of the same config.json, and its steps reach the same peaks of
 * memory; what blocks of two stacks are called and hand on; what is refused.
 *
 * cuDNN does not run on the stand-in GPU that the figures were read off: convolutions of vit,
 * whisper and clip were replaced there by what cuDNN's code allocates besides its workspace. */
#include "simulate/run_facts.h"
#include "small_network.h"
#include "tap_main.h"

#define BERT(type, more)                                                                           \
  "'model_type': '" type "', 'num_hidden_layers': 2, 'hidden_size': 256, "                         \
  "'num_attention_heads': 4, 'intermediate_size': 512, 'vocab_size': 1000" more
#define VIT                                                                                        \
  "'model_type': 'vit', 'num_hidden_layers': 2, 'hidden_size': 256, 'num_attention_heads': 4, "    \
  "'intermediate_size': 512, 'image_size': 64, 'patch_size': 8"
#define T5(more)                                                                                   \
  "'model_type': 't5', 'd_model': 256, 'd_kv': 64, 'd_ff': 512, 'num_layers': 2, "                 \
  "'num_decoder_layers': 2, 'num_heads': 4, 'vocab_size': 1000" more
#define STACKS                                                                                     \
  "'d_model': 256, 'encoder_layers': 2, 'decoder_layers': 2, 'encoder_attention_heads': 4, "       \
  "'decoder_attention_heads': 4, 'encoder_ffn_dim': 512, 'decoder_ffn_dim': 512, 'vocab_size': "   \
  "1000"
#define WHISPER                                                                                    \
  "'model_type': 'whisper', 'max_source_positions': 200, 'max_target_positions': 64, "             \
  "'num_mel_bins': 80, " STACKS
#define BART                                                                                       \
  "'model_type': 'bart', 'max_position_embeddings': 256, 'attention_dropout': 0.1, "               \
  "'activation_dropout': 0.1, " STACKS
#define CLIP                                                                                       \
  "'model_type': 'clip', 'projection_dim': 64, 'text_config': {'hidden_size': 128, "               \
  "'intermediate_size': 256, 'num_hidden_layers': 2, 'num_attention_heads': 2, 'vocab_size': "     \
  "1000, 'max_position_embeddings': 77}, 'vision_config': {'hidden_size': 256, "                   \
  "'intermediate_size': 512, 'num_hidden_layers': 2, 'num_attention_heads': 4, 'image_size': 64, " \
  "'patch_size': 8}"

#define SETS 6

static const struct {
  SmallNetwork network;
  const char *set[SETS + 1];
} measured[] = {
    {{"bert",
      BERT("bert", ", 'max_position_embeddings': 256"),
      FALSE,
      FALSE,
      1444072,
      {{82995712, 150994944}, {90065408, 157286400}}},
     {NULL}},
    {{"bert, eager",
      BERT("bert", ", 'max_position_embeddings': 256"),
      TRUE,
      FALSE,
      1444072,
      {{88220160, 157286400}, {95289856, 163577856}}},
     {NULL}},
    {{"bert, enough tokens to sort them",
      BERT("bert", ", 'max_position_embeddings': 256"),
      FALSE,
      FALSE,
      1444072,
      {{183700480, 264241152}, {189498368, 270532608}}},
     {"batch.micro_batch=16", NULL}},
    {{"bert, two micro-batches",
      BERT("bert", ", 'max_position_embeddings': 256"),
      FALSE,
      FALSE,
      1444072,
      {{90052096, 157286400}, {95849984, 163577856}}},
     {"accumulation.steps=2", "accumulation.sync_every_step=false", NULL}},
    {{"roberta",
      BERT("roberta", ", 'max_position_embeddings': 258, 'type_vocab_size': 1"),
      FALSE,
      FALSE,
      1444328,
      {{83004928, 150994944}, {90076672, 157286400}}},
     {NULL}},
    {{"vit",
      VIT ", 'num_labels': 10",
      FALSE,
      FALSE,
      1123594,
      {{77402624, 142606336}, {81498112, 146800640}}},
     {NULL}},
    {{"vit, checkpointed",
      VIT ", 'num_labels': 10",
      FALSE,
      TRUE,
      1123594,
      {{78451200, 144703488}, {82278912, 146800640}}},
     {"activation_checkpointing.policy=full", NULL}},
    {{"t5", T5(""), FALSE, FALSE, 2880768, {{109896704, 180355072}, {122564608, 190840832}}},
     {NULL}},
    {{"flan-t5, shorter targets",
      T5(", 'feed_forward_proj': 'gated-gelu', 'tie_word_embeddings': false"),
      FALSE,
      FALSE,
      3661056,
      {{107772928, 174063616}, {122444800, 188743680}}},
     {"batch.target_length=64", NULL}},
    {{"whisper", WHISPER, FALSE, FALSE, 3217408, {{93891584, 155189248}, {106479616, 167772160}}},
     {"batch.sequence_length=64", NULL}},
    {{"whisper, checkpointed",
      WHISPER,
      FALSE,
      TRUE,
      3217408,
      {{94940160, 155189248}, {103768576, 163577856}}},
     {"batch.sequence_length=64", "activation_checkpointing.policy=full", NULL}},
    {{"whisper, one recording",
      WHISPER,
      FALSE,
      FALSE,
      3217408,
      {{93763072, 153092096}, {101830144, 163577856}}},
     {"batch.sequence_length=64", "batch.micro_batch=1", NULL}},
    {{"bart", BART, FALSE, FALSE, 3024896, {{98978304, 165675008}, {114383872, 178257920}}},
     {NULL}},
    {{"t5, eager", T5(""), TRUE, FALSE, 2880768, {{122823680, 192937984}, {135491584, 205520896}}},
     {NULL}},
    /* without dropout: the early stop's exception is lost in the one that saves a mask */
    {{"t5, checkpointed",
      T5(", 'dropout_rate': 0"),
      FALSE,
      TRUE,
      2880768,
      {{95379456, 157286400}, {106927616, 169869312}}},
     {"activation_checkpointing.policy=full", NULL}},
    {{"t5, eager and checkpointed",
      T5(", 'dropout_rate': 0"),
      TRUE,
      TRUE,
      2880768,
      {{96861696, 159383552}, {108409856, 171966464}}},
     {"activation_checkpointing.policy=full", NULL}},
    {{"t5 in fp16",
      T5(""),
      FALSE,
      FALSE,
      2880768,
      {{112528384, 182452224}, {125196288, 192937984}}},
     {"precision.compute=fp16", NULL}},
    {{"t5 in fp16, shared unevenly",
      T5(""),
      FALSE,
      FALSE,
      2880768,
      {{110647296, 180355072}, {119526400, 186646528}}},
     {"precision.compute=fp16", "mesh.shard=3", NULL}},
    {{"whisper, eager",
      WHISPER,
      TRUE,
      FALSE,
      3217408,
      {{94499840, 157286400}, {107209728, 169869312}}},
     {"batch.sequence_length=64", NULL}},
    {{"whisper in fp16",
      WHISPER,
      FALSE,
      FALSE,
      3217408,
      {{94179328, 157286400}, {106889216, 169869312}}},
     {"batch.sequence_length=64", "precision.compute=fp16", NULL}},
    {{"bart, eager", BART, TRUE, FALSE, 3024896, {{114651648, 182452224}, {130057216, 195035136}}},
     {NULL}},
    {{"bart in fp16", BART, FALSE, FALSE, 3024896, {{98978304, 165675008}, {114383872, 178257920}}},
     {"precision.compute=fp16", NULL}},
    {{"clip on one device, eager",
      CLIP,
      TRUE,
      FALSE,
      1548929,
      {{80714240, 81788928}, {81756672, 83886080}}},
     {"strategy=none", "mesh.shard=1", "precision.parameters=bf16", "precision.reduce=bf16",
      "batch.sequence_length=77", NULL}},
    {{"bert, ddp under autocast",
      BERT("bert", ", 'max_position_embeddings': 256"),
      FALSE,
      FALSE,
      1444072,
      {{97073152, 113246208}, {110082560, 125829120}}},
     {"strategy=ddp", "mesh.shard=1", "mesh.replicate=2", "precision.autocast=true", NULL}},
    {{"bert, fsdp1",
      BERT("bert", ", 'max_position_embeddings': 256"),
      FALSE,
      FALSE,
      1444072,
      {{82995712, 150994944}, {90054656, 157286400}}},
     {"strategy=fsdp1", NULL}},
    {{"t5, ddp under autocast",
      T5(""),
      FALSE,
      FALSE,
      2880768,
      {{133994496, 159383552}, {160518656, 182452224}}},
     {"strategy=ddp", "mesh.shard=1", "mesh.replicate=2", "precision.autocast=true", NULL}},
    {{"t5, fsdp1", T5(""), FALSE, FALSE, 2880768, {{110421504, 174063616}, {123080192, 186646528}}},
     {"strategy=fsdp1", NULL}},
    {{"bart, ddp under autocast",
      BART,
      FALSE,
      FALSE,
      3024896,
      {{129197568, 153092096}, {154540544, 174063616}}},
     {"strategy=ddp", "mesh.shard=1", "mesh.replicate=2", "precision.autocast=true", NULL}},
    {{"bart, fsdp1", BART, FALSE, FALSE, 3024896, {{99505152, 161480704}, {114890240, 171966464}}},
     {"strategy=fsdp1", NULL}},
    {{"whisper, ddp",
      WHISPER,
      FALSE,
      FALSE,
      3217408,
      {{131988480, 136314880}, {141518848, 148897792}}},
     {"strategy=ddp", "mesh.shard=1", "mesh.replicate=2", "precision.compute=fp32",
      "batch.sequence_length=64", NULL}},
    {{"whisper, fsdp1",
      WHISPER,
      FALSE,
      FALSE,
      3217408,
      {{95382016, 148897792}, {106384384, 161480704}}},
     {"strategy=fsdp1", "batch.sequence_length=64", NULL}},
    {{"vit, ddp",
      VIT ", 'num_labels': 10",
      FALSE,
      FALSE,
      1123594,
      {{90750976, 109051904}, {91429888, 111149056}}},
     {"strategy=ddp", "mesh.shard=1", "mesh.replicate=2", "precision.compute=fp32", NULL}},
    {{"vit, fsdp1",
      VIT ", 'num_labels': 10",
      FALSE,
      FALSE,
      1123594,
      {{77258752, 142606336}, {81351168, 146800640}}},
     {"strategy=fsdp1", NULL}},
    {{"clip, ddp", CLIP, FALSE, FALSE, 1548929, {{99280384, 115343360}, {100103680, 117440512}}},
     {"strategy=ddp", "mesh.shard=1", "mesh.replicate=2", "precision.compute=fp32",
      "batch.sequence_length=77", NULL}},
    {{"bert, ZeRO-1",
      BERT("bert", ", 'max_position_embeddings': 256"),
      FALSE,
      FALSE,
      1444072,
      {{1083369472, 1101004800}, {1089146368, 1101004800}}},
     {"strategy=zero1", "precision.parameters=bf16", "precision.reduce=bf16",
      "optimizer.implementation=foreach", "optimizer.clip_grad_norm=1", NULL}},
    {{"bert, ZeRO-3",
      BERT("bert", ", 'max_position_embeddings': 256"),
      FALSE,
      FALSE,
      1444072,
      {{1085548032, 1124073472}, {1093281792, 1147142144}}},
     {"strategy=zero3", "precision.parameters=bf16", "precision.reduce=bf16",
      "optimizer.implementation=foreach", "optimizer.clip_grad_norm=1", NULL}},
    {{"bart, ZeRO-2",
      BART,
      FALSE,
      FALSE,
      3024896,
      {{1101287936, 1134559232}, {1113388032, 1134559232}}},
     {"strategy=zero2", "precision.parameters=bf16", "precision.reduce=bf16",
      "optimizer.implementation=foreach", "optimizer.clip_grad_norm=1", NULL}},
    {{"clip on one device in bf16",
      CLIP,
      FALSE,
      FALSE,
      1548929,
      {{80714240, 81788928}, {81308160, 83886080}}},
     {"strategy=none", "mesh.shard=1", "precision.parameters=bf16", "precision.reduce=bf16",
      "batch.sequence_length=77", NULL}},
};

START_TEST(a_small_network_takes_the_memory_that_transformers_took)
{
  small_network_expect_with(&measured[_i].network, measured[_i].set);
}
END_TEST

/* ---- fields */

static const struct {
  const char *config;
  const char *says;
} refused[] = {
    {BERT("bert", ", 'is_decoder': true"), "key 'is_decoder': a decoder is not supported"},
    {BERT("bert", ", 'architectures': ['BertForQuestionAnswering']"),
     "key 'architectures': 'BertForQuestionAnswering' is not supported"},
    {BERT("bert", ", 'position_embedding_type': 'relative_key'"),
     "key 'position_embedding_type': 'relative_key' is not supported"},
    {BERT("bert", ", 'max_position_embeddings': 128"),
     "key 'max_position_embeddings': 128 positions are fewer than the plan's sequence_length 256"},
    {BERT("roberta", ", 'max_position_embeddings': 256"),
     "key 'max_position_embeddings': 254 positions are fewer than the plan's sequence_length 256"},
    {BERT("bert", ", 'hidden_dropout_prob': 1"),
     "key 'hidden_dropout_prob': 1 is not a probability"},
    {BERT("bert", ", 'implementation': 'torchtitan'"),
     "key 'implementation': bert is transformers' code alone"},
    {VIT ", 'num_labels': 1", "key 'num_labels': 1 makes a regression"},
    {T5(", 'is_encoder_decoder': false"), "key 'is_encoder_decoder': only encoder and decoder"},
    {T5(", 'feed_forward_proj': 'gated-nothing'"),
     "key 'feed_forward_proj': 'gated-nothing' is not known"},
    {WHISPER, "key 'max_target_positions': 64 positions are fewer than the plan's"},
    {BART ", 'encoder_layerdrop': 0.1",
     "key 'encoder_layerdrop': layers that are skipped by chance are not supported"},
    {CLIP, "key 'text_config.max_position_embeddings': 77 positions are fewer than the plan's"},
};

START_TEST(a_field_that_changes_the_computation_is_honoured_or_refused_by_name)
{
  small_network_refuse(refused[_i].config, refused[_i].says);
}
END_TEST

START_TEST(fully_shard_takes_no_scalar_parameters)
{
  static const char *const set[] = {"batch.sequence_length=77", NULL};
  g_autofree char *network = g_strdup_printf("{%s}", CLIP);
  g_autoptr(GError) error = NULL;
  g_autoptr(Simulated) s =
      simulation_try(&(Simulation){network, small_network_plan, set, 0}, 1, &error);
  ck_assert_ptr_null(s);
  ck_assert(test_error_says(error, "scalar parameters, as 'logit_scale' is"));
}
END_TEST

/* ---- modules */

static Simulated *
lower_small(const char *config)
{
  g_autofree char *network = g_strdup_printf("{%s}", config);
  return simulation_lower(&(Simulation){network, small_network_plan, NULL, 0}, 1);
}

START_TEST(blocks_of_two_stacks_are_numbered_each_from_0)
{
  static const char *const paths[] = {"encoder.block.0", "encoder.block.1", "decoder.block.0",
                                      "decoder.block.1"};
  g_autoptr(Simulated) s = lower_small(T5(""));
  const Network *n = s->scenario->network;
  ck_assert_uint_eq(n->blocks->len, G_N_ELEMENTS(paths));
  for (guint i = 0; i < n->blocks->len; i++)
    ck_assert_str_eq(network_module(n, network_block(n, (int) i)->module)->path, paths[i]);
}
END_TEST

/* The encoder's first block makes a bias of the others, the decoder's two. */
START_TEST(blocks_of_t5_hand_their_biases_on)
{
  g_autoptr(Simulated) s = lower_small(T5(""));
  const Network *n = s->scenario->network;
  static const struct {
    int arguments, results;
  } expected[] = {{1, 2}, {2, 2}, {2, 3}, {4, 3}};
  for (guint i = 0; i < n->blocks->len; i++) {
    const Function *f = network_function(n, network_block(n, (int) i)->function);
    ck_assert_int_eq(f->arguments, expected[i].arguments);
    ck_assert_int_eq(1 + f->others, expected[i].results);
  }
}
END_TEST

START_TEST(one_embedding_is_that_of_encoder_decoder_and_output)
{
  static const char *const modules[] = {"encoder.embed_tokens", "decoder.embed_tokens", "lm_head"};
  g_autoptr(Simulated) s = lower_small(T5(""));
  const Network *n = s->scenario->network;
  ck_assert_uint_eq(n->ties->len, G_N_ELEMENTS(modules));
  for (guint i = 0; i < n->ties->len; i++) {
    ck_assert_str_eq(network_module(n, network_tie(n, (int) i)->module)->path, modules[i]);
    ck_assert_str_eq(network_parameter(n, network_tie(n, (int) i)->parameter)->name,
                     "shared.weight");
  }
  g_autoptr(Simulated) untied = lower_small(T5(", 'tie_word_embeddings': false"));
  ck_assert_uint_eq(untied->scenario->network->ties->len, 2);
}
END_TEST

/* (64 / 8)^2 patches and the class token, whatever the plan's sequences are. */
START_TEST(images_have_as_many_positions_as_the_config_says)
{
  g_autoptr(Simulated) s = lower_small(VIT);
  ck_assert_int_eq(s->scenario->network->positions, 65);
  ck_assert_int_eq(s->scenario->plan->sequence_length, 65);
}
END_TEST

/* modeling_whisper.py: embed_positions.requires_grad_(False). */
START_TEST(sinusoids_do_not_train)
{
  static const char *const set[] = {"batch.sequence_length=64", NULL};
  g_autofree char *network = g_strdup_printf("{%s}", WHISPER);
  g_autoptr(Simulated) s = simulation_lower(&(Simulation){network, small_network_plan, set, 0}, 1);
  const Network *n = s->scenario->network;
  ck_assert_int_eq(network_parameter_count(n) - network_trainable_count(n), 200 * 256);
}
END_TEST

/* ---- FLOPs of the small Whisper: 200 frames of 80 x 400, 64 tokens, 256 wide, 2 layers a stack
 * ---- */

enum { WIDTH = 256, INNER = 512, FRAMES = 200, TOKENS = 64, WORDS = 1000, MELS = 80, LAYERS = 2 };

/* Products of a sample's forward(), a multiply-add counting two. */
typedef struct {
  double first_convolution, second_convolution, head;
  double encoder, decoder;             /* a layer */
  double encoder_down, decoder_down;   /* of it, its last product */
  double encoder_square, other_square; /* a layer's attention over the whole square */
} Products;

static Products
whisper_products(void)
{
  const double square = (double) WIDTH * WIDTH, inner = (double) WIDTH * INNER;
  return (Products){
      .first_convolution = 2.0 * 3 * MELS * WIDTH * (2 * FRAMES),
      .second_convolution = 2.0 * 3 * square * FRAMES,
      .head = 2.0 * WIDTH * WORDS * TOKENS,
      .encoder = 2 * (4 * square + 2 * inner) * FRAMES,
      /* queries and outputs of cross-attention are of tokens, keys and values of frames */
      .decoder = 2 * (6 * square + 2 * inner) * TOKENS + 2 * 2 * square * FRAMES,
      .encoder_down = 2 * inner * FRAMES,
      .decoder_down = 2 * inner * TOKENS,
      .encoder_square = 4.0 * WIDTH * FRAMES * FRAMES,
      .other_square = 4.0 * WIDTH * TOKENS * (TOKENS + FRAMES),
  };
}

static RunInfo *
whisper_facts(const char *policy)
{
  const char *const set[] = {"batch.sequence_length=64", policy, NULL};
  g_autofree char *network = g_strdup_printf("{%s}", WHISPER);
  g_autoptr(Simulated) s = simulation_lower(&(Simulation){network, small_network_plan, set, 0}, 2);
  return run_facts(s->scenario, s->lowered, 0);
}

/* Backward does everything twice but the first convolution, whose input wants no gradient. */
START_TEST(flops_of_two_stacks_are_what_each_position_meets)
{
  const Products p = whisper_products();
  double layers = LAYERS * (p.encoder + p.decoder + p.encoder_square + p.other_square);
  double once = 3 * (layers + p.second_convolution + p.head) + 2 * p.first_convolution;
  g_autoptr(RunInfo) info = whisper_facts("activation_checkpointing.policy=none");
  ck_assert_double_eq_tol(info->model_flops / (2 * once), 1, 1e-12);
  ck_assert_double_eq(info->hardware_flops, info->model_flops);
}
END_TEST

/* A recomputation stops before the last product of a layer.  Attention that is not causal is
 * computed as a whole square, and so counted; that of the decoder's tokens is counted so. */
START_TEST(what_checkpointing_repeats_counts_each_square_once)
{
  const Products p = whisper_products();
  double again = LAYERS * (p.encoder - p.encoder_down + p.encoder_square + p.decoder -
                           p.decoder_down + p.other_square);
  g_autoptr(RunInfo) info = whisper_facts("activation_checkpointing.policy=full");
  ck_assert_double_eq_tol((info->hardware_flops - info->model_flops) / (2 * again), 1, 1e-12);
}
END_TEST

Suite *
test_suite(void)
{
  Suite *suite = suite_create("encoders");
  TCase *tcase = tcase_create("measured");
  tcase_add_loop_test(tcase, a_small_network_takes_the_memory_that_transformers_took, 0,
                      G_N_ELEMENTS(measured));
  suite_add_tcase(suite, tcase);
  tcase = tcase_create("fields");
  tcase_add_loop_test(tcase, a_field_that_changes_the_computation_is_honoured_or_refused_by_name, 0,
                      G_N_ELEMENTS(refused));
  tcase_add_test(tcase, fully_shard_takes_no_scalar_parameters);
  suite_add_tcase(suite, tcase);
  tcase = tcase_create("modules");
  tcase_add_test(tcase, blocks_of_two_stacks_are_numbered_each_from_0);
  tcase_add_test(tcase, blocks_of_t5_hand_their_biases_on);
  tcase_add_test(tcase, one_embedding_is_that_of_encoder_decoder_and_output);
  tcase_add_test(tcase, images_have_as_many_positions_as_the_config_says);
  tcase_add_test(tcase, sinusoids_do_not_train);
  tcase_add_test(tcase, flops_of_two_stacks_are_what_each_position_meets);
  tcase_add_test(tcase, what_checkpointing_repeats_counts_each_square_once);
  suite_add_tcase(suite, tcase);
  return suite;
}
