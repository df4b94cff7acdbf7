/* units.h - sizes, counts and times as people write and read them, and arithmetic that cannot wrap.
 */
#ifndef HIGHWATER_BASE_UNITS_H
#define HIGHWATER_BASE_UNITS_H

#include <glib.h>

/* Simulated time and durations: integer nanoseconds. */
typedef gint64 SimTime;

#define SIM_TIME_MAX G_MAXINT64
#define KIB ((gint64) 1 << 10)
#define MIB ((gint64) 1 << 20)
#define GIB ((gint64) 1 << 30)

/* Ceiling division and rounding up of non-negative numbers; b > 0. */
static inline gint64
ceil_div(gint64 a, gint64 b)
{
  return (a + b - 1) / b;
}

static inline gint64
round_up(gint64 a, gint64 multiple)
{
  return ceil_div(a, multiple) * multiple;
}

/* Product of non-negative numbers.  Returns FALSE when it exceeds 2^63 - 1; *product is then unset.
 */
gboolean checked_multiply(gint64 a, gint64 b, gint64 *product);

/* Reads a size: plain bytes ("4096") or a number with KiB, MiB, GiB, TiB, KB, MB, GB, TB or B
 * ("80GiB", "1.5 GiB"). Negative, fractional-byte, overflowing or malformed text returns FALSE and
 * sets error ("'80Gi' is not a size ..."). */
gboolean parse_size(const char *text, gint64 *bytes, GError **error);

/* "37.3 GiB", "416 MiB", "512 B": about three significant digits.  Caller frees. */
char *format_bytes(gint64 bytes);

/* "1.31 s", "40.2 ms", "13.0 us".  Caller frees. */
char *format_duration(SimTime ns);

/* "8.03 B", "137 M", "512": a count of parameters or elements.  Caller frees. */
char *format_count(gint64 count);

/* "1.5 %" of 0.015, "-" of NAN.  Caller frees. */
char *format_percent(double fraction);

/* "6,250".  Caller frees. */
char *format_grouped(gint64 count);

/* The error domain of every recoverable error in the program (bad input, unwritable output, wrong
 * usage). */
#define HIGHWATER_ERROR (highwater_error_quark())
typedef enum {
  HIGHWATER_ERROR_INPUT,  /* a file, key or value that cannot be used */
  HIGHWATER_ERROR_USAGE,  /* a wrong command line */
  HIGHWATER_ERROR_OUTPUT, /* an output that cannot be written */
} HighwaterError;
GQuark highwater_error_quark(void);

#endif
