/* fit_device.c - one constant after the other, each the value with which half of the experiments it
 * rests on are modelled too slow and half too fast. */
#include "calibrate/fit_device.h"

#include <math.h>

#include "base/units.h"
#include "compute/kernel_model.h"

/* ---- the model of an experiment ---- */

static Kernel
kernel_of(const Experiment *e)
{
  Kernel kernel = {.kind = KERNEL_MEMORY, .dtype = e->dtype, .launches = 1};
  double m = (double) e->m, n = (double) e->n, k = (double) e->k;
  double batch = (double) MAX(e->batch, 1);
  switch (e->kind) {
  case EXPERIMENT_GEMM:
    kernel.kind = KERNEL_GEMM;
    kernel.m = e->m;
    kernel.n = e->n;
    kernel.k = e->k;
    kernel.flops = 2 * m * n * k * batch;
    kernel.bytes = dtype_size(e->dtype) * (m * k + n * k + m * n) * batch;
    break;
  case EXPERIMENT_COPY_TO_DEVICE:
  case EXPERIMENT_COPY_TO_HOST:
    kernel.kind = KERNEL_COPY;
    kernel.bytes = (double) e->bytes;
    break;
  default:
    kernel.bytes = (double) e->bytes;
  }
  return kernel;
}

typedef struct {
  DeviceProfile device;
  int ranks;        /* GPUs of which the slowest was measured */
  gboolean in_step; /* kernels of a step, without the gaps behind them */
} Fitting;

static double
model_ns(const Fitting *fitting, const Experiment *e)
{
  const DeviceProfile *device = &fitting->device;
  if (e->kind == EXPERIMENT_CUDA_MALLOC)
    return device->cuda_malloc_ns;
  if (e->kind == EXPERIMENT_CUDA_FREE)
    return device->cuda_free_ns;
  Kernel kernel = kernel_of(e);
  KernelModel model = kernel_model(device, &(KernelRun){.ranks = fitting->ranks});
  double gap = fitting->in_step ? kernel_model_parts(&model, &kernel).gap_ns : 0;
  return (double) kernel_model_duration(&model, &kernel) - gap;
}

/* ---- what rests on what ---- */

/* Smaller sizes than this show the floor of a launch, not the bandwidth. */
#define BANDWIDTH_BYTES (16 * MIB)

typedef struct {
  const char *key;
  glong offset;               /* of a double in DeviceProfile */
  double scale;               /* of the file's unit */
  double low, high;           /* where it is looked for, in the file's unit */
  ExperimentKind first, last; /* the kinds of experiments */
  gint64 least_bytes;
} Rule;

#define FIELD(name) G_STRUCT_OFFSET(DeviceProfile, name)

/* In this order: later ones are modelled with the earlier ones' values. */
static const Rule rules[] = {
    {"kernel_floor_us", FIELD(kernel_floor_ns), 1e3, 0, 100, EXPERIMENT_KERNEL, EXPERIMENT_KERNEL,
     0},
    {"memory_efficiency", FIELD(memory_efficiency), 1, 0.01, 1, EXPERIMENT_MEMORY,
     EXPERIMENT_MEMORY, BANDWIDTH_BYTES},
    {"gemm_efficiency", FIELD(gemm_efficiency), 1, 0.01, 1, EXPERIMENT_GEMM, EXPERIMENT_GEMM, 0},
    {"host_copy_gb_per_s", FIELD(host_copy_bandwidth), 1e9, 0.01, 1e5, EXPERIMENT_COPY_TO_DEVICE,
     EXPERIMENT_COPY_TO_HOST, BANDWIDTH_BYTES},
    {"cuda_malloc_us", FIELD(cuda_malloc_ns), 1e3, 0, 1e5, EXPERIMENT_CUDA_MALLOC,
     EXPERIMENT_CUDA_MALLOC, 0},
    {"cuda_free_us", FIELD(cuda_free_ns), 1e3, 0, 1e5, EXPERIMENT_CUDA_FREE, EXPERIMENT_CUDA_FREE,
     0},
};

static GPtrArray *
experiments_of(const Rule *rule, const Measurements *measured)
{
  GPtrArray *chosen = g_ptr_array_new();
  for (guint i = 0; i < measured->measurements->len; i++) {
    Measurement *m = g_ptr_array_index(measured->measurements, i);
    const Experiment *e = &m->experiment;
    if (m->median_ns > 0 && e->beside == BESIDE_NOTHING && e->kind >= rule->first &&
        e->kind <= rule->last && e->bytes >= rule->least_bytes)
      g_ptr_array_add(chosen, m);
  }
  return chosen;
}

static void
set_constant(DeviceProfile *device, const Rule *rule, double value)
{
  *(double *) ((char *) device + rule->offset) = value * rule->scale;
}

/* ---- fit ---- */

static double *
log_ratios(const Fitting *fitting, const GPtrArray *chosen)
{
  double *ratios = g_new(double, chosen->len);
  for (guint i = 0; i < chosen->len; i++) {
    const Measurement *m = g_ptr_array_index(chosen, i);
    ratios[i] = log(fmax(model_ns(fitting, &m->experiment), 1) / m->median_ns);
  }
  return ratios;
}

static double
median_log_ratio(Fitting *fitting, const Rule *rule, const GPtrArray *chosen, double value)
{
  set_constant(&fitting->device, rule, value);
  g_autofree double *ratios = log_ratios(fitting, chosen);
  return sample_stats(ratios, chosen->len).median;
}

/* Model times are monotone in every constant, so their median ratio is, and it is halved towards
 * zero; at an end of the range where it has no zero. */
static double
solve(Fitting *fitting, const Rule *rule, const GPtrArray *chosen)
{
  double low = rule->low, high = rule->high;
  double at_low = median_log_ratio(fitting, rule, chosen, low);
  double at_high = median_log_ratio(fitting, rule, chosen, high);
  if ((at_low > 0) == (at_high > 0))
    return fabs(at_low) < fabs(at_high) ? low : high;
  for (int i = 0; i < 60; i++) {
    double middle = (low + high) / 2;
    if ((median_log_ratio(fitting, rule, chosen, middle) > 0) == (at_low > 0))
      low = middle;
    else
      high = middle;
  }
  return (low + high) / 2;
}

/* A value of four digits: more are not measured. */
static double
rounded(double value)
{
  char text[32];
  return g_ascii_strtod(g_ascii_formatd(text, sizeof(text), "%.4g", value), NULL);
}

static void
judge(FittedConstant *constant, const Fitting *fitting, const GPtrArray *chosen)
{
  g_autofree double *errors = log_ratios(fitting, chosen);
  guint worst = 0;
  for (guint i = 0; i < chosen->len; i++) {
    errors[i] = fabs(expm1(errors[i]));
    if (errors[i] > errors[worst])
      worst = i;
  }
  const Measurement *m = g_ptr_array_index(chosen, worst);
  constant->worst = experiment_text(&m->experiment);
  constant->worst_error = errors[worst];
  g_autofree double *sorted = sample_sorted(errors, chosen->len);
  constant->median_error = sample_quantile(sorted, chosen->len, 0.5);
  constant->p90_error = sample_quantile(sorted, chosen->len, 0.9);
}

static FittedConstant
fit_constant(Fitting *fitting, const Rule *rule, const Measurements *measured)
{
  double base = *(double *) ((char *) &fitting->device + rule->offset) / rule->scale;
  FittedConstant constant = {.key = rule->key, .value = base, .base = base};
  g_autoptr(GPtrArray) chosen = experiments_of(rule, measured);
  constant.experiments = (int) chosen->len;
  if (chosen->len == 0)
    return constant;
  constant.value = rounded(solve(fitting, rule, chosen));
  set_constant(&fitting->device, rule, constant.value);
  judge(&constant, fitting, chosen);
  return constant;
}

static void
constant_clear(gpointer constant)
{
  g_free(((FittedConstant *) constant)->worst);
}

GArray *
fit_device(const DeviceProfile *base, const Measurements *measured)
{
  GArray *constants = g_array_new(FALSE, FALSE, sizeof(FittedConstant));
  g_array_set_clear_func(constants, constant_clear);
  /* A step's trace is of one GPU. */
  Fitting fitting = {*base, measured->in_step ? 1 : measured->facts.ranks, measured->in_step};
  fitting.device.clock = CLOCK_RUNNING;
  /* What a step takes from a product's rate is not seen in products alone. */
  if (!measured->in_step)
    fitting.device.gemm_in_step = 1;
  for (guint i = 0; i < G_N_ELEMENTS(rules); i++) {
    FittedConstant constant = fit_constant(&fitting, &rules[i], measured);
    g_array_append_val(constants, constant);
  }
  return constants;
}
