/* pickle_reader.h - Python's pickles as plain values: none, booleans, numbers, strings, lists,
 * tuples and dictionaries.
 *
 * A pickle is a program.  Of its opcodes (protocols 0 to 5) only those are known that make such
 * values; any other, above all those that import or call something, ends the reading.  Nothing is
 * ever executed. */
#ifndef HIGHWATER_IMPORT_PICKLE_READER_H
#define HIGHWATER_IMPORT_PICKLE_READER_H

#include "import/byte_source.h"

typedef enum {
  PICKLE_NONE,
  PICKLE_BOOL,
  PICKLE_INT,
  PICKLE_DOUBLE,
  PICKLE_STRING,
  PICKLE_LIST,
  PICKLE_TUPLE,
  PICKLE_DICT,
} PickleKind;

typedef struct _PickleItems PickleItems;

/* A value; text and items belong to the Pickle and may be shared.  Lists and dictionaries can
 * contain themselves: follow them to a known depth only. */
typedef struct {
  guint8 kind; /* PickleKind */
  union {
    gint64 number; /* bool, int */
    double real;
    const char *text; /* as stored: not always valid UTF-8 */
    PickleItems *items;
  };
} PickleValue;

/* Of a list or tuple; of a dictionary keys and values in turn. */
struct _PickleItems {
  PickleValue *values;
  guint length, capacity;
};

typedef struct {
  PickleValue root;
  GPtrArray *chunks; /* memory of everything */
} Pickle;

/* What a pickle may become in memory. */
#define PICKLE_MAX_MEMORY ((gsize) 2 << 30)

/* Reads one document up to its end; what follows is left.  NULL and error ("FILE: byte 12: opcode
 * GLOBAL ...") when it is damaged, too large or anything but plain values. */
Pickle *pickle_read(ByteSource *source, GError **error);
void pickle_free(Pickle *pickle);
G_DEFINE_AUTOPTR_CLEANUP_FUNC(Pickle, pickle_free)

/* A pickle begins with this byte, followed by the protocol: other formats here do not. */
#define PICKLE_FIRST_BYTE 0x80

/* Of a dictionary, the value of a key that is a string; NULL when there is none, or the value is no
 * dictionary.  Looks at the first PICKLE_MAX_KEYS keys. */
#define PICKLE_MAX_KEYS 64
const PickleValue *pickle_get(const PickleValue *dict, const char *key);

/* How many items a list or tuple has, and one of them; 0 of any other value. */
static inline guint
pickle_length(const PickleValue *list)
{
  return list && (list->kind == PICKLE_LIST || list->kind == PICKLE_TUPLE) ? list->items->length
                                                                           : 0;
}

static inline const PickleValue *
pickle_item(const PickleValue *list, guint i)
{
  return &list->items->values[i];
}

#endif
