/* summary_json.c - the report as JSON: one function an object, keys in the order people read them.
 */
#include "report/summary_json.h"
#include "base/json_output.h"
#include "report/state_estimate.h"
#include "report/summary_parts.h"

/* Times are shown in seconds; nanoseconds below 2^53 (104 days) keep every digit. */
static double
seconds(SimTime ns)
{
  return (double) ns / 1e9;
}

/* A figure that depends on the allocator's limit: null when there is none. */
static void
add_limit(cJSON *object, const char *key, gint64 value, gint64 capacity)
{
  if (capacity < G_MAXINT64)
    json_add_int(object, key, value);
  else
    cJSON_AddNullToObject(object, key);
}

static void
add_seconds(cJSON *object, const char *key, SimTime ns)
{
  cJSON_AddNumberToObject(object, key, seconds(ns));
}

/* A number that 0 says nothing about: null then. */
static void
add_known(cJSON *object, const char *key, double value)
{
  if (value > 0)
    cJSON_AddNumberToObject(object, key, value);
  else
    cJSON_AddNullToObject(object, key);
}

static void
add_known_int(cJSON *object, const char *key, gint64 value)
{
  if (value > 0)
    json_add_int(object, key, value);
  else
    cJSON_AddNullToObject(object, key);
}

static void
add_model(cJSON *report, const RunInfo *info)
{
  cJSON *model = cJSON_AddObjectToObject(report, "model");
  json_add_text(model, "name", info->model);
  add_known_int(model, "parameters", info->parameters);
  add_known_int(model, "trainable_parameters", info->trainable_parameters);
}

static void
add_plan(cJSON *report, const RunInfo *info)
{
  cJSON *plan = cJSON_AddObjectToObject(report, "plan");
  json_add_text(plan, "strategy", info->strategy);
  add_known_int(plan, "shard", info->shard);
  add_known_int(plan, "replicate", info->replicate);
  add_known_int(plan, "micro_batch", info->micro_batch);
  add_known_int(plan, "sequence_length", info->sequence_length);
  add_known_int(plan, "accumulation_steps", info->accumulation_steps);
  json_add_text(plan, "activation_checkpointing", info->checkpointing);
  json_add_text(plan, "compile", info->compile);
  json_add_int(plan, "rank", info->rank);
}

static void
add_ranks(cJSON *report, const RunInfo *info, const TimeSummary *time)
{
  const RanksInfo *ranks = &info->ranks;
  if (ranks->ranks == 0) {
    cJSON_AddNullToObject(report, "ranks");
    return;
  }
  cJSON *object = cJSON_AddObjectToObject(report, "ranks");
  json_add_int(object, "ranks", ranks->ranks);
  json_add_int(object, "simulated", ranks->simulated);
  json_add_int(object, "described", info->rank);
  json_add_int(object, "described_stands_for", ranks->described_class);
  json_add_int(object, "slowest", ranks->slowest);
  cJSON_AddNumberToObject(object, "slowest_compute", ranks->slowest_compute);
  add_seconds(object, "waited_s", ranks->waited);
  if (ranks->step_of_equals > 0 && time->known)
    add_seconds(object, "cost_s", time->step - ranks->step_of_equals);
  else
    cJSON_AddNullToObject(object, "cost_s");
  json_add_int(object, "peak_reserved_bytes", ranks->peak_reserved);
}

static void
add_prefetch(cJSON *report, const ReportModel *model)
{
  const PrefetchInfo *prefetch = &model->info->prefetch;
  if (prefetch->budget == 0) {
    cJSON_AddNullToObject(report, "prefetch");
    return;
  }
  cJSON *object = cJSON_AddObjectToObject(report, "prefetch");
  json_add_int(object, "budget_bytes", prefetch->budget);
  json_add_int(object, "most_bytes", prefetch->most);
  json_add_int(object, "memory_cost_bytes", model->peak_allocated - prefetch->own_peak);
  json_add_int(object, "reserved_cost_bytes", model->peak_reserved - prefetch->own_reserved);
  if (model->time.known && prefetch->own_step > 0)
    add_seconds(object, "gain_s", prefetch->own_step - model->time.step);
  else
    cJSON_AddNullToObject(object, "gain_s");
}

static void
add_cluster(cJSON *report, const RunInfo *info)
{
  static const char *const origins[] = {
      [ORIGIN_DEFAULT] = "default", [ORIGIN_IMPORTED] = "imported", [ORIGIN_MEASURED] = "measured"};
  cJSON *cluster = cJSON_AddObjectToObject(report, "cluster");
  json_add_text(cluster, "name", info->cluster);
  json_add_text(cluster, "device", info->device);
  add_known_int(cluster, "nodes", info->nodes);
  cJSON *constants = cJSON_AddArrayToObject(cluster, "constants");
  for (guint i = 0; i < info->constants->len; i++) {
    const ConstantSource *source = &g_array_index(info->constants, ConstantSource, i);
    cJSON *constant = cJSON_CreateObject();
    json_add_text(constant, "name", source->name);
    json_add_text(constant, "origin", origins[source->origin]);
    cJSON_AddItemToArray(constants, constant);
  }
}

static void
add_out_of_memory(cJSON *report, const ReportModel *model)
{
  const Recording *recording = model->recording;
  const OutOfMemoryRecord *oom = &recording->out_of_memory;
  if (!oom->happened) {
    cJSON_AddNullToObject(report, "out_of_memory");
    return;
  }
  g_autofree char *message = report_model_out_of_memory(model);
  cJSON *object = cJSON_AddObjectToObject(report, "out_of_memory");
  json_add_int(object, "step", oom->step);
  json_add_text(object, "phase", report_text(recording, oom->phase, NULL));
  json_add_text(object, "module", report_text(recording, oom->module, NULL));
  json_add_int(object, "requested_bytes", oom->requested_bytes);
  json_add_int(object, "segment_bytes", oom->segment_bytes);
  json_add_int(object, "limit_bytes", oom->limit_bytes);
  json_add_int(object, "allocated_bytes", oom->allocated_bytes);
  json_add_int(object, "reserved_bytes", oom->reserved_bytes);
  json_add_text(object, "what", report_text(recording, oom->what, NULL));
  json_add_text(object, "message", message);
}

static void
add_largest(cJSON *peak, const Recording *recording)
{
  cJSON *largest = cJSON_AddArrayToObject(peak, "largest");
  const GArray *live = recording->peak.live;
  for (guint i = 0; live && i < MIN(live->len, SUMMARY_LARGEST); i++) {
    const LiveTensor *tensor = &g_array_index(live, LiveTensor, i);
    cJSON *object = cJSON_CreateObject();
    json_add_int(object, "bytes", tensor->bytes);
    json_add_text(object, "category", category_name(tensor->category));
    json_add_text(object, "module", report_text(recording, tensor->module, NULL));
    json_add_text(object, "what", report_text(recording, tensor->what, NULL));
    cJSON_AddItemToArray(largest, object);
  }
}

static void
add_peak(cJSON *memory, const ReportModel *model)
{
  const Recording *recording = model->recording;
  const PeakRecord *record = &recording->peak;
  cJSON *peak = cJSON_AddObjectToObject(memory, "peak");
  json_add_int(peak, "step", record->step);
  json_add_text(peak, "phase", report_text(recording, record->phase, NULL));
  json_add_int(peak, "micro_batch", record->micro_batch);
  json_add_text(peak, "module", report_text(recording, record->module, NULL));
  add_seconds(peak, "time_s", record->time);
  json_add_int(peak, "reserved_bytes", record->reserved);
  cJSON *categories = cJSON_AddObjectToObject(peak, "categories");
  for (int i = 0; i < CATEGORY_COUNT; i++)
    json_add_int(categories, category_name((Category) i), record->categories[i]);
  cJSON *modules = cJSON_AddArrayToObject(peak, "modules");
  for (guint i = 0; i < model->modules_at_peak->len; i++) {
    const ModuleBytes *entry = &g_array_index(model->modules_at_peak, ModuleBytes, i);
    cJSON *object = cJSON_CreateObject();
    json_add_text(object, "module", *entry->module ? entry->module : NULL);
    json_add_int(object, "bytes", entry->bytes);
    cJSON_AddItemToArray(modules, object);
  }
  add_largest(peak, recording);
}

static void
add_cached(cJSON *memory, const Recording *recording)
{
  cJSON *cached = cJSON_AddObjectToObject(memory, "cached_bytes");
  for (guint i = 0; i < MIN(recording->cached->len, recording->streams->len); i++)
    json_add_int(cached, g_ptr_array_index(recording->streams, i),
                 g_array_index(recording->cached, gint64, i));
}

static void
add_memory(cJSON *report, const ReportModel *model)
{
  const Recording *recording = model->recording;
  cJSON *memory = cJSON_AddObjectToObject(report, "memory");
  add_limit(memory, "capacity_bytes", recording->capacity_bytes, recording->capacity_bytes);
  json_add_int(memory, "at_rest_bytes", recording->at_rest_bytes);
  json_add_int(memory, "peak_allocated_bytes", model->peak_allocated);
  json_add_int(memory, "peak_reserved_bytes", model->peak_reserved);
  json_add_int(memory, "outside_allocator_bytes", recording->outside_allocator_bytes);
  json_add_int(memory, "host_pinned_bytes", model->info->pinned_bytes);
  json_add_int(memory, "host_pageable_bytes", model->info->pageable_bytes);
  json_add_int(memory, "construction_allocated_bytes", recording->construction_allocated);
  json_add_int(memory, "construction_reserved_bytes", recording->construction_reserved);
  json_add_int(memory, "construction_peak_allocated_bytes", recording->construction_peak_allocated);
  json_add_int(memory, "construction_peak_reserved_bytes", recording->construction_peak_reserved);
  add_cached(memory, recording);
  add_peak(memory, model);
}

static cJSON *
phase_object(const PhaseSummary *phase)
{
  cJSON *object = cJSON_CreateObject();
  json_add_text(object, "name", phase->name);
  json_add_int(object, "micro_batch", phase->micro_batch);
  add_seconds(object, "start_s", phase->start);
  add_seconds(object, "end_s", phase->end);
  json_add_int(object, "peak_allocated_bytes", phase->peak_allocated);
  json_add_int(object, "peak_reserved_bytes", phase->peak_reserved);
  json_add_int(object, "end_allocated_bytes", phase->end_allocated);
  return object;
}

static void
add_steps(cJSON *report, const ReportModel *model)
{
  cJSON *steps = cJSON_AddArrayToObject(report, "steps");
  for (guint i = 0; i < model->steps->len; i++) {
    const StepSummary *step = &g_array_index(model->steps, StepSummary, i);
    cJSON *object = cJSON_CreateObject();
    json_add_int(object, "index", step->index);
    cJSON_AddBoolToObject(object, "complete", step->complete);
    add_seconds(object, "start_s", step->start);
    add_seconds(object, "time_s", step->duration);
    json_add_int(object, "peak_allocated_bytes", step->peak_allocated);
    json_add_int(object, "peak_reserved_bytes", step->peak_reserved);
    json_add_int(object, "allocator_retries", step->allocator_retries);
    cJSON *phases = cJSON_AddArrayToObject(object, "phases");
    for (guint j = 0; j < step->phases->len; j++)
      cJSON_AddItemToArray(phases, phase_object(&g_array_index(step->phases, PhaseSummary, j)));
    cJSON_AddItemToArray(steps, object);
  }
}

static cJSON *
beyond_object(const BeyondSummary *phase)
{
  cJSON *object = cJSON_CreateObject();
  json_add_text(object, "name", phase->name);
  json_add_int(object, "after_step", phase->after_step);
  cJSON_AddBoolToObject(object, "complete", phase->complete);
  add_seconds(object, "start_s", phase->start);
  add_seconds(object, "time_s", phase->duration);
  json_add_int(object, "start_allocated_bytes", phase->start_allocated);
  json_add_int(object, "peak_allocated_bytes", phase->peak_allocated);
  json_add_int(object, "peak_reserved_bytes", phase->peak_reserved);
  json_add_int(object, "end_allocated_bytes", phase->end_allocated);
  const PhaseInfo *info = phase->info;
  if (info) {
    json_add_int(object, "communication_bytes", info->communication_bytes);
    json_add_int(object, "host_copy_bytes", info->host_copy_bytes);
  }
  if (info && info->has_state)
    json_add_int(object, "state_bytes", info->state_bytes);
  if (info && info->sources > 0) {
    cJSON *sources = cJSON_AddArrayToObject(object, "source_bytes");
    for (int i = 0; i < info->sources; i++)
      cJSON_AddItemToArray(sources, cJSON_CreateNumber((double) info->source_bytes[i]));
  }
  if (info && info->has_state && info->rank_0_bytes >= 0) {
    json_add_int(object, "rank_0_bytes", info->rank_0_bytes);
    json_add_int(object, "other_ranks_bytes", info->others_bytes);
  }
  return object;
}

/* Only for plans that have such phases. */
static void
add_beyond(cJSON *report, const ReportModel *model)
{
  if (model->beyond->len == 0)
    return;
  cJSON *phases = cJSON_AddArrayToObject(report, "phases");
  for (guint i = 0; i < model->beyond->len; i++)
    cJSON_AddItemToArray(phases, beyond_object(&g_array_index(model->beyond, BeyondSummary, i)));
}

static void
add_time(cJSON *report, const ReportModel *model)
{
  const TimeSummary *time = &model->time;
  const StartupInfo *startup = &model->info->startup;
  const struct {
    const char *key;
    gboolean known;
    SimTime time;
  } durations[] = {
      {"step_s", time->known, time->step},
      {"compute_s", time->is_split, time->compute},
      {"communication_s", time->is_split, time->communication},
      {"exposed_communication_s", time->is_split, time->exposed},
      {"rank_wait_s", time->is_split, time->rank_wait},
      {"host_bound_s", time->is_split, time->host_bound},
      {"contention_s", time->is_split, time->contention},
      {"compute_contention_s", time->is_split, time->compute_contention},
      {"rate_limiter_s", time->is_split, time->rate_limited},
      {"allocator_s", time->is_split, time->allocator},
      {"startup_s", time->known && startup->collectives > 0, startup->time},
  };
  cJSON *object = cJSON_AddObjectToObject(report, "time");
  for (guint i = 0; i < G_N_ELEMENTS(durations); i++) {
    if (durations[i].known)
      add_seconds(object, durations[i].key, durations[i].time);
    else
      cJSON_AddNullToObject(object, durations[i].key);
  }
  add_known(object, "tokens_per_s_per_gpu", time->tokens_per_s);
  add_known(object, "mfu", time->mfu);
  add_known(object, "hfu", time->hfu);
  json_add_text(object, "bound_by", time->is_split ? report_bound_name(time->bound) : NULL);
}

/* How many stretches of the critical path are written. */
enum { MOST_STRETCHES = 100 };

static void
add_stretches(cJSON *object, const ReportModel *model)
{
  const CriticalPath *path = model->path;
  const Recording *recording = model->recording;
  SimTime shortest = critical_path_length_of(path, MOST_STRETCHES);
  cJSON *stretches = cJSON_AddArrayToObject(object, "stretches");
  for (guint i = 0; i < path->stretches->len; i++) {
    const PathStretch *stretch = &g_array_index(path->stretches, PathStretch, i);
    if (stretch->end - stretch->start < shortest)
      continue;
    cJSON *item = cJSON_CreateObject();
    add_seconds(item, "start_s", stretch->start);
    add_seconds(item, "end_s", stretch->end);
    json_add_text(item, "on", path_kind_name(stretch->kind));
    json_add_text(item, "stream",
                  stretch->stream < 0 ? NULL
                                      : g_ptr_array_index(recording->streams, stretch->stream));
    json_add_text(item, "name", report_text(recording, stretch->name, NULL));
    json_add_text(item, "module", report_text(recording, stretch->module, NULL));
    json_add_text(item, "communicator", report_text(recording, stretch->communicator, NULL));
    json_add_int(item, "spans", stretch->spans);
    cJSON_AddItemToArray(stretches, item);
  }
}

static void
add_critical_path(cJSON *report, const ReportModel *model)
{
  const CriticalPath *path = model->path;
  if (path == NULL) {
    cJSON_AddNullToObject(report, "critical_path");
    return;
  }
  cJSON *object = cJSON_AddObjectToObject(report, "critical_path");
  for (int kind = 0; kind < PATH_KINDS; kind++) {
    g_autofree char *key = g_strdup_printf("%s_s", path_kind_name((PathKind) kind));
    add_seconds(object, key, path->time[kind]);
  }
  add_seconds(object, "queued_s", path->queued);
  json_add_int(object, "stretch_count", path->stretches->len);
  add_stretches(object, model);
}

static void
add_communication(cJSON *report, const ReportModel *model)
{
  cJSON *communication = cJSON_AddArrayToObject(report, "communication");
  for (guint i = 0; i < model->communication->len; i++) {
    const CommunicationSummary *summary =
        &g_array_index(model->communication, CommunicationSummary, i);
    cJSON *object = cJSON_CreateObject();
    json_add_text(object, "communicator", summary->communicator);
    json_add_text(object, "collective", summary->collective);
    json_add_int(object, "count", summary->count);
    json_add_int(object, "bytes", summary->bytes);
    add_seconds(object, "time_s", summary->time);
    add_seconds(object, "exposed_s", summary->exposed);
    add_seconds(object, "contention_s", summary->contention);
    cJSON_AddItemToArray(communication, object);
  }
}

static void
add_host_copies(cJSON *report, const CopySummary *copies)
{
  cJSON *object = cJSON_AddObjectToObject(report, "host_copies");
  json_add_int(object, "count", copies->count);
  json_add_int(object, "bytes", copies->bytes);
  add_seconds(object, "time_s", copies->time);
}

static cJSON *
add_pass(cJSON *group, const char *key, const GroupPass *pass)
{
  cJSON *object = cJSON_AddObjectToObject(group, key);
  add_seconds(object, "compute_s", pass->compute);
  add_seconds(object, "gather_s", pass->gather);
  if (pass->gathered) {
    add_seconds(object, "gather_begun_s", pass->begun);
    add_seconds(object, "gather_needed_s", pass->needed);
    add_seconds(object, "gather_ready_s", pass->ready);
    add_seconds(object, "window_s", pass->window);
    add_seconds(object, "late_s", MAX(pass->ready - pass->needed, 0));
  } else {
    cJSON_AddNullToObject(object, "gather_begun_s");
    cJSON_AddNullToObject(object, "gather_needed_s");
    cJSON_AddNullToObject(object, "gather_ready_s");
    cJSON_AddNullToObject(object, "window_s");
    cJSON_AddNullToObject(object, "late_s");
  }
  return object;
}

static void
add_groups(cJSON *report, const ReportModel *model)
{
  cJSON *groups = cJSON_AddArrayToObject(report, "groups");
  for (guint i = 0; i < model->groups->len; i++) {
    const GroupSummary *group = &g_array_index(model->groups, GroupSummary, i);
    cJSON *object = cJSON_CreateObject();
    json_add_text(object, "name", group->info->name);
    cJSON *modules = cJSON_AddArrayToObject(object, "modules");
    for (guint j = 0; j < group->info->modules->len; j++)
      cJSON_AddItemToArray(modules, cJSON_CreateString(g_ptr_array_index(group->info->modules, j)));
    json_add_int(object, "parameters", group->info->parameters);
    json_add_int(object, "unsharded_bytes", group->info->unsharded_bytes);
    json_add_int(object, "shard_bytes", group->info->shard_bytes);
    json_add_int(object, "all_gathers", group->all_gathers);
    json_add_int(object, "reduce_scatters", group->reduce_scatters);
    cJSON *forward = add_pass(object, "forward", &group->forward);
    cJSON *backward = add_pass(object, "backward", &group->backward);
    if (model->info->prefetch.budget > 0) {
      json_add_int(forward, "prefetches", group->info->forward_prefetches);
      json_add_int(forward, "prefetched_bytes", group->info->forward_prefetched_bytes);
      json_add_int(backward, "prefetches", group->info->backward_prefetches);
      json_add_int(backward, "prefetched_bytes", group->info->backward_prefetched_bytes);
    }
    cJSON_AddItemToArray(groups, object);
  }
}

static void
add_retained(cJSON *report, const RunInfo *info)
{
  cJSON *array = cJSON_AddArrayToObject(report, "retained");
  for (guint i = 0; i < info->retained->len; i++) {
    const RetainedInfo *retained = &g_array_index(info->retained, RetainedInfo, i);
    cJSON *object = cJSON_CreateObject();
    json_add_text(object, "group", retained->group);
    json_add_text(object, "held_by", retained->held_by);
    json_add_int(object, "bytes", retained->bytes);
    cJSON_AddItemToArray(array, object);
  }
}

static void
add_warnings(cJSON *report, const ReportModel *model)
{
  cJSON *warnings = cJSON_AddArrayToObject(report, "warnings");
  for (guint i = 0; i < model->warnings->len; i++)
    cJSON_AddItemToArray(warnings, cJSON_CreateString(g_ptr_array_index(model->warnings, i)));
}

char *
summary_json(const ReportModel *model)
{
  const RunInfo *info = model->info;
  cJSON *report = cJSON_CreateObject();
  json_add_text(report, "format", "highwater-report-1");
  add_model(report, info);
  add_plan(report, info);
  add_cluster(report, info);
  add_ranks(report, info, &model->time);
  add_prefetch(report, model);
  if (model->has_memory)
    cJSON_AddBoolToObject(report, "fits", model->verdict != VERDICT_DOES_NOT_FIT);
  else
    cJSON_AddNullToObject(report, "fits");
  json_add_text(report, "verdict", model->has_memory ? report_verdict_name(model->verdict) : NULL);
  json_add_int(report, "allocator_retries", model->allocator_retries);
  add_limit(report, "headroom_bytes", model->headroom, model->recording->capacity_bytes);
  if (info->equivalent_zero_stage >= 0)
    json_add_int(report, "equivalent_zero_stage", info->equivalent_zero_stage);
  else
    cJSON_AddNullToObject(report, "equivalent_zero_stage");
  gboolean has_paper = info->elements_sent > 0 && info->equivalent_zero_stage >= 0;
  add_known(report, "elements_sent_per_parameter", info->elements_sent);
  add_known(report, "elements_sent_per_parameter_by_paper",
            has_paper ? zero_states(info->equivalent_zero_stage, 1, 2).sent : 0);
  add_out_of_memory(report, model);
  add_memory(report, model);
  add_steps(report, model);
  json_add_int(report, "repeated_steps", info->repeated_steps);
  add_beyond(report, model);
  add_time(report, model);
  add_critical_path(report, model);
  add_communication(report, model);
  add_host_copies(report, &model->copies);
  add_groups(report, model);
  add_retained(report, info);
  summary_json_failure(report, info->failure);
  add_warnings(report, model);
  return json_finish(report);
}
