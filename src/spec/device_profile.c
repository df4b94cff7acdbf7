/* device_profile.c - reads what a GPU can do from models/device/NAME.json. */
#include "spec/device_profile.h"

#include "base/json_reader.h"
#include "base/units.h"
#include "spec/preset.h"
#include "spec/profile_fields.h"

#define INT(name, low, high)                                                                       \
  {                                                                                                \
#name, PROFILE_INT, G_STRUCT_OFFSET(DeviceProfile, name), 1, low, high                         \
  }
#define BYTES(name, low, high)                                                                     \
  {                                                                                                \
#name, PROFILE_BYTES, G_STRUCT_OFFSET(DeviceProfile, name), 1, low, high                       \
  }
#define SCALED(key, field, scale, low, high)                                                       \
  {                                                                                                \
    key, PROFILE_DOUBLE, G_STRUCT_OFFSET(DeviceProfile, field), scale, low, high                   \
  }
#define MICROSECONDS(name) SCALED(#name "_us", name##_ns, NS_PER_US, 0, 1e6)

/* The ranges are there to catch a wrong unit, not to bound what hardware may become. */
static const ProfileField fields[] = {
    BYTES(memory_bytes, MIB, 1024.0 * 1024 * GIB),
    BYTES(context_bytes, 0, 1024.0 * GIB),
    INT(sms, 1, 100000),
    INT(max_threads_per_sm, 32, 65536),
    INT(compute_capability, 10, 1000),
    BYTES(cublas_workspace_bytes, 0, 1024.0 * GIB),
    BYTES(cublaslt_workspace_bytes, 0, 1024.0 * GIB),
    SCALED("peak_bf16_tflops", peak_bf16_flops, TERA, 1e-3, 1e6),
    SCALED("peak_fp16_tflops", peak_fp16_flops, TERA, 1e-3, 1e6),
    SCALED("peak_fp32_tflops", peak_fp32_flops, TERA, 1e-3, 1e6),
    SCALED("gemm_efficiency", gemm_efficiency, 1, 1e-3, 1),
    SCALED("gemm_in_step", gemm_in_step, 1, 1e-3, 1),
    SCALED("gemm_prologue", gemm_prologue, 1, 0, 1e6),
    INT(gemm_split_k, 1, 1024),
    SCALED("power_limit_w", power_limit, 1, 1, 1e5),
    SCALED("power_reference_w", power_reference, 1, 1, 1e5),
    SCALED("power_idle_w", power_idle, 1, 0, 1e5),
    SCALED("power_exponent", power_exponent, 1, 0, 1),
    SCALED("clock_spread", clock_spread, 1, 0, 0.2),
    SCALED("memory_bandwidth_gb_per_s", memory_bandwidth, GIGA, 1, 1e6),
    SCALED("memory_efficiency", memory_efficiency, 1, 1e-3, 1),
    MICROSECONDS(memory_latency),
    MICROSECONDS(kernel_floor),
    MICROSECONDS(kernel_gap),
    MICROSECONDS(host_op_forward),
    MICROSECONDS(host_op_backward),
    MICROSECONDS(host_hook),
    MICROSECONDS(host_collective),
    MICROSECONDS(host_optimizer),
    MICROSECONDS(host_module),
    MICROSECONDS(host_compiled_region),
    MICROSECONDS(host_compiled_kernel),
    MICROSECONDS(cuda_malloc),
    MICROSECONDS(cuda_free),
    SCALED("host_copy_gb_per_s", host_copy_bandwidth, GIGA, 1e-3, 1e6),
    SCALED("host_memory_gb_per_s", host_memory_bandwidth, GIGA, 1e-3, 1e6),
    SCALED("nvlink_busbw_gb_per_s", nvlink_busbw, GIGA, 0, 1e6),
    {0},
};

static const ProfileField tile_fields[] = {
    {"rows", PROFILE_INT, G_STRUCT_OFFSET(GemmTile, rows), 1, 1, 65536},
    {"columns", PROFILE_INT, G_STRUCT_OFFSET(GemmTile, columns), 1, 1, 65536},
    {"efficiency", PROFILE_DOUBLE, G_STRUCT_OFFSET(GemmTile, efficiency), 1, 1e-3, 1},
    {0},
};

static const ProfileField rate_fields[] = {
    {"head_dim", PROFILE_INT, G_STRUCT_OFFSET(AttentionRate, head_dim), 1, 1, 65536},
    {"forward_tflops", PROFILE_DOUBLE, G_STRUCT_OFFSET(AttentionRate, forward_flops), TERA, 1e-3,
     1e6},
    {"backward_tflops", PROFILE_DOUBLE, G_STRUCT_OFFSET(AttentionRate, backward_flops), TERA, 1e-3,
     1e6},
    {"forward_half_tokens", PROFILE_DOUBLE, G_STRUCT_OFFSET(AttentionRate, forward_half_tokens), 1,
     0, 1e6},
    {"backward_half_tokens", PROFILE_DOUBLE, G_STRUCT_OFFSET(AttentionRate, backward_half_tokens),
     1, 0, 1e6},
    {0},
};

static const char *const clock_names[] = {"running", "instant", "endless", NULL};

/* How many rows the list under the key has: 1..most. */
static int
row_count(JsonReader *reader, const char *key, int most)
{
  guint n = json_reader_require(reader, key) ? json_reader_array_length(reader, key) : 0;
  if (n >= 1 && n <= (guint) most)
    return (int) n;
  json_reader_fail(reader, key, "has %u rows: 1 to %d are needed", n, most);
  return 0;
}

static void
read_tiles(JsonReader *reader, DeviceProfile *profile)
{
  static const char key[] = "gemm_tiles";
  profile->gemm_tiles = row_count(reader, key, DEVICE_GEMM_TILES);
  for (int i = 0; i < profile->gemm_tiles; i++) {
    g_autoptr(JsonReader) row = json_reader_element(reader, key, (guint) i);
    profile_fields_read(row, tile_fields, &profile->gemm_tile[i]);
    json_reader_finish(row, NULL);
  }
}

static void
read_attention(JsonReader *reader, DeviceProfile *profile)
{
  static const char key[] = "attention";
  profile->attention_rates = row_count(reader, key, DEVICE_ATTENTION_RATES);
  for (int i = 0; i < profile->attention_rates; i++) {
    g_autoptr(JsonReader) row = json_reader_element(reader, key, (guint) i);
    AttentionRate *rate = &profile->attention[i];
    json_reader_require(row, "kernel");
    rate->kernel = (FusedAttention) json_reader_enum(row, "kernel", fused_attention_names, 0);
    profile_fields_read(row, rate_fields, rate);
    json_reader_finish(row, NULL);
  }
}

double
device_profile_peak(const DeviceProfile *profile, DType dtype)
{
  switch (dtype) {
  case DTYPE_BF16:
    return profile->peak_bf16_flops;
  case DTYPE_FP16:
    return profile->peak_fp16_flops;
  default:
    return profile->peak_fp32_flops;
  }
}

gboolean
device_profile_runs(const DeviceProfile *profile, FusedAttention kernel)
{
  for (int i = 0; i < profile->attention_rates; i++)
    if (profile->attention[i].kernel == kernel)
      return TRUE;
  return FALSE;
}

static char **
read_measured(JsonReader *reader)
{
  const cJSON *list = json_reader_raw(reader, "measured"), *element;
  if (list == NULL || cJSON_IsNull(list))
    return NULL;
  g_autoptr(GStrvBuilder) keys = g_strv_builder_new();
  gboolean good = cJSON_IsArray(list);
  cJSON_ArrayForEach(element, list)
  {
    if (cJSON_IsString(element))
      g_strv_builder_add(keys, element->valuestring);
    else
      good = FALSE;
  }
  if (!good)
    json_reader_fail(reader, "measured", "must be a list of keys");
  return g_strv_builder_end(keys);
}

DeviceProfile *
device_profile_read(JsonReader *reader, const char *name)
{
  DeviceProfile *profile = g_new0(DeviceProfile, 1);
  profile->name = g_strdup(name);
  profile_fields_read(reader, fields, profile);
  read_tiles(reader, profile);
  read_attention(reader, profile);
  if (profile->power_idle >= MIN(profile->power_limit, profile->power_reference))
    json_reader_fail(reader, "power_idle_w", "is not below power_limit_w and power_reference_w");
  profile->clock = (DeviceClock) json_reader_enum(reader, "clock", clock_names, CLOCK_RUNNING);
  profile->source = g_strdup(json_reader_required_string(reader, "source"));
  profile->measured = read_measured(reader);
  return profile;
}

/* Takes name and document. */
static DeviceProfile *
device_profile_from_document(char *own_name, JsonDocument *owned, GError **error)
{
  g_autofree char *name = own_name;
  g_autoptr(JsonDocument) document = owned;
  g_autoptr(JsonReader) reader = json_reader_new(document);
  g_autoptr(DeviceProfile) profile = device_profile_read(reader, name);
  if (!json_reader_finish(reader, error))
    return NULL;
  return g_steal_pointer(&profile);
}

DeviceProfile *
device_profile_load(const char *preset_or_path, GError **error)
{
  g_autofree char *path = preset_find("device", preset_or_path, error);
  if (!path)
    return NULL;
  JsonDocument *document = json_document_load(path, error);
  return document ? device_profile_from_document(preset_name_of(path), document, error) : NULL;
}

DeviceProfile *
device_profile_parse(const char *name, const char *text, gsize length, GError **error)
{
  JsonDocument *document = json_document_parse(name, text, length, error);
  return document ? device_profile_from_document(preset_name_of(name), document, error) : NULL;
}

void
device_profile_free(DeviceProfile *profile)
{
  if (!profile)
    return;
  g_free(profile->name);
  g_free(profile->source);
  g_strfreev(profile->measured);
  g_free(profile);
}
