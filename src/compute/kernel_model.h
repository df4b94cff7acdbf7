/* kernel_model.h - how long a kernel takes on a device: rooflines, launch floor, gaps. */
#ifndef HIGHWATER_COMPUTE_KERNEL_MODEL_H
#define HIGHWATER_COMPUTE_KERNEL_MODEL_H

#include "base/units.h"
#include "program/program.h"
#include "spec/device_profile.h"

/* Duration of one kernel alone on the device, the gaps after its launches included:
 *   max(flops at the rate of its kind, bytes at the memory's rate, floor) + gap,
 * floor and gap for each of its launches; 0 where the device's clock does not run.  Monotone in
 * flops, bytes, launches and shape. */
SimTime kernel_model_duration(const DeviceProfile *device, const Kernel *kernel);

/* What a kernel's duration is made of, ns. */
typedef struct {
  double flops_ns, bytes_ns; /* it takes the longer of the two, */
  double floor_ns;           /* or this if that is longer, */
  double gap_ns;             /* and this on top */
  double tiles;              /* of a matrix product's output, in the tiling it has; else 0 */
} KernelParts;

KernelParts kernel_model_parts(const DeviceProfile *device, const Kernel *kernel);

#endif
