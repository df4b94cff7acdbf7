/* sweep_evidence.h - what stands behind a variant's figures: its run in a folder of its own. */
#ifndef HIGHWATER_SEARCH_SWEEP_EVIDENCE_H
#define HIGHWATER_SEARCH_SWEEP_EVIDENCE_H

#include "search/trials.h"

/* Writes the folder: a RUN, and beside it the tables of the run and what became of every gradient.
 * A folder that an interrupted sweep left is replaced. */
gboolean sweep_evidence_write(const char *folder, const Trial *trial, const RunResult *result,
                              GError **error);
/* Is all of it there? */
gboolean sweep_evidence_is_there(const char *folder);

#endif
