/* run_directory.h - the folder that `run --output` leaves for plot, report and compare. */
#ifndef HIGHWATER_REPORT_RUN_DIRECTORY_H
#define HIGHWATER_REPORT_RUN_DIRECTORY_H

#include "record/recording.h"

/* Its files beside the recording itself. */
#define RUN_RECORDING "recording.json"
#define RUN_TIMELINE "timeline.tsv"
#define RUN_REPORT "report.json"

/* Documents to keep, borrowed; a NULL one is left out. */
typedef struct {
  const char *report;                   /* as `run --json` prints it */
  const char *network, *plan, *cluster; /* the inputs as they were loaded, overrides applied */
} RunDocuments;

/* Writes a RUN whole or not at all: into a new folder beside path, then renamed.  A RUN that is
 * there is replaced; anything else that is there is refused. */
gboolean run_directory_write(const char *path, const Recording *recording,
                             const RunDocuments *documents, GError **error);

#endif
