/* lifetimes.c - when one module's parameters and gradients are there, whole and sharded, and what
 * works on them. */
#include "report/lifetimes.h"
#include "report/group_paths.h"
#include <string.h>

const LaneInfo lane_infos[LANES] = {
    {"parameter", LANE_MEMORY, CATEGORY_PARAMETER},
    {"broadcast", LANE_COLLECTIVE, CATEGORY_OTHER},
    {"all_gather", LANE_COLLECTIVE, CATEGORY_OTHER},
    {"all_gather_buffer", LANE_MEMORY, CATEGORY_ALL_GATHER_BUFFER},
    {"unsharded_parameter", LANE_MEMORY, CATEGORY_UNSHARDED_PARAMETER},
    {"kernels", LANE_KERNELS, CATEGORY_OTHER},
    {"unsharded_gradient", LANE_MEMORY, CATEGORY_UNSHARDED_GRADIENT},
    {"reduce_scatter_buffer", LANE_MEMORY, CATEGORY_REDUCE_SCATTER_BUFFER},
    {"reduce_scatter", LANE_COLLECTIVE, CATEGORY_OTHER},
    {"reduce", LANE_COLLECTIVE, CATEGORY_OTHER},
    {"all_reduce", LANE_COLLECTIVE, CATEGORY_OTHER},
    {"sharded_gradient", LANE_MEMORY, CATEGORY_SHARDED_GRADIENT},
};

/* ---- what belongs to the module ---- */

static gboolean
lies_under(const char *path, const char *module)
{
  gsize length = strlen(module);
  return strncmp(path, module, length) == 0 && (path[length] == '\0' || path[length] == '.');
}

/* A group has the modules that no longer path of another group takes away. */
static void
mark_strings(Lifetimes *lifetimes, const RunInfo *info, const char *module)
{
  const GPtrArray *strings = lifetimes->recording->strings;
  gint32 group = -1;
  g_autoptr(GHashTable) paths = info ? group_paths_new(info) : NULL;
  for (guint i = 0; info && i < info->groups->len; i++)
    if (g_str_equal(g_array_index(info->groups, GroupInfo, i).name, module))
      group = (gint32) i;
  for (guint i = 0; i < strings->len; i++) {
    const char *text = strings->pdata[i];
    lifetimes->belongs[i] =
        lies_under(text, module) || (group >= 0 && group_paths_find(paths, text) == group);
  }
}

static gboolean
is_of_module(const Lifetimes *lifetimes, gint32 module)
{
  return module >= 0 && lifetimes->belongs[module];
}

/* ---- memory ---- */

static Lane *
lane_of_category(Lifetimes *lifetimes, Category category)
{
  for (guint i = 0; i < LANES; i++)
    if (lane_infos[i].kind == LANE_MEMORY && lane_infos[i].category == category)
      return &lifetimes->lanes[i];
  return NULL;
}

/* Memory is there from when its own stream comes to use it until the compute stream has come to
 * where the host gave it up. */
static void
collect_memory(Lifetimes *lifetimes)
{
  const Recording *recording = lifetimes->recording;
  g_autofree SimTime *starts = g_new0(SimTime, recording->memory->len + 1);
  for (guint i = 0; i < recording->memory->len; i++) {
    const MemoryEvent *event = &g_array_index(recording->memory, MemoryEvent, i);
    Lane *lane = lane_of_category(lifetimes, event->category);
    if (!lane || !is_of_module(lifetimes, event->module))
      continue;
    Change change = {.host = event->time, .bytes = event->block_bytes};
    if (event->block_bytes > 0) {
      change.time = stream_clock_at(lifetimes->clocks->pdata[event->stream], event->time);
      starts[event->allocation] = change.time;
    } else {
      change.time =
          MAX(stream_clock_at(lifetimes->compute, event->time), starts[event->allocation]);
    }
    g_array_append_val(lane->changes, change);
  }
}

static int
by_time(gconstpointer a, gconstpointer b)
{
  const Change *x = a, *y = b;
  if (x->time != y->time)
    return x->time > y->time ? 1 : -1;
  return (x->host > y->host) - (x->host < y->host);
}

/* Cuts a lane's changes into what is held at a time, and keeps what the view has of it. */
static void
find_held(const Lifetimes *lifetimes, Lane *lane)
{
  g_array_sort(lane->changes, by_time);
  gint64 level = 0;
  Held held = {0};
  for (guint i = 0; i < lane->changes->len; i++) {
    const Change *change = &g_array_index(lane->changes, Change, i);
    if (level == 0)
      held = (Held){.host_start = change->host, .start = change->time};
    level += change->bytes;
    held.bytes = MAX(held.bytes, level);
    held.host_end = change->host;
    held.end = change->time;
    if (level == 0 && held.end >= lifetimes->from && held.start <= lifetimes->to)
      g_array_append_val(lane->held, held);
  }
  held.end = held.host_end = SIM_TIME_MAX;
  if (level > 0 && held.start <= lifetimes->to)
    g_array_append_val(lane->held, held);
  for (guint i = 0; i < lane->held->len; i++)
    lane->most = MAX(lane->most, g_array_index(lane->held, Held, i).bytes);
}

/* ---- work ---- */

static Lane *
lane_of_span(Lifetimes *lifetimes, const Span *span)
{
  const char *name = span->name < 0 ? "" : recording_text(lifetimes->recording, span->name);
  for (guint i = 0; i < LANES; i++) {
    LaneKind kind = lane_infos[i].kind;
    if ((kind == LANE_KERNELS && span->kind == SPAN_KERNEL &&
         (lifetimes->compute_stream < 0 || span->stream == lifetimes->compute_stream)) ||
        (kind == LANE_COLLECTIVE && span->kind == SPAN_COLLECTIVE &&
         g_str_equal(lane_infos[i].name, name)))
      return &lifetimes->lanes[i];
  }
  return NULL;
}

/* Kernels of one phase are one row as long as nothing else of the module is in between. */
static gboolean
follows(const Work *last, const Work *next, SimTime gap)
{
  return last->phase == next->phase && next->start - last->end <= gap;
}

static void
add_work(const Lane *lane, const Span *span, SimTime gap)
{
  const Work work = {.start = span->start,
                     .end = span->end,
                     .issued = span->issued,
                     .phase = span->phase - 1,
                     .bytes = span->bytes,
                     .count = 1};
  Work *last = lane->works->len ? &g_array_index(lane->works, Work, lane->works->len - 1) : NULL;
  if (!last || span->kind != SPAN_KERNEL || !follows(last, &work, gap)) {
    g_array_append_val(lane->works, work);
    return;
  }
  last->end = work.end;
  last->bytes += work.bytes;
  last->count++;
}

static void
collect_work(Lifetimes *lifetimes)
{
  enum { KERNEL_GAP_NS = 100000 };
  const Recording *recording = lifetimes->recording;
  for (guint i = 0; i < recording->spans->len; i++) {
    const Span *span = &g_array_index(recording->spans, Span, i);
    if (!is_of_module(lifetimes, span->module) || span->end < lifetimes->from ||
        span->start > lifetimes->to || (lifetimes->step > 0 && span->step != lifetimes->step))
      continue;
    Lane *lane = lane_of_span(lifetimes, span);
    if (lane)
      add_work(lane, span, KERNEL_GAP_NS);
  }
}

/* ---- windows: when something of the module happens, a phase each ---- */

static Window *
window_of(GArray *windows, gint32 phase)
{
  for (guint i = 0; i < windows->len; i++)
    if (g_array_index(windows, Window, i).phase == phase)
      return &g_array_index(windows, Window, i);
  const Window window = {.start = SIM_TIME_MAX, .phase = phase};
  g_array_append_val(windows, window);
  return &g_array_index(windows, Window, windows->len - 1);
}

static gint32
phase_at(const Recording *recording, SimTime host)
{
  for (guint i = 0; i < recording->ranges->len; i++) {
    const Range *range = &g_array_index(recording->ranges, Range, i);
    if (range->kind == RECORDED_PHASE && range->start <= host && host < range->end)
      return (gint32) i;
  }
  return -1;
}

static void
widen(const Lifetimes *lifetimes, GArray *windows, gint32 phase, SimTime start, SimTime end)
{
  const Range *range =
      phase < 0 ? NULL : &g_array_index(lifetimes->recording->ranges, Range, phase);
  if (lifetimes->step > 0 && range && range->step != lifetimes->step)
    return;
  Window *window = window_of(windows, phase);
  window->start = MIN(window->start, start);
  window->end = MAX(window->end, end);
}

static int
by_window_start(gconstpointer a, gconstpointer b)
{
  const Window *x = a, *y = b;
  return (x->start > y->start) - (x->start < y->start);
}

/* What lasts beyond a phase, shards and gradients that are kept, counts with its beginning only. */
GArray *
lifetimes_windows(const Lifetimes *lifetimes)
{
  GArray *windows = g_array_new(FALSE, FALSE, sizeof(Window));
  for (guint l = 0; l < LANES; l++) {
    const Lane *lane = &lifetimes->lanes[l];
    for (guint i = 0; i < lane->works->len; i++) {
      const Work *work = &g_array_index(lane->works, Work, i);
      widen(lifetimes, windows, work->phase, work->start, work->end);
    }
    for (guint i = 0; i < lane->held->len && lane_infos[l].category != CATEGORY_PARAMETER; i++) {
      const Held *held = &g_array_index(lane->held, Held, i);
      gint32 phase = phase_at(lifetimes->recording, held->host_start);
      gboolean ends = phase >= 0 && phase_at(lifetimes->recording, held->host_end) == phase;
      if (held->start >= lifetimes->from)
        widen(lifetimes, windows, phase, held->start, ends ? held->end : held->start);
    }
  }
  g_array_sort(windows, by_window_start);
  return windows;
}

/* ---- the whole ---- */

/* The last step that is done, or all there is. */
static void
choose_window(Lifetimes *lifetimes, const TableView *view)
{
  const Recording *recording = lifetimes->recording;
  gint64 end = 0;
  for (guint i = 0; i < recording->spans->len; i++)
    end = MAX(end, g_array_index(recording->spans, Span, i).end);
  for (guint i = 0; i < recording->memory->len; i++)
    end = MAX(end, g_array_index(recording->memory, MemoryEvent, i).time);
  lifetimes->step = view->step;
  lifetimes->from = view->from;
  lifetimes->to = view->to > 0 ? MIN(view->to, end) : end;
  guint complete = recording->steps->len - (recording->out_of_memory.happened ? 1 : 0);
  if (table_view_is_part(view) || recording->steps->len == 0 || complete == 0)
    return;
  const StepRecord *last = &g_array_index(recording->steps, StepRecord, complete - 1);
  lifetimes->step = last->index;
  lifetimes->from = last->start;
  lifetimes->to = last->end;
}

static void
lifetimes_init(Lifetimes *lifetimes, const Recording *recording)
{
  *lifetimes = (Lifetimes){
      .recording = recording,
      .compute_stream = -1,
      .belongs = g_new0(guint8, recording->strings->len + 1),
      .clocks = g_ptr_array_new_with_free_func((GDestroyNotify) stream_clock_free),
  };
  for (guint i = 0; i < recording->streams->len; i++) {
    StreamClock *clock = stream_clock_new(recording, (int) i);
    g_ptr_array_add(lifetimes->clocks, clock);
    if (g_str_equal(recording->streams->pdata[i], "compute")) {
      lifetimes->compute = clock;
      lifetimes->compute_stream = (int) i;
    }
  }
  if (!lifetimes->compute) {
    lifetimes->compute = stream_clock_new(recording, -1);
    g_ptr_array_add(lifetimes->clocks, lifetimes->compute);
  }
  for (guint i = 0; i < LANES; i++)
    lifetimes->lanes[i] = (Lane){.changes = g_array_new(FALSE, FALSE, sizeof(Change)),
                                 .held = g_array_new(FALSE, FALSE, sizeof(Held)),
                                 .works = g_array_new(FALSE, FALSE, sizeof(Work))};
}

void
lifetimes_free(Lifetimes *lifetimes)
{
  for (guint i = 0; i < LANES; i++) {
    g_array_unref(lifetimes->lanes[i].changes);
    g_array_unref(lifetimes->lanes[i].held);
    g_array_unref(lifetimes->lanes[i].works);
  }
  g_ptr_array_unref(lifetimes->clocks);
  g_free(lifetimes->belongs);
  g_free(lifetimes);
}

guint
lifetimes_rows(const Lane *lane)
{
  return lane->held->len + lane->works->len;
}

Lifetimes *
lifetimes_new(const Recording *recording, const RunInfo *info, const TableView *view)
{
  Lifetimes *lifetimes = g_new(Lifetimes, 1);
  lifetimes_init(lifetimes, recording);
  mark_strings(lifetimes, info, view->module);
  choose_window(lifetimes, view);
  collect_memory(lifetimes);
  collect_work(lifetimes);
  for (guint i = 0; i < LANES; i++)
    find_held(lifetimes, &lifetimes->lanes[i]);
  return lifetimes;
}
