/* stand_in_probe.c - durations by the kernel model with constants of the test's choice, and by
 * alpha and beta, with noise on them. */
#include "stand_in_probe.h"

#include <math.h>

#include "base/units.h"
#include "collective/collective.h"
#include "compute/kernel_model.h"
#include "spec/dtype.h"

typedef struct {
  DeviceProbe probe;
  StandIn truth;
  GRand *random;
  int series, iterations;
} StandInProbe;

static double
kernel_ns(const StandIn *truth, const Experiment *e)
{
  double m = (double) e->m, n = (double) e->n, k = (double) e->k;
  Kernel kernel = {
      .kind = KERNEL_MEMORY, .dtype = e->dtype, .launches = 1, .bytes = (double) e->bytes};
  if (e->kind == EXPERIMENT_GEMM)
    kernel = (Kernel){.kind = KERNEL_GEMM,
                      .dtype = e->dtype,
                      .launches = 1,
                      .m = e->m,
                      .n = e->n,
                      .k = e->k,
                      .flops = 2 * m * n * k,
                      .bytes = dtype_size(e->dtype) * (m * n + m * k + n * k)};
  if (e->kind == EXPERIMENT_COPY_TO_DEVICE || e->kind == EXPERIMENT_COPY_TO_HOST)
    kernel.kind = KERNEL_COPY;
  KernelModel model = kernel_model(&truth->device, &(KernelRun){.ranks = truth->ranks});
  return (double) kernel_model_duration(&model, &kernel);
}

static double
true_ns(const StandIn *truth, const Experiment *e)
{
  switch ((ExperimentKind) e->kind) {
  case EXPERIMENT_LAUNCH:
    return truth->launch_ns;
  case EXPERIMENT_CUDA_MALLOC:
    return truth->device.cuda_malloc_ns;
  case EXPERIMENT_CUDA_FREE:
    return truth->device.cuda_free_ns;
  case EXPERIMENT_COLLECTIVE:
    return truth->alpha_ns + collective_factor(e->call.collective, e->call.group.ranks) *
                                 (double) e->call.bytes / truth->busbw * 1e9;
  default:
    return kernel_ns(truth, e);
  }
}

/* Sum of twelve uniform numbers less six: normal enough. */
static double
normal(GRand *random)
{
  double sum = -6;
  for (int i = 0; i < 12; i++)
    sum += g_rand_double(random);
  return sum;
}

static gboolean
sample(DeviceProbe *base, const Experiment *e, int warmup, int count, GArray *samples,
       GError **error)
{
  StandInProbe *probe = (StandInProbe *) base;
  const StandIn *truth = &probe->truth;
  gint64 bytes = MAX(e->bytes, e->call.bytes);
  if (truth->refuses_bytes > 0 && bytes > truth->refuses_bytes) {
    g_set_error(error, HIGHWATER_ERROR, HIGHWATER_ERROR_INPUT, "out of memory");
    return FALSE;
  }
  probe->series++;
  probe->iterations += warmup + count;
  for (int i = 0; i < count; i++) {
    double ns = true_ns(truth, e) * exp(truth->noise * normal(probe->random));
    if (g_rand_double(probe->random) < truth->outliers)
      ns *= 3;
    if (truth->slower > 0)
      ns *= truth->slower;
    g_array_append_val(samples, ns);
  }
  return TRUE;
}

static void
describe(DeviceProbe *base, ProbeFacts *facts)
{
  const StandIn *truth = &((StandInProbe *) base)->truth;
  *facts = (ProbeFacts){
      .device = "stand-in",
      .nccl = "1.2.3",
      .ranks = MAX(truth->ranks, 1),
      .ranks_of_node = MAX(truth->ranks, 1),
      .sms = truth->device.sms,
      .memory_bytes = truth->device.memory_bytes,
      .context_bytes = truth->device.context_bytes,
  };
}

static char *
conditions(DeviceProbe *base G_GNUC_UNUSED)
{
  return g_strdup("1.5 GHz, 20 degrees");
}

static void
close_probe(DeviceProbe *base)
{
  StandInProbe *probe = (StandInProbe *) base;
  g_rand_free(probe->random);
  g_free(probe);
}

static const DeviceProbeClass stand_in_class = {describe, sample, conditions, close_probe};

DeviceProbe *
stand_in_open(const StandIn *truth)
{
  StandInProbe *probe = g_new0(StandInProbe, 1);
  probe->probe.class = &stand_in_class;
  probe->truth = *truth;
  probe->random = g_rand_new_with_seed(truth->seed);
  return &probe->probe;
}

int
stand_in_series(const DeviceProbe *probe)
{
  return ((const StandInProbe *) probe)->series;
}

int
stand_in_iterations(const DeviceProbe *probe)
{
  return ((const StandInProbe *) probe)->iterations;
}
