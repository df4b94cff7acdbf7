/* device_writer.c - edits a profile's JSON: values and their sources, all else as it was. */
#include "calibrate/device_writer.h"

#include <math.h>
#include <string.h>

#include "base/json_document.h"
#include "base/json_output.h"
#include "base/units.h"
#include "spec/preset.h"

/* ---- which preset ---- */

/* The word, or two in a row: "RTX 4090" has "rtx4090". */
static gboolean
begins_a_word(const char *text, char **words)
{
  for (int i = 0; words[i] != NULL; i++) {
    g_autofree char *two = g_strconcat(words[i], words[i + 1], NULL);
    if (g_ascii_strncasecmp(two, text, strlen(text)) == 0)
      return TRUE;
  }
  return FALSE;
}

/* How many parts of "h200-sxm-141gb" begin words of the device's name; 0: not even the first.
 * "NVIDIA H100 80GB HBM3" is the SXM part: the others say "PCIe". */
static int
likeness(const char *preset, char **device_words)
{
  g_auto(GStrv) parts = g_strsplit(preset, "-", -1);
  if (!begins_a_word(parts[0], device_words))
    return 0;
  int score = 2;
  for (int i = 1; parts[i] != NULL; i++) {
    score += begins_a_word(parts[i], device_words);
    score -= g_str_equal(parts[i], "pcie") && !begins_a_word("pcie", device_words);
  }
  return score;
}

char *
device_preset_for(const ProbeFacts *facts)
{
  g_auto(GStrv) names = preset_names("device");
  g_auto(GStrv) words = g_strsplit_set(facts->device, " -_", -1);
  char *best = NULL;
  int best_score = 0;
  double nearest = INFINITY;
  for (int i = 0; names != NULL && names[i] != NULL; i++) {
    int score = likeness(names[i], words);
    g_autoptr(DeviceProfile) profile = score > 0 ? device_profile_load(names[i], NULL) : NULL;
    if (profile == NULL || score < best_score)
      continue;
    double distance = fabs((double) (profile->memory_bytes - facts->memory_bytes));
    if (score == best_score && distance >= nearest)
      continue;
    best_score = score;
    nearest = distance;
    g_free(best);
    best = g_strdup(names[i]);
  }
  return best;
}

/* ---- editing ---- */

typedef struct {
  cJSON *root, *sources, *measured;
  const char *when;
  const char *device;
} Editor;

static void
put_constant(const Editor *editor, const FittedConstant *constant)
{
  if (constant->experiments == 0)
    return;
  g_autofree char *source = g_strdup_printf(
      "measured on %s, %s: %d experiments, median error %.1f %%, p90 %.1f %%", editor->device,
      editor->when, constant->experiments, 100 * constant->median_error, 100 * constant->p90_error);
  json_replace(editor->root, constant->key, cJSON_CreateNumber(constant->value));
  json_replace_text(editor->sources, constant->key, source);
  cJSON_AddItemToArray(editor->measured, cJSON_CreateString(constant->key));
}

static void
put_fact(const Editor *editor, const char *key, gint64 value)
{
  if (value <= 0)
    return;
  char digits[24];
  g_snprintf(digits, sizeof(digits), "%" G_GINT64_FORMAT, value);
  g_autofree char *source = g_strdup_printf("as %s says, %s", editor->device, editor->when);
  json_replace(editor->root, key, cJSON_CreateRaw(digits));
  json_replace_text(editor->sources, key, source);
}

static void
put_summary(const Editor *editor, const char *base)
{
  g_autofree char *summary = g_strdup_printf("%s, measured", editor->device);
  g_autofree char *source =
      g_strdup_printf("measured with highwater calibrate on %s; what was not measured is of %s",
                      editor->when, base);
  json_replace_text(editor->root, "_summary", summary);
  json_replace_text(editor->root, "source", source);
}

cJSON *
device_profile_rewritten(const char *base, const GArray *constants, const ProbeFacts *facts,
                         const char *when, GError **error)
{
  g_autofree char *path = preset_find("device", base, error);
  if (path == NULL)
    return NULL;
  g_autoptr(JsonDocument) document = json_document_load(path, error);
  if (document == NULL)
    return NULL;
  cJSON *root = cJSON_Duplicate(json_document_root(document), TRUE);
  cJSON *sources = json_section(root, "_sources");
  cJSON *measured = cJSON_CreateArray();
  json_replace(root, "measured", measured);
  Editor editor = {root, sources, measured, when,
                   facts->device[0] != '\0' ? facts->device : "a device"};
  for (guint i = 0; i < constants->len; i++)
    put_constant(&editor, &g_array_index(constants, FittedConstant, i));
  put_fact(&editor, "memory_bytes", facts->memory_bytes);
  put_fact(&editor, "context_bytes", facts->context_bytes);
  put_fact(&editor, "sms", facts->sms);
  put_fact(&editor, "max_threads_per_sm", facts->max_threads_per_sm);
  put_fact(&editor, "compute_capability", facts->compute_capability);
  put_summary(&editor, base);
  return root;
}
