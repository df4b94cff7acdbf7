/* profile_fields.c - reads a struct of constants from a JSON object by a table. */
#include "spec/profile_fields.h"

static void
read_bytes(JsonReader *reader, const ProfileField *field, gint64 *bytes)
{
  *bytes = json_reader_size(reader, field->key, 0);
  if ((double) *bytes < field->min || (double) *bytes > field->max)
    json_reader_fail(reader, field->key, "%" G_GINT64_FORMAT " bytes is not in %.0f..%.0f", *bytes,
                     field->min, field->max);
}

static void
read_field(JsonReader *reader, const ProfileField *field, gpointer base)
{
  gpointer place = (char *) base + field->offset;
  switch (field->type) {
  case PROFILE_INT:
    *(int *) place =
        (int) json_reader_int(reader, field->key, 0, (gint64) field->min, (gint64) field->max);
    break;
  case PROFILE_BYTES:
    read_bytes(reader, field, place);
    break;
  case PROFILE_DOUBLE:
    *(double *) place =
        field->scale * json_reader_double(reader, field->key, 0, field->min, field->max);
    break;
  }
}

void
profile_fields_read(JsonReader *reader, const ProfileField *fields, gpointer base)
{
  for (const ProfileField *field = fields; field->key; field++) {
    if (json_reader_has(reader, field->key))
      read_field(reader, field, base);
    else
      json_reader_fail(reader, field->key, "is missing");
  }
}
