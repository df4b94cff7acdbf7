/* straggler.c - the expected maximum of n normal numbers. */
#include "compute/straggler.h"

#include <math.h>

/* Share of standard normal numbers above z. */
static double
upper_tail(double z)
{
  return 0.5 * erfc(z * M_SQRT1_2);
}

/* Blom, "Statistical Estimates and Transformed Beta-Variables" (1958): of n numbers the largest is
 * where (n - 3/8) / (n + 1/4) of all lie below.  Bisection: the tail falls, and 10 deviations are
 * beyond any n. */
double
straggler_deviations(int n)
{
  if (n <= 1)
    return 0;
  double above = 0.625 / (n + 0.25), low = 0, high = 10;
  for (int i = 0; i < 50; i++) {
    double middle = (low + high) / 2;
    if (upper_tail(middle) > above)
      low = middle;
    else
      high = middle;
  }
  return low;
}
