/* pickle_reader.c - the opcodes as a table, and what reads one after another. */
#include <string.h>

#include "base/units.h"
#include "import/pickle_reader_internal.h"

#define CHUNK_BYTES ((gsize) 64 * 1024)

gboolean
pickle_fail(PickleReader *reader, const char *format, ...)
{
  if (reader->error)
    return FALSE;
  if (reader->source->error) {
    reader->error = g_error_copy(reader->source->error);
    return FALSE;
  }
  va_list arguments;
  va_start(arguments, format);
  g_autofree char *text = g_strdup_vprintf(format, arguments);
  va_end(arguments);
  g_set_error(&reader->error, HIGHWATER_ERROR, HIGHWATER_ERROR_INPUT,
              "%s: byte %" G_GUINT64_FORMAT ": %s", reader->source->name, reader->begin, text);
  return FALSE;
}

gboolean
pickle_count_memory(PickleReader *reader, gsize bytes)
{
  reader->memory += bytes;
  return reader->memory <= PICKLE_MAX_MEMORY ||
         pickle_fail(reader, "needs more than %" G_GSIZE_FORMAT " MiB of memory",
                     PICKLE_MAX_MEMORY / (gsize) MIB);
}

gpointer
pickle_take(PickleReader *reader, gsize bytes)
{
  bytes = (bytes + 7) & ~(gsize) 7;
  if (bytes > reader->n_free) {
    gsize chunk = MAX(bytes, CHUNK_BYTES);
    if (!pickle_count_memory(reader, chunk))
      return NULL;
    reader->free_bytes = g_malloc(chunk);
    reader->n_free = chunk;
    g_ptr_array_add(reader->pickle->chunks, reader->free_bytes);
  }
  gpointer taken = reader->free_bytes;
  reader->free_bytes += bytes;
  reader->n_free -= bytes;
  return taken;
}

gboolean
pickle_read_number(PickleReader *reader, guint bytes, guint64 *number)
{
  *number = 0;
  for (guint i = 0; i < bytes; i++) {
    int byte = byte_source_next(reader->source);
    if (byte < 0)
      return pickle_fail(reader, "the file ends in the middle");
    *number |= (guint64) byte << (8 * i);
  }
  return TRUE;
}

/* ---- opcodes of the document ---- */

static gboolean
op_proto(PickleReader *reader, guint bytes)
{
  guint64 version;
  if (!pickle_read_number(reader, bytes, &version))
    return FALSE;
  return version <= 5 ||
         pickle_fail(reader, "protocol %" G_GUINT64_FORMAT " is not in 0..5", version);
}

static gboolean
op_frame(PickleReader *reader, guint bytes)
{
  guint64 length;
  return pickle_read_number(reader, bytes, &length);
}

static gboolean
op_stop(PickleReader *reader, guint argument)
{
  const PickleValue *value = pickle_top(reader);
  (void) argument;
  if (!value)
    return FALSE;
  reader->pickle->root = *value;
  reader->done = TRUE;
  return TRUE;
}

/* Names as in Python's pickletools.  Without a function: refused. */
static const struct {
  const char *name;
  PickleOp run;
  guint argument;
} opcodes[256] = {
    ['('] = {"MARK", pickle_op_mark, 0},
    ['.'] = {"STOP", op_stop, 0},
    ['0'] = {"POP", NULL, 0},
    ['1'] = {"POP_MARK", NULL, 0},
    ['2'] = {"DUP", NULL, 0},
    ['F'] = {"FLOAT", NULL, 0},
    ['I'] = {"INT", NULL, 0},
    ['J'] = {"BININT", pickle_op_signed, 4},
    ['K'] = {"BININT1", pickle_op_unsigned, 1},
    ['L'] = {"LONG", NULL, 0},
    ['M'] = {"BININT2", pickle_op_unsigned, 2},
    ['N'] = {"NONE", pickle_op_constant, PICKLE_NONE},
    ['P'] = {"PERSID", NULL, 0},
    ['Q'] = {"BINPERSID", NULL, 0},
    ['R'] = {"REDUCE", NULL, 0},
    ['S'] = {"STRING", NULL, 0},
    ['T'] = {"BINSTRING", NULL, 0},
    ['U'] = {"SHORT_BINSTRING", NULL, 0},
    ['V'] = {"UNICODE", NULL, 0},
    ['X'] = {"BINUNICODE", pickle_op_string, 4},
    ['a'] = {"APPEND", pickle_op_add, PICKLE_LIST},
    ['b'] = {"BUILD", NULL, 0},
    ['c'] = {"GLOBAL", NULL, 0},
    ['d'] = {"DICT", pickle_op_collect, PICKLE_DICT},
    ['}'] = {"EMPTY_DICT", pickle_op_empty, PICKLE_DICT},
    ['e'] = {"APPENDS", pickle_op_add_all, PICKLE_LIST},
    ['g'] = {"GET", NULL, 0},
    ['h'] = {"BINGET", pickle_op_get, 1},
    ['i'] = {"INST", NULL, 0},
    ['j'] = {"LONG_BINGET", pickle_op_get, 4},
    ['l'] = {"LIST", pickle_op_collect, PICKLE_LIST},
    [']'] = {"EMPTY_LIST", pickle_op_empty, PICKLE_LIST},
    ['o'] = {"OBJ", NULL, 0},
    ['p'] = {"PUT", NULL, 0},
    ['q'] = {"BINPUT", pickle_op_put, 1},
    ['r'] = {"LONG_BINPUT", pickle_op_put, 4},
    ['s'] = {"SETITEM", pickle_op_add, PICKLE_DICT},
    ['t'] = {"TUPLE", pickle_op_collect, PICKLE_TUPLE},
    [')'] = {"EMPTY_TUPLE", pickle_op_empty, PICKLE_TUPLE},
    ['u'] = {"SETITEMS", pickle_op_add_all, PICKLE_DICT},
    ['G'] = {"BINFLOAT", pickle_op_float, 8},
    ['B'] = {"BINBYTES", NULL, 0},
    ['C'] = {"SHORT_BINBYTES", NULL, 0},
    [0x80] = {"PROTO", op_proto, 1},
    [0x81] = {"NEWOBJ", NULL, 0},
    [0x82] = {"EXT1", NULL, 0},
    [0x83] = {"EXT2", NULL, 0},
    [0x84] = {"EXT4", NULL, 0},
    [0x85] = {"TUPLE1", pickle_op_tuple, 1},
    [0x86] = {"TUPLE2", pickle_op_tuple, 2},
    [0x87] = {"TUPLE3", pickle_op_tuple, 3},
    [0x88] = {"NEWTRUE", pickle_op_constant, PICKLE_BOOL | TRUE << 8},
    [0x89] = {"NEWFALSE", pickle_op_constant, PICKLE_BOOL},
    [0x8a] = {"LONG1", pickle_op_long, 1},
    [0x8b] = {"LONG4", pickle_op_long, 4},
    [0x8c] = {"SHORT_BINUNICODE", pickle_op_string, 1},
    [0x8d] = {"BINUNICODE8", pickle_op_string, 8},
    [0x8e] = {"BINBYTES8", NULL, 0},
    [0x8f] = {"EMPTY_SET", NULL, 0},
    [0x90] = {"ADDITEMS", NULL, 0},
    [0x91] = {"FROZENSET", NULL, 0},
    [0x92] = {"NEWOBJ_EX", NULL, 0},
    [0x93] = {"STACK_GLOBAL", NULL, 0},
    [0x94] = {"MEMOIZE", pickle_op_memoize, 0},
    [0x95] = {"FRAME", op_frame, 8},
    [0x96] = {"BYTEARRAY8", NULL, 0},
    [0x97] = {"NEXT_BUFFER", NULL, 0},
    [0x98] = {"READONLY_BUFFER", NULL, 0},
};

static gboolean
run_opcode(PickleReader *reader)
{
  reader->begin = byte_source_position(reader->source);
  int code = byte_source_next(reader->source);
  if (code < 0)
    return pickle_fail(reader, "the file ends without STOP");
  if (!opcodes[code].name)
    return pickle_fail(reader, "0x%02x is no opcode of a pickle", code);
  if (!opcodes[code].run)
    return pickle_fail(
        reader,
        "opcode %s is refused: only numbers, strings, lists, tuples and dictionaries are "
        "read, and nothing in a pickle is executed",
        opcodes[code].name);
  return opcodes[code].run(reader, opcodes[code].argument);
}

Pickle *
pickle_read(ByteSource *source, GError **error)
{
  g_autoptr(Pickle) pickle = g_new0(Pickle, 1);
  pickle->chunks = g_ptr_array_new_with_free_func(g_free);
  PickleReader reader = {.source = source, .pickle = pickle};
  reader.stack = g_array_new(FALSE, FALSE, sizeof(PickleValue));
  reader.memo = g_array_new(FALSE, TRUE, sizeof(PickleValue));
  reader.marks = g_array_new(FALSE, FALSE, sizeof(guint));
  while (!reader.done && run_opcode(&reader))
    continue;
  g_array_unref(reader.stack);
  g_array_unref(reader.memo);
  g_array_unref(reader.marks);
  if (reader.done)
    return g_steal_pointer(&pickle);
  g_propagate_error(error, reader.error);
  return NULL;
}

void
pickle_free(Pickle *pickle)
{
  if (!pickle)
    return;
  g_ptr_array_unref(pickle->chunks);
  g_free(pickle);
}

const PickleValue *
pickle_get(const PickleValue *dict, const char *key)
{
  if (!dict || dict->kind != PICKLE_DICT)
    return NULL;
  guint n = MIN(dict->items->length, 2 * PICKLE_MAX_KEYS);
  /* Of equal keys the last one counts. */
  for (guint i = n; i > 0; i -= 2) {
    const PickleValue *found = &dict->items->values[i - 2];
    if (found->kind == PICKLE_STRING && strcmp(found->text, key) == 0)
      return found + 1;
  }
  return NULL;
}
