/* numeric_interruption.h - what an interruption in the middle of a step changes
 * (NumericInterruption).
 */
#ifndef HIGHWATER_NUMERIC_NUMERIC_INTERRUPTION_H
#define HIGHWATER_NUMERIC_NUMERIC_INTERRUPTION_H

#include "numeric/numeric_rank.h"

/* Is it device work of a step: what an interruption counts? */
gboolean numeric_is_work(const NumericTask *task);
/* Does a rank stop somewhere, so that others come only as far as they can? */
gboolean numeric_interruption_is_failure(const NumericConfig *config);
/* Is the stream's next task one that the rank does not come to, because it stops? */
gboolean numeric_interruption_stops(const NumericRank *r, int stream);
/* Is the collective at the stream's head a reduction that is never done? */
gboolean numeric_interruption_loses(const NumericRank *r, const NumericTask *task, int stream);
/* What a kernel has written counts twice if it is a gradient that was there before. */
void numeric_interruption_stay(NumericRank *r, const NumericTask *task, NumericTensor *operands);

#endif
