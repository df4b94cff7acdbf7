/* pickle_reader_internal.h - a pickle on its way: what its opcodes work on. */
#ifndef HIGHWATER_IMPORT_PICKLE_READER_INTERNAL_H
#define HIGHWATER_IMPORT_PICKLE_READER_INTERNAL_H

#include "import/pickle_reader.h"

typedef struct {
  ByteSource *source;
  Pickle *pickle;
  guint8 *free_bytes; /* of the last chunk */
  gsize n_free;
  gsize memory;         /* taken in all */
  GArray *stack, *memo; /* PickleValue */
  GArray *marks;        /* guint: heights of the stack */
  guint64 begin;        /* of the opcode at work */
  gboolean done;
  GError *error;
} PickleReader;

/* An opcode: FALSE when it fails, reader->error is then set.  argument: what its row of the table
 * says: bytes of a number or length that follows, a kind, a count. */
typedef gboolean (*PickleOp)(PickleReader *reader, guint argument);

/* ---- pickle_reader.c */
gboolean pickle_fail(PickleReader *reader, const char *format, ...) G_GNUC_PRINTF(2, 3);
/* Adds to what is taken; fails when that is too much. */
gboolean pickle_count_memory(PickleReader *reader, gsize bytes);
/* Memory that lives as long as the pickle; NULL when there is too much of it. */
gpointer pickle_take(PickleReader *reader, gsize bytes);
/* A little-endian number of up to 8 bytes. */
gboolean pickle_read_number(PickleReader *reader, guint bytes, guint64 *number);

/* ---- pickle_scalars.c */
gboolean pickle_op_constant(PickleReader *reader, guint kind_and_truth);
gboolean pickle_op_unsigned(PickleReader *reader, guint bytes);
gboolean pickle_op_signed(PickleReader *reader, guint bytes);
gboolean pickle_op_long(PickleReader *reader, guint length_bytes);
gboolean pickle_op_float(PickleReader *reader, guint bytes);
gboolean pickle_op_string(PickleReader *reader, guint length_bytes);

/* ---- pickle_stack.c */
gboolean pickle_push(PickleReader *reader, PickleValue value);
/* The last value; NULL, which is an error, when there is none. */
const PickleValue *pickle_top(PickleReader *reader);
gboolean pickle_op_mark(PickleReader *reader, guint argument);
gboolean pickle_op_empty(PickleReader *reader, guint kind);
/* The last n values, or all from the mark on, become a container. */
gboolean pickle_op_tuple(PickleReader *reader, guint n);
gboolean pickle_op_collect(PickleReader *reader, guint kind);
/* One item, or all from the mark on, go into the container below. */
gboolean pickle_op_add(PickleReader *reader, guint kind);
gboolean pickle_op_add_all(PickleReader *reader, guint kind);
gboolean pickle_op_memoize(PickleReader *reader, guint argument);
gboolean pickle_op_put(PickleReader *reader, guint number_bytes);
gboolean pickle_op_get(PickleReader *reader, guint number_bytes);

#endif
