/* comparison_limit.c - how far two runs may differ before a comparison says no. */
#include "report/comparison_limit.h"
#include "base/nearest_name.h"
#include "base/units.h"
#include <string.h>

/* What a limit without a name is of. */
static const char *const main_keys[] = {"peak_allocated", "peak_reserved", "step_time"};

static void
limit_clear(gpointer data)
{
  g_free(((ComparisonLimit *) data)->text);
}

static gboolean fail(GError **error, const char *format, ...) G_GNUC_PRINTF(2, 3);

static gboolean
fail(GError **error, const char *format, ...)
{
  va_list arguments;
  va_start(arguments, format);
  g_autofree char *message = g_strdup_vprintf(format, arguments);
  va_end(arguments);
  g_set_error_literal(error, HIGHWATER_ERROR, HIGHWATER_ERROR_USAGE, message);
  return FALSE;
}

/* "5%", "64MiB", "0". */
static gboolean
parse_value(const char *text, ComparisonLimit *limit, GError **error)
{
  gsize length = strlen(text);
  limit->is_relative = length > 0 && text[length - 1] == '%';
  if (!limit->is_relative) {
    if (parse_size(text, &limit->bytes, NULL))
      return TRUE;
    return fail(error, "'%.60s' is neither a percentage such as 5%% nor a size such as 64MiB",
                text);
  }
  char *end;
  double percent = g_ascii_strtod(text, &end);
  gboolean plain = strspn(text, "0123456789.") == length - 1;
  if (length < 2 || !plain || end != text + length - 1 || !(percent <= 1e6))
    return fail(error, "'%.60s' is not a percentage such as 5%%", text);
  limit->fraction = percent / 100;
  return TRUE;
}

/* The figure's own name, or NULL and an error. */
static const char *
find_key(const char *name, FigureUnit *unit, GError **error)
{
  const char *names[COMPARISON_FIGURES + 1] = {NULL};
  for (int i = 0; i < COMPARISON_FIGURES; i++) {
    names[i] = comparison_figure_key(i, unit);
    if (g_str_equal(names[i], name))
      return names[i];
  }
  const char *nearest = nearest_name(name, names);
  g_autofree char *all = g_strjoinv(", ", (char **) (gpointer) names);
  if (nearest)
    fail(error, "no figure '%.60s'; did you mean '%s'?", name, nearest);
  else
    fail(error, "no figure '%.60s'; there are: %s", name, all);
  return NULL;
}

static void
append(GArray *limits, const char *key, const char *text, ComparisonLimit limit)
{
  limit.key = key;
  limit.text = g_strdup(text);
  g_array_append_val(limits, limit);
}

/* One limit for all; a size is none for times, but nothing at all is. */
static gboolean
parse_for_all(GArray *limits, const char *text, GError **error)
{
  ComparisonLimit limit = {0};
  if (!parse_value(text, &limit, error))
    return FALSE;
  for (guint i = 0; i < G_N_ELEMENTS(main_keys); i++)
    if (limit.is_relative || limit.bytes == 0 || !g_str_equal(main_keys[i], "step_time"))
      append(limits, main_keys[i], text, limit);
  return TRUE;
}

static gboolean
parse_named(GArray *limits, const char *item, GError **error)
{
  const char *equals = strchr(item, '=');
  if (!equals)
    return fail(error, "'%.60s' is not NAME=LIMIT", item);
  g_autofree char *name = g_strndup(item, (gsize) (equals - item));
  FigureUnit unit;
  const char *key = find_key(name, &unit, error);
  ComparisonLimit limit = {.named = TRUE};
  if (!key || !parse_value(equals + 1, &limit, error))
    return FALSE;
  if (unit != FIGURE_BYTES && !limit.is_relative && limit.bytes > 0)
    return fail(error, "'%.60s': %s is no size: a percentage is needed, or 0", item, key);
  append(limits, key, equals + 1, limit);
  return TRUE;
}

GArray *
comparison_limits_parse(const char *text, GError **error)
{
  g_autoptr(GArray) limits = g_array_new(FALSE, FALSE, sizeof(ComparisonLimit));
  g_array_set_clear_func(limits, limit_clear);
  gboolean ok = TRUE;
  if (!strpbrk(text, "=,"))
    return parse_for_all(limits, text, error) ? g_steal_pointer(&limits) : NULL;
  g_auto(GStrv) items = g_strsplit(text, ",", -1);
  for (guint i = 0; items[i] && ok; i++)
    ok = parse_named(limits, g_strstrip(items[i]), error);
  return ok ? g_steal_pointer(&limits) : NULL;
}

gboolean
comparison_limits_choose(GArray *limits, const Comparison *c, GError **error)
{
  for (guint i = limits->len; i > 0; i--) {
    const ComparisonLimit *limit = &g_array_index(limits, ComparisonLimit, i - 1);
    const FigureComparison *figure = comparison_figure(c, limit->key);
    if (figure_is_known(figure))
      continue;
    if (limit->named)
      return fail(error, "%s is not known of %s", limit->key,
                  figure->known[SIDE_A]   ? "B"
                  : figure->known[SIDE_B] ? "A"
                                          : "either");
    g_array_remove_index(limits, i - 1);
  }
  return limits->len > 0 || fail(error, "the two have neither peaks nor step times in common");
}

gboolean
comparison_limit_holds(const ComparisonLimit *limit, const Comparison *c)
{
  const FigureComparison *figure = comparison_figure(c, limit->key);
  gint64 difference = figure->value[SIDE_B] - figure->value[SIDE_A];
  return limit->is_relative ? figure_error(figure) <= limit->fraction
                            : ABS(difference) <= limit->bytes;
}
