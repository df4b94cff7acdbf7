/* verified_start.h - hooks that give memory its first values, and an image what ranks begin with.
 */
#ifndef HIGHWATER_SIMULATE_VERIFIED_START_H
#define HIGHWATER_SIMULATE_VERIFIED_START_H

#include "simulate/verified_state.h"

void verified_start_hooks(NumericHooks *hooks);
void verified_start_image(const VerifiedState *state, StateImage *image);

#endif
