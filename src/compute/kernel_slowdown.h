/* kernel_slowdown.h - how much longer a kernel takes while others hold SMs and memory bandwidth. */
#ifndef HIGHWATER_COMPUTE_KERNEL_SLOWDOWN_H
#define HIGHWATER_COMPUTE_KERNEL_SLOWDOWN_H

#include "compute/kernel_model.h"

/* What collectives that run meanwhile take of the device. */
typedef struct {
  double sms;       /* of the device's; fewer than it has */
  double sm_factor; /* how much more than their share the lost SMs cost kernels whose tiles are not
                       known */
  double memory;    /* fraction of the memory's bandwidth, below 1 */
} KernelRivals;

/* Its duration beside them as a multiple of that alone, >= 1.  The roofline with what is left:
 * flops on fewer SMs (a matrix product in as many waves of tiles as that takes), bytes at less
 * bandwidth; floor and gap stay. */
double kernel_slowdown(const DeviceProfile *device, const KernelParts *parts,
                       const KernelRivals *rivals);

#endif
