/* streams_table.c - what each stream and the host did: a lane each, a row a span. */
#include "report/streams_table.h"
#include "report/block_passes.h"
#include "report/summary.h"
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
  int path_length;            /* of the module's path, as far as it is of all that was joined */
  int step;
  guint count;
  gint64 bytes;
  SimTime busy; /* sum of what was joined */
} Row;

typedef struct {
  const Recording *recording;
  SimTime from, to;
  SimTime gap;      /* neighbours so near to each other are joined */
  SimTime wide;     /* rows so long are told apart by their block */
  GPtrArray *lanes; /* GArray of Row, one a stream */
} Streams;

static gint32
phase_of(const Recording *recording, const Span *span)
{
  return span->phase > 0 ? g_array_index(recording->ranges, Range, span->phase - 1).name : -1;
}

/* Length of the path that all of the row and what comes next share: the module's, or its block's;
 * -1: none. */
static int
common_path(const Recording *recording, const Row *row, const Row *next)
{
  if (row->module == next->module)
    return row->path_length;
  if (row->module < 0 || next->module < 0)
    return -1;
  const char *a = recording_text(recording, row->module);
  const char *b = recording_text(recording, next->module);
  gsize length = block_path_length(b);
  return block_path_length(a) == length && strncmp(a, b, length) == 0 ? (int) length : -1;
}

static gboolean
join(const Streams *streams, Row *last, const Row *next)
{
  int common = common_path(streams->recording, last, next);
  gboolean are_wide =
      last->end - last->start >= streams->wide && next->end - next->start >= streams->wide;
  if (next->start - last->end > streams->gap || last->kind != next->kind ||
      last->phase != next->phase || last->step != next->step || (common < 0 && are_wide))
    return FALSE;
  last->end = MAX(last->end, next->end);
  last->name = last->name == next->name ? last->name : -1;
  last->module = common < 0 ? -1 : last->module;
  last->path_length = common;
  last->count += next->count;
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
               .path_length = (int) strlen(report_text(recording, span->module, "")),
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

/* What the view lets be seen as separate; of all of the recording where the view is open. */
static SimTime
shortest_gap(const Streams *streams, guint max_rows)
{
  const GArray *spans = streams->recording->spans;
  SimTime end = spans->len > 0 ? g_array_index(spans, Span, spans->len - 1).end : 0;
  return MAX(0, MIN(end, streams->to) - streams->from) / max_rows;
}

/* First those of the same module or block, then all that are too short to be told apart. */
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

/* First those of the same module or block, then all that are too short to be told apart. */
static void
join_lanes(Streams *streams, guint max_rows)
{
  enum { WIDE_GAPS = 32 };
  streams->gap = shortest_gap(streams, max_rows);
  const SimTime wide[] = {0, streams->gap * WIDE_GAPS};
  for (guint pass = 0; pass < G_N_ELEMENTS(wide); pass++) {
    streams->wide = wide[pass];
    for (guint i = 0; i < streams->lanes->len; i++)
      join_neighbours(streams, streams->lanes->pdata[i]);
  }
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
  g_autofree char *module =
      g_strndup(report_text(recording, row->module, ""), (gsize) MAX(0, row->path_length));
  const char *const words[] = {report_text(recording, row->name, NULL), module,
                               report_text(recording, row->phase, NULL)};
  table_time(out, row->start);
  g_string_append_c(out, ' ');
  table_time(out, row->end);
  g_string_append_c(out, ' ');
  table_number(out, lane);
  g_string_append_printf(out, " %s", kind_names[row->kind]);
  for (guint i = 0; i < G_N_ELEMENTS(words); i++) {
    g_string_append_c(out, ' ');
    table_word(out, words[i]);
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
  collect(&streams);
  if (view->max_rows > 0)
    join_lanes(&streams, view->max_rows);
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
