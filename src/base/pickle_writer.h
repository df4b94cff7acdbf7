/* pickle_writer.h - Python's pickle format, protocol 4, of numbers, strings, lists, tuples and
 * dictionaries: what PyTorch's memory viewer accepts.
 *
 * Values are written one after another; a dictionary's are keys and values in turn.  Whatever is
 * written may be kept under a number and repeated, which is how equal strings and lists are shared.
 */
#ifndef HIGHWATER_BASE_PICKLE_WRITER_H
#define HIGHWATER_BASE_PICKLE_WRITER_H

#include <glib.h>

/* Readers put a batch of items on their stack at once: like Python, no more than these. */
#define PICKLE_BATCH 1000

typedef struct {
  GByteArray *bytes; /* what has been written */
  guint32 kept;      /* how many values have been kept */
} PickleWriter;

/* Begins and ends a document; the caller takes the bytes (g_byte_array_unref). */
PickleWriter pickle_writer_begin(void);
GByteArray *pickle_writer_end(PickleWriter *writer);

void pickle_write_none(PickleWriter *writer);
void pickle_write_bool(PickleWriter *writer, gboolean truth);
void pickle_write_int(PickleWriter *writer, gint64 number);
void pickle_write_double(PickleWriter *writer, double number);
/* UTF-8; invalid bytes are replaced. */
void pickle_write_string(PickleWriter *writer, const char *text);

/* A dictionary: begin, keys and values in turn, end.  At most PICKLE_BATCH / 2 keys. */
void pickle_begin_dict(PickleWriter *writer);
void pickle_end_dict(PickleWriter *writer);

/* A list: begin, items, end; before each item pickle_next_item() with its number from 0. */
void pickle_begin_list(PickleWriter *writer);
void pickle_next_item(PickleWriter *writer, guint number);
void pickle_end_list(PickleWriter *writer);

/* The last two values become a tuple. */
void pickle_make_pair(PickleWriter *writer);

/* Keeps the last value; returns the number to repeat it by. */
guint32 pickle_keep(PickleWriter *writer);
void pickle_repeat(PickleWriter *writer, guint32 kept);

#endif
