/* stored_run.h - a RUN read again: what `run --output` or an import left in a folder. */
#ifndef HIGHWATER_REPORT_STORED_RUN_H
#define HIGHWATER_REPORT_STORED_RUN_H

#include "record/recording.h"
#include "report/run_info.h"

/* Everything belongs to it. */
typedef struct {
  char *folder; /* as it was named */
  Recording *recording;
  RunInfo *info;                  /* empty but for what is known, in a measured run */
  char *network, *plan, *cluster; /* the documents' texts, overrides applied; NULL: not there (the
                                     run was measured, or is one of a Program) */
  char *program;   /* the text of a Program that was run instead of a network; else NULL */
  int steps, rank; /* as it was asked for; steps 0: not simulated */
  gboolean all_ranks;
  gint64 memory_limit; /* of the allocator, bytes; 0: what the device has left */
} StoredRun;

/* Reads a RUN, or a recording alone when the path is a file.  What a RUN of an older version or an
 * import lacks stays empty.  NULL and error when there is no recording, or a file is not as it
 * should be. */
StoredRun *stored_run_load(const char *folder, GError **error);
void stored_run_free(StoredRun *run);
G_DEFINE_AUTOPTR_CLEANUP_FUNC(StoredRun, stored_run_free)

#endif
