/* process_place.h - where this process stands in a job that mpirun, srun or torchrun started. */
#ifndef HIGHWATER_CALIBRATE_PROCESS_PLACE_H
#define HIGHWATER_CALIBRATE_PROCESS_PLACE_H

#include "calibrate/device_probe.h"

/* Where the first process is met. */
typedef struct {
  char *host;
  int port;
} MeetingPoint;

/* From the launcher's environment variables; one process alone where there are none.  FALSE and
 * error when they contradict each other ("OMPI_COMM_WORLD_RANK: 9 is not in 0..7"). */
gboolean process_place_find(ProcessPlace *place, GError **error);

/* MASTER_ADDR and MASTER_PORT (29411); without the former this machine, if the whole job is on it,
 * or the first host of SLURM_JOB_NODELIST.  FALSE and error when nobody says.  The caller frees
 * point->host. */
gboolean meeting_point_find(const ProcessPlace *place, MeetingPoint *point, GError **error);

/* The first name of a list as Slurm writes them: "gpu[07-09,12],login" is "gpu07".  Caller frees.
 */
char *first_host(const char *list);

#endif
