/* program_schema.h - what the Program's tables and values look like, as data: the printer, the
 * parser and the checker walk these descriptions. */
#ifndef HIGHWATER_PROGRAM_PROGRAM_SCHEMA_H
#define HIGHWATER_PROGRAM_PROGRAM_SCHEMA_H

#include "program/program.h"

/* First line of the text form. */
#define PROGRAM_FORMAT "highwater-program-1"
/* More events than this are refused: an id alone must not make the checker reserve gigabytes. */
#define PROGRAM_MAX_EVENTS (1 << 22)

/* One member of a row. */
typedef struct {
  const char *key;
  guint16 offset;
  guint8 bytes; /* of the member: 1, 2, 4 or 8 */
  guint8 kind;  /* ValueKind */
} Field;

/* One table whose rows are plain members.  Layouts and texts have forms of their own. */
typedef struct {
  const char *keyword;
  gsize array; /* offset of the GArray * in Program */
  gsize row_bytes;
  guint8 fields;
  const Field *field;
} TableForm;

/* In an order where rows only name rows of earlier tables (or names, modules and layouts). */
typedef enum {
  TABLE_COMMUNICATOR,
  TABLE_KERNEL,
  TABLE_COLLECTIVE,
  TABLE_STORAGE,
  TABLE_TENSOR,
  TABLE_PART,
  TABLE_COUNT
} TableId;

extern const TableForm program_table[TABLE_COUNT];

/* The table's array in this Program. */
GArray *program_table_array(const Program *program, const TableForm *table);

/* Members as integers; VALUE_REAL ones as doubles. */
gint64 program_field_get(gconstpointer row, const Field *field);
void program_field_set(gpointer row, const Field *field, gint64 value);
double program_field_get_real(gconstpointer row, const Field *field);
void program_field_set_real(gpointer row, const Field *field, double value);

/* The smallest and largest value of that kind that this Program knows (maximum < minimum: none
 * yet). */
void program_value_range(const Program *program, ValueKind kind, gint64 *minimum, gint64 *maximum);
/* Text of a value of an enumerated kind; NULL for kinds written as numbers. */
const char *program_value_name(ValueKind kind, gint64 value);
/* What a kind is called in messages: "storage". */
const char *program_value_kind_name(ValueKind kind);

/* Elements from the first to one beyond the last that a view of this layout touches, 0 when it has
 * no element.  FALSE when a dimension or stride is negative, or the span is beyond 2^63. */
gboolean program_layout_span(const Layout *layout, gint64 *elements);
/* The bytes [begin, end) of its storage that a tensor touches at most (begin == end: none).  FALSE
 * when they are beyond 2^63.  The tensor's ids must be valid. */
gboolean program_tensor_bytes(const Program *program, const Tensor *tensor, gint64 *begin,
                              gint64 *end);

#endif
