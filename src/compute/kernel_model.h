/* kernel_model.h - how long a kernel takes on a device: rooflines, tiles and waves, clocks, launch
 * floor, gaps. */
#ifndef HIGHWATER_COMPUTE_KERNEL_MODEL_H
#define HIGHWATER_COMPUTE_KERNEL_MODEL_H

#include "base/units.h"
#include "program/program.h"
#include "spec/device_profile.h"

/* What a duration depends on beside the kernel and the device. */
typedef struct {
  int ranks; /* GPUs that wait for each other: the slowest sets the pace; 0 or 1: only this one */
} KernelRun;

/* A device in a run: what all its kernels share, worked out once. */
typedef struct {
  const DeviceProfile *device; /* borrowed */
  double clock;                /* that GEMM and attention run at, of the one in which the profile's
                                  rates were measured */
  double bandwidth;            /* bytes per second that kernels reach */
} KernelModel;

KernelModel kernel_model(const DeviceProfile *device, const KernelRun *run);

/* Duration of one kernel alone on the device, the gaps after its launches included:
 *   max(flops at the rate of its kind, bytes at the memory's rate, floor) + gap,
 * floor and gap for each of its launches; 0 where the device's clock does not run.  Monotone in
 * flops, bytes, launches and shape.  Attention's variant is a FusedAttention that the device runs.
 */
SimTime kernel_model_duration(const KernelModel *model, const Kernel *kernel);

/* What a kernel's duration is made of, ns. */
typedef struct {
  double flops_ns, bytes_ns; /* it takes the longer of the two, */
  double floor_ns;           /* or this if that is longer, */
  double gap_ns;             /* and this on top */
  double tiles;              /* of a matrix product's output, in the tiling it has; else 0 */
} KernelParts;

KernelParts kernel_model_parts(const KernelModel *model, const Kernel *kernel);
/* What parts add up to; and rounded, which is the duration where the device's clock runs. */
double kernel_parts_ns(const KernelParts *parts);
SimTime kernel_parts_duration(const KernelParts *parts);

#endif
