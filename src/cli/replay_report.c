/* replay_report.c - a replay as text: what happened first, then tables. */
#include "cli/replay_report.h"
#include "base/text_table.h"
#include "base/units.h"

static PoolSummary *
summary_of(GArray *summaries, const BlockInfo *block)
{
  for (guint i = 0; i < summaries->len; i++) {
    PoolSummary *summary = &g_array_index(summaries, PoolSummary, i);
    if (summary->stream == block->stream && summary->small_pool == block->small_pool)
      return summary;
  }
  PoolSummary summary = {.stream = block->stream, .small_pool = block->small_pool};
  g_array_append_val(summaries, summary);
  return &g_array_index(summaries, PoolSummary, summaries->len - 1);
}

static gint
compare_summaries(gconstpointer a, gconstpointer b)
{
  const PoolSummary *first = a, *second = b;
  if (first->stream != second->stream)
    return first->stream < second->stream ? -1 : 1;
  return first->small_pool - second->small_pool;
}

GArray *
replay_pool_summaries(const TraceReplay *replay)
{
  GArray *summaries = g_array_new(FALSE, FALSE, sizeof(PoolSummary));
  for (guint i = 0; i < replay->blocks->len; i++) {
    const BlockInfo *block = &g_array_index(replay->blocks, BlockInfo, i);
    PoolSummary *summary = summary_of(summaries, block);
    summary->segments += block->address == block->segment_address;
    summary->reserved += block->bytes;
    if (block->state == BLOCK_ALLOCATED)
      summary->allocated += block->bytes;
    else if (block->state == BLOCK_INACTIVE)
      summary->largest_free = MAX(summary->largest_free, block->bytes);
  }
  g_array_sort(summaries, compare_summaries);
  return summaries;
}

static const char *
phase_name(const AllocationTrace *trace, gint32 phase)
{
  return phase >= 0 ? g_ptr_array_index(trace->phases, (guint) phase) : "";
}

static void
print_failure(const AllocationTrace *trace, const TraceReplay *replay, GString *out)
{
  const AllocatorFailure *failure = &replay->failure;
  g_autofree char *requested = format_bytes(failure->requested_bytes);
  g_autofree char *segment = format_bytes(failure->segment_bytes);
  g_autofree char *limit = format_bytes(failure->limit_bytes);
  g_autofree char *allocated = format_bytes(failure->allocated_bytes);
  g_autofree char *rest = format_bytes(failure->reserved_bytes - failure->allocated_bytes);
  const TraceEvent *event = trace_event(trace, (guint) replay->out_of_memory_at);
  g_string_append_printf(out,
                         "Out of memory at event %d: tried to allocate %s for a tensor of %s.\n"
                         "Of the limit of %s, %s are allocated and %s are reserved but not "
                         "allocated.\n",
                         replay->out_of_memory_at, segment, requested, limit, allocated, rest);
  if (event->frame >= 0 && (guint) event->frame < trace->frames->len)
    g_string_append_printf(out, "Requested by %s\n",
                           (const char *) g_ptr_array_index(trace->frames, (guint) event->frame));
  g_string_append_c(out, '\n');
}

static void
add_moment(TextTable *table, const char *name, const AllocationTrace *trace,
           const ReplayMoment *moment)
{
  g_autofree char *event =
      moment->event >= 0 ? g_strdup_printf("%d", moment->event) : g_strdup("start");
  g_autofree char *allocated = format_bytes(moment->allocated);
  g_autofree char *reserved = format_bytes(moment->reserved);
  g_autofree char *rest = format_bytes(moment->reserved - moment->allocated);
  g_autofree char *split = format_bytes(moment->inactive_split);
  text_table_row(table, name, event, phase_name(trace, moment->phase), allocated, reserved, rest,
                 split, NULL);
}

static void
print_moments(const AllocationTrace *trace, const TraceReplay *replay, GString *out)
{
  g_autoptr(TextTable) table = text_table_new("lrlrrrr");
  text_table_row(table, "", "event", "phase", "allocated", "reserved", "not allocated",
                 "inactive split", NULL);
  add_moment(table, "peak allocated", trace, &replay->peak_allocated);
  add_moment(table, "peak reserved", trace, &replay->peak_reserved);
  add_moment(table, "end", trace, &replay->end);
  text_table_print(table, 0, out);
}

static void
print_streams(const TraceReplay *replay, GString *out)
{
  g_autoptr(TextTable) table = text_table_new("lrrrr");
  text_table_row(table, "stream", "peak allocated", "peak reserved", "allocated at peak",
                 "reserved at peak", NULL);
  for (guint i = 0; i < replay->streams->len; i++) {
    const ReplayStream *stream = &g_array_index(replay->streams, ReplayStream, i);
    g_autofree char *name = g_strdup_printf("%" G_GUINT64_FORMAT, stream->stream);
    g_autofree char *allocated = format_bytes(stream->peak_allocated);
    g_autofree char *reserved = format_bytes(stream->peak_reserved);
    g_autofree char *allocated_at_peak = format_bytes(stream->allocated_at_peak);
    g_autofree char *reserved_at_peak = format_bytes(stream->reserved_at_peak);
    text_table_row(table, name, allocated, reserved, allocated_at_peak, reserved_at_peak, NULL);
  }
  g_string_append_c(out, '\n');
  text_table_print(table, 0, out);
}

static void
print_pools(const TraceReplay *replay, GString *out)
{
  g_autoptr(GArray) summaries = replay_pool_summaries(replay);
  if (summaries->len == 0)
    return;
  g_autoptr(TextTable) table = text_table_new("llrrrr");
  text_table_row(table, "stream", "pool at end", "segments", "reserved", "allocated",
                 "largest free", NULL);
  for (guint i = 0; i < summaries->len; i++) {
    const PoolSummary *summary = &g_array_index(summaries, PoolSummary, i);
    g_autofree char *name = g_strdup_printf(
        "%" G_GUINT64_FORMAT,
        g_array_index(replay->streams, ReplayStream, (guint) summary->stream).stream);
    g_autofree char *segments = format_grouped(summary->segments);
    g_autofree char *reserved = format_bytes(summary->reserved);
    g_autofree char *allocated = format_bytes(summary->allocated);
    g_autofree char *largest = format_bytes(summary->largest_free);
    text_table_row(table, name, summary->small_pool ? "small" : "large", segments, reserved,
                   allocated, largest, NULL);
  }
  g_string_append_c(out, '\n');
  text_table_print(table, 0, out);
}

static void
print_phases(const AllocationTrace *trace, const TraceReplay *replay, GString *out)
{
  if (replay->phases->len == 0)
    return;
  g_autoptr(TextTable) table = text_table_new("lrrr");
  text_table_row(table, "phase", "from event", "peak allocated", "peak reserved", NULL);
  for (guint i = 0; i < replay->phases->len; i++) {
    const ReplayPhase *phase = &g_array_index(replay->phases, ReplayPhase, i);
    g_autofree char *first = g_strdup_printf("%d", phase->first_event);
    g_autofree char *allocated = format_bytes(phase->peak_allocated);
    g_autofree char *reserved = format_bytes(phase->peak_reserved);
    text_table_row(table, g_ptr_array_index(trace->phases, (guint) phase->phase), first, allocated,
                   reserved, NULL);
  }
  g_string_append_c(out, '\n');
  text_table_print(table, 0, out);
}

static void
print_comparison(const AllocationTrace *trace, const TraceReplay *replay, GString *out)
{
  if (!trace->has_segment_events)
    return;
  g_string_append_c(out, '\n');
  if (trace->recorded_peak_allocated >= 0 && trace->recorded_peak_reserved >= 0)
    g_string_append_printf(out,
                           "Recorded peaks: %" G_GINT64_FORMAT " B allocated (%+" G_GINT64_FORMAT
                           " here), %" G_GINT64_FORMAT " B reserved (%+" G_GINT64_FORMAT
                           " here).\n",
                           trace->recorded_peak_allocated,
                           replay->complete_peak_allocated - trace->recorded_peak_allocated,
                           trace->recorded_peak_reserved,
                           replay->complete_peak_reserved - trace->recorded_peak_reserved);
  if (replay->first_misplaced >= 0)
    g_string_append_printf(out,
                           "First allocation at another address at event %d: %" G_GUINT64_FORMAT
                           " in the trace, %" G_GUINT64_FORMAT " here.\n",
                           replay->first_misplaced, replay->trace_address, replay->replay_address);
  if (replay->first_divergence < 0)
    g_string_append_printf(out, "No divergence: %u segment events are the trace's.\n",
                           replay->segment_events_compared);
  else
    g_string_append_printf(out,
                           "First divergence at event %d, after %u equal segment events:\n"
                           "  the trace did %s\n  the replay did %s\n",
                           replay->first_divergence, replay->segment_events_compared,
                           replay->trace_did, replay->replay_did);
}

char *
replay_report_text(const AllocationTrace *trace, const TraceReplay *replay)
{
  GString *out = g_string_new(NULL);
  const AllocatorConfig *config = &trace->config;
  gint64 most = MIN(config->memory_limit, config->process_limit);
  g_autofree char *limit = most < G_MAXINT64 ? format_bytes(most) : g_strdup("none");
  g_string_append_printf(
      out, "%s: %u event%s on %u stream%s, %u segments at the start; limit %s%s\n\n", trace->name,
      trace->events->len, trace->events->len == 1 ? "" : "s", trace->streams->len,
      trace->streams->len == 1 ? "" : "s", trace->segments->len, limit,
      config->expandable_segments ? ", expandable segments" : "");
  if (replay->out_of_memory_at >= 0)
    print_failure(trace, replay, out);
  print_moments(trace, replay, out);
  print_streams(replay, out);
  print_pools(replay, out);
  print_phases(trace, replay, out);
  g_string_append_printf(out,
                         "\nThe allocator asked the device %" G_GINT64_FORMAT
                         " times for memory, gave some back %" G_GINT64_FORMAT
                         " times, retried %" G_GINT64_FORMAT " times.\n",
                         replay->stats.num_device_alloc, replay->stats.num_device_free,
                         replay->stats.num_alloc_retries);
  print_comparison(trace, replay, out);
  return g_string_free(out, FALSE);
}
