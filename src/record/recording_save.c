/* recording_save.c - writes a Recording as one JSON document, a row of a table a line. */
#include <cjson/cJSON.h>
#include <stdio.h>

#include "base/category.h"
#include "base/number_text.h"
#include "base/output_file.h"
#include "record/recording_columns.h"

static void
write_text(FILE *out, const char *text)
{
  cJSON *string = cJSON_CreateStringReference(text);
  char *quoted = cJSON_PrintUnformatted(string);
  fputs(quoted, out);
  cJSON_free(quoted);
  cJSON_Delete(string);
}

static void
write_texts(FILE *out, const char *const *texts, guint n)
{
  fputc('[', out);
  for (guint i = 0; i < n; i++) {
    fputs(i > 0 ? ", " : "", out);
    write_text(out, texts[i]);
  }
  fputc(']', out);
}

static void
write_number(FILE *out, gint64 number)
{
  char buffer[NUMBER_TEXT_SIZE];
  gsize length;
  const char *text = number_text(buffer, number, &length);
  fwrite(text, 1, length, out);
}

static void
write_value(FILE *out, const Column *column, gconstpointer base)
{
  if (column->type == COLUMN_DOUBLE) {
    char text[G_ASCII_DTOSTR_BUF_SIZE];
    fputs(g_ascii_dtostr(text, sizeof text, column_get_double(column, base)), out);
    return;
  }
  gint64 value = column_get(column, base);
  if (column->type == COLUMN_LIMIT && value == G_MAXINT64)
    fputs("null", out);
  else
    write_number(out, value);
}

/* The members of a struct, without braces. */
static void
write_members(FILE *out, const char *indent, const Column *columns, gconstpointer base)
{
  for (const Column *column = columns; column->name != NULL; column++) {
    fprintf(out, "%s%s\"%s\": ", column == columns ? "" : ",\n", indent, column->name);
    write_value(out, column, base);
  }
}

static void
write_row(FILE *out, const Column *columns, gconstpointer base)
{
  fputc('[', out);
  for (const Column *column = columns; column->name != NULL; column++) {
    if (column != columns)
      fputc(',', out);
    write_value(out, column, base);
  }
  fputc(']', out);
}

static void
write_table(FILE *out, const Recording *recording, const RecordTable *table)
{
  const GArray *rows = record_table_array(table, recording);
  if (table->only_if_any && rows->len == 0)
    return;
  fprintf(out, ",\n  \"%s\": {\"columns\": [", table->key);
  for (const Column *column = table->columns; column->name != NULL; column++)
    fprintf(out, "%s\"%s\"", column == table->columns ? "" : ", ", column->name);
  fputs("], \"rows\": [", out);
  for (guint i = 0; i < rows->len; i++) {
    fputs(i > 0 ? ",\n    " : "\n    ", out);
    write_row(out, table->columns, rows->data + i * table->element_size);
  }
  fputs("]}", out);
}

static void
write_names(FILE *out)
{
  fputs(",\n  \"names\": {", out);
  for (guint i = 0; i < COLUMN_NAMES_COUNT; i++) {
    const ColumnNames *list = &column_names[i];
    fprintf(out, "%s\n    \"%s\": ", i > 0 ? "," : "", list->key);
    write_texts(out, list->names, list->n_names);
  }
  fputs("}", out);
}

static void
write_peak(FILE *out, const PeakRecord *peak)
{
  fputs(",\n  \"peak\": {\n", out);
  write_members(out, "    ", peak_columns, peak);
  fputs(",\n    \"categories\": {", out);
  for (int i = 0; i < CATEGORY_COUNT; i++)
    fprintf(out, "%s\"%s\": %" G_GINT64_FORMAT, i > 0 ? ", " : "", category_name((Category) i),
            peak->categories[i]);
  fputs("}}", out);
}

static void
write_document(FILE *out, const Recording *recording)
{
  fputs("{\n  \"format\": \"" RECORDING_FORMAT "\",\n  \"title\": ", out);
  write_text(out, recording->title);
  fputs(",\n", out);
  write_members(out, "  ", recording_columns, recording);
  fputs(",\n  \"stuck\": ", out);
  if (recording->stuck != NULL)
    write_text(out, recording->stuck);
  else
    fputs("null", out);
  fputs(",\n  \"out_of_memory\": ", out);
  if (recording->out_of_memory.happened) {
    fputs("{\n", out);
    write_members(out, "    ", out_of_memory_columns, &recording->out_of_memory);
    fputs("}", out);
  } else {
    fputs("null", out);
  }
  write_names(out);
  fputs(",\n  \"strings\": ", out);
  write_texts(out, (const char *const *) recording->strings->pdata, recording->strings->len);
  fputs(",\n  \"streams\": ", out);
  write_texts(out, (const char *const *) recording->streams->pdata, recording->streams->len);
  fputs(",\n  \"cached_bytes\": [", out);
  for (guint i = 0; i < recording->cached->len; i++)
    fprintf(out, "%s%" G_GINT64_FORMAT, i > 0 ? ", " : "",
            g_array_index(recording->cached, gint64, i));
  fputs("]", out);
  write_peak(out, &recording->peak);
  for (guint i = 0; i < RECORDING_TABLES; i++)
    write_table(out, recording, &recording_tables[i]);
  fputs("\n}\n", out);
}

gboolean
recording_save(const Recording *recording, const char *path, GError **error)
{
  OutputFile *file = output_file_open(path, error);
  if (file == NULL)
    return FALSE;
  write_document(output_file_stream(file), recording);
  return output_file_commit(file, error);
}
