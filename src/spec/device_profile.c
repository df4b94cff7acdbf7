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
    SCALED("peak_fp32_tflops", peak_fp32_flops, TERA, 1e-3, 1e6),
    SCALED("gemm_efficiency", gemm_efficiency, 1, 1e-3, 1),
    SCALED("attention_forward_tflops", attention_forward_flops, TERA, 1e-3, 1e6),
    SCALED("attention_backward_tflops", attention_backward_flops, TERA, 1e-3, 1e6),
    SCALED("memory_bandwidth_gb_per_s", memory_bandwidth, GIGA, 1, 1e6),
    SCALED("memory_efficiency", memory_efficiency, 1, 1e-3, 1),
    MICROSECONDS(kernel_floor),
    MICROSECONDS(kernel_gap),
    MICROSECONDS(host_op_forward),
    MICROSECONDS(host_op_backward),
    MICROSECONDS(host_hook),
    MICROSECONDS(host_collective),
    MICROSECONDS(host_optimizer),
    MICROSECONDS(host_module),
    MICROSECONDS(cuda_malloc),
    MICROSECONDS(cuda_free),
    SCALED("host_copy_gb_per_s", host_copy_bandwidth, GIGA, 1e-3, 1e6),
    SCALED("host_memory_gb_per_s", host_memory_bandwidth, GIGA, 1e-3, 1e6),
    SCALED("nvlink_busbw_gb_per_s", nvlink_busbw, GIGA, 1e-3, 1e6),
    {0},
};

static const char *const clock_names[] = {"running", "instant", "endless", NULL};

/* Takes name and document. */
static DeviceProfile *
device_profile_from_document(char *name, JsonDocument *owned, GError **error)
{
  g_autoptr(JsonDocument) document = owned;
  g_autoptr(JsonReader) reader = json_reader_new(document);
  g_autoptr(DeviceProfile) profile = g_new0(DeviceProfile, 1);
  profile->name = name;
  profile_fields_read(reader, fields, profile);
  profile->clock = (DeviceClock) json_reader_enum(reader, "clock", clock_names, CLOCK_RUNNING);
  profile->source = g_strdup(json_reader_required_string(reader, "source"));
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
  g_free(profile);
}
