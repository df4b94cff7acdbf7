/* sweep_results.c - the results of a sweep as tables: JSON lines, CSV, and columns for figures. */
#include "search/sweep_results.h"

#include <string.h>

#include "base/json_output.h"
#include "report/table_text.h"
#include "search/sweep_row.h"
#include "search/sweep_verification.h"

/* What numbers say of a variant. */
static void
add_verification(cJSON *row, const SweepVerification *v)
{
  json_add_text(row, "verified", sweep_verification_word(v));
  json_add_text(row, "verified_reason", v->reason);
  cJSON *losses = cJSON_AddArrayToObject(row, "verified_losses");
  for (guint i = 0; v->losses != NULL && i < v->losses->len; i++)
    cJSON_AddItemToArray(losses, cJSON_CreateNumber(g_array_index(v->losses, double, i)));
}

/* A row with what the others make of it. */
static cJSON *
judged_row(const Sweep *sweep, guint i)
{
  cJSON *row = sweep_row(sweep, i);
  json_add_int(row, "pareto", sweep_variant(sweep, i)->is_pareto);
  json_add_int(row, "fastest", (int) i == sweep->fastest);
  if (sweep->is_verified)
    add_verification(row, &sweep_variant(sweep, i)->verification);
  return row;
}

void
sweep_results_line(const Sweep *sweep, guint i, gboolean is_judged, GString *out)
{
  cJSON *row = is_judged ? judged_row(sweep, i) : sweep_row(sweep, i);
  g_autofree char *text = json_line(row);
  g_string_append_printf(out, "%s\n", text);
  cJSON_Delete(row);
}

void
sweep_results_json(const Sweep *sweep, GString *out)
{
  for (guint i = 0; i < sweep->variants->len; i++)
    if (sweep_variant(sweep, i)->is_done)
      sweep_results_line(sweep, i, TRUE, out);
}

/* ---- cells ---- */

/* A figure as JSON has it, a text as it is; NULL: not known.  Caller frees. */
static char *
cell_text(const cJSON *row, const char *key)
{
  const cJSON *item = cJSON_GetObjectItemCaseSensitive(row, key);
  if (item == NULL || cJSON_IsNull(item))
    return NULL;
  if (cJSON_IsString(item))
    return g_strdup(item->valuestring);
  return json_line(item);
}

static void
append_csv(GString *out, const char *text)
{
  if (text == NULL)
    return;
  if (text[strcspn(text, ",\"\r\n")] == '\0') {
    g_string_append(out, text);
    return;
  }
  g_string_append_c(out, '"');
  for (; *text != '\0'; text++) {
    if (*text == '"')
      g_string_append_c(out, '"');
    g_string_append_c(out, *text);
  }
  g_string_append_c(out, '"');
}

/* ---- tables ---- */

static void
append_csv_row(const Sweep *sweep, guint i, GString *out)
{
  cJSON *row = judged_row(sweep, i);
  for (const SweepColumn *column = sweep_columns; column->key != NULL; column++) {
    g_autofree char *text = cell_text(row, column->key);
    append_csv(out, text);
    g_string_append_c(out, ',');
  }
  if (sweep->is_verified) {
    g_autofree char *word = cell_text(row, "verified");
    append_csv(out, word);
    g_string_append_c(out, ',');
  }
  for (guint k = 0; k < sweep->vary->axes->len; k++) {
    append_csv(out, vary_value(sweep->vary, i, k));
    g_string_append_c(out, k + 1 < sweep->vary->axes->len ? ',' : '\n');
  }
  if (sweep->vary->axes->len == 0)
    out->str[out->len - 1] = '\n';
  cJSON_Delete(row);
}

static void
append_keys(const Sweep *sweep, const char *separator, GString *out)
{
  for (guint k = 0; k < sweep->vary->axes->len; k++)
    g_string_append_printf(out, "%s%s", separator,
                           ((VaryAxis *) g_ptr_array_index(sweep->vary->axes, k))->key);
}

void
sweep_results_csv(const Sweep *sweep, GString *out)
{
  for (const SweepColumn *column = sweep_columns; column->key != NULL; column++)
    g_string_append_printf(out, "%s%s", column == sweep_columns ? "" : ",", column->key);
  if (sweep->is_verified)
    g_string_append(out, ",verified");
  append_keys(sweep, ",", out);
  g_string_append_c(out, '\n');
  for (guint i = 0; i < sweep->variants->len; i++)
    if (sweep_variant(sweep, i)->is_done)
      append_csv_row(sweep, i, out);
}

static void
append_table_row(const Sweep *sweep, guint i, GString *out)
{
  cJSON *row = judged_row(sweep, i);
  for (const SweepColumn *column = sweep_columns; column->in_table; column++) {
    g_autofree char *text = cell_text(row, column->key);
    g_string_append_printf(out, "%s%s", column == sweep_columns ? "" : " ",
                           text != NULL ? text : "NaN");
  }
  for (guint k = 0; k < sweep->vary->axes->len; k++)
    g_string_append_printf(out, " %s", vary_word(sweep->vary, i, k));
  g_string_append_c(out, '\n');
  cJSON_Delete(row);
}

void
sweep_results_table(const Sweep *sweep, GString *out)
{
  table_begin(out, "highwater-sweep-1", sweep->title);
  g_string_append_c(out, '#');
  for (const SweepColumn *column = sweep_columns; column->in_table; column++)
    g_string_append_printf(out, " %s", column->key);
  append_keys(sweep, " ", out);
  g_string_append_c(out, '\n');
  for (guint i = 0; i < sweep->variants->len; i++)
    if (sweep_variant(sweep, i)->is_done)
      append_table_row(sweep, i, out);
}

/* ---- reading ---- */

static gboolean
read_row(Sweep *sweep, JsonReader *reader)
{
  gint64 number = json_reader_required_int(reader, "variant", 1, sweep->variants->len);
  const char *label = json_reader_required_string(reader, "label");
  SweepVariant *variant = sweep_variant(sweep, (guint) number - 1);
  Outcome outcome;
  if (!g_str_equal(label, variant->label))
    json_reader_fail(reader, "label", "variant %" G_GINT64_FORMAT " is '%s', not '%.60s'", number,
                     variant->label, label);
  if (!sweep_row_read(reader, &outcome))
    return FALSE;
  outcome_clear(&variant->outcome);
  variant->outcome = outcome;
  variant->is_done = variant->is_kept = TRUE;
  return TRUE;
}

static gboolean
read_line(Sweep *sweep, const char *name, const char *line, gsize length, GError **error)
{
  g_autoptr(JsonDocument) document = json_document_parse(name, line, length, error);
  if (document == NULL)
    return FALSE;
  g_autoptr(JsonReader) reader = json_reader_new(document);
  if (read_row(sweep, reader))
    return TRUE;
  g_propagate_error(error, g_error_copy(json_document_error(document)));
  return FALSE;
}

gboolean
sweep_results_read(Sweep *sweep, const char *name, const char *text, gsize length, gsize *whole,
                   GError **error)
{
  *whole = 0;
  for (guint number = 1;; number++) {
    const char *line = text + *whole;
    const char *end = memchr(line, '\n', length - *whole);
    g_autofree char *row = g_strdup_printf("%s: row %u", name, number);
    if (end == NULL)
      return TRUE;
    if (!read_line(sweep, row, line, (gsize) (end - line), error))
      return FALSE;
    *whole = (gsize) (end - text) + 1;
  }
}
