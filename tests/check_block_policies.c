/* check_block_policies.c - activation checkpointing that differs from block to block: which policy
 * a block has, and peaks of PyTorch 2.11 (checkpoint_wrapper around some blocks, with
 * create_selective_checkpoint_contexts around others), measured with the real allocator on a
 * stand-in device. */
#include <string.h>

#include "base/units.h"
#include "simulation.h"
#include "tap_main.h"

#define STEPS 3

/* ---- which policy a block has ---- */

static CheckpointSpec
read_spec(const char *section, JsonDocument **document)
{
  g_autofree char *text = g_strdup_printf("{\"activation_checkpointing\": %s}", section);
  *document = json_document_parse("plan", text, strlen(text), NULL);
  ck_assert_ptr_nonnull(*document);
  g_autoptr(JsonReader) reader = json_reader_new(*document);
  CheckpointSpec spec = {0};
  checkpoint_spec_read(reader, &spec);
  return spec;
}

/* Of six blocks: n none, f full, s selective_op. */
static const struct {
  const char *section, *blocks, *words;
} specs[] = {
    {"{}", "nnnnnn", "none"},
    {"{'policy': 'full', 'blocks': {}}", "ffffff", "full"},
    {"{'policy': 'full', 'blocks': {'2': 'none'}}", "ffnfff", "full, block 2 none"},
    {"{'policy': 'none', 'blocks': {'3-5': 'full', '0': 'selective_op'}}", "snnfff",
     "none, block 0 selective_op, blocks 3-5 full"},
    {"{'policy': 'selective_op', 'keep': 'matmul', 'blocks': {'1': 'none'}}", "snssss",
     "selective_op, keeping matmul, block 1 none"},
    {"{'policy': 'every_n', 'every': 3, 'blocks': {'3-3': 'selective_op', '5': 'full'}}", "fnnsnf",
     "every 3, block 3 selective_op, block 5 full"},
};

START_TEST(blocks_have_their_own_policy_and_others_the_plans)
{
  g_autofree char *section = g_strdelimit(g_strdup(specs[_i].section), "'", '"');
  g_autoptr(JsonDocument) document = NULL;
  CheckpointSpec spec = read_spec(section, &document);
  ck_assert_ptr_null(json_document_error(document));
  for (int block = 0; block < 6; block++) {
    CheckpointPolicy expected = specs[_i].blocks[block] == 'n'   ? CHECKPOINT_NONE
                                : specs[_i].blocks[block] == 'f' ? CHECKPOINT_FULL
                                                                 : CHECKPOINT_SELECTIVE_OP;
    ck_assert_int_eq(checkpoint_spec_of_block(&spec, block), expected);
  }
  ck_assert_int_eq(checkpoint_spec_recomputes(&spec), strpbrk(specs[_i].blocks, "fs") != NULL);
  g_autofree char *words = checkpoint_spec_text(&spec);
  ck_assert_str_eq(words, specs[_i].words);
  checkpoint_spec_clear(&spec);
}
END_TEST

static const struct {
  const char *section, *message;
} wrong[] = {
    {"{'blocks': ['0']}", "an object is needed"},
    {"{'blocks': {'-1': 'full'}}", "'-1' is no block or range of blocks"},
    {"{'blocks': {'5-2': 'full'}}", "'5-2' is no block or range of blocks"},
    {"{'blocks': {'1-': 'full'}}", "'1-' is no block or range of blocks"},
    {"{'blocks': {'1-2-3': 'full'}}", "'1-2-3' is no block or range of blocks"},
    {"{'blocks': {'1': 'every_n'}}", "'1': a policy is needed: none, full or selective_op"},
    {"{'blocks': {'1': 3}}", "'1': a policy is needed: none, full or selective_op"},
    {"{'blocks': {'0-4': 'full', '4': 'none'}}", "block 4 has more than one policy"},
    {"{'policy': 'full', 'blocks': {'0-9': 'none'}, 'every': 3}", "only with policy every_n"},
    {"{'policy': 'full', 'keep': 'matmul'}", "'activation_checkpointing.keep': has a meaning only"},
    {"{'policy': 'selective_op', 'keep': 'bmm'}", "not one of alternate_mm, matmul, attention"},
};

START_TEST(wrong_blocks_are_refused)
{
  g_autofree char *section = g_strdelimit(g_strdup(wrong[_i].section), "'", '"');
  g_autoptr(JsonDocument) document = NULL;
  CheckpointSpec spec = read_spec(section, &document);
  const GError *error = json_document_error(document);
  ck_assert_ptr_nonnull(error);
  ck_assert_msg(strstr(error->message, wrong[_i].message) != NULL, "%s", error->message);
  checkpoint_spec_clear(&spec);
}
END_TEST

/* ---- runs ---- */

#define NETWORK(attention)                                                                         \
  "{'hidden_size': 512, 'num_hidden_layers': 5, 'num_attention_heads': 8, 'num_key_value_heads': " \
  "4, 'intermediate_size': 1408, 'vocab_size': 4096, 'tie_word_embeddings': false, 'model_type': " \
  "'llama', 'implementation': {'code': 'torchtitan', 'rms_norm': 'fused', 'rope': 'complex', "     \
  "'kv_heads': 'native', 'attention': '" attention "', 'loss': 'fp32'}}"

#define COMMON                                                                                     \
  "'batch': {'micro_batch': 1, 'sequence_length': 512}, 'optimizer': {'name': 'adamw', "           \
  "'implementation': 'fused'}"
#define FSDP2                                                                                      \
  "{'strategy': 'fsdp2', 'mesh': {'shard': 8}, 'precision': {'compute': 'bf16', 'reduce': "        \
  "'fp32'}, " COMMON                                                                               \
  ", 'fsdp': {'embedding': 'root', 'head': 'root', 'reshard_after_forward': true}}"
#define DDP "{'strategy': 'ddp', 'mesh': {'replicate': 8}, " COMMON "}"
#define ALONE "{'strategy': 'none', " COMMON "}"

/* A mix is a letter a block: none, full, or selective_op keeping what `keep` says; peaks are of the
 * three steps, allocated and reserved bytes. */
static const struct {
  const char *network, *plan, *mix, *keep;
  gint64 allocated[STEPS], reserved[STEPS];
} runs[] = {
    {NETWORK("flash"),
     FSDP2,
     "fnsnf",
     "alternate_mm",
     {143544320, 162520064, 162520064},
     {203423744, 222298112, 222298112}},
    {NETWORK("math"),
     FSDP2,
     "ssfnn",
     "alternate_mm",
     {172289536, 191265280, 191265280},
     {249561088, 268435456, 268435456}},
    {NETWORK("math"),
     ALONE,
     "nsfns",
     "alternate_mm",
     {380624896, 427811840, 427811840},
     {383778816, 465567744, 465567744}},
    {NETWORK("flash"),
     FSDP2,
     "ssfns",
     "matmul",
     {144359936, 163335680, 163335680},
     {205520896, 224395264, 224395264}},
    {NETWORK("math"),
     FSDP2,
     "ssfns",
     "attention",
     {166915584, 185891328, 185891328},
     {226492416, 245366784, 245366784}},
    {NETWORK("math"),
     DDP,
     "snfsn",
     "alternate_mm",
     {455358464, 498078720, 498078720},
     {482344960, 538968064, 538968064}},
};

static const char *
policy_of(char letter)
{
  return letter == 'n' ? "none" : letter == 'f' ? "full" : "selective_op";
}

/* "activation_checkpointing={...}": the blocks that differ from the default say so. */
static char *
mixed(const char *mix, const char *keep, char standard)
{
  GString *text = g_string_new(NULL);
  g_string_printf(text,
                  "activation_checkpointing={\"policy\": \"%s\", \"keep\": \"%s\", \"blocks\": {",
                  policy_of(standard), keep);
  const char *comma = "";
  for (int i = 0; mix[i] != '\0'; i++)
    if (mix[i] != standard) {
      g_string_append_printf(text, "%s\"%d\": \"%s\"", comma, i, policy_of(mix[i]));
      comma = ", ";
    }
  g_string_append(text, "}}");
  return g_string_free(text, FALSE);
}

START_TEST(peaks_of_mixed_policies_are_those_of_pytorch_whatever_the_default_is)
{
  for (const char *standard = "nfs"; *standard != '\0'; standard++) {
    g_autofree char *assignment = mixed(runs[_i].mix, runs[_i].keep, *standard);
    const char *const set[] = {assignment, NULL};
    const Simulation simulation = {.network = runs[_i].network, .plan = runs[_i].plan, .set = set};
    g_autoptr(Simulated) s = simulation_execute(&simulation, STEPS, G_MAXINT64);
    simulated_check(s);
    ck_assert_uint_eq(s->recording->steps->len, STEPS);
    for (int i = 0; i < STEPS; i++) {
      const StepRecord *step = &g_array_index(s->recording->steps, StepRecord, (guint) i);
      ck_assert_int_eq(step->peak_allocated, runs[_i].allocated[i]);
      ck_assert_int_eq(step->peak_reserved, runs[_i].reserved[i]);
    }
  }
}
END_TEST

START_TEST(a_block_that_the_network_lacks_is_refused)
{
  g_autofree char *message = simulation_refusal(
      NETWORK("flash"), FSDP2, "activation_checkpointing.blocks={\"3-5\":\"full\"}");
  ck_assert_msg(strstr(message, "key 'activation_checkpointing.blocks': there is no block 5: the "
                                "network has blocks 0 to 4") != NULL,
                "%s", message);
}
END_TEST

Suite *
test_suite(void)
{
  Suite *suite = suite_create("policies of blocks");
  TCase *tests = tcase_create("spec");
  tcase_add_loop_test(tests, blocks_have_their_own_policy_and_others_the_plans, 0,
                      G_N_ELEMENTS(specs));
  tcase_add_loop_test(tests, wrong_blocks_are_refused, 0, G_N_ELEMENTS(wrong));
  suite_add_tcase(suite, tests);
  tests = tcase_create("runs");
  tcase_add_loop_test(tests, peaks_of_mixed_policies_are_those_of_pytorch_whatever_the_default_is,
                      0, G_N_ELEMENTS(runs));
  tcase_add_test(tests, a_block_that_the_network_lacks_is_refused);
  suite_add_tcase(suite, tests);
  return suite;
}
