/* verified_comparison.h - what ranks computed beside what the unsharded run did. */
#ifndef HIGHWATER_SIMULATE_VERIFIED_COMPARISON_H
#define HIGHWATER_SIMULATE_VERIFIED_COMPARISON_H

#include "simulate/verified_state.h"

/* Adds the steps that a run executed to a report, and its first fault if that has none yet. */
void verified_compare(VerificationReport *report, const VerifiedState *state,
                      const VerifiedState *reference);

#endif
