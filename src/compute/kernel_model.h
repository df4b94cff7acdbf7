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

#endif
