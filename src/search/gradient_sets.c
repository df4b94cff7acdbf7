/* gradient_sets.c - what memory holds of which parameters' gradients, as shared values. */
#include "search/gradient_sets.h"

struct _GradientSets {
  GPtrArray *sets;   /* GradientSet * */
  GPtrArray *shares; /* GArray * */
};

static void
set_free(gpointer data)
{
  GradientSet *set = data;
  g_array_unref(set->parts);
  g_free(set);
}

GradientSets *
gradient_sets_new(void)
{
  GradientSets *sets = g_new(GradientSets, 1);
  sets->sets = g_ptr_array_new_with_free_func(set_free);
  sets->shares = g_ptr_array_new_with_free_func((GDestroyNotify) g_array_unref);
  return sets;
}

void
gradient_sets_free(GradientSets *sets)
{
  g_ptr_array_unref(sets->sets);
  g_ptr_array_unref(sets->shares);
  g_free(sets);
}

static GradientSet *
new_set(GradientSets *sets)
{
  GradientSet *set = g_new(GradientSet, 1);
  set->parts = g_array_new(FALSE, FALSE, sizeof(GradientPart));
  g_ptr_array_add(sets->sets, set);
  return set;
}

static GArray *
new_shares(GradientSets *sets)
{
  GArray *shares = g_array_new(FALSE, FALSE, sizeof(GradientShare));
  g_ptr_array_add(sets->shares, shares);
  return shares;
}

static const GradientPart *
part_at(const GradientSet *set, guint i)
{
  return &g_array_index(set->parts, GradientPart, i);
}

const GradientSet *
gradient_sets_source(GradientSets *sets, gint32 parameter, int micro_batch)
{
  GradientSet *set = new_set(sets);
  GArray *shares = new_shares(sets);
  GradientShare share = {.micro_batch = micro_batch, .times = 1};
  GradientPart part = {parameter, shares};
  g_array_append_val(shares, share);
  g_array_append_val(set->parts, part);
  return set;
}

/* ---- two histories of one parameter ---- */

typedef void (*Combine)(GradientShare *share, const GradientShare *other);

/* Beside each other: the same, or mixed. */
static void
share_join(GradientShare *share, const GradientShare *other)
{
  gboolean same = other != NULL && share->times == other->times;
  for (int i = 0; i < GRADIENT_COMMUNICATORS && same; i++)
    same = share->reductions[i] == other->reductions[i];
  share->mixed |= !same || other->mixed;
}

/* One added to the other: what only one of them has stays as it is. */
static void
share_add(GradientShare *share, const GradientShare *other)
{
  if (other == NULL)
    return;
  guint8 times = (guint8) MIN(share->times + other->times, G_MAXUINT8);
  share_join(share, other);
  share->times = times;
}

static const GArray *
combine_shares(GradientSets *sets, const GArray *a, const GArray *b, Combine combine)
{
  GArray *result = new_shares(sets);
  for (guint i = 0, k = 0; i < a->len || k < b->len;) {
    const GradientShare *x = i < a->len ? &g_array_index(a, GradientShare, i) : NULL;
    const GradientShare *y = k < b->len ? &g_array_index(b, GradientShare, k) : NULL;
    gboolean takes_x = x != NULL && (y == NULL || x->micro_batch <= y->micro_batch);
    gboolean takes_y = y != NULL && (x == NULL || y->micro_batch <= x->micro_batch);
    GradientShare share = takes_x ? *x : *y;
    combine(&share, takes_x && takes_y ? y : NULL);
    g_array_append_val(result, share);
    i += takes_x;
    k += takes_y;
  }
  return result;
}

static const GradientSet *
combine_sets(GradientSets *sets, const GradientSet *a, const GradientSet *b, Combine combine)
{
  GradientSet *result = new_set(sets);
  for (guint i = 0, k = 0; i < a->parts->len || k < b->parts->len;) {
    const GradientPart *x = i < a->parts->len ? part_at(a, i) : NULL;
    const GradientPart *y = k < b->parts->len ? part_at(b, k) : NULL;
    gboolean takes_x = x != NULL && (y == NULL || x->parameter <= y->parameter);
    gboolean takes_y = y != NULL && (x == NULL || y->parameter <= x->parameter);
    GradientPart part = takes_x ? *x : *y;
    if (takes_x && takes_y && (x->shares != y->shares || combine == share_add))
      part.shares = combine_shares(sets, x->shares, y->shares, combine);
    g_array_append_val(result->parts, part);
    i += takes_x;
    k += takes_y;
  }
  return result;
}

const GradientSet *
gradient_sets_join(GradientSets *sets, const GradientSet *a, const GradientSet *b)
{
  if (a == NULL || b == NULL || a == b)
    return a != NULL ? a : b;
  return combine_sets(sets, a, b, share_join);
}

const GradientSet *
gradient_sets_add(GradientSets *sets, const GradientSet *a, const GradientSet *b)
{
  if (a == NULL || b == NULL)
    return a != NULL ? a : b;
  return combine_sets(sets, a, b, share_add);
}

const GradientSet *
gradient_sets_reduce(GradientSets *sets, const GradientSet *set, int communicator, int kind)
{
  g_assert(communicator >= 0 && communicator < GRADIENT_COMMUNICATORS);
  if (set == NULL)
    return NULL;
  GradientSet *result = new_set(sets);
  for (guint i = 0; i < set->parts->len; i++) {
    GArray *shares = new_shares(sets);
    GradientPart part = {part_at(set, i)->parameter, shares};
    const GArray *old = part_at(set, i)->shares;
    g_array_append_vals(shares, old->data, old->len);
    for (guint k = 0; k < shares->len; k++) {
      GradientShare *share = &g_array_index(shares, GradientShare, k);
      share->reductions[communicator] =
          (guint8) MIN(share->reductions[communicator] + 1, G_MAXUINT8);
      share->kind[communicator] = (guint8) kind;
    }
    g_array_append_val(result->parts, part);
  }
  return result;
}

const GradientPart *
gradient_set_find(const GradientSet *set, gint32 parameter)
{
  guint first = 0, end = set != NULL ? set->parts->len : 0;
  while (first < end) {
    guint middle = (first + end) / 2;
    if (part_at(set, middle)->parameter == parameter)
      return part_at(set, middle);
    if (part_at(set, middle)->parameter < parameter)
      first = middle + 1;
    else
      end = middle;
  }
  return NULL;
}

const GradientSet *
gradient_sets_only(GradientSets *sets, const GradientSet *set, gint32 parameter)
{
  const GradientPart *part = gradient_set_find(set, parameter);
  if (part == NULL || set->parts->len == 1)
    return part != NULL ? set : NULL;
  GradientSet *only = new_set(sets);
  g_array_append_val(only->parts, *part);
  return only;
}
