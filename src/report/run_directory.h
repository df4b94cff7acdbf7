/* run_directory.h - the folder that `run --output` leaves for plot, report and compare. */
#ifndef HIGHWATER_REPORT_RUN_DIRECTORY_H
#define HIGHWATER_REPORT_RUN_DIRECTORY_H

#include "report/stored_run.h"

/* Its files. */
#define RUN_RECORDING "recording.json"
#define RUN_INFO "run.json" /* format of run_info_store.h */
#define RUN_TIMELINE "timeline.tsv"
#define RUN_REPORT "report.json"
#define RUN_NETWORK "network.json"
#define RUN_PROGRAM "program.txt" /* instead of a network and a plan */
#define RUN_PLAN "plan.json"
#define RUN_CLUSTER "cluster.json"

/* Writes a RUN whole or not at all: into a new folder beside path, then renamed.  A RUN that is
 * there is replaced; anything else that is there is refused.  Of the run, which is borrowed, folder
 * means nothing and documents that are NULL are left out; report is as `run --json` prints it,
 * NULL: left out. */
gboolean run_directory_write(const char *path, const StoredRun *run, const char *report,
                             GError **error);

#endif
