/* calibration_report.c - calibration for people and for programs. */
#include "calibrate/calibration_report.h"

#include "base/json_output.h"
#include "base/text_table.h"
#include "spec/profile_fields.h"
#include <math.h>

/* ---- text */

static void
append_lines(const CalibratedCollective *collective, GString *out)
{
  g_autoptr(TextTable) table = text_table_new("rr");
  for (int i = 0; i < collective->fit.n_lines; i++) {
    const FitLine *line = &collective->fit.lines[i];
    g_autofree char *alpha = g_strdup_printf("alpha %.4g us", line->alpha_us);
    g_autofree char *busbw =
        g_strdup_printf("bus bandwidth %.4g GB/s", calibrated_line_busbw(collective, i) / GIGA);
    text_table_row(table, alpha, busbw, NULL);
  }
  text_table_print(table, 4, out);
}

static void
append_collective(const CalibratedCollective *collective, GString *out)
{
  const MeasuredCollective *about = &collective->about;
  g_string_append(out, about->source);
  if (about->line > 0)
    g_string_append_printf(out, ":%u", about->line);
  g_string_append_printf(out, "  %s, %d ranks on %d node%s\n", about->collective, about->ranks,
                         about->nodes, about->nodes == 1 ? "" : "s");
  if (about->remark)
    g_string_append_printf(out, "  %s\n", about->remark);
  g_autofree char *median = format_percent(collective->errors.median);
  g_autofree char *p90 = format_percent(collective->errors.p90);
  g_autofree char *worst = format_percent(collective->errors.worst);
  g_autofree char *at = format_bytes(collective->errors.worst_bytes);
  g_autofree char *holdout = format_percent(collective->holdout_median);
  g_string_append_printf(out, "  %u rows used, %u rejected; bus bandwidth up to %.4g GB/s\n",
                         collective->samples->len, about->rejected_rows,
                         calibrated_largest_busbw(collective) / GIGA);
  g_string_append_printf(out,
                         "  model %s: error median %s, 90th percentile %s, worst %s at %s; of rows "
                         "left out %s\n",
                         fit_model_names[collective->fit.model], median, p90, worst, at, holdout);
  append_lines(collective, out);
  if (!collective->default_errors.cluster)
    return;
  g_autofree char *all = format_percent(collective->default_errors.median);
  g_autofree char *large = format_percent(collective->default_errors.large_median);
  g_string_append_printf(out, "  defaults of %s: error median %s, from 16 MiB up %s\n",
                         collective->default_errors.cluster, all, large);
}

char *
calibration_report_text(const GPtrArray *collectives)
{
  GString *out = g_string_new(NULL);
  for (guint i = 0; i < collectives->len; i++) {
    if (i > 0)
      g_string_append_c(out, '\n');
    append_collective(g_ptr_array_index(collectives, i), out);
  }
  return g_string_free(out, FALSE);
}

/* ---- JSON */

/* NAN is null. */
static void
add_number(cJSON *object, const char *key, double value)
{
  json_add_known_number(object, key, !isnan(value), value);
}

cJSON *
calibration_lines_json(const CalibratedCollective *collective)
{
  cJSON *array = cJSON_CreateArray();
  for (int i = 0; i < collective->fit.n_lines; i++) {
    const FitLine *line = &collective->fit.lines[i];
    cJSON *object = cJSON_CreateObject();
    add_number(object, "alpha_us", line->alpha_us);
    add_number(object, "bus_bandwidth_GBps", calibrated_line_busbw(collective, i) / GIGA);
    cJSON_AddItemToArray(array, object);
  }
  return array;
}

static cJSON *
collective_json(const CalibratedCollective *collective)
{
  const MeasuredCollective *about = &collective->about;
  cJSON *object = cJSON_CreateObject();
  json_add_text(object, "file", about->source);
  json_add_int(object, "line", about->line);
  json_add_text(object, "collective", about->collective);
  json_add_int(object, "ranks", about->ranks);
  json_add_int(object, "nodes", about->nodes);
  json_add_text(object, "remark", about->remark);
  json_add_int(object, "rows", collective->samples->len);
  json_add_int(object, "rejected_rows", about->rejected_rows);
  add_number(object, "largest_bus_bandwidth_GBps", calibrated_largest_busbw(collective) / GIGA);
  json_add_text(object, "model", fit_model_names[collective->fit.model]);
  add_number(object, "median_error", collective->errors.median);
  add_number(object, "p90_error", collective->errors.p90);
  add_number(object, "worst_error", collective->errors.worst);
  json_add_int(object, "worst_bytes", collective->errors.worst_bytes);
  add_number(object, "holdout_median_error", collective->holdout_median);
  cJSON_AddItemToObject(object, "lines", calibration_lines_json(collective));
  if (collective->default_errors.cluster) {
    json_add_text(object, "default_cluster", collective->default_errors.cluster);
    add_number(object, "default_median_error", collective->default_errors.median);
    add_number(object, "default_large_median_error", collective->default_errors.large_median);
  }
  return object;
}

void
calibration_report_json(const GPtrArray *collectives, const GPtrArray *refused, cJSON *object)
{
  json_add_text(object, "format", "highwater-calibration-1");
  cJSON *tables = cJSON_AddArrayToObject(object, "tables");
  for (guint i = 0; i < collectives->len; i++)
    cJSON_AddItemToArray(tables, collective_json(g_ptr_array_index(collectives, i)));
  cJSON *messages = cJSON_AddArrayToObject(object, "refused");
  for (guint i = 0; refused != NULL && i < refused->len; i++)
    cJSON_AddItemToArray(messages, cJSON_CreateString(g_ptr_array_index(refused, i)));
}
