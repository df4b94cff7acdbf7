/* verification_axes.h - what is varied of every strategy, as a table: which cases there are. */
#ifndef HIGHWATER_TESTS_VERIFICATION_AXES_H
#define HIGHWATER_TESTS_VERIFICATION_AXES_H

#include "verification_run.h"

/* One setting of a strategy: assignments, and of how many ranks it is. */
typedef struct {
  const char *options;
  const char *network; /* NULL: LLAMA */
  int least, multiple; /* ranks: so many at least, a multiple of this; 0: any */
} Setting;

typedef struct {
  const char *name, *plan;
  const char *mesh;           /* the key that ranks are given by */
  const Setting *const *axes; /* each ends with an empty row; NULL-terminated */
} VariedStrategy;

extern const VariedStrategy varied_strategies[];
int varied_strategy_count(void);

/* All settings of a strategy for so many ranks, each by itself, then `combined` combinations of one
 * of each axis: Plan.  Caller frees. */
GArray *varied_cases(const VariedStrategy *strategy, int ranks, int combined);

#endif
