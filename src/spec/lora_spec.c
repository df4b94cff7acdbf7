/* lora_spec.c - reads what adapters there are, with the defaults of PEFT's LoraConfig. */
#include "spec/lora_spec.h"

#include <string.h>

#include "spec/name_patterns.h"

#define RANK_MAX (1 << 20)
#define ALPHA_MAX 1e9
#define ALPHA_DEFAULT 8
#define ALL_LINEAR "all-linear"

static const char *const code_names[] = {"peft", "plain", NULL};

static void
read_targets(JsonReader *reader, LoraSpec *lora)
{
  const cJSON *value = json_reader_raw(reader, "targets");
  lora->targets = g_ptr_array_new_with_free_func(g_free);
  lora->all = cJSON_IsString(value) && g_str_equal(value->valuestring, ALL_LINEAR);
  if (lora->all)
    return;
  g_autoptr(NamePatterns) list = NULL;
  if (!json_reader_require(reader, "targets"))
    return;
  list = name_patterns_read(reader, "targets");
  for (guint i = 0; list != NULL && i < list->patterns->len; i++) {
    const char *pattern = g_ptr_array_index(list->patterns, i);
    if (*pattern == '!')
      json_reader_fail(reader, "targets", "'%s': targets take nothing out", pattern);
    g_ptr_array_add(lora->targets, g_strdup(pattern));
  }
}

/* Of the adapters.  PEFT makes them fp32 beside 16-bit parameters unless autocast_adapter_dtype is
 * off. */
static void
read_dtype(JsonReader *reader, DType parameters)
{
  const char *name = json_reader_string(reader, "dtype", NULL);
  if (name == NULL)
    return;
  int dtype = dtype_from_name(name);
  if (dtype != DTYPE_FP32 && dtype != DTYPE_BF16 && dtype != DTYPE_FP16)
    json_reader_fail(reader, "dtype", "'%.60s' is not one of fp32, bf16, fp16", name);
  else if (dtype != (int) parameters)
    json_reader_fail(reader, "dtype",
                     "adapters of another dtype than precision.parameters (%s) are not yet "
                     "supported",
                     dtype_name(parameters));
}

LoraSpec *
lora_spec_read(JsonReader *reader, DType parameters)
{
  if (!json_reader_has(reader, "lora"))
    return NULL;
  g_autoptr(JsonReader) section = json_reader_section(reader, "lora");
  LoraSpec *lora = g_new0(LoraSpec, 1);
  lora->rank = json_reader_required_int(section, "rank", 1, RANK_MAX);
  json_reader_double(section, "alpha", ALPHA_DEFAULT, 0, ALPHA_MAX); /* a factor: changes no size */
  lora->dropout = json_reader_double(section, "dropout", 0, 0, 1) > 0;
  lora->code = (LoraCode) json_reader_enum(section, "code", code_names, LORA_PEFT);
  if (lora->dropout && lora->code == LORA_PLAIN)
    json_reader_fail(section, "dropout", "only the code of peft has it");
  read_targets(section, lora);
  read_dtype(section, parameters);
  json_reader_finish(section, NULL);
  return lora;
}

void
lora_spec_free(LoraSpec *lora)
{
  if (lora == NULL)
    return;
  g_ptr_array_unref(lora->targets);
  g_free(lora);
}

gboolean
lora_target_matches(const char *target, const char *path)
{
  if (name_pattern_matches(target, path))
    return TRUE;
  g_autofree char *end = g_strconcat("*.", target, NULL);
  return name_pattern_matches(end, path);
}

gboolean
lora_spec_targets(const LoraSpec *lora, const char *path)
{
  for (guint i = 0; i < lora->targets->len; i++)
    if (lora_target_matches(g_ptr_array_index(lora->targets, i), path))
      return TRUE;
  return FALSE;
}
