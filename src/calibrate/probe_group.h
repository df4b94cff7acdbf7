/* probe_group.h - the devices of all processes of a job as one probe.  The first process decides
 * what is measured; the others do it at the same time and tell how long it took. */
#ifndef HIGHWATER_CALIBRATE_PROBE_GROUP_H
#define HIGHWATER_CALIBRATE_PROBE_GROUP_H

#include "calibrate/device_probe.h"
#include "calibrate/process_place.h"

typedef struct {
  const DeviceProbeModule *module;
  ProcessPlace place; /* rank and size; the others are found out */
  MeetingPoint point; /* not used by a job of one process */
  int listener;       /* of the first process: a socket that listens already, or -1 */
  double patience_s;  /* for the others to appear */
} ProbeJob;

/* The first process: opens its devices when all others have come, and returns the probe of the
 * job; closing it lets the others go.  NULL and error when one of them cannot. */
DeviceProbe *probe_group_open(const ProbeJob *job, GError **error);
/* The others: serve until the first closes its probe.  FALSE and error when something broke. */
gboolean probe_group_serve(const ProbeJob *job, GError **error);

#endif
