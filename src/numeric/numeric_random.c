/* numeric_random.c - a counter-based generator: SplitMix64's output function of key and counter
 * (Steele, Lea and Flood, Fast splittable pseudorandom number generators, OOPSLA 2014). */
#include "numeric/numeric_random.h"

#include <math.h>

static guint64
mix(guint64 z)
{
  z = (z ^ (z >> 30)) * G_GUINT64_CONSTANT(0xBF58476D1CE4E5B9);
  z = (z ^ (z >> 27)) * G_GUINT64_CONSTANT(0x94D049BB133111EB);
  return z ^ (z >> 31);
}

guint64
numeric_key_add(guint64 key, guint64 number)
{
  return mix(key + (number + 1) * G_GUINT64_CONSTANT(0x9E3779B97F4A7C15));
}

guint64
numeric_key(guint64 seed, const char *text)
{
  guint64 key = mix(seed + 1);
  for (; *text != '\0'; text++)
    key = numeric_key_add(key, (guchar) *text);
  return key;
}

double
numeric_uniform(guint64 key, guint64 counter)
{
  return (double) (numeric_key_add(key, counter) >> 11) * 0x1p-53;
}

/* Box and Muller, of two numbers of the counter's own. */
double
numeric_normal(guint64 key, guint64 counter)
{
  double u = 1 - numeric_uniform(key, 2 * counter), v = numeric_uniform(key, 2 * counter + 1);
  return sqrt(-2 * log(u)) * cos(2 * G_PI * v);
}

gint64
numeric_choice(guint64 key, guint64 counter, gint64 n)
{
  return (gint64) (numeric_uniform(key, counter) * (double) n);
}
