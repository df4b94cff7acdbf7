/* nccl_tests_table.h - tables that nccl-tests prints, as people keep them: old and new columns, log
 * lines in between, prefixes of launchers, several tables in one file. */
#ifndef HIGHWATER_IMPORT_NCCL_TESTS_TABLE_H
#define HIGHWATER_IMPORT_NCCL_TESTS_TABLE_H

#include <glib.h>

typedef struct {
  gint64 bytes;
  double time_us; /* of the faster of out of place and in place */
  guint line;     /* of the file, from 1 */
} NcclTestsRow;

/* A line that begins as a row and is none that can be used. */
typedef struct {
  guint line;
  const char *reason; /* static */
} NcclTestsRejected;

/* Where the number of ranks comes from. */
typedef enum {
  RANKS_FROM_CALLER,
  RANKS_FROM_DEVICES,    /* "# Rank 15 ... on HOST device 7" */
  RANKS_FROM_COUNT,      /* bytes over elements of one rank */
  RANKS_FROM_BANDWIDTHS, /* bus bandwidth over algorithm bandwidth */
  RANKS_FROM_NAME,       /* NODESxGPUS in the file's name, or nGpus of the header */
} RanksSource;
extern const char *const ranks_source_names[]; /* "device lines", ... */

typedef struct {
  char *file;
  guint line;             /* of its first row */
  const char *collective; /* static; nccl-tests' name: "all_gather", "alltoall" */
  int ranks;              /* > 1 */
  RanksSource ranks_source;
  int nodes;        /* 0: not known */
  char *gpu;        /* "NVIDIA H100 80GB HBM3", or NULL */
  char *nccl;       /* "2.26.2", or NULL */
  GArray *rows;     /* NcclTestsRow in the file's order, >= 1 */
  GArray *rejected; /* NcclTestsRejected */
} NcclTestsTable;

/* What the caller knows better than the file; 0: not. */
typedef struct {
  int ranks, nodes;
} NcclTestsHints;

void nccl_tests_table_free(NcclTestsTable *table);

/* All tables of a file ("-": standard input); free with g_ptr_array_unref.  Where there is none, or
 * one whose collective or ranks cannot be told or that has one rank: NULL and an error "FILE: line
 * 12: ...". */
GPtrArray *nccl_tests_tables_load(const char *path, NcclTestsHints hints, GError **error);
/* The same of text (NUL bytes and all); name: of the file, for messages and what it tells. */
GPtrArray *nccl_tests_tables_parse(const char *name, const char *text, gsize length,
                                   NcclTestsHints hints, GError **error);

#endif
