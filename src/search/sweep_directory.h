/* sweep_directory.h - the folder that `sweep --output` leaves, and goes on in after an
 * interruption. */
#ifndef HIGHWATER_SEARCH_SWEEP_DIRECTORY_H
#define HIGHWATER_SEARCH_SWEEP_DIRECTORY_H

#include "search/sweep.h"

/* Its files. */
#define SWEEP_DESCRIPTION "sweep.json"
#define SWEEP_LINES "results.jsonl"
#define SWEEP_CSV "results.csv"
#define SWEEP_TABLE "results.tsv"
#define SWEEP_COMPARISON "comparison.txt"
#define SWEEP_VARIANTS "variants"

typedef struct _SweepDirectory SweepDirectory;

/* Makes the folder, or goes on in it: variants whose results are there are done then.  NULL and
 * error when it holds something else, another sweep (another request, inputs that changed, another
 * version of the program), or when another process writes in it. */
SweepDirectory *sweep_directory_open(const char *path, Sweep *sweep, const SweepRequest *request,
                                     GError **error);
/* Adds a variant's result: a whole line in results.jsonl when this returns. */
gboolean sweep_directory_add(SweepDirectory *directory, const Sweep *sweep, guint variant,
                             GError **error);
/* Writes the tables. */
gboolean sweep_directory_finish(SweepDirectory *directory, const Sweep *sweep, GError **error);
/* The folder of a variant's evidence.  Caller frees. */
char *sweep_directory_variant(const SweepDirectory *directory, const SweepVariant *variant);
void sweep_directory_free(SweepDirectory *directory);
G_DEFINE_AUTOPTR_CLEANUP_FUNC(SweepDirectory, sweep_directory_free)

#endif
