/* sweep_results.h - the results of a sweep as tables: JSON lines, CSV, and columns for figures. */
#ifndef HIGHWATER_SEARCH_SWEEP_RESULTS_H
#define HIGHWATER_SEARCH_SWEEP_RESULTS_H

#include "search/sweep.h"

/* Appends one variant's row as a line of JSON.  is_judged: with what sweep_judge() found. */
void sweep_results_line(const Sweep *sweep, guint variant, gboolean is_judged, GString *out);
/* Appends a line of JSON for each variant that is done. */
void sweep_results_json(const Sweep *sweep, GString *out);
/* Appends all of them as CSV (RFC 4180): names of columns, then the rows. */
void sweep_results_csv(const Sweep *sweep, GString *out);
/* Appends the table that figures read, results.tsv of doc/formats.md. */
void sweep_results_table(const Sweep *sweep, GString *out);

/* Reads lines as sweep_results_line() writes them into the variants that they name, which are done
 * then.  A last line without its end is left out.  *whole: bytes of the lines that were read. FALSE
 * and error ("NAME: line 3: ...") when one is wrong or of another sweep. */
gboolean sweep_results_read(Sweep *sweep, const char *name, const char *text, gsize length,
                            gsize *whole, GError **error);

#endif
