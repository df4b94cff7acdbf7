/* alive_tensors.h - tensors that are alive at a moment, the same tensors of all blocks as one line.
 */
#ifndef HIGHWATER_REPORT_ALIVE_TENSORS_H
#define HIGHWATER_REPORT_ALIVE_TENSORS_H

#include "record/recording.h"

/* Tensors of one category and name; numbers of blocks are left out of names, so that
 * "layers.*.attention.wq.weight" stands for all blocks. */
typedef struct {
  char *name; /* "layers.* add", "output.weight" */
  guint8 category;
  guint count;
  gint64 bytes; /* of all of them */
} AliveTensors;

/* AliveTensors, most bytes first, of LiveTensor (recording_live, PeakRecord.live).  Free with
 * g_ptr_array_unref. */
GPtrArray *alive_tensors(const Recording *recording, const GArray *live);

#endif
