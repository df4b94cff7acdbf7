/* timeline_table.c - memory by category over the host's time, one row a change; phases, steps and
 * marks beside it. */
#include "report/timeline_table.h"
#include "report/alive_tensors.h"
#include "report/block_passes.h"
#include "report/table_text.h"
#include "report/timeline_labels.h"

/* Rows that one stretch of a thinned table can keep. */
enum { ROWS_OF_STRETCH = 4 };

typedef struct {
  const Recording *recording;
  SimTime from, to;
  guint begin, end; /* events between them */
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

/* Before a change that comes so late that its wait can be seen: half of the rows are for these. */
static void
keep_plateaus(const Timeline *timeline, guint max_rows, GByteArray *keep)
{
  const Recording *recording = timeline->recording;
  SimTime extent =
      event_at(recording, timeline->end - 1)->time - event_at(recording, timeline->begin)->time;
  for (guint i = timeline->begin; i + 1 < timeline->end; i++)
    if (event_at(recording, i + 1)->time - event_at(recording, i)->time > extent / max_rows)
      keep->data[i] = TRUE;
}

/* One flag an event.  Stretches are equally many events, so that busy moments keep more rows than
 * quiet ones. */
static GByteArray *
choose_rows(const Timeline *timeline, guint max_changes)
{
  guint count = timeline->end - timeline->begin;
  GByteArray *keep = g_byte_array_new();
  g_byte_array_set_size(keep, timeline->recording->memory->len);
  for (guint i = 0; i < keep->len; i++)
    keep->data[i] = count <= max_changes && i >= timeline->begin && i < timeline->end;
  if (count <= max_changes)
    return keep;
  guint stretches = max_changes / 2 / ROWS_OF_STRETCH;
  for (guint i = 0; i < stretches; i++) {
    guint begin = timeline->begin + (guint) ((guint64) count * i / stretches);
    guint end = timeline->begin + (guint) ((guint64) count * (i + 1) / stretches);
    keep_extremes(timeline->recording, begin, end, keep);
  }
  keep_plateaus(timeline, max_changes / 2, keep);
  return keep;
}

/* ---- blocks ---- */

static void
append_row(const Timeline *timeline, SimTime time, const MemoryState *state)
{
  table_time(timeline->out, time);
  g_string_append_c(timeline->out, ' ');
  table_number(timeline->out, state->allocated);
  g_string_append_c(timeline->out, ' ');
  table_number(timeline->out, state->reserved);
  for (int i = 0; i < CATEGORY_COUNT; i++) {
    g_string_append_c(timeline->out, ' ');
    table_number(timeline->out, state->categories[i]);
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
add_event(MemoryState *state, const MemoryEvent *event)
{
  state->categories[event->category] += event->block_bytes;
  state->allocated = event->allocated_after;
  state->reserved = event->reserved_after;
}

/* Before the first event of the timeline.  What was there before the recording began belongs to
 * nothing known. */
static MemoryState
state_at_begin(const Timeline *timeline)
{
  const MemoryEvent *first = event_at(timeline->recording, 0);
  MemoryState state = {.allocated = first->allocated_after - first->block_bytes};
  state.categories[CATEGORY_OTHER] = state.allocated;
  for (guint i = 0; i < timeline->begin; i++)
    add_event(&state, event_at(timeline->recording, i));
  return state;
}

static void
append_memory(const Timeline *timeline, const TimelineStyle *style)
{
  const Recording *recording = timeline->recording;
  g_autoptr(GString) columns = g_string_new("time_s allocated_bytes reserved_bytes");
  for (int i = 0; i < CATEGORY_COUNT; i++)
    g_string_append_printf(columns, " %s", category_name((Category) i));
  table_block(timeline->out, "memory", columns->str);
  if (recording->memory->len == 0)
    return;
  MemoryState state = state_at_begin(timeline), shown = state;
  if (style->corners && timeline->begin > 0)
    append_row(timeline, timeline->from, &state);
  g_autoptr(GByteArray) keep = choose_rows(timeline, style->max_changes);
  for (guint i = timeline->begin; i < timeline->end; i++) {
    const MemoryEvent *event = event_at(recording, i);
    add_event(&state, event);
    if (!keep->data[i])
      continue;
    if (style->corners && i > 0)
      append_row(timeline, event->time, &shown);
    append_row(timeline, event->time, &state);
    shown = state;
  }
  SimTime end = timeline->to < SIM_TIME_MAX ? timeline->to : last_phase_end(recording);
  if (style->corners && (timeline->end == 0 || end > event_at(recording, timeline->end - 1)->time))
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

/* Does the timeline show some of it? */
static gboolean
is_shown(const Timeline *timeline, SimTime start, SimTime end)
{
  return start <= timeline->to && end >= timeline->from;
}

static void
append_phase(const Timeline *timeline, const Range *range, const char *name)
{
  if (!is_shown(timeline, range->start, range->end))
    return;
  table_time(timeline->out, range->start);
  g_string_append_c(timeline->out, ' ');
  table_time(timeline->out, range->end);
  g_string_append_printf(timeline->out, " %d %d %s %" G_GINT64_FORMAT " %" G_GINT64_FORMAT "\n",
                         range->step, range->micro_batch, name, range->peak_allocated,
                         range->peak_reserved);
}

static void
append_phases(const Timeline *timeline)
{
  const Recording *recording = timeline->recording;
  table_block(timeline->out, "phases",
              "start_s end_s step micro_batch name "
              "peak_allocated_bytes peak_reserved_bytes");
  const StepRecord before = construction(recording);
  const Range first = {.end = before.end,
                       .peak_allocated = before.peak_allocated,
                       .peak_reserved = before.peak_reserved};
  append_phase(timeline, &first, "construction");
  gint32 name = recording_find_string(recording, "construction");
  for (guint i = 0; i < recording->ranges->len; i++) {
    const Range *range = &g_array_index(recording->ranges, Range, i);
    if (range->kind == RECORDED_PHASE && (range->step > 0 || range->name != name))
      append_phase(timeline, range, recording_text(recording, range->name));
  }
}

SimTime
timeline_host_end(const Recording *recording, const StepRecord *step)
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
  if (!is_shown(timeline, step->start, host_end))
    return;
  const SimTime times[] = {step->start, host_end, step->end};
  for (guint t = 0; t < G_N_ELEMENTS(times); t++) {
    table_time(timeline->out, times[t]);
    g_string_append_c(timeline->out, ' ');
  }
  g_string_append_printf(timeline->out, "%d %" G_GINT64_FORMAT " %" G_GINT64_FORMAT "\n",
                         step->index, step->peak_allocated, step->peak_reserved);
}

static void
append_steps(const Timeline *timeline)
{
  const Recording *recording = timeline->recording;
  table_block(timeline->out, "steps",
              "start_s host_end_s end_s step "
              "peak_allocated_bytes peak_reserved_bytes");
  const StepRecord before = construction(recording);
  append_step(timeline, &before, before.end);
  for (guint i = 0; i < recording->steps->len; i++) {
    const StepRecord *step = &g_array_index(recording->steps, StepRecord, i);
    append_step(timeline, step, timeline_host_end(recording, step));
  }
}

static void
append_mark(const Timeline *timeline, const char *name, SimTime time, gint64 bytes)
{
  g_string_append_printf(timeline->out, "%s ", name);
  table_time(timeline->out, time);
  g_string_append_printf(timeline->out, " %" G_GINT64_FORMAT "\n", bytes);
}

/* The highest moment that is shown. */
typedef struct {
  SimTime time;
  gint64 allocated;
  GArray *live; /* LiveTensor */
} Highest;

static Highest
find_highest(const Timeline *timeline)
{
  const Recording *recording = timeline->recording;
  const PeakRecord *peak = &recording->peak;
  if (timeline->end - timeline->begin == recording->memory->len)
    return (Highest){peak->time, peak->allocated, peak->live ? g_array_ref(peak->live) : NULL};
  guint events = timeline->begin;
  Highest highest = {.time = timeline->from, .allocated = state_at_begin(timeline).allocated};
  for (guint i = timeline->begin; i < timeline->end; i++) {
    const MemoryEvent *event = event_at(recording, i);
    if (event->allocated_after > highest.allocated) {
      highest.allocated = event->allocated_after;
      highest.time = event->time;
      events = i + 1;
    }
  }
  highest.live = recording_live(recording, events);
  return highest;
}

static void
append_alive(const Timeline *timeline, const Highest *highest)
{
  GString *out = timeline->out;
  g_autoptr(GPtrArray) tensors = alive_tensors(timeline->recording, highest->live);
  table_block(out, "alive", "bytes tensors category name");
  AliveTensors others = {.name = NULL, .category = CATEGORY_OTHER};
  for (guint i = 0; i < tensors->len; i++) {
    const AliveTensors *row = tensors->pdata[i];
    if (i >= TIMELINE_ALIVE_ROWS) {
      others.bytes += row->bytes;
      others.count += row->count;
      continue;
    }
    g_string_append_printf(out, "%" G_GINT64_FORMAT " %u %s ", row->bytes, row->count,
                           category_name(row->category));
    table_word(out, row->name);
    g_string_append_c(out, '\n');
  }
  /* Without tensors that are known, or with memory from before the recording: the rest. */
  if (others.count > 0)
    g_string_append_printf(out, "%" G_GINT64_FORMAT " %u - others\n", others.bytes, others.count);
}

static void
append_marks(const Timeline *timeline, const Highest *highest)
{
  const Recording *recording = timeline->recording;
  guint events = recording->memory->len;
  table_block(timeline->out, "marks", "name time_s bytes");
  if (recording->capacity_bytes < G_MAXINT64)
    append_mark(timeline, "capacity", 0, recording->capacity_bytes);
  append_mark(timeline, "peak", highest->time, highest->allocated);
  if (recording->out_of_memory.happened && timeline->end == events)
    append_mark(timeline, "out_of_memory", events ? event_at(recording, events - 1)->time : 0,
                recording->out_of_memory.reserved_bytes + recording->out_of_memory.segment_bytes);
}

static void
append_modules(const Timeline *timeline)
{
  const Recording *recording = timeline->recording;
  g_autoptr(GArray) passes = block_passes(recording, timeline->from, timeline->to);
  table_block(timeline->out, "modules", "start_s end_s step micro_batch phase module");
  for (guint i = 0; i < passes->len; i++) {
    const BlockPass *pass = &g_array_index(passes, BlockPass, i);
    const Range *phase = &g_array_index(recording->ranges, Range, pass->phase);
    table_time(timeline->out, pass->start);
    g_string_append_c(timeline->out, ' ');
    table_time(timeline->out, pass->end);
    g_string_append_printf(timeline->out, " %d %d %s ", phase->step, phase->micro_batch,
                           recording_text(recording, phase->name));
    g_autofree char *block =
        g_strndup(recording_text(recording, pass->block), (gsize) pass->length);
    table_word(timeline->out, block);
    g_string_append_c(timeline->out, '\n');
  }
}

static void
append_labels(const Timeline *timeline)
{
  const Recording *recording = timeline->recording;
  guint events = recording->memory->len;
  SimTime end = MAX(last_phase_end(recording), events ? event_at(recording, events - 1)->time : 0);
  TimelineLabel labels[CATEGORY_COUNT];
  timeline_labels(recording, timeline->from, MIN(timeline->to, end), labels);
  table_block(timeline->out, "labels", "time_s from_bytes to_bytes category");
  for (int i = 0; i < CATEGORY_COUNT; i++) {
    if (labels[i].lowest >= labels[i].highest)
      continue;
    table_time(timeline->out, labels[i].time);
    g_string_append_printf(timeline->out, " %" G_GINT64_FORMAT " %" G_GINT64_FORMAT " %s\n",
                           labels[i].lowest, labels[i].highest, category_name((Category) i));
  }
}

/* The first event at or after a moment. */
static guint
first_event_at(const Recording *recording, SimTime time)
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

void
timeline_table(const Recording *recording, const TimelineStyle *style, GString *out)
{
  g_assert(style->max_changes >= TIMELINE_LEAST_CHANGES);
  SimTime to = style->to > 0 ? style->to : SIM_TIME_MAX;
  const Timeline timeline = {
      .recording = recording,
      .from = style->from,
      .to = to,
      .begin = first_event_at(recording, style->from),
      .end = to == SIM_TIME_MAX ? recording->memory->len : first_event_at(recording, to + 1),
      .out = out,
  };
  table_begin(out, TIMELINE_FORMAT, recording->title);
  append_memory(&timeline, style);
  append_phases(&timeline);
  append_steps(&timeline);
  append_modules(&timeline);
  append_labels(&timeline);
  Highest highest = find_highest(&timeline);
  append_marks(&timeline, &highest);
  append_alive(&timeline, &highest);
  table_end(out);
  if (highest.live)
    g_array_unref(highest.live);
}
