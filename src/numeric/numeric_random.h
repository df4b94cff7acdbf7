/* numeric_random.h - numbers that depend on nothing but a key and a counter: whoever needs one
 * makes the same. */
#ifndef HIGHWATER_NUMERIC_NUMERIC_RANDOM_H
#define HIGHWATER_NUMERIC_NUMERIC_RANDOM_H

#include <glib.h>

/* A key of a seed and a text, and one of a key and a number more. */
guint64 numeric_key(guint64 seed, const char *text);
guint64 numeric_key_add(guint64 key, guint64 number);
/* The number of this counter, in [0, 1), and one of mean 0 and variance 1. */
double numeric_uniform(guint64 key, guint64 counter);
double numeric_normal(guint64 key, guint64 counter);
/* One of 0 .. n - 1. */
gint64 numeric_choice(guint64 key, guint64 counter, gint64 n);

#endif
