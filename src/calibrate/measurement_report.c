/* measurement_report.c - tables of constants, of what slows what down, and of what went wrong. */
#include "calibrate/measurement_report.h"

#include <string.h>

#include "base/json_output.h"
#include "base/text_table.h"
#include "base/units.h"

/* ---- beside ---- */

static gboolean
same_work(const Experiment *a, const Experiment *b)
{
  return a->kind == b->kind && a->dtype == b->dtype && a->m == b->m && a->n == b->n &&
         a->k == b->k && a->bytes == b->bytes &&
         memcmp(&a->call.group, &b->call.group, sizeof(a->call.group)) == 0 &&
         a->call.collective == b->call.collective && a->call.in_place == b->call.in_place &&
         a->call.bytes == b->call.bytes;
}

/* The same with nothing beside it, or NULL. */
static const Measurement *
find_alone(const Measurements *measured, const Measurement *beside)
{
  for (guint i = 0; i < measured->measurements->len; i++) {
    const Measurement *m = g_ptr_array_index(measured->measurements, i);
    if (m->experiment.beside == BESIDE_NOTHING && m->median_ns > 0 &&
        same_work(&m->experiment, &beside->experiment))
      return m;
  }
  return NULL;
}

/* How much longer it takes beside the other; 0: not known. */
static double
slowdown(const Measurements *measured, const Measurement *m)
{
  if (m->experiment.beside == BESIDE_NOTHING || m->median_ns <= 0)
    return 0;
  const Measurement *alone = find_alone(measured, m);
  return alone != NULL ? m->median_ns / alone->median_ns : 0;
}

double
measured_memory_share(const Measurements *measured)
{
  double most = 0;
  for (guint i = 0; i < measured->measurements->len; i++) {
    const Measurement *m = g_ptr_array_index(measured->measurements, i);
    double slower = slowdown(measured, m);
    if (m->experiment.kind == EXPERIMENT_MEMORY && slower > 1)
      most = MAX(most, 1 - 1 / slower);
  }
  return most;
}

/* ---- text ---- */

static void
print_facts(const Measurements *measured, GString *out)
{
  const ProbeFacts *f = &measured->facts;
  g_autofree char *memory = format_bytes(f->memory_bytes);
  if (measured->in_step) {
    g_autofree char *of = f->ranks > 1 ? g_strdup_printf(", one of %d", f->ranks) : g_strdup("");
    g_string_append_printf(out, "%s%s: %s\n", f->device, of, measured->origin);
    return;
  }
  g_string_append_printf(out, "%s, %d of them, %d on this node: %d SMs, %s; CUDA %s", f->device,
                         f->ranks, f->ranks_of_node, f->sms, memory, f->runtime);
  if (f->nccl[0] != '\0')
    g_string_append_printf(out, ", NCCL %s", f->nccl);
  g_string_append_printf(out, "\n%.0f s, %s\n", measured->elapsed_s,
                         measured->interrupted ? "interrupted: what there was is used"
                         : measured->complete  ? "complete"
                                               : "the budget ended before the last round");
}

static void
print_constants(const MeasurementReport *r, GString *out)
{
  g_autoptr(TextTable) table = text_table_new("lrrrrrrl");
  text_table_row(table, "constant", r->base, "measured", "experiments", "median error", "p90",
                 "worst", "where", NULL);
  for (guint i = 0; i < r->constants->len; i++) {
    const FittedConstant *c = &g_array_index(r->constants, FittedConstant, i);
    g_autofree char *base = g_strdup_printf("%.4g", c->base);
    if (c->experiments == 0) {
      text_table_row(table, c->key, base, "not measured", NULL, NULL, NULL, NULL, NULL, NULL);
      continue;
    }
    g_autofree char *value = g_strdup_printf("%.4g", c->value);
    g_autofree char *count = g_strdup_printf("%d", c->experiments);
    g_autofree char *median = format_percent(c->median_error), *p90 = format_percent(c->p90_error),
                    *worst = format_percent(c->worst_error);
    text_table_row(table, c->key, base, value, count, median, p90, worst, c->worst, NULL);
  }
  g_string_append_c(out, '\n');
  text_table_print(table, 0, out);
}

static void
print_slowdowns(const Measurements *measured, GString *out)
{
  g_autoptr(TextTable) table = text_table_new("lr");
  text_table_row(table, "beside each other", "slower", NULL);
  guint rows = 0;
  for (guint i = 0; i < measured->measurements->len; i++) {
    const Measurement *m = g_ptr_array_index(measured->measurements, i);
    double slower = slowdown(measured, m);
    if (slower <= 0)
      continue;
    g_autofree char *text = experiment_text(&m->experiment);
    g_autofree char *factor = g_strdup_printf("%.2f x", slower);
    text_table_row(table, text, factor, NULL);
    rows++;
  }
  if (rows == 0)
    return;
  g_string_append_c(out, '\n');
  text_table_print(table, 0, out);
}

static void
print_launches(const Measurements *measured, GString *out)
{
  for (guint i = 0; i < measured->measurements->len; i++) {
    const Measurement *m = g_ptr_array_index(measured->measurements, i);
    if (m->experiment.kind == EXPERIMENT_LAUNCH && m->median_ns > 0)
      g_string_append_printf(out,
                             "\nA bare launch takes the host %.1f us; what Python adds to it in a "
                             "framework is not measured here.\n",
                             m->median_ns / 1e3);
  }
}

static void
print_failures(const Measurements *measured, GString *out)
{
  guint samples = 0, outliers = 0, shown = 0, failed = 0;
  for (guint i = 0; i < measured->measurements->len; i++) {
    const Measurement *m = g_ptr_array_index(measured->measurements, i);
    samples += m->samples->len;
    outliers += m->samples->len > 0 ? (guint) m->stats.outliers : 0;
    if (m->failure == NULL)
      continue;
    failed++;
    if (shown++ < 5) {
      g_autofree char *text = experiment_text(&m->experiment);
      g_string_append_printf(out, "failed: %s: %s\n", text, m->failure);
    }
  }
  if (failed > 5)
    g_string_append_printf(out, "failed: %u more\n", failed - 5);
  g_string_append_printf(out, "%u samples, %u of them outliers (kept: medians are used)\n", samples,
                         outliers);
}

static void
print_groups(const MeasurementReport *r, GString *out)
{
  for (guint i = 0; r->groups_left_out != NULL && i < r->groups_left_out->len; i++) {
    RankGroup group = g_array_index(r->groups_left_out, RankGroup, i);
    g_string_append_printf(out,
                           "Groups of %d ranks %d apart need more GPUs than these: their "
                           "collectives stay as the cluster has them.\n",
                           group.ranks, group.stride);
  }
  if (r->measured->facts.ranks == 1)
    g_string_append(out, "One GPU: collectives, and what links carry, stay as the cluster has "
                         "them.\n");
}

void
measurement_report_text(const MeasurementReport *r, GString *out)
{
  print_facts(r->measured, out);
  print_constants(r, out);
  print_slowdowns(r->measured, out);
  print_launches(r->measured, out);
  print_groups(r, out);
  print_failures(r->measured, out);
}

/* ---- JSON ---- */

static void
add_constant(cJSON *list, const FittedConstant *c)
{
  cJSON *object = cJSON_CreateObject();
  json_add_text(object, "key", c->key);
  cJSON_AddNumberToObject(object, "value", c->value);
  cJSON_AddNumberToObject(object, "base", c->base);
  json_add_int(object, "experiments", c->experiments);
  if (c->experiments > 0) {
    cJSON_AddNumberToObject(object, "median_error", c->median_error);
    cJSON_AddNumberToObject(object, "p90_error", c->p90_error);
    cJSON_AddNumberToObject(object, "worst_error", c->worst_error);
    json_add_text(object, "worst", c->worst);
  }
  cJSON_AddItemToArray(list, object);
}

void
measurement_report_json(const MeasurementReport *r, cJSON *object)
{
  const Measurements *measured = r->measured;
  json_add_text(object, "device", measured->facts.device);
  json_add_text(object, "base_device", r->base);
  json_add_int(object, "ranks", measured->facts.ranks);
  cJSON_AddBoolToObject(object, "complete", measured->complete);
  cJSON_AddBoolToObject(object, "interrupted", measured->interrupted);
  cJSON *constants = cJSON_AddArrayToObject(object, "constants");
  for (guint i = 0; i < r->constants->len; i++)
    add_constant(constants, &g_array_index(r->constants, FittedConstant, i));
  cJSON *slowdowns = cJSON_AddArrayToObject(object, "slowdowns");
  for (guint i = 0; i < measured->measurements->len; i++) {
    const Measurement *m = g_ptr_array_index(measured->measurements, i);
    double slower = slowdown(measured, m);
    if (slower <= 0)
      continue;
    g_autofree char *text = experiment_text(&m->experiment);
    cJSON *row = cJSON_CreateObject();
    json_add_text(row, "experiment", text);
    cJSON_AddNumberToObject(row, "factor", slower);
    cJSON_AddItemToArray(slowdowns, row);
  }
}
