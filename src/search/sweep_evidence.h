/* sweep_evidence.h - what stands behind a variant's figures: its run in a folder of its own. */
#ifndef HIGHWATER_SEARCH_SWEEP_EVIDENCE_H
#define HIGHWATER_SEARCH_SWEEP_EVIDENCE_H

#include "search/trials.h"

/* Beside the RUN's files and the tables of run_tables.h. */
#define EVIDENCE_EQUIVALENCE "equivalence.txt"

/* The same of sweep_verification.h, where that was asked for. */
#define EVIDENCE_VERIFICATION "verification.json"

/* Writes it into the folder of a variant; nothing where there is none. */
gboolean sweep_evidence_write_verification(const char *folder, const char *json, GError **error);

/* Writes the folder: a RUN, beside it every table of the run that is not of one module, and whether
 * each gradient is reduced and each parameter updated once.  A folder that an interrupted sweep
 * left is replaced.  FALSE and error when something cannot be written. */
gboolean sweep_evidence_write(const char *folder, const Trial *trial, const RunResult *result,
                              GError **error);
/* Is all of it there? */
gboolean sweep_evidence_is_there(const char *folder);
/* First line of what the folder says of the equivalence.  NULL: nothing.  Caller frees. */
char *sweep_evidence_equivalence(const char *folder);
/* Appends the folder's groups, aligned: their modules and bytes, how often they are gathered and
 * reduced. */
void sweep_evidence_groups(const char *folder, GString *out);

#endif
