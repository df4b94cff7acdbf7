/* sweep_comparison.h - the evidence of all variants side by side, for people. */
#ifndef HIGHWATER_SEARCH_SWEEP_COMPARISON_H
#define HIGHWATER_SEARCH_SWEEP_COMPARISON_H

#include "search/sweep_directory.h"

/* Appends comparison.txt: the results, then groups, collectives, gathers, steps and the equivalence
 * check of each variant that is done, where the folder has evidence of it. */
void sweep_comparison(const SweepDirectory *directory, const Sweep *sweep, GString *out);

#endif
