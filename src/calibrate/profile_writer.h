/* profile_writer.h - a cluster file from a known cluster and what was measured. */
#ifndef HIGHWATER_CALIBRATE_PROFILE_WRITER_H
#define HIGHWATER_CALIBRATE_PROFILE_WRITER_H

#include <cjson/cJSON.h>

#include "calibrate/calibration.h"

/* The preset of a cluster whose GPU nccl-tests calls so ("NVIDIA H100 80GB HBM3"), with nodes of at
 * least so many GPUs if there is one; NULL: none.  Static. */
const char *profile_base_for(const char *gpu, int gpus_per_node);

/* A cluster file: that of base (preset or file), with the measured times of collectives
 * (CalibratedCollective) as tables, and the bandwidths that follow from them for groups of other
 * shapes.  Where two measure the same, the smaller time of each size counts.  resize: nodes are as
 * large as the tables of several nodes say, if they agree.  NULL and error when base cannot be
 * read. Caller frees. */
cJSON *profile_tree(const char *base, const GPtrArray *collectives, gboolean resize,
                    GError **error);

#endif
