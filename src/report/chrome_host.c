/* chrome_host.c - tracks of the host's program: steps, phases, hooks and modules.
 *
 * They nest as the program opened and closed them.  One that took no time is left out: beside
 * another that begins at that moment it would seem to lie in it. */
#include "report/chrome_parts.h"

/* A step is over where the next one or a phase beyond it begins: its last range for the last. */
static SimTime
end_of_step(const Recording *recording, guint i)
{
  const StepRecord *step = &g_array_index(recording->steps, StepRecord, i);
  SimTime end = 0;
  for (guint k = 0; k < recording->ranges->len; k++)
    end = MAX(end, g_array_index(recording->ranges, Range, k).end);
  if (i + 1 < recording->steps->len)
    end = step[1].start;
  for (guint k = 0; k < recording->beyond->len; k++) {
    const BeyondRecord *beyond = &g_array_index(recording->beyond, BeyondRecord, k);
    SimTime start = g_array_index(recording->ranges, Range, beyond->range).start;
    if (start >= step->start)
      end = MIN(end, start);
  }
  return MAX(end, step->start);
}

static void
write_steps(ChromeTrace *trace)
{
  const Recording *r = trace->recording;
  for (guint i = 0; i < r->steps->len; i++) {
    const StepRecord *step = &g_array_index(r->steps, StepRecord, i);
    g_autofree char *name = g_strdup_printf("ProfilerStep#%d", step->index);
    chrome_event_begin(&trace->out, "X", "user_annotation", name, HOST_PROCESS, HOST_THREAD);
    chrome_event_interval(&trace->out, step->start, end_of_step(r, i));
    chrome_event_us(&trace->out, "done", step->end);
    if (step->allocator_retries > 0)
      chrome_event_number(&trace->out, "allocator_retries", step->allocator_retries);
    chrome_event_end(&trace->out);
  }
}

static char *
range_name(const Recording *recording, const Range *range)
{
  const char *name = recording_text(recording, range->name);
  if (range->kind == RECORDED_MODULE)
    return g_strdup_printf("nn.Module: %s", recording_text(recording, range->module));
  if (range->kind == RECORDED_PHASE && range->micro_batch > 0)
    return g_strdup_printf("%s %d", name, range->micro_batch);
  return g_strdup(name);
}

static void
write_range(ChromeTrace *trace, const Range *range)
{
  const Recording *r = trace->recording;
  g_autofree char *name = range_name(r, range);
  chrome_event_begin(&trace->out, "X",
                     range->kind == RECORDED_MODULE ? "python_function" : "user_annotation", name,
                     HOST_PROCESS, HOST_THREAD);
  chrome_event_interval(&trace->out, range->start, range->end);
  if (range->kind == RECORDED_PHASE) {
    chrome_event_text(&trace->out, "phase", recording_text(r, range->name));
    chrome_event_number(&trace->out, "micro_batch", range->micro_batch);
  }
  if (range->module >= 0)
    chrome_event_text(&trace->out, "module", recording_text(r, range->module));
  chrome_event_end(&trace->out);
}

void
chrome_host_write(ChromeTrace *trace)
{
  const GArray *ranges = trace->recording->ranges;
  write_steps(trace);
  for (guint i = 0; i < ranges->len; i++) {
    const Range *range = &g_array_index(ranges, Range, i);
    if (range->end > range->start)
      write_range(trace, range);
  }
}
