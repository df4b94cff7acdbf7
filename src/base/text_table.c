/* text_table.c - lays out columns of text. */
#include "base/text_table.h"
#include <string.h>

struct _TextTable {
  char *columns;
  guint n_columns;
  GPtrArray *cells; /* of char *, row by row */
};

TextTable *
text_table_new(const char *columns)
{
  g_assert(*columns && strspn(columns, "lr") == strlen(columns));
  TextTable *table = g_new0(TextTable, 1);
  table->columns = g_strdup(columns);
  table->n_columns = strlen(columns);
  table->cells = g_ptr_array_new_with_free_func(g_free);
  return table;
}

void
text_table_free(TextTable *table)
{
  if (!table)
    return;
  g_ptr_array_free(table->cells, TRUE);
  g_free(table->columns);
  g_free(table);
}

static void
add_cell(TextTable *table, const char *text)
{
  g_ptr_array_add(table->cells, g_strdup(text ? text : ""));
}

void
text_table_row(TextTable *table, ...)
{
  va_list cells;
  va_start(cells, table);
  for (guint i = 0; i < table->n_columns; i++)
    add_cell(table, va_arg(cells, const char *));
  g_assert(va_arg(cells, const char *) == NULL); /* more cells than columns */
  va_end(cells);
}

void
text_table_row_array(TextTable *table, const char *const *cells)
{
  for (guint i = 0; i < table->n_columns; i++)
    add_cell(table, cells[i]);
}

static glong
width_of(const char *cell)
{
  return g_utf8_strlen(cell, -1);
}

static void
append_spaces(GString *out, glong count)
{
  for (; count > 0; count--)
    g_string_append_c(out, ' ');
}

static void
print_row(const TextTable *table, guint row, const glong *widths, int indent, GString *out)
{
  /* Spaces before the next text, written only if there is one: lines end without spaces. */
  glong owed = indent;
  for (guint i = 0; i < table->n_columns; i++) {
    const char *cell = g_ptr_array_index(table->cells, row * table->n_columns + i);
    glong padding = widths[i] - width_of(cell);
    gboolean is_right = table->columns[i] == 'r';
    owed += is_right ? padding : 0;
    if (*cell) {
      append_spaces(out, owed);
      g_string_append(out, cell);
      owed = 0;
    }
    owed += (is_right ? 0 : padding) + 2;
  }
  g_string_append_c(out, '\n');
}

void
text_table_print(const TextTable *table, int indent, GString *out)
{
  g_autofree glong *widths = g_new0(glong, table->n_columns);
  for (guint i = 0; i < table->cells->len; i++) {
    glong *width = &widths[i % table->n_columns];
    *width = MAX(*width, width_of(g_ptr_array_index(table->cells, i)));
  }
  for (guint row = 0; row < table->cells->len / table->n_columns; row++)
    print_row(table, row, widths, indent, out);
}
