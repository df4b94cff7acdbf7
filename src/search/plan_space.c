/* plan_space.c - the plans that are looked at: axes, and the points between them. */
#include "search/plan_space_internal.h"

#include <stdlib.h>
#include <string.h>

#include "base/units.h"
#include "spec/plan_spec.h"

/* Micro-batches that a step of a plan may have. */
enum { ACCUMULATION_MOST = 1024 };

/* ---- choices ---- */

static void
choice_free(gpointer data)
{
  PlanChoice *choice = data;
  g_free(choice->label);
  g_strfreev(choice->assignments);
  g_free(choice);
}

void
plan_space_add_choice(PlanSpace *space, PlanAxis axis, const char *label, const char *assignments)
{
  PlanChoice *choice = g_new(PlanChoice, 1);
  choice->label = g_strdup(label);
  choice->assignments = g_strsplit(assignments, "&", -1);
  g_ptr_array_add(space->choices[axis], choice);
}

static const PlanChoice *
choice_at(const PlanSpace *space, PlanAxis axis, int i)
{
  return g_ptr_array_index(space->choices[axis], (guint) i);
}

static void
add_listed(PlanSpace *space, PlanAxis axis)
{
  g_auto(GStrv) values = g_strsplit(plan_axes[axis].values, " ", -1);
  for (char **value = values; *value != NULL; value++) {
    char *bar = strchr(*value, '|');
    if (axis == AXIS_GROUPS && atoi(*value) > space->blocks)
      continue; /* the same as all of them */
    if (bar != NULL)
      *bar = '\0';
    g_autofree char *plain = g_strconcat(plan_axes[axis].key, "=", *value, NULL);
    plan_space_add_choice(space, axis, *value, bar != NULL ? bar + 1 : plain);
  }
}

/* The choice that is only this value of the key, or -1. */
static int
find_value(const PlanSpace *space, PlanAxis axis, const char *value)
{
  g_autofree char *wanted = g_strconcat(plan_axes[axis].key, "=", value, NULL);
  for (guint i = 0; i < space->choices[axis]->len; i++) {
    const PlanChoice *choice = choice_at(space, axis, (int) i);
    if (g_strv_length(choice->assignments) == 1 && g_str_equal(choice->assignments[0], wanted))
      return (int) i;
  }
  return -1;
}

/* "own" of "\"own\"". */
static char *
without_quotes(const char *json)
{
  gsize length = strlen(json);
  if (length >= 2 && json[0] == '"')
    return g_strndup(json + 1, length - 2);
  return g_strdup(json);
}

static gboolean
is_above(const char *key, const char *other)
{
  gsize length = strlen(key);
  return strncmp(key, other, length) == 0 && (other[length] == '\0' || other[length] == '.');
}

gboolean
plan_space_is_given(const RunRequest *base, const char *key)
{
  for (char **a = base->inputs.assignments; a != NULL && *a != NULL; a++) {
    g_autofree char *given = g_strndup(*a, strcspn(*a, "="));
    if (is_above(given, key) || is_above(key, given))
      return TRUE;
  }
  return FALSE;
}

static gboolean
has_axis(PlanAxis axis, const char *strategy)
{
  if (plan_axes[axis].strategies == NULL)
    return TRUE;
  g_auto(GStrv) names = g_strsplit(plan_axes[axis].strategies, " ", -1);
  return g_strv_contains((const char *const *) names, strategy);
}

/* The base plan's value is among those that are tried, and the only one where an assignment gives
 * it. */
static void
fill_axis(PlanSpace *space, const RunRequest *base, const PlanSpec *plan, PlanAxis axis,
          const char *text)
{
  g_autofree char *json =
      has_axis(axis, plan->strategy) ? plan_document_value(text, plan_axes[axis].key) : NULL;
  g_autofree char *value = without_quotes(json != NULL ? json : plan_axes[axis].fallback);
  space->fixed[axis] = plan_space_is_given(base, plan_axes[axis].key);
  if (!space->fixed[axis])
    add_listed(space, axis);
  int found = find_value(space, axis, value);
  if (found < 0) {
    g_autofree char *own =
        json != NULL ? g_strconcat(plan_axes[axis].key, "=", value, NULL) : g_strdup("");
    found = (int) space->choices[axis]->len;
    plan_space_add_choice(space, axis, g_str_equal(value, "null") ? "default" : value, own);
  }
  space->base.at[axis] = found;
}

/* A policy is more than its name: the base plan's is said as a whole, unless the name is all. */
static void
fill_checkpointing(PlanSpace *space, const RunRequest *base, const PlanSpec *plan, const char *text)
{
  const CheckpointSpec *own = &plan->checkpointing;
  gboolean is_plain = own->policy != CHECKPOINT_EVERY_N && own->policy != CHECKPOINT_FRACTION &&
                      own->blocks == NULL;
  if (is_plain) {
    fill_axis(space, base, plan, AXIS_CHECKPOINTING, text);
    return;
  }
  g_autofree char *json = plan_document_value(text, "activation_checkpointing");
  g_autofree char *whole = g_strconcat("activation_checkpointing=", json, NULL);
  g_autofree char *label = checkpoint_spec_text(own);
  space->fixed[AXIS_CHECKPOINTING] = plan_space_is_given(base, "activation_checkpointing");
  if (!space->fixed[AXIS_CHECKPOINTING])
    add_listed(space, AXIS_CHECKPOINTING);
  space->base.at[AXIS_CHECKPOINTING] = (int) space->choices[AXIS_CHECKPOINTING]->len;
  plan_space_add_choice(space, AXIS_CHECKPOINTING, label, whole);
}

/* ---- micro-batches ---- */

static void
add_micro_batch(PlanSpace *space, gint64 micro_batch, gint64 steps)
{
  g_autofree char *label =
      g_strdup_printf("%" G_GINT64_FORMAT " x %" G_GINT64_FORMAT, micro_batch, steps);
  g_autofree char *assignments =
      g_strdup_printf("batch.micro_batch=%" G_GINT64_FORMAT "&accumulation.steps=%" G_GINT64_FORMAT,
                      micro_batch, steps);
  plan_space_add_choice(space, AXIS_MICRO_BATCH, label, assignments);
}

/* Ways to compute a rank's sequences of a step in equal micro-batches, the smallest first: the base
 * plan's, all of them at once, and powers of two between. */
static gboolean
fill_micro_batches(PlanSpace *space, const RunRequest *base, const PlanSpec *plan, GError **error)
{
  gint64 each = space->global_batch / space->ranks;
  gboolean fixed = plan_space_is_given(base, "batch.micro_batch"),
           steps = plan_space_is_given(base, "accumulation.steps");
  space->base.at[AXIS_MICRO_BATCH] = 0;
  space->fixed[AXIS_MICRO_BATCH] = fixed || steps;
  for (gint64 m = 1; m <= MIN(each, PLAN_MICRO_BATCH_MOST); m++) {
    gboolean own = m == plan->micro_batch;
    gboolean tried = own || m == each || (m & (m - 1)) == 0;
    if (each % m != 0 || each / m > ACCUMULATION_MOST || !tried || (fixed && !own) ||
        (steps && each / m != plan->accumulation.steps))
      continue;
    if (own)
      space->base.at[AXIS_MICRO_BATCH] = (int) space->choices[AXIS_MICRO_BATCH]->len;
    add_micro_batch(space, m, each / m);
  }
  if (space->choices[AXIS_MICRO_BATCH]->len > 0)
    return TRUE;
  g_set_error(error, HIGHWATER_ERROR, HIGHWATER_ERROR_USAGE,
              "plan: %" G_GINT64_FORMAT " sequences for each rank cannot be computed in "
              "micro-batches of a power of two up to %d, or those that --set gives, in at most "
              "%d steps",
              each, PLAN_MICRO_BATCH_MOST, ACCUMULATION_MOST);
  return FALSE;
}

static gboolean
divide_batch(PlanSpace *space, const PlanSpec *plan, gint64 global_batch, GError **error)
{
  gint64 each = (gint64) plan->micro_batch * plan->accumulation.steps;
  space->global_batch = global_batch > 0 ? global_batch : each * space->ranks;
  if (space->global_batch % space->ranks == 0)
    return TRUE;
  g_set_error(error, HIGHWATER_ERROR, HIGHWATER_ERROR_USAGE,
              "plan: --global-batch: %" G_GINT64_FORMAT " sequences are not a multiple of %d ranks",
              space->global_batch, space->ranks);
  return FALSE;
}

/* ---- all ---- */

/* Resharding to the GPUs of a node, where there are several. */
static void
add_reshard_to_node(PlanSpace *space, int gpus_per_node)
{
  g_autofree char *value = g_strdup_printf("%d", gpus_per_node);
  g_autofree char *assignment = g_strconcat(plan_axes[AXIS_RESHARD].key, "=", value, NULL);
  if (!space->fixed[AXIS_RESHARD] && space->ranks > gpus_per_node && gpus_per_node > 1 &&
      find_value(space, AXIS_RESHARD, value) < 0)
    plan_space_add_choice(space, AXIS_RESHARD, value, assignment);
}

static gboolean
fill(PlanSpace *space, const RunRequest *base, const PlanSpec *plan, GError **error)
{
  plan_space_fill_shardings(space, base, plan);
  if (space->shardings->len == 0) {
    g_set_error(error, HIGHWATER_ERROR, HIGHWATER_ERROR_USAGE,
                "plan: no strategy trains on %d ranks with what --set gives", space->ranks);
    return FALSE;
  }
  if (!fill_micro_batches(space, base, plan, error))
    return FALSE;
  g_autofree char *own = plan_document_short(base->inputs.plan.text, base->inputs.assignments, "");
  fill_checkpointing(space, base, plan, own);
  for (int axis = AXIS_FIRST_FINE; axis < AXIS_COUNT; axis++)
    fill_axis(space, base, plan, (PlanAxis) axis, own);
  return TRUE;
}

static void
sharding_clear(gpointer data)
{
  PlanSharding *sharding = data;
  g_free(sharding->strategy);
  input_text_clear(&sharding->request.inputs.plan);
}

PlanSpace *
plan_space_new(const RunRequest *base, int ranks, gint64 global_batch, GError **error)
{
  g_autoptr(Scenario) scenario = scenario_new(&base->inputs, 0, error);
  if (scenario == NULL)
    return NULL;
  g_autoptr(PlanSpace) space = g_new0(PlanSpace, 1);
  const PlanSpec *plan = scenario->plan;
  space->ranks = ranks > 0 ? ranks : plan->shard * plan->replicate;
  space->sequence_length = plan->sequence_length;
  space->reduce = plan->precision.reduce;
  space->blocks = (int) scenario->network->blocks->len;
  space->shardings = g_array_new(FALSE, TRUE, sizeof(PlanSharding));
  g_array_set_clear_func(space->shardings, sharding_clear);
  for (int axis = 0; axis < AXIS_COUNT; axis++)
    space->choices[axis] = g_ptr_array_new_with_free_func(choice_free);
  if (!divide_batch(space, plan, global_batch, error) || !fill(space, base, plan, error))
    return NULL;
  add_reshard_to_node(space, scenario->cluster->gpus_per_node);
  return g_steal_pointer(&space);
}

void
plan_space_free(PlanSpace *space)
{
  if (space == NULL)
    return;
  for (int axis = 0; axis < AXIS_COUNT; axis++)
    g_ptr_array_unref(space->choices[axis]);
  g_array_unref(space->shardings);
  g_free(space);
}

/* ---- points ---- */

static const PlanSharding *
sharding_of(const PlanSpace *space, const PlanPoint *point)
{
  return &g_array_index(space->shardings, PlanSharding, (guint) point->at[AXIS_SHARDING]);
}

int
plan_space_micro_batches(const PlanSpace *space, const PlanPoint *point)
{
  const char *steps =
      choice_at(space, AXIS_MICRO_BATCH, point->at[AXIS_MICRO_BATCH])->assignments[1];
  return (int) g_ascii_strtoll(strchr(steps, '=') + 1, NULL, 10);
}

gboolean
plan_space_applies(const PlanSpace *space, const PlanPoint *point, PlanAxis axis)
{
  const PlanAxisInfo *info = &plan_axes[axis];
  if (info->accumulates && plan_space_micro_batches(space, point) == 1)
    return FALSE;
  return has_axis(axis, sharding_of(space, point)->strategy);
}

PlanPoint
plan_space_normal(const PlanSpace *space, PlanPoint point)
{
  for (int axis = AXIS_FIRST_FINE; axis < AXIS_COUNT; axis++) {
    if (!plan_space_applies(space, &point, (PlanAxis) axis))
      point.at[axis] = -1;
    else if (point.at[axis] < 0)
      point.at[axis] = space->base.at[axis];
  }
  return point;
}

gint64
plan_space_fine_size(const PlanSpace *space, const PlanPoint *point)
{
  gint64 size = 1;
  for (int axis = AXIS_FIRST_FINE; axis < AXIS_COUNT; axis++)
    if (plan_space_applies(space, point, (PlanAxis) axis))
      size *= space->choices[axis]->len;
  return size;
}

gint64
plan_space_size(const PlanSpace *space)
{
  gint64 size = 0;
  PlanPoint point = space->base;
  for (guint s = 0; s < space->choices[AXIS_SHARDING]->len; s++)
    for (guint m = 0; m < space->choices[AXIS_MICRO_BATCH]->len; m++) {
      point.at[AXIS_SHARDING] = (int) s;
      point.at[AXIS_MICRO_BATCH] = (int) m;
      size += plan_space_fine_size(space, &point) * space->choices[AXIS_CHECKPOINTING]->len;
    }
  return size;
}

const RunRequest *
plan_space_request(const PlanSpace *space, const PlanPoint *point)
{
  return &sharding_of(space, point)->request;
}

char **
plan_space_assignments(const PlanSpace *space, const PlanPoint *point)
{
  GPtrArray *all = g_ptr_array_new();
  for (int axis = 0; axis < AXIS_COUNT; axis++) {
    char **a = point->at[axis] >= 0
                   ? choice_at(space, (PlanAxis) axis, point->at[axis])->assignments
                   : NULL;
    for (; a != NULL && *a != NULL; a++)
      g_ptr_array_add(all, *a);
  }
  g_ptr_array_add(all, NULL);
  return (char **) (gpointer) g_ptr_array_free(all, FALSE);
}

const char *
plan_space_label(const PlanSpace *space, const PlanPoint *point, PlanAxis axis)
{
  return point->at[axis] < 0 ? "-" : choice_at(space, axis, point->at[axis])->label;
}

char *
plan_space_describe(const PlanSpace *space, const PlanPoint *point)
{
  GString *text = g_string_new(plan_space_label(space, point, AXIS_SHARDING));
  for (int axis = AXIS_CHECKPOINTING; axis < AXIS_COUNT; axis++)
    if (point->at[axis] >= 0 && (axis < AXIS_FIRST_FINE || point->at[axis] != space->base.at[axis]))
      g_string_append_printf(text, ", %s %s", plan_axes[axis].name,
                             plan_space_label(space, point, (PlanAxis) axis));
  return g_string_free(text, FALSE);
}

char *
plan_space_plan(const PlanSpace *space, const PlanPoint *point, const char *network)
{
  g_autofree char **assignments = plan_space_assignments(space, point);
  g_autofree char *what = plan_space_describe(space, point);
  g_autofree char *summary =
      g_strdup_printf("proposed for %s on %d ranks, %" G_GINT64_FORMAT " sequences a step: %s",
                      network, space->ranks, space->global_batch, what);
  return plan_document_short(plan_space_request(space, point)->inputs.plan.text, assignments,
                             summary);
}
