/* replay_report_json.c - a replay as one JSON object. */
#include "base/json_output.h"
#include "cli/replay_report.h"

static void
add_phase(cJSON *object, const AllocationTrace *trace, gint32 phase)
{
  if (phase >= 0)
    cJSON_AddStringToObject(object, "phase", g_ptr_array_index(trace->phases, (guint) phase));
  else
    cJSON_AddNullToObject(object, "phase");
}

static void
add_moment(cJSON *object, const char *key, const AllocationTrace *trace, const ReplayMoment *moment)
{
  cJSON *json = cJSON_AddObjectToObject(object, key);
  json_add_int(json, "event", moment->event);
  add_phase(json, trace, moment->phase);
  json_add_int(json, "allocated_bytes", moment->allocated);
  json_add_int(json, "reserved_bytes", moment->reserved);
  json_add_int(json, "unallocated_bytes", moment->reserved - moment->allocated);
  json_add_int(json, "active_bytes", moment->active);
  json_add_int(json, "requested_bytes", moment->requested);
  json_add_int(json, "inactive_split_bytes", moment->inactive_split);
}

static void
add_failure(cJSON *object, const AllocationTrace *trace, const TraceReplay *replay)
{
  if (replay->out_of_memory_at < 0) {
    cJSON_AddNullToObject(object, "out_of_memory");
    return;
  }
  const TraceEvent *event = trace_event(trace, (guint) replay->out_of_memory_at);
  cJSON *json = cJSON_AddObjectToObject(object, "out_of_memory");
  json_add_int(json, "event", replay->out_of_memory_at);
  add_phase(json, trace, replay->end.phase);
  if (event->frame >= 0 && (guint) event->frame < trace->frames->len)
    cJSON_AddStringToObject(json, "frame", g_ptr_array_index(trace->frames, (guint) event->frame));
  json_add_int(json, "requested_bytes", replay->failure.requested_bytes);
  json_add_int(json, "segment_bytes", replay->failure.segment_bytes);
  json_add_int(json, "limit_bytes", replay->failure.limit_bytes);
  json_add_int(json, "allocated_bytes", replay->failure.allocated_bytes);
  json_add_int(json, "reserved_bytes", replay->failure.reserved_bytes);
  json_add_int(json, "peak_allocated_bytes", replay->stats.allocated_bytes.peak);
  json_add_int(json, "peak_reserved_bytes", replay->stats.reserved_bytes.peak);
}

static void
add_streams(cJSON *object, const TraceReplay *replay)
{
  cJSON *list = cJSON_AddArrayToObject(object, "streams");
  for (guint i = 0; i < replay->streams->len; i++) {
    const ReplayStream *stream = &g_array_index(replay->streams, ReplayStream, i);
    cJSON *json = cJSON_CreateObject();
    cJSON_AddItemToArray(list, json);
    json_add_int(json, "stream", (gint64) stream->stream);
    json_add_int(json, "peak_allocated_bytes", stream->peak_allocated);
    json_add_int(json, "peak_reserved_bytes", stream->peak_reserved);
    json_add_int(json, "allocated_bytes_at_peak", stream->allocated_at_peak);
    json_add_int(json, "reserved_bytes_at_peak", stream->reserved_at_peak);
    json_add_int(json, "end_allocated_bytes", stream->allocated);
    json_add_int(json, "end_reserved_bytes", stream->reserved);
    json_add_int(json, "end_cached_bytes", stream->cached);
  }
}

static void
add_pools(cJSON *object, const TraceReplay *replay)
{
  g_autoptr(GArray) summaries = replay_pool_summaries(replay);
  gint64 segments = 0;
  cJSON *list = cJSON_CreateArray();
  for (guint i = 0; i < summaries->len; i++) {
    const PoolSummary *summary = &g_array_index(summaries, PoolSummary, i);
    const ReplayStream *stream =
        &g_array_index(replay->streams, ReplayStream, (guint) summary->stream);
    cJSON *json = cJSON_CreateObject();
    cJSON_AddItemToArray(list, json);
    json_add_int(json, "stream", (gint64) stream->stream);
    cJSON_AddStringToObject(json, "pool", summary->small_pool ? "small" : "large");
    json_add_int(json, "segments", summary->segments);
    json_add_int(json, "reserved_bytes", summary->reserved);
    json_add_int(json, "allocated_bytes", summary->allocated);
    json_add_int(json, "largest_free_bytes", summary->largest_free);
    segments += summary->segments;
  }
  json_add_int(object, "segments", segments);
  cJSON_AddItemToObject(object, "pools", list);
}

static void
add_phases(cJSON *object, const AllocationTrace *trace, const TraceReplay *replay)
{
  cJSON *list = cJSON_AddArrayToObject(object, "phases");
  for (guint i = 0; i < replay->phases->len; i++) {
    const ReplayPhase *phase = &g_array_index(replay->phases, ReplayPhase, i);
    cJSON *json = cJSON_CreateObject();
    cJSON_AddItemToArray(list, json);
    cJSON_AddStringToObject(json, "phase", g_ptr_array_index(trace->phases, (guint) phase->phase));
    json_add_int(json, "first_event", phase->first_event);
    json_add_int(json, "peak_allocated_bytes", phase->peak_allocated);
    json_add_int(json, "peak_reserved_bytes", phase->peak_reserved);
  }
}

static void
add_misplaced(cJSON *object, const TraceReplay *replay)
{
  if (replay->first_misplaced < 0) {
    cJSON_AddNullToObject(object, "first_misplaced");
    return;
  }
  cJSON *json = cJSON_AddObjectToObject(object, "first_misplaced");
  json_add_int(json, "event", replay->first_misplaced);
  json_add_int(json, "trace_address", (gint64) replay->trace_address);
  json_add_int(json, "replay_address", (gint64) replay->replay_address);
}

static void
add_comparison(cJSON *object, const AllocationTrace *trace, const TraceReplay *replay)
{
  if (trace->recorded_peak_allocated >= 0 && trace->recorded_peak_reserved >= 0) {
    cJSON *recorded = cJSON_AddObjectToObject(object, "recorded");
    json_add_int(recorded, "peak_allocated_bytes", trace->recorded_peak_allocated);
    json_add_int(recorded, "peak_reserved_bytes", trace->recorded_peak_reserved);
  } else {
    cJSON_AddNullToObject(object, "recorded");
  }
  json_add_int(object, "segment_events_compared", replay->segment_events_compared);
  json_add_int(object, "empty_caches", replay->empty_caches);
  add_misplaced(object, replay);
  if (replay->first_divergence < 0) {
    cJSON_AddNullToObject(object, "first_divergence");
    return;
  }
  cJSON *json = cJSON_AddObjectToObject(object, "first_divergence");
  json_add_int(json, "event", replay->first_divergence);
  cJSON_AddStringToObject(json, "trace", replay->trace_did);
  cJSON_AddStringToObject(json, "replay", replay->replay_did);
}

static void
add_limit(cJSON *object, const AllocatorConfig *config)
{
  gint64 limit = MIN(config->memory_limit, config->process_limit);
  json_add_known_int(object, "limit_bytes", limit < G_MAXINT64, limit);
  cJSON_AddBoolToObject(object, "expandable_segments", config->expandable_segments);
}

char *
replay_report_json(const AllocationTrace *trace, const TraceReplay *replay)
{
  const AllocatorStats *stats = &replay->stats;
  cJSON *object = cJSON_CreateObject();
  cJSON_AddStringToObject(object, "format", "highwater-replay-1");
  cJSON_AddStringToObject(object, "trace", trace->name);
  json_add_int(object, "events", trace->events->len);
  add_limit(object, &trace->config);
  json_add_int(object, "peak_allocated_bytes", replay->complete_peak_allocated);
  json_add_int(object, "peak_reserved_bytes", replay->complete_peak_reserved);
  json_add_int(object, "peak_active_bytes", stats->active_bytes.peak);
  json_add_int(object, "peak_requested_bytes", stats->requested_bytes.peak);
  json_add_int(object, "peak_inactive_split_bytes", stats->inactive_split_bytes.peak);
  add_failure(object, trace, replay);
  add_pools(object, replay);
  json_add_int(object, "allocator_retries", stats->num_alloc_retries);
  json_add_int(object, "device_allocations", stats->num_device_alloc);
  json_add_int(object, "device_frees", stats->num_device_free);
  cJSON *fragmentation = cJSON_AddObjectToObject(object, "fragmentation");
  add_moment(fragmentation, "peak_allocated", trace, &replay->peak_allocated);
  add_moment(fragmentation, "peak_reserved", trace, &replay->peak_reserved);
  add_moment(fragmentation, "end", trace, &replay->end);
  add_streams(object, replay);
  add_phases(object, trace, replay);
  add_comparison(object, trace, replay);
  return json_finish(object);
}
