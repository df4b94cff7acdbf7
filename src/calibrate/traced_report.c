/* traced_report.c - tables of a trace: per op and shape, per collective, the host's time. */
#include "calibrate/traced_report.h"

#include <string.h>

#include "base/json_output.h"
#include "base/text_table.h"
#include "base/units.h"
#include "calibrate/traced_ops.h"
#include "spec/dtype.h"

/* Rows for people; programs get all. */
#define ROWS_SHOWN 40
#define NAME_SHOWN 60

/* ---- figures ---- */

typedef struct {
  double median, p90, least, total; /* ns */
  guint beside;
} RunFigures;

static RunFigures
figures_of(const GArray *runs)
{
  RunFigures figures = {0};
  g_autofree double *times = g_new(double, runs->len);
  for (guint i = 0; i < runs->len; i++) {
    const KinetoRun *run = &g_array_index(runs, KinetoRun, i);
    times[i] = run->ns;
    figures.total += run->ns;
    figures.beside += run->beside ? 1 : 0;
  }
  SampleStats stats = sample_stats(times, runs->len);
  figures.median = stats.median;
  figures.p90 = stats.p90;
  figures.least = stats.least;
  return figures;
}

typedef struct {
  gconstpointer row; /* KinetoRow or KinetoCollective */
  RunFigures figures;
} Listed;

static int
by_falling_total(gconstpointer a, gconstpointer b)
{
  double x = ((const Listed *) a)->figures.total, y = ((const Listed *) b)->figures.total;
  return (x < y) - (x > y);
}

static GArray *
list_rows(const KinetoTrace *trace)
{
  GArray *list = g_array_new(FALSE, FALSE, sizeof(Listed));
  for (guint i = 0; i < trace->rows->len; i++) {
    const KinetoRow *row = g_ptr_array_index(trace->rows, i);
    Listed listed = {.row = row};
    if (row->runs->len == 0)
      continue;
    listed.figures = figures_of(row->runs);
    g_array_append_val(list, listed);
  }
  g_array_sort(list, by_falling_total);
  return list;
}

static GArray *
list_collectives(const KinetoTrace *trace)
{
  GArray *list = g_array_new(FALSE, FALSE, sizeof(Listed));
  for (guint i = 0; i < trace->collectives->len; i++) {
    const KinetoCollective *collective = g_ptr_array_index(trace->collectives, i);
    Listed listed = {.row = collective};
    if (collective->runs->len == 0)
      continue;
    listed.figures = figures_of(collective->runs);
    g_array_append_val(list, listed);
  }
  g_array_sort(list, by_falling_total);
  return list;
}

/* The element type of its first tensor, or NULL. */
static const char *
type_of(const KinetoRow *row)
{
  for (guint i = 0; i < row->n_arguments; i++)
    if (row->arguments[i].dtype >= 0 && row->arguments[i].elements > 0)
      return dtype_name((DType) row->arguments[i].dtype);
  return NULL;
}

/* What a product or a stream of bytes reached at its median. */
static char *
rate_of(const KinetoRow *row, double ns)
{
  Experiment e;
  if (!traced_experiment(row, &e) || ns <= 0)
    return NULL;
  double batch = (double) MAX(e.batch, 1);
  if (e.kind == EXPERIMENT_GEMM)
    return g_strdup_printf("%.4g TFLOP/s",
                           2 * batch * (double) e.m * (double) e.n * (double) e.k / ns / 1e3);
  return g_strdup_printf("%.4g GB/s", (double) e.bytes / ns);
}

/* ---- text ---- */

static char *
shortened(const char *name)
{
  return strlen(name) <= NAME_SHOWN ? g_strdup(name)
                                    : g_strdup_printf("%.*s...", NAME_SHOWN - 3, name);
}

static char *
microseconds(double ns)
{
  return g_strdup_printf("%.1f", ns / 1e3);
}

static char *
milliseconds(double ns)
{
  return g_strdup_printf("%.3f", ns / 1e6);
}

static void
add_row(TextTable *table, const Listed *listed)
{
  const KinetoRow *row = listed->row;
  const RunFigures *f = &listed->figures;
  g_autofree char *name = shortened(row->name);
  g_autofree char *shapes =
      row->kind == KINETO_COPY ? format_bytes(row->bytes) : shortened(row->shapes);
  g_autofree char *runs = g_strdup_printf("%u", row->runs->len);
  g_autofree char *kernels = g_strdup_printf("%" G_GINT64_FORMAT, row->kernels);
  g_autofree char *median = microseconds(f->median), *p90 = microseconds(f->p90);
  g_autofree char *total = milliseconds(f->total), *rate = rate_of(row, f->median);
  text_table_row_array(table, (const char *const[]){name, shapes, type_of(row), runs, kernels,
                                                    median, p90, total, rate});
}

static void
print_rows(const KinetoTrace *trace, GString *out)
{
  g_autoptr(GArray) list = list_rows(trace);
  g_autoptr(TextTable) table = text_table_new("lllrrrrrr");
  double rest = 0;
  text_table_row(table, "op", "shapes", "type", "runs", "kernels", "median us", "p90 us",
                 "total ms", "rate", NULL);
  for (guint i = 0; i < list->len; i++) {
    const Listed *listed = &g_array_index(list, Listed, i);
    if (i < ROWS_SHOWN)
      add_row(table, listed);
    else
      rest += listed->figures.total;
  }
  if (list->len == 0)
    return;
  g_string_append_c(out, '\n');
  text_table_print(table, 0, out);
  if (list->len > ROWS_SHOWN)
    g_string_append_printf(out, "%u more of %.3f ms: --json has all\n", list->len - ROWS_SHOWN,
                           rest / 1e6);
}

static void
print_collectives(const KinetoTrace *trace, GString *out)
{
  g_autoptr(GArray) list = list_collectives(trace);
  g_autoptr(TextTable) table = text_table_new("lrrrrrr");
  text_table_row(table, "collective", "bytes", "ranks", "runs", "least us", "median us", "p90 us",
                 NULL);
  for (guint i = 0; i < MIN(list->len, ROWS_SHOWN); i++) {
    const Listed *listed = &g_array_index(list, Listed, i);
    const KinetoCollective *c = listed->row;
    g_autofree char *name = shortened(c->name);
    g_autofree char *bytes = c->bytes > 0 ? format_bytes(c->bytes) : g_strdup("?");
    g_autofree char *ranks = c->ranks > 0 ? g_strdup_printf("%d", c->ranks) : g_strdup("?");
    g_autofree char *runs = g_strdup_printf("%u", c->runs->len);
    g_autofree char *least = microseconds(listed->figures.least);
    g_autofree char *median = microseconds(listed->figures.median);
    g_autofree char *p90 = microseconds(listed->figures.p90);
    text_table_row(table, name, bytes, ranks, runs, least, median, p90, NULL);
  }
  if (list->len == 0)
    return;
  g_string_append_c(out, '\n');
  text_table_print(table, 0, out);
  if (list->len > ROWS_SHOWN)
    g_string_append_printf(out, "%u more: --json has all\n", list->len - ROWS_SHOWN);
}

/* Times between ops of the host, most of which launch kernels one after the other. */
static double
host_median(const KinetoTrace *trace, KinetoDirection direction)
{
  const GArray *times = trace->host[direction];
  return times->len > 0
             ? sample_stats((const double *) (const void *) times->data, times->len).median
             : 0;
}

static void
print_host(const KinetoTrace *trace, GString *out)
{
  guint forward = trace->host[KINETO_FORWARD]->len, backward = trace->host[KINETO_BACKWARD]->len;
  if (forward + backward == 0)
    return;
  g_string_append(out, "\nThe host under the profiler, from one op that launches to the next:");
  if (forward > 0)
    g_string_append_printf(out, " %.1f us (median of %u)", host_median(trace, KINETO_FORWARD) / 1e3,
                           forward);
  if (backward > 0)
    g_string_append_printf(out, "%s %.1f us a node in backward (of %u)", forward > 0 ? "," : "",
                           host_median(trace, KINETO_BACKWARD) / 1e3, backward);
  g_string_append(out, ".\nProfiling itself slows the host: its constants stay as they are.\n");
}

static gboolean
has_shapes(const KinetoTrace *trace)
{
  for (guint i = 0; i < trace->rows->len; i++) {
    const KinetoRow *row = g_ptr_array_index(trace->rows, i);
    if (row->runs->len > 0 && row->shapes[0] != '\0')
      return TRUE;
  }
  return FALSE;
}

/* Caller frees. */
static GPtrArray *
notes_of(const KinetoTrace *trace)
{
  GPtrArray *notes = g_ptr_array_new_with_free_func(g_free);
  for (guint i = 0; i < trace->notes->len; i++)
    g_ptr_array_add(notes, g_strdup(g_ptr_array_index(trace->notes, i)));
  if (!has_shapes(trace))
    g_ptr_array_add(notes, g_strdup("no op has shapes: profile with record_shapes=True"));
  return notes;
}

void
traced_report_text(const KinetoTrace *trace, GString *out)
{
  g_autoptr(GPtrArray) notes = notes_of(trace);
  for (guint i = 0; i < notes->len; i++)
    g_string_append_printf(out, "%s\n", (const char *) g_ptr_array_index(notes, i));
  print_rows(trace, out);
  print_collectives(trace, out);
  print_host(trace, out);
}

/* ---- JSON ---- */

static void
add_us(cJSON *object, const char *key, double ns)
{
  cJSON_AddNumberToObject(object, key, ns / 1e3);
}

static void
add_op(cJSON *ops, const Listed *listed)
{
  static const char *const kinds[] = {"op", "kernel", "copy"};
  const KinetoRow *row = listed->row;
  Experiment e;
  g_autofree char *experiment = traced_experiment(row, &e) ? experiment_text(&e) : NULL;
  cJSON *object = cJSON_CreateObject();
  json_add_text(object, "op", row->name);
  json_add_text(object, "kind", kinds[row->kind]);
  json_add_text(object, "shapes", row->shapes);
  json_add_text(object, "types", row->types);
  json_add_text(object, "dtype", type_of(row));
  json_add_int(object, "bytes", row->bytes);
  json_add_int(object, "runs", row->runs->len);
  json_add_int(object, "runs_beside", listed->figures.beside);
  json_add_int(object, "kernels", row->kernels);
  add_us(object, "median_us", listed->figures.median);
  add_us(object, "p90_us", listed->figures.p90);
  add_us(object, "total_us", listed->figures.total);
  json_add_text(object, "experiment", experiment);
  cJSON_AddItemToArray(ops, object);
}

static void
add_collective(cJSON *collectives, const Listed *listed)
{
  const KinetoCollective *c = listed->row;
  Experiment e;
  cJSON *object = cJSON_CreateObject();
  json_add_text(object, "collective", c->name);
  json_add_text(object, "type", c->type);
  json_add_int(object, "bytes", c->bytes);
  json_add_int(object, "ranks", c->ranks);
  json_add_int(object, "stride", c->stride);
  json_add_int(object, "runs", c->runs->len);
  add_us(object, "least_us", listed->figures.least);
  add_us(object, "median_us", listed->figures.median);
  add_us(object, "p90_us", listed->figures.p90);
  cJSON_AddBoolToObject(object, "used", traced_collective(c, &e));
  cJSON_AddItemToArray(collectives, object);
}

static void
add_host(const KinetoTrace *trace, cJSON *object)
{
  cJSON *host = cJSON_AddObjectToObject(object, "host");
  add_us(host, "forward_op_us", host_median(trace, KINETO_FORWARD));
  json_add_int(host, "forward_ops", trace->host[KINETO_FORWARD]->len);
  add_us(host, "backward_node_us", host_median(trace, KINETO_BACKWARD));
  json_add_int(host, "backward_nodes", trace->host[KINETO_BACKWARD]->len);
}

void
traced_report_json(const KinetoTrace *trace, cJSON *object)
{
  g_autoptr(GArray) rows = list_rows(trace), collectives = list_collectives(trace);
  g_autoptr(GPtrArray) notes = notes_of(trace);
  json_add_int(object, "steps", trace->steps);
  cJSON *array = cJSON_AddArrayToObject(object, "ops");
  for (guint i = 0; i < rows->len; i++)
    add_op(array, &g_array_index(rows, Listed, i));
  array = cJSON_AddArrayToObject(object, "traced_collectives");
  for (guint i = 0; i < collectives->len; i++)
    add_collective(array, &g_array_index(collectives, Listed, i));
  add_host(trace, object);
  array = cJSON_AddArrayToObject(object, "notes");
  for (guint i = 0; i < notes->len; i++)
    cJSON_AddItemToArray(array, cJSON_CreateString(g_ptr_array_index(notes, i)));
}
