/* check_cluster_spec.c - devices, fabrics and clusters: good files, and each refusal with its exact
 * message.  What is computed from the figures is not tested here. */
#include "base/json_reader.h"
#include "base/units.h"
#include "spec/cluster_spec.h"
#include "spec/preset.h"
#include "tap_main.h"
#include <string.h>

START_TEST(every_device_preset_loads_and_every_figure_has_its_source)
{
  static const char *const promised[] = {"v100-sxm2-32gb", "a100-sxm-40gb",
                                         "a100-sxm-80gb",  "a100-pcie-40gb",
                                         "a100-pcie-80gb", "h100-sxm-80gb",
                                         "h100-pcie-80gb", "h100-sxm-96gb",
                                         "h200-sxm-141gb", "b200-sxm-180gb",
                                         "l40s-48gb",      "rtx4090-24gb",
                                         "a10g-24gb",      NULL};
  g_auto(GStrv) names = preset_names("device");
  for (guint i = 0; promised[i]; i++)
    ck_assert(g_strv_contains((const char *const *) names, promised[i]));
  for (guint i = 0; names[i]; i++) {
    g_autoptr(GError) error = NULL;
    g_autoptr(DeviceProfile) device = device_profile_load(names[i], &error);
    ck_assert_msg(device != NULL, "%s", error ? error->message : "");
    ck_assert_str_eq(device->name, names[i]);
    g_autofree char *path = preset_find("device", names[i], NULL);
    g_autoptr(JsonDocument) doc = json_document_load(path, NULL);
    const cJSON *root = json_document_root(doc);
    const cJSON *sources = cJSON_GetObjectItemCaseSensitive(root, "_sources");
    for (const cJSON *item = root->child; item; item = item->next)
      if (item->string[0] != '_' && !g_str_equal(item->string, "source"))
        ck_assert_msg(cJSON_IsString(cJSON_GetObjectItemCaseSensitive(sources, item->string)),
                      "%s: no source for %s", names[i], item->string);
  }
}
END_TEST

START_TEST(a_device_file_is_converted_to_the_units_of_the_profile)
{
  g_autoptr(DeviceProfile) h100 = device_profile_load("h100-sxm-80gb", NULL);
  ck_assert_int_eq(h100->sms, 132);
  ck_assert_int_eq(h100->compute_capability, 90);
  ck_assert_int_eq(h100->cublas_workspace_bytes, 4096 * 8 * KIB);
  ck_assert_int_eq(h100->memory_bytes / GIB, 79);
  ck_assert(h100->peak_bf16_flops == 989e12);
  ck_assert(h100->memory_bandwidth == 3350e9);
  ck_assert(h100->nvlink_busbw == 365e9);
  ck_assert(h100->kernel_floor_ns == 3000);
  g_autoptr(DeviceProfile) a100 = device_profile_load("a100-sxm-80gb", NULL);
  ck_assert_int_eq(a100->cublas_workspace_bytes, 2 * 4096 * KIB + 8 * 16 * KIB);
  ck_assert(a100->peak_fp32_flops == 19.5e12);
}
END_TEST

static const struct {
  const char *key, *value, *message;
} bad_devices[] = {
    {"sms", NULL, "gpu.json: key 'sms' is missing"},
    {"source", NULL, "gpu.json: key 'source' is missing"},
    {"sms", "0", "gpu.json: key 'sms': 0 is not in 1..100000"},
    {"sms", "\"132\"", "gpu.json: key 'sms': a whole number is needed, not a string"},
    {"memory_bytes", "\"80 GB RAM\"",
     "gpu.json: key 'memory_bytes': '80 GB RAM' is not a size below 8 EiB: bytes, or a number with "
     "KiB, MiB, GiB, TiB, KB, MB, GB or TB"},
    {"memory_bytes", "-1", "gpu.json: key 'memory_bytes': -1 is negative"},
    {"gemm_efficiency", "1.5", "gpu.json: key 'gemm_efficiency': 1.5 is not in 0.001..1"},
    {"gemm_tiles", "[]", "gpu.json: key 'gemm_tiles': has 0 rows: 1 to 16 are needed"},
    {"gemm_tiles", "[{\"rows\": 64, \"columns\": 64}]",
     "gpu.json: key 'gemm_tiles[0].efficiency' is missing"},
    {"attention", NULL, "gpu.json: key 'attention' is missing"},
    {"attention", "[{\"kernel\": \"flash9\"}]",
     "gpu.json: key 'attention[0].kernel': 'flash9' is not one of flash2, flash1, triton, flash3, "
     "cudnn, efficient"},
    {"power_limit_w", "90",
     "gpu.json: key 'power_idle_w': is not below power_limit_w and power_reference_w"},
    {"kernel_gap_us", "-0.5", "gpu.json: key 'kernel_gap_us': -0.5 is not in 0..1e+06"},
    {"kernel_gap_ns", "5", "gpu.json: unknown key 'kernel_gap_ns'; did you mean 'kernel_gap_us'?"},
};

START_TEST(a_device_with_a_wrong_or_missing_figure_is_refused)
{
  g_autofree char *path = preset_find("device", "h100-sxm-80gb", NULL);
  g_autoptr(JsonDocument) doc = json_document_load(path, NULL);
  cJSON *root = json_document_root(doc);
  cJSON_DeleteItemFromObjectCaseSensitive(root, bad_devices[_i].key);
  if (bad_devices[_i].value)
    cJSON_AddItemToObject(root, bad_devices[_i].key, cJSON_Parse(bad_devices[_i].value));
  char *text = cJSON_PrintUnformatted(root);
  g_autoptr(GError) error = NULL;
  ck_assert_ptr_null(device_profile_parse("gpu.json", text, strlen(text), &error));
  cJSON_free(text);
  ck_assert_str_eq(error->message, bad_devices[_i].message);
}
END_TEST

START_TEST(every_fabric_has_its_file)
{
  for (int i = 0; intra_fabric_names[i]; i++) {
    IntraFabricProfile profile;
    g_autoptr(GError) error = NULL;
    ck_assert_msg(intra_fabric_load((IntraFabric) i, &profile, &error), "%s",
                  error ? error->message : "");
    ck_assert((profile.busbw > 0) != (profile.nvlink_busbw_fraction > 0));
    ck_assert(profile.base_latency_ns > 0 && profile.hop_latency_ns > 0);
  }
  for (int i = 0; inter_fabric_names[i]; i++) {
    InterFabricProfile profile;
    g_autoptr(GError) error = NULL;
    ck_assert_msg(inter_fabric_load((InterFabric) i, &profile, &error), "%s",
                  error ? error->message : "");
    ck_assert(profile.nic_bandwidth > 1e9 && profile.efficiency > 0);
  }
}
END_TEST

START_TEST(every_figure_of_a_fabric_has_its_source)
{
  g_auto(GStrv) names = preset_names("fabric");
  ck_assert_uint_ge(g_strv_length(names), 8);
  for (int i = 0; names[i]; i++) {
    g_autofree char *path = preset_find("fabric", names[i], NULL);
    g_autoptr(JsonDocument) document = json_document_load(path, NULL);
    const cJSON *root = json_document_root(document), *figure;
    const cJSON *sources = cJSON_GetObjectItemCaseSensitive(root, "_sources");
    cJSON_ArrayForEach(figure, root)
        ck_assert_msg(figure->string[0] == '_' ||
                          cJSON_IsString(cJSON_GetObjectItemCaseSensitive(sources, figure->string)),
                      "%s: %s", names[i], figure->string);
  }
}
END_TEST

/* ---- clusters */

static ClusterSpec *
parse_cluster(const char *text, GError **error)
{
  return cluster_spec_parse("cluster.json", text, strlen(text), error);
}

START_TEST(a_cluster_left_short_takes_its_figures_from_device_and_fabrics)
{
  g_autoptr(ClusterSpec) spec =
      parse_cluster("{\"device\": \"h100-sxm-80gb\", \"gpus_per_node\": 4}", NULL);
  IntraFabricProfile nvswitch;
  InterFabricProfile infiniband;
  ck_assert(intra_fabric_load(FABRIC_NVSWITCH, &nvswitch, NULL));
  ck_assert(inter_fabric_load(FABRIC_INFINIBAND, &infiniband, NULL));
  ck_assert_int_eq(spec->gpus_per_node, 4);
  ck_assert_int_eq(spec->nics, 4);
  ck_assert_int_eq(spec->intra_node, FABRIC_NVSWITCH);
  ck_assert_int_eq(spec->inter_node, FABRIC_INFINIBAND);
  ck_assert(spec->intra_busbw == spec->device->nvlink_busbw);
  ck_assert(spec->nic_bandwidth == 400e9 / 8);
  ck_assert(spec->inter_efficiency == infiniband.efficiency);
  ck_assert(spec->base_latency_ns == nvswitch.base_latency_ns);
  ck_assert(spec->inter_hop_ns == infiniband.hop_latency_ns);
  ck_assert_int_eq(spec->context_bytes, spec->device->context_bytes);
  ck_assert_int_eq(spec->nccl_bytes_per_communicator, nvswitch.nccl_bytes_per_communicator);
}
END_TEST

START_TEST(a_cluster_says_what_differs)
{
  g_autoptr(GError) error = NULL;
  g_autoptr(ClusterSpec) spec = parse_cluster(
      "{\"device\": \"a100-sxm-40gb\", \"gpus_per_node\": 8, \"intra_node\": {\"fabric\": "
      "\"pcie\"}, \"inter_node\": {\"fabric\": \"efa\", \"nics\": 4, \"gbit_per_nic\": 100}, "
      "\"nccl\": {\"base_latency_us\": 20, \"intra_hop_latency_us\": 2.5, "
      "\"inter_hop_latency_us\": "
      "9, \"inter_efficiency\": 0.5, \"intra_busbw_gb_per_s\": 12}, \"process_memory\": "
      "{\"context_bytes\": \"300MiB\", \"nccl_bytes_per_communicator\": 0}, \"_note\": \"x\"}",
      &error);
  ck_assert_msg(spec != NULL, "%s", error ? error->message : "");
  ck_assert_int_eq(spec->intra_node, FABRIC_PCIE);
  ck_assert_int_eq(spec->inter_node, FABRIC_EFA);
  ck_assert_int_eq(spec->nics, 4);
  ck_assert(spec->nic_bandwidth == 12.5e9);
  ck_assert(spec->base_latency_ns == 20000 && spec->intra_hop_ns == 2500);
  ck_assert(spec->inter_hop_ns == 9000 && spec->inter_efficiency == 0.5);
  ck_assert(spec->intra_busbw == 12e9);
  ck_assert_int_eq(spec->context_bytes, 300 * MIB);
  ck_assert_int_eq(spec->nccl_bytes_per_communicator, 0);
}
END_TEST

/* A cluster's latencies are those of the ring with Simple; what it says of a line stands. */
START_TEST(lines_of_a_cluster_are_the_fabrics_and_its_own)
{
  g_autoptr(GError) error = NULL;
  IntraFabricProfile nvswitch;
  ck_assert(intra_fabric_load(FABRIC_NVSWITCH, &nvswitch, NULL));
  g_autoptr(ClusterSpec) spec = parse_cluster(
      "{\"device\": \"h100-sxm-80gb\", \"gpus_per_node\": 8, \"nccl\": {\"intra_hop_latency_us\": "
      "6.8, \"intra_pipeline_us\": 7, \"one_way_fraction\": 2, \"beyond_node_fraction\": 0.5, "
      "\"inter_lines\": {\"ring_ll\": {\"base_us\": 50, \"busbw_max_gb_per_s\": 3}}, \"tables\": "
      "[{\"collective\": \"all_reduce\", \"ranks\": 8, \"nodes\": 1, \"points\": [[8, 20], "
      "[1024, 19]]}]}}",
      &error);
  ck_assert_msg(spec != NULL, "%s", error ? error->message : "");
  const ProtocolLine *intra = &spec->intra_lines[LINE_RING_LL];
  const ProtocolLine *inter = &spec->inter_lines[LINE_RING_LL];
  double ratio = 6800 / nvswitch.hop_latency_ns;
  ck_assert(intra->present && inter->present && !spec->inter_lines[LINE_NVLS].present);
  ck_assert_double_eq_tol(intra->hop_ns, ratio * nvswitch.lines[LINE_RING_LL].hop_ns, 1e-6);
  ck_assert(intra->base_ns == nvswitch.lines[LINE_RING_LL].base_ns);
  ck_assert(inter->base_ns == 50000 && inter->busbw_max == 3e9 && inter->hop_ns > 0);
  ck_assert(spec->intra_pipeline_ns == 7000 && spec->one_way == 2 && spec->beyond_node == 0.5);
  ck_assert_uint_eq(spec->tables->len, 1);
  const CollectiveTable *table = g_ptr_array_index(spec->tables, 0);
  ck_assert_uint_eq(table->points->len, 2);
  ck_assert(g_array_index(table->points, CollectivePoint, 1).time_ns == 20000);
}
END_TEST

START_TEST(without_nvlink_the_bandwidth_is_that_of_the_fabric)
{
  g_autoptr(ClusterSpec) spec = parse_cluster("{\"device\": \"a100-sxm-40gb\", \"gpus_per_node\": "
                                              "8, \"intra_node\": {\"fabric\": \"pcie\"}}",
                                              NULL);
  ck_assert(spec->intra_busbw > 0 && spec->intra_busbw < spec->device->nvlink_busbw / 10);
}
END_TEST

#define REST "\"device\": \"h100-sxm-80gb\", \"gpus_per_node\": 8"
static const struct {
  const char *text, *message;
} bad_clusters[] = {
    {"{\"gpus_per_node\": 8}", "cluster.json: key 'device' is missing"},
    {"{\"device\": \"h100-sxm-80gb\"}", "cluster.json: key 'gpus_per_node' is missing"},
    {"{\"device\": \"h100-sxm-80\", \"gpus_per_node\": 8}",
     "cluster.json: key 'device': h100-sxm-80: no such device preset, and no file of that name; "
     "did you mean 'h100-sxm-80gb'?"},
    {"{\"device\": \"-\", \"gpus_per_node\": 8}",
     "cluster.json: key 'device': cannot be standard input"},
    {"{\"device\": \"h100-sxm-80gb\", \"gpus_per_node\": 0}",
     "cluster.json: key 'gpus_per_node': 0 is not in 1..1024"},
    {"{" REST ", \"nodes\": 2}",
     "cluster.json: unknown key 'nodes'; known are: device, gpus_per_node, intra_node, "
     "inter_node, nccl, process_memory, contention"},
    {"{" REST ", \"intra_node\": \"nvswitch\"}",
     "cluster.json: key 'intra_node': an object is needed, not a string"},
    {"{" REST ", \"intra_node\": {\"fabric\": \"nvl\"}}",
     "cluster.json: key 'intra_node.fabric': 'nvl' is not one of nvswitch, nvlink, pcie"},
    {"{" REST ", \"inter_node\": {\"nics\": 0}}",
     "cluster.json: key 'inter_node.nics': 0 is not in 1..1024"},
    {"{" REST ", \"inter_node\": {\"gbit_per_nic\": -400}}",
     "cluster.json: key 'inter_node.gbit_per_nic': -400 is not in 0.001..1e+06"},
    {"{" REST ", \"inter_node\": {\"gbit\": 400}}",
     "cluster.json: unknown key 'inter_node.gbit'; known are: fabric, nics, gbit_per_nic"},
    {"{" REST ", \"nccl\": {\"intra_busbw_gb_per_s\": 0}}",
     "cluster.json: key 'nccl.intra_busbw_gb_per_s': 0 is not in 0.001..1e+06"},
    {"{" REST ", \"nccl\": {\"intra_lines\": {\"ring\": {}}}}",
     "cluster.json: unknown key 'nccl.intra_lines.ring'; known are: ring_ll, ring_ll128, tree_ll, "
     "tree_ll128, tree_simple, nvls, nvls_tree, pat, p2p"},
    {"{" REST ", \"nccl\": {\"inter_lines\": {\"nvls\": {\"base_us\": 1, \"hop_us\": 2}}}}",
     "cluster.json: key 'nccl.inter_lines.nvls.bandwidth' is missing"},
    {"{" REST ", \"nccl\": {\"intra_lines\": {\"ring_ll\": {\"bandwidth\": 11}}}}",
     "cluster.json: key 'nccl.intra_lines.ring_ll.bandwidth': 11 is not in 0.001..10"},
    {"{" REST ", \"nccl\": {\"tables\": [{\"ranks\": 8, \"nodes\": 1, \"points\": [[1, 2]]}]}}",
     "cluster.json: key 'nccl.tables[0].collective' is missing"},
    {"{" REST ", \"nccl\": {\"tables\": [{\"collective\": \"all_gather\", \"ranks\": 8, "
     "\"nodes\": 9, \"points\": [[1, 2]]}]}}",
     "cluster.json: key 'nccl.tables[0].nodes': 9 nodes for 8 ranks"},
    {"{" REST ", \"nccl\": {\"tables\": [{\"collective\": \"all_gather\", \"ranks\": 8, "
     "\"nodes\": 1, \"points\": [[8, 20], [8, 30]]}]}}",
     "cluster.json: key 'nccl.tables[0].points': a list of [bytes, microseconds], both above 0, by "
     "ascending bytes is needed"},
    {"{" REST ", \"nccl\": {\"tables\": [{\"collective\": \"all_gather\", \"ranks\": 8, "
     "\"nodes\": 1, \"points\": []}]}}",
     "cluster.json: key 'nccl.tables[0].points': a list of [bytes, microseconds] is needed"},
    {"{" REST ", \"process_memory\": {\"context_bytes\": \"9000TiB\"}}",
     "cluster.json: key 'process_memory.context_bytes': 9895604649984000 bytes is not in "
     "0..1099511627776"},
};

START_TEST(a_cluster_that_makes_no_sense_is_refused)
{
  g_autoptr(GError) error = NULL;
  ck_assert_ptr_null(parse_cluster(bad_clusters[_i].text, &error));
  ck_assert_str_eq(error->message, bad_clusters[_i].message);
}
END_TEST

START_TEST(every_cluster_preset_loads)
{
  static const char *const promised[] = {"a100-80gb-8", "h100-8", "h200-8", NULL};
  g_auto(GStrv) names = preset_names("cluster");
  for (guint i = 0; promised[i]; i++)
    ck_assert(g_strv_contains((const char *const *) names, promised[i]));
  for (guint i = 0; names[i]; i++) {
    g_autoptr(GError) error = NULL;
    g_autoptr(ClusterSpec) spec = cluster_spec_load(names[i], &error);
    ck_assert_msg(spec != NULL, "%s", error ? error->message : "");
    ck_assert_str_eq(spec->name, names[i]);
  }
  g_autoptr(ClusterSpec) a100 = cluster_spec_load("a100-80gb-8", NULL);
  ck_assert(a100->nic_bandwidth == 25e9 && a100->nics == 8);
}
END_TEST

Suite *
test_suite(void)
{
  Suite *suite = suite_create("cluster_spec");
  TCase *devices = tcase_create("devices"), *clusters = tcase_create("clusters");
  suite_add_tcase(suite, devices);
  suite_add_tcase(suite, clusters);
  tcase_add_test(devices, every_device_preset_loads_and_every_figure_has_its_source);
  tcase_add_test(devices, a_device_file_is_converted_to_the_units_of_the_profile);
  tcase_add_loop_test(devices, a_device_with_a_wrong_or_missing_figure_is_refused, 0,
                      G_N_ELEMENTS(bad_devices));
  tcase_add_test(devices, every_fabric_has_its_file);
  tcase_add_test(devices, every_figure_of_a_fabric_has_its_source);
  tcase_add_test(clusters, a_cluster_left_short_takes_its_figures_from_device_and_fabrics);
  tcase_add_test(clusters, a_cluster_says_what_differs);
  tcase_add_test(clusters, lines_of_a_cluster_are_the_fabrics_and_its_own);
  tcase_add_test(clusters, without_nvlink_the_bandwidth_is_that_of_the_fabric);
  tcase_add_loop_test(clusters, a_cluster_that_makes_no_sense_is_refused, 0,
                      G_N_ELEMENTS(bad_clusters));
  tcase_add_test(clusters, every_cluster_preset_loads);
  return suite;
}
