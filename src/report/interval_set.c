/* interval_set.c - disjoint intervals in order of start, merged as they arrive. */
#include "report/interval_set.h"

typedef struct {
  SimTime start, end;
} Interval;

/* Intervals are disjoint, do not touch, and ascend. */
struct _IntervalSet {
  GArray *intervals;
};

static Interval *
at(const IntervalSet *set, guint i)
{
  return &g_array_index(set->intervals, Interval, i);
}

IntervalSet *
interval_set_new(void)
{
  IntervalSet *set = g_new0(IntervalSet, 1);
  set->intervals = g_array_new(FALSE, FALSE, sizeof(Interval));
  return set;
}

void
interval_set_free(IntervalSet *set)
{
  if (set == NULL)
    return;
  g_array_unref(set->intervals);
  g_free(set);
}

/* Index of the first interval that ends at or after start: the first that [start, ...) can touch.
 * The search runs from the end, where intervals that arrive nearly in order belong. */
static guint
first_touching(const IntervalSet *set, SimTime start)
{
  guint i = set->intervals->len;
  while (i > 0 && at(set, i - 1)->end >= start)
    i--;
  return i;
}

void
interval_set_add(IntervalSet *set, SimTime start, SimTime end)
{
  g_assert(start <= end);
  if (start == end)
    return;
  Interval merged = {start, end};
  guint first = first_touching(set, start), after = first;
  for (; after < set->intervals->len && at(set, after)->start <= end; after++) {
    merged.start = MIN(merged.start, at(set, after)->start);
    merged.end = MAX(merged.end, at(set, after)->end);
  }
  if (after == first) {
    g_array_insert_val(set->intervals, first, merged);
    return;
  }
  *at(set, first) = merged;
  if (after > first + 1)
    g_array_remove_range(set->intervals, first + 1, after - first - 1);
}

void
interval_set_join(IntervalSet *set, const IntervalSet *other)
{
  for (guint i = 0; i < other->intervals->len; i++)
    interval_set_add(set, at(other, i)->start, at(other, i)->end);
}

SimTime
interval_set_length(const IntervalSet *set)
{
  SimTime length = 0;
  for (guint i = 0; i < set->intervals->len; i++)
    length += at(set, i)->end - at(set, i)->start;
  return length;
}

SimTime
interval_set_overlap(const IntervalSet *a, const IntervalSet *b)
{
  SimTime length = 0;
  guint i = 0, j = 0;
  while (i < a->intervals->len && j < b->intervals->len) {
    SimTime start = MAX(at(a, i)->start, at(b, j)->start);
    SimTime end = MIN(at(a, i)->end, at(b, j)->end);
    length += MAX(end - start, 0);
    if (at(a, i)->end < at(b, j)->end)
      i++;
    else
      j++;
  }
  return length;
}
