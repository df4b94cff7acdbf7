/* bench_json.c - reading JSON: bytes a second of a large document, and a file of the size of a
 * network description. */
#include "base/json_reader.h"
#include "bench.h"
#include <string.h>

static void
read_rows(gpointer data)
{
  const GString *text = data;
  g_autoptr(JsonDocument) doc = json_document_parse("bench", text->str, text->len, NULL);
  g_autoptr(JsonReader) reader = json_reader_new(doc);
  guint rows = json_reader_array_length(reader, "rows");
  gint64 sum = 0;
  for (guint i = 0; i < rows; i++) {
    g_autoptr(JsonReader) row = json_reader_element(reader, "rows", i);
    json_reader_string(row, "action", NULL);
    sum += json_reader_size(row, "size", 0);
    json_reader_int(row, "stream", 0, 0, 64);
    json_reader_finish(row, NULL);
  }
  g_assert(json_reader_finish(reader, NULL) && sum == 2097152 * (gint64) rows);
}

static GString *
make_rows(guint count)
{
  GString *text = g_string_new("{\"rows\": [");
  for (guint i = 0; i < count; i++)
    g_string_append_printf(text, "%s{\"action\": \"alloc\", \"size\": 2097152, \"stream\": %u}",
                           i ? ",\n" : "", i % 8);
  return g_string_append(text, "]}");
}

int
main(void)
{
  GString *large = make_rows(100000), *small = make_rows(30);
  double seconds = bench_median_seconds(read_rows, large, 5);
  bench_figure("json-large", (double) large->len / seconds / 1e6, "MB/s");
  bench_figure("json-small", bench_median_seconds(read_rows, small, 101) * 1e6, "us");
  g_string_free(large, TRUE);
  g_string_free(small, TRUE);
  return 0;
}
