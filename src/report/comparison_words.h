/* comparison_words.h - what a Comparison found, in words that its text and its JSON share.
 *
 * Callers free what they get. */
#ifndef HIGHWATER_REPORT_COMPARISON_WORDS_H
#define HIGHWATER_REPORT_COMPARISON_WORDS_H

#include "report/comparison.h"

/* The largest difference in one line, or that there is none. */
char *comparison_headline(const Comparison *comparison);

/* "peak allocated" of "peak_allocated". */
char *figure_label(const char *key);
/* "192 MiB", "40.2 ms", "18"; with a sign: "+12.0 MiB". */
char *figure_format(FigureUnit unit, gint64 value);
char *figure_format_signed(FigureUnit unit, gint64 value);

/* Where a side is at the first difference: "step 2, backward of layers.3"; NULL when there is none.
 */
char *comparison_memory_place(const Comparison *comparison, int side);
/* What it does there: "allocates 12.0 MiB for silu of layers.3 (activation)", "does nothing more in
 * this step". */
char *comparison_memory_event(const Comparison *comparison, int side);
/* How they come together again: "1 event of A is missing in B". */
char *comparison_memory_verdict(const Comparison *comparison);

/* A collective of a pair: "1.50 MiB of layers.2 in 35.2 us", "none". */
char *comparison_collective(const Comparison *comparison, const CollectivePair *pair, int side);
/* Which of them: "all_gather 5 of shard". */
char *comparison_collective_name(const Comparison *comparison, const CollectivePair *pair);

#endif
