/* measured.c - interpolates measured tables of collectives. */
#include "collective/measured.h"
#include <math.h>

static const CollectiveTable *
find_table(const ClusterSpec *cluster, CollectiveKind kind, GroupShape shape)
{
  const char *name = program_collective_name(kind);
  for (guint i = 0; i < cluster->tables->len; i++) {
    const CollectiveTable *table = g_ptr_array_index(cluster->tables, i);
    if (table->ranks == shape.ranks && table->nodes == shape.nodes &&
        g_str_equal(table->collective, name))
      return table;
  }
  return NULL;
}

const CollectiveTable *
measured_table(const ClusterSpec *cluster, CollectiveKind kind, GroupShape shape)
{
  if (!cluster->tables || cluster->tables->len == 0)
    return NULL;
  const CollectiveTable *table = find_table(cluster, kind, shape);
  if (!table && kind == COLLECTIVE_ALL_GATHER)
    table = find_table(cluster, COLLECTIVE_REDUCE_SCATTER, shape);
  else if (!table && kind == COLLECTIVE_REDUCE_SCATTER)
    table = find_table(cluster, COLLECTIVE_ALL_GATHER, shape);
  return table;
}

static CollectivePoint
point(const CollectiveTable *table, guint i)
{
  return g_array_index(table->points, CollectivePoint, i);
}

double
measured_tail_slope(const CollectiveTable *table)
{
  guint last = table->points->len - 1, first = last;
  CollectivePoint end = point(table, last);
  while (first > 0 && point(table, first).bytes > end.bytes / 4)
    first--;
  CollectivePoint start = point(table, first);
  double origin = end.time_ns / (double) end.bytes;
  if (start.bytes == end.bytes)
    return origin;
  double slope = (end.time_ns - start.time_ns) / (double) (end.bytes - start.bytes);
  return MIN(slope, origin);
}

/* Index of the last point of at most so many bytes; there is one. */
static guint
point_before(const CollectiveTable *table, gint64 bytes)
{
  guint low = 0, high = table->points->len;
  while (high - low > 1) {
    guint middle = (low + high) / 2;
    if (point(table, middle).bytes <= bytes)
      low = middle;
    else
      high = middle;
  }
  return low;
}

double
measured_time_ns(const CollectiveTable *table, gint64 bytes)
{
  guint n = table->points->len;
  CollectivePoint first = point(table, 0), last = point(table, n - 1);
  if (bytes <= first.bytes)
    return first.time_ns;
  if (bytes >= last.bytes)
    return last.time_ns + measured_tail_slope(table) * (double) (bytes - last.bytes);
  guint i = point_before(table, bytes);
  CollectivePoint a = point(table, i), b = point(table, i + 1);
  double part = log((double) bytes / (double) a.bytes) / log((double) b.bytes / (double) a.bytes);
  return a.time_ns * pow(b.time_ns / a.time_ns, part);
}
