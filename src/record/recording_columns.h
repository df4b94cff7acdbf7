/* recording_columns.h - the recording file's fields as tables: one description serves writing and
 * reading. */
#ifndef HIGHWATER_RECORD_RECORDING_COLUMNS_H
#define HIGHWATER_RECORD_RECORDING_COLUMNS_H

#include "record/recording.h"

#define RECORDING_FORMAT "highwater-recording-1"

/* What a field holds, hence what a file may say. */
typedef enum {
  COLUMN_COUNT,    /* whole number >= 0 */
  COLUMN_SIGNED,   /* whole number */
  COLUMN_LIMIT,    /* whole number >= 0; null for G_MAXINT64 */
  COLUMN_DOUBLE,   /* number >= 0 */
  COLUMN_STRING,   /* id in "strings", or -1 */
  COLUMN_STREAM,   /* index into "streams" */
  COLUMN_CATEGORY, /* index into "names": the list of that key */
  COLUMN_SPAN_KIND,
  COLUMN_RANGE_KIND,
  COLUMN_SEGMENT_ACTION,
} ColumnType;

/* Enumerations whose numbers a file explains in "names". */
typedef struct {
  ColumnType type;
  const char *key;
  const char *const *names;
  guint n_names;
} ColumnNames;

#define COLUMN_NAMES_COUNT 4
extern const ColumnNames column_names[COLUMN_NAMES_COUNT];

/* A field of a struct. */
typedef struct {
  const char *name;
  guint16 offset;
  guint8 size; /* bytes of the field: 1 unsigned, else signed */
  guint8 type; /* ColumnType */
} Column;

/* An array of structs: an object of "columns" and "rows".  columns ends with a NULL name. */
typedef struct {
  const char *key;
  const Column *columns;
  gsize offset;         /* of the GArray pointer in Recording */
  gsize element_size;   /* bytes of a row's struct */
  gboolean only_if_any; /* left out of a file when it has no rows */
} RecordTable;

/* Members of the document itself, of "out_of_memory" and of "peak"; end with a NULL name. */
extern const Column recording_columns[];
extern const Column out_of_memory_columns[];
extern const Column peak_columns[];
#define RECORDING_TABLES 10
extern const RecordTable recording_tables[RECORDING_TABLES];

/* The table's array in a Recording, borrowed. */
GArray *record_table_array(const RecordTable *table, const Recording *recording);

/* The field's value in the struct at base; COLUMN_DOUBLE fields through the second. */
gint64 column_get(const Column *column, gconstpointer base);
double column_get_double(const Column *column, gconstpointer base);
void column_set(const Column *column, gpointer base, gint64 value);
void column_set_double(const Column *column, gpointer base, double value);
/* Whether the field can hold the value. */
gboolean column_fits(const Column *column, gint64 value);

#endif
