/* profile_fields.h - reads a struct of constants from a JSON object by a table: key, place, unit,
 * range. */
#ifndef HIGHWATER_SPEC_PROFILE_FIELDS_H
#define HIGHWATER_SPEC_PROFILE_FIELDS_H

#include <glib.h>

#include "base/json_reader.h"

/* Units of files in units of our structs: bytes and FLOPs per second, ns. */
#define TERA 1e12
#define GIGA 1e9
#define GIGABIT (1e9 / 8)
#define NS_PER_US 1e3

typedef enum {
  PROFILE_INT,    /* int */
  PROFILE_BYTES,  /* gint64; bytes or "80GiB" */
  PROFILE_DOUBLE, /* double; the file's number times scale */
} ProfileFieldType;

typedef struct {
  const char *key; /* with its unit: "kernel_floor_us" */
  ProfileFieldType type;
  gsize offset;    /* of the field in the struct */
  double scale;    /* PROFILE_DOUBLE: file's unit in the struct's unit */
  double min, max; /* of the number in the file */
} ProfileField;

/* Reads all fields of the table (ends with a NULL key) into the struct at base.  A missing key or a
 * value out of range becomes the document's error. */
void profile_fields_read(JsonReader *reader, const ProfileField *fields, gpointer base);

#endif
