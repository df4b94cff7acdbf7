/* verified_comparison.h - what ranks computed beside what the unsharded run did. */
#ifndef HIGHWATER_SIMULATE_VERIFIED_COMPARISON_H
#define HIGHWATER_SIMULATE_VERIFIED_COMPARISON_H

#include "simulate/verified_state.h"

/* Adds the steps that a run executed to a report, and its first fault if that has none yet. */
void verified_compare(VerificationReport *report, const VerifiedState *state,
                      const VerifiedState *reference);

/* Are two numbers the same, or both none? */
gboolean verified_same_bits(double a, double b);
/* Is all that ranks computed, bit by bit, what another run of the same plan did?  FALSE from the
 * first step on whose gradients are added up in another order, as where a new process has not yet
 * rebuilt its buckets; whatever else is not is the report's fault. */
gboolean verified_compare_bits(VerificationReport *report, const VerifiedState *state,
                               const VerifiedState *right);
/* Have both runs of a plan read the same gradients in a step, bit by bit? */
gboolean verified_same_gradients(const VerifiedState *a, const VerifiedState *b, int step);

/* The first fault counts; what was unknown first in the state is said behind it, if one is given.
 */
void verified_fault(VerificationReport *report, const VerifiedState *state, const char *format, ...)
    G_GNUC_PRINTF(3, 4);

/* An element of a gradient that is too far from what it should be. */
typedef struct {
  int step, parameter;
  gint64 element;
  double made, expected, allowed;
} VerifiedElement;
void verified_fault_of_element(VerificationReport *report, const VerifiedState *state,
                               const VerifiedTensor *tensor, const VerifiedElement *element);

#endif
