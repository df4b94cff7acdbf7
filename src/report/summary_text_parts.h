/* summary_text_parts.h - what texts for people share; only report's files of text include this. */
#ifndef HIGHWATER_REPORT_SUMMARY_TEXT_PARTS_H
#define HIGHWATER_REPORT_SUMMARY_TEXT_PARTS_H

#include "base/text_table.h"
#include "report/summary_text.h"

/* Characters beyond ASCII, or what stands for them. */
typedef struct {
  const char *separator, *times, *bar;
} Glyphs;

/* A report being written. */
typedef struct {
  const ReportModel *model;
  const TextStyle *style;
  const Glyphs *glyphs;
  GString *out;
} Screen;

/* One unit for a table of sizes. */
typedef struct {
  const char *name;
  gint64 bytes;
} TextUnit;

/* The largest unit that `largest` bytes have at least one of. */
const TextUnit *text_unit_for(gint64 largest);
/* "11.74" of that unit.  Caller frees. */
char *text_unit_format(const TextUnit *unit, gint64 bytes);

/* "log_softmax of output", or the one of the two that is known; NULL when neither.  Caller frees.
 */
char *text_what_of_module(const Recording *recording, gint32 what, gint32 module);

/* "optimizer state", by Category. */
extern const char *const text_category_labels[CATEGORY_COUNT];
/* "Reserved but not allocated WHEN: 5 GiB, of which ..." in a line; nothing when cached (gint64 per
 * stream) is. */
void text_cached(const Recording *recording, const GArray *cached, const char *when, GString *out);

/* Adds one row and frees its cells; cells may be NULL. */
void text_take_row(TextTable *table, char **cells, guint count);
#define TEXT_ROW(table, ...)                                                                       \
  text_take_row(table, (char *[]){__VA_ARGS__}, G_N_ELEMENTS(((char *[]){__VA_ARGS__})))

/* Who holds memory at the peak, memory by phase, communication, groups (summary_text_explain.c). */
void text_explain(const Screen *screen);
/* What the step hangs on, by kind; for --verbose stretch by stretch (summary_text_path.c). */
void text_critical_path(const Screen *screen);
void text_stretches(const Screen *screen);
/* What a failure leaves (failure_text.c). */
void text_failure(const Screen *screen, const Failure *failure);
/* What times rest on, and warnings (summary_text_explain.c). */
void text_footer(const Screen *screen);
/* The tables of --verbose (summary_text_tables.c). */
void text_tables(const Screen *screen);

#endif
