/* option.h - options that a strategy declares in a table: parsed, checked, listed and documented from it. */
#ifndef HIGHWATER_SPEC_OPTION_H
#define HIGHWATER_SPEC_OPTION_H

#include <glib.h>

typedef enum {
  OPTION_BOOL,         /* true | false */
  OPTION_INT,          /* whole number in [min, max] */
  OPTION_SIZE,         /* bytes, or "25MiB" */
  OPTION_ENUM,         /* one of `names` (NULL-terminated) */
  OPTION_BOOL_OR_INT,  /* true | false | whole number in [min, max] | null */
} OptionType;

/* One option of a section of the plan. */
typedef struct {
  const char *key;
  OptionType type;
  const char *fallback;       /* the default, as JSON text: "1", "true", "null", "\"root\"" */
  gint64 min, max;            /* OPTION_INT, OPTION_BOOL_OR_INT */
  const char *const *names;   /* OPTION_ENUM */
  const char *summary;        /* one line for `list` and the manual */
} OptionInfo;

/* A section of the plan ("fsdp", "ddp"); may be shared by strategies. */
typedef struct {
  const char *name;
  const OptionInfo *options; /* ends with a NULL key */
} OptionSection;

typedef struct {
  gboolean given;   /* written in the plan */
  gboolean is_null; /* OPTION_BOOL_OR_INT: null */
  gboolean is_bool; /* OPTION_BOOL_OR_INT: true or false, in `number` */
  gint64 number;    /* bool, int, size, or index into names */
} OptionValue;

#endif
