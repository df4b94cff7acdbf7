/* run_options.h - the options that say what is simulated: of run, sweep and whatever else tries
 * plans. */
#ifndef HIGHWATER_CLI_RUN_OPTIONS_H
#define HIGHWATER_CLI_RUN_OPTIONS_H

#include "simulate/run_simulation.h"

/* As given. */
typedef struct {
  char *plan, *cluster, *memory_limit;
  char **assignments;
  int steps, rank;
  gboolean all_ranks;
} RunOptions;

RunOptions run_options_default(void);
void run_options_clear(RunOptions *options);

/* Entries that fill *options, followed by a command's own (which end with a NULL name).  Caller
 * frees with g_free. */
GOptionEntry *run_options_entries(RunOptions *options, const GOptionEntry *own);

/* Checks them and reads the input files; the request borrows the assignments.  FALSE and error,
 * with the command's name where the command line is wrong; the request is to be cleared either way.
 */
gboolean run_options_read(const RunOptions *options, const char *command, const char *network,
                          RunRequest *request, GError **error);

#endif
