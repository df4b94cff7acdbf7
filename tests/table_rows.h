/* table_rows.h - the rows of our tables' blocks, for tests that read them. */
#ifndef HIGHWATER_TESTS_TABLE_ROWS_H
#define HIGHWATER_TESTS_TABLE_ROWS_H

#include <check.h>
#include <glib.h>

/* Rows of a block: its lines without comments, split into columns, texts
 * in quotes as one.  Free with g_ptr_array_unref. */
static inline GPtrArray *
rows_of_block(const char *table, const char *name)
{
  GPtrArray *rows = g_ptr_array_new_with_free_func((GDestroyNotify) g_strfreev);
  g_auto(GStrv) blocks = g_strsplit(table, "\n\n\n", -1);
  g_autofree char *heading = g_strdup_printf("# %s\n", name);
  for (guint i = 0; blocks[i]; i++) {
    if (!g_str_has_prefix(blocks[i], heading))
      continue;
    g_auto(GStrv) lines = g_strsplit(g_strstrip(blocks[i]), "\n", -1);
    for (guint l = 0; lines[l]; l++) {
      char **cells = NULL;
      if (*lines[l] == '#')
        continue;
      ck_assert_msg(g_shell_parse_argv(lines[l], NULL, &cells, NULL), "row: %s", lines[l]);
      g_ptr_array_add(rows, cells);
    }
  }
  return rows;
}

static inline const char *
cell(const GPtrArray *rows, guint row, guint column)
{
  ck_assert_uint_lt(row, rows->len);
  char **cells = g_ptr_array_index(rows, row);
  ck_assert_uint_lt(column, g_strv_length(cells));
  return cells[column];
}

static inline gint64
size(const GPtrArray *rows, guint row, guint column)
{
  return g_ascii_strtoll(cell(rows, row, column), NULL, 10);
}

static inline double
number(const GPtrArray *rows, guint row, guint column)
{
  return g_ascii_strtod(cell(rows, row, column), NULL);
}

#endif
