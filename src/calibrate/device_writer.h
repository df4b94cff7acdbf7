/* device_writer.h - a device profile with measured constants in it, as a file. */
#ifndef HIGHWATER_CALIBRATE_DEVICE_WRITER_H
#define HIGHWATER_CALIBRATE_DEVICE_WRITER_H

#include <cjson/cJSON.h>

#include "calibrate/fit_device.h"

/* The preset that a device of that name and memory is nearest to ("NVIDIA H200" is
 * "h200-sxm-141gb"), or NULL.  Caller frees. */
char *device_preset_for(const ProbeFacts *facts);

/* The file of `base` (a preset or file) with the constants, and what the device says about itself,
 * in place of its own, each with a source that says so; `when` and the device's name go into it.
 * NULL and error when base cannot be read.  Caller frees. */
cJSON *device_profile_rewritten(const char *base, const GArray *constants, const ProbeFacts *facts,
                                const char *when, GError **error);

#endif
