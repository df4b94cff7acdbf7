/* snapshot_settings.c - how the allocator was set up, and what the program named. */
#include "import/allocation_trace_internal.h"
#include "import/snapshot_file_internal.h"
#include "memory/allocator_options.h"
#include "record/snapshot_names.h"

/* ---- annotations ---- */

void
snapshot_read_annotations(SnapshotFile *file, const PickleValue *list)
{
  for (guint i = 0; i < MIN(pickle_length(list), TRACE_MAX_EVENTS); i++) {
    const PickleValue *dict = pickle_item(list, i);
    const PickleValue *name = pickle_get(dict, "name"), *stage = pickle_get(dict, "stage");
    if (!name || name->kind != PICKLE_STRING || !stage || stage->kind != PICKLE_STRING ||
        snapshot_int_or(dict, "device", 0) != file->device)
      continue;
    SnapshotAnnotation annotation = {
        .time_us = CLAMP(snapshot_int_or(dict, "time_us", 0), 0, G_MAXINT64 / 2000),
        .name = g_utf8_make_valid(name->text, -1),
        .ends = g_str_equal(stage->text, "END")};
    g_array_append_val(file->annotations, annotation);
  }
}

/* ---- settings ---- */

static void
read_divisions(AllocatorConfig *config, const PickleValue *dict)
{
  for (int i = 0; i < ALLOCATOR_SIZE_CLASSES; i++) {
    char mebibytes[16];
    g_snprintf(mebibytes, sizeof mebibytes, "%d", 1 << i);
    gint64 divisions = snapshot_int_or(dict, mebibytes, 0);
    gboolean valid = divisions >= 0 && divisions <= 1 << 20 && !(divisions & (divisions - 1));
    config->roundup_power2_by_size[i] = valid ? (int) divisions : 0;
    if (config->roundup_power2_by_size[i] > 0)
      config->roundup_power2_divisions = -1;
  }
}

/* A limit in bytes, -1 for none; otherwise what is there. */
static void
read_limit(const PickleValue *dict, const char *key, gint64 *limit)
{
  gint64 bytes = snapshot_int_or(dict, key, 0);
  if (bytes != 0)
    *limit = bytes > 0 ? bytes : G_MAXINT64;
}

/* What the values say, and what only the text in the environment does; its share of the device
 * means nothing where the device's size is not known. */
void
snapshot_read_settings(SnapshotFile *file, const PickleValue *dict)
{
  AllocatorConfig *config = &file->config;
  const AllocatorConfig defaults = allocator_config_default();
  const PickleValue *text = pickle_get(dict, "PYTORCH_CUDA_ALLOC_CONF");
  AllocatorConfig read = defaults;
  if (text && text->kind == PICKLE_STRING && text->text[0] != '\0' &&
      allocator_options_parse(&read, text->text, NULL))
    *config = read;
  config->process_limit = defaults.process_limit;
  const PickleValue *threshold = pickle_get(dict, "garbage_collection_threshold");
  if (threshold && threshold->kind == PICKLE_DOUBLE && threshold->real >= 0 && threshold->real < 1)
    config->garbage_collection_threshold = threshold->real;
  config->expandable_segments |= snapshot_is_true(dict, "expandable_segments");
  read_limit(dict, "max_split_size", &config->max_split_size);
  read_limit(dict, SNAPSHOT_DEVICE_BYTES, &config->device_total_bytes);
  read_limit(dict, SNAPSHOT_MEMORY_LIMIT, &config->memory_limit);
  read_limit(dict, SNAPSHOT_PROCESS_LIMIT, &config->process_limit);
  config->device_total_bytes = MIN(config->device_total_bytes, TRACE_MAX_BYTES);
  read_divisions(config, pickle_get(dict, "roundup_power2_divisions"));
}
