/* rank_speed.h - how fast a rank computes, step by step. */
#ifndef HIGHWATER_EXEC_RANK_SPEED_H
#define HIGHWATER_EXEC_RANK_SPEED_H

#include <glib.h>

/* All zero: as fast as the device profile says. */
typedef struct {
  double compute; /* its kernels take so many times as long; 0: once */
  double jitter;  /* standard deviation of that from step to step, as a fraction */
  guint64 seed;
  int rank;
} RankSpeed;

/* How many times as long kernels take in a step (0: the construction), > 0.  Jitter is normal, cut
 * at three standard deviations, and a function of seed, rank and step alone. */
double rank_speed_factor(const RankSpeed *speed, int step);

#endif
