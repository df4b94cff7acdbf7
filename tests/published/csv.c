/* csv.c - reads tables of comma-separated values. */
#include "published/csv.h"

/* One cell; *at moves behind it and its comma. */
static char *
next_cell(const char **at)
{
  GString *cell = g_string_new(NULL);
  gboolean quoted = FALSE;
  const char *p = *at;
  for (; *p != '\0' && (quoted || *p != ','); p++) {
    if (*p != '"')
      g_string_append_c(cell, *p);
    else if (quoted && p[1] == '"')
      g_string_append_c(cell, *p++);
    else
      quoted = !quoted;
  }
  *at = *p == ',' ? p + 1 : p;
  return g_string_free(cell, FALSE);
}

static GPtrArray *
read_row(const char *line, guint columns)
{
  GPtrArray *row = g_ptr_array_new_with_free_func(g_free);
  while (*line != '\0')
    g_ptr_array_add(row, next_cell(&line));
  while (row->len < columns)
    g_ptr_array_add(row, g_strdup(""));
  return row;
}

static void
free_row(gpointer row)
{
  g_ptr_array_unref(row);
}

Csv *
csv_load(const char *path, GError **error)
{
  g_autofree char *text = NULL;
  if (!g_file_get_contents(path, &text, NULL, error))
    return NULL;
  g_auto(GStrv) lines = g_strsplit(text, "\n", -1);
  Csv *csv = g_new0(Csv, 1);
  csv->rows = g_ptr_array_new_with_free_func(free_row);
  for (int i = 0; lines[i]; i++) {
    g_strchomp(lines[i]);
    if (lines[i][0] == '\0')
      continue;
    if (csv->columns == NULL)
      csv->columns = read_row(lines[i], 0);
    else
      g_ptr_array_add(csv->rows, read_row(lines[i], csv->columns->len));
  }
  if (csv->columns == NULL)
    csv->columns = read_row("", 0);
  return csv;
}

void
csv_free(Csv *csv)
{
  if (csv == NULL)
    return;
  g_ptr_array_unref(csv->columns);
  g_ptr_array_unref(csv->rows);
  g_free(csv);
}

const char *
csv_text(const Csv *csv, guint row, const char *column)
{
  for (guint i = 0; i < csv->columns->len; i++)
    if (g_str_equal(csv->columns->pdata[i], column))
      return ((const GPtrArray *) csv->rows->pdata[row])->pdata[i];
  g_error("no column %s", column);
}

double
csv_number(const Csv *csv, guint row, const char *column)
{
  return g_ascii_strtod(csv_text(csv, row, column), NULL);
}

int
csv_int(const Csv *csv, guint row, const char *column)
{
  return (int) csv_number(csv, row, column);
}

gboolean
csv_is(const Csv *csv, guint row, const char *column, const char *text)
{
  return g_ascii_strcasecmp(csv_text(csv, row, column), text) == 0;
}
