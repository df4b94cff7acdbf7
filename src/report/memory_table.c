/* memory_table.c - a run's memory by category at rest and at its peak. */
#include "report/memory_table.h"
#include "report/table_text.h"

/* Takes `excess` bytes away, from gradients of shards first. */
static void
drop_gradients(gint64 *categories, gint64 excess)
{
  static const Category order[] = {CATEGORY_SHARDED_GRADIENT, CATEGORY_UNSHARDED_GRADIENT};
  for (guint i = 0; i < G_N_ELEMENTS(order); i++) {
    gint64 part = CLAMP(categories[order[i]], 0, excess);
    categories[order[i]] -= part;
    excess -= part;
  }
}

/* What is there after the last step, without the gradients that the next one drops; FALSE when that
 * is not known. */
static gboolean
sum_at_rest(const Recording *recording, gint64 *categories)
{
  if (recording->at_rest_bytes <= 0 || recording->memory->len == 0)
    return FALSE;
  int last = recording->steps->len
                 ? g_array_index(recording->steps, StepRecord, recording->steps->len - 1).index
                 : 0;
  gint64 sum = 0;
  SimTime end = SIM_TIME_MAX;
  for (guint i = 0; i < recording->beyond->len; i++) {
    const BeyondRecord *beyond = &g_array_index(recording->beyond, BeyondRecord, i);
    const Range *range = &g_array_index(recording->ranges, Range, (guint) beyond->range);
    if (range->step >= last)
      end = MIN(end, range->start);
  }
  for (guint i = 0; i < recording->memory->len; i++) {
    const MemoryEvent *event = &g_array_index(recording->memory, MemoryEvent, i);
    if (event->time > end)
      break;
    categories[event->category] += event->block_bytes;
    sum += event->block_bytes;
  }
  drop_gradients(categories, MAX(0, sum - recording->at_rest_bytes));
  return TRUE;
}

static void
append_row(GString *out, const char *name, const char *moment, const gint64 *values,
           const gint64 *categories)
{
  table_word(out, name);
  g_string_append_printf(out, " %s", moment);
  for (guint i = 0; i < 3; i++) {
    g_string_append_c(out, ' ');
    if (values[i] < 0)
      g_string_append(out, "NaN");
    else
      table_number(out, values[i]);
  }
  for (int i = 0; i < CATEGORY_COUNT; i++) {
    g_string_append_c(out, ' ');
    table_number(out, categories[i]);
  }
  g_string_append_c(out, '\n');
}

void
memory_table_begin(GString *out, const char *title)
{
  table_begin(out, MEMORY_FORMAT, title);
  g_autoptr(GString) columns =
      g_string_new("run moment allocated_bytes reserved_bytes capacity_bytes");
  for (int i = 0; i < CATEGORY_COUNT; i++)
    g_string_append_printf(columns, " %s", category_name((Category) i));
  table_block(out, "memory", columns->str);
}

void
memory_table_rows(const Recording *recording, const char *name, GString *out)
{
  gint64 capacity = recording->capacity_bytes < G_MAXINT64 ? recording->capacity_bytes : -1;
  gint64 categories[CATEGORY_COUNT] = {0};
  if (sum_at_rest(recording, categories)) {
    const gint64 values[] = {recording->at_rest_bytes, -1, capacity};
    append_row(out, name, "at_rest", values, categories);
  }
  const PeakRecord *peak = &recording->peak;
  const gint64 values[] = {peak->allocated, peak->reserved, capacity};
  append_row(out, name, recording->out_of_memory.happened ? "out_of_memory" : "peak", values,
             peak->categories);
}

gboolean
memory_table(const Recording *recording, const RunInfo *info, const TableView *view, GString *out,
             GError **error)
{
  (void) view, (void) error;
  memory_table_begin(out, recording->title);
  memory_table_rows(recording, info && info->strategy ? info->strategy : recording->title, out);
  return TRUE;
}
