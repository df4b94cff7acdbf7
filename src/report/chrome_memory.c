/* chrome_memory.c - allocations and frees as the profiler's "[memory]" instants, and counters of
 * allocated and reserved memory and of each category. */
#include "report/chrome_parts.h"

#include "base/category.h"

/* c10::DeviceType of a GPU. */
enum { DEVICE_TYPE_CUDA = 1 };

/* ---- what the time does not tell: whether a step or a phase that begins then has begun ---- */

static const MemoryEvent *
event_at(const Recording *recording, guint i)
{
  return &g_array_index(recording->memory, MemoryEvent, i);
}

/* The first event at that moment or later. */
static guint
first_from(const Recording *recording, SimTime time)
{
  guint low = 0, high = recording->memory->len;
  while (low < high) {
    guint middle = low + (high - low) / 2;
    if (event_at(recording, middle)->time < time)
      low = middle + 1;
    else
      high = middle;
  }
  return low;
}

/* Of the events at the moment at which the phase begins those that come when as much is allocated
 * as it begins with. */
static void
set_phase(const Recording *recording, const Range *phase, gint32 *begun)
{
  guint i = first_from(recording, phase->start), n = recording->memory->len;
  gint64 level = i > 0 ? event_at(recording, i - 1)->allocated_after : 0;
  for (; i < n && event_at(recording, i)->time == phase->start; i++) {
    if (level == phase->start_allocated)
      break;
    level = event_at(recording, i)->allocated_after;
  }
  for (; i < n && event_at(recording, i)->time == phase->start; i++)
    begun[i] = phase->name;
}

/* For each event a phase that has just begun; -1: none. */
static gint32 *
phases_begun(const Recording *recording)
{
  gint32 *begun = g_new(gint32, recording->memory->len + 1);
  for (guint i = 0; i < recording->memory->len; i++)
    begun[i] = -1;
  for (guint i = 0; i < recording->ranges->len; i++) {
    const Range *range = &g_array_index(recording->ranges, Range, i);
    if (range->kind == RECORDED_PHASE && range->end > range->start)
      set_phase(recording, range, begun);
  }
  return begun;
}

/* The step that a moment seems to be in: one that begins then has not begun. */
static int
step_at(const Recording *recording, SimTime time)
{
  guint low = 0, high = recording->steps->len;
  while (low < high) {
    guint middle = low + (high - low) / 2;
    if (g_array_index(recording->steps, StepRecord, middle).start < time)
      low = middle + 1;
    else
      high = middle;
  }
  return (int) low;
}

/* ---- events ---- */

/* time: where it is drawn; begun: a phase, or -1. */
static void
write_instant(ChromeTrace *trace, const MemoryEvent *event, SimTime time, gint32 begun)
{
  const Recording *r = trace->recording;
  ChromeEvents *out = &trace->out;
  chrome_event_begin(out, "i", "cpu_instant_event", "[memory]", HOST_PROCESS, HOST_THREAD);
  chrome_event_time(out, time);
  chrome_event_member(out, "s", "t");
  chrome_event_number(out, "Total Reserved", event->reserved_after);
  chrome_event_number(out, "Total Allocated", event->allocated_after);
  chrome_event_number(out, "Bytes", event->block_bytes);
  chrome_event_number(out, "Addr", (gint64) event->address);
  chrome_event_number(out, "Device Id", 0);
  chrome_event_number(out, "Device Type", DEVICE_TYPE_CUDA);
  if (time != event->time)
    chrome_event_us(out, "at", event->time);
  if (event->step != step_at(r, event->time))
    chrome_event_number(out, "step", event->step);
  if (begun >= 0)
    chrome_event_text(out, "phase", recording_text(r, begun));
  if (event->block_bytes > 0) {
    if (event->requested_bytes != event->block_bytes)
      chrome_event_number(out, "requested", event->requested_bytes);
    chrome_event_number(out, "stream", chrome_stream(event->stream));
    chrome_event_text(out, "category", category_name((Category) event->category));
    if (event->module >= 0)
      chrome_event_text(out, "module", recording_text(r, event->module));
    if (event->what >= 0)
      chrome_event_text(out, "what", recording_text(r, event->what));
  }
  chrome_event_end(out);
}

static void
write_counter(ChromeTrace *trace, const char *name, SimTime time, gint64 bytes)
{
  chrome_event_begin(&trace->out, "C", NULL, name, DEVICE_PROCESS, 0);
  chrome_event_time(&trace->out, time);
  chrome_event_number(&trace->out, "bytes", bytes);
  chrome_event_end(&trace->out);
}

static void
write_categories(ChromeTrace *trace, SimTime time, const gint64 bytes[CATEGORY_COUNT])
{
  chrome_event_begin(&trace->out, "C", NULL, "by category", DEVICE_PROCESS, 0);
  chrome_event_time(&trace->out, time);
  for (int i = 0; i < CATEGORY_COUNT; i++)
    chrome_event_number(&trace->out, category_name((Category) i), bytes[i]);
  chrome_event_end(&trace->out);
}

static void
write_out_of_memory(ChromeTrace *trace, SimTime time)
{
  const OutOfMemoryRecord *record = &trace->recording->out_of_memory;
  ChromeEvents *out = &trace->out;
  chrome_event_begin(out, "i", "cpu_instant_event", "[OutOfMemory]", HOST_PROCESS, HOST_THREAD);
  chrome_event_time(out, time);
  chrome_event_member(out, "s", "t");
  chrome_event_number(out, "Total Reserved", record->reserved_bytes);
  chrome_event_number(out, "Total Allocated", record->allocated_bytes);
  chrome_event_number(out, "Bytes", record->requested_bytes);
  chrome_event_number(out, "Device Id", 0);
  chrome_event_number(out, "Device Type", DEVICE_TYPE_CUDA);
  chrome_event_end(out);
}

/* When the host gave up: its last range and its last event are not later. */
static SimTime
last_time(const Recording *recording)
{
  SimTime last = 0;
  for (guint i = 0; i < recording->ranges->len; i++)
    last = MAX(last, g_array_index(recording->ranges, Range, i).end);
  guint n = recording->memory->len;
  return n > 0 ? MAX(last, event_at(recording, n - 1)->time) : last;
}

void
chrome_memory_write(ChromeTrace *trace)
{
  const Recording *r = trace->recording;
  gint64 bytes[CATEGORY_COUNT] = {0}, reserved = -1;
  SimTime drawn = -1;
  g_autofree gint32 *begun = phases_begun(r);
  for (guint i = 0; i < r->memory->len; i++) {
    const MemoryEvent *event = event_at(r, i);
    bytes[event->category] += event->block_bytes;
    /* Instants of one moment are stacked in Perfetto, which has an end. */
    drawn = MAX(event->time, drawn + 1);
    write_instant(trace, event, drawn, begun[i]);
    write_counter(trace, "allocated", event->time, event->allocated_after);
    if (event->reserved_after != reserved)
      write_counter(trace, "reserved", event->time, event->reserved_after);
    reserved = event->reserved_after;
    write_categories(trace, event->time, bytes);
  }
  if (r->out_of_memory.happened)
    write_out_of_memory(trace, last_time(r));
}
