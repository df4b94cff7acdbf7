/* kernel_slowdown.c - the roofline of a kernel on what collectives leave of the device. */
#include "compute/kernel_slowdown.h"
#include <math.h>

/* The SMs that a collective holds run no tiles, so these take more waves (ceil(tiles / SMs),
 * NVIDIA, "Matrix Multiplication Background User's Guide", "Wave Quantization").  Kernels that are
 * not tiled in a way that is known get longer by the SMs' share times a factor for tail waves and
 * power. */
static double
lost_sms(const DeviceProfile *device, const KernelParts *parts, const KernelRivals *rivals)
{
  double all = device->sms, left = all - rivals->sms;

  if (parts->tiles > 0)
    return ceil(parts->tiles / left) / ceil(parts->tiles / all);
  return 1 + rivals->sm_factor * rivals->sms / left;
}

double
kernel_slowdown(const DeviceProfile *device, const KernelParts *parts, const KernelRivals *rivals)
{
  g_assert(rivals->sms >= 0 && rivals->sms < device->sms);
  g_assert(rivals->memory >= 0 && rivals->memory < 1);
  double alone = kernel_parts_ns(parts);
  KernelParts beside = *parts;
  beside.flops_ns *= lost_sms(device, parts, rivals);
  beside.bytes_ns /= 1 - rivals->memory;
  return alone > 0 ? kernel_parts_ns(&beside) / alone : 1;
}
