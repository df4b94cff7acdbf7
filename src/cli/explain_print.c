/* explain_print.c - why a run's peak is where it is, why it does not fit, and what would help. */
#include "cli/explain_print.h"

#include <string.h>

#include "base/json_output.h"
#include "report/peak_story_print.h"
#include "report/summary_text_parts.h"

/* So many changes are named unless all are asked for. */
enum { REMEDIES_MAX = 16 };

/* ---- text ---- */

/* " --set KEY=VALUE" for each, as a shell takes it. */
static char *
set_options(char *const *assignments)
{
  static const char *const plain = "=.,_-+/:";
  GString *text = g_string_new(NULL);
  for (; *assignments != NULL; assignments++) {
    gboolean is_plain = TRUE;
    for (const char *c = *assignments; *c != '\0'; c++)
      is_plain &= g_ascii_isalnum(*c) || strchr(plain, *c) != NULL;
    g_autofree char *quoted = is_plain ? g_strdup(*assignments) : g_shell_quote(*assignments);
    g_string_append_printf(text, "%s--set %s", text->len > 0 ? " " : "", quoted);
  }
  return g_string_free(text, FALSE);
}

/* "+1.20", "-0.35"; nothing when it would be 0.00. */
static char *
signed_size(const TextUnit *unit, gint64 change)
{
  double units = (double) change / (double) unit->bytes;
  return ABS(units) < 0.005 ? NULL : g_strdup_printf("%+.2f", units);
}

static char *
signed_duration(SimTime change)
{
  g_autofree char *size = format_duration(ABS(change));
  return change == 0 ? NULL : g_strdup_printf("%s%s", change > 0 ? "+" : "-", size);
}

static const char *
verdict_word(Verdict verdict)
{
  static const char *const words[] = {[VERDICT_FITS] = "fits",
                                      [VERDICT_FITS_WITH_RETRIES] = "slowly",
                                      [VERDICT_DOES_NOT_FIT] = "no"};
  return words[verdict];
}

static void
add_remedy(const Explanation *e, const TextUnit *unit, const Remedy *remedy, TextTable *table)
{
  const Outcome *outcome = &remedy->outcome;
  gboolean timed = outcome->time.known && e->time.known;
  gboolean fits = outcome->verdict != VERDICT_DOES_NOT_FIT;
  TEXT_ROW(table, g_strdup_printf("  %s", verdict_word(outcome->verdict)),
           text_unit_format(unit, remedy->needs_allocated),
           signed_size(unit, remedy->needs_allocated - e->needs_allocated),
           text_unit_format(unit, remedy->needs_reserved),
           signed_size(unit, remedy->needs_reserved - e->needs_reserved),
           fits && e->recording->capacity_bytes < G_MAXINT64
               ? text_unit_format(unit, outcome->headroom)
               : NULL,
           fits && outcome->time.known ? format_duration(outcome->time.step) : NULL,
           fits && timed ? signed_duration(outcome->time.step - e->time.step) : NULL,
           set_options(remedy->assignments));
}

/* Those that do not help. */
static void
print_others(const GPtrArray *remedies, GString *out)
{
  const char *before = "Tried, and needs no less: ";
  gsize length = out->len;
  for (guint i = 0; i < remedies->len; i++) {
    const Remedy *remedy = g_ptr_array_index(remedies, i);
    if (remedy->helps || remedy->name == NULL)
      continue;
    g_autofree char *set = set_options(remedy->assignments);
    g_string_append_printf(out, "%s%s", before, set);
    before = "; ";
  }
  if (out->len > length)
    g_string_append(out, ".\n");
}

static void
print_remedies(const Explanation *e, const TextStyle *style, GString *out)
{
  gboolean fits = e->verdict != VERDICT_DOES_NOT_FIT;
  const TextUnit *unit = text_unit_for(e->needs_allocated);
  g_autoptr(TextTable) table = text_table_new("lrrrrrrrl");
  TEXT_ROW(table, g_strdup(fits ? "Lower peaks" : "To make it fit"),
           g_strdup_printf("peak %s", unit->name), NULL, g_strdup("reserved"), NULL,
           g_strdup("to spare"), g_strdup("step"), NULL, g_strdup("change"));
  guint helping = 0, most = style->verbose ? G_MAXUINT : REMEDIES_MAX;
  for (guint i = 0; i < e->remedies->len; i++) {
    const Remedy *remedy = g_ptr_array_index(e->remedies, i);
    if (remedy->helps && helping++ < most)
      add_remedy(e, unit, remedy, table);
  }
  g_string_append_c(out, '\n');
  if (helping > 0)
    text_table_print(table, 0, out);
  else
    g_string_append(out, "No change that was tried needs less.\n");
  if (helping > most)
    g_string_append_printf(out, "and %u more that help less; --verbose lists them all\n",
                           helping - most);
  print_others(e->remedies, out);
}

static void
print_failure(const Explanation *e, GString *out)
{
  if (e->recording->out_of_memory.happened)
    failure_story_text(e->recording, out);
  if (e->endless.recording == NULL)
    return;
  const PeakRecord *peak = &e->endless.recording->peak;
  g_autofree char *allocated = format_bytes(e->needs_allocated);
  g_autofree char *reserved = format_bytes(e->needs_reserved);
  g_string_append_printf(out, "With enough memory the peak would be %s allocated, in ", allocated);
  report_append_place(e->endless.recording, peak->step, peak->phase, peak->module, out);
  g_string_append_printf(out, ", and %s reserved.\n", reserved);
}

char *
explain_run_text(const Explanation *e, const TextStyle *style)
{
  GString *out = g_string_new(NULL);
  g_autoptr(ReportModel) model = report_model_new(e->recording, e->info);
  summary_text_answer(model, style, out);
  g_string_append_c(out, '\n');
  gsize before = out->len;
  print_failure(e, out);
  if (out->len > before)
    g_string_append_c(out, '\n');
  if (e->story != NULL)
    peak_story_text(e->story, e->at_failure ? "when memory runs out" : "at the peak", style, out);
  else
    g_string_append(out, "The recording has no allocations: there is nothing to explain.\n");
  if (e->remedies != NULL)
    print_remedies(e, style, out);
  return g_string_free(out, FALSE);
}

/* ---- JSON ---- */

static void
add_seconds(cJSON *object, const char *key, gboolean known, SimTime time)
{
  if (known)
    cJSON_AddNumberToObject(object, key, (double) time / 1e9);
  else
    cJSON_AddNullToObject(object, key);
}

static void
add_limited(cJSON *object, const char *key, gboolean known, gint64 bytes)
{
  if (known)
    json_add_int(object, key, bytes);
  else
    cJSON_AddNullToObject(object, key);
}

static cJSON *
remedy_json(const Explanation *e, const Remedy *remedy)
{
  const Outcome *outcome = &remedy->outcome;
  cJSON *object = cJSON_CreateObject();
  json_add_text(object, "kind", remedy->name);
  json_add_text(object, "summary", remedy->summary);
  cJSON *set = cJSON_AddArrayToObject(object, "set");
  for (char **assignment = remedy->assignments; *assignment != NULL; assignment++)
    cJSON_AddItemToArray(set, cJSON_CreateString(*assignment));
  cJSON_AddBoolToObject(object, "helps", remedy->helps);
  json_add_text(object, "verdict", report_verdict_name(outcome->verdict));
  json_add_int(object, "peak_allocated_bytes", outcome->peak_allocated);
  json_add_int(object, "peak_reserved_bytes", outcome->peak_reserved);
  add_limited(object, "headroom_bytes", e->recording->capacity_bytes < G_MAXINT64,
              outcome->headroom);
  json_add_text(object, "peak_place", outcome->peak_place);
  json_add_text(object, "out_of_memory", outcome->out_of_memory);
  json_add_int(object, "needs_allocated_bytes", remedy->needs_allocated);
  json_add_int(object, "needs_reserved_bytes", remedy->needs_reserved);
  json_add_int(object, "change_allocated_bytes", remedy->needs_allocated - e->needs_allocated);
  json_add_int(object, "change_reserved_bytes", remedy->needs_reserved - e->needs_reserved);
  add_seconds(object, "step_s", outcome->time.known, outcome->time.step);
  add_seconds(object, "change_step_s", outcome->time.known && e->time.known,
              outcome->time.step - e->time.step);
  return object;
}

static void
add_remedies(cJSON *root, const Explanation *e)
{
  if (e->remedies == NULL) {
    cJSON_AddNullToObject(root, "remedies");
    return;
  }
  cJSON *remedies = cJSON_AddArrayToObject(root, "remedies");
  for (guint i = 0; i < e->remedies->len; i++)
    cJSON_AddItemToArray(remedies, remedy_json(e, g_ptr_array_index(e->remedies, i)));
}

char *
explain_run_json(const Explanation *e)
{
  cJSON *root = cJSON_CreateObject();
  json_add_text(root, "format", "highwater-explanation-1");
  json_add_text(root, "title", e->recording->title);
  json_add_text(root, "verdict", e->has_memory ? report_verdict_name(e->verdict) : NULL);
  json_add_int(root, "needs_allocated_bytes", e->needs_allocated);
  json_add_int(root, "needs_reserved_bytes", e->needs_reserved);
  add_seconds(root, "step_s", e->time.known, e->time.step);
  if (e->recording->out_of_memory.happened)
    cJSON_AddItemToObject(root, "failure", failure_story_json(e->recording));
  else
    cJSON_AddNullToObject(root, "failure");
  json_add_text(root, "moment", e->at_failure ? "failure" : "peak");
  cJSON_AddItemToObject(root, "story",
                        e->story != NULL ? peak_story_json(e->story) : cJSON_CreateNull());
  add_remedies(root, e);
  return json_finish(root);
}
