/* timeline_table.c - memory by category over the host's time, one row a change; phases, steps and
 * marks beside it. */
#include "report/timeline_table.h"

/* Rows that one stretch of a thinned table can keep. */
enum { ROWS_OF_STRETCH = 4 };

typedef struct {
  const Recording *recording;
  GString *out;
} Timeline;

/* Memory at a moment. */
typedef struct {
  gint64 allocated, reserved;
  gint64 categories[CATEGORY_COUNT]; /* they sum to allocated */
} MemoryState;

static const MemoryEvent *
event_at(const Recording *recording, guint i)
{
  return &g_array_index(recording->memory, MemoryEvent, i);
}

/* A table is a few million numbers; printf is slow at them. */
static void
append_number(GString *out, gint64 number)
{
  char digits[24];
  char *start = digits + sizeof digits;
  guint64 rest = number < 0 ? -(guint64) number : (guint64) number;
  do
    *--start = (char) ('0' + rest % 10);
  while ((rest /= 10) > 0);
  if (number < 0)
    *--start = '-';
  g_string_append_len(out, start, digits + sizeof digits - start);
}

static void
append_time(GString *out, SimTime time)
{
  g_string_append_printf(out, "%" G_GINT64_FORMAT ".%09" G_GINT64_FORMAT, time / 1000000000,
                         time % 1000000000);
}

/* ---- which rows ---- */

static void
keep_extremes(const Recording *recording, guint begin, guint end, GByteArray *keep)
{
  guint high = begin, low = begin, reserved = begin;
  for (guint i = begin; i < end; i++) {
    const MemoryEvent *event = event_at(recording, i);
    if (event->allocated_after > event_at(recording, high)->allocated_after)
      high = i;
    if (event->allocated_after < event_at(recording, low)->allocated_after)
      low = i;
    if (event->reserved_after > event_at(recording, reserved)->reserved_after)
      reserved = i;
  }
  keep->data[end - 1] = keep->data[high] = keep->data[low] = keep->data[reserved] = TRUE;
}

/* One flag an event.  Stretches are equally many events, so that busy moments keep more rows than
 * quiet ones. */
static GByteArray *
choose_rows(const Recording *recording, guint max_changes)
{
  guint count = recording->memory->len;
  GByteArray *keep = g_byte_array_sized_new(count);
  g_byte_array_set_size(keep, count);
  for (guint i = 0; i < count; i++)
    keep->data[i] = count <= max_changes;
  if (count <= max_changes)
    return keep;
  guint stretches = max_changes / ROWS_OF_STRETCH;
  for (guint i = 0; i < stretches; i++) {
    guint begin = (guint) ((guint64) count * i / stretches);
    guint end = (guint) ((guint64) count * (i + 1) / stretches);
    keep_extremes(recording, begin, end, keep);
  }
  return keep;
}

/* ---- blocks ---- */

static void
append_row(const Timeline *timeline, SimTime time, const MemoryState *state)
{
  append_time(timeline->out, time);
  g_string_append_c(timeline->out, ' ');
  append_number(timeline->out, state->allocated);
  g_string_append_c(timeline->out, ' ');
  append_number(timeline->out, state->reserved);
  for (int i = 0; i < CATEGORY_COUNT; i++) {
    g_string_append_c(timeline->out, ' ');
    append_number(timeline->out, state->categories[i]);
  }
  g_string_append_c(timeline->out, '\n');
}

/* When the host was done with the last phase. */
static SimTime
last_phase_end(const Recording *recording)
{
  SimTime end = 0;
  for (guint i = 0; i < recording->ranges->len; i++) {
    const Range *range = &g_array_index(recording->ranges, Range, i);
    if (range->kind == RECORDED_PHASE)
      end = MAX(end, range->end);
  }
  return end;
}

static void
append_memory(const Timeline *timeline, const TimelineStyle *style)
{
  const Recording *recording = timeline->recording;
  g_string_append(timeline->out, "# memory\n# time_s allocated_bytes reserved_bytes");
  for (int i = 0; i < CATEGORY_COUNT; i++)
    g_string_append_printf(timeline->out, " %s", category_name((Category) i));
  g_string_append_c(timeline->out, '\n');
  if (recording->memory->len == 0)
    return;
  /* What was there before the recording began belongs to nothing known. */
  const MemoryEvent *first = event_at(recording, 0);
  MemoryState state = {
      .categories[CATEGORY_OTHER] = first->allocated_after - first->block_bytes,
  };
  MemoryState shown = state;
  g_autoptr(GByteArray) keep = choose_rows(recording, style->max_changes);
  for (guint i = 0; i < recording->memory->len; i++) {
    const MemoryEvent *event = event_at(recording, i);
    state.categories[event->category] += event->block_bytes;
    state.allocated = event->allocated_after;
    state.reserved = event->reserved_after;
    if (!keep->data[i])
      continue;
    if (style->corners && i > 0)
      append_row(timeline, event->time, &shown);
    append_row(timeline, event->time, &state);
    shown = state;
  }
  SimTime end = last_phase_end(recording);
  if (style->corners && end > event_at(recording, recording->memory->len - 1)->time)
    append_row(timeline, end, &state);
}

/* Construction is step 0 and its phase: it lasts until the first step begins or the recording ends.
 */
static StepRecord
construction(const Recording *recording)
{
  guint events = recording->memory->len;
  SimTime end = events > 0 ? event_at(recording, events - 1)->time : 0;
  if (recording->steps->len > 0)
    end = g_array_index(recording->steps, StepRecord, 0).start;
  return (StepRecord){.end = end,
                      .peak_allocated = recording->construction_peak_allocated,
                      .peak_reserved = recording->construction_peak_reserved};
}

static void
append_phase(const Timeline *timeline, const Range *range, const char *name)
{
  append_time(timeline->out, range->start);
  g_string_append_c(timeline->out, ' ');
  append_time(timeline->out, range->end);
  g_string_append_printf(timeline->out, " %d %d %s %" G_GINT64_FORMAT " %" G_GINT64_FORMAT "\n",
                         range->step, range->micro_batch, name, range->peak_allocated,
                         range->peak_reserved);
}

static void
append_phases(const Timeline *timeline)
{
  const Recording *recording = timeline->recording;
  g_string_append(timeline->out, "\n\n# phases\n# start_s end_s step micro_batch name "
                                 "peak_allocated_bytes peak_reserved_bytes\n");
  const StepRecord before = construction(recording);
  const Range first = {.end = before.end,
                       .peak_allocated = before.peak_allocated,
                       .peak_reserved = before.peak_reserved};
  append_phase(timeline, &first, "construction");
  for (guint i = 0; i < recording->ranges->len; i++) {
    const Range *range = &g_array_index(recording->ranges, Range, i);
    if (range->kind == RECORDED_PHASE)
      append_phase(timeline, range, recording_text(recording, range->name));
  }
}

/* When the host had issued a step: the end of its last phase. */
static SimTime
host_end(const Recording *recording, const StepRecord *step)
{
  SimTime end = step->start;
  for (guint i = 0; i < recording->ranges->len; i++) {
    const Range *range = &g_array_index(recording->ranges, Range, i);
    if (range->kind == RECORDED_PHASE && range->step == step->index &&
        !recording_is_beyond(recording, (gint32) i))
      end = MAX(end, range->end);
  }
  return end;
}

static void
append_step(const Timeline *timeline, const StepRecord *step, SimTime host_end)
{
  const SimTime times[] = {step->start, host_end, step->end};
  for (guint t = 0; t < G_N_ELEMENTS(times); t++) {
    append_time(timeline->out, times[t]);
    g_string_append_c(timeline->out, ' ');
  }
  g_string_append_printf(timeline->out, "%d %" G_GINT64_FORMAT " %" G_GINT64_FORMAT "\n",
                         step->index, step->peak_allocated, step->peak_reserved);
}

static void
append_steps(const Timeline *timeline)
{
  const Recording *recording = timeline->recording;
  g_string_append(timeline->out, "\n\n# steps\n# start_s host_end_s end_s step "
                                 "peak_allocated_bytes peak_reserved_bytes\n");
  const StepRecord before = construction(recording);
  append_step(timeline, &before, before.end);
  for (guint i = 0; i < recording->steps->len; i++) {
    const StepRecord *step = &g_array_index(recording->steps, StepRecord, i);
    append_step(timeline, step, host_end(recording, step));
  }
}

static void
append_mark(const Timeline *timeline, const char *name, SimTime time, gint64 bytes)
{
  g_string_append_printf(timeline->out, "%s ", name);
  append_time(timeline->out, time);
  g_string_append_printf(timeline->out, " %" G_GINT64_FORMAT "\n", bytes);
}

static void
append_marks(const Timeline *timeline)
{
  const Recording *recording = timeline->recording;
  g_string_append(timeline->out, "\n\n# marks\n# name time_s bytes\n");
  if (recording->capacity_bytes < G_MAXINT64)
    append_mark(timeline, "capacity", 0, recording->capacity_bytes);
  append_mark(timeline, "peak", recording->peak.time, recording->peak.allocated);
  guint events = recording->memory->len;
  if (recording->out_of_memory.happened)
    append_mark(timeline, "out_of_memory", events ? event_at(recording, events - 1)->time : 0,
                recording->out_of_memory.reserved_bytes + recording->out_of_memory.segment_bytes);
}

void
timeline_table(const Recording *recording, const TimelineStyle *style, GString *out)
{
  g_assert(style->max_changes >= 2 * ROWS_OF_STRETCH);
  const Timeline timeline = {.recording = recording, .out = out};
  g_autofree char *title = g_strdup(recording->title);
  for (char *c = title; *c; c++)
    *c = g_ascii_iscntrl(*c) ? ' ' : *c;
  g_string_append_printf(out, TIMELINE_FORMAT "%s\n\n\n", title);
  append_memory(&timeline, style);
  append_phases(&timeline);
  append_steps(&timeline);
  append_marks(&timeline);
}
