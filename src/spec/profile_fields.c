/* profile_fields.c - reads a struct of constants from a JSON object by a table. */
#include "spec/profile_fields.h"

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
    *(gint64 *) place =
        json_reader_size_between(reader, field->key, 0, (gint64) field->min, (gint64) field->max);
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
    if (json_reader_require(reader, field->key))
      read_field(reader, field, base);
  }
}
