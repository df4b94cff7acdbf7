/* check_specs.c - element types, option tables, presets and networks: good files, and each refusal
 * with its exact message.  Plans are in check_plan_spec.c, machines in check_cluster_spec.c; what a
 * family makes of a network's fields is not tested here. */
#include "base/units.h"
#include "spec/dtype.h"
#include "spec/network_spec.h"
#include "spec/option.h"
#include "spec/preset.h"
#include "tap_main.h"
#include <glib/gstdio.h>
#include <string.h>

START_TEST(a_dtype_is_found_by_our_name_and_by_pytorchs)
{
  ck_assert_int_eq(dtype_from_name("fp32"), DTYPE_FP32);
  ck_assert_int_eq(dtype_from_name("float32"), DTYPE_FP32);
  ck_assert_int_eq(dtype_from_name("bfloat16"), DTYPE_BF16);
  ck_assert_int_eq(dtype_from_name("float16"), DTYPE_FP16);
  ck_assert_int_eq(dtype_from_name("fp8"), -1);
  for (int i = 0; i < DTYPE_COUNT; i++)
    ck_assert_int_eq(dtype_from_name(dtype_name((DType) i)), i);
}
END_TEST

START_TEST(the_size_of_a_dtype_is_that_of_its_element)
{
  ck_assert_int_eq(dtype_size(DTYPE_FP32), 4);
  ck_assert_int_eq(dtype_size(DTYPE_BF16), 2);
  ck_assert_int_eq(dtype_size(DTYPE_COMPLEX64), 8);
  ck_assert_int_eq(dtype_size(DTYPE_INT64), 8);
  ck_assert_int_eq(dtype_size(DTYPE_BOOL), 1);
}
END_TEST

/* ---- option tables */

static const char *const colours[] = {"red", "green", NULL};
static const OptionInfo every_type[] = {
    {"flag", OPTION_BOOL, "true", 0, 0, NULL, "a flag"},
    {"count", OPTION_INT, "3", 1, 9, NULL, "a count"},
    {"buffer", OPTION_SIZE, "\"2MiB\"", 1024, 1 << 30, NULL, "a size"},
    {"colour", OPTION_ENUM, "\"green\"", 0, 0, colours, "a name"},
    {"depth", OPTION_BOOL_OR_INT, "null", 2, 64, NULL, "a flag or a count"},
    {"width", OPTION_INT_OR_AUTO, "7", 1, 99, NULL, "a count that may be chosen"},
    {"inner.share", OPTION_REAL, "0.25", 0, 1, NULL, "a fraction in an object"},
    {"inner.path", OPTION_TEXT, "null", 0, 0, NULL, "a text in the same object"},
    {"sets", OPTION_NAME_LISTS, "null", 0, 0, NULL, "lists of names"},
    {"gone", OPTION_ABSENT, "null", 0, 0, NULL, "not simulated"},
    {0},
};
static const OptionSection section = {"section", every_type};

typedef OptionValue Values;

static void
values_free(Values *values)
{
  option_values_free(values, &section);
}
G_DEFINE_AUTOPTR_CLEANUP_FUNC(Values, values_free)

/* Reads {"section": TEXT}; the message, or NULL.  Caller frees both. */
static OptionValue *
read_section(const char *text, char **message)
{
  g_autofree char *whole = g_strdup_printf("{\"section\": %s}", text);
  g_autoptr(JsonDocument) doc = json_document_parse("plan.json", whole, strlen(whole), NULL);
  ck_assert_ptr_nonnull(doc);
  g_autoptr(JsonReader) reader = json_reader_new(doc);
  g_autoptr(JsonReader) inner = json_reader_section(reader, "section");
  OptionValue *values = option_section_read(inner, &section);
  g_autoptr(GError) error = NULL;
  json_reader_finish(inner, &error);
  *message = error ? g_strdup(error->message) : NULL;
  return values;
}

START_TEST(options_left_out_have_the_defaults_of_their_table)
{
  g_autofree char *message = NULL;
  g_autoptr(Values) v = read_section("{}", &message);
  ck_assert_ptr_null(message);
  for (guint i = 0; i < option_section_length(&section); i++)
    ck_assert(!v[i].given);
  ck_assert_int_eq(v[0].number, 1);
  ck_assert_int_eq(v[1].number, 3);
  ck_assert_int_eq(v[2].number, 2 * MIB);
  ck_assert_int_eq(v[3].number, 1);
  ck_assert(v[4].is_null);
  ck_assert(v[5].number == 7 && !v[5].is_auto);
  ck_assert_double_eq(v[6].real, 0.25);
}
END_TEST

/* {"width": "auto"} leaves the choice to the strategy; "inner.share" is a key of the object
 * "inner".
 */
START_TEST(options_may_be_left_to_the_strategy_or_stand_in_an_object)
{
  g_autofree char *message = NULL;
  g_autoptr(Values) v = read_section(
      "{\"width\": \"auto\", \"inner\": {\"share\": 0.5, \"path\": \"/tmp\"}, \"gone\": null}",
      &message);
  ck_assert_ptr_null(message);
  ck_assert(v[5].given && v[5].is_auto);
  ck_assert(v[6].given && v[7].given && !v[9].given);
  ck_assert_double_eq(v[6].real, 0.5);
  g_autoptr(Values) number = read_section("{\"width\": 5e1, \"inner\": null}", &message);
  ck_assert_ptr_null(message);
  ck_assert(number[5].given && !number[5].is_auto && number[5].number == 50);
  ck_assert_double_eq(number[6].real, 0.25);
}
END_TEST

START_TEST(options_are_read_by_their_type)
{
  g_autofree char *message = NULL;
  g_autoptr(Values) v = read_section(
      "{\"flag\": false, \"count\": 9, \"buffer\": \"1KiB\", \"colour\": \"red\", \"depth\": 4}",
      &message);
  ck_assert_ptr_null(message);
  for (int i = 0; i < 5; i++)
    ck_assert(v[i].given && !v[i].is_null);
  ck_assert_int_eq(v[0].number, 0);
  ck_assert_int_eq(v[1].number, 9);
  ck_assert_int_eq(v[2].number, 1024);
  ck_assert_int_eq(v[3].number, 0);
  ck_assert_int_eq(v[4].number, 4);
  ck_assert(!v[4].is_bool);
}
END_TEST

START_TEST(an_option_may_be_a_flag_a_number_or_null)
{
  g_autofree char *message = NULL;
  g_autoptr(Values) flag = read_section("{\"depth\": true}", &message);
  ck_assert(!message && flag[4].given && flag[4].is_bool && flag[4].number == 1);
  g_autoptr(Values) null = read_section("{\"depth\": null}", &message);
  ck_assert(!message && null[4].given && null[4].is_null && !null[4].is_bool);
}
END_TEST

START_TEST(an_option_may_list_names_and_lists_of_them)
{
  g_autofree char *message = NULL;
  g_autoptr(Values) none = read_section("{\"sets\": null}", &message);
  ck_assert(!message && none[8].is_null && none[8].lists == NULL);
  g_autoptr(Values) v = read_section("{\"sets\": [[\"a\", \"b\"], \"c\"]}", &message);
  ck_assert(!message && v[8].given && v[8].lists->len == 2);
  const NameList *pair = g_ptr_array_index(v[8].lists, 0),
                 *single = g_ptr_array_index(v[8].lists, 1);
  ck_assert(!pair->is_single && single->is_single);
  ck_assert(g_strv_equal((const char *const *) pair->names, (const char *const[]){"a", "b", NULL}));
  ck_assert(g_strv_equal((const char *const *) single->names, (const char *const[]){"c", NULL}));
}
END_TEST

static const struct {
  const char *text, *message;
} bad_options[] = {
    {"{\"flag\": 1}", "plan.json: key 'section.flag': true or false is needed, not a number"},
    {"{\"count\": 10}", "plan.json: key 'section.count': 10 is not in 1..9"},
    {"{\"count\": 2.5}", "plan.json: key 'section.count': 2.5 is not a whole number"},
    {"{\"buffer\": 100}", "plan.json: key 'section.buffer': 100 bytes is not in 1024..1073741824"},
    {"{\"colour\": \"blue\"}", "plan.json: key 'section.colour': 'blue' is not one of red, green"},
    {"{\"depth\": 1}", "plan.json: key 'section.depth': 1 is not in 2..64"},
    {"{\"depth\": \"4\"}",
     "plan.json: key 'section.depth': must be true, false, null or a whole number in 2..64"},
    {"{\"width\": \"wide\"}",
     "plan.json: key 'section.width': must be \"auto\" or a whole number in 1..99"},
    {"{\"width\": 100}", "plan.json: key 'section.width': 100 is not in 1..99"},
    {"{\"inner\": {\"share\": 2}}", "plan.json: key 'section.inner.share': 2 is not in 0..1"},
    {"{\"inner\": {\"shard\": 1}}",
     "plan.json: unknown key 'section.inner.shard'; did you mean 'share'?"},
    {"{\"inner\": 1}", "plan.json: key 'section.inner': an object is needed, not a number"},
    {"{\"sets\": \"a\"}", "plan.json: key 'section.sets': must be a list of names and of lists of "
                          "names, none of them empty"},
    {"{\"gone\": {}}", "plan.json: key 'section.gone': not yet supported"},
    {"{\"colur\": \"red\"}", "plan.json: unknown key 'section.colur'; did you mean 'colour'?"},
    {"[]", "plan.json: key 'section': an object is needed, not an array"},
};

START_TEST(an_option_out_of_its_table_is_refused)
{
  g_autofree char *message = NULL;
  g_autoptr(Values) values = read_section(bad_options[_i].text, &message);
  ck_assert_ptr_nonnull(values);
  ck_assert_str_eq(message, bad_options[_i].message);
}
END_TEST

START_TEST(what_an_option_allows_is_told_from_its_table)
{
  static const char *const expected[] = {"true | false",
                                         "1..9",
                                         "bytes, or \"25MiB\"",
                                         "red | green",
                                         "true | false | null | 2..64",
                                         "1..99 | auto",
                                         "0..1, fractions too",
                                         "text",
                                         "null | list of names and of lists of names",
                                         "null"};
  for (guint i = 0; i < option_section_length(&section); i++) {
    g_autofree char *allowed = option_allowed(&every_type[i]);
    ck_assert_str_eq(allowed, expected[i]);
  }
  ck_assert_int_eq(option_section_index(&section, "colour"), 3);
  ck_assert_int_eq(option_section_index(&section, "color"), -1);
}
END_TEST

/* ---- presets */

START_TEST(a_preset_is_found_by_name_and_a_file_by_its_path)
{
  g_autoptr(GError) error = NULL;
  g_autofree char *preset = preset_find("network", "tiny", &error);
  g_autofree char *folder = preset_folder("network");
  g_autofree char *expected = g_build_filename(folder, "tiny.json", NULL);
  ck_assert_str_eq(preset, expected);
  g_autofree char *file = preset_find("network", "./tiny", &error);
  ck_assert_str_eq(file, "./tiny");
  g_autofree char *json = preset_find("network", "tiny.json", &error);
  ck_assert_str_eq(json, "tiny.json");
  g_autofree char *dash = preset_find("network", "-", &error);
  ck_assert_str_eq(dash, "-");
  ck_assert_ptr_null(error);
}
END_TEST

START_TEST(an_unknown_preset_names_the_nearest)
{
  g_autoptr(GError) error = NULL;
  ck_assert_ptr_null(preset_find("network", "llama-3-8", &error));
  ck_assert_str_eq(error->message, "llama-3-8: no such network preset, and no file of that name; "
                                   "did you mean 'llama-3-8b'?");
  g_clear_error(&error);
  ck_assert_ptr_null(preset_find("plan", "", &error));
  ck_assert_str_eq(error->message, "a plan is needed, not an empty name; presets are listed by "
                                   "'highwater list plan'");
}
END_TEST

START_TEST(a_preset_is_named_by_its_file)
{
  g_autofree char *preset = preset_name_of("models/network/qwen2.5-7b.json");
  ck_assert_str_eq(preset, "qwen2.5-7b");
  g_autofree char *other = preset_name_of("/tmp/config");
  ck_assert_str_eq(other, "config");
  g_autofree char *dash = preset_name_of("-");
  ck_assert_str_eq(dash, "stdin");
}
END_TEST

START_TEST(another_folder_of_presets_can_be_named)
{
  char *folder = test_folder_new();
  g_autofree char *plans = g_build_filename(folder, "plan", NULL);
  ck_assert_int_eq(g_mkdir(plans, 0755), 0);
  static const char *const files[] = {"b.json", "a.json", ".hidden.json", "notes.txt"};
  for (guint i = 0; i < G_N_ELEMENTS(files); i++) {
    g_autofree char *path = g_build_filename(plans, files[i], NULL);
    ck_assert(g_file_set_contents(path, "{}", -1, NULL));
  }
  g_autofree char *usual = g_strdup(g_getenv("HIGHWATER_MODELS"));
  g_setenv("HIGHWATER_MODELS", folder, TRUE);
  g_auto(GStrv) names = preset_names("plan");
  g_auto(GStrv) none = preset_names("network");
  if (usual)
    g_setenv("HIGHWATER_MODELS", usual, TRUE);
  else
    g_unsetenv("HIGHWATER_MODELS");
  test_folder_remove(folder);
  ck_assert_uint_eq(g_strv_length(names), 2);
  ck_assert_str_eq(names[0], "a");
  ck_assert_str_eq(names[1], "b");
  ck_assert_uint_eq(g_strv_length(none), 0);
}
END_TEST

/* ---- networks */

static NetworkSpec *
parse_network(const char *text, GError **error)
{
  return network_spec_parse("net.json", text, strlen(text), error);
}

START_TEST(a_plain_config_is_transformers_code)
{
  g_autoptr(NetworkSpec) spec = parse_network("{\"model_type\": \"llama\", \"foo\": 1}", NULL);
  ck_assert_str_eq(spec->name, "net");
  ck_assert_str_eq(spec->family, "llama");
  ck_assert(!network_spec_is_own_format(spec));
  ck_assert_int_eq(spec->implementation.code, CODE_TRANSFORMERS);
  ck_assert_int_eq(spec->implementation.rms_norm, RMS_NORM_COMPOSITE);
  ck_assert_int_eq(spec->implementation.rope, ROPE_ROTATE_HALF);
  ck_assert_int_eq(spec->implementation.attention, ATTENTION_SDPA);
  ck_assert_int_eq(spec->implementation.loss, LOSS_FP32);
}
END_TEST

START_TEST(an_implementation_is_a_name_with_its_defaults)
{
  g_autoptr(NetworkSpec) spec =
      parse_network("{\"model_type\": \"llama\", \"implementation\": \"torchtitan\"}", NULL);
  ck_assert_int_eq(spec->implementation.code, CODE_TORCHTITAN);
  ck_assert_int_eq(spec->implementation.rms_norm, RMS_NORM_FUSED);
  ck_assert_int_eq(spec->implementation.rope, ROPE_COMPLEX);
  ck_assert_int_eq(spec->implementation.kv_heads, KV_HEADS_NATIVE);
}
END_TEST

START_TEST(an_implementation_is_an_object_that_differs_from_them)
{
  g_autoptr(NetworkSpec) spec = parse_network(
      "{\"model_type\": \"llama\", \"implementation\": {\"rope\": \"none\", \"code\": "
      "\"torchtitan\", \"kv_heads\": \"repeated\", \"attention\": \"math\", "
      "\"loss\": \"model\", \"rms_norm\": \"composite\"}}",
      NULL);
  ck_assert_int_eq(spec->implementation.code, CODE_TORCHTITAN);
  ck_assert_int_eq(spec->implementation.rms_norm, RMS_NORM_COMPOSITE);
  ck_assert_int_eq(spec->implementation.rope, ROPE_NONE);
  ck_assert_int_eq(spec->implementation.kv_heads, KV_HEADS_REPEATED);
  ck_assert_int_eq(spec->implementation.attention, ATTENTION_MATH);
  ck_assert_int_eq(spec->implementation.loss, LOSS_MODEL);
}
END_TEST

START_TEST(a_config_says_how_its_model_attends_unless_the_implementation_does)
{
  g_autoptr(NetworkSpec) eager =
      parse_network("{\"model_type\": \"llama\", \"attn_implementation\": \"eager\"}", NULL);
  ck_assert_int_eq(eager->implementation.attention, ATTENTION_EAGER);
  g_autoptr(NetworkSpec) flash =
      parse_network("{\"model_type\": \"llama\", \"implementation\": \"transformers\", "
                    "\"_attn_implementation\": \"flash_attention_2\"}",
                    NULL);
  ck_assert_int_eq(flash->implementation.attention, ATTENTION_FLASH);
  g_autoptr(NetworkSpec) ours =
      parse_network("{\"model_type\": \"llama\", \"attn_implementation\": \"eager\", "
                    "\"implementation\": {\"attention\": \"sdpa\"}}",
                    NULL);
  ck_assert_int_eq(ours->implementation.attention, ATTENTION_SDPA);
}
END_TEST

START_TEST(fields_are_found_under_any_of_their_names)
{
  g_autoptr(NetworkSpec) spec =
      parse_network("{\"model_type\": \"gpt2\", \"hidden_size\": null, \"n_embd\": 768, "
                    "\"tie_word_embeddings\": false, \"rope_theta\": 5e5, \"act\": \"gelu\"}",
                    NULL);
  ck_assert_int_eq(network_spec_int(spec, "hidden_size|n_embd", -1), 768);
  ck_assert_int_eq(network_spec_int(spec, "n_inner", 0), 0);
  ck_assert(!network_spec_bool(spec, "tie_word_embeddings", TRUE));
  ck_assert(network_spec_bool(spec, "use_cache", TRUE));
  ck_assert(network_spec_double(spec, "theta|rope_theta", 1) == 5e5);
  ck_assert_str_eq(network_spec_string(spec, "act", NULL), "gelu");
  ck_assert_ptr_null(network_spec_string(spec, "hidden_act", NULL));
  g_autoptr(GError) error = NULL;
  ck_assert(json_reader_finish(spec->reader, &error));
  ck_assert_int_eq(network_spec_int(spec, "n_layer|num_hidden_layers", -1), 1);
  ck_assert(!json_reader_finish(spec->reader, &error));
  ck_assert_str_eq(error->message, "net.json: key 'n_layer' is missing");
}
END_TEST

START_TEST(a_size_of_a_network_is_a_positive_whole_number)
{
  static const char *const values[] = {"0", "-4", "1e300", "2.5", "\"many\"", "1099511627777"};
  static const char *const messages[] = {
      "net.json: key 'n': 0 is not in 1..1099511627776",
      "net.json: key 'n': -4 is not in 1..1099511627776",
      "net.json: key 'n': 1.0000000000000001e+300 is beyond 2^53",
      "net.json: key 'n': 2.5 is not a whole number",
      "net.json: key 'n': a whole number is needed, not a string",
      "net.json: key 'n': 1099511627777 is not in 1..1099511627776",
  };
  for (guint i = 0; i < G_N_ELEMENTS(values); i++) {
    g_autofree char *text = g_strdup_printf("{\"model_type\": \"x\", \"n\": %s}", values[i]);
    g_autoptr(NetworkSpec) spec = parse_network(text, NULL);
    g_autoptr(GError) error = NULL;
    network_spec_int(spec, "n", 7);
    ck_assert(!json_reader_finish(spec->reader, &error));
    ck_assert_str_eq(error->message, messages[i]);
  }
}
END_TEST

START_TEST(our_own_format_has_no_unknown_keys)
{
  g_autoptr(NetworkSpec) spec =
      parse_network("{\"family\": \"blocks\", \"_source\": \"me\", \"blok\": 1}", NULL);
  ck_assert(network_spec_is_own_format(spec));
  ck_assert_str_eq(spec->family, "blocks");
  json_reader_raw(spec->reader, "blocks");
  g_autoptr(GError) error = NULL;
  ck_assert(!json_reader_finish(spec->reader, &error));
  ck_assert_str_eq(error->message, "net.json: unknown key 'blok'; did you mean 'blocks'?");
}
END_TEST

static const struct {
  const char *text, *message;
} bad_networks[] = {
    {"{}", "net.json: key 'model_type' is missing"},
    {"{\"model_type\": 3}", "net.json: key 'model_type': a string is needed, not a number"},
    {"{\"model_type\": \"llama\"", "net.json: line 1: the text ends where ',' or '}' is expected"},
    {"[]", "net.json: line 1: an object ({...}) is expected at the top"},
    {"{\"model_type\": \"llama\", \"implementation\": \"megatron\"}",
     "net.json: key 'implementation': 'megatron' is not one of transformers, torchtitan, nanogpt, "
     "llm-foundry"},
    {"{\"model_type\": \"llama\", \"implementation\": 1}",
     "net.json: key 'implementation': must be a name or an object"},
    {"{\"model_type\": \"llama\", \"implementation\": {\"ropes\": \"none\"}}",
     "net.json: unknown key 'implementation.ropes'; did you mean 'rope'?"},
    {"{\"model_type\": \"llama\", \"implementation\": {\"attention\": \"flash4\"}}",
     "net.json: key 'implementation.attention': 'flash4' is not one of sdpa, flash, flash1, "
     "triton, flash3, cudnn, efficient, math, eager"},
    {"{\"model_type\": \"llama\", \"quantization_config\": {\"bits\": 4}}",
     "net.json: key 'quantization_config': a quantized network is not supported"},
    {"{\"model_type\": \"llama\", \"quantization\": \"fp8\"}",
     "net.json: key 'quantization': a quantized network is not supported"},
    {"{\"model_type\": \"llama\", \"adapter_config\": {\"r\": 8}}",
     "net.json: key 'adapter_config': a network with adapters is not supported"},
    {"{\"peft_type\": \"LORA\"}",
     "net.json: key 'peft_type': a network with adapters is not supported"},
    {"{\"model_type\": \"llama\", \"lora_alpha\": 16}",
     "net.json: key 'lora_alpha': a network with adapters is not supported"},
    {"{\"model_type\": \"llama\", \"output_hidden_states\": true}",
     "net.json: key 'output_hidden_states': an output that holds hidden states is not supported"},
    {"{\"model_type\": \"llama\", \"attn_implementation\": \"flex_attention\"}",
     "net.json: key 'attn_implementation': 'flex_attention' is not sdpa, eager, flash_attention_2 "
     "or "
     "flash_attention_3"},
};

START_TEST(a_network_that_cannot_be_simulated_is_refused)
{
  g_autoptr(GError) error = NULL;
  ck_assert_ptr_null(parse_network(bad_networks[_i].text, &error));
  ck_assert_str_eq(error->message, bad_networks[_i].message);
  ck_assert(error->domain == HIGHWATER_ERROR);
}
END_TEST

START_TEST(a_feature_that_is_switched_off_is_no_reason_to_refuse)
{
  g_autoptr(NetworkSpec) spec =
      parse_network("{\"model_type\": \"llama\", \"quantization_config\": null, \"adapters\": {}, "
                    "\"lora\": false, \"kv_lora_rank\": 512}",
                    NULL);
  ck_assert_ptr_nonnull(spec);
}
END_TEST

START_TEST(a_network_file_that_is_not_there_is_an_error)
{
  g_autoptr(GError) error = NULL;
  ck_assert_ptr_null(network_spec_load("no/such/config.json", &error));
  ck_assert_str_eq(error->message,
                   "no/such/config.json: cannot be read: No such file or directory");
}
END_TEST

START_TEST(every_network_preset_loads_and_names_its_source)
{
  static const char *const promised[] = {
      "gpt2",           "gpt2-xl",      "llama-2-13b", "llama-2-7b", "llama-3-70b", "llama-3-8b",
      "llama-3.1-405b", "llama-3.2-1b", "mistral-7b",  "qwen2.5-7b", "tiny",        NULL};
  g_auto(GStrv) names = preset_names("network");
  for (guint i = 0; promised[i]; i++)
    ck_assert(g_strv_contains((const char *const *) names, promised[i]));
  for (guint i = 0; names[i]; i++) {
    g_autoptr(GError) error = NULL;
    g_autoptr(NetworkSpec) spec = network_spec_load(names[i], &error);
    ck_assert_msg(spec != NULL, "%s", error ? error->message : "");
    ck_assert_str_eq(spec->name, names[i]);
    ck_assert_ptr_nonnull(network_spec_string(spec, "_source", NULL));
    ck_assert_ptr_nonnull(network_spec_string(spec, "_summary", NULL));
    gboolean llama = g_str_has_prefix(names[i], "llama");
    gboolean gpt = g_str_has_prefix(names[i], "gpt");
    if (llama || gpt)
      ck_assert_int_eq(spec->implementation.code, llama ? CODE_TORCHTITAN : CODE_NANOGPT);
  }
}
END_TEST

/* Embedding and head, four attention matrices, three of the MLP, two norms a block and one at the
 * end: the published counts of the llamas follow from their sizes. */
static gint64
llama_parameters(NetworkSpec *spec)
{
  gint64 d = network_spec_int(spec, "hidden_size", -1);
  gint64 heads = network_spec_int(spec, "num_attention_heads", -1);
  gint64 kv = network_spec_int(spec, "num_key_value_heads", -1) * (d / heads);
  gint64 f = network_spec_int(spec, "intermediate_size", -1);
  gint64 vocabulary = network_spec_int(spec, "vocab_size", -1) * d;
  gint64 tables = network_spec_bool(spec, "tie_word_embeddings", TRUE) ? 1 : 2;
  gint64 block = 2 * d * d + 2 * d * kv + 3 * d * f + 2 * d;
  return tables * vocabulary + network_spec_int(spec, "num_hidden_layers", -1) * block + d;
}

static const struct {
  const char *name;
  gint64 parameters;
} published[] = {
    {"llama-3-8b", 8030261248},       {"llama-3-70b", 70553706496}, {"llama-3.2-1b", 1235814400},
    {"llama-3.1-405b", 405853388800}, {"llama-2-7b", 6738415616},   {"llama-2-13b", 13015864320},
    {"mistral-7b", 7248023552},
};

START_TEST(the_sizes_of_a_preset_give_the_published_number_of_parameters)
{
  g_autoptr(NetworkSpec) spec = network_spec_load(published[_i].name, NULL);
  ck_assert_ptr_nonnull(spec);
  ck_assert_int_eq(llama_parameters(spec), published[_i].parameters);
}
END_TEST

Suite *
test_suite(void)
{
  Suite *suite = suite_create("specs");
  TCase *types = tcase_create("types"), *presets = tcase_create("presets");
  TCase *networks = tcase_create("networks");
  suite_add_tcase(suite, types);
  suite_add_tcase(suite, presets);
  suite_add_tcase(suite, networks);
  tcase_add_test(types, a_dtype_is_found_by_our_name_and_by_pytorchs);
  tcase_add_test(types, the_size_of_a_dtype_is_that_of_its_element);
  tcase_add_test(types, options_left_out_have_the_defaults_of_their_table);
  tcase_add_test(types, options_are_read_by_their_type);
  tcase_add_test(types, an_option_may_be_a_flag_a_number_or_null);
  tcase_add_test(types, an_option_may_list_names_and_lists_of_them);
  tcase_add_test(types, options_may_be_left_to_the_strategy_or_stand_in_an_object);
  tcase_add_loop_test(types, an_option_out_of_its_table_is_refused, 0, G_N_ELEMENTS(bad_options));
  tcase_add_test(types, what_an_option_allows_is_told_from_its_table);
  tcase_add_test(presets, a_preset_is_found_by_name_and_a_file_by_its_path);
  tcase_add_test(presets, an_unknown_preset_names_the_nearest);
  tcase_add_test(presets, a_preset_is_named_by_its_file);
  tcase_add_test(presets, another_folder_of_presets_can_be_named);
  tcase_add_test(networks, a_plain_config_is_transformers_code);
  tcase_add_test(networks, an_implementation_is_a_name_with_its_defaults);
  tcase_add_test(networks, an_implementation_is_an_object_that_differs_from_them);
  tcase_add_test(networks, a_config_says_how_its_model_attends_unless_the_implementation_does);
  tcase_add_test(networks, fields_are_found_under_any_of_their_names);
  tcase_add_test(networks, a_size_of_a_network_is_a_positive_whole_number);
  tcase_add_test(networks, our_own_format_has_no_unknown_keys);
  tcase_add_loop_test(networks, a_network_that_cannot_be_simulated_is_refused, 0,
                      G_N_ELEMENTS(bad_networks));
  tcase_add_test(networks, a_feature_that_is_switched_off_is_no_reason_to_refuse);
  tcase_add_test(networks, a_network_file_that_is_not_there_is_an_error);
  tcase_add_test(networks, every_network_preset_loads_and_names_its_source);
  tcase_add_loop_test(networks, the_sizes_of_a_preset_give_the_published_number_of_parameters, 0,
                      G_N_ELEMENTS(published));
  return suite;
}
