/* units.c - sizes, counts and times as people write and read them. */
#include "base/units.h"
#include <math.h>
#include <string.h>

GQuark
highwater_error_quark(void)
{
  return g_quark_from_static_string("highwater-error");
}

gboolean
checked_multiply(gint64 a, gint64 b, gint64 *product)
{
  g_assert(a >= 0 && b >= 0);
  gint64 result;
  if (__builtin_mul_overflow(a, b, &result))
    return FALSE;
  *product = result;
  return TRUE;
}

typedef struct {
  const char *name;
  gint64 bytes;
} SizeUnit;

static const SizeUnit size_units[] = {
    {"", 1},
    {"B", 1},
    {"KiB", KIB},
    {"MiB", MIB},
    {"GiB", GIB},
    {"TiB", GIB << 10},
    {"KB", 1000},
    {"MB", 1000 * 1000},
    {"GB", 1000 * 1000 * 1000},
    {"TB", 1000000000000},
};

static const SizeUnit *
find_size_unit(const char *name)
{
  for (guint i = 0; i < G_N_ELEMENTS(size_units); i++)
    if (g_str_equal(size_units[i].name, name))
      return &size_units[i];
  return NULL;
}

/* Reads "123.45" exactly, as digits and a power of ten: a double would round sizes beyond 2^53.
 * Returns the rest of the text, or NULL when it does not start with a number or the digits exceed
 * 2^63 - 1. */
static const char *
read_decimal(const char *text, gint64 *digits, gint64 *scale)
{
  const char *p = text;
  *digits = 0;
  *scale = 1;
  gboolean seen_point = FALSE, seen_digit = FALSE;
  for (; g_ascii_isdigit(*p) || (*p == '.' && !seen_point); p++) {
    if (*p == '.') {
      seen_point = TRUE;
      continue;
    }
    seen_digit = TRUE;
    if (__builtin_mul_overflow(*digits, 10, digits) ||
        __builtin_add_overflow(*digits, *p - '0', digits))
      return NULL;
    if (seen_point && __builtin_mul_overflow(*scale, 10, scale))
      return NULL;
  }
  return seen_digit && p[-1] != '.' ? p : NULL;
}

gboolean
parse_size(const char *text, gint64 *bytes, GError **error)
{
  gint64 digits, scale;
  const char *rest = read_decimal(text, &digits, &scale);
  const SizeUnit *unit = NULL;
  if (rest) {
    while (*rest == ' ')
      rest++;
    unit = find_size_unit(rest);
  }
  if (!unit) {
    g_set_error(error, HIGHWATER_ERROR, HIGHWATER_ERROR_INPUT,
                "'%.40s' is not a size below 8 EiB: bytes, or a number with KiB, MiB, GiB, TiB, "
                "KB, MB, GB or TB",
                text);
    return FALSE;
  }
  __int128 scaled = (__int128) digits * unit->bytes;
  if (scaled % scale != 0 || scaled / scale > G_MAXINT64) {
    g_set_error(error, HIGHWATER_ERROR, HIGHWATER_ERROR_INPUT,
                scaled % scale ? "'%.40s' is not a whole number of bytes"
                               : "'%.40s' is beyond 8 EiB",
                text);
    return FALSE;
  }
  *bytes = (gint64) (scaled / scale);
  return TRUE;
}

/* Three significant digits of value, which is below 1000 or so: "1.31", "37.3", "416". */
static char *
three_digits(double value, const char *unit)
{
  int decimals = value < 9.995 ? 2 : value < 99.95 ? 1 : 0;
  char number[G_ASCII_DTOSTR_BUF_SIZE];
  g_ascii_formatd(number, sizeof number,
                  decimals == 2   ? "%.2f"
                  : decimals == 1 ? "%.1f"
                                  : "%.0f",
                  value);
  return g_strdup_printf("%s %s", number, unit);
}

/* Scales |value| to the largest unit of at least 1, rounding carried: 999.6 of one is 1.00 of the
 * next. */
static char *
format_scaled(gint64 value, double step, const char *const *units)
{
  double magnitude = value < 0 ? -(double) value : (double) value;
  int unit = 0;
  while (units[unit + 1] && magnitude >= (unit == 0 ? step : step - 0.5)) {
    magnitude /= step;
    unit++;
  }
  g_autofree char *text = unit == 0 ? g_strdup_printf("%d %s", (int) magnitude, units[0])
                                    : three_digits(magnitude, units[unit]);
  g_strchomp(text); /* the unit of counts below a thousand is empty */
  return g_strconcat(value < 0 ? "-" : "", text, NULL);
}

char *
format_bytes(gint64 bytes)
{
  static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB", NULL};
  return format_scaled(bytes, 1024, units);
}

char *
format_duration(SimTime ns)
{
  static const char *const units[] = {"ns", "us", "ms", "s", NULL};
  return format_scaled(ns, 1000, units);
}

char *
format_count(gint64 count)
{
  static const char *const units[] = {"", "K", "M", "B", "T", NULL};
  return format_scaled(count, 1000, units);
}

char *
format_percent(double fraction)
{
  return isnan(fraction) ? g_strdup("-") : g_strdup_printf("%.1f %%", 100 * fraction);
}

char *
format_grouped(gint64 count)
{
  g_autofree char *digits =
      g_strdup_printf("%" G_GUINT64_FORMAT, count < 0 ? -(guint64) count : (guint64) count);
  GString *text = g_string_new(count < 0 ? "-" : "");
  size_t length = strlen(digits);
  for (size_t i = 0; i < length; i++) {
    if (i > 0 && (length - i) % 3 == 0)
      g_string_append_c(text, ',');
    g_string_append_c(text, digits[i]);
  }
  return g_string_free(text, FALSE);
}
