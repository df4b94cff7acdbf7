/* check_calibrate_profile.c - from measurements to files: samples there and back, a cluster file
 * that gives the stand-in's times again within 3 %, reports, refusals of malformed samples. */
#include <math.h>
#include <string.h>

#include "base/units.h"
#include "calibrate/device_writer.h"
#include "calibrate/machine_profile.h"
#include "calibrate/measured_collectives.h"
#include "calibrate/measurement_report.h"
#include "calibrate/measurements_file.h"
#include "calibrate/sweep.h"
#include "stand_in_probe.h"
#include "tap_main.h"

static const double true_alpha_ns = 31e3, true_busbw = 277e9;

/* Eight H100-like devices whose constants are none of the preset's. */
static StandIn
eight_devices(void)
{
  g_autoptr(DeviceProfile) device = device_profile_load("h100-sxm-80gb", NULL);
  ck_assert_ptr_nonnull(device);
  StandIn truth = {
      .device = *device,
      .ranks = 8,
      .alpha_ns = true_alpha_ns,
      .busbw = true_busbw,
      .noise = 0.02,
      .outliers = 0.05,
      .launch_ns = 2500,
      .seed = 3,
  };
  truth.device.name = truth.device.source = NULL;
  truth.device.gemm_in_step = 1;
  truth.device.gemm_efficiency *= 0.9;
  truth.device.memory_efficiency *= 0.95;
  return truth;
}

static Measurements *
measure_devices(const StandIn *truth)
{
  g_autoptr(DeviceProbe) probe = stand_in_open(truth);
  ProbeFacts facts;
  probe->class->describe(probe, &facts);
  g_autoptr(GArray) list = sweep_experiments(&facts, NULL);
  MeasureOptions options = measure_defaults();
  return measure(probe, (const Experiment *) (const void *) list->data, list->len, &options);
}

/* ---- samples ---- */

START_TEST(samples_come_back_from_their_file)
{
  StandIn truth = eight_devices();
  g_autoptr(Measurements) all = measure_devices(&truth);
  g_autofree char *text = measurements_print(all, "2026-11-30");
  ck_assert(measurements_recognized(text, strlen(text)));
  g_autoptr(GError) error = NULL;
  g_autoptr(Measurements) again = measurements_parse("samples.json", text, strlen(text), &error);
  ck_assert_msg(again != NULL, "%s", error != NULL ? error->message : "");
  ck_assert_uint_eq(again->measurements->len, all->measurements->len);
  for (guint i = 0; i < all->measurements->len; i++) {
    const Measurement *a = g_ptr_array_index(all->measurements, i);
    const Measurement *b = g_ptr_array_index(again->measurements, i);
    ck_assert_int_eq(memcmp(&a->experiment.call, &b->experiment.call, sizeof(a->experiment.call)),
                     0);
    ck_assert_int_eq(a->experiment.m, b->experiment.m);
    ck_assert_int_eq(a->experiment.beside, b->experiment.beside);
    ck_assert_double_eq_tol(a->median_ns, b->median_ns, 0.01);
    ck_assert_uint_eq(a->samples->len, b->samples->len);
  }
  /* Samples are written to the picosecond, so from then on nothing changes. */
  g_autofree char *second = measurements_print(again, "2026-11-30");
  g_autoptr(Measurements) last = measurements_parse("again", second, strlen(second), NULL);
  g_autofree char *third = measurements_print(last, "2026-11-30");
  ck_assert(strcmp(second, third) == 0);
}
END_TEST

/* ---- the machine's file ---- */

/* Fits and writes; the caller frees. */
static ClusterSpec *
cluster_from(const Measurements *all, char **file)
{
  g_autoptr(DeviceProfile) base = device_profile_load("h100-sxm-80gb", NULL);
  g_autoptr(ClusterSpec) spec = cluster_spec_load("h100-8", NULL);
  g_autoptr(GArray) constants = fit_device(base, all);
  g_autoptr(GPtrArray) collectives = measured_collectives(all, spec, "this machine");
  const MachineProfile profile = {
      .cluster = "h100-8",
      .device = "h100-sxm-80gb",
      .measured = all,
      .constants = constants,
      .collectives = collectives,
      .when = "2026-11-30",
  };
  g_autoptr(GError) error = NULL;
  *file = machine_profile_text(&profile, &error);
  ck_assert_msg(*file != NULL, "%s", error != NULL ? error->message : "");
  ClusterSpec *cluster = cluster_spec_parse("mine.json", *file, strlen(*file), &error);
  ck_assert_msg(cluster != NULL, "%s", error != NULL ? error->message : "");
  return cluster;
}

START_TEST(the_file_has_the_measured_device_and_collectives)
{
  StandIn truth = eight_devices();
  g_autoptr(Measurements) all = measure_devices(&truth);
  g_autofree char *file = NULL;
  g_autoptr(ClusterSpec) cluster = cluster_from(all, &file);
  ck_assert_str_eq(cluster->device->name, "stand-in");
  ck_assert_double_eq_tol(cluster->device->gemm_efficiency / truth.device.gemm_efficiency, 1, 0.03);
  ck_assert_double_eq_tol(cluster->device->memory_efficiency / truth.device.memory_efficiency, 1,
                          0.03);
  ck_assert_ptr_nonnull(strstr(file, "measured on stand-in, 2026-11-30: "));
  const char *const *measured = (const char *const *) cluster->device->measured;
  ck_assert_ptr_nonnull(measured);
  ck_assert(g_strv_contains(measured, "gemm_efficiency"));
  ck_assert(!g_strv_contains(measured, "gemm_in_step"));
  GroupShape shape = group_shape(cluster, 8, 1);
  for (gint64 bytes = KIB; bytes <= GIB; bytes *= 4) {
    double expected = true_alpha_ns + 7.0 / 8 * (double) bytes / true_busbw * 1e9;
    double found = (double) collective_duration(cluster, COLLECTIVE_ALL_GATHER, shape, bytes);
    ck_assert_msg(fabs(found / expected - 1) < 0.03, "%" G_GINT64_FORMAT " bytes: %g, %g", bytes,
                  found, expected);
  }
}
END_TEST

START_TEST(alpha_and_bandwidth_are_found_again_within_three_percent)
{
  StandIn truth = eight_devices();
  g_autoptr(Measurements) all = measure_devices(&truth);
  g_autoptr(ClusterSpec) spec = cluster_spec_load("h100-8", NULL);
  g_autoptr(GPtrArray) collectives = measured_collectives(all, spec, "this machine");
  /* Seven kinds and placements on the one group of all. */
  ck_assert_uint_eq(collectives->len, 7);
  for (guint i = 0; i < collectives->len; i++) {
    const CalibratedCollective *c = g_ptr_array_index(collectives, i);
    ck_assert_int_eq(c->about.ranks, 8);
    ck_assert_int_eq(c->about.nodes, 1);
    ck_assert_double_lt(c->errors.median, 0.03);
    ck_assert_double_eq_tol(fit_time_us(&c->fit, 16) / (true_alpha_ns / 1e3), 1, 0.03);
    double large =
        1e6 * c->factor * (double) GIB / (fit_time_us(&c->fit, GIB) - true_alpha_ns / 1e3);
    ck_assert_double_eq_tol(large / true_busbw, 1, 0.03);
  }
}
END_TEST

START_TEST(what_runs_beside_costs_what_it_costs)
{
  static const Experiment list[] = {
      {.kind = EXPERIMENT_MEMORY, .bytes = 256 << 20},
      {.kind = EXPERIMENT_MEMORY, .bytes = 256 << 20, .beside = BESIDE_TRAFFIC, .blocks = 16},
  };
  StandIn truth = eight_devices();
  truth.noise = truth.outliers = 0;
  MeasureOptions options = measure_defaults();
  g_autoptr(DeviceProbe) probe = stand_in_open(&truth);
  g_autoptr(Measurements) all = measure(probe, list, 2, &options);
  ck_assert_double_eq(measured_memory_share(all), 0);
  /* Twice as long: half of the bandwidth is gone. */
  Measurement *beside = g_ptr_array_index(all->measurements, 1);
  beside->median_ns *= 2;
  ck_assert_double_eq_tol(measured_memory_share(all), 0.5, 1e-9);
  g_autofree char *file = NULL;
  g_autoptr(ClusterSpec) cluster = cluster_from(all, &file);
  ck_assert_double_eq(cluster->contention.memory_limit, 0.5);
}
END_TEST

START_TEST(presets_are_found_by_the_devices_name)
{
  static const struct {
    const char *device, *preset;
    gint64 memory;
  } cases[] = {
      {"NVIDIA H200", "h200-sxm-141gb", (gint64) 150110011392},
      {"NVIDIA A100-SXM4-40GB", "a100-sxm-40gb", (gint64) 42298834944},
      {"NVIDIA A100-SXM4-80GB", "a100-sxm-80gb", (gint64) 85050000000},
      {"NVIDIA H100 80GB HBM3", "h100-sxm-80gb", (gint64) 85050000000},
      {"NVIDIA H100 PCIe", "h100-pcie-80gb", (gint64) 85050000000},
      {"NVIDIA GeForce RTX 4090", "rtx4090-24gb", (gint64) 25757220864},
      {"Voodoo 2", NULL, 12 << 20},
  };
  for (guint i = 0; i < G_N_ELEMENTS(cases); i++) {
    ProbeFacts facts = {.memory_bytes = cases[i].memory};
    g_strlcpy(facts.device, cases[i].device, PROBE_TEXT);
    g_autofree char *preset = device_preset_for(&facts);
    ck_assert_msg(g_strcmp0(preset, cases[i].preset) == 0, "%s is %s", cases[i].device, preset);
  }
  const struct {
    const char *device;
    int gpus_per_node;
    const char *preset;
  } clusters[] = {{"h200-sxm-141gb", 8, "h200-8"}, {"h100-sxm-80gb", 8, "h100-8"},
                  {"h100-sxm-80gb", 4, "h100-4"},  {"h100-sxm-80gb", 0, "h100-8"},
                  {"h100-sxm-80gb", 1, "h100-8"},  {"voodoo", 8, NULL}};
  for (guint i = 0; i < G_N_ELEMENTS(clusters); i++) {
    g_autofree char *cluster = cluster_preset_for(clusters[i].device, clusters[i].gpus_per_node);
    ck_assert_msg(g_strcmp0(cluster, clusters[i].preset) == 0, "%s is %s", clusters[i].device,
                  cluster);
  }
}
END_TEST

/* ---- refusals ---- */

static const struct {
  const char *text, *message;
} malformed[] = {
    {"{}", "samples.json: key 'format' is missing"},
    {"{\"format\": \"highwater-measurements-2\"}", "key 'format': not 'highwater-measurements-1'"},
    {"{\"format\": \"highwater-measurements-1\", \"experiments\": [{\"kind\": \"dance\"}]}",
     "key 'experiments[0].kind': 'dance' is not one of gemm, memory"},
    {"{\"format\": \"highwater-measurements-1\", \"experiments\": [{\"kind\": \"gemm\"}]}",
     "key 'experiments[0].dtype' is missing"},
    {"{\"format\": \"highwater-measurements-1\", \"experiments\": [{\"kind\": \"launch\","
     " \"samples_us\": [1, -2]}]}",
     "key 'experiments[0].samples_us': not durations: numbers above 0, at most 1e12"},
    {"{\"format\": \"highwater-measurements-1\", \"experiments\": [{\"kind\": \"launch\","
     " \"samples_us\": [1]}]}",
     "key 'experiments[0].round_medians_us': missing beside samples_us"},
    {"{\"format\": \"highwater-measurements-1\", \"experiments\": [{\"kind\": \"collective\"}]}",
     "key 'experiments[0].collective' is missing"},
    {"{\"format\": \"highwater-measurements-1\", \"sample\": 1}", "unknown key 'sample'"},
};

START_TEST(malformed_samples_are_refused)
{
  g_autoptr(GError) error = NULL;
  g_autoptr(Measurements) all =
      measurements_parse("samples.json", malformed[_i].text, strlen(malformed[_i].text), &error);
  ck_assert_ptr_null(all);
  ck_assert(test_error_says(error, malformed[_i].message));
}
END_TEST

Suite *
test_suite(void)
{
  Suite *suite = suite_create("calibrated profiles");
  TCase *files = tcase_create("files");
  tcase_add_test(files, samples_come_back_from_their_file);
  tcase_add_test(files, the_file_has_the_measured_device_and_collectives);
  tcase_add_test(files, alpha_and_bandwidth_are_found_again_within_three_percent);
  tcase_add_test(files, what_runs_beside_costs_what_it_costs);
  tcase_add_test(files, presets_are_found_by_the_devices_name);
  suite_add_tcase(suite, files);

  TCase *refusals = tcase_create("refusals");
  tcase_add_loop_test(refusals, malformed_samples_are_refused, 0, G_N_ELEMENTS(malformed));
  suite_add_tcase(suite, refusals);
  return suite;
}
