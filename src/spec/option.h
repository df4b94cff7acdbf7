/* option.h - options that a strategy declares in a table: parsed, checked, listed and documented
 * from it. */
#ifndef HIGHWATER_SPEC_OPTION_H
#define HIGHWATER_SPEC_OPTION_H

#include <glib.h>

#include "base/json_reader.h"

typedef enum {
  OPTION_BOOL,        /* true | false */
  OPTION_INT,         /* whole number in [min, max] */
  OPTION_SIZE,        /* bytes, or "25MiB", in [min, max] (max 0: no limit) */
  OPTION_ENUM,        /* one of `names` (NULL-terminated) */
  OPTION_BOOL_OR_INT, /* true | false | whole number in [min, max] | null */
  OPTION_NAME_OR_INT, /* one of `names`, or a whole number in [min, max] */
  OPTION_INT_OR_AUTO, /* whole number in [min, max], or "auto": the strategy chooses */
  OPTION_REAL,        /* number in [min, max] */
  OPTION_TEXT, /* a string that changes nothing here (a path): only whether it is given counts */
  OPTION_NAME_LISTS, /* a list of names and of lists of names, or null */
  OPTION_ABSENT, /* part of the framework's own format, but nothing simulates it: null, or left out
                  */
} OptionType;

/* One option of a section of the plan.  A key with a dot ("offload_param.device") is that key of an
 * object inside the section; the keys of one object follow each other in the table. */
typedef struct {
  const char *key;
  OptionType type;
  const char
      *fallback;   /* the default, as JSON text: "1", "true", "null", "\"root\"", "\"25MiB\"" */
  gint64 min, max; /* of OPTION_INT, SIZE, BOOL_OR_INT, NAME_OR_INT, INT_OR_AUTO, REAL */
  const char *const *names; /* OPTION_ENUM, OPTION_NAME_OR_INT */
  const char *summary;      /* one line for `list` and the manual */
} OptionInfo;

/* A section of the plan ("fsdp", "ddp"); may be shared by strategies. */
typedef struct {
  const char *name;
  const OptionInfo *options; /* ends with a NULL key */
} OptionSection;

/* A list of OPTION_NAME_LISTS, or a name that stands in one's place. */
typedef struct {
  char **names; /* NULL-terminated, at least one */
  gboolean is_single;
} NameList;

typedef struct {
  gboolean given; /* written in the plan */
  gboolean
      is_null; /* no value: null, where the default is null or OPTION_BOOL_OR_INT was given null */
  gboolean is_bool; /* OPTION_BOOL_OR_INT: true or false, in `number` */
  gboolean is_name; /* OPTION_NAME_OR_INT: a name, whose index is in `number` */
  gboolean is_auto; /* OPTION_INT_OR_AUTO: "auto" */
  gint64 number;    /* bool, int, size, or index into names */
  double real;      /* OPTION_REAL */
  GPtrArray *lists; /* NameList *, OPTION_NAME_LISTS; NULL: null */
} OptionValue;

/* Number of options in a section's table. */
guint option_section_length(const OptionSection *section);
/* Index of the key in the section's table, or -1. */
int option_section_index(const OptionSection *section, const char *key);

/* Reads every option of the section from the reader of that section (an empty one gives the
 * defaults).  Wrong values are left in the reader's document as its error; unknown keys are not:
 * finish the reader.  The array is parallel to section->options; free it with option_values_free.
 */
OptionValue *option_section_read(JsonReader *reader, const OptionSection *section);
/* values may be NULL. */
void option_values_free(OptionValue *values, const OptionSection *section);

/* What may be written: "true | false", "0 to 16", "bytes or \"25MiB\"", "root | own".  Caller
 * frees. */
char *option_allowed(const OptionInfo *option);

#endif
