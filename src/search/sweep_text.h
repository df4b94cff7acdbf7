/* sweep_text.h - the results of a sweep for people: what is fixed, a row a variant, the best. */
#ifndef HIGHWATER_SEARCH_SWEEP_TEXT_H
#define HIGHWATER_SEARCH_SWEEP_TEXT_H

#include "search/sweep.h"

/* Appends it; variants that are not done are left out. */
void sweep_text(const Sweep *sweep, GString *out);
/* Appends the heading alone: what is varied, what is the same in all variants, what to beware of.
 */
void sweep_text_heading(const Sweep *sweep, GString *out);

#endif
