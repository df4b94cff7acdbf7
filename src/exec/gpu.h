/* gpu.h - a rank's device: streams that run what the host issues, and CUDA events. */
#ifndef HIGHWATER_EXEC_GPU_H
#define HIGHWATER_EXEC_GPU_H

#include "engine/engine.h"
#include "exec/progress.h"
#include "exec/span_log.h"
#include "exec/timing.h"
#include "program/program.h"

/* What a CUDA event was last recorded as. */
typedef struct {
  SyncPoint *point; /* NULL: never recorded */
  SimTime recorded; /* when the host issued it */
  guint8 stream;    /* StreamId */
} GpuEvent;

typedef struct {
  Engine *engine;
  SpanLog *spans;
  Progress *progress;
  Stream *streams[STREAM_COUNT];
  const Timing *timing;
  double slowness;  /* kernels take so many times as long */
  RateGroup *group; /* kernels and collectives that slow each other down; NULL: nothing does */
  GpuEvent *events;
  int n_events;
} Gpu;

/* engine, spans, progress, timing and group are set already; the rest is filled in.  Streams are
 * called as the Program's, and what follows. */
void gpu_init(Gpu *gpu, const char *name_suffix);
void gpu_clear(Gpu *gpu);

/* Issues a LAUNCH or COPY; now is the host's time. */
void gpu_launch(Gpu *gpu, SimTime now, const ProgramOp *op);
/* cudaEventRecord and cudaStreamWaitEvent. */
void gpu_record(Gpu *gpu, SimTime now, StreamId stream, gint32 event);
void gpu_wait(Gpu *gpu, SimTime now, StreamId stream, gint32 event);
/* One that was never recorded has a point that never fires, so that waiting for it shows in the
 * engine's report. */
const GpuEvent *gpu_event(Gpu *gpu, gint32 event);

/* A point that fires when the stream has done all that was issued so far; of no event. */
SyncPoint *gpu_mark(Gpu *gpu, SimTime now, StreamId stream);
/* The same on every stream. */
void gpu_mark_all(Gpu *gpu, SimTime now, SyncPoint *points[STREAM_COUNT]);

/* Renames events (Carry). */
void gpu_carry(Gpu *gpu, const GArray *carries);

#endif
