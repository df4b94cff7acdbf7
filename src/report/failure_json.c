/* failure_json.c - a failure as an object of the report. */
#include "base/json_output.h"
#include "report/summary_parts.h"

/* Runs of ranks that are written out; "count" says how many ranks there are in all. */
enum { MOST_RUNS = 256 };

static void
add_ranks(cJSON *object, const char *key, const RankSet *set)
{
  cJSON *ranks = cJSON_AddObjectToObject(object, key);
  json_add_int(ranks, "count", rank_set_size(set));
  cJSON *runs = cJSON_AddArrayToObject(ranks, "runs");
  for (guint i = 0; set->runs != NULL && i < MIN(set->runs->len, MOST_RUNS); i++) {
    const RankRun *run = &g_array_index(set->runs, RankRun, i);
    cJSON_AddItemToArray(runs, cJSON_CreateIntArray((const int[]){run->first, run->last}, 2));
  }
}

static void
add_at(cJSON *object, const Failure *failure)
{
  const FailureSpec *spec = &failure->spec;
  json_add_int(object, "rank", spec->rank);
  json_add_int(object, "step", spec->step);
  json_add_text(object, "phase", failure_phase_name(spec->phase));
  json_add_int(object, "micro_batch", spec->micro_batch);
  cJSON_AddNumberToObject(object, "fraction", spec->fraction);
  cJSON_AddNumberToObject(object, "time_s", (double) failure->time / 1e9);
}

static void
add_reductions(cJSON *object, const Failure *failure)
{
  cJSON *array = cJSON_AddArrayToObject(object, "reductions");
  for (guint i = 0; i < failure->reductions->len; i++) {
    const ReductionState *state = &g_array_index(failure->reductions, ReductionState, i);
    cJSON *row = cJSON_CreateObject();
    json_add_text(row, "group", state->group);
    json_add_int(row, "count", state->all);
    json_add_int(row, "done", state->done);
    json_add_int(row, "in_flight", state->in_flight);
    json_add_int(row, "queued", state->queued);
    json_add_int(row, "not_issued", state->all - state->done - state->in_flight - state->queued);
    cJSON_AddItemToArray(array, row);
  }
}

static void
add_invalid(cJSON *failure_object, const Failure *failure)
{
  static const Category transient[] = {CATEGORY_SHARDED_GRADIENT,
                                       CATEGORY_UNSHARDED_GRADIENT,
                                       CATEGORY_REDUCE_SCATTER_BUFFER,
                                       CATEGORY_UNSHARDED_PARAMETER,
                                       CATEGORY_ALL_GATHER_BUFFER,
                                       CATEGORY_ACTIVATION,
                                       CATEGORY_TEMPORARY};
  cJSON *object = cJSON_AddObjectToObject(failure_object, "invalid");
  json_add_int(object, "step", failure->spec.step);
  json_add_int(object, "micro_batches", failure->micro_batches);
  json_add_int(object, "micro_batches_done", failure->micro_batches_done);
  cJSON *bytes = cJSON_AddObjectToObject(object, "bytes");
  for (guint i = 0; i < G_N_ELEMENTS(transient); i++)
    json_add_int(bytes, category_name(transient[i]), failure->alive[transient[i]]);
  add_reductions(object, failure);
  cJSON *updated = cJSON_AddObjectToObject(object, "updated");
  for (int k = 0; k < HELD_STATES; k++) {
    const HeldLoss *held = &failure->held[k];
    cJSON *state = cJSON_AddObjectToObject(updated, failure_held_name((HeldState) k));
    json_add_int(state, "tensors", held->tensors);
    json_add_int(state, "written", held->updated);
    json_add_int(state, "written_bytes", held->updated_bytes);
  }
}

static void
add_state(cJSON *failure_object, const Failure *failure)
{
  cJSON *state = cJSON_AddObjectToObject(failure_object, "state");
  for (int k = 0; k < HELD_STATES; k++) {
    const HeldLoss *held = &failure->held[k];
    cJSON *object = cJSON_AddObjectToObject(state, failure_held_name((HeldState) k));
    json_add_int(object, "spread_over", held->spread);
    json_add_int(object, "lost_bytes", held->lost_bytes);
    add_ranks(object, "copies_on", &held->copies);
    add_ranks(object, "other_parts_on", &held->others);
  }
}

static void
add_consistent(cJSON *failure_object, const Failure *failure)
{
  cJSON *object = cJSON_AddObjectToObject(failure_object, "last_consistent");
  json_add_int(object, "step", failure->last_step);
  json_add_text(object, "from", failure->from_others ? "other_ranks" : "last_save");
  json_add_int(object, "steps_lost", MAX(0, failure->spec.step - 1 - failure->last_step));
  cJSON_AddNumberToObject(object, "time_lost_s", (double) failure->lost / 1e9);
}

static void
add_stuck(cJSON *failure_object, const Failure *failure)
{
  cJSON *array = cJSON_AddArrayToObject(failure_object, "stuck");
  for (guint i = 0; i < failure->stuck->len; i++) {
    const StuckInfo *stuck = &g_array_index(failure->stuck, StuckInfo, i);
    cJSON *object = cJSON_CreateObject();
    json_add_text(object, "communicator", stuck->communicator);
    json_add_text(object, "collective", stuck->collective);
    json_add_int(object, "number", stuck->number);
    json_add_text(object, "group", stuck->group);
    json_add_int(object, "step", stuck->step);
    json_add_int(object, "bytes", stuck->bytes);
    add_ranks(object, "waiting", &stuck->waiting);
    add_ranks(object, "missing", &stuck->missing);
    cJSON_AddBoolToObject(object, "failed_inside", stuck->failed_inside);
    cJSON_AddItemToArray(array, object);
  }
}

void
summary_json_failure(cJSON *report, const Failure *failure)
{
  if (failure == NULL) {
    cJSON_AddNullToObject(report, "failure");
    return;
  }
  cJSON *object = cJSON_AddObjectToObject(report, "failure");
  add_at(object, failure);
  add_invalid(object, failure);
  add_state(object, failure);
  add_consistent(object, failure);
  add_stuck(object, failure);
}
