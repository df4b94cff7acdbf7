/* allocator_options.c - reads PYTORCH_ALLOC_CONF.
 *
 * c10/core/AllocatorConfig.cpp: parseArgs and what it calls; c10/cuda/CUDAAllocatorConfig.cpp. */
#include "memory/allocator_options.h"
#include "base/nearest_name.h"
#include "base/units.h"
#include <string.h>

/* Sets what a value says; FALSE when it is not allowed. */
typedef gboolean (*OptionSetter)(AllocatorConfig *config, const char *value);

static gboolean
read_number(const char *text, gint64 min, gint64 max, gint64 *number)
{
  guint64 read = 0;
  if (!g_ascii_string_to_unsigned(text, 10, (guint64) min, (guint64) max, &read, NULL))
    return FALSE;
  *number = (gint64) read;
  return TRUE;
}

static gboolean
read_mebibytes(const char *text, gint64 min, gint64 *bytes)
{
  gint64 number;
  if (!read_number(text, min, (gint64) 1 << 40, &number))
    return FALSE;
  *bytes = number * MIB;
  return TRUE;
}

static gboolean
read_fraction(const char *text, double *fraction)
{
  char *end = NULL;
  double read = g_ascii_strtod(text, &end);
  if (end == text || *end != '\0' || !(read >= 0 && read <= 1))
    return FALSE;
  *fraction = read;
  return TRUE;
}

static gboolean
read_boolean(const char *text, gboolean *truth)
{
  *truth = g_str_equal(text, "True");
  return *truth || g_str_equal(text, "False");
}

static gboolean
set_max_split_size(AllocatorConfig *config, const char *value)
{
  return read_mebibytes(value, 20, &config->max_split_size);
}

static gboolean
set_max_non_split_rounding(AllocatorConfig *config, const char *value)
{
  return read_mebibytes(value, 20, &config->max_non_split_rounding);
}

static gboolean
set_large_segment_size(AllocatorConfig *config, const char *value)
{
  return read_mebibytes(value, 10, &config->large_segment_size);
}

static gboolean
set_garbage_collection(AllocatorConfig *config, const char *value)
{
  return read_fraction(value, &config->garbage_collection_threshold) &&
         config->garbage_collection_threshold > 0 && config->garbage_collection_threshold < 1;
}

static gboolean
set_expandable_segments(AllocatorConfig *config, const char *value)
{
  return read_boolean(value, &config->expandable_segments);
}

static gboolean
set_process_fraction(AllocatorConfig *config, const char *value)
{
  double fraction;
  if (!read_fraction(value, &fraction))
    return FALSE;
  config->process_limit =
      fraction < 1 ? (gint64) (fraction * (double) config->device_total_bytes) : G_MAXINT64;
  return TRUE;
}

static gboolean
is_power_of_two(gint64 number)
{
  return number > 0 && (number & (number - 1)) == 0;
}

static gboolean
read_divisions(const char *text, int *divisions)
{
  gint64 number;
  if (!read_number(text, 0, 1 << 20, &number) || (number != 0 && !is_power_of_two(number)))
    return FALSE;
  *divisions = (int) number;
  return TRUE;
}

/* One "MIB:DIVISIONS" or ">:DIVISIONS" of the list form; *last is the size class it was for, -1
 * before the first, which also holds for everything smaller. */
static gboolean
set_divisions_of_class(AllocatorConfig *config, const char *pair, int *last)
{
  g_auto(GStrv) sides = g_strsplit(pair, ":", 2);
  int divisions;
  if (!sides[0] || !sides[1] || !read_divisions(sides[1], &divisions))
    return FALSE;
  int from = MAX(*last, 0) + 1, to = ALLOCATOR_SIZE_CLASSES - 1;
  if (!g_str_equal(sides[0], ">")) {
    gint64 mebibytes;
    if (!read_number(sides[0], 1, G_MAXINT32, &mebibytes) || !is_power_of_two(mebibytes))
      return FALSE;
    to = MIN(__builtin_ctzll((unsigned long long) mebibytes), ALLOCATOR_SIZE_CLASSES - 1);
    from = *last < 0 ? 0 : to;
    *last = to;
  }
  for (int i = from; i <= to; i++)
    config->roundup_power2_by_size[i] = divisions;
  return TRUE;
}

static gboolean
set_roundup_divisions(AllocatorConfig *config, const char *value)
{
  if (value[0] != '[')
    return read_divisions(value, &config->roundup_power2_divisions) &&
           config->roundup_power2_divisions > 0;
  config->roundup_power2_divisions = -1;
  memset(config->roundup_power2_by_size, 0, sizeof config->roundup_power2_by_size);
  g_autofree char *list = g_strndup(value + 1, strlen(value) - 2);
  g_auto(GStrv) pairs = g_strsplit(list, ",", -1);
  int last = -1;
  for (guint i = 0; pairs[i]; i++) {
    if (!set_divisions_of_class(config, pairs[i], &last))
      return FALSE;
  }
  return TRUE;
}

static gboolean
set_backend(AllocatorConfig *config, const char *value)
{
  (void) config;
  return g_str_equal(value, "native");
}

/* For options about host memory, locks and CUDA graphs. */
static gboolean
set_nothing(AllocatorConfig *config, const char *value)
{
  (void) config;
  (void) value;
  return TRUE;
}

static const struct {
  const char *name;
  OptionSetter set;
  const char *allowed;
} options[] = {
    {"backend", set_backend, "only 'native' is simulated"},
    {"expandable_segments", set_expandable_segments, "True or False"},
    {"garbage_collection_threshold", set_garbage_collection, "between 0 and 1"},
    {"graph_capture_record_stream_reuse", set_nothing, NULL},
    {"large_segment_size_mb", set_large_segment_size, "a whole number from 10"},
    {"max_non_split_rounding_mb", set_max_non_split_rounding, "a whole number from 20"},
    {"max_split_size_mb", set_max_split_size, "a whole number from 20"},
    {"per_process_memory_fraction", set_process_fraction, "from 0 to 1"},
    {"pinned_num_register_threads", set_nothing, NULL},
    {"pinned_reserve_segment_size_mb", set_nothing, NULL},
    {"pinned_use_background_threads", set_nothing, NULL},
    {"pinned_use_cuda_host_register", set_nothing, NULL},
    {"release_lock_on_cudamalloc", set_nothing, NULL},
    {"roundup_power2_divisions", set_roundup_divisions,
     "a power of two, or a list [MIB:DIVISIONS,...,>:DIVISIONS] of powers of two"},
};

static gboolean
set_option(AllocatorConfig *config, const char *name, const char *value, GError **error)
{
  const char *names[G_N_ELEMENTS(options) + 1] = {NULL};
  for (guint i = 0; i < G_N_ELEMENTS(options); i++) {
    names[i] = options[i].name;
    if (!g_str_equal(options[i].name, name))
      continue;
    if (options[i].set(config, value))
      return TRUE;
    g_set_error(error, HIGHWATER_ERROR, HIGHWATER_ERROR_INPUT,
                "allocator option '%s': '%s' is not allowed: %s", name, value, options[i].allowed);
    return FALSE;
  }
  const char *nearest = nearest_name(name, names);
  g_set_error(error, HIGHWATER_ERROR, HIGHWATER_ERROR_INPUT,
              "allocator option '%s' is unknown%s%s%s", name, nearest ? "; did you mean '" : "",
              nearest ? nearest : "", nearest ? "'?" : "");
  return FALSE;
}

gboolean
allocator_options_parse(AllocatorConfig *config, const char *text, GError **error)
{
  g_auto(GStrv) words = g_strsplit_set(text, " \t\n", -1);
  g_autofree char *dense = g_strjoinv("", words);
  const char *rest = dense;
  while (*rest) {
    const char *colon = strchr(rest, ':');
    const char *end = colon && colon[1] == '[' ? strchr(colon, ']') : NULL;
    end = end ? end + 1 : strchr(colon ? colon : rest, ',');
    if (!end)
      end = rest + strlen(rest);
    if (!colon || colon > end || (*end != '\0' && *end != ',') ||
        (colon[1] == '[' && end[-1] != ']')) {
      g_set_error(error, HIGHWATER_ERROR, HIGHWATER_ERROR_INPUT,
                  "allocator options '%s': expected KEY:VALUE,...", text);
      return FALSE;
    }
    g_autofree char *name = g_strndup(rest, (gsize) (colon - rest));
    g_autofree char *value = g_strndup(colon + 1, (gsize) (end - colon - 1));
    if (!set_option(config, name, value, error))
      return FALSE;
    rest = *end == ',' ? end + 1 : end;
  }
  return TRUE;
}
