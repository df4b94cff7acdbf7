/* text_table.h - columns of text, aligned: for people, in the C locale. */
#ifndef HIGHWATER_BASE_TEXT_TABLE_H
#define HIGHWATER_BASE_TEXT_TABLE_H

#include <glib.h>

typedef struct _TextTable TextTable;

/* columns: one character a column, 'l' left or 'r' right aligned, e.g. "lrr". */
TextTable *text_table_new(const char *columns);
/* Adds one row: as many strings as columns (copied; NULL is an empty cell). */
void text_table_row(TextTable *table, ...) G_GNUC_NULL_TERMINATED;
void text_table_row_array(TextTable *table, const char *const *cells);
/* Appends the table to out, each line indented by indent spaces, columns two spaces apart, no
 * trailing spaces. */
void text_table_print(const TextTable *table, int indent, GString *out);
void text_table_free(TextTable *table);
G_DEFINE_AUTOPTR_CLEANUP_FUNC(TextTable, text_table_free)

#endif
