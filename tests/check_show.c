/* check_show.c - the summary of a network against arithmetic and the literature: exact parameters,
 * FLOPs of a token, bytes that a block keeps under each checkpointing policy, the folded table of
 * modules, groups of a plan.
 *
 * What a block keeps is compared with the closed forms of Korthikanti et al. (arXiv 2205.05198,
 * section 4, without the score matrices, which flash attention does not have) carried over to
 * Llama, in bytes of 16-bit tensors: b sequences of s tokens, T = b s, width h, A = heads *
 * head_dim, K = key heads * head_dim, MLP width f. */
#include <math.h>
#include <stdlib.h>

#include "report/network_summary.h"
#include "scenario_fixture.h"
#include "spec/preset.h"

/* ---- summaries ---- */

typedef struct {
  Scenario *scenario;
  NetworkSummary *summary;
} Shown;

static Shown
show(const char *network, const char *plan)
{
  g_autoptr(GError) error = NULL;
  Shown shown = {.scenario = fixture_good_scenario(network, plan)};
  const Scenario *s = shown.scenario;
  NetworkSummaryInput input = {s->network_spec, s->network, s->plan, s->cluster->device,
                               s->strategy};
  shown.summary = network_summary_new(&input, &error);
  if (shown.summary == NULL)
    ck_abort_msg("%s", error->message);
  return shown;
}

static void
shown_clear(Shown *shown)
{
  network_summary_free(shown->summary);
  scenario_free(shown->scenario);
}

/* ---- parameters ---- */

static gint64
parameters_of(const char *network)
{
  g_autoptr(Scenario) s = fixture_good_scenario(network, FIXTURE_PLAN("128"));
  return network_parameter_count(s->network);
}

static char *
file_text(const char *path)
{
  char *text = NULL;
  if (!g_file_get_contents(path, &text, NULL, NULL))
    ck_abort_msg("%s cannot be read", path);
  return text;
}

/* Totals of the published checkpoints (safetensors metadata on the Hugging Face hub, a tied output
 * not counted twice); of tiny and worked-case by hand: 2
 * * 1024 * 256 + 4 * (256 * (256 + 128 + 128 + 256) + 3 * 256 * 768 + 2 * 256) + 256. */
static const struct {
  const char *name;
  gint64 parameters;
} preset_parameters[] = {
    {"bert-base", 109514298}, /* of BertForMaskedLM, whose vocabulary is not padded */
    {"gemma-2-9b", 9241705984},
    {"gpt2", 124439808},
    {"gpt2-xl", 1557611200},
    {"llama-2-13b", 13015864320},
    {"llama-2-7b", 6738415616},
    {"llama-3-70b", 70553706496},
    {"llama-3-8b", 8030261248},
    {"llama-3.1-405b", 405853388800},
    {"llama-3.2-1b", 1235814400},
    {"mistral-7b", 7248023552},
    {"mixtral-8x7b", 46702792704},
    {"mpt-7b", 6649286656},
    {"pythia-1.4b", 1414647808},
    {"qwen2.5-7b", 7615616512},
    {"qwen3-8b", 8190735360},
    {"t5-base", 222903552},
    {"vit-base", 86567656},
    {"whisper-small", 241734912},
    {"tiny", 3672320},
    {"worked-case", 17553408 + 39 * G_GINT64_CONSTANT(171966464) + 1503657984 + 2 * 832045056},
};

static gint64
published_parameters(const char *name)
{
  for (guint i = 0; i < G_N_ELEMENTS(preset_parameters); i++)
    if (g_str_equal(preset_parameters[i].name, name))
      return preset_parameters[i].parameters;
  ck_abort_msg("no published count for preset %s", name);
}

START_TEST(every_preset_has_exactly_the_parameters_of_its_model)
{
  g_auto(GStrv) names = preset_names("network");
  ck_assert_uint_ge(g_strv_length(names), G_N_ELEMENTS(preset_parameters));
  for (guint i = 0; names[i] != NULL; i++) {
    g_autofree char *path = preset_find("network", names[i], NULL);
    g_autofree char *text = file_text(path);
    gint64 count = parameters_of(text);
    ck_assert_msg(count == published_parameters(names[i]), "%s: %" G_GINT64_FORMAT, names[i],
                  count);
  }
}
END_TEST

/* The same config, computed by other code. */
static char *
with_code(const char *config, const char *code)
{
  ck_assert_int_eq(config[0], '{');
  return g_strdup_printf("{\"implementation\": \"%s\", %s", code, config + 1);
}

/* The other code that computes models of this type, or NULL. */
static const char *
other_code(const char *model_type)
{
  static const char *const codes[][2] = {{"llama", "torchtitan"},
                                         {"mistral", "torchtitan"},
                                         {"qwen2", "torchtitan"},
                                         {"gpt2", "nanogpt"}};
  for (guint i = 0; i < G_N_ELEMENTS(codes); i++)
    if (strcmp(codes[i][0], model_type) == 0)
      return codes[i][1];
  return NULL;
}

/* "NAME,MODEL_TYPE,PARAMETERS,NOTE"; TRUE when two kinds of code have it. */
static gboolean
check_reference(const char *folder, const char *row)
{
  g_auto(GStrv) cells = g_strsplit(row, ",", 4);
  if (g_strv_length(cells) < 3)
    return FALSE;
  g_autofree char *file = g_strconcat(cells[0], ".json", NULL);
  g_autofree char *path = g_build_filename(folder, file, NULL);
  if (!g_file_test(path, G_FILE_TEST_EXISTS))
    return FALSE;
  const char *code = other_code(cells[1]);
  if (code == NULL)
    return FALSE;
  g_autofree char *config = file_text(path);
  gint64 expected = g_ascii_strtoll(cells[2], NULL, 10);
  g_autofree char *other = with_code(config, code);
  ck_assert_msg(parameters_of(config) == expected, "%s: %" G_GINT64_FORMAT " are not %s", cells[0],
                parameters_of(config), cells[2]);
  ck_assert_msg(parameters_of(other) == expected, "%s as %s computes it", cells[0], code);
  return TRUE;
}

START_TEST(configs_of_the_reference_data_have_the_parameters_that_transformers_counts)
{
  g_autofree char *folder = test_reference_path("reference/models");
  if (folder == NULL) {
    test_note("left out: the reference data is not there");
    return;
  }
  g_autofree char *table = g_build_filename(folder, "parameters.csv", NULL);
  g_autofree char *text = file_text(table);
  g_auto(GStrv) rows = g_strsplit(text, "\n", -1);
  guint compared = 0;
  for (guint i = 1; rows[i] != NULL; i++)
    compared += check_reference(folder, rows[i]);
  test_note("%u configs compared", compared);
  ck_assert_uint_ge(compared, 30);
}
END_TEST

/* ---- activations ---- */

/* A model and a batch, for the closed forms. */
typedef struct {
  gint64 h, heads, kv_heads, head_dim, f, b, s;
} Sizes;

static const Sizes llama_sizes[] = {
    {256, 8, 2, 32, 704, 1, 512},  /* grouped keys */
    {256, 4, 4, 64, 512, 2, 384},  /* a key head for each head, two sequences */
    {192, 4, 1, 64, 1024, 3, 256}, /* A = 256 is not h */
};

static gint64
tokens(const Sizes *z)
{
  return z->b * z->s;
}

/* What flash attention keeps beside its operands and output: fp32 logsumexp of each row, the
 * generator's state (16 bytes) and an unused scalar (8). */
static gint64
flash_bytes(const Sizes *z)
{
  return 4 * tokens(z) * z->heads + 16 + 8;
}

static char *
llama_config(const Sizes *z, int layers, const char *implementation)
{
  return g_strdup_printf(
      "{\"model_type\": \"llama\", \"hidden_size\": %d, \"intermediate_size\": %d, "
      "\"num_hidden_layers\": %d, \"num_attention_heads\": %d, \"num_key_value_heads\": %d, "
      "\"head_dim\": %d, \"vocab_size\": 512, \"implementation\": %s}",
      (int) z->h, (int) z->f, layers, (int) z->heads, (int) z->kv_heads, (int) z->head_dim,
      implementation);
}

static char *
plan_of(const Sizes *z)
{
  return g_strdup_printf("{\"precision\": {\"parameters\": \"bf16\"}, "
                         "\"batch\": {\"micro_batch\": %d, \"sequence_length\": %d}}",
                         (int) z->b, (int) z->s);
}

static void
expect_bytes(const NetworkSummary *s, CheckpointPolicy policy, gint64 expected)
{
  ck_assert_msg(s->activation_bytes[policy] == expected,
                "%s: %" G_GINT64_FORMAT " bytes are kept, not %" G_GINT64_FORMAT,
                checkpoint_policy_name(policy), s->activation_bytes[policy], expected);
}

/* The input of the block, and nothing else, whatever the block: 2 T h. */
static void
expect_full(const NetworkSummary *s, const Sizes *z)
{
  static const CheckpointPolicy policies[] = {CHECKPOINT_FULL, CHECKPOINT_EVERY_N,
                                              CHECKPOINT_FRACTION};
  for (guint i = 0; i < G_N_ELEMENTS(policies); i++)
    expect_bytes(s, policies[i], 2 * tokens(z) * z->h);
}

/* Outputs of wq, wv, w1 and w2 (the first, third, fifth and seventh product), attention, and the
 * block's input. */
static gint64
llama_selective(const Sizes *z)
{
  gint64 a = z->heads * z->head_dim, k = z->kv_heads * z->head_dim;
  return 2 * tokens(z) * (z->h + a + k + a + z->f + z->h) + flash_bytes(z);
}

START_TEST(a_llama_block_keeps_what_the_closed_form_says)
{
  for (guint i = 0; i < G_N_ELEMENTS(llama_sizes); i++) {
    const Sizes *z = &llama_sizes[i];
    gint64 a = z->heads * z->head_dim, k = z->kv_heads * z->head_dim;
    g_autofree char *config = llama_config(z, 3, "\"torchtitan\""), *plan = plan_of(z);
    Shown shown = show(config, plan);
    /* x, norm, h, norm: 4 h; q and out: 2 A; k and v: 2 K; g, silu(g), u, product: 4 f; two fp32
     * rstd a token */
    expect_bytes(shown.summary, CHECKPOINT_NONE,
                 2 * tokens(z) * (4 * z->h + 2 * a + 2 * k + 4 * z->f) + 8 * tokens(z) +
                     flash_bytes(z));
    expect_bytes(shown.summary, CHECKPOINT_SELECTIVE_OP, llama_selective(z));
    expect_full(shown.summary, z);
    shown_clear(&shown);
  }
}
END_TEST

START_TEST(repeated_key_heads_are_kept_as_wide_as_the_queries)
{
  for (guint i = 0; i < G_N_ELEMENTS(llama_sizes); i++) {
    const Sizes *z = &llama_sizes[i];
    gint64 a = z->heads * z->head_dim;
    gint64 repeated = z->kv_heads > 1 ? a : z->head_dim; /* a single head is repeated by a view */
    g_autofree char *config =
        llama_config(z, 2, "{\"code\": \"torchtitan\", \"kv_heads\": \"repeated\"}");
    g_autofree char *plan = plan_of(z);
    Shown shown = show(config, plan);
    expect_bytes(shown.summary, CHECKPOINT_NONE,
                 2 * tokens(z) * (4 * z->h + 2 * a + 2 * repeated + 4 * z->f) + 8 * tokens(z) +
                     flash_bytes(z));
    shown_clear(&shown);
  }
}
END_TEST

/* LlamaRMSNorm in Python keeps an fp32 copy of its input (4 h), the normalized values (2 h) and not
 * the input itself. */
START_TEST(a_llama_block_of_transformers_keeps_fp32_copies_in_its_norms)
{
  for (guint i = 0; i < G_N_ELEMENTS(llama_sizes); i++) {
    const Sizes *z = &llama_sizes[i];
    gint64 a = z->heads * z->head_dim, k = z->kv_heads * z->head_dim;
    g_autofree char *config = llama_config(z, 2, "\"transformers\""), *plan = plan_of(z);
    Shown shown = show(config, plan);
    expect_bytes(shown.summary, CHECKPOINT_NONE,
                 2 * tokens(z) * (8 * z->h + 2 * a + 2 * k + 4 * z->f) + 8 * tokens(z) +
                     flash_bytes(z));
    expect_bytes(shown.summary, CHECKPOINT_SELECTIVE_OP, llama_selective(z));
    expect_full(shown.summary, z);
    shown_clear(&shown);
  }
}
END_TEST

/* Memory-efficient attention keeps its logsumexp padded to 32 rows a head, and no generator's
 * state. */
START_TEST(efficient_attention_keeps_padded_rows_and_no_generator)
{
  const Sizes z = {256, 4, 4, 64, 512, 2, 100};
  g_autofree char *config =
      llama_config(&z, 2, "{\"code\": \"torchtitan\", \"attention\": \"efficient\"}");
  g_autofree char *plan = plan_of(&z);
  Shown shown = show(config, plan);
  expect_bytes(shown.summary, CHECKPOINT_NONE,
               2 * tokens(&z) * (4 * 256 + 4 * 256 + 4 * 512) + 8 * tokens(&z) +
                   4 * z.b * z.heads * 128);
  shown_clear(&shown);
}
END_TEST

static const Sizes gpt2_sizes = {
    .h = 128, .heads = 4, .kv_heads = 4, .head_dim = 32, .f = 512, .b = 2, .s = 256};

static char *
gpt2_config(const Sizes *z, double dropout, const char *more)
{
  return g_strdup_printf(
      "{\"model_type\": \"gpt2\", \"n_embd\": %d, \"n_layer\": 2, \"n_head\": %d, "
      "\"n_positions\": 256, \"vocab_size\": 512, \"resid_pdrop\": %g, \"embd_pdrop\": %g, "
      "\"attn_pdrop\": %g%s}",
      (int) z->h, (int) z->heads, dropout, dropout, dropout, more);
}

/* Korthikanti et al.: 34 s b h a layer with two dropouts: 11 for attention, 19 for the MLP, 4 for
 * the norms; four fp32 numbers a token of the norms are beside it there.  addmm is not on
 * torchtitan's list: selective checkpointing keeps attention's output. */
START_TEST(a_gpt2_block_keeps_34_bytes_for_each_element_of_its_input)
{
  const Sizes *z = &gpt2_sizes;
  gint64 t = tokens(z), th = t * z->h;
  g_autofree char *plan = plan_of(z);
  const struct {
    double dropout;
    const char *more;
    gint64 per_element;
  } cases[] = {
      {0.1, ", \"activation_function\": \"gelu_pytorch_tanh\"", 34},
      {0, ", \"activation_function\": \"gelu_pytorch_tanh\"", 32},
      {0, ", \"implementation\": \"nanogpt\"", 32},
      /* transformers' GELU in Python keeps x, tanh, 0.5 x and 1 + tanh, four times 8 h instead of
         one */
      {0.1, "", 34 + 3 * 8},
  };
  for (guint i = 0; i < G_N_ELEMENTS(cases); i++) {
    g_autofree char *config = gpt2_config(z, cases[i].dropout, cases[i].more);
    Shown shown = show(config, plan);
    expect_bytes(shown.summary, CHECKPOINT_NONE,
                 cases[i].per_element * th + 16 * t + flash_bytes(z));
    expect_bytes(shown.summary, CHECKPOINT_SELECTIVE_OP, 2 * th + 2 * th + flash_bytes(z));
    expect_full(shown.summary, z);
    shown_clear(&shown);
  }
}
END_TEST

START_TEST(a_single_block_keeps_what_a_block_of_many_does)
{
  for (int layers = 1; layers <= 3; layers++) {
    const Sizes *z = &llama_sizes[0];
    g_autofree char *config = llama_config(z, layers, "\"torchtitan\""), *plan = plan_of(z);
    Shown shown = show(config, plan);
    expect_bytes(shown.summary, CHECKPOINT_SELECTIVE_OP, llama_selective(z));
    expect_full(shown.summary, z);
    ck_assert_uint_eq(shown.summary->blocks->len, 1);
    ck_assert_int_eq(g_array_index(shown.summary->blocks, BlockLine, 0).count, layers);
    shown_clear(&shown);
  }
}
END_TEST

START_TEST(accumulation_and_sharding_do_not_change_what_a_block_keeps)
{
  const Sizes *z = &llama_sizes[0];
  g_autofree char *config = llama_config(z, 3, "\"torchtitan\"");
  static const char *const plans[] = {
      "{\"precision\": {\"parameters\": \"bf16\"}, \"batch\": {\"sequence_length\": 512}, "
      "\"accumulation\": {\"steps\": 4}}",
      "{\"strategy\": \"fsdp2\", \"mesh\": {\"shard\": 8}, \"precision\": {\"compute\": \"bf16\"}, "
      "\"batch\": {\"sequence_length\": 512}}",
      "{\"strategy\": \"fsdp2\", \"mesh\": {\"shard\": 8}, \"precision\": {\"compute\": \"bf16\"}, "
      "\"batch\": {\"sequence_length\": 512}, \"fsdp\": {\"reshard_after_forward\": false}, "
      "\"activation_checkpointing\": {\"policy\": \"full\"}}",
  };
  for (guint i = 0; i < G_N_ELEMENTS(plans); i++) {
    Shown shown = show(config, plans[i]);
    expect_bytes(shown.summary, CHECKPOINT_SELECTIVE_OP, llama_selective(z));
    expect_full(shown.summary, z);
    shown_clear(&shown);
  }
}
END_TEST

/* Blocks of different kinds: an MLP (input, its first product and the GELU of it, which the second
 * product takes), and one given by numbers, which says what it keeps and does not need its input.
 */
START_TEST(blocks_that_differ_have_lines_of_their_own)
{
  Shown shown = show("{\"family\": \"blocks\", \"hidden\": 64, \"vocabulary\": 100, \"blocks\": ["
                     "{\"repeat\": 3, \"ops\": [{\"op\": \"linear\", \"name\": \"up\", \"out\": "
                     "256}, {\"op\": \"gelu\"}, "
                     "{\"op\": \"linear\", \"name\": \"down\", \"out\": 64}]}, "
                     "{\"repeat\": 2, \"ops\": [{\"op\": \"numbers\", \"parameters\": 10, "
                     "\"activation_bytes\": 12345}]}]}",
                     FIXTURE_PLAN("32"));
  const NetworkSummary *s = shown.summary;
  ck_assert_uint_eq(s->blocks->len, 2);
  const BlockLine *mlp = &g_array_index(s->blocks, BlockLine, 0), *numbers = mlp + 1;
  ck_assert_str_eq(mlp->path, "layers.0-2");
  ck_assert_int_eq(mlp->parameters, 2 * 64 * 256);
  ck_assert_int_eq(mlp->activation_bytes[CHECKPOINT_NONE], 2 * 32 * (64 + 256 + 256));
  ck_assert_int_eq(mlp->activation_bytes[CHECKPOINT_FULL], 2 * 32 * 64);
  ck_assert_str_eq(numbers->path, "layers.3-4");
  ck_assert_int_eq(numbers->parameters, 10);
  ck_assert_int_eq(numbers->activation_bytes[CHECKPOINT_NONE], 12345);
  ck_assert_int_eq(numbers->activation_bytes[CHECKPOINT_FULL], 2 * 32 * 64);
  /* the figure for the network is that of the block that keeps most */
  expect_bytes(s, CHECKPOINT_NONE, 2 * 32 * (64 + 256 + 256));
  shown_clear(&shown);
}
END_TEST

/* Three blocks of which the middle one is recomputed: two keep all, one its input. */
START_TEST(the_blocks_of_a_plan_keep_what_each_of_their_policies_says)
{
  const Sizes *z = &llama_sizes[0];
  g_autofree char *config = llama_config(z, 3, "\"torchtitan\"");
  Shown shown = show(config, "{\"precision\": {\"parameters\": \"bf16\"}, "
                             "\"batch\": {\"sequence_length\": 512}, \"activation_checkpointing\": "
                             "{\"policy\": \"none\", \"blocks\": {\"1\": \"full\"}}}");
  const gint64 *bytes = shown.summary->activation_bytes;
  ck_assert_int_eq(shown.summary->planned_bytes,
                   2 * bytes[CHECKPOINT_NONE] + bytes[CHECKPOINT_FULL]);
  shown_clear(&shown);
}
END_TEST

/* Sharding is by rows: 100 rows of 64 over 8 ranks are 13 each, 4 too many; 2 bytes an element. */
START_TEST(a_group_is_padded_to_whole_rows_on_every_rank)
{
  Shown shown = show("{\"family\": \"blocks\", \"hidden\": 64, \"vocabulary\": 100, \"blocks\": ["
                     "{\"ops\": [{\"op\": \"linear\"}]}]}",
                     "{\"strategy\": \"fsdp2\", \"mesh\": {\"shard\": 8}, \"precision\": "
                     "{\"compute\": \"bf16\"}, \"batch\": {\"sequence_length\": 32}, "
                     "\"fsdp\": {\"embedding\": \"own\", \"head\": \"own\"}}");
  const GPtrArray *units = shown.summary->lowered->units;
  int padded = 0;
  for (guint i = 0; i < units->len; i++) {
    const Unit *unit = g_ptr_array_index(units, i);
    gint64 expected = unit->elements == 6400 ? 4 * 64 * 2 : 0;
    ck_assert_int_eq(unit_padding_bytes(shown.summary, unit), expected);
    padded += expected > 0;
  }
  ck_assert_int_eq(padded, 2); /* the table and the output layer */
  shown_clear(&shown);
}
END_TEST

/* ---- FLOPs ---- */

/* Two for each multiply-add: a parameter in a matrix product costs 2 forward, 4 backward (two
 * products); causal attention 2 s A forward and 5 s A backward, where its five products count the
 * recomputed scores. */
static void
expect_flops(const NetworkSummary *s, double matrix_parameters, double attention)
{
  ck_assert_double_eq_tol(s->flops_per_token.forward / (2 * matrix_parameters + 2 * attention), 1,
                          1e-12);
  ck_assert_double_eq_tol(s->flops_per_token.backward / (4 * matrix_parameters + 5 * attention), 1,
                          1e-12);
}

START_TEST(flops_of_llama_3_8b_are_six_for_each_parameter_in_a_product_and_attention)
{
  g_autofree char *path = preset_find("network", "llama-3-8b", NULL);
  g_autofree char *config = file_text(path);
  Shown shown = show(config, FIXTURE_PLAN("8192"));
  const NetworkSummary *s = shown.summary;
  double layer = 4096. * 4096 + 2 * 1024. * 4096 + 4096. * 4096 + 3 * 4096. * 14336;
  double matrices = 32 * layer + 128256. * 4096, attention = 32 * 8192. * 4096;
  expect_flops(s, matrices, attention);
  /* the convention: all parameters but the embedding table, and 12 L A s */
  ck_assert_double_eq(s->model_flops_per_token,
                      6 * (8030261248. - 128256. * 4096) + 12 * attention);
  /* the two differ by the gains of 65 norms, and by the half square and recomputed scores of
   * attention: 12 - 7 */
  double difference =
      s->model_flops_per_token - s->flops_per_token.forward - s->flops_per_token.backward;
  ck_assert_double_eq_tol(difference / (6 * 65 * 4096. + 5 * attention), 1, 1e-9);
  shown_clear(&shown);
}
END_TEST

START_TEST(flops_of_gpt2_count_its_tied_output_and_no_table_of_positions)
{
  g_autofree char *path = preset_find("network", "gpt2", NULL);
  g_autofree char *config = file_text(path);
  Shown shown = show(config, FIXTURE_PLAN("1024"));
  double matrices = 12 * 12 * 768. * 768 + 50257. * 768, attention = 12 * 1024. * 768;
  expect_flops(shown.summary, matrices, attention);
  /* nanoGPT's estimate_mfu: 6 N + 12 L H Q T with N less the positions */
  ck_assert_double_eq(shown.summary->model_flops_per_token,
                      6 * (124439808. - 1024 * 768) + 12 * attention);
  shown_clear(&shown);
}
END_TEST

START_TEST(flops_of_a_token_grow_with_the_sequence_only_in_attention_and_not_with_the_batch)
{
  g_autofree char *config = llama_config(&llama_sizes[0], 2, "\"torchtitan\"");
  Shown one = show(config, FIXTURE_PLAN("512")), two = show(config, FIXTURE_PLAN("1024"));
  Shown four = show(config, "{\"precision\": {\"parameters\": \"bf16\"}, "
                            "\"batch\": {\"micro_batch\": 4, \"sequence_length\": 512}}");
  double attention = 2 * 512. * 256; /* 2 layers, A = 256 */
  ck_assert_double_eq(two.summary->flops_per_token.forward - one.summary->flops_per_token.forward,
                      2 * attention);
  ck_assert_double_eq(two.summary->flops_per_token.backward - one.summary->flops_per_token.backward,
                      5 * attention);
  ck_assert_double_eq(four.summary->flops_per_token.forward, one.summary->flops_per_token.forward);
  shown_clear(&one);
  shown_clear(&two);
  shown_clear(&four);
}
END_TEST

/* tests/data/exported: 2 layers, width 256, 4 heads of 64; GPT-2's matrices 12 h^2 a layer, Llama's
 * with 2 key heads and an MLP of 512; 4096 tokens in the vocabulary. */
static const struct {
  const char *file;
  double layer, parameters, not_multiplied;
} exported[] = {
    {"gpt2", 12 * 256. * 256, 2 * 789760 + 4096 * 256 + 1024 * 256 + 512, 1024 * 256},
    {"llama", 3 * 256. * 256 + 3 * 256 * 512., 2 * 590336 + 2 * 4096 * 256 + 256, 4096 * 256},
};

START_TEST(flops_of_an_exported_network_are_those_of_its_matrices_and_attention)
{
  g_autofree char *name = g_strconcat(exported[_i].file, ".json", NULL);
  g_autofree char *path =
      g_build_filename(g_getenv("top_srcdir"), "tests", "data", "exported", name, NULL);
  g_autofree char *text = file_text(path);
  Shown shown = show(text, "{\"precision\": {\"parameters\": \"bf16\"}, "
                           "\"batch\": {\"micro_batch\": 2, \"sequence_length\": 512}}");
  double attention = 2 * 512. * 256;
  ck_assert_int_eq(shown.summary->parameters, (gint64) exported[_i].parameters);
  expect_flops(shown.summary, 2 * exported[_i].layer + 4096 * 256., attention);
  ck_assert_double_eq(shown.summary->model_flops_per_token,
                      6 * (exported[_i].parameters - exported[_i].not_multiplied) + 12 * attention);
  shown_clear(&shown);
}
END_TEST

START_TEST(a_block_given_by_numbers_has_the_flops_it_says)
{
  Shown shown =
      show("{\"family\": \"blocks\", \"hidden\": 64, \"embedding\": false, \"head\": false, "
           "\"loss\": \"sum\", "
           "\"blocks\": [{\"repeat\": 3, \"ops\": [{\"op\": \"numbers\", \"parameters\": 10, "
           "\"forward_flops\": 6400}]}]}",
           FIXTURE_PLAN("32"));
  ck_assert_double_eq(shown.summary->flops_per_token.forward, 3 * 6400 / 32.);
  ck_assert_double_eq(shown.summary->flops_per_token.backward, 2 * 3 * 6400 / 32.);
  shown_clear(&shown);
}
END_TEST

/* ---- the table of modules ---- */

START_TEST(modules_of_blocks_that_are_alike_share_a_line)
{
  g_autofree char *path = preset_find("network", "llama-3-8b", NULL);
  g_autofree char *config = file_text(path);
  g_autoptr(Scenario) s = fixture_good_scenario(config, FIXTURE_PLAN("128"));
  g_autoptr(GArray) lines = module_lines(s->network);
  static const struct {
    const char *path;
    int count;
    gint64 parameters;
  } expected[] = {
      {"", 1, 8030261248},
      {"tok_embeddings", 1, 128256 * 4096},
      {"layers", 1, 32 * (gint64) 218112000},
      {"layers.0-31", 32, 32 * (gint64) 218112000},
      {"layers.0-31.attention", 32, 32 * (gint64) 41943040},
      {"layers.0-31.attention.wq", 32, 32 * 4096 * 4096},
      {"layers.0-31.attention.wk", 32, 32 * 1024 * 4096},
      {"layers.0-31.attention.wv", 32, 32 * 1024 * 4096},
      {"layers.0-31.attention.wo", 32, 32 * 4096 * 4096},
      {"layers.0-31.feed_forward", 32, 32 * (gint64) 3 * 14336 * 4096},
      {"layers.0-31.feed_forward.w1", 32, 32 * (gint64) 14336 * 4096},
      {"layers.0-31.feed_forward.w2", 32, 32 * (gint64) 14336 * 4096},
      {"layers.0-31.feed_forward.w3", 32, 32 * (gint64) 14336 * 4096},
      {"layers.0-31.attention_norm", 32, 32 * 4096},
      {"layers.0-31.ffn_norm", 32, 32 * 4096},
      {"norm", 1, 4096},
      {"output", 1, 128256 * 4096},
  };
  ck_assert_uint_eq(lines->len, G_N_ELEMENTS(expected));
  for (guint i = 0; i < lines->len; i++) {
    const ModuleLine *line = &g_array_index(lines, ModuleLine, i);
    ck_assert_str_eq(line->path, expected[i].path);
    ck_assert_int_eq(line->count, expected[i].count);
    ck_assert_int_eq(line->parameters, expected[i].parameters);
  }
}
END_TEST

START_TEST(own_parameters_of_all_lines_add_up_to_the_network)
{
  g_auto(GStrv) names = preset_names("network");
  for (guint i = 0; names[i] != NULL; i++) {
    g_autofree char *path = preset_find("network", names[i], NULL);
    g_autofree char *config = file_text(path);
    g_autoptr(Scenario) s = fixture_good_scenario(config, FIXTURE_PLAN("128"));
    g_autoptr(GArray) lines = module_lines(s->network);
    gint64 sum = 0, modules = 0;
    for (guint k = 0; k < lines->len; k++) {
      sum += g_array_index(lines, ModuleLine, k).own_parameters;
      modules += g_array_index(lines, ModuleLine, k).count;
    }
    ck_assert_int_eq(sum, published_parameters(names[i]));
    ck_assert_int_eq(modules, (gint64) s->network->modules->len);
  }
}
END_TEST

/* ---- groups ---- */

START_TEST(groups_of_fsdp2_hold_every_parameter_once)
{
  g_autofree char *config = llama_config(&llama_sizes[0], 4, "\"torchtitan\"");
  Shown shown = show(
      config,
      "{\"strategy\": \"fsdp2\", \"mesh\": {\"shard\": 4}, \"precision\": {\"compute\": \"bf16\"}, "
      "\"batch\": {\"sequence_length\": 512}, \"fsdp\": {\"blocks_per_group\": 2, "
      "\"embedding\": \"own\", \"head\": \"own\"}}");
  const GPtrArray *units = shown.summary->lowered->units;
  gint64 sum = 0;
  guint filled = 0;
  for (guint i = 0; i < units->len; i++) {
    const Unit *unit = g_ptr_array_index(units, i);
    sum += unit->elements;
    filled += unit->parameters->len > 0;
    ck_assert_int_ge(unit->unsharded_bytes, 2 * unit->elements);
    ck_assert_int_ge(unit->shard_bytes, 4 * unit->elements / 4);
  }
  ck_assert_int_eq(sum, shown.summary->parameters);
  ck_assert_uint_eq(filled, 4); /* embedding, two pairs of blocks, norm and output */
  shown_clear(&shown);
}
END_TEST

/* ---- JSON and text ---- */

START_TEST(the_json_has_its_keys_with_every_digit)
{
  g_autofree char *path = preset_find("network", "llama-3.1-405b", NULL);
  g_autofree char *config = file_text(path);
  Shown shown = show(config, FIXTURE_PLAN("8192"));
  g_autofree char *text = network_summary_json(shown.summary);
  cJSON *root = cJSON_Parse(text);
  ck_assert_ptr_nonnull(root);
  static const char *const keys[] = {"format",
                                     "name",
                                     "family",
                                     "implementation",
                                     "parameters",
                                     "trainable_parameters",
                                     "plan",
                                     "flops_per_token",
                                     "activation_bytes_per_block",
                                     "blocks",
                                     "tied",
                                     "modules",
                                     "groups"};
  for (guint i = 0; i < G_N_ELEMENTS(keys); i++)
    ck_assert_msg(cJSON_HasObjectItem(root, keys[i]), "no key %s", keys[i]);
  ck_assert_ptr_nonnull(strstr(text, "\"parameters\":\t405853388800"));
  const cJSON *flops = cJSON_GetObjectItem(root, "flops_per_token");
  ck_assert(cJSON_HasObjectItem(flops, "forward") && cJSON_HasObjectItem(flops, "backward"));
  const cJSON *bytes = cJSON_GetObjectItem(root, "activation_bytes_per_block");
  static const char *const policies[] = {"none", "full", "every_n", "fraction", "selective_op"};
  for (guint i = 0; i < G_N_ELEMENTS(policies); i++)
    ck_assert(cJSON_IsNumber(cJSON_GetObjectItem(bytes, policies[i])));
  ck_assert_double_eq(cJSON_GetObjectItem(bytes, "full")->valuedouble, 2 * 8192. * 16384);
  const cJSON *first = cJSON_GetArrayItem(cJSON_GetObjectItem(root, "modules"), 0);
  ck_assert_str_eq(cJSON_GetObjectItem(first, "path")->valuestring, "");
  cJSON_Delete(root);
  shown_clear(&shown);
}
END_TEST

START_TEST(the_text_says_the_exact_count_and_stays_within_ascii_where_it_must)
{
  g_autofree char *path = preset_find("network", "gpt2", NULL);
  g_autofree char *config = file_text(path);
  Shown shown = show(config, FIXTURE_PLAN("1024"));
  g_autoptr(GString) text = g_string_new(NULL);
  network_summary_text(shown.summary, TRUE, text);
  ck_assert_ptr_nonnull(strstr(text->str, "124,439,808"));
  ck_assert_ptr_nonnull(strstr(text->str, "layers.0-11.c_attn"));
  ck_assert_ptr_nonnull(strstr(text->str, "output has the weight of tok_embeddings.weight"));
  ck_assert(g_str_is_ascii(text->str));
  shown_clear(&shown);
}
END_TEST

Suite *
test_suite(void)
{
  Suite *suite = suite_create("show");
  TCase *parameters = tcase_create("parameters"), *activations = tcase_create("activations");
  TCase *flops = tcase_create("flops"), *tables = tcase_create("tables");
  tcase_set_timeout(parameters, 60);
  tcase_add_test(parameters, every_preset_has_exactly_the_parameters_of_its_model);
  tcase_add_test(parameters,
                 configs_of_the_reference_data_have_the_parameters_that_transformers_counts);
  tcase_add_test(activations, a_llama_block_keeps_what_the_closed_form_says);
  tcase_add_test(activations, repeated_key_heads_are_kept_as_wide_as_the_queries);
  tcase_add_test(activations, a_llama_block_of_transformers_keeps_fp32_copies_in_its_norms);
  tcase_add_test(activations, efficient_attention_keeps_padded_rows_and_no_generator);
  tcase_add_test(activations, a_gpt2_block_keeps_34_bytes_for_each_element_of_its_input);
  tcase_add_test(activations, a_single_block_keeps_what_a_block_of_many_does);
  tcase_add_test(activations, accumulation_and_sharding_do_not_change_what_a_block_keeps);
  tcase_add_test(activations, blocks_that_differ_have_lines_of_their_own);
  tcase_add_test(activations, the_blocks_of_a_plan_keep_what_each_of_their_policies_says);
  tcase_add_test(tables, a_group_is_padded_to_whole_rows_on_every_rank);
  tcase_add_test(flops, flops_of_llama_3_8b_are_six_for_each_parameter_in_a_product_and_attention);
  tcase_add_test(flops, flops_of_gpt2_count_its_tied_output_and_no_table_of_positions);
  tcase_add_test(flops,
                 flops_of_a_token_grow_with_the_sequence_only_in_attention_and_not_with_the_batch);
  tcase_add_loop_test(flops, flops_of_an_exported_network_are_those_of_its_matrices_and_attention,
                      0, G_N_ELEMENTS(exported));
  tcase_add_test(flops, a_block_given_by_numbers_has_the_flops_it_says);
  tcase_add_test(tables, modules_of_blocks_that_are_alike_share_a_line);
  tcase_add_test(tables, own_parameters_of_all_lines_add_up_to_the_network);
  tcase_add_test(tables, groups_of_fsdp2_hold_every_parameter_once);
  tcase_add_test(tables, the_json_has_its_keys_with_every_digit);
  tcase_add_test(tables, the_text_says_the_exact_count_and_stays_within_ascii_where_it_must);
  suite_add_tcase(suite, parameters);
  suite_add_tcase(suite, activations);
  suite_add_tcase(suite, flops);
  suite_add_tcase(suite, tables);
  return suite;
}
