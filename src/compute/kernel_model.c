/* kernel_model.c - durations of kernels: the roofline of flops and bytes, tiles and waves of matrix
 * products, the knee of attention, the floor and gap of each launch. */
#include "compute/kernel_model.h"
#include <math.h>

#define NS_PER_S 1e9

static gboolean
is_half(const Kernel *kernel)
{
  return kernel->dtype == DTYPE_BF16 || kernel->dtype == DTYPE_FP16;
}

static double
bytes_ns(const DeviceProfile *device, double bytes)
{
  return bytes / (device->memory_bandwidth * device->memory_efficiency) * NS_PER_S;
}

/* Over the link to the host's memory; page-locked, which pageable memory is not as fast as. */
static double
copy_ns(const DeviceProfile *device, const Kernel *kernel)
{
  return kernel->bytes / device->host_copy_bandwidth * NS_PER_S;
}

/* ---- matrix products ---- */

/* Tiles of the output that one SM works on at a time, and how fast it is at them beside the
 * largest. The sizes, and that larger ones are more efficient, are those of cuBLAS as NVIDIA's
 * "Matrix Multiplication Background User's Guide" lists them; the factors are estimates. */
static const struct {
  int rows, columns;
  double efficiency;
} tiles[] = {
    {256, 128, 1.00},
    {128, 128, 0.93},
    {128, 64, 0.80},
    {64, 64, 0.62},
};

/* What filling and draining a tile's pipeline costs, as so much more depth: an estimate. */
#define TILE_PROLOGUE 128

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

/* The fastest tiling.  Tiles are worked on in waves of one per SM, the last wave as long as any
 * (same guide, "Tile Quantization" and "Wave Quantization"). */
static Tiling
gemm_tiling(const DeviceProfile *device, const Kernel *kernel)
{
  double peak = is_half(kernel) ? device->peak_bf16_flops : device->peak_fp32_flops;
  double sm_flops = peak * device->gemm_efficiency / device->sms;
  double depth = (double) kernel->k + TILE_PROLOGUE;
  double batch = batch_of(kernel);
  Tiling best = {INFINITY, 0};

  for (guint i = 0; i < G_N_ELEMENTS(tiles); i++) {
    double rows = ceil((double) kernel->m / tiles[i].rows);
    double columns = ceil((double) kernel->n / tiles[i].columns);
    double waves = ceil(batch * rows * columns / device->sms);
    double tile_flops = 2.0 * tiles[i].rows * tiles[i].columns * depth;
    double ns = waves * tile_flops / (sm_flops * tiles[i].efficiency) * NS_PER_S;

    if (ns < best.ns)
      best = (Tiling){ns, batch * rows * columns};
  }
  return best;
}

static double
gemm_flops_ns(const DeviceProfile *device, const Kernel *kernel)
{
  return gemm_tiling(device, kernel).ns;
}

/* ---- attention ---- */

/* Sequence length at which attention runs at half its final rate.  With it s/(s + knee) follows the
 * rates over 512 to 16384 tokens in figures 5 and 6 of Shah et al., "FlashAttention-3", arXiv
 * 2407.08608, within 6 %. */
#define ATTENTION_KNEE 350

static double
attention_flops_ns(const DeviceProfile *device, const Kernel *kernel)
{
  double rate = kernel->kind == KERNEL_ATTENTION_FORWARD ? device->attention_forward_flops
                                                         : device->attention_backward_flops;
  double length = (double) MAX(kernel->n, 1);

  /* The profile has the rates of 16-bit operands; others are as much slower as the device is. */
  if (!is_half(kernel))
    rate *= device->peak_fp32_flops / device->peak_bf16_flops;
  return kernel->flops / (rate * length / (length + ATTENTION_KNEE)) * NS_PER_S;
}

/* ---- all ---- */

/* Element-wise arithmetic runs in fp32 outside the tensor cores. */
static double
plain_flops_ns(const DeviceProfile *device, const Kernel *kernel)
{
  return kernel->flops / device->peak_fp32_flops * NS_PER_S;
}

static double (*const flops_ns[KERNEL_KIND_COUNT])(const DeviceProfile *, const Kernel *) = {
    [KERNEL_MEMORY] = plain_flops_ns,
    [KERNEL_GEMM] = gemm_flops_ns,
    [KERNEL_ATTENTION_FORWARD] = attention_flops_ns,
    [KERNEL_ATTENTION_BACKWARD] = attention_flops_ns,
    [KERNEL_OPTIMIZER] = plain_flops_ns,
    [KERNEL_COPY] = copy_ns,
};

KernelParts
kernel_model_parts(const DeviceProfile *device, const Kernel *kernel)
{
  return (KernelParts){
      .flops_ns = flops_ns[kernel->kind](device, kernel),
      .bytes_ns = bytes_ns(device, kernel->bytes),
      .floor_ns = device->kernel_floor_ns * kernel->launches,
      .gap_ns = device->kernel_gap_ns * kernel->launches,
      .tiles = kernel->kind == KERNEL_GEMM ? gemm_tiling(device, kernel).tiles : 0,
  };
}

SimTime
kernel_model_duration(const DeviceProfile *device, const Kernel *kernel)
{
  if (device->clock != CLOCK_RUNNING)
    return 0;
  KernelParts parts = kernel_model_parts(device, kernel);
  double work_ns = fmax(parts.flops_ns, parts.bytes_ns);
  return (SimTime) (fmax(work_ns, parts.floor_ns) + parts.gap_ns + 0.5);
}
