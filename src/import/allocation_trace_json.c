/* allocation_trace_json.c - the JSON of a recorded PyTorch memory history (doc/formats.md). */
#include "base/units.h"
#include "import/allocation_trace_internal.h"
#include "import/json_pull.h"
#include "memory/allocator_options.h"
#include <string.h>

#define MAX_COLUMNS 32
#define ADDRESS_LIMIT ((gint64) 1 << 52)

typedef enum {
  COLUMN_ACTION,
  COLUMN_SIZE,
  COLUMN_ADDRESS,
  COLUMN_STREAM,
  COLUMN_FRAME,
  COLUMN_PHASE,
  COLUMN_OTHER,
} Column;

static const char *const column_names[] = {
    [COLUMN_ACTION] = "action", [COLUMN_SIZE] = "size",   [COLUMN_ADDRESS] = "addr",
    [COLUMN_STREAM] = "stream", [COLUMN_FRAME] = "frame", [COLUMN_PHASE] = "phase",
};

typedef struct {
  TraceBuilder *builder;
  AllocationTrace *trace;
  JsonPull pull;
  Column columns[MAX_COLUMNS];
  guint n_columns;
  gint64 base_address;
  gint64 cap_mib, total_mib;
  char *options; /* alloc_conf */
  gint64 summary_allocated, summary_reserved, traced_allocated, traced_reserved;
} TraceReader;

/* A size of the recording: 0 to TRACE_MAX_BYTES. */
static gboolean
read_bytes(TraceReader *reader, gint64 *bytes)
{
  if (!json_pull_int(&reader->pull, bytes))
    return FALSE;
  if (*bytes < 0 || *bytes > TRACE_MAX_BYTES)
    return json_pull_fail(&reader->pull, "size %" G_GINT64_FORMAT " is not in 0..2^50", *bytes);
  return TRUE;
}

/* A number or null, which leaves what is there. */
static gboolean
read_optional_int(TraceReader *reader, gint64 *value)
{
  return json_pull_null(&reader->pull) || json_pull_int(&reader->pull, value);
}

static gboolean
read_stream(TraceReader *reader, gint32 *stream)
{
  gint64 name;
  if (!json_pull_int(&reader->pull, &name))
    return FALSE;
  if (name < 0)
    return json_pull_fail(&reader->pull, "stream %" G_GINT64_FORMAT " is negative", name);
  *stream = trace_builder_stream(reader->builder, (guint64) name);
  return *stream >= 0 ||
         json_pull_fail(&reader->pull, "more than %d different streams", TRACE_MAX_STREAMS);
}

static gboolean
read_config(TraceReader *reader)
{
  const char *key, *text;
  json_pull_object(&reader->pull);
  while (json_pull_key(&reader->pull, &key)) {
    if (g_str_equal(key, "cap_mib")) {
      read_optional_int(reader, &reader->cap_mib);
    } else if (g_str_equal(key, "total_mib")) {
      read_optional_int(reader, &reader->total_mib);
    } else if (g_str_equal(key, "alloc_conf")) {
      if (json_pull_string(&reader->pull, &text)) {
        g_free(reader->options);
        reader->options = g_strdup(text);
      }
    } else {
      json_pull_skip(&reader->pull);
    }
  }
  return TRUE;
}

static gboolean
read_columns(TraceReader *reader)
{
  const char *name;
  if (reader->trace->events->len > 0)
    return json_pull_fail(&reader->pull, "key 'columns' must stand before 'events'");
  reader->n_columns = 0;
  json_pull_array(&reader->pull);
  while (json_pull_element(&reader->pull) && json_pull_string(&reader->pull, &name)) {
    Column column = COLUMN_OTHER;
    for (guint i = 0; i < G_N_ELEMENTS(column_names); i++)
      column = g_str_equal(name, column_names[i]) ? (Column) i : column;
    if (reader->n_columns == MAX_COLUMNS)
      return json_pull_fail(&reader->pull, "more than %d columns", MAX_COLUMNS);
    reader->columns[reader->n_columns++] = column;
  }
  return TRUE;
}

static gboolean
read_base_address(TraceReader *reader)
{
  if (!json_pull_int(&reader->pull, &reader->base_address))
    return FALSE;
  if (reader->base_address < 0 || reader->base_address > ADDRESS_LIMIT)
    return json_pull_fail(&reader->pull, "base_address is not in 0..2^52");
  return TRUE;
}

static gboolean
read_frames(TraceReader *reader)
{
  const char *name;
  json_pull_array(&reader->pull);
  while (json_pull_element(&reader->pull) && json_pull_string(&reader->pull, &name))
    g_ptr_array_add(reader->trace->frames, g_strdup(name));
  return TRUE;
}

/* [SIZE, REQUESTED, STATE] */
static gboolean
read_block(TraceReader *reader)
{
  static const char *const states[] = {"inactive", "active_allocated", "active_pending_free"};
  JsonPull *pull = &reader->pull;
  GArray *slots = reader->trace->slots;
  TraceBlock block = {.slot = -1};
  const char *state;
  if (!json_pull_array(pull) || !json_pull_element(pull) || !read_bytes(reader, &block.bytes) ||
      !json_pull_element(pull) || !read_bytes(reader, &block.requested_bytes) ||
      !json_pull_element(pull) || !json_pull_string(pull, &state))
    return json_pull_fail(pull, "a block is [SIZE, REQUESTED, STATE]");
  if (!g_str_equal(state, states[0])) {
    block.pending_free = g_str_equal(state, states[2]);
    if (!block.pending_free && !g_str_equal(state, states[1]))
      return json_pull_fail(pull, "state '%s' is none of %s, %s, %s", state, states[0], states[1],
                            states[2]);
    TraceSlot slot = {block.pending_free ? -1 : G_MAXINT32, G_MAXINT32, -1};
    block.slot = (gint32) slots->len;
    g_array_append_val(slots, slot);
  }
  if (json_pull_element(pull))
    return json_pull_fail(pull, "a block is [SIZE, REQUESTED, STATE]");
  if (reader->trace->blocks->len == TRACE_MAX_EVENTS)
    return json_pull_fail(pull, "more than %d blocks", TRACE_MAX_EVENTS);
  g_array_append_val(reader->trace->blocks, block);
  return TRUE;
}

static gboolean
read_segment_type(TraceReader *reader, TraceSegment *segment)
{
  const char *type;
  if (!json_pull_string(&reader->pull, &type))
    return FALSE;
  segment->small_pool = g_str_equal(type, "small");
  return segment->small_pool || g_str_equal(type, "large") ||
         json_pull_fail(&reader->pull, "segment_type '%s' is neither small nor large", type);
}

static gboolean
read_segment_key(TraceReader *reader, const char *key, TraceSegment *segment, gint64 *total)
{
  gint64 address;
  if (g_str_equal(key, "address")) {
    if (!json_pull_int(&reader->pull, &address))
      return FALSE;
    segment->address = (guint64) address; /* checked when the base is known */
    return address >= 0 && address <= ADDRESS_LIMIT
               ? TRUE
               : json_pull_fail(&reader->pull, "address not in 0..2^52");
  }
  if (g_str_equal(key, "total_size"))
    return read_bytes(reader, total);
  if (g_str_equal(key, "stream"))
    return read_stream(reader, &segment->stream);
  if (g_str_equal(key, "segment_type"))
    return read_segment_type(reader, segment);
  if (!g_str_equal(key, "blocks"))
    return json_pull_skip(&reader->pull);
  json_pull_array(&reader->pull);
  while (json_pull_element(&reader->pull) && read_block(reader))
    continue;
  return TRUE;
}

static gboolean
read_segment(TraceReader *reader)
{
  GArray *blocks = reader->trace->blocks;
  TraceSegment segment = {.stream = -1, .first_block = blocks->len};
  gint64 total = -1, sum = 0;
  const char *key;
  json_pull_object(&reader->pull);
  while (json_pull_key(&reader->pull, &key) && read_segment_key(reader, key, &segment, &total))
    continue;
  segment.n_blocks = blocks->len - segment.first_block;
  for (guint i = segment.first_block; sum <= total && i < blocks->len; i++)
    sum += g_array_index(blocks, TraceBlock, i).bytes;
  if (segment.stream < 0 || total < 0)
    return json_pull_fail(&reader->pull, "a segment needs stream and total_size");
  if (sum != total)
    return json_pull_fail(&reader->pull,
                          "blocks of %" G_GINT64_FORMAT
                          " bytes do not tile a segment of %" G_GINT64_FORMAT,
                          sum, total);
  g_array_append_val(reader->trace->segments, segment);
  return TRUE;
}

static gboolean
read_segments(TraceReader *reader)
{
  /* Slots of blocks come first. */
  if (reader->trace->events->len > 0)
    return json_pull_fail(&reader->pull, "key 'segments_before' must stand before 'events'");
  json_pull_array(&reader->pull);
  while (json_pull_element(&reader->pull) && read_segment(reader))
    continue;
  return TRUE;
}

static gboolean
read_action(TraceReader *reader, guint8 *action)
{
  const char *name;
  if (!json_pull_string(&reader->pull, &name))
    return FALSE;
  for (int i = 0; i < TRACE_EMPTY_CACHE; i++) {
    if (!g_str_equal(name, trace_action_name((TraceAction) i)))
      continue;
    *action = (guint8) i;
    return TRUE;
  }
  return json_pull_fail(&reader->pull, "event %u: unknown action '%s'", reader->trace->events->len,
                        name);
}

static gboolean
read_phase(TraceReader *reader, gint32 *phase)
{
  const char *name;
  if (!json_pull_string(&reader->pull, &name))
    return FALSE;
  const GPtrArray *phases = reader->trace->phases;
  /* Most events are in the phase of the one before. */
  if (*phase < 0 || !g_str_equal(name, g_ptr_array_index(phases, (guint) *phase)))
    *phase = trace_builder_phase(reader->builder, name);
  return TRUE;
}

static gboolean
read_column(TraceReader *reader, Column column, TraceEvent *event)
{
  gint64 number = 0;
  switch (column) {
  case COLUMN_ACTION:
    return read_action(reader, &event->action);
  case COLUMN_SIZE:
    return read_bytes(reader, &event->bytes);
  case COLUMN_ADDRESS:
    if (!json_pull_int(&reader->pull, &number))
      return FALSE;
    event->address = (guint64) number;
    return TRUE;
  case COLUMN_STREAM:
    return read_stream(reader, &event->stream);
  case COLUMN_FRAME:
    if (!json_pull_int(&reader->pull, &number))
      return FALSE;
    event->frame = number >= 0 && number < G_MAXINT32 ? (gint32) number : -1;
    return TRUE;
  case COLUMN_PHASE:
    return read_phase(reader, &event->phase);
  case COLUMN_OTHER:
    break;
  }
  return json_pull_skip(&reader->pull);
}

static gboolean
read_event(TraceReader *reader, gint32 *phase)
{
  GArray *events = reader->trace->events;
  TraceEvent event = {.action = TRACE_ACTION_COUNT, .slot = -1, .phase = *phase, .frame = -1};
  guint column = 0;
  json_pull_array(&reader->pull);
  while (json_pull_element(&reader->pull)) {
    if (column == reader->n_columns)
      return json_pull_fail(&reader->pull, "event %u: more than %u columns", events->len,
                            reader->n_columns);
    if (!read_column(reader, reader->columns[column++], &event))
      return FALSE;
  }
  if (reader->pull.error)
    return FALSE;
  if (column < reader->n_columns || event.action == TRACE_ACTION_COUNT)
    return json_pull_fail(&reader->pull, "event %u: %u columns, expected %u with an action",
                          events->len, column, reader->n_columns);
  if (events->len == TRACE_MAX_EVENTS)
    return json_pull_fail(&reader->pull, "more than %d events", TRACE_MAX_EVENTS);
  *phase = event.phase;
  g_array_append_val(events, event);
  return TRUE;
}

static gboolean
read_events(TraceReader *reader)
{
  gint32 phase = -1;
  json_pull_array(&reader->pull);
  while (json_pull_element(&reader->pull) && read_event(reader, &phase))
    continue;
  return TRUE;
}

static gboolean
read_summary(TraceReader *reader)
{
  const char *key;
  if (json_pull_null(&reader->pull))
    return TRUE;
  json_pull_object(&reader->pull);
  while (json_pull_key(&reader->pull, &key)) {
    if (g_str_equal(key, "peak_allocated"))
      read_optional_int(reader, &reader->summary_allocated);
    else if (g_str_equal(key, "peak_reserved"))
      read_optional_int(reader, &reader->summary_reserved);
    else
      json_pull_skip(&reader->pull);
  }
  return TRUE;
}

static gboolean
read_traced_allocated(TraceReader *reader)
{
  return read_optional_int(reader, &reader->traced_allocated);
}

static gboolean
read_traced_reserved(TraceReader *reader)
{
  return read_optional_int(reader, &reader->traced_reserved);
}

static const struct {
  const char *name;
  gboolean (*read)(TraceReader *reader);
} sections[] = {
    {"config", read_config},
    {"columns", read_columns},
    {"base_address", read_base_address},
    {"frames", read_frames},
    {"segments_before", read_segments},
    {"events", read_events},
    {"summary", read_summary},
    {"peak_allocated_traced", read_traced_allocated},
    {"peak_reserved_traced", read_traced_reserved},
};

static gboolean
read_document(TraceReader *reader)
{
  JsonPull *pull = &reader->pull;
  guint seen = 0;
  const char *key;
  json_pull_object(pull);
  while (json_pull_key(pull, &key)) {
    guint i = 0;
    while (i < G_N_ELEMENTS(sections) && !g_str_equal(key, sections[i].name))
      i++;
    if (i == G_N_ELEMENTS(sections)) {
      json_pull_skip(pull);
      continue;
    }
    if (seen & 1u << i)
      return json_pull_fail(pull, "key '%s' appears twice", sections[i].name);
    seen |= 1u << i;
    sections[i].read(reader);
  }
  return json_pull_end(pull);
}

/* The device and its allocator as the configuration describes them. */
static gboolean
apply_config(TraceReader *reader, GError **error)
{
  AllocatorConfig *config = &reader->trace->config;
  const gint64 most = TRACE_MAX_BYTES / MIB;
  if (reader->cap_mib < 0 || reader->cap_mib > most || reader->total_mib < 0 ||
      reader->total_mib > most) {
    g_set_error(error, HIGHWATER_ERROR, HIGHWATER_ERROR_INPUT,
                "%s: key 'config': cap_mib and total_mib must be in 0..2^30", reader->trace->name);
    return FALSE;
  }
  if (reader->total_mib > 0)
    config->memory_limit = config->device_total_bytes = reader->total_mib * MIB;
  if (reader->options && !allocator_options_parse(config, reader->options, error)) {
    g_prefix_error(error, "%s: key 'config.alloc_conf': ", reader->trace->name);
    return FALSE;
  }
  /* The device shrank before the trace began, but after the options were read and the first
   * reservations made. */
  gint64 total_before = config->device_total_bytes;
  if (reader->cap_mib > 0)
    config->memory_limit = config->device_total_bytes = reader->cap_mib * MIB;
  reader->trace->reservation_bytes = total_before + total_before / 8;
  return TRUE;
}

/* Addresses become absolute.  Those of oom and snapshot events are something else. */
static gboolean
apply_base(TraceReader *reader, GError **error)
{
  AllocationTrace *trace = reader->trace;
  guint64 base = (guint64) reader->base_address;
  for (guint i = 0; i < trace->segments->len; i++)
    g_array_index(trace->segments, TraceSegment, i).address += base;
  for (guint i = 0; i < trace->events->len; i++) {
    TraceEvent *event = &g_array_index(trace->events, TraceEvent, i);
    if (event->action == TRACE_OUT_OF_MEMORY || event->action == TRACE_SNAPSHOT)
      continue;
    gint64 relative = (gint64) event->address;
    if (relative < 0 || relative > ADDRESS_LIMIT - reader->base_address) {
      g_set_error(error, HIGHWATER_ERROR, HIGHWATER_ERROR_INPUT,
                  "%s: event %u: address %" G_GINT64_FORMAT " is not in 0..2^52", trace->name, i,
                  relative);
      return FALSE;
    }
    event->address += base;
  }
  return TRUE;
}

gboolean
allocation_trace_read_json(TraceBuilder *builder, ByteSource *source, GError **error)
{
  TraceReader reader = {
      .builder = builder,
      .trace = builder->trace,
      .columns = {COLUMN_ACTION, COLUMN_SIZE, COLUMN_ADDRESS, COLUMN_STREAM, COLUMN_FRAME,
                  COLUMN_OTHER, COLUMN_PHASE},
      .n_columns = 7,
      .summary_allocated = -1,
      .summary_reserved = -1,
      .traced_allocated = -1,
      .traced_reserved = -1,
  };
  builder->trace->has_segment_events = TRUE;
  json_pull_init(&reader.pull, source);
  read_document(&reader);
  gboolean ok = json_pull_ok(&reader.pull, error) && apply_config(&reader, error) &&
                apply_base(&reader, error);
  gboolean traced = reader.traced_allocated >= 0;
  builder->trace->recorded_peak_allocated =
      traced ? reader.traced_allocated : reader.summary_allocated;
  builder->trace->recorded_peak_reserved =
      reader.traced_reserved >= 0 ? reader.traced_reserved : reader.summary_reserved;
  json_pull_clear(&reader.pull);
  g_free(reader.options);
  return ok;
}
