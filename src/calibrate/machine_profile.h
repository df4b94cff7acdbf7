/* machine_profile.h - one cluster file with all that was measured: the device in it, its
 * collectives, what takes memory bandwidth from what. */
#ifndef HIGHWATER_CALIBRATE_MACHINE_PROFILE_H
#define HIGHWATER_CALIBRATE_MACHINE_PROFILE_H

#include "calibrate/fit_device.h"

typedef struct {
  const char *cluster; /* preset or file that it begins with */
  const char *device;  /* likewise, for the device */
  const Measurements *measured;
  const GArray *constants;      /* FittedConstant */
  const GPtrArray *collectives; /* CalibratedCollective */
  const char *when;             /* "2026-11-30" */
} MachineProfile;

/* The preset of a cluster that has such a device, one named after it if there is, with so many GPUs
 * a node if there is (0 or 1: not known); or NULL.  Caller frees. */
char *cluster_preset_for(const char *device, int gpus_per_node);
/* The file's text; NULL and error when a base cannot be read.  Caller frees. */
char *machine_profile_text(const MachineProfile *profile, GError **error);

#endif
