/* sweep_verification.h - the schedules of a sweep's variants executed on numbers: does each train
 * what an unsharded run does, and do all come to the same losses?
 *
 * Not on the network itself but on a small one with its structure, the same for all: widths and
 * lengths are least, and of its blocks as many stay as keep the work bounded. */
#ifndef HIGHWATER_SEARCH_SWEEP_VERIFICATION_H
#define HIGHWATER_SEARCH_SWEEP_VERIFICATION_H

#include "search/sweep.h"

/* Blocks of the network times ranks times micro-batches, of one variant: what has more has fewer
 * blocks, and what has more with two blocks is not executed. */
#define SWEEP_BLOCKS_MOST 512
#define SWEEP_VERIFIED_STEPS 2

/* Executes each plan that differs once; a variant that cannot be is told why.  FALSE: it was
 * stopped (see Workers).  workers: threads, 0: as many as there are cores. */
gboolean sweep_verify(Sweep *sweep, int workers, gboolean (*stops)(gpointer user), gpointer user);

/* "equal", "differs", "not executed"; NULL: nobody asked. */
const char *sweep_verification_word(const SweepVerification *verification);
/* Is any variant's answer, or the losses of two that train the same, another? */
gboolean sweep_verification_fails(const Sweep *sweep);
/* What was executed, and which losses are equal, as lines; nothing where nobody asked. */
void sweep_verification_text(const Sweep *sweep, GString *out);
void sweep_verification_clear(SweepVerification *verification);

#endif
