/* lifetimes_table.c - the lifetimes of one module's parameters and gradients as a table. */
#include "report/lifetimes_table.h"
#include "base/nearest_name.h"
#include "report/lifetimes.h"
#include "report/table_text.h"

static void
append_cells(GString *out, const SimTime *times, guint n)
{
  for (guint i = 0; i < n; i++) {
    table_time(out, times[i]);
    g_string_append_c(out, ' ');
  }
}

static const char *
phase_name(const Recording *recording, gint32 phase)
{
  return phase < 0 ? NULL
                   : recording_text(recording, g_array_index(recording->ranges, Range, phase).name);
}

static void
append_windows(const Lifetimes *lifetimes, GString *out)
{
  g_autoptr(GArray) windows = lifetimes_windows(lifetimes);
  table_block(out, "windows", "start_s end_s step micro_batch phase");
  for (guint i = 0; i < windows->len; i++) {
    const Window *window = &g_array_index(windows, Window, i);
    const Range *range = window->phase < 0
                             ? &(const Range){.micro_batch = -1}
                             : &g_array_index(lifetimes->recording->ranges, Range, window->phase);
    append_cells(out, &window->start, 2);
    g_string_append_printf(out, "%d %d ", range->step, range->micro_batch);
    table_word(out, phase_name(lifetimes->recording, window->phase));
    g_string_append_c(out, '\n');
  }
}

static void
append_works(const Lifetimes *lifetimes, const Lane *lane, guint number, GString *out)
{
  for (guint i = 0; i < lane->works->len; i++) {
    const Work *work = &g_array_index(lane->works, Work, i);
    append_cells(out, &work->start, 3);
    g_string_append_printf(out, "%u ", number);
    table_word(out, phase_name(lifetimes->recording, work->phase));
    g_string_append_printf(out, " %u %" G_GINT64_FORMAT "\n", work->count, work->bytes);
  }
}

static void
append_held(const Lifetimes *lifetimes, const Lane *lane, guint number, GString *out)
{
  for (guint i = 0; i < lane->held->len; i++) {
    const Held *held = &g_array_index(lane->held, Held, i);
    const SimTime times[] = {held->start, MIN(held->end, lifetimes->to), held->host_start,
                             MIN(held->host_end, lifetimes->to)};
    append_cells(out, times, G_N_ELEMENTS(times));
    g_string_append_printf(out, "%u ", number);
    table_number(out, held->bytes);
    g_string_append_c(out, '\n');
  }
}

/* The corners of what a lane holds, from before the view until behind it. */
static void
append_level(const Lifetimes *lifetimes, const Lane *lane, GString *out)
{
  gint64 level = 0;
  for (guint i = 0; i < lane->changes->len; i++) {
    const Change *change = &g_array_index(lane->changes, Change, i);
    if (change->time > lifetimes->to)
      break;
    append_cells(out, &change->time, 1);
    g_string_append_printf(out, "%" G_GINT64_FORMAT "\n", level);
    level += change->bytes;
    append_cells(out, &change->time, 1);
    g_string_append_printf(out, "%" G_GINT64_FORMAT "\n", level);
  }
  append_cells(out, &lifetimes->to, 1);
  g_string_append_printf(out, "%" G_GINT64_FORMAT "\n", level);
}

static void
append_lanes(const Lifetimes *lifetimes, GString *out)
{
  static const char *const kinds[] = {
      [LANE_MEMORY] = "memory", [LANE_COLLECTIVE] = "collective", [LANE_KERNELS] = "kernels"};
  table_block(out, "lanes", "lane kind name most_bytes");
  for (guint i = 0, number = 0; i < LANES; i++)
    if (lifetimes_rows(&lifetimes->lanes[i]) > 0)
      g_string_append_printf(out, "%u %s %s %" G_GINT64_FORMAT "\n", number++,
                             kinds[lane_infos[i].kind], lane_infos[i].name,
                             lifetimes->lanes[i].most);
}

static void
append_table(const Lifetimes *lifetimes, const char *module, GString *out)
{
  g_autofree char *title = g_strdup_printf("%s of %s", module, lifetimes->recording->title);
  table_begin(out, LIFETIMES_FORMAT, title);
  append_lanes(lifetimes, out);
  append_windows(lifetimes, out);
  table_block(out, "spans", "start_s end_s issued_s lane phase spans bytes");
  for (guint i = 0, number = 0; i < LANES; i++) {
    append_works(lifetimes, &lifetimes->lanes[i], number, out);
    number += lifetimes_rows(&lifetimes->lanes[i]) > 0;
  }
  table_block(out, "held", "start_s end_s host_start_s host_end_s lane bytes");
  for (guint i = 0, number = 0; i < LANES; i++) {
    append_held(lifetimes, &lifetimes->lanes[i], number, out);
    number += lifetimes_rows(&lifetimes->lanes[i]) > 0;
  }
  for (guint i = 0, number = 0; i < LANES; i++) {
    const Lane *lane = &lifetimes->lanes[i];
    g_autofree char *name = g_strdup_printf("level%u;", number);
    if (lane->held->len > 0) {
      table_block(out, name, "time_s bytes");
      append_level(lifetimes, lane, out);
    }
    number += lifetimes_rows(lane) > 0;
  }
}

static gboolean
refuse_module(const Recording *recording, const char *module, GError **error)
{
  g_autoptr(GPtrArray) names = g_ptr_array_new();
  g_autofree guint8 *known = g_new0(guint8, recording->strings->len + 1);
  for (guint i = 0; i < recording->memory->len; i++) {
    gint32 name = g_array_index(recording->memory, MemoryEvent, i).module;
    if (name >= 0 && !known[name]) {
      known[name] = TRUE;
      g_ptr_array_add(names, recording->strings->pdata[name]);
    }
  }
  g_ptr_array_add(names, NULL);
  const char *meant = nearest_name(module, (const char *const *) names->pdata);
  g_set_error(error, HIGHWATER_ERROR, HIGHWATER_ERROR_USAGE,
              "no memory of a module or group '%s' in the recording%s%s%s", module,
              meant ? "; did you mean '" : "", meant ? meant : "", meant ? "'?" : "");
  return FALSE;
}

gboolean
lifetimes_table(const Recording *recording, const RunInfo *info, const TableView *view,
                GString *out, GError **error)
{
  g_autoptr(Lifetimes) lifetimes = lifetimes_new(recording, info, view);
  guint rows = 0;
  for (guint i = 0; i < LANES; i++)
    rows += lifetimes_rows(&lifetimes->lanes[i]);
  if (rows == 0)
    return refuse_module(recording, view->module, error);
  append_table(lifetimes, view->module, out);
  table_end(out);
  return TRUE;
}
