/* collective_table.c - reads measured times of collectives. */
#include "spec/collective_table.h"

#include "spec/profile_fields.h"

#define RANKS_MAX (1 << 20)
/* What a point may be: any buffer, and a day. */
#define BYTES_MAX ((double) ((gint64) 1 << 50))
#define TIME_US_MAX 86400e6

CollectiveTable *
collective_table_new(const char *collective, int ranks, int nodes)
{
  CollectiveTable *table = g_new(CollectiveTable, 1);
  *table = (CollectiveTable){
      .collective = g_strdup(collective),
      .ranks = ranks,
      .nodes = nodes,
      .points = g_array_new(FALSE, FALSE, sizeof(CollectivePoint)),
  };
  return table;
}

void
collective_table_free(CollectiveTable *table)
{
  if (!table)
    return;
  g_array_unref(table->points);
  g_free(table->collective);
  g_free(table);
}

static void
table_free(gpointer table)
{
  collective_table_free(table);
}

gboolean
collective_table_add(CollectiveTable *table, gint64 bytes, double time_ns)
{
  CollectivePoint point = {bytes, time_ns};
  if (bytes <= 0 || (double) bytes > BYTES_MAX || !(time_ns > 0) ||
      time_ns > TIME_US_MAX * NS_PER_US)
    return FALSE;
  if (table->points->len > 0) {
    CollectivePoint last = g_array_index(table->points, CollectivePoint, table->points->len - 1);
    if (bytes <= last.bytes)
      return FALSE;
    point.time_ns = MAX(time_ns, last.time_ns);
  }
  g_array_append_val(table->points, point);
  return TRUE;
}

/* "points": [[BYTES, MICROSECONDS], ...] */
static void
read_points(JsonReader *reader, CollectiveTable *table)
{
  const cJSON *points = json_reader_raw(reader, "points"), *pair;
  if (!cJSON_IsArray(points) || cJSON_GetArraySize(points) == 0) {
    json_reader_fail(reader, "points", "a list of [bytes, microseconds] is needed");
    return;
  }
  cJSON_ArrayForEach(pair, points)
  {
    const cJSON *bytes = cJSON_GetArrayItem(pair, 0), *time = cJSON_GetArrayItem(pair, 1);
    gboolean numbers = cJSON_IsArray(pair) && cJSON_GetArraySize(pair) == 2 &&
                       cJSON_IsNumber(bytes) && cJSON_IsNumber(time);
    if (!numbers || !(bytes->valuedouble >= 1 && bytes->valuedouble <= BYTES_MAX) ||
        !collective_table_add(table, (gint64) bytes->valuedouble, time->valuedouble * NS_PER_US)) {
      json_reader_fail(reader, "points",
                       "a list of [bytes, microseconds], both above 0, by ascending bytes is "
                       "needed");
      return;
    }
  }
}

GPtrArray *
collective_tables_read(JsonReader *reader, const char *key)
{
  GPtrArray *tables = g_ptr_array_new_with_free_func(table_free);
  guint n = json_reader_array_length(reader, key);
  for (guint i = 0; i < n; i++) {
    g_autoptr(JsonReader) element = json_reader_element(reader, key, i);
    const char *collective = json_reader_required_string(element, "collective");
    int ranks = (int) json_reader_required_int(element, "ranks", 2, RANKS_MAX);
    int nodes = (int) json_reader_required_int(element, "nodes", 1, RANKS_MAX);
    CollectiveTable *table = collective_table_new(collective, ranks, nodes);
    if (nodes > ranks)
      json_reader_fail(element, "nodes", "%d nodes for %d ranks", nodes, ranks);
    read_points(element, table);
    json_reader_finish(element, NULL);
    g_ptr_array_add(tables, table);
  }
  return tables;
}
