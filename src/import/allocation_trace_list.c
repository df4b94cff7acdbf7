/* allocation_trace_list.c - the plain list: one allocation or free a line. */
#include "base/units.h"
#include "import/allocation_trace_internal.h"
#include <string.h>

#define LINE_LIMIT 4096

typedef struct {
  TraceBuilder *builder;
  ByteSource *source;
  GString *line;
  guint number;      /* of the line, from 1 */
  GHashTable *alive; /* ID -> slot + 1 */
} ListReader;

static gboolean refuse(const ListReader *reader, GError **error, const char *format, ...)
    G_GNUC_PRINTF(3, 4);

static gboolean
refuse(const ListReader *reader, GError **error, const char *format, ...)
{
  va_list arguments;
  va_start(arguments, format);
  g_autofree char *text = g_strdup_vprintf(format, arguments);
  va_end(arguments);
  g_set_error(error, HIGHWATER_ERROR, HIGHWATER_ERROR_INPUT, "%s: line %u: %s",
              reader->builder->trace->name, reader->number, text);
  return FALSE;
}

static void
add_event(ListReader *reader, TraceAction action, gint64 bytes, gint32 stream, gint32 slot)
{
  TraceEvent event = {.bytes = bytes,
                      .stream = stream,
                      .slot = slot,
                      .phase = -1,
                      .frame = -1,
                      .action = (guint8) action};
  g_array_append_val(reader->builder->trace->events, event);
}

static gboolean
read_alloc(ListReader *reader, char **words, GError **error)
{
  GArray *slots = reader->builder->trace->slots;
  gint64 bytes;
  guint64 stream = 0;
  g_autoptr(GError) wrong = NULL;
  if (!parse_size(words[2], &bytes, &wrong))
    return refuse(reader, error, "%s", wrong->message);
  if (bytes < 1 || bytes > TRACE_MAX_BYTES)
    return refuse(reader, error, "%s bytes are not in 1..2^50", words[2]);
  if (words[3] && !g_ascii_string_to_unsigned(words[3], 10, 0, G_MAXINT32, &stream, NULL))
    return refuse(reader, error, "'%s' is not a stream: expected a number from 0", words[3]);
  if (g_hash_table_contains(reader->alive, words[1]))
    return refuse(reader, error, "'%s' is already allocated", words[1]);
  gint32 number = trace_builder_stream(reader->builder, stream);
  if (number < 0)
    return refuse(reader, error, "more than %d streams", TRACE_MAX_STREAMS);
  TraceSlot slot = {G_MAXINT32, G_MAXINT32, -1};
  g_array_append_val(slots, slot);
  g_hash_table_insert(reader->alive, g_strdup(words[1]), GINT_TO_POINTER((int) slots->len));
  add_event(reader, TRACE_ALLOC, bytes, number, (gint32) slots->len - 1);
  return TRUE;
}

static gboolean
read_free(ListReader *reader, char **words, GError **error)
{
  AllocationTrace *trace = reader->builder->trace;
  gint32 slot = GPOINTER_TO_INT(g_hash_table_lookup(reader->alive, words[1])) - 1;
  if (slot < 0)
    return refuse(reader, error, "free of '%s', which is not allocated", words[1]);
  g_hash_table_remove(reader->alive, words[1]);
  gint32 event = (gint32) trace->events->len;
  g_array_index(trace->slots, TraceSlot, slot) = (TraceSlot){event, event, -1};
  add_event(reader, TRACE_FREE_REQUESTED, 0, 0, slot);
  return TRUE;
}

static gboolean
read_empty_cache(ListReader *reader, char **words, GError **error)
{
  (void) words;
  (void) error;
  add_event(reader, TRACE_EMPTY_CACHE, 0, 0, -1);
  return TRUE;
}

static const struct {
  const char *name;
  guint min, max; /* words, with the name */
  gboolean (*read)(ListReader *reader, char **words, GError **error);
} commands[] = {
    {"alloc", 3, 4, read_alloc},
    {"free", 2, 2, read_free},
    {"empty_cache", 1, 1, read_empty_cache},
};

static gboolean
read_words(ListReader *reader, char **words, GError **error)
{
  guint count = g_strv_length(words);
  for (guint i = 0; i < G_N_ELEMENTS(commands); i++) {
    if (!g_str_equal(words[0], commands[i].name))
      continue;
    if (count < commands[i].min || count > commands[i].max)
      return refuse(reader, error, "%s takes %u to %u words, not %u", words[0], commands[i].min - 1,
                    commands[i].max - 1, count - 1);
    return commands[i].read(reader, words, error);
  }
  return refuse(reader, error, "'%s' is none of alloc, free, empty_cache", words[0]);
}

/* Splits at white space; empty words do not count. */
static GStrv
split_words(const char *line)
{
  GStrv words = g_strsplit_set(line, " \t", -1);
  guint kept = 0;
  for (guint i = 0; words[i]; i++) {
    if (*words[i])
      words[kept++] = words[i];
    else
      g_free(words[i]);
  }
  words[kept] = NULL;
  return words;
}

/* The next line, without what is behind a '#'; FALSE at the end or at an error. */
static gboolean
next_line(ListReader *reader, GError **error)
{
  int byte = byte_source_next(reader->source);
  gboolean comment = FALSE;
  g_string_truncate(reader->line, 0);
  reader->number++;
  if (byte < 0)
    return FALSE;
  for (; byte >= 0 && byte != '\n'; byte = byte_source_next(reader->source)) {
    comment = comment || byte == '#';
    if (comment || byte == '\r')
      continue;
    if (byte < 0x20 && byte != '\t')
      return refuse(reader, error, "byte 0x%02x in a list of allocations", (guint) byte);
    if (reader->line->len == LINE_LIMIT)
      return refuse(reader, error, "longer than %d characters", LINE_LIMIT);
    g_string_append_c(reader->line, (char) byte);
  }
  if (!g_utf8_validate(reader->line->str, (gssize) reader->line->len, NULL))
    return refuse(reader, error, "not UTF-8 text");
  return TRUE;
}

static gboolean
read_lines(ListReader *reader, GError **error)
{
  g_autoptr(GError) wrong = NULL;
  while (next_line(reader, &wrong)) {
    g_auto(GStrv) words = split_words(reader->line->str);
    if (!words[0])
      continue;
    if (reader->builder->trace->events->len == TRACE_MAX_EVENTS)
      return refuse(reader, error, "more than %d events", TRACE_MAX_EVENTS);
    if (!read_words(reader, words, error))
      return FALSE;
  }
  if (wrong || reader->source->error) {
    g_propagate_error(error, wrong ? g_steal_pointer(&wrong) : g_error_copy(reader->source->error));
    return FALSE;
  }
  return TRUE;
}

gboolean
allocation_trace_read_list(TraceBuilder *builder, ByteSource *source, GError **error)
{
  g_autoptr(GHashTable) alive = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, NULL);
  ListReader reader = {builder, source, g_string_new(NULL), 0, alive};
  gboolean ok = read_lines(&reader, error);
  g_string_free(reader.line, TRUE);
  return ok;
}
