/* table_text.h - the cells of tables that gnuplot and other readers of columns take: numbers, times
 * in seconds, words. */
#ifndef HIGHWATER_REPORT_TABLE_TEXT_H
#define HIGHWATER_REPORT_TABLE_TEXT_H

#include "base/units.h"

/* Appends the first line, "# FORMAT: TITLE"; control characters in the title become blanks. */
void table_begin(GString *out, const char *format, const char *title);
/* Appends two empty lines, "# NAME" and "# COLUMNS": gnuplot's `index "NAME"` finds the rows that
 * follow.  A block before it that got no rows is taken out again: gnuplot would take this one's for
 * its own. */
void table_block(GString *out, const char *name, const char *columns);
/* After the last block. */
void table_end(GString *out);

/* Each appends one cell. */
void table_number(GString *out, gint64 number);
/* Seconds with all nanoseconds: "1.305710155". */
void table_time(GString *out, SimTime time);
/* One word: "-" for NULL or nothing; what has blanks is put in double quotes, and double quotes in
 * it become single ones. */
void table_word(GString *out, const char *text);

#endif
