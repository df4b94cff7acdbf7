/* pickle_writer.c - opcodes of Python's pickletools, protocol 4 and below. */
#include "base/pickle_writer.h"

#include <string.h>

enum {
  OP_APPENDS = 'e',
  OP_BINFLOAT = 'G',
  OP_BINGET = 'h',
  OP_BININT = 'J',
  OP_BININT1 = 'K',
  OP_BININT2 = 'M',
  OP_BINPUT = 'q',
  OP_BINUNICODE = 'X',
  OP_EMPTY_DICT = '}',
  OP_EMPTY_LIST = ']',
  OP_LONG1 = 0x8a,
  OP_LONG_BINGET = 'j',
  OP_LONG_BINPUT = 'r',
  OP_MARK = '(',
  OP_NEWFALSE = 0x89,
  OP_NEWTRUE = 0x88,
  OP_NONE = 'N',
  OP_PROTO = 0x80,
  OP_SETITEMS = 'u',
  OP_SHORT_BINUNICODE = 0x8c,
  OP_STOP = '.',
  OP_TUPLE2 = 0x86,
};

static void
put(PickleWriter *writer, const guint8 *bytes, guint n)
{
  g_byte_array_append(writer->bytes, bytes, n);
}

static void
put_op(PickleWriter *writer, guint8 op)
{
  put(writer, &op, 1);
}

/* An opcode and the low n bytes of a number, the lowest first. */
static void
put_number(PickleWriter *writer, guint8 op, guint64 number, guint n)
{
  guint8 bytes[9] = {op};
  for (guint i = 0; i < n; i++)
    bytes[i + 1] = (guint8) (number >> (8 * i));
  put(writer, bytes, n + 1);
}

PickleWriter
pickle_writer_begin(void)
{
  PickleWriter writer = {g_byte_array_new(), 0};
  put_number(&writer, OP_PROTO, 4, 1);
  return writer;
}

GByteArray *
pickle_writer_end(PickleWriter *writer)
{
  put_op(writer, OP_STOP);
  return g_steal_pointer(&writer->bytes);
}

void
pickle_write_none(PickleWriter *writer)
{
  put_op(writer, OP_NONE);
}

void
pickle_write_bool(PickleWriter *writer, gboolean truth)
{
  put_op(writer, truth ? OP_NEWTRUE : OP_NEWFALSE);
}

/* Bytes of the shortest two's complement. */
static guint
long_bytes(gint64 number)
{
  guint n = 1;
  while (n < 8 && number != (gint64) ((guint64) number << (64 - 8 * n)) >> (64 - 8 * n))
    n++;
  return n;
}

void
pickle_write_int(PickleWriter *writer, gint64 number)
{
  guint64 bits = (guint64) number;
  if (number >= 0 && number <= G_MAXUINT8) {
    put_number(writer, OP_BININT1, bits, 1);
  } else if (number >= 0 && number <= G_MAXUINT16) {
    put_number(writer, OP_BININT2, bits, 2);
  } else if (number >= G_MININT32 && number <= G_MAXINT32) {
    put_number(writer, OP_BININT, bits, 4);
  } else {
    guint n = long_bytes(number);
    put_number(writer, OP_LONG1, n, 1);
    guint8 bytes[8];
    for (guint i = 0; i < n; i++)
      bytes[i] = (guint8) (bits >> (8 * i));
    put(writer, bytes, n);
  }
}

void
pickle_write_double(PickleWriter *writer, double number)
{
  guint64 bits;
  memcpy(&bits, &number, sizeof bits);
  put_number(writer, OP_BINFLOAT, GUINT64_SWAP_LE_BE(bits), 8);
}

void
pickle_write_string(PickleWriter *writer, const char *text)
{
  g_autofree char *valid = g_utf8_validate(text, -1, NULL) ? NULL : g_utf8_make_valid(text, -1);
  const char *written = valid ? valid : text;
  gsize length = strlen(written);
  gboolean is_short = length <= G_MAXUINT8;
  put_number(writer, is_short ? OP_SHORT_BINUNICODE : OP_BINUNICODE, length, is_short ? 1 : 4);
  put(writer, (const guint8 *) written, (guint) length);
}

void
pickle_begin_dict(PickleWriter *writer)
{
  put_op(writer, OP_EMPTY_DICT);
  put_op(writer, OP_MARK);
}

void
pickle_end_dict(PickleWriter *writer)
{
  put_op(writer, OP_SETITEMS);
}

void
pickle_begin_list(PickleWriter *writer)
{
  put_op(writer, OP_EMPTY_LIST);
  put_op(writer, OP_MARK);
}

void
pickle_next_item(PickleWriter *writer, guint number)
{
  if (number == 0 || number % PICKLE_BATCH > 0)
    return;
  put_op(writer, OP_APPENDS);
  put_op(writer, OP_MARK);
}

void
pickle_end_list(PickleWriter *writer)
{
  put_op(writer, OP_APPENDS);
}

void
pickle_make_pair(PickleWriter *writer)
{
  put_op(writer, OP_TUPLE2);
}

guint32
pickle_keep(PickleWriter *writer)
{
  guint32 number = writer->kept++;
  gboolean is_short = number <= G_MAXUINT8;
  put_number(writer, is_short ? OP_BINPUT : OP_LONG_BINPUT, number, is_short ? 1 : 4);
  return number;
}

void
pickle_repeat(PickleWriter *writer, guint32 kept)
{
  gboolean is_short = kept <= G_MAXUINT8;
  put_number(writer, is_short ? OP_BINGET : OP_LONG_BINGET, kept, is_short ? 1 : 4);
}
