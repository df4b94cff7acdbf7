/* run_info_fields.h - the fields of a RunInfo as tables: one description serves writing and
 * reading. */
#ifndef HIGHWATER_REPORT_RUN_INFO_FIELDS_H
#define HIGHWATER_REPORT_RUN_INFO_FIELDS_H

#include "report/run_info.h"

/* What a field holds, hence what a file may say.  A key that is absent, or null, leaves what an
 * empty RunInfo has. */
typedef enum {
  INFO_COUNT,      /* whole number >= 0 */
  INFO_SIGNED,     /* whole number >= -1 */
  INFO_FLAG,       /* true, false */
  INFO_NUMBER,     /* number >= 0 */
  INFO_TEXT,       /* string, or null */
  INFO_NAME,       /* string; required */
  INFO_CHOICE,     /* one of `names`, stored as its index */
  INFO_STATIC,     /* one of `names`, stored as that pointer, or null */
  INFO_TEXTS,      /* array of strings: a GPtrArray */
  INFO_COUNTS,     /* array of whole numbers >= 0: a gint64 pointer, its length in an int */
  INFO_RANKS,      /* array of [first, last], ascending: a RankSet */
  INFO_CATEGORIES, /* object, a whole number for each category of memory */
  INFO_OBJECT,     /* object: a struct inside */
  INFO_FAILURE,    /* object, or null: a Failure pointer */
  INFO_ROWS,       /* array of objects: a GArray */
} InfoType;

typedef struct _InfoField InfoField;

/* A field of a struct; lists end with a NULL name. */
struct _InfoField {
  const char *name;
  guint16 offset;
  guint8 size; /* bytes, of whole numbers */
  guint8 type; /* InfoType */
  union {
    const char *const *names; /* CHOICE, STATIC; NULL-terminated */
    const InfoField *fields;  /* OBJECT, FAILURE, ROWS */
    gsize length_offset;      /* COUNTS */
  } of;
  guint16 row_size; /* bytes of a row's struct */
};

/* The whole RunInfo. */
extern const InfoField run_info_fields[];

gpointer info_field_at(const InfoField *field, gpointer base);
gconstpointer info_field_in(const InfoField *field, gconstpointer base);
/* Whole numbers of four or eight bytes. */
gint64 info_field_get(const InfoField *field, gconstpointer base);
void info_field_set(const InfoField *field, gpointer base, gint64 value);

#endif
