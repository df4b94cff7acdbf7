/* pickle_scalars.c - opcodes that push a number, a string or a constant. */
#include <string.h>

#include "import/pickle_reader_internal.h"

#define MAX_STRING ((guint64) 1 << 24)

/* kind_and_truth: PICKLE_NONE, or PICKLE_BOOL with the truth above the low byte. */
gboolean
pickle_op_constant(PickleReader *reader, guint kind_and_truth)
{
  return pickle_push(reader,
                     (PickleValue){.kind = (guint8) kind_and_truth, .number = kind_and_truth >> 8});
}

static gboolean
push_int(PickleReader *reader, gint64 number)
{
  return pickle_push(reader, (PickleValue){.kind = PICKLE_INT, .number = number});
}

/* The lowest bytes of a number in two's complement. */
static gint64
extend_sign(guint64 low, guint bytes)
{
  if (bytes > 0 && bytes < 8 && (low >> (8 * bytes - 1)) & 1)
    low |= G_MAXUINT64 << (8 * bytes);
  return (gint64) low;
}

gboolean
pickle_op_unsigned(PickleReader *reader, guint bytes)
{
  guint64 number;
  return pickle_read_number(reader, bytes, &number) && push_int(reader, (gint64) number);
}

gboolean
pickle_op_signed(PickleReader *reader, guint bytes)
{
  guint64 number;
  return pickle_read_number(reader, bytes, &number) && push_int(reader, extend_sign(number, bytes));
}

/* A ninth byte may hold the sign of a number that needs 64 bits. */
gboolean
pickle_op_long(PickleReader *reader, guint length_bytes)
{
  guint64 length, low = 0, high = 0;
  if (!pickle_read_number(reader, length_bytes, &length))
    return FALSE;
  if (length > 9)
    return pickle_fail(reader, "a number of %" G_GUINT64_FORMAT " bytes", length);
  guint bytes = (guint) MIN(length, 8);
  if (!pickle_read_number(reader, bytes, &low) ||
      (length == 9 && !pickle_read_number(reader, 1, &high)))
    return FALSE;
  if (length == 9 && high != (low >> 63 ? 0xff : 0))
    return pickle_fail(reader, "a number beyond 64 bits");
  return push_int(reader, extend_sign(low, bytes));
}

gboolean
pickle_op_float(PickleReader *reader, guint bytes)
{
  guint64 bits;
  if (!pickle_read_number(reader, bytes, &bits))
    return FALSE;
  bits = GUINT64_SWAP_LE_BE(bits);
  PickleValue value = {.kind = PICKLE_DOUBLE};
  memcpy(&value.real, &bits, sizeof value.real);
  return pickle_push(reader, value);
}

gboolean
pickle_op_string(PickleReader *reader, guint length_bytes)
{
  guint64 length;
  if (!pickle_read_number(reader, length_bytes, &length))
    return FALSE;
  if (length > MAX_STRING)
    return pickle_fail(reader, "a string of %" G_GUINT64_FORMAT " bytes", length);
  char *text = pickle_take(reader, length + 1);
  if (!text)
    return FALSE;
  for (guint64 i = 0; i < length; i++) {
    int byte = byte_source_next(reader->source);
    if (byte < 0)
      return pickle_fail(reader, "the file ends in a string");
    text[i] = (char) byte;
  }
  text[length] = '\0';
  return pickle_push(reader, (PickleValue){.kind = PICKLE_STRING, .text = text});
}
