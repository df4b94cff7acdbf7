/* sweep_row.h - a variant's outcome as a JSON object, and back: what every output of a sweep is
 * made of. */
#ifndef HIGHWATER_SEARCH_SWEEP_ROW_H
#define HIGHWATER_SEARCH_SWEEP_ROW_H

#include "base/json_reader.h"
#include "search/sweep.h"

/* A variant's row: its number from 1, label, values and figures, as `run --json` names and writes
 * them. Caller deletes. */
cJSON *sweep_row(const Sweep *sweep, guint variant);
/* Figures from a row; FALSE when something is wrong, which is then the reader's document's error.
 */
gboolean sweep_row_read(JsonReader *row, Outcome *outcome);

/* A column of tables. */
typedef struct {
  const char *key;   /* in the row */
  gboolean in_table; /* of results.tsv, too; all are in results.csv */
} SweepColumn;
/* Ends with a NULL key; those in results.tsv come first. */
extern const SweepColumn sweep_columns[];

#endif
