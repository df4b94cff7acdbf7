/* gpu.c - launches and events as items on the engine's streams. */
#include "exec/gpu.h"

void
gpu_init(Gpu *gpu, const char *name_suffix)
{
  gpu->slowness = 1;
  gpu->n_events = gpu->timing->program->events;
  for (int i = 0; i < STREAM_COUNT; i++) {
    g_autofree char *name = g_strconcat(program_stream_name((StreamId) i), name_suffix, NULL);
    gpu->streams[i] = stream_new(gpu->engine, name);
  }
  gpu->events = g_new0(GpuEvent, (gsize) gpu->n_events);
}

void
gpu_clear(Gpu *gpu)
{
  g_free(gpu->events);
}

void
gpu_launch(Gpu *gpu, SimTime now, const ProgramOp *op)
{
  const Kernel *kernel = &g_array_index(gpu->timing->program->kernels, Kernel, op->a);
  Work work = {.duration = timing_kernel(gpu->timing, op->a, gpu->slowness)};
  if (kernel->kind != KERNEL_COPY) { /* what moves over the host's link takes no SMs */
    work.group = gpu->timing->contends ? gpu->group : NULL;
    work.rate_class = timing_kernel_class(gpu->timing, op->a);
  }
  span_log_observe(gpu->spans, now, op, &work);
  stream_submit(gpu->streams[op->stream], now, &work);
}

void
gpu_record(Gpu *gpu, SimTime now, StreamId stream, gint32 event)
{
  /* A new point each time: who waited for an earlier record may still be in a queue. */
  SyncPoint *point = sync_point_new(gpu->engine, "event", event);
  gpu->events[event] = (GpuEvent){point, now, (guint8) stream};
  stream_record(gpu->streams[stream], now, point);
  progress_record(gpu->progress, stream, point);
}

const GpuEvent *
gpu_event(Gpu *gpu, gint32 event)
{
  if (gpu->events[event].point == NULL)
    gpu->events[event].point = sync_point_new(gpu->engine, "event", event);
  return &gpu->events[event];
}

void
gpu_wait(Gpu *gpu, SimTime now, StreamId stream, gint32 event)
{
  const GpuEvent *of = gpu_event(gpu, event);
  const SpanWait wait = {.point = of->point,
                         .issued = now,
                         .recorded = of->recorded,
                         .stream = (guint8) stream,
                         .source = of->stream};
  span_log_wait(gpu->spans, &wait);
  stream_wait(gpu->streams[stream], now, of->point);
  progress_wait(gpu->progress, stream, of->point);
}

SyncPoint *
gpu_mark(Gpu *gpu, SimTime now, StreamId stream)
{
  SyncPoint *point = sync_point_new(gpu->engine, "end of stream", stream);
  stream_record(gpu->streams[stream], now, point);
  progress_record(gpu->progress, stream, point);
  return point;
}

void
gpu_mark_all(Gpu *gpu, SimTime now, SyncPoint *points[STREAM_COUNT])
{
  for (int i = 0; i < STREAM_COUNT; i++)
    points[i] = gpu_mark(gpu, now, (StreamId) i);
}

void
gpu_carry(Gpu *gpu, const GArray *carries)
{
  /* All at once: a name may be given away and taken over. */
  g_autofree GpuEvent *moved = g_new(GpuEvent, carries->len);
  for (guint i = 0; i < carries->len; i++)
    moved[i] = gpu->events[g_array_index(carries, Carry, i).from];
  for (guint i = 0; i < carries->len; i++)
    gpu->events[g_array_index(carries, Carry, i).to] = moved[i];
}
