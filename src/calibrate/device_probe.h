/* device_probe.h - what calibration asks of a device: facts, and samples of an experiment.
 *
 * The narrow place between the logic of measuring, which is plain C and tested with stand-ins, and
 * CUDA.  A probe speaks for all GPUs of its process, or, through probe_group.h, of a whole job. */
#ifndef HIGHWATER_CALIBRATE_DEVICE_PROBE_H
#define HIGHWATER_CALIBRATE_DEVICE_PROBE_H

#include <glib.h>

#include "calibrate/experiment.h"

#define PROBE_TEXT 96

/* Plain data, as Experiment.  0 and "" where the device does not say. */
typedef struct {
  char device[PROBE_TEXT]; /* "NVIDIA H200" */
  char driver[PROBE_TEXT], runtime[PROBE_TEXT], nccl[PROBE_TEXT];
  gint32 ranks;                                       /* GPUs of the job */
  gint32 ranks_of_node;                               /* of them, on this node */
  gint32 sms, max_threads_per_sm, compute_capability; /* 90 for sm_90 */
  gint64 memory_bytes;                                /* as the driver reports it */
  gint64 context_bytes;                               /* taken of it once a context is there */
  gint64 cache_bytes;                                 /* level 2 */
} ProbeFacts;

typedef struct _DeviceProbe DeviceProbe;

typedef struct {
  void (*describe)(DeviceProbe *probe, ProbeFacts *facts);
  /* Runs the experiment warmup + count times and appends count durations (double, ns) to samples:
   * of the slowest rank, iteration by iteration.  FALSE and error when the device cannot: nothing
   * is appended then, and other experiments may still be run. */
  gboolean (*sample)(DeviceProbe *probe, const Experiment *experiment, int warmup, int count,
                     GArray *samples, GError **error);
  /* What the tools of the vendor say about clocks, power and links now, for people; caller frees.
   * NULL: nothing, and the function may be NULL. */
  char *(*conditions)(DeviceProbe *probe);
  void (*close)(DeviceProbe *probe);
} DeviceProbeClass;

/* Probes begin with this. */
struct _DeviceProbe {
  const DeviceProbeClass *class;
};

static inline void
device_probe_close(DeviceProbe *probe)
{
  if (probe != NULL)
    probe->class->close(probe);
}
G_DEFINE_AUTOPTR_CLEANUP_FUNC(DeviceProbe, device_probe_close)

/* Where this process stands in its job. */
typedef struct {
  int rank, size;             /* of processes */
  int local_rank, local_size; /* of those on this node; local_size 0: not known */
} ProcessPlace;

/* What a device's library offers to device_probe_open(): opens the GPUs of this process, all of
 * them if it is alone on its node, else the one with its local rank.  `unique` has NCCL's unique id
 * (made on the job's first process by the module's id function). */
#define DEVICE_PROBE_ID_BYTES 128
typedef struct {
  /* Fills id; FALSE and error when NCCL is not there. */
  gboolean (*make_id)(char id[DEVICE_PROBE_ID_BYTES], GError **error);
  /* How many GPUs the process would use. */
  gboolean (*count)(const ProcessPlace *place, int *gpus, GError **error);
  /* first: rank of its first GPU among `ranks` of the job.  id NULL: no collectives. */
  DeviceProbe *(*open)(const ProcessPlace *place, int first, int ranks,
                       const char id[DEVICE_PROBE_ID_BYTES], GError **error);
} DeviceProbeModule;

/* The symbol of that type in the shared object, and its file. */
#define DEVICE_PROBE_SYMBOL "device_probe_module"
#define DEVICE_PROBE_FILE "device_probe_cuda.so"

/* Loads the module that was built with --with-cuda: from beside the program, or from where it was
 * installed.  CUDA's libraries take longer to load than a simulation takes, so the program itself
 * does not need them.  NULL and error when there is none.  Never unloaded. */
const DeviceProbeModule *device_probe_module_load(GError **error);

#endif
