/* pickle_stack.c - opcodes that move values: between the stack, containers and the memo. */
#include <string.h>

#include "import/pickle_reader_internal.h"

/* ---- stack ---- */

gboolean
pickle_push(PickleReader *reader, PickleValue value)
{
  g_array_append_val(reader->stack, value);
  return TRUE;
}

static PickleValue *
value_at(const PickleReader *reader, guint i)
{
  return &g_array_index(reader->stack, PickleValue, i);
}

/* Height of the stack below which nothing may be taken: of the last mark. */
static guint
lowest(const PickleReader *reader)
{
  const GArray *marks = reader->marks;
  return marks->len > 0 ? g_array_index(marks, guint, marks->len - 1) : 0;
}

static gboolean
has_values(PickleReader *reader, guint n)
{
  return reader->stack->len - lowest(reader) >= n ||
         pickle_fail(reader, "takes a value that is not there");
}

const PickleValue *
pickle_top(PickleReader *reader)
{
  return has_values(reader, 1) ? value_at(reader, reader->stack->len - 1) : NULL;
}

gboolean
pickle_op_mark(PickleReader *reader, guint argument)
{
  (void) argument;
  g_array_append_val(reader->marks, reader->stack->len);
  return TRUE;
}

static gboolean
pop_mark(PickleReader *reader, guint *height)
{
  if (reader->marks->len == 0)
    return pickle_fail(reader, "a mark is missing");
  *height = lowest(reader);
  g_array_set_size(reader->marks, reader->marks->len - 1);
  return TRUE;
}

/* ---- containers ---- */

static PickleItems *
new_items(PickleReader *reader)
{
  PickleItems *items = pickle_take(reader, sizeof *items);
  if (items)
    *items = (PickleItems){NULL, 0, 0};
  return items;
}

static gboolean
reserve(PickleReader *reader, PickleItems *items, guint more)
{
  if (more <= items->capacity - items->length)
    return TRUE;
  gsize capacity = MAX((gsize) items->length + more, 2 * (gsize) items->capacity);
  if (capacity > G_MAXUINT32 / 2)
    return pickle_fail(reader, "too many values");
  PickleValue *values = pickle_take(reader, capacity * sizeof *values);
  if (!values)
    return FALSE;
  if (items->length > 0)
    memcpy(values, items->values, items->length * sizeof *values);
  items->values = values;
  items->capacity = (guint) capacity;
  return TRUE;
}

/* Moves the values from a height of the stack on to the end of items. */
static gboolean
move_values(PickleReader *reader, guint kind, guint height, PickleItems *items)
{
  guint n = reader->stack->len - height;
  if (kind == PICKLE_DICT && n % 2 > 0)
    return pickle_fail(reader, "a key has no value");
  if (!reserve(reader, items, n))
    return FALSE;
  if (n > 0)
    memcpy(items->values + items->length, value_at(reader, height), n * sizeof *items->values);
  items->length += n;
  g_array_set_size(reader->stack, height);
  return TRUE;
}

static gboolean
collect(PickleReader *reader, guint kind, guint height)
{
  PickleItems *items = new_items(reader);
  return items && move_values(reader, kind, height, items) &&
         pickle_push(reader, (PickleValue){.kind = (guint8) kind, .items = items});
}

gboolean
pickle_op_empty(PickleReader *reader, guint kind)
{
  return collect(reader, kind, reader->stack->len);
}

gboolean
pickle_op_tuple(PickleReader *reader, guint n)
{
  return has_values(reader, n) && collect(reader, PICKLE_TUPLE, reader->stack->len - n);
}

gboolean
pickle_op_collect(PickleReader *reader, guint kind)
{
  guint height = 0;
  return pop_mark(reader, &height) && collect(reader, kind, height);
}

static gboolean
add(PickleReader *reader, guint kind, guint height)
{
  if (height == lowest(reader) || value_at(reader, height - 1)->kind != kind)
    return pickle_fail(reader, "adds to what is no %s",
                       kind == PICKLE_LIST ? "list" : "dictionary");
  return move_values(reader, kind, height, value_at(reader, height - 1)->items);
}

gboolean
pickle_op_add(PickleReader *reader, guint kind)
{
  guint n = kind == PICKLE_DICT ? 2 : 1;
  return has_values(reader, n + 1) && add(reader, kind, reader->stack->len - n);
}

gboolean
pickle_op_add_all(PickleReader *reader, guint kind)
{
  guint height = 0;
  return pop_mark(reader, &height) && add(reader, kind, height);
}

/* ---- memo ---- */

/* A number is never larger than the bytes before it: each value kept has taken some. */
static gboolean
keep(PickleReader *reader, guint64 number)
{
  const PickleValue *value = pickle_top(reader);
  GArray *memo = reader->memo;
  if (!value)
    return FALSE;
  if (number > reader->begin)
    return pickle_fail(reader, "keeps a value as number %" G_GUINT64_FORMAT, number);
  if (number >= memo->len) {
    if (!pickle_count_memory(reader, (number + 1 - memo->len) * sizeof *value))
      return FALSE;
    g_array_set_size(memo, (guint) number + 1);
  }
  g_array_index(memo, PickleValue, number) = *value;
  return TRUE;
}

gboolean
pickle_op_memoize(PickleReader *reader, guint argument)
{
  (void) argument;
  return keep(reader, reader->memo->len);
}

gboolean
pickle_op_put(PickleReader *reader, guint number_bytes)
{
  guint64 number;
  return pickle_read_number(reader, number_bytes, &number) && keep(reader, number);
}

gboolean
pickle_op_get(PickleReader *reader, guint number_bytes)
{
  guint64 number;
  if (!pickle_read_number(reader, number_bytes, &number))
    return FALSE;
  if (number >= reader->memo->len)
    return pickle_fail(reader, "repeats value %" G_GUINT64_FORMAT ", which was not kept", number);
  return pickle_push(reader, g_array_index(reader->memo, PickleValue, number));
}
