/* collective_table.h - measured times of one collective on one shape of communicator: section
 * "nccl.tables" of a cluster file, as `highwater calibrate` writes it. */
#ifndef HIGHWATER_SPEC_COLLECTIVE_TABLE_H
#define HIGHWATER_SPEC_COLLECTIVE_TABLE_H

#include <glib.h>

#include "base/json_reader.h"

typedef struct {
  gint64 bytes;   /* as nccl-tests counts them, > 0 */
  double time_ns; /* > 0 */
} CollectivePoint;

typedef struct {
  char *collective; /* nccl-tests' name: "all_gather", "alltoall" */
  int ranks, nodes;
  GArray *points; /* CollectivePoint: bytes strictly ascending, times never descending; >= 1 */
} CollectiveTable;

CollectiveTable *collective_table_new(const char *collective, int ranks, int nodes);
void collective_table_free(CollectiveTable *table);
G_DEFINE_AUTOPTR_CLEANUP_FUNC(CollectiveTable, collective_table_free)

/* Adds a measurement of more bytes than the last; a time below the last one's counts as that one's
 * (no message is slower than a longer one).  FALSE when bytes or time are out of order or range. */
gboolean collective_table_add(CollectiveTable *table, gint64 bytes, double time_ns);

/* Reads the array `key` of the reader: CollectiveTable in a new array (empty when absent).  Wrong
 * content becomes the document's error. */
GPtrArray *collective_tables_read(JsonReader *reader, const char *key);

#endif
