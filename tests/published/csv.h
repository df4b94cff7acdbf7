/* csv.h - tables of comma-separated values with a header line. */
#ifndef HIGHWATER_TESTS_CSV_H
#define HIGHWATER_TESTS_CSV_H

#include <glib.h>

typedef struct {
  GPtrArray *columns; /* char *: the header's */
  GPtrArray *rows;    /* GPtrArray * of char *, as many as columns */
} Csv;

/* Reads a file; cells in double quotes may hold commas, and quotes written twice.  Rows that are
 * too short have empty cells at their end.  NULL and error when the file cannot be read. */
Csv *csv_load(const char *path, GError **error);
void csv_free(Csv *csv);
G_DEFINE_AUTOPTR_CLEANUP_FUNC(Csv, csv_free)

/* The cell of a row (from 0) in the named column, which has to exist.  Borrowed. */
const char *csv_text(const Csv *csv, guint row, const char *column);
/* The same as a number; 0 when it is none. */
double csv_number(const Csv *csv, guint row, const char *column);
int csv_int(const Csv *csv, guint row, const char *column);
/* Is the cell that text? */
gboolean csv_is(const Csv *csv, guint row, const char *column, const char *text);

#endif
