/* comparison_json.c - two runs side by side for programs. */
#include "base/json_output.h"
#include "report/comparison_report.h"
#include "report/comparison_words.h"
#include <math.h>

static const char *const side_keys[SIDES] = {"a", "b"};

/* Whole numbers under "a" and "b"; times in seconds. */
static void
add_values(cJSON *object, FigureUnit unit, const gint64 values[SIDES], const gboolean *known)
{
  for (int side = 0; side < SIDES; side++) {
    if (known && !known[side])
      cJSON_AddNullToObject(object, side_keys[side]);
    else if (unit == FIGURE_TIME)
      cJSON_AddNumberToObject(object, side_keys[side], (double) values[side] / 1e9);
    else
      json_add_int(object, side_keys[side], values[side]);
  }
}

static void
add_pair_of(cJSON *parent, const char *key, FigureUnit unit, const gint64 values[SIDES])
{
  add_values(cJSON_AddObjectToObject(parent, key), unit, values, NULL);
}

/* Relative to A; null when A is 0 and B is not, or one is not known. */
static void
add_error(cJSON *object, const FigureComparison *figure)
{
  if (figure_is_known(figure) && !isinf(figure_error(figure)))
    cJSON_AddNumberToObject(object, "error", figure_error(figure));
  else
    cJSON_AddNullToObject(object, "error");
}

static const char *
unit_suffix(FigureUnit unit, const char *key)
{
  return unit == FIGURE_TIME                                       ? "_s"
         : unit == FIGURE_BYTES && !g_str_has_suffix(key, "bytes") ? "_bytes"
                                                                   : "";
}

static void
add_figures(cJSON *root, const Comparison *c)
{
  cJSON *figures = cJSON_AddObjectToObject(root, "figures");
  for (int i = 0; i < COMPARISON_FIGURES; i++) {
    const FigureComparison *figure = &c->figures[i];
    g_autofree char *key = g_strconcat(figure->key, unit_suffix(figure->unit, figure->key), NULL);
    cJSON *object = cJSON_AddObjectToObject(figures, key);
    add_values(object, figure->unit, figure->value, figure->known);
    add_error(object, figure);
  }
}

static void
add_limits(cJSON *root, const ComparisonReport *report)
{
  cJSON *limits = cJSON_AddArrayToObject(root, "limits");
  for (guint i = 0; report->limits && i < report->limits->len; i++) {
    const ComparisonLimit *limit = &g_array_index(report->limits, ComparisonLimit, i);
    cJSON *object = cJSON_CreateObject();
    json_add_text(object, "figure", limit->key);
    json_add_text(object, "limit", limit->text);
    cJSON_AddBoolToObject(object, "holds", comparison_limit_holds(limit, report->comparison));
    cJSON_AddItemToArray(limits, object);
  }
  cJSON_AddBoolToObject(root, "within", comparison_is_within(report));
}

static void
add_peak(cJSON *root, const Comparison *c)
{
  cJSON *peak = cJSON_AddObjectToObject(root, "peak");
  for (int side = 0; side < SIDES; side++) {
    const Recording *recording = c->models[side]->recording;
    const PeakRecord *record = &recording->peak;
    cJSON *object = cJSON_AddObjectToObject(peak, side_keys[side]);
    json_add_int(object, "step", record->step);
    json_add_text(object, "phase", report_text(recording, record->phase, NULL));
    json_add_text(object, "module", report_text(recording, record->module, NULL));
    json_add_int(object, "allocated_bytes", record->allocated);
  }
  if (!c->has_categories) {
    cJSON_AddNullToObject(peak, "categories");
    return;
  }
  cJSON *categories = cJSON_AddObjectToObject(peak, "categories");
  for (int i = 0; i < CATEGORY_COUNT; i++) {
    const gint64 bytes[SIDES] = {c->categories[SIDE_A][i], c->categories[SIDE_B][i]};
    add_pair_of(categories, category_name((Category) i), FIGURE_BYTES, bytes);
  }
}

/* ---- allocations ---- */

static void
add_event(cJSON *parent, const Comparison *c, int side)
{
  gint64 i = c->memory.event[side];
  if (i < 0) {
    cJSON_AddNullToObject(parent, side_keys[side]);
    return;
  }
  const Recording *recording = c->models[side]->recording;
  const MemoryEvent *event = &g_array_index(recording->memory, MemoryEvent, (guint) i);
  g_autofree char *words = comparison_memory_event(c, side);
  g_autofree char *place = comparison_memory_place(c, side);
  cJSON *object = cJSON_AddObjectToObject(parent, side_keys[side]);
  json_add_int(object, "row", i);
  json_add_int(object, "step", event->step);
  json_add_int(object, "block_bytes", event->block_bytes);
  json_add_int(object, "requested_bytes", event->requested_bytes);
  json_add_text(object, "category", category_name(event->category));
  json_add_text(object, "module", report_text(recording, event->module, NULL));
  json_add_text(object, "what", report_text(recording, event->what, NULL));
  json_add_text(object, "place", place);
  json_add_text(object, "event", words);
}

static void
add_memory(cJSON *root, const Comparison *c)
{
  static const char *const verdicts[] = {
      [MEMORY_SAME] = "same",     [MEMORY_CHANGED] = "changed", [MEMORY_ONLY_A] = "only_a",
      [MEMORY_ONLY_B] = "only_b", [MEMORY_APART] = "apart",
  };
  const MemoryComparison *memory = &c->memory;
  if (!memory->known) {
    cJSON_AddNullToObject(root, "allocations");
    return;
  }
  cJSON *object = cJSON_AddObjectToObject(root, "allocations");
  json_add_text(object, "verdict", verdicts[memory->verdict]);
  add_pair_of(object, "first_step", FIGURE_COUNT,
              (const gint64[]){memory->first[SIDE_A], memory->first[SIDE_B]});
  add_pair_of(object, "last_step", FIGURE_COUNT,
              (const gint64[]){memory->last[SIDE_A], memory->last[SIDE_B]});
  add_pair_of(object, "events", FIGURE_COUNT,
              (const gint64[]){memory->events[SIDE_A], memory->events[SIDE_B]});
  cJSON_AddBoolToObject(object, "by_category", memory->by_category);
  cJSON_AddBoolToObject(object, "by_module", memory->by_module);
  add_pair_of(object, "unmatched", FIGURE_COUNT,
              (const gint64[]){memory->unmatched[SIDE_A], memory->unmatched[SIDE_B]});
  add_pair_of(object, "unmatched_bytes", FIGURE_BYTES, memory->unmatched_bytes);
  if (memory->verdict == MEMORY_SAME) {
    cJSON_AddNullToObject(object, "first_difference");
    return;
  }
  cJSON *first = cJSON_AddObjectToObject(object, "first_difference");
  json_add_int(first, "position", memory->position);
  json_add_int(first, "count", memory->count);
  for (int side = 0; side < SIDES; side++)
    add_event(first, c, side);
}

/* ---- collectives and kernels ---- */

static void
add_collective_pair(cJSON *root, const char *key, const Comparison *c, const CollectivePair *pair)
{
  if (pair->lane < 0) {
    cJSON_AddNullToObject(root, key);
    return;
  }
  const LaneComparison *lane = &g_array_index(c->lanes, LaneComparison, (guint) pair->lane);
  cJSON *object = cJSON_AddObjectToObject(root, key);
  json_add_text(object, "communicator", lane->communicator);
  json_add_text(object, "collective", lane->kind);
  json_add_int(object, "position", pair->position);
  for (int side = 0; side < SIDES; side++) {
    if (pair->span[side] < 0) {
      cJSON_AddNullToObject(object, side_keys[side]);
      continue;
    }
    const Recording *recording = c->models[side]->recording;
    const Span *span = &g_array_index(recording->spans, Span, (guint) pair->span[side]);
    cJSON *one = cJSON_AddObjectToObject(object, side_keys[side]);
    json_add_text(one, "module", report_text(recording, span->module, NULL));
    json_add_int(one, "bytes", span->bytes);
    cJSON_AddNumberToObject(one, "time_s", (double) (span->end - span->start) / 1e9);
  }
}

static void
add_lanes(cJSON *root, const Comparison *c)
{
  cJSON *lanes = cJSON_AddArrayToObject(root, "collectives");
  for (guint i = 0; i < c->lanes->len; i++) {
    const LaneComparison *lane = &g_array_index(c->lanes, LaneComparison, i);
    cJSON *object = cJSON_CreateObject();
    json_add_text(object, "communicator", lane->communicator);
    json_add_text(object, "collective", lane->kind);
    add_pair_of(object, "count", FIGURE_COUNT, lane->count);
    add_pair_of(object, "bytes", FIGURE_BYTES, lane->bytes);
    add_pair_of(object, "time_s", FIGURE_TIME, lane->time);
    cJSON_AddItemToArray(lanes, object);
  }
  add_collective_pair(root, "first_collective_that_differs", c, &c->first_differs);
  add_collective_pair(root, "collective_whose_time_differs_most", c, &c->slowest);
}

static void
add_kernels(cJSON *root, const char *key, const GArray *kernels)
{
  cJSON *array = cJSON_AddArrayToObject(root, key);
  for (guint i = 0; i < kernels->len; i++) {
    const KernelComparison *kernel = &g_array_index(kernels, KernelComparison, i);
    cJSON *object = cJSON_CreateObject();
    json_add_text(object, "name", kernel->name);
    add_pair_of(object, "count", FIGURE_COUNT, kernel->count);
    add_pair_of(object, "time_s", FIGURE_TIME, kernel->time);
    cJSON_AddItemToArray(array, object);
  }
}

char *
comparison_json(const ComparisonReport *report)
{
  const Comparison *c = report->comparison;
  cJSON *root = cJSON_CreateObject();
  g_autofree char *headline = comparison_headline(c);
  json_add_text(root, "format", "highwater-comparison-1");
  for (int side = 0; side < SIDES; side++)
    json_add_text(root, side_keys[side], report->names[side]);
  cJSON_AddBoolToObject(root, "same", c->same);
  json_add_text(root, "difference", headline);
  add_limits(root, report);
  cJSON *step = cJSON_AddObjectToObject(root, "step");
  for (int side = 0; side < SIDES; side++)
    if (c->step[side] > 0)
      json_add_int(step, side_keys[side], c->step[side]);
    else
      cJSON_AddNullToObject(step, side_keys[side]);
  add_figures(root, c);
  add_peak(root, c);
  add_memory(root, c);
  add_lanes(root, c);
  add_kernels(root, "kernels", c->kernels);
  add_kernels(root, "blocks", c->modules);
  return json_finish(root);
}
