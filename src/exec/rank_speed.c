/* rank_speed.c - a straggler's factor, and jitter without any state. */
#include "exec/rank_speed.h"
#include <math.h>

/* splitmix64 (Steele, Lea, Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014).
 */
static guint64
mix(guint64 x)
{
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
  x = (x ^ x >> 27) * 0x94d049bb133111ebu;
  return x ^ x >> 31;
}

/* In (0, 1). */
static double
uniform(guint64 x)
{
  return ((double) (mix(x) >> 11) + 0.5) * 0x1p-53;
}

/* Box and Muller's transform. */
static double
normal(guint64 key)
{
  return sqrt(-2 * log(uniform(key))) * cos(2 * G_PI * uniform(key + 1));
}

double
rank_speed_factor(const RankSpeed *speed, int step)
{
  double factor = speed->compute > 0 ? speed->compute : 1;
  if (speed->jitter <= 0)
    return factor;
  guint64 key = mix(mix(mix(speed->seed) + (guint64) speed->rank) + (guint64) step);
  return factor * MAX(1 + speed->jitter * CLAMP(normal(key), -3, 3), 0.01);
}
