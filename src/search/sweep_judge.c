/* sweep_judge.c - the variants of a sweep that nobody beats, and the fastest that fits. */
#include "search/sweep.h"

#include <math.h>

#define TOKENS_OF_A_COST 1024

double
sweep_cost(const Sweep *sweep, const SweepVariant *variant)
{
  const Outcome *outcome = &variant->outcome;
  if (!variant->is_done || outcome->refusal != NULL || !outcome->time.known)
    return NAN;
  if (sweep->least_global_batch == sweep->most_global_batch)
    return (double) outcome->time.step;
  return (double) outcome->time.step / (double) MAX(outcome->tokens_per_step, 1) * TOKENS_OF_A_COST;
}

/* A variant that fits, as a point. */
typedef struct {
  guint variant;
  gint64 reserved;
  double cost;
} Point;

static int
compare_points(gconstpointer a, gconstpointer b)
{
  const Point *x = a, *y = b;
  if (x->reserved != y->reserved)
    return x->reserved < y->reserved ? -1 : 1;
  if (x->cost != y->cost)
    return x->cost < y->cost ? -1 : 1;
  return x->variant < y->variant ? -1 : 1;
}

static GArray *
points_that_fit(const Sweep *sweep)
{
  GArray *points = g_array_new(FALSE, FALSE, sizeof(Point));
  for (guint i = 0; i < sweep->variants->len; i++) {
    const SweepVariant *variant = sweep_variant(sweep, i);
    const Point point = {i, variant->outcome.peak_reserved, sweep_cost(sweep, variant)};
    if (!isnan(point.cost) && outcome_fits(&variant->outcome))
      g_array_append_val(points, point);
  }
  g_array_sort(points, compare_points);
  return points;
}

static gboolean
leaves_headroom(const Sweep *sweep, guint i)
{
  const Outcome *outcome = &sweep_variant(sweep, i)->outcome;
  return outcome->headroom >= headroom_of(&sweep->headroom, outcome->capacity);
}

void
sweep_judge(Sweep *sweep)
{
  g_autoptr(GArray) points = points_that_fit(sweep);
  Point best = {.cost = INFINITY};
  double fastest = INFINITY;
  sweep->fastest = -1;
  for (guint i = 0; i < sweep->variants->len; i++)
    sweep_variant(sweep, i)->is_pareto = FALSE;
  for (guint i = 0; i < points->len; i++) {
    const Point *point = &g_array_index(points, Point, i);
    gboolean is_equal = point->cost == best.cost && point->reserved == best.reserved;
    if (point->cost < best.cost)
      best = *point;
    if (point->cost < fastest && leaves_headroom(sweep, point->variant)) {
      fastest = point->cost;
      sweep->fastest = (int) point->variant;
    }
    sweep_variant(sweep, point->variant)->is_pareto = is_equal || best.variant == point->variant;
  }
}
