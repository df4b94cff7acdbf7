/* snapshot_tables.c - the history's entries and the segments with their blocks, each value checked.
 */
#include "base/category.h"
#include "import/allocation_trace_internal.h"
#include "import/snapshot_file_internal.h"

static gboolean fail(SnapshotReader *reader, const char *format, ...) G_GNUC_PRINTF(2, 3);

static gboolean
fail(SnapshotReader *reader, const char *format, ...)
{
  if (*reader->error)
    return FALSE;
  va_list arguments;
  va_start(arguments, format);
  g_autofree char *text = g_strdup_vprintf(format, arguments);
  va_end(arguments);
  g_set_error(reader->error, HIGHWATER_ERROR, HIGHWATER_ERROR_INPUT, "%s: %s[%u]: %s",
              reader->file->name, reader->list, reader->index, text);
  return FALSE;
}

/* ---- values of a dictionary ---- */

static gboolean
get_int(SnapshotReader *reader, const PickleValue *dict, const char *key, gint64 most,
        gint64 *number)
{
  const PickleValue *value = pickle_get(dict, key);
  if (!value)
    return fail(reader, "key '%s' is missing", key);
  if (value->kind != PICKLE_INT || value->number < 0 || value->number > most)
    return fail(reader, "key '%s' is not a number in 0..%" G_GINT64_FORMAT, key, most);
  *number = value->number;
  return TRUE;
}

static gboolean
get_address(SnapshotReader *reader, const PickleValue *dict, const char *key, guint64 *address)
{
  gint64 number;
  if (!get_int(reader, dict, key, (gint64) 1 << 62, &number))
    return FALSE;
  *address = (guint64) number;
  return TRUE;
}

static gboolean
get_bytes(SnapshotReader *reader, const PickleValue *dict, const char *key, gint64 *bytes)
{
  return get_int(reader, dict, key, TRACE_MAX_BYTES, bytes);
}

/* NULL and a failure when it is missing. */
static const char *
get_text(SnapshotReader *reader, const PickleValue *dict, const char *key)
{
  const PickleValue *value = pickle_get(dict, key);
  if (value && value->kind == PICKLE_STRING)
    return value->text;
  fail(reader, "key '%s' is not a string", key);
  return NULL;
}

gint64
snapshot_int_or(const PickleValue *dict, const char *key, gint64 otherwise)
{
  const PickleValue *value = pickle_get(dict, key);
  return value && value->kind == PICKLE_INT ? value->number : otherwise;
}

gboolean
snapshot_is_true(const PickleValue *dict, const char *key)
{
  const PickleValue *value = pickle_get(dict, key);
  return value && value->kind == PICKLE_BOOL && value->number;
}

/* ---- the history ---- */

static gboolean
read_action(SnapshotReader *reader, const PickleValue *dict, SnapshotEntry *entry)
{
  const char *name = get_text(reader, dict, "action");
  if (!name)
    return FALSE;
  for (int i = 0; i < TRACE_EMPTY_CACHE; i++)
    if (g_str_equal(name, trace_action_name((TraceAction) i))) {
      entry->action = (guint8) i;
      return TRUE;
    }
  /* What the program notes itself does nothing to memory. */
  entry->action = TRACE_SNAPSHOT;
  return g_str_equal(name, "user_defined") || fail(reader, "unknown action '%.40s'", name);
}

/* Of PyTorch's profiler, whose gradients are not sharded. */
static gint8
category_of(const PickleValue *dict)
{
  static const struct {
    const char *name;
    Category category;
  } of_profiler[] = {{"gradient", CATEGORY_UNSHARDED_GRADIENT},
                     {"autograd_detail", CATEGORY_TEMPORARY},
                     {"input", CATEGORY_OTHER}};
  const PickleValue *value = pickle_get(dict, "category");
  if (!value || value->kind != PICKLE_STRING)
    return -1;
  for (guint i = 0; i < G_N_ELEMENTS(of_profiler); i++)
    if (g_str_equal(value->text, of_profiler[i].name))
      return (gint8) of_profiler[i].category;
  return (gint8) category_from_name(value->text);
}

static gboolean
read_entry(SnapshotReader *reader, const PickleValue *dict)
{
  SnapshotEntry entry = {.label = -1, .category = -1};
  if (!read_action(reader, dict, &entry))
    return FALSE;
  if (entry.action != TRACE_SNAPSHOT) {
    gboolean out_of_memory = entry.action == TRACE_OUT_OF_MEMORY;
    if (!get_bytes(reader, dict, "size", &entry.bytes) ||
        !get_address(reader, dict, "stream", &entry.stream) ||
        !(out_of_memory ? get_bytes(reader, dict, "device_free", &entry.device_free)
                        : get_address(reader, dict, "addr", &entry.address)))
      return FALSE;
    if (entry.bytes == 0)
      return fail(reader, "key 'size' is 0");
    if (entry.address > (guint64) TRACE_MAX_BYTES)
      return fail(reader, "key 'addr' is not in 0..2^50");
  }
  entry.time_us = CLAMP(snapshot_int_or(dict, "time_us", 0), 0, G_MAXINT64 / 2000);
  entry.label = snapshot_label(reader, pickle_get(dict, "frames"));
  entry.category = category_of(dict);
  g_array_append_val(reader->file->entries, entry);
  return TRUE;
}

gboolean
snapshot_read_entries(SnapshotReader *reader, const PickleValue *trace)
{
  reader->list = "device_traces";
  for (guint i = 0; i < pickle_length(trace); i++) {
    reader->index = i;
    if (i == TRACE_MAX_EVENTS)
      return fail(reader, "more than %d entries", TRACE_MAX_EVENTS);
    if (!read_entry(reader, pickle_item(trace, i)))
      return FALSE;
  }
  return TRUE;
}

/* ---- segments ---- */

static gboolean
read_block(SnapshotReader *reader, const PickleValue *dict, guint64 address)
{
  static const char *const states[] = {"inactive", "active_allocated", "active_pending_free"};
  SnapshotBlock block = {.address = address, .label = -1};
  const char *state = get_text(reader, dict, "state");
  if (!state || !get_bytes(reader, dict, "size", &block.bytes))
    return FALSE;
  while (block.state < G_N_ELEMENTS(states) && !g_str_equal(state, states[block.state]))
    block.state++;
  /* Before PyTorch 2.1 the last one was called otherwise. */
  if (g_str_equal(state, "active_awaiting_free"))
    block.state = SNAPSHOT_PENDING_FREE;
  if (block.state == G_N_ELEMENTS(states))
    return fail(reader, "unknown state '%.40s' of a block", state);
  block.requested_bytes =
      CLAMP(snapshot_int_or(dict, "requested_size", block.bytes), 0, block.bytes);
  if (block.state != SNAPSHOT_INACTIVE)
    block.label = snapshot_label(reader, pickle_get(dict, "frames"));
  if (reader->file->blocks->len == TRACE_MAX_EVENTS)
    return fail(reader, "more than %d blocks", TRACE_MAX_EVENTS);
  g_array_append_val(reader->file->blocks, block);
  return TRUE;
}

static gboolean
read_blocks(SnapshotReader *reader, const PickleValue *list, SnapshotSegment *segment)
{
  GArray *blocks = reader->file->blocks;
  guint64 address = segment->address, end = segment->address + (guint64) segment->bytes;
  segment->first_block = blocks->len;
  for (guint i = 0; i < pickle_length(list); i++) {
    if (!read_block(reader, pickle_item(list, i), address))
      return FALSE;
    address += (guint64) g_array_index(blocks, SnapshotBlock, blocks->len - 1).bytes;
    if (address > end)
      break;
  }
  segment->n_blocks = blocks->len - segment->first_block;
  return address == end || fail(reader, "its blocks do not tile its total_size");
}

static gboolean
read_segment(SnapshotReader *reader, const PickleValue *dict)
{
  SnapshotSegment segment = {.expandable = snapshot_is_true(dict, "is_expandable")};
  const char *type = get_text(reader, dict, "segment_type");
  if (!type || !get_address(reader, dict, "address", &segment.address) ||
      !get_address(reader, dict, "stream", &segment.stream) ||
      !get_bytes(reader, dict, "total_size", &segment.bytes))
    return FALSE;
  segment.small_pool = g_str_equal(type, "small");
  if (segment.address > (guint64) TRACE_MAX_BYTES || segment.bytes == 0)
    return fail(reader, "no bytes, or an address beyond 2^50");
  if (!read_blocks(reader, pickle_get(dict, "blocks"), &segment))
    return FALSE;
  g_array_append_val(reader->file->segments, segment);
  return TRUE;
}

static gint
compare_segments(gconstpointer a, gconstpointer b)
{
  const SnapshotSegment *x = a, *y = b;
  return (x->address > y->address) - (x->address < y->address);
}

gboolean
snapshot_read_segments(SnapshotReader *reader, const PickleValue *list)
{
  reader->list = "segments";
  for (guint i = 0; i < pickle_length(list); i++) {
    const PickleValue *dict = pickle_item(list, i);
    reader->index = i;
    if (snapshot_int_or(dict, "device", 0) == reader->file->device && !read_segment(reader, dict))
      return FALSE;
  }
  g_array_sort(reader->file->segments, compare_segments);
  return TRUE;
}
