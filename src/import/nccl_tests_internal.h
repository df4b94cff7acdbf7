/* nccl_tests_internal.h - between the files that read nccl-tests tables: a raw row, what the lines
 * around rows say, and what follows from both. */
#ifndef HIGHWATER_IMPORT_NCCL_TESTS_INTERNAL_H
#define HIGHWATER_IMPORT_NCCL_TESTS_INTERNAL_H

#include "import/nccl_tests_table.h"

/* One measurement of a row. */
typedef struct {
  double time_us; /* 0: none */
  double algbw, busbw;
  gboolean unchecked; /* its errors are "N/A" */
} RawTiming;

typedef struct {
  gint64 bytes, count;
  int element_bytes;
  char redop; /* 's' some reduction, 'n' "none", 0 no such column */
  int root;   /* ROOT_ABSENT: no such column */
  RawTiming out_of_place, in_place;
} RawRow;
#define ROOT_ABSENT (-2)

typedef enum { ROW_NONE, ROW_GOOD, ROW_BAD } RowKind;
/* Reads a line: NONE when it is no row at all; BAD with a static reason. */
RowKind nccl_tests_row_parse(const char *line, RawRow *row, const char **reason);

/* What the lines before a table say. */
typedef struct {
  int ranks;                 /* one more than the highest "Rank"; 0: none seen */
  int device_lines, devices; /* how many lines of devices, one more than the highest "device" */
  GHashTable *hosts;
  char *gpu, *nccl;
  const char *collective;    /* static: "Collective test starting" */
  const char *mentioned;     /* static: the one test that a line named, a command or a heading */
  int gpus;                  /* threads times GPUs of a process; 0: unknown */
  int name_nodes, name_gpus; /* "2x8" in the file's name; 0: none */
  const char *name_collective;
} TableHeader;

/* What is known of a table from its header and its rows. */
typedef struct {
  const char *collective; /* NULL: cannot be told */
  int ranks;              /* 0: cannot be told */
  RanksSource source;
} TableIdentity;
/* rows: RawRow, >= 1. */
TableIdentity nccl_tests_identify(const TableHeader *header, const GArray *rows,
                                  NcclTestsHints hints);
/* Bus bandwidth over algorithm bandwidth for a collective of nccl-tests. */
double nccl_tests_factor(const char *collective, int ranks);
/* The static name of a collective that the text names ("all_gather_perf"), or NULL; *count: how
 * many different ones it names. */
const char *nccl_tests_collective_in(const char *text, int *count);

#endif
