/* profile_writer.c - writes cluster files with measured collectives. */
#include "calibrate/profile_writer.h"

#include "base/json_document.h"
#include "base/json_output.h"
#include "calibrate/calibration_report.h"
#include "spec/preset.h"
#include "spec/profile_fields.h"
#include <math.h>
#include <string.h>

/* ---- which cluster */

/* Parts of the names that the CUDA runtime gives; the first that fits counts. */
static const struct {
  const char *gpu;
  int gpus_per_node;
  const char *cluster;
} bases[] = {
    {"H200", 8, "h200-8"},
    {"H100 PCIe", 8, "h100-pcie-8"},
    {"H100", 8, "h100-8"},
    {"A100-SXM4-80GB", 8, "a100-80gb-8"},
    {"A100-SXM4-40GB", 8, "a100-40gb-8"},
    {"A100-PCIE", 8, "a100-pcie-8"},
    {"B200", 8, "b200-8"},
    {"V100-SXM2", 8, "v100-8"},
    {"L40S", 8, "l40s-8"},
    {"RTX 4090", 8, "rtx4090-8"},
    {"A10G", 8, "aws-g5"},
};

const char *
profile_base_for(const char *gpu, int gpus_per_node)
{
  for (guint i = 0; gpu && i < G_N_ELEMENTS(bases); i++)
    if (strstr(gpu, bases[i].gpu) && gpus_per_node <= bases[i].gpus_per_node)
      return bases[i].cluster;
  return NULL;
}

/* ---- tables */

static gboolean
same_shape(const MeasuredCollective *a, const MeasuredCollective *b)
{
  return a->ranks == b->ranks && a->nodes == b->nodes && g_str_equal(a->collective, b->collective);
}

static int
compare_samples(gconstpointer a, gconstpointer b)
{
  const FitSample *x = a, *y = b;
  if (x->bytes != y->bytes)
    return (x->bytes > y->bytes) - (x->bytes < y->bytes);
  return (x->time_us > y->time_us) - (x->time_us < y->time_us);
}

/* All samples of the shape, by size and time. */
static GArray *
samples_of(const GPtrArray *collectives, const MeasuredCollective *about)
{
  GArray *all = g_array_new(FALSE, FALSE, sizeof(FitSample));
  for (guint i = 0; i < collectives->len; i++) {
    const CalibratedCollective *collective = g_ptr_array_index(collectives, i);
    if (same_shape(&collective->about, about))
      g_array_append_vals(all, collective->samples->data, collective->samples->len);
  }
  g_array_sort(all, compare_samples);
  return all;
}

static CollectiveTable *
table_of(const GPtrArray *collectives, const MeasuredCollective *about)
{
  CollectiveTable *table = collective_table_new(about->collective, about->ranks, about->nodes);
  g_autoptr(GArray) samples = samples_of(collectives, about);
  /* Of equal sizes the first is the fastest, and the others are refused. */
  for (guint i = 0; i < samples->len; i++) {
    const FitSample *sample = &g_array_index(samples, FitSample, i);
    collective_table_add(table, sample->bytes, sample->time_us * NS_PER_US);
  }
  return table;
}

static gboolean
is_first_of_shape(const GPtrArray *collectives, guint i)
{
  const CalibratedCollective *collective = g_ptr_array_index(collectives, i);
  for (guint j = 0; j < i; j++) {
    const CalibratedCollective *earlier = g_ptr_array_index(collectives, j);
    if (same_shape(&earlier->about, &collective->about))
      return FALSE;
  }
  return TRUE;
}

/* The fit is a comment: the points are what counts. */
static cJSON *
fit_json(const CalibratedCollective *collective)
{
  cJSON *object = cJSON_CreateObject();
  json_add_text(object, "source", collective->about.source);
  json_add_text(object, "measured", collective->about.remark);
  json_add_text(object, "model", fit_model_names[collective->fit.model]);
  cJSON_AddNumberToObject(object, "median_error", collective->errors.median);
  cJSON_AddItemToObject(object, "lines", calibration_lines_json(collective));
  return object;
}

static cJSON *
table_json(const GPtrArray *collectives, const CalibratedCollective *collective)
{
  cJSON *object = cJSON_CreateObject();
  g_autoptr(CollectiveTable) table = table_of(collectives, &collective->about);
  json_add_text(object, "collective", table->collective);
  json_add_int(object, "ranks", table->ranks);
  json_add_int(object, "nodes", table->nodes);
  cJSON_AddItemToObject(object, "_fit", fit_json(collective));
  cJSON *points = cJSON_AddArrayToObject(object, "points");
  for (guint i = 0; i < table->points->len; i++) {
    CollectivePoint point = g_array_index(table->points, CollectivePoint, i);
    const double pair[] = {(double) point.bytes, point.time_ns / NS_PER_US};
    cJSON_AddItemToArray(points, cJSON_CreateDoubleArray(pair, G_N_ELEMENTS(pair)));
  }
  return object;
}

/* ---- bandwidths for other shapes */

static void
replace_number(cJSON *object, const char *key, double value)
{
  json_replace(object, key, cJSON_CreateNumber(value));
}

/* Bus bandwidth at the largest size, if that is large enough to be near the asymptote; 0: not. */
static double
asymptote(const CalibratedCollective *collective)
{
  const FitSample *last =
      &g_array_index(collective->samples, FitSample, collective->samples->len - 1);
  double us = fit_time_us(&collective->fit, last->bytes);
  return last->bytes >= 256 * MIB ? collective->factor * (double) last->bytes / us * 1e6 : 0;
}

static gboolean
goes_around_a_ring(const CalibratedCollective *collective)
{
  return g_str_equal(collective->about.collective, "all_gather") ||
         g_str_equal(collective->about.collective, "reduce_scatter");
}

/* What all-gathers and reduce-scatters of whole nodes say of the links: inside a node, and between
 * nodes where the NICs are the narrower. */
static void
add_bandwidths(cJSON *nccl, const ClusterSpec *cluster, const GPtrArray *collectives)
{
  double inside = 0, between = 0;
  for (guint i = 0; i < collectives->len; i++) {
    const CalibratedCollective *collective = g_ptr_array_index(collectives, i);
    const MeasuredCollective *about = &collective->about;
    gboolean whole = about->ranks == about->nodes * cluster->gpus_per_node;
    if (!whole || !goes_around_a_ring(collective))
      continue;
    double *place = about->nodes == 1 ? &inside : &between;
    *place = MAX(*place, asymptote(collective));
  }
  double node = inside > 0 ? inside : cluster->intra_busbw;
  double efficiency = between / (cluster->nics * cluster->nic_bandwidth);
  gboolean by_nics = between < 0.97 * cluster->beyond_node * node;
  if (inside > 0)
    replace_number(nccl, "intra_busbw_gb_per_s", inside / GIGA);
  if (between > 0 && by_nics && efficiency <= 1 && efficiency >= 1e-3)
    replace_number(nccl, "inter_efficiency", efficiency);
}

/* ---- nodes */

/* GPUs of a node that all tables of several nodes with several ranks each agree on; 0: none do. */
static int
agreed_gpus_per_node(const GPtrArray *collectives)
{
  int agreed = 0;
  for (guint i = 0; i < collectives->len; i++) {
    const CalibratedCollective *collective = g_ptr_array_index(collectives, i);
    int here = (int) ceil_div(collective->about.ranks, collective->about.nodes);
    if (collective->about.nodes == 1 || here == 1)
      continue;
    if (agreed > 0 && here != agreed)
      return 0;
    agreed = here;
  }
  return agreed;
}

/* A communicator of two nodes of four is none of one node of eight, which would never take the
 * table's time; NICs are counted by GPU. */
static void
resize_nodes(cJSON *root, ClusterSpec *cluster, const GPtrArray *collectives)
{
  int gpus = agreed_gpus_per_node(collectives);
  cJSON *inter_node = cJSON_GetObjectItemCaseSensitive(root, "inter_node");
  if (gpus == 0 || gpus == cluster->gpus_per_node)
    return;
  cluster->nics = MAX(1, cluster->nics * gpus / cluster->gpus_per_node);
  cluster->gpus_per_node = gpus;
  replace_number(root, "gpus_per_node", gpus);
  if (cJSON_IsObject(inter_node))
    replace_number(inter_node, "nics", cluster->nics);
}

/* ---- the file */

static void
write_root(cJSON *root, const ClusterSpec *cluster, const GPtrArray *collectives)
{
  g_autofree char *summary = g_strdup_printf("%s with measured collectives", cluster->name);
  g_autofree char *source = g_strdup_printf(
      "highwater calibrate, from the cluster %s; see _fit of each table of nccl", cluster->name);
  json_replace_text(root, "_summary", summary);
  json_replace_text(root, "_source", source);
  cJSON *nccl = json_section(root, "nccl");
  add_bandwidths(nccl, cluster, collectives);
  cJSON *tables = cJSON_CreateArray();
  json_replace(nccl, "tables", tables);
  for (guint i = 0; i < collectives->len; i++)
    if (is_first_of_shape(collectives, i))
      cJSON_AddItemToArray(tables, table_json(collectives, g_ptr_array_index(collectives, i)));
}

cJSON *
profile_tree(const char *base, const GPtrArray *collectives, gboolean resize, GError **error)
{
  g_autofree char *path = preset_find("cluster", base, error);
  if (!path)
    return NULL;
  gsize length;
  g_autofree char *text = json_text_load(path, &length, error);
  if (!text)
    return NULL;
  g_autoptr(ClusterSpec) cluster = cluster_spec_parse(path, text, length, error);
  g_autoptr(JsonDocument) document =
      cluster ? json_document_parse(path, text, length, error) : NULL;
  if (!document)
    return NULL;
  cJSON *root = cJSON_Duplicate(json_document_root(document), TRUE);
  if (resize)
    resize_nodes(root, cluster, collectives);
  write_root(root, cluster, collectives);
  return root;
}
