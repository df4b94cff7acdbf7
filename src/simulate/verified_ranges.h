/* verified_ranges.h - which elements of which parameters lie in the memory of a rank, and what is
 * in them at first. */
#ifndef HIGHWATER_SIMULATE_VERIFIED_RANGES_H
#define HIGHWATER_SIMULATE_VERIFIED_RANGES_H

#include "simulate/verified_state.h"

/* How many there are, and the one of a name; -1: none. */
guint verified_parameters(const VerifiedState *state);
int verified_parameter_named(const VerifiedState *state, const char *name);
/* The part of a parameter that a rank holds; of memory that is as large as the parameter, all. */
StateRange verified_range(const VerifiedState *state, int rank, int parameter, gint64 elements);

/* Elements from `first` on of what a rank holds, in a buffer of so many. */
typedef struct {
  int rank;
  gint64 first, elements;
} RangeWindow;

/* Calls f for each range in it, with the element of the buffer at which it begins.  Ranges lie one
 * behind the other; or each in a room of its own, if rooms fill the buffer, or several buffers. */
typedef void (*RangeFunction)(gpointer user, StateRange range, gint64 at);
void verified_for_ranges(const VerifiedState *state, RangeWindow window, RangeFunction f,
                         gpointer user);
/* The same for what an optimizer updates.  seen: elements of buffers of many that this rank has had
 * before, kept up to date.  FALSE: it is a parameter's, and less than the rank holds of it. */
gboolean verified_for_update(const VerifiedState *state, const NumericUpdate *update, gint64 *seen,
                             RangeFunction f, gpointer user);

/* verified_start.c: hooks that give memory its first values, and an image what ranks begin with. */
void verified_start_hooks(NumericHooks *hooks);
void verified_start_image(const VerifiedState *state, StateImage *image);

#endif
