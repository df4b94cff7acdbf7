/* state_image.c - numbers by rank and range, and their way into another layout. */
#include "simulate/state_image.h"

#include <math.h>
#include <string.h>

/* ---- life ---- */

static void
part_clear(gpointer data)
{
  StatePart *part = data;
  for (int k = 0; k < IMAGE_KINDS; k++)
    g_free(part->values[k]);
}

static void
parts_free(gpointer parts)
{
  g_array_unref(parts);
}

static GArray *
parts_of(const StateImage *image, int rank)
{
  return g_ptr_array_index(image->parts, (guint) rank);
}

static StatePart *
part_at(const StateImage *image, int rank, guint i)
{
  return &g_array_index(parts_of(image, rank), StatePart, i);
}

static StatePart
new_part(StateRange range)
{
  StatePart part = {.range = range};
  for (int k = 0; k < IMAGE_KINDS; k++) {
    part.values[k] = g_new(double, range.elements);
    for (gint64 i = 0; i < range.elements; i++)
      part.values[k][i] = NAN;
  }
  return part;
}

StateImage *
state_image_new(const StateLayout *layout, int ranks)
{
  StateImage *image = g_new0(StateImage, 1);
  image->layout = layout;
  image->parts = g_ptr_array_new_with_free_func(parts_free);
  for (int rank = 0; rank < ranks; rank++) {
    const GArray *held = state_layout_held(layout, rank);
    GArray *parts = g_array_new(FALSE, FALSE, sizeof(StatePart));
    g_array_set_clear_func(parts, part_clear);
    for (guint i = 0; i < held->len; i++) {
      StatePart part = new_part(g_array_index(held, StateRange, i));
      g_array_append_val(parts, part);
    }
    g_ptr_array_add(image->parts, parts);
  }
  return image;
}

StateImage *
state_image_copy(const StateImage *image)
{
  StateImage *copy = state_image_new(image->layout, (int) image->parts->len);
  copy->updates = image->updates;
  for (int rank = 0; rank < (int) image->parts->len; rank++)
    for (guint i = 0; i < parts_of(image, rank)->len; i++) {
      const StatePart *from = part_at(image, rank, i);
      StatePart *to = part_at(copy, rank, i);
      to->written = from->written;
      for (int k = 0; k < IMAGE_KINDS; k++)
        memcpy(to->values[k], from->values[k], sizeof(double) * (gsize) from->range.elements);
    }
  return copy;
}

void
state_image_free(StateImage *image)
{
  if (image == NULL)
    return;
  g_ptr_array_unref(image->parts);
  g_free(image);
}

/* ---- access ---- */

StatePart *
state_image_part(const StateImage *image, int rank, int parameter, gint64 element)
{
  for (guint i = 0; i < parts_of(image, rank)->len; i++) {
    StatePart *part = part_at(image, rank, i);
    if (state_range_has(&part->range, parameter, element))
      return part;
  }
  return NULL;
}

void
state_image_write(StateImage *image, int rank, StateRange range, ImageKind kind, const double *from,
                  int step)
{
  StatePart *part = state_image_part(image, rank, range.parameter, range.first);
  if (part == NULL)
    return;
  gint64 at = range.first - part->range.first;
  gint64 n = MIN(range.elements, part->range.elements - at);
  memcpy(part->values[kind] + at, from, sizeof(double) * (gsize) n);
  part->written = step;
}

/* ---- reading ---- */

/* Where the next element that a rank reads goes. */
typedef struct {
  guint part;
  gint64 element;
} Cursor;

/* Of the ranks that hold the same, the one that was written last. */
static const StatePart *
freshest(const StateImage *from, const StateRead *read, int lost)
{
  const StatePart *best = NULL;
  for (int rank = read->source; rank < (int) from->parts->len; rank += from->layout->ranks) {
    const StatePart *part =
        rank == lost ? NULL
                     : state_image_part(from, rank, read->range.parameter, read->range.first);
    if (part != NULL && (best == NULL || part->written > best->written))
      best = part;
  }
  return best;
}

/* As a file is read: one range after the other into what the rank holds, from the front. */
static void
take(StateImage *into, int rank, Cursor *next, const StatePart *from, StateRange range)
{
  for (gint64 i = 0; i < range.elements && next->part < parts_of(into, rank)->len; i++) {
    StatePart *part = part_at(into, rank, next->part);
    gint64 at = from != NULL ? range.first + i - from->range.first : -1;
    gboolean is_there = at >= 0 && at < from->range.elements;
    for (int k = 0; k < IMAGE_KINDS; k++)
      part->values[k][next->element] = is_there ? from->values[k][at] : NAN;
    part->written = is_there ? from->written : 0;
    if (++next->element == part->range.elements)
      *next = (Cursor){next->part + 1, 0};
  }
}

static gboolean
is_held(const StateLayout *layout, int parameter)
{
  for (int rank = 0; rank < layout->ranks; rank++) {
    const GArray *held = state_layout_held(layout, rank);
    for (guint i = 0; i < held->len; i++)
      if (g_array_index(held, StateRange, i).parameter == parameter)
        return TRUE;
  }
  return FALSE;
}

/* A parameter that nobody has saved, one that does not train, is not read either. */
static void
pass_over_unsaved(const StateImage *into, int rank, Cursor *next, const StateLayout *saved)
{
  while (next->element == 0 && next->part < parts_of(into, rank)->len &&
         !is_held(saved, part_at(into, rank, next->part)->range.parameter))
    next->part++;
}

StateImage *
state_image_read(const StateImage *from, const StateLayout *layout, int ranks,
                 const StateReading *reading)
{
  StateImage *into = state_image_new(layout, ranks);
  into->updates = from->updates;
  for (int rank = 0; rank < ranks; rank++) {
    g_autoptr(GArray) reads = range_map(from->layout, layout, rank % layout->ranks);
    Cursor next = {0, 0};
    if (reading->change != NULL)
      reading->change(reads, rank, reading->how);
    for (guint i = 0; i < reads->len; i++) {
      const StateRead *read = &g_array_index(reads, StateRead, i);
      pass_over_unsaved(into, rank, &next, from->layout);
      take(into, rank, &next, freshest(from, read, reading->lost), read->range);
    }
  }
  return into;
}
