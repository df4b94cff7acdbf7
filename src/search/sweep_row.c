/* sweep_row.c - a variant's outcome as a JSON object, and back: what every output of a sweep is
 * made of. */
#include "search/sweep_row.h"

#include <math.h>

#include "base/json_output.h"
#include "base/units.h"

typedef enum { FIGURE_COUNT, FIGURE_SECONDS, FIGURE_REAL, FIGURE_TEXT } FigureKind;

/* When a figure is known; null otherwise. */
typedef enum {
  KNOWN_RUN,      /* it was simulated */
  KNOWN_LIMIT,    /* and the allocator has a limit */
  KNOWN_STEP,     /* and a step was completed */
  KNOWN_SPLIT,    /* and is known in parts */
  KNOWN_POSITIVE, /* and the figure is not 0 */
} FigureKnown;

/* A member of Outcome. */
typedef struct {
  const char *key;
  FigureKind kind;
  FigureKnown known;
  gsize offset;
  gboolean is_int; /* an int, not a gint64 */
} Figure;

#define MEMBER(member) G_STRUCT_OFFSET(Outcome, member)

static const Figure figures[] = {
    {"peak_place", FIGURE_TEXT, KNOWN_RUN, MEMBER(peak_place), FALSE},
    {"out_of_memory", FIGURE_TEXT, KNOWN_RUN, MEMBER(out_of_memory), FALSE},
    {"rank_without_room", FIGURE_COUNT, KNOWN_RUN, MEMBER(rank_without_room), TRUE},
    {"allocator_retries", FIGURE_COUNT, KNOWN_RUN, MEMBER(allocator_retries), FALSE},
    {"peak_allocated_bytes", FIGURE_COUNT, KNOWN_RUN, MEMBER(peak_allocated), FALSE},
    {"peak_reserved_bytes", FIGURE_COUNT, KNOWN_RUN, MEMBER(peak_reserved), FALSE},
    {"capacity_bytes", FIGURE_COUNT, KNOWN_LIMIT, MEMBER(capacity), FALSE},
    {"headroom_bytes", FIGURE_COUNT, KNOWN_LIMIT, MEMBER(headroom), FALSE},
    {"step_s", FIGURE_SECONDS, KNOWN_STEP, MEMBER(time.step), FALSE},
    {"tokens_per_s_per_gpu", FIGURE_REAL, KNOWN_POSITIVE, MEMBER(time.tokens_per_s), FALSE},
    {"mfu", FIGURE_REAL, KNOWN_POSITIVE, MEMBER(time.mfu), FALSE},
    {"hfu", FIGURE_REAL, KNOWN_POSITIVE, MEMBER(time.hfu), FALSE},
    {"compute_s", FIGURE_SECONDS, KNOWN_SPLIT, MEMBER(time.compute), FALSE},
    {"communication_s", FIGURE_SECONDS, KNOWN_SPLIT, MEMBER(time.communication), FALSE},
    {"exposed_communication_s", FIGURE_SECONDS, KNOWN_SPLIT, MEMBER(time.exposed), FALSE},
    {"rank_wait_s", FIGURE_SECONDS, KNOWN_SPLIT, MEMBER(time.rank_wait), FALSE},
    {"host_bound_s", FIGURE_SECONDS, KNOWN_SPLIT, MEMBER(time.host_bound), FALSE},
    {"startups", FIGURE_COUNT, KNOWN_STEP, MEMBER(startup.collectives), FALSE},
    {"startup_s", FIGURE_SECONDS, KNOWN_STEP, MEMBER(startup.time), FALSE},
    {"tokens_per_step", FIGURE_COUNT, KNOWN_RUN, MEMBER(tokens_per_step), FALSE},
    {"ranks", FIGURE_COUNT, KNOWN_RUN, MEMBER(ranks), TRUE},
    {"groups", FIGURE_COUNT, KNOWN_RUN, MEMBER(groups), TRUE},
    {"largest_group_bytes", FIGURE_COUNT, KNOWN_RUN, MEMBER(largest_group), FALSE},
    {"gathers", FIGURE_COUNT, KNOWN_SPLIT, MEMBER(gathers.count), FALSE},
    {"gathers_waited_for", FIGURE_COUNT, KNOWN_SPLIT, MEMBER(gathers.waited), FALSE},
    {"longest_gather_s", FIGURE_SECONDS, KNOWN_SPLIT, MEMBER(gathers.longest), FALSE},
    {"gather_wait_s", FIGURE_SECONDS, KNOWN_SPLIT, MEMBER(gathers.wait), FALSE},
    {"collectives", FIGURE_COUNT, KNOWN_SPLIT, MEMBER(collectives), FALSE},
};

const SweepColumn sweep_columns[] = {
    {"variant", TRUE},
    {"verdict", TRUE},
    {"pareto", TRUE},
    {"peak_allocated_bytes", TRUE},
    {"peak_reserved_bytes", TRUE},
    {"headroom_bytes", TRUE},
    {"step_s", TRUE},
    {"tokens_per_s_per_gpu", TRUE},
    {"exposed_communication_s", TRUE},
    {"collectives", TRUE},
    {"startup_s", TRUE},
    {"label", TRUE},
    {"fastest", FALSE},
    {"mfu", FALSE},
    {"hfu", FALSE},
    {"bound_by", FALSE},
    {"communication_s", FALSE},
    {"hidden_communication", FALSE},
    {"all_gather", FALSE},
    {"reduce_scatter", FALSE},
    {"all_reduce", FALSE},
    {"startups", FALSE},
    {"gathers_waited_for", FALSE},
    {"gather_wait_s", FALSE},
    {"groups", FALSE},
    {"largest_group_bytes", FALSE},
    {"global_batch_tokens", FALSE},
    {"allocator_retries", FALSE},
    {"peak_place", FALSE},
    {"reason", FALSE},
    {NULL, FALSE},
};

/* ---- writing ---- */

static gconstpointer
member(const Outcome *outcome, const Figure *figure)
{
  return (const char *) outcome + figure->offset;
}

static gint64
whole(const Outcome *outcome, const Figure *figure)
{
  gconstpointer at = member(outcome, figure);
  return figure->is_int ? *(const int *) at : *(const gint64 *) at;
}

static double
real(const Outcome *outcome, const Figure *figure)
{
  return *(const double *) member(outcome, figure);
}

static gboolean
is_known(const Outcome *outcome, const Figure *figure)
{
  if (outcome->refusal != NULL)
    return FALSE;
  switch (figure->known) {
  case KNOWN_RUN:
    return TRUE;
  case KNOWN_LIMIT:
    return outcome->capacity < G_MAXINT64;
  case KNOWN_STEP:
    return outcome->time.known;
  case KNOWN_SPLIT:
    return outcome->time.is_split;
  case KNOWN_POSITIVE:
    return outcome->time.known && real(outcome, figure) > 0;
  }
  g_assert_not_reached();
}

static void
add_figure(cJSON *row, const Outcome *outcome, const Figure *figure)
{
  if (!is_known(outcome, figure)) {
    cJSON_AddNullToObject(row, figure->key);
    return;
  }
  switch (figure->kind) {
  case FIGURE_COUNT:
    json_add_int(row, figure->key, whole(outcome, figure));
    break;
  case FIGURE_SECONDS:
    cJSON_AddNumberToObject(row, figure->key, (double) whole(outcome, figure) / 1e9);
    break;
  case FIGURE_REAL:
    cJSON_AddNumberToObject(row, figure->key, real(outcome, figure));
    break;
  case FIGURE_TEXT:
    json_add_text(row, figure->key, *(char *const *) member(outcome, figure));
    break;
  }
}

static void
add_values(cJSON *row, const Sweep *sweep, guint variant)
{
  cJSON *values = cJSON_AddObjectToObject(row, "values");
  for (guint i = 0; i < sweep->vary->axes->len; i++) {
    const VaryAxis *axis = g_ptr_array_index(sweep->vary->axes, i);
    const char *text = vary_value(sweep->vary, variant, i);
    cJSON *value = cJSON_ParseWithOpts(text, NULL, TRUE);
    cJSON_AddItemToObject(values, axis->key, value != NULL ? value : cJSON_CreateString(text));
  }
}

static void
add_kinds(cJSON *row, const Outcome *outcome)
{
  for (int kind = 0; kind < COLLECTIVE_KIND_COUNT; kind++) {
    const char *name = program_collective_name((CollectiveKind) kind);
    if (outcome->refusal == NULL && outcome->time.is_split)
      json_add_int(row, name, outcome->collectives_of[kind]);
    else
      cJSON_AddNullToObject(row, name);
  }
}

static void
add_step_times(cJSON *row, const Outcome *outcome)
{
  cJSON *times = cJSON_AddArrayToObject(row, "steps_s");
  for (guint i = 0; outcome->step_times != NULL && i < outcome->step_times->len; i++) {
    double seconds = (double) g_array_index(outcome->step_times, SimTime, i) / 1e9;
    cJSON_AddItemToArray(times, cJSON_CreateNumber(seconds));
  }
}

cJSON *
sweep_row(const Sweep *sweep, guint i)
{
  const SweepVariant *variant = sweep_variant(sweep, i);
  const Outcome *outcome = &variant->outcome;
  g_autofree char *reason = outcome_reason(outcome);
  cJSON *row = cJSON_CreateObject();
  json_add_int(row, "variant", i + 1);
  json_add_text(row, "label", variant->label);
  add_values(row, sweep, i);
  json_add_text(row, "verdict", outcome_verdict(outcome));
  json_add_text(row, "reason", reason);
  for (guint k = 0; k < G_N_ELEMENTS(figures); k++)
    add_figure(row, outcome, &figures[k]);
  double hidden = outcome_hidden(outcome);
  json_add_known_number(row, "hidden_communication", !isnan(hidden), hidden);
  gboolean is_split = outcome->refusal == NULL && outcome->time.is_split;
  json_add_text(row, "bound_by", is_split ? report_bound_name(outcome->time.bound) : NULL);
  add_kinds(row, outcome);
  add_step_times(row, outcome);
  json_add_int(row, "global_batch_tokens", variant->global_batch);
  return row;
}

/* ---- reading ---- */

/* Longer than any run. */
#define SECONDS_MOST 1e9

static void
read_figure(JsonReader *row, const Figure *figure, Outcome *outcome)
{
  gpointer member = G_STRUCT_MEMBER_P(outcome, figure->offset);
  gint64 least = figure->is_int ? -1 : -((gint64) 1 << 53);
  gint64 most = figure->is_int ? G_MAXINT32 : (gint64) 1 << 53;
  switch (figure->kind) {
  case FIGURE_COUNT:
    if (figure->is_int)
      *(int *) member = (int) json_reader_int(row, figure->key, 0, least, most);
    else
      *(gint64 *) member = json_reader_int(row, figure->key, 0, least, most);
    break;
  case FIGURE_SECONDS:
    *(gint64 *) member =
        (gint64) round(json_reader_double(row, figure->key, 0, 0, SECONDS_MOST) * 1e9);
    break;
  case FIGURE_REAL:
    *(double *) member = json_reader_double(row, figure->key, 0, 0, G_MAXDOUBLE);
    break;
  case FIGURE_TEXT:
    g_free(*(char **) member);
    *(char **) member = g_strdup(json_reader_string(row, figure->key, NULL));
    break;
  }
}

static void
read_step_times(JsonReader *row, Outcome *outcome)
{
  outcome->step_times = g_array_new(FALSE, FALSE, sizeof(SimTime));
  guint n = json_reader_array_length(row, "steps_s");
  const cJSON *time = n > 0 ? json_reader_raw(row, "steps_s")->child : NULL;
  for (; time != NULL; time = time->next) {
    SimTime ns = 0;
    if (!cJSON_IsNumber(time) || !(time->valuedouble >= 0 && time->valuedouble <= SECONDS_MOST))
      json_reader_fail(row, "steps_s", "a list of seconds is needed");
    else
      ns = (SimTime) round(time->valuedouble * 1e9);
    g_array_append_val(outcome->step_times, ns);
  }
}

static void
read_verdict(JsonReader *row, Outcome *outcome)
{
  static const char *const names[] = {"fits", "fits_with_retries", "does_not_fit", "refused", NULL};
  int verdict = json_reader_enum(row, "verdict", names, 0);
  json_reader_require(row, "verdict");
  if (verdict > VERDICT_DOES_NOT_FIT)
    outcome->refusal = g_strdup(json_reader_required_string(row, "reason"));
  else
    outcome->verdict = (Verdict) verdict;
}

gboolean
sweep_row_read(JsonReader *row, Outcome *outcome)
{
  static const char *const bounds[] = {"compute", "communication", "ranks", "host", NULL};
  *outcome = (Outcome){0};
  json_reader_allow_unknown(row);
  read_verdict(row, outcome);
  for (guint i = 0; i < G_N_ELEMENTS(figures); i++)
    read_figure(row, &figures[i], outcome);
  for (int kind = 0; kind < COLLECTIVE_KIND_COUNT; kind++)
    outcome->collectives_of[kind] = json_reader_int(
        row, program_collective_name((CollectiveKind) kind), 0, 0, (gint64) 1 << 53);
  outcome->time.known = json_reader_has(row, "step_s");
  outcome->time.is_split = json_reader_has(row, "communication_s");
  outcome->time.bound = (Bound) json_reader_enum(row, "bound_by", bounds, 0);
  if (!json_reader_has(row, "capacity_bytes"))
    outcome->capacity = G_MAXINT64;
  read_step_times(row, outcome);
  gboolean is_right = json_reader_finish(row, NULL);
  if (!is_right)
    outcome_clear(outcome);
  return is_right;
}
