/* recording_columns.c - which fields of a Recording its file has, under which names. */
#include "record/recording_columns.h"

#include <string.h>

static const char *const category_names[] = {
#define X(name, text) text,
    MEMORY_CATEGORIES(X)
#undef X
};
static const char *const span_names[] = {"kernel", "copy", "collective", "host_blocked", "lost"};
static const char *const range_names[] = {"phase", "module", "hook"};
static const char *const action_names[] = {"alloc", "free", "map", "unmap"};

G_STATIC_ASSERT(G_N_ELEMENTS(span_names) == SPAN_LOST + 1);
G_STATIC_ASSERT(G_N_ELEMENTS(range_names) == RECORDED_RANGE_KINDS);

const ColumnNames column_names[COLUMN_NAMES_COUNT] = {
    {COLUMN_CATEGORY, "category", category_names, G_N_ELEMENTS(category_names)},
    {COLUMN_SPAN_KIND, "span", span_names, G_N_ELEMENTS(span_names)},
    {COLUMN_RANGE_KIND, "range", range_names, G_N_ELEMENTS(range_names)},
    {COLUMN_SEGMENT_ACTION, "segment", action_names, G_N_ELEMENTS(action_names)},
};

#define FIELD(struct_, member, name_, type_)                                                       \
  {                                                                                                \
    .name = name_, .offset = G_STRUCT_OFFSET(struct_, member),                                     \
    .size = sizeof(((struct_ *) NULL)->member), .type = type_                                      \
  }
#define END                                                                                        \
  {                                                                                                \
    .name = NULL                                                                                   \
  }

const Column recording_columns[] = {
    FIELD(Recording, capacity_bytes, "capacity_bytes", COLUMN_LIMIT),
    FIELD(Recording, outside_allocator_bytes, "outside_allocator_bytes", COLUMN_COUNT),
    FIELD(Recording, construction_allocated, "construction_allocated_bytes", COLUMN_COUNT),
    FIELD(Recording, construction_reserved, "construction_reserved_bytes", COLUMN_COUNT),
    FIELD(Recording, construction_peak_allocated, "construction_peak_allocated_bytes",
          COLUMN_COUNT),
    FIELD(Recording, construction_peak_reserved, "construction_peak_reserved_bytes", COLUMN_COUNT),
    FIELD(Recording, at_rest_bytes, "at_rest_bytes", COLUMN_COUNT),
    END,
};

const Column out_of_memory_columns[] = {
    FIELD(OutOfMemoryRecord, step, "step", COLUMN_COUNT),
    FIELD(OutOfMemoryRecord, phase, "phase", COLUMN_STRING),
    FIELD(OutOfMemoryRecord, module, "module", COLUMN_STRING),
    FIELD(OutOfMemoryRecord, what, "what", COLUMN_STRING),
    FIELD(OutOfMemoryRecord, requested_bytes, "requested_bytes", COLUMN_COUNT),
    FIELD(OutOfMemoryRecord, segment_bytes, "segment_bytes", COLUMN_COUNT),
    FIELD(OutOfMemoryRecord, limit_bytes, "limit_bytes", COLUMN_LIMIT),
    FIELD(OutOfMemoryRecord, allocated_bytes, "allocated_bytes", COLUMN_COUNT),
    FIELD(OutOfMemoryRecord, reserved_bytes, "reserved_bytes", COLUMN_COUNT),
    FIELD(OutOfMemoryRecord, category, "category", COLUMN_CATEGORY),
    FIELD(OutOfMemoryRecord, stream, "stream", COLUMN_STREAM),
    END,
};

const Column peak_columns[] = {
    FIELD(PeakRecord, step, "step", COLUMN_COUNT),
    FIELD(PeakRecord, phase, "phase", COLUMN_STRING),
    FIELD(PeakRecord, module, "module", COLUMN_STRING),
    FIELD(PeakRecord, micro_batch, "micro_batch", COLUMN_SIGNED),
    FIELD(PeakRecord, time, "time_ns", COLUMN_COUNT),
    FIELD(PeakRecord, allocated, "allocated_bytes", COLUMN_COUNT),
    FIELD(PeakRecord, reserved, "reserved_bytes", COLUMN_COUNT),
    END,
};

static const Column step_columns[] = {
    FIELD(StepRecord, index, "index", COLUMN_COUNT),
    FIELD(StepRecord, start, "start_ns", COLUMN_COUNT),
    FIELD(StepRecord, end, "end_ns", COLUMN_COUNT),
    FIELD(StepRecord, peak_allocated, "peak_allocated_bytes", COLUMN_COUNT),
    FIELD(StepRecord, peak_reserved, "peak_reserved_bytes", COLUMN_COUNT),
    FIELD(StepRecord, end_allocated, "end_allocated_bytes", COLUMN_COUNT),
    FIELD(StepRecord, allocator_retries, "allocator_retries", COLUMN_COUNT),
    END,
};

static const Column beyond_columns[] = {
    FIELD(BeyondRecord, range, "range", COLUMN_COUNT),
    FIELD(BeyondRecord, start, "start_ns", COLUMN_COUNT),
    FIELD(BeyondRecord, end, "end_ns", COLUMN_COUNT),
    END,
};

static const Column range_columns[] = {
    FIELD(Range, start, "start_ns", COLUMN_COUNT),
    FIELD(Range, end, "end_ns", COLUMN_COUNT),
    FIELD(Range, kind, "kind", COLUMN_RANGE_KIND),
    FIELD(Range, step, "step", COLUMN_COUNT),
    FIELD(Range, micro_batch, "micro_batch", COLUMN_SIGNED),
    FIELD(Range, name, "name", COLUMN_STRING),
    FIELD(Range, module, "module", COLUMN_STRING),
    FIELD(Range, start_allocated, "start_allocated_bytes", COLUMN_COUNT),
    FIELD(Range, end_allocated, "end_allocated_bytes", COLUMN_COUNT),
    FIELD(Range, peak_allocated, "peak_allocated_bytes", COLUMN_COUNT),
    FIELD(Range, peak_reserved, "peak_reserved_bytes", COLUMN_COUNT),
    END,
};

static const Column segment_columns[] = {
    FIELD(SegmentEvent, time, "time_ns", COLUMN_COUNT),
    FIELD(SegmentEvent, action, "action", COLUMN_SEGMENT_ACTION),
    FIELD(SegmentEvent, address, "address", COLUMN_COUNT),
    FIELD(SegmentEvent, bytes, "bytes", COLUMN_COUNT),
    FIELD(SegmentEvent, stream, "stream", COLUMN_STREAM),
    FIELD(SegmentEvent, memory_events, "memory_events", COLUMN_COUNT),
    END,
};

static const Column completion_columns[] = {
    FIELD(CompletionEvent, time, "time_ns", COLUMN_SIGNED),
    FIELD(CompletionEvent, allocation, "allocation", COLUMN_COUNT),
    FIELD(CompletionEvent, memory_events, "memory_events", COLUMN_COUNT),
    FIELD(CompletionEvent, segment_events, "segment_events", COLUMN_COUNT),
    END,
};

static const Column memory_columns[] = {
    FIELD(MemoryEvent, time, "time_ns", COLUMN_COUNT),
    FIELD(MemoryEvent, allocation, "allocation", COLUMN_COUNT),
    FIELD(MemoryEvent, requested_bytes, "requested_bytes", COLUMN_SIGNED),
    FIELD(MemoryEvent, block_bytes, "block_bytes", COLUMN_SIGNED),
    FIELD(MemoryEvent, allocated_after, "allocated_bytes", COLUMN_COUNT),
    FIELD(MemoryEvent, reserved_after, "reserved_bytes", COLUMN_COUNT),
    FIELD(MemoryEvent, address, "address", COLUMN_COUNT),
    FIELD(MemoryEvent, category, "category", COLUMN_CATEGORY),
    FIELD(MemoryEvent, stream, "stream", COLUMN_STREAM),
    FIELD(MemoryEvent, step, "step", COLUMN_COUNT),
    FIELD(MemoryEvent, module, "module", COLUMN_STRING),
    FIELD(MemoryEvent, what, "what", COLUMN_STRING),
    END,
};

static const Column span_columns[] = {
    FIELD(Span, start, "start_ns", COLUMN_COUNT),
    FIELD(Span, end, "end_ns", COLUMN_COUNT),
    FIELD(Span, issued, "issued_ns", COLUMN_COUNT),
    FIELD(Span, arrived, "arrived_ns", COLUMN_COUNT),
    FIELD(Span, alone, "alone_ns", COLUMN_COUNT),
    FIELD(Span, kind, "kind", COLUMN_SPAN_KIND),
    FIELD(Span, stream, "stream", COLUMN_STREAM),
    FIELD(Span, step, "step", COLUMN_COUNT),
    FIELD(Span, name, "name", COLUMN_STRING),
    FIELD(Span, module, "module", COLUMN_STRING),
    FIELD(Span, communicator, "communicator", COLUMN_STRING),
    FIELD(Span, phase, "phase", COLUMN_COUNT),
    FIELD(Span, dtype, "dtype", COLUMN_COUNT),
    FIELD(Span, bytes, "bytes", COLUMN_COUNT),
    FIELD(Span, flops, "flops", COLUMN_DOUBLE),
    END,
};

static const Column range_events_columns[] = {
    FIELD(RangeEvents, first, "first", COLUMN_COUNT),
    FIELD(RangeEvents, end, "end", COLUMN_COUNT),
    END,
};

static const Column wait_columns[] = {
    FIELD(Wait, start, "start_ns", COLUMN_COUNT),
    FIELD(Wait, end, "end_ns", COLUMN_COUNT),
    FIELD(Wait, issued, "issued_ns", COLUMN_COUNT),
    FIELD(Wait, recorded, "recorded_ns", COLUMN_COUNT),
    FIELD(Wait, stream, "stream", COLUMN_STREAM),
    FIELD(Wait, source, "source", COLUMN_STREAM),
    FIELD(Wait, step, "step", COLUMN_COUNT),
    END,
};

static const Column live_columns[] = {
    FIELD(LiveTensor, bytes, "bytes", COLUMN_COUNT),
    FIELD(LiveTensor, category, "category", COLUMN_CATEGORY),
    FIELD(LiveTensor, module, "module", COLUMN_STRING),
    FIELD(LiveTensor, what, "what", COLUMN_STRING),
    END,
};

#define ROWS(key_, columns_, member, type)                                                         \
  {                                                                                                \
    .key = key_, .columns = columns_, .offset = G_STRUCT_OFFSET(Recording, member),                \
    .element_size = sizeof(type)                                                                   \
  }
#define ROWS_IF_ANY(key_, columns_, member, type)                                                  \
  {                                                                                                \
    .key = key_, .columns = columns_, .offset = G_STRUCT_OFFSET(Recording, member),                \
    .element_size = sizeof(type), .only_if_any = TRUE                                              \
  }
const RecordTable recording_tables[RECORDING_TABLES] = {
    ROWS("steps", step_columns, steps, StepRecord),
    ROWS("ranges", range_columns, ranges, Range),
    ROWS("segments", segment_columns, segments, SegmentEvent),
    ROWS("memory", memory_columns, memory, MemoryEvent),
    ROWS("spans", span_columns, spans, Span),
    ROWS("peak_live", live_columns, peak.live, LiveTensor),
    ROWS_IF_ANY("beyond", beyond_columns, beyond, BeyondRecord),
    ROWS_IF_ANY("range_events", range_events_columns, range_events, RangeEvents),
    ROWS_IF_ANY("waits", wait_columns, waits, Wait),
    ROWS_IF_ANY("completions", completion_columns, completions, CompletionEvent),
};

GArray *
record_table_array(const RecordTable *table, const Recording *recording)
{
  return *(GArray *const *) (gconstpointer) ((const char *) recording + table->offset);
}

gint64
column_get(const Column *column, gconstpointer base)
{
  const char *at = (const char *) base + column->offset;
  switch (column->size) {
  case 1:
    return *(const guint8 *) at;
  case 2:
    return *(const gint16 *) (gconstpointer) at;
  case 4:
    return *(const gint32 *) (gconstpointer) at;
  default:
    g_assert(column->size == 8);
    return *(const gint64 *) (gconstpointer) at;
  }
}

double
column_get_double(const Column *column, gconstpointer base)
{
  return *(const double *) (gconstpointer) ((const char *) base + column->offset);
}

void
column_set(const Column *column, gpointer base, gint64 value)
{
  char *at = (char *) base + column->offset;
  switch (column->size) {
  case 1:
    *(guint8 *) at = (guint8) value;
    break;
  case 2:
    *(gint16 *) (gpointer) at = (gint16) value;
    break;
  case 4:
    *(gint32 *) (gpointer) at = (gint32) value;
    break;
  default:
    g_assert(column->size == 8);
    *(gint64 *) (gpointer) at = value;
  }
}

void
column_set_double(const Column *column, gpointer base, double value)
{
  *(double *) (gpointer) ((char *) base + column->offset) = value;
}

gboolean
column_fits(const Column *column, gint64 value)
{
  static const gint64 largest[] = {
      [1] = G_MAXUINT8, [2] = G_MAXINT16, [4] = G_MAXINT32, [8] = G_MAXINT64};
  return value <= largest[column->size] &&
         value >= (column->size == 1 ? 0 : -largest[column->size]);
}
