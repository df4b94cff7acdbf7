/* traced_ops.h - what the kernels of a step's trace say about the device: products, element-wise
 * kernels, copies and collectives as measured experiments. */
#ifndef HIGHWATER_CALIBRATE_TRACED_OPS_H
#define HIGHWATER_CALIBRATE_TRACED_OPS_H

#include "calibrate/measure.h"
#include "import/kineto_trace.h"

/* What a row measures; FALSE: nothing that constants rest on. */
gboolean traced_experiment(const KinetoRow *row, Experiment *experiment);
/* Likewise, of NCCL's kernels. */
gboolean traced_collective(const KinetoCollective *collective, Experiment *experiment);

/* What the caller knows better than the trace; 0: not. */
typedef struct {
  int ranks, nodes;
} TracedJob;

/* The experiments of a trace.  Samples are runs with no collective beside them (a row that has none
 * is left out); of a collective all, and the least stands for it: there its rank was the last to
 * come, and the kernel waited for nobody. */
Measurements *traced_measurements(const KinetoTrace *trace, TracedJob job);

#endif
