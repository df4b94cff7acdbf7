/* fuzz.h - what a fuzz target defines: one function that must not crash, leak or hang on any input.
 */
#ifndef HIGHWATER_TESTS_FUZZ_H
#define HIGHWATER_TESTS_FUZZ_H

#include <glib.h>

/* Called by libFuzzer or replay_main.c; data is not terminated and may be NULL when size is 0.
 * Returns 0. */
int LLVMFuzzerTestOneInput(const guint8 *data, gsize size);

#endif
