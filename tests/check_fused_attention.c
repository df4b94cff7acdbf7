/* check_fused_attention.c - which generation of attention kernel a network file, a version of
 * PyTorch and a device mean, and what is refused.  How fast they are is in check_kernel_model.c. */
#include <string.h>

#include "scenario_fixture.h"
#include "simulation.h"
#include "spec/fused_attention.h"
#include "spec/preset.h"
#include "tap_main.h"

/* Up to the end of its implementation. */
static const char network[] =
    "{\"model_type\": \"llama\", \"hidden_size\": 256, \"intermediate_size\": 512,"
    " \"num_hidden_layers\": 1, \"num_attention_heads\": 4, \"vocab_size\": 512,"
    " \"implementation\": {\"code\": \"torchtitan\"";

static Scenario *
scenario_on(const char *device, const char *fabric, const char *implementation, GError **error)
{
  g_autofree char *cluster =
      g_strdup_printf("{\"device\": \"%s\", \"gpus_per_node\": 8, \"intra_node\": {\"fabric\": "
                      "\"%s\"}}",
                      device, fabric);
  g_autofree char *model = g_strconcat(network, implementation, "}}", NULL);
  ScenarioInputs inputs = {.network = fixture_text("net.json", model),
                           .plan = fixture_text("plan.json", FIXTURE_PLAN("128")),
                           .cluster = fixture_text("cluster.json", cluster)};
  Scenario *scenario = scenario_new(&inputs, 0, error);
  input_text_clear(&inputs.network);
  input_text_clear(&inputs.plan);
  input_text_clear(&inputs.cluster);
  return scenario;
}

/* The variant of the network's attention kernel of a direction, or -1 when it has none. */
static int
variant_of(const Scenario *s, KernelKind direction)
{
  for (guint i = 0; i < s->network->functions->len; i++) {
    const GArray *kernels = ((const Function *) s->network->functions->pdata[i])->kernels;
    for (guint k = 0; k < kernels->len; k++) {
      const Kernel *kernel = &g_array_index(kernels, OpKernel, k).kernel;
      if (kernel->kind == direction)
        return kernel->variant;
    }
  }
  return -1;
}

static const struct {
  const char *device, *fabric, *implementation;
  int kernel; /* FusedAttention, or -1: composed */
} meanings[] = {
    {"h100-sxm-80gb", "nvswitch", "", FUSED_FLASH2},
    {"h100-sxm-80gb", "nvswitch", ", \"attention\": \"flash\"", FUSED_FLASH2},
    {"h100-sxm-80gb", "nvswitch", ", \"attention\": \"flash1\"", FUSED_FLASH1},
    {"h100-sxm-80gb", "nvswitch", ", \"attention\": \"triton\"", FUSED_TRITON},
    {"h100-sxm-80gb", "nvswitch", ", \"attention\": \"flash3\"", FUSED_FLASH3},
    {"h100-sxm-80gb", "nvswitch", ", \"attention\": \"cudnn\"", FUSED_CUDNN},
    {"h100-sxm-80gb", "nvswitch", ", \"attention\": \"efficient\"", FUSED_EFFICIENT},
    {"h100-sxm-80gb", "nvswitch", ", \"attention\": \"math\"", -1},
    /* the version that chooses: FlashAttention-2 came with 2.2; cuDNN first in 2.5.0 alone, again
     * from 2.11 */
    {"h100-sxm-80gb", "nvswitch", ", \"torch\": \"2.1\"", FUSED_FLASH1},
    {"h100-sxm-80gb", "nvswitch", ", \"torch\": \"2.2\"", FUSED_FLASH2},
    {"h100-sxm-80gb", "nvswitch", ", \"torch\": \"2.5.0\"", FUSED_CUDNN},
    {"h100-sxm-80gb", "nvswitch", ", \"torch\": \"2.5\"", FUSED_FLASH2},
    {"h100-sxm-80gb", "nvswitch", ", \"torch\": \"2.5.1\"", FUSED_FLASH2},
    {"h100-sxm-80gb", "nvswitch", ", \"torch\": \"2.10.1\"", FUSED_FLASH2},
    {"h100-sxm-80gb", "nvswitch", ", \"torch\": \"2.11\"", FUSED_CUDNN},
    {"h100-sxm-80gb", "nvswitch", ", \"torch\": \"2.11\", \"attention\": \"flash\"", FUSED_FLASH2},
    {"b200-sxm-180gb", "nvswitch", ", \"torch\": \"2.11\"", FUSED_CUDNN},
    {"b200-sxm-180gb", "nvswitch", ", \"torch\": \"2.5.0\"", FUSED_FLASH2},
    {"a100-sxm-80gb", "nvswitch", ", \"torch\": \"2.11\"", FUSED_FLASH2},
    /* sm_70 has no flash */
    {"v100-sxm2-32gb", "nvlink", "", FUSED_EFFICIENT},
    {"v100-sxm2-32gb", "nvlink", ", \"attention\": \"flash\"", FUSED_EFFICIENT},
    {"rtx4090-24gb", "pcie", "", FUSED_FLASH2},
};

START_TEST(a_name_a_version_and_a_device_mean_one_kernel)
{
  g_autoptr(GError) error = NULL;
  g_autoptr(Scenario) s =
      scenario_on(meanings[_i].device, meanings[_i].fabric, meanings[_i].implementation, &error);
  ck_assert_msg(s != NULL, "%s", error ? error->message : "");
  ck_assert_int_eq(variant_of(s, KERNEL_ATTENTION_FORWARD), meanings[_i].kernel);
  ck_assert_int_eq(variant_of(s, KERNEL_ATTENTION_BACKWARD), meanings[_i].kernel);
}
END_TEST

static const struct {
  const char *device, *fabric, *implementation, *message;
} refusals[] = {
    {"a100-sxm-80gb", "nvswitch", ", \"attention\": \"flash3\"",
     "net.json: key 'implementation.attention': device a100-sxm-80gb has no rates of flash3"},
    {"h100-sxm-80gb", "nvswitch", ", \"torch\": \"two\"",
     "net.json: key 'implementation.torch': 'two' is not a version of PyTorch: \"2.5\" or "
     "\"2.5.0\""},
    {"h100-sxm-80gb", "nvswitch", ", \"torch\": \"2\"",
     "net.json: key 'implementation.torch': '2' is not a version of PyTorch: \"2.5\" or "
     "\"2.5.0\""},
    {"h100-sxm-80gb", "nvswitch", ", \"torch\": \"2.5.0.1\"",
     "net.json: key 'implementation.torch': '2.5.0.1' is not a version of PyTorch: \"2.5\" or "
     "\"2.5.0\""},
    {"l40s-48gb", "nvswitch", "",
     "cluster.json: key 'intra_node': l40s-48gb has no NVLink: its fabric is pcie"},
};

START_TEST(what_a_device_cannot_do_is_refused)
{
  g_autoptr(GError) error = NULL;
  g_autoptr(Scenario) s =
      scenario_on(refusals[_i].device, refusals[_i].fabric, refusals[_i].implementation, &error);
  ck_assert_ptr_null(s);
  ck_assert_str_eq(error->message, refusals[_i].message);
}
END_TEST

/* Every preset runs what PyTorch would choose on it, in both 16-bit types. */
START_TEST(every_device_has_rates_of_what_pytorch_chooses)
{
  g_auto(GStrv) names = preset_names("device");
  static const int versions[] = {0, TORCH_VERSION(2, 1, 0), TORCH_VERSION(2, 5, 0),
                                 TORCH_VERSION(2, 11, 0)};
  for (guint i = 0; names[i]; i++) {
    g_autoptr(DeviceProfile) device = device_profile_load(names[i], NULL);
    ck_assert_ptr_nonnull(device);
    ck_assert(device_profile_runs(device, FUSED_EFFICIENT));
    for (guint v = 0; device->compute_capability >= 80 && v < G_N_ELEMENTS(versions); v++) {
      FusedAttention kernel =
          fused_attention_of(ATTENTION_SDPA, versions[v], device->compute_capability);
      ck_assert_msg(device_profile_runs(device, kernel), "%s: %s", names[i],
                    fused_attention_names[kernel]);
    }
  }
}
END_TEST

/* ---- under autocast */

enum { STEPS = 3 };

/* Peaks of three steps, allocated and reserved bytes, of transformers 5.24 with PyTorch 2.11's real
 * allocator on a stand-in device: positions in fp32 make queries and keys fp32, and autocast casts
 * them for the attention kernel. */
static const struct {
  const char *policy;
  gint64 allocated[STEPS], reserved[STEPS];
} autocast_runs[] = {
    {"none", {1090048512, 1629058560, 1622636032}, {1222639616, 1702887424, 1702887424}},
    {"full", {1100272128, 1190205952, 1190205952}, {1105199104, 1310720000, 1310720000}},
};

START_TEST(autocast_casts_the_operands_of_attention)
{
  g_autofree char *policy =
      g_strdup_printf("activation_checkpointing.policy=%s", autocast_runs[_i].policy);
  const char *const set[] = {policy, NULL};
  const Simulation simulation = {
      .network = "{'model_type': 'llama', 'hidden_size': 1024, 'intermediate_size': 2816, "
                 "'num_hidden_layers': 4, 'num_attention_heads': 16, 'num_key_value_heads': 4, "
                 "'vocab_size': 8000, 'max_position_embeddings': 4096, 'tie_word_embeddings': "
                 "false}",
      .plan = "{'strategy': 'none', 'batch': {'micro_batch': 2, 'sequence_length': 1024}, "
              "'precision': {'compute': 'bf16', 'autocast': true}, 'optimizer': "
              "{'implementation': 'fused'}}",
      .set = set};
  g_autoptr(Simulated) s = simulation_execute(&simulation, STEPS, G_MAXINT64);
  simulated_check(s);
  ck_assert_uint_eq(s->recording->steps->len, STEPS);
  for (guint i = 0; i < STEPS; i++) {
    const StepRecord *step = &g_array_index(s->recording->steps, StepRecord, i);
    ck_assert_int_eq(step->peak_allocated, autocast_runs[_i].allocated[i]);
    ck_assert_int_eq(step->peak_reserved, autocast_runs[_i].reserved[i]);
  }
}
END_TEST

Suite *
test_suite(void)
{
  Suite *suite = suite_create("fused_attention");
  TCase *tcase = tcase_create("fused_attention");
  suite_add_tcase(suite, tcase);
  tcase_add_loop_test(tcase, a_name_a_version_and_a_device_mean_one_kernel, 0,
                      G_N_ELEMENTS(meanings));
  tcase_add_loop_test(tcase, what_a_device_cannot_do_is_refused, 0, G_N_ELEMENTS(refusals));
  tcase_add_test(tcase, every_device_has_rates_of_what_pytorch_chooses);
  tcase_add_loop_test(tcase, autocast_casts_the_operands_of_attention, 0,
                      G_N_ELEMENTS(autocast_runs));
  return suite;
}
