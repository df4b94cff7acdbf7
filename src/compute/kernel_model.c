/* kernel_model.c - durations of kernels: the roofline of flops and bytes, tiles and waves of matrix
 * products, attention by generation, the floor and gap of each launch.
 *
 * Constants are the device profile's, each with its source there; formulas name theirs here. */
#include "compute/kernel_model.h"

#include <math.h>

#include "compute/straggler.h"

#define NS_PER_S 1e9

/* ---- the device in a run ---- */

/* A part under a lower power limit runs at a lower clock: power above idle goes with a power of the
 * clock (clock times voltage squared). */
static double
clock_under_power_limit(const DeviceProfile *device)
{
  double share =
      (device->power_limit - device->power_idle) / (device->power_reference - device->power_idle);
  return pow(share, device->power_exponent);
}

/* Clocks differ between GPUs of a kind (Sinha et al., "Not All GPUs Are Created Equal", arXiv
 * 2208.11035), and collectives make all wait for the slowest. */
KernelModel
kernel_model(const DeviceProfile *device, const KernelRun *run)
{
  double slowest = 1 - device->clock_spread * straggler_deviations(run->ranks);
  return (KernelModel){
      .device = device,
      .clock = clock_under_power_limit(device) * slowest,
      .bandwidth = device->memory_bandwidth * device->memory_efficiency,
  };
}

static double
peak_flops(const DeviceProfile *device, const Kernel *kernel)
{
  return device_profile_peak(device, (DType) kernel->dtype);
}

/* ---- memory ---- */

/* The latency comes on top, so small kernels reach less of the bandwidth: half of it at bandwidth x
 * latency bytes (Little's law). */
static double
bytes_ns(const KernelModel *model, double bytes)
{
  return model->device->memory_latency_ns + bytes / model->bandwidth * NS_PER_S;
}

/* Over the link to the host's memory; page-locked, which pageable memory is not as fast as. */
static double
copy_ns(const KernelModel *model, const Kernel *kernel)
{
  return kernel->bytes / model->device->host_copy_bandwidth * NS_PER_S;
}

/* ---- matrix products ---- */

typedef struct {
  double batch, m, n, k;
  double sm_flops; /* of one SM at the best tile, per second */
} Product;

/* How many products of m x n x k the kernel's flops are: a batched one has all of them. */
static double
batch_of(const Kernel *kernel)
{
  double one = 2.0 * (double) kernel->m * (double) kernel->n * (double) kernel->k;
  return one > 0 ? fmax(1, nearbyint(kernel->flops / one)) : 1;
}

/* A tiling of the output: what it takes, and how many tiles there are. */
typedef struct {
  double ns, tiles;
} Tiling;

/* Parts of the depth are computed by different SMs into fp32 partial results, which another kernel
 * reads again and adds (cuBLAS's split-K). */
static double
partial_sums_ns(const KernelModel *model, const Product *p, int parts)
{
  if (parts == 1)
    return 0;
  double elements = p->batch * p->m * p->n * parts;
  return fmax(bytes_ns(model, 2 * sizeof(float) * elements), model->device->kernel_floor_ns);
}

/* Tiles are worked on in waves of one per SM, the last wave as long as any (NVIDIA, "Matrix
 * Multiplication Background User's Guide", "Tile Quantization" and "Wave Quantization"). */
static Tiling
tiling(const KernelModel *model, const Product *p, const GemmTile *tile, int parts)
{
  const DeviceProfile *device = model->device;
  double tiles = ceil(p->m / tile->rows) * ceil(p->n / tile->columns) * p->batch;
  double pieces = tiles * parts;
  double waves = ceil(pieces / device->sms);
  double depth = p->k / parts + device->gemm_prologue;
  double tile_flops = 2.0 * tile->rows * tile->columns * depth;
  double seconds = waves * tile_flops / (p->sm_flops * tile->efficiency);
  return (Tiling){seconds * NS_PER_S + partial_sums_ns(model, p, parts), pieces};
}

/* The fastest tiling, as cuBLAS's heuristics look for. */
static Tiling
gemm_tiling(const KernelModel *model, const Kernel *kernel)
{
  const DeviceProfile *device = model->device;
  double flops = peak_flops(device, kernel) * device->gemm_efficiency * device->gemm_in_step;
  Product product = {
      .batch = batch_of(kernel),
      .m = (double) kernel->m,
      .n = (double) kernel->n,
      .k = (double) kernel->k,
      .sm_flops = flops * model->clock / device->sms,
  };
  Tiling best = {INFINITY, 0};
  for (int i = 0; i < device->gemm_tiles; i++)
    for (int parts = 1; parts <= device->gemm_split_k; parts *= 2) {
      Tiling one = tiling(model, &product, &device->gemm_tile[i], parts);
      if (one.ns < best.ns)
        best = one;
    }
  return best;
}

static double
gemm_ns(const KernelModel *model, const Kernel *kernel)
{
  return gemm_tiling(model, kernel).ns;
}

/* ---- attention ---- */

/* The profile's rows of a kernel with the next head dims below and above, or twice the only one. */
static void
rates_around(const DeviceProfile *device, const Kernel *kernel, const AttentionRate **below,
             const AttentionRate **above)
{
  *below = *above = NULL;
  for (int i = 0; i < device->attention_rates; i++) {
    const AttentionRate *rate = &device->attention[i];
    if (rate->kernel != (FusedAttention) kernel->variant)
      continue;
    if (rate->head_dim <= kernel->k && (*below == NULL || rate->head_dim > (*below)->head_dim))
      *below = rate;
    if (rate->head_dim >= kernel->k && (*above == NULL || rate->head_dim < (*above)->head_dim))
      *above = rate;
  }
  if (*below == NULL)
    *below = *above;
  if (*above == NULL)
    *above = *below;
}

/* On sequences of a length; s / (s + half) follows figures 5 and 6 of Shah et al.,
 * "FlashAttention-3", arXiv 2407.08608, within 6 %. */
static double
rate_at_length(const AttentionRate *rate, const Kernel *kernel)
{
  double length = (double) MAX(kernel->n, 1);
  gboolean forward = !kernel_is_attention_backward((KernelKind) kernel->kind);
  double most = forward ? rate->forward_flops : rate->backward_flops;
  double half = forward ? rate->forward_half_tokens : rate->backward_half_tokens;
  return most * length / (length + half);
}

/* Between two head dims the rate is in between.  The profile has rates of 16-bit operands; others
 * are as much slower as the device is. */
static double
attention_ns(const KernelModel *model, const Kernel *kernel)
{
  const DeviceProfile *device = model->device;
  const AttentionRate *below, *above;
  rates_around(device, kernel, &below, &above);
  g_assert(below != NULL);
  double low = rate_at_length(below, kernel), high = rate_at_length(above, kernel);
  double distance = above->head_dim - below->head_dim;
  double share = distance > 0 ? ((double) kernel->k - below->head_dim) / distance : 0;
  double rate = (low + share * (high - low)) * model->clock;
  double best = fmax(device->peak_bf16_flops, device->peak_fp16_flops);
  return kernel->flops / (rate * peak_flops(device, kernel) / best) * NS_PER_S;
}

/* ---- all ---- */

/* Element-wise arithmetic runs in fp32 outside the tensor cores. */
static double
plain_ns(const KernelModel *model, const Kernel *kernel)
{
  return kernel->flops / model->device->peak_fp32_flops * NS_PER_S;
}

static double (*const work_ns[KERNEL_KIND_COUNT])(const KernelModel *, const Kernel *) = {
    [KERNEL_MEMORY] = plain_ns,
    [KERNEL_GEMM] = gemm_ns,
    [KERNEL_ATTENTION_FORWARD] = attention_ns,
    [KERNEL_ATTENTION_BACKWARD] = attention_ns,
    [KERNEL_WHOLE_ATTENTION_FORWARD] = attention_ns,
    [KERNEL_WHOLE_ATTENTION_BACKWARD] = attention_ns,
    [KERNEL_OPTIMIZER] = plain_ns,
    [KERNEL_COPY] = copy_ns,
};

KernelParts
kernel_model_parts(const KernelModel *model, const Kernel *kernel)
{
  const DeviceProfile *device = model->device;
  gboolean product = kernel->kind == KERNEL_GEMM;
  Tiling tiling = product ? gemm_tiling(model, kernel) : (Tiling){0};
  return (KernelParts){
      .flops_ns = product ? tiling.ns : work_ns[kernel->kind](model, kernel),
      .bytes_ns = bytes_ns(model, kernel->bytes),
      .floor_ns = device->kernel_floor_ns * kernel->launches,
      .gap_ns = device->kernel_gap_ns * kernel->launches,
      .tiles = tiling.tiles,
  };
}

double
kernel_parts_ns(const KernelParts *parts)
{
  return fmax(fmax(parts->flops_ns, parts->bytes_ns), parts->floor_ns) + parts->gap_ns;
}

SimTime
kernel_parts_duration(const KernelParts *parts)
{
  return (SimTime) (kernel_parts_ns(parts) + 0.5);
}

SimTime
kernel_model_duration(const KernelModel *model, const Kernel *kernel)
{
  if (model->device->clock != CLOCK_RUNNING)
    return 0;
  KernelParts parts = kernel_model_parts(model, kernel);
  return kernel_parts_duration(&parts);
}
