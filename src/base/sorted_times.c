/* sorted_times.c - where a moment falls among rows that are in order of a time. */
#include "base/sorted_times.h"

static SimTime
time_at(const GArray *rows, gsize offset, const GArray *order, guint i)
{
  gsize row = order != NULL ? g_array_index(order, guint, i) : i;
  const char *base = rows->data + row * g_array_get_element_size((GArray *) (gsize) rows);
  return *(const SimTime *) (gconstpointer) (base + offset);
}

guint
sorted_times_find(const GArray *rows, gsize offset, const GArray *order, SimTime time)
{
  guint low = 0, high = order != NULL ? order->len : rows->len;
  while (low < high) {
    guint middle = low + (high - low) / 2;
    if (time_at(rows, offset, order, middle) < time)
      low = middle + 1;
    else
      high = middle;
  }
  return low;
}
