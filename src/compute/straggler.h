/* straggler.h - how much slower the slowest of many GPUs is than their mean. */
#ifndef HIGHWATER_COMPUTE_STRAGGLER_H
#define HIGHWATER_COMPUTE_STRAGGLER_H

/* Expected maximum of n standard normal numbers; 0 for one or none.  n up to 10^9. */
double straggler_deviations(int n);

#endif
