/* range_map.c - ranges of the model's state by rank, and the way from one layout to another. */
#include "strategy/range_map.h"

/* ---- layouts ---- */

static void
ranges_free(gpointer ranges)
{
  g_array_unref(ranges);
}

StateLayout *
state_layout_new(int ranks)
{
  StateLayout *layout = g_new0(StateLayout, 1);
  layout->ranks = ranks;
  layout->held = g_ptr_array_new_with_free_func(ranges_free);
  for (int i = 0; i < ranks; i++)
    g_ptr_array_add(layout->held, g_array_new(FALSE, FALSE, sizeof(StateRange)));
  return layout;
}

void
state_layout_free(StateLayout *layout)
{
  if (layout == NULL)
    return;
  g_ptr_array_unref(layout->held);
  g_free(layout);
}

static GArray *
held_by(const StateLayout *layout, int rank)
{
  return g_ptr_array_index(layout->held, (guint) (rank % layout->ranks));
}

const GArray *
state_layout_held(const StateLayout *layout, int rank)
{
  return held_by(layout, rank);
}

gboolean
state_range_has(const StateRange *range, int parameter, gint64 element)
{
  return range->parameter == parameter && element >= range->first &&
         element < range->first + range->elements;
}

void
state_layout_add(StateLayout *layout, int rank, StateRange range)
{
  if (range.elements > 0)
    g_array_append_val(held_by(layout, rank), range);
}

gint64
state_layout_elements(const StateLayout *layout, int rank)
{
  const GArray *ranges = held_by(layout, rank);
  gint64 elements = 0;
  for (guint i = 0; i < ranges->len; i++)
    elements += g_array_index(ranges, StateRange, i).elements;
  return elements;
}

/* ---- by parameter ---- */

/* Everything that a layout holds, as reads from its ranks, by parameter and then by the first
 * element. */
static int
compare_reads(gconstpointer a, gconstpointer b)
{
  const StateRead *x = a, *y = b;
  if (x->range.parameter != y->range.parameter)
    return x->range.parameter < y->range.parameter ? -1 : 1;
  if (x->range.first != y->range.first)
    return x->range.first < y->range.first ? -1 : 1;
  return x->source - y->source;
}

static GArray *
sorted(const StateLayout *layout)
{
  GArray *all = g_array_new(FALSE, FALSE, sizeof(StateRead));
  for (int rank = 0; rank < layout->ranks; rank++) {
    const GArray *ranges = held_by(layout, rank);
    for (guint i = 0; i < ranges->len; i++) {
      StateRead read = {g_array_index(ranges, StateRange, i), rank};
      g_array_append_val(all, read);
    }
  }
  g_array_sort(all, compare_reads);
  return all;
}

/* The first of the sorted ranges that ends beyond an element of a parameter. */
static guint
find(const GArray *all, gint32 parameter, gint64 element)
{
  guint low = 0, high = all->len;
  while (low < high) {
    guint middle = low + (high - low) / 2;
    const StateRange *r = &g_array_index(all, StateRead, middle).range;
    if (r->parameter < parameter ||
        (r->parameter == parameter && r->first + r->elements <= element))
      low = middle + 1;
    else
      high = middle;
  }
  return low;
}

/* ---- the map ---- */

static void
add_reads(const GArray *all, const StateRange *wanted, GArray *reads)
{
  gint64 end = wanted->first + wanted->elements;
  for (guint i = find(all, wanted->parameter, wanted->first); i < all->len; i++) {
    const StateRead *held = &g_array_index(all, StateRead, i);
    if (held->range.parameter != wanted->parameter || held->range.first >= end)
      break;
    gint64 first = MAX(held->range.first, wanted->first);
    gint64 last = MIN(held->range.first + held->range.elements, end);
    StateRead read = {{wanted->parameter, first, last - first}, held->source};
    g_array_append_val(reads, read);
  }
}

static GArray *
reads_of(const GArray *all, const GArray *wanted)
{
  GArray *reads = g_array_new(FALSE, FALSE, sizeof(StateRead));
  for (guint i = 0; i < wanted->len; i++)
    add_reads(all, &g_array_index(wanted, StateRange, i), reads);
  return reads;
}

GArray *
range_map(const StateLayout *source, const StateLayout *target, int rank)
{
  g_autoptr(GArray) all = sorted(source);
  return reads_of(all, held_by(target, rank));
}

/* ---- the proof ---- */

/* Do the sorted ranges cover all parameters without a gap or an overlap? */
static char *
cover_fault(const char *whose, const GArray *all, const gint64 *elements, guint parameters)
{
  guint i = 0;
  for (guint p = 0; p < parameters; p++) {
    gint64 next = 0;
    for (; i < all->len; i++) {
      const StateRange *r = &g_array_index(all, StateRead, i).range;
      if (r->parameter != (gint32) p)
        break;
      if (r->first != next)
        return g_strdup_printf("%s: element %" G_GINT64_FORMAT " of parameter %u is held %s", whose,
                               MIN(r->first, next), p, r->first < next ? "twice" : "by nobody");
      next += r->elements;
    }
    if (next != elements[p])
      return g_strdup_printf("%s: parameter %u has %" G_GINT64_FORMAT " elements, %" G_GINT64_FORMAT
                             " are held",
                             whose, p, elements[p], next);
  }
  if (i < all->len)
    return g_strdup_printf("%s: there is no parameter %d", whose,
                           g_array_index(all, StateRead, i).range.parameter);
  return NULL;
}

/* Are the reads the wanted ranges, each once, in order? */
static char *
arrival_fault(int rank, const GArray *wanted, const GArray *reads)
{
  guint k = 0;
  for (guint i = 0; i < wanted->len; i++) {
    const StateRange *range = &g_array_index(wanted, StateRange, i);
    gint64 next = range->first, end = range->first + range->elements;
    for (; k < reads->len && next < end; k++) {
      const StateRange *read = &g_array_index(reads, StateRead, k).range;
      if (read->parameter != range->parameter || read->first != next)
        break;
      next += read->elements;
    }
    if (next != end)
      return g_strdup_printf("rank %d does not get element %" G_GINT64_FORMAT
                             " of parameter %d exactly once",
                             rank, next, range->parameter);
  }
  return k == reads->len ? NULL : g_strdup_printf("rank %d gets more than it holds", rank);
}

char *
range_map_fault(const StateLayout *source, const StateLayout *target, const gint64 *elements,
                guint parameters)
{
  g_autoptr(GArray) from = sorted(source);
  g_autoptr(GArray) into = sorted(target);
  char *fault = cover_fault("source", from, elements, parameters);
  if (fault == NULL)
    fault = cover_fault("target", into, elements, parameters);
  for (int rank = 0; rank < target->ranks && fault == NULL; rank++) {
    g_autoptr(GArray) reads = reads_of(from, held_by(target, rank));
    fault = arrival_fault(rank, held_by(target, rank), reads);
  }
  return fault;
}
