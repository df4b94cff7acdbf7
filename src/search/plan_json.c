/* plan_json.c - the plan that was found, for programs: format "highwater-plan-1". */
#include <math.h>
#include <string.h>

#include "base/json_output.h"
#include "search/plan_text.h"

static void
add_figures(cJSON *object, const PlanSearch *s, const PlanTried *tried, const Outcome *o)
{
  gint64 capacity = plan_search_capacity(s, tried);
  json_add_int(object, "peak_allocated_bytes", o->peak_allocated);
  json_add_int(object, "peak_reserved_bytes", o->peak_reserved);
  if (capacity < G_MAXINT64)
    json_add_int(object, "headroom_bytes", capacity - o->peak_reserved);
  else
    cJSON_AddNullToObject(object, "headroom_bytes");
  if (!o->time.known) {
    cJSON_AddNullToObject(object, "step_s");
    return;
  }
  cJSON_AddNumberToObject(object, "step_s", (double) o->time.step / 1e9);
  cJSON_AddNumberToObject(object, "tokens_per_s_per_gpu", o->time.tokens_per_s);
  if (o->time.mfu > 0)
    cJSON_AddNumberToObject(object, "mfu", o->time.mfu);
  cJSON_AddNumberToObject(object, "exposed_communication_s", (double) o->time.exposed / 1e9);
}

static void
add_choices(cJSON *object, const PlanSearch *s, const PlanPoint *point)
{
  cJSON *choices = cJSON_AddObjectToObject(object, "choices");
  for (int axis = 0; axis < AXIS_COUNT; axis++)
    if (point->at[axis] >= 0)
      cJSON_AddStringToObject(choices, plan_axis_key((PlanAxis) axis),
                              plan_space_label(s->space, point, (PlanAxis) axis));
}

static void
add_plan(cJSON *object, const char *key, const PlanAnswer *a, guint index, const Outcome *o)
{
  const PlanSearch *s = a->search;
  const PlanPoint *point = &plan_search_tried(s, index)->point;
  cJSON *plan = cJSON_AddObjectToObject(object, key);
  g_autofree char *what = plan_space_describe(s->space, point);
  g_autofree char *text = plan_space_plan(s->space, point, a->network);
  cJSON_AddStringToObject(plan, "description", what);
  add_choices(plan, s, point);
  add_figures(plan, s, plan_search_tried(s, index), o);
  cJSON_AddItemToObject(plan, "plan", cJSON_Parse(text));
}

static void
add_alternatives(cJSON *root, const PlanSearch *s)
{
  cJSON *list = cJSON_AddArrayToObject(root, "alternatives");
  for (guint i = 0; i < s->alternatives->len; i++) {
    const PlanAlternative *alternative = &g_array_index(s->alternatives, PlanAlternative, i);
    const PlanTried *other = plan_search_tried(s, alternative->tried);
    g_autofree char *why = plan_alternative_reason(s, alternative);
    cJSON *object = cJSON_CreateObject();
    cJSON_AddStringToObject(object, "key", plan_axis_key(alternative->axis));
    cJSON_AddStringToObject(object, "value",
                            plan_space_label(s->space, &other->point, alternative->axis));
    cJSON_AddBoolToObject(object, "fits",
                          other->left_out == NULL && plan_search_lacks(s, other) <= 0);
    add_choices(object, s, &other->point);
    add_figures(object, s, other, &other->outcome);
    cJSON_AddStringToObject(object, "why_not", why);
    cJSON_AddItemToArray(list, object);
  }
}

static void
add_counts(cJSON *root, const PlanSearch *s)
{
  cJSON *counts = cJSON_AddObjectToObject(root, "plans");
  json_add_int(counts, "in_the_space", s->size);
  json_add_int(counts, "simulated", s->tried->len - s->refused);
  json_add_int(counts, "refused", s->refused);
  json_add_int(counts, "smaller_micro_batches_left_out", s->smaller);
  json_add_int(counts, "hopeless_left_out", s->hopeless);
  json_add_int(counts, "other_combinations_left_out", s->combinations);
}

void
plan_json(const PlanAnswer *a, GString *out)
{
  const PlanSearch *s = a->search;
  cJSON *root = cJSON_CreateObject();
  cJSON_AddStringToObject(root, "format", "highwater-plan-1");
  cJSON_AddStringToObject(root, "network", a->network);
  cJSON_AddStringToObject(root, "cluster", a->cluster);
  json_add_int(root, "ranks", s->space->ranks);
  json_add_int(root, "sequences_per_step", s->space->global_batch);
  json_add_int(root, "sequence_length", s->space->sequence_length);
  if (s->capacity < G_MAXINT64)
    json_add_int(root, "capacity_bytes", s->capacity);
  else
    cJSON_AddNullToObject(root, "capacity_bytes");
  json_add_int(root, "headroom_asked_bytes", s->headroom);
  if (s->chosen >= 0)
    add_plan(root, "chosen", a, (guint) s->chosen, &s->outcome);
  else
    cJSON_AddNullToObject(root, "chosen");
  if (s->closest >= 0) {
    const PlanTried *closest = plan_search_tried(s, (guint) s->closest);
    add_plan(root, "closest", a, (guint) s->closest, &closest->outcome);
    json_add_int(cJSON_GetObjectItem(root, "closest"), "lacks_bytes",
                 plan_search_lacks(s, closest));
  }
  add_alternatives(root, s);
  add_counts(root, s);
  if (s->has_equivalence) {
    cJSON_AddStringToObject(root, "reduce_dtype", dtype_name(s->reduce));
    cJSON_AddStringToObject(root, "base_reduce_dtype", dtype_name(s->space->reduce));
    cJSON_AddBoolToObject(root, "equivalent", s->equivalence.violation == NULL);
    json_add_text(root, "not_followed", s->equivalence.not_followed);
  }
  g_autofree char *text = json_finish(root);
  g_string_append(out, text);
}
