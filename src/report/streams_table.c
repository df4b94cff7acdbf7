/* streams_table.c - what each stream and the host did: a lane each, a row a span. */
#include "report/streams_table.h"
#include "report/table_text.h"
#include <string.h>

static const char *const kind_names[] = {
    [SPAN_KERNEL] = "kernel",
    [SPAN_COPY] = "copy",
    [SPAN_COLLECTIVE] = "collective",
    [SPAN_HOST_BLOCKED] = "host_blocked",
    [SPAN_LOST] = "lost",
};

/* A row: a span, or neighbours joined. */
typedef struct {
  SimTime start, end;
  SpanKind kind;
  gint32 name, module, phase; /* string ids; -1: none, or several */
  int step;
  guint count;
  gint64 bytes;
  SimTime busy; /* sum of what was joined */
} Row;

typedef struct {
  const Recording *recording;
  SimTime from, to;
  SimTime gap;      /* neighbours so near to each other are joined; -1: none are */
  GPtrArray *lanes; /* GArray of Row, one a stream */
} Streams;

static gint32
phase_of(const Recording *recording, const Span *span)
{
  return span->phase > 0 ? g_array_index(recording->ranges, Range, span->phase - 1).name : -1;
}

static gboolean
join(const Streams *streams, Row *last, const Row *next)
{
  if (next->start - last->end > streams->gap || last->kind != next->kind ||
      last->phase != next->phase || last->step != next->step)
    return FALSE;
  last->end = MAX(last->end, next->end);
  last->name = last->name == next->name ? last->name : -1;
  last->module = last->module == next->module ? last->module : -1;
  last->count++;
  last->bytes += next->bytes;
  last->busy += next->busy;
  return TRUE;
}

static int
by_start(gconstpointer a, gconstpointer b)
{
  const Row *x = a, *y = b;
  return x->start != y->start ? (x->start > y->start) - (x->start < y->start)
                              : (x->end > y->end) - (x->end < y->end);
}

/* Rows of every stream in order of their start. */
static void
collect(Streams *streams)
{
  const Recording *recording = streams->recording;
  for (guint i = 0; i < recording->streams->len; i++)
    g_ptr_array_add(streams->lanes, g_array_new(FALSE, FALSE, sizeof(Row)));
  for (guint i = 0; i < recording->spans->len; i++) {
    const Span *span = &g_array_index(recording->spans, Span, i);
    if (span->end < streams->from || span->start > streams->to)
      continue;
    Row row = {.start = span->start,
               .end = span->end,
               .kind = span->kind,
               .name = span->name,
               .module = span->module,
               .phase = phase_of(recording, span),
               .step = span->step,
               .count = 1,
               .bytes = span->bytes,
               .busy = span->end - span->start};
    g_array_append_val(streams->lanes->pdata[span->stream], row);
  }
  for (guint i = 0; i < streams->lanes->len; i++)
    g_array_sort(streams->lanes->pdata[i], by_start);
}

static void
join_neighbours(const Streams *streams, GArray *rows)
{
  guint kept = 0;
  for (guint i = 0; i < rows->len; i++) {
    Row row = g_array_index(rows, Row, i);
    if (kept == 0 || !join(streams, &g_array_index(rows, Row, kept - 1), &row))
      g_array_index(rows, Row, kept++) = row;
  }
  g_array_set_size(rows, kept);
}

/* ---- text ---- */

static void
append_lane(const Streams *streams, guint stream, guint lane, GString *out)
{
  const GArray *rows = streams->lanes->pdata[stream];
  SimTime busy = 0;
  for (guint i = 0; i < rows->len; i++)
    busy += g_array_index(rows, Row, i).busy;
  table_number(out, lane);
  g_string_append_c(out, ' ');
  table_word(out, streams->recording->streams->pdata[stream]);
  g_string_append_c(out, ' ');
  table_number(out, rows->len);
  g_string_append_c(out, ' ');
  table_time(out, busy);
  g_string_append_c(out, '\n');
}

static void
append_row(const Streams *streams, const Row *row, guint lane, GString *out)
{
  const Recording *recording = streams->recording;
  const gint32 words[] = {row->name, row->module, row->phase};
  table_time(out, row->start);
  g_string_append_c(out, ' ');
  table_time(out, row->end);
  g_string_append_c(out, ' ');
  table_number(out, lane);
  g_string_append_printf(out, " %s", kind_names[row->kind]);
  for (guint i = 0; i < G_N_ELEMENTS(words); i++) {
    g_string_append_c(out, ' ');
    table_word(out, words[i] < 0 ? NULL : recording_text(recording, words[i]));
  }
  const gint64 numbers[] = {row->step, row->count, row->bytes};
  for (guint i = 0; i < G_N_ELEMENTS(numbers); i++) {
    g_string_append_c(out, ' ');
    table_number(out, numbers[i]);
  }
  g_string_append_c(out, '\n');
}

/* Streams with rows, the host's first. */
static GArray *
order_of_lanes(const Streams *streams)
{
  GArray *order = g_array_new(FALSE, FALSE, sizeof(guint));
  for (guint i = 0; i < streams->lanes->len; i++) {
    const GArray *rows = streams->lanes->pdata[i];
    if (rows->len == 0)
      continue;
    if (g_str_equal(streams->recording->streams->pdata[i], "host"))
      g_array_prepend_val(order, i);
    else
      g_array_append_val(order, i);
  }
  return order;
}

static void
append_blocks(const Streams *streams, const GArray *order, GString *out)
{
  table_begin(out, STREAMS_FORMAT, streams->recording->title);
  table_block(out, "lanes", "lane stream rows busy_s");
  for (guint lane = 0; lane < order->len; lane++)
    append_lane(streams, g_array_index(order, guint, lane), lane, out);
  table_block(out, "spans", "start_s end_s lane kind name module phase step spans bytes");
  for (guint lane = 0; lane < order->len; lane++) {
    const GArray *rows = streams->lanes->pdata[g_array_index(order, guint, lane)];
    for (guint i = 0; i < rows->len; i++)
      append_row(streams, &g_array_index(rows, Row, i), lane, out);
  }
}

/* What the view lets be seen as separate; the recording's extent where the view is open. */
static SimTime
shortest_gap(const Streams *streams, guint max_rows)
{
  const GArray *spans = streams->recording->spans;
  if (max_rows == 0)
    return -1;
  SimTime end = spans->len > 0 ? g_array_index(spans, Span, spans->len - 1).end : 0;
  return MAX(0, MIN(end, streams->to) - streams->from) / max_rows;
}

gboolean
streams_table(const Recording *recording, const RunInfo *info, const TableView *view, GString *out,
              GError **error)
{
  (void) info;
  Streams streams = {
      .recording = recording,
      .from = view->from,
      .to = view->to > 0 ? view->to : SIM_TIME_MAX,
      .lanes = g_ptr_array_new_with_free_func((GDestroyNotify) g_array_unref),
  };
  streams.gap = shortest_gap(&streams, view->max_rows);
  collect(&streams);
  for (guint i = 0; i < streams.lanes->len && streams.gap >= 0; i++)
    join_neighbours(&streams, streams.lanes->pdata[i]);
  g_autoptr(GArray) order = order_of_lanes(&streams);
  gboolean ok = order->len > 0;
  if (ok)
    append_blocks(&streams, order, out);
  else
    g_set_error(error, HIGHWATER_ERROR, HIGHWATER_ERROR_INPUT,
                "the recording has no spans of streams%s", view->to > 0 ? " in this time" : "");
  g_ptr_array_unref(streams.lanes);
  return ok;
}
