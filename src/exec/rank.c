/* rank.c - what each op of a Program does: one function each, in a table. */
#include "exec/rank.h"

G_STATIC_ASSERT((int) RECORDED_PHASE == (int) RANGE_PHASE);
G_STATIC_ASSERT((int) RECORDED_MODULE == (int) RANGE_MODULE);
G_STATIC_ASSERT((int) RECORDED_HOOK == (int) RANGE_HOOK);

static gboolean
run_host_work(Rank *rank, const ProgramOp *op)
{
  host_thread_work(&rank->host, (HostWork) op->a, op->b);
  return TRUE;
}

static gboolean
run_launch(Rank *rank, const ProgramOp *op)
{
  gpu_launch(&rank->gpu, rank->host.now, op);
  return TRUE;
}

static gboolean
run_collective(Rank *rank, const ProgramOp *op)
{
  communicators_issue(&rank->communicators, &rank->gpu, rank->host.now, op);
  return TRUE;
}

static gboolean
run_event_record(Rank *rank, const ProgramOp *op)
{
  gpu_record(&rank->gpu, rank->host.now, (StreamId) op->stream, op->a);
  return TRUE;
}

static gboolean
run_stream_wait(Rank *rank, const ProgramOp *op)
{
  gpu_wait(&rank->gpu, rank->host.now, (StreamId) op->stream, op->a);
  return TRUE;
}

static gboolean
wait_for(Rank *rank, const GpuEvent *event, const char *call)
{
  SimTime start = rank->host.now;
  SyncPoint *point = event->point;
  if (!host_thread_wait(&rank->host, &point, 1))
    return FALSE;
  span_log_host(&rank->spans, SPAN_HOST_BLOCKED, call, start, rank->host.now);
  span_log_host_wait(&rank->spans, &(Wait){.start = start,
                                           .end = rank->host.now,
                                           .issued = start,
                                           .recorded = event->recorded,
                                           .stream = STREAM_HOST,
                                           .source = event->stream});
  return TRUE;
}

static gboolean
run_event_sync(Rank *rank, const ProgramOp *op)
{
  if (wait_for(rank, gpu_event(&rank->gpu, op->a), "cudaEventSynchronize"))
    return TRUE;
  rank->waits = g_strdup_printf("host waits for event %d", op->a);
  return FALSE;
}

static gboolean
run_stream_sync(Rank *rank, const ProgramOp *op)
{
  const GpuEvent end = {.point = gpu_mark(&rank->gpu, rank->host.now, (StreamId) op->stream),
                        .stream = op->stream};
  if (wait_for(rank, &end, "cudaStreamSynchronize"))
    return TRUE;
  rank->waits =
      g_strdup_printf("host waits for stream %s", program_stream_name((StreamId) op->stream));
  return FALSE;
}

static gboolean
run_alloc(Rank *rank, const ProgramOp *op)
{
  return device_memory_allocate(&rank->memory, op);
}

static gboolean
run_free(Rank *rank, const ProgramOp *op)
{
  device_memory_release(&rank->memory, op->a);
  return TRUE;
}

static gboolean
run_record_stream(Rank *rank, const ProgramOp *op)
{
  device_memory_record_stream(&rank->memory, op->a, (StreamId) op->stream);
  return TRUE;
}

static gboolean
run_empty_cache(Rank *rank, G_GNUC_UNUSED const ProgramOp *op)
{
  caching_allocator_empty_cache(rank->memory.allocator);
  return TRUE;
}

static gboolean
run_range_push(Rank *rank, const ProgramOp *op)
{
  Range range = {.kind = (guint8) op->b,
                 .micro_batch = op->c,
                 .name = labels_name(&rank->labels, op->a),
                 .module = labels_module(&rank->labels, op->module)};
  rank->depth++;
  if (op->b != RANGE_BEYOND) {
    recorder_push(rank->recorder, rank->host.now, &range);
    return TRUE;
  }
  range.kind = RECORDED_PHASE;
  rank->beyond_depth = rank->depth;
  rank->on_beyond(rank->user, TRUE);
  recorder_begin_beyond(rank->recorder, rank->host.now, &range);
  return TRUE;
}

static gboolean
run_range_pop(Rank *rank, G_GNUC_UNUSED const ProgramOp *op)
{
  recorder_pop(rank->recorder, rank->host.now);
  if (rank->depth-- == rank->beyond_depth) {
    rank->beyond_depth = 0;
    rank->on_beyond(rank->user, FALSE);
  }
  return TRUE;
}

/* Its time is that of the host work beside it. */
static gboolean
run_host_compute(G_GNUC_UNUSED Rank *rank, G_GNUC_UNUSED const ProgramOp *op)
{
  return TRUE;
}

/* Issues one op; FALSE ends the run. */
static gboolean (*const run_op[PROGRAM_OP_COUNT])(Rank *rank, const ProgramOp *op) = {
    [PROGRAM_HOST_WORK] = run_host_work,
    [PROGRAM_HOST_COMPUTE] = run_host_compute,
    [PROGRAM_HOST_REDUCE] = run_host_compute,
    [PROGRAM_LAUNCH] = run_launch,
    [PROGRAM_COPY] = run_launch,
    [PROGRAM_COLLECTIVE] = run_collective,
    [PROGRAM_EVENT_RECORD] = run_event_record,
    [PROGRAM_STREAM_WAIT] = run_stream_wait,
    [PROGRAM_EVENT_SYNC] = run_event_sync,
    [PROGRAM_STREAM_SYNC] = run_stream_sync,
    [PROGRAM_ALLOC] = run_alloc,
    [PROGRAM_FREE] = run_free,
    [PROGRAM_RECORD_STREAM] = run_record_stream,
    [PROGRAM_EMPTY_CACHE] = run_empty_cache,
    [PROGRAM_RANGE_PUSH] = run_range_push,
    [PROGRAM_RANGE_POP] = run_range_pop,
};

void
rank_init(Rank *rank, const RankSetup *setup)
{
  const Program *program = setup->timing->program;
  const DeviceProfile *device = setup->timing->cluster->device;
  Engine *engine = setup->engine;
  *rank = (Rank){.program = program, .speed = setup->speed};
  labels_init(&rank->labels, program, setup->recording);
  rank->recorder = recorder_new(setup->recording, device_memory_level, &rank->memory);
  if (setup->only_peaks)
    recorder_keep_only_peaks(rank->recorder);
  rank->spans = (SpanLog){.program = program,
                          .timing = setup->timing,
                          .labels = &rank->labels,
                          .engine = engine,
                          .recording = setup->recording,
                          .recorder = rank->recorder,
                          .speed = &rank->speed,
                          .seats = setup->seats};
  span_log_init(&rank->spans);
  progress_init(&rank->progress, device->clock == CLOCK_ENDLESS);
  rank->host = (HostThread){
      .engine = engine, .spans = &rank->spans, .progress = &rank->progress, .turn = setup->turn};
  host_thread_init(&rank->host, device);
  rank->gpu = (Gpu){.engine = engine,
                    .spans = &rank->spans,
                    .progress = &rank->progress,
                    .timing = setup->timing,
                    .group = timing_group_new(setup->timing, engine)};
  gpu_init(&rank->gpu, setup->name_suffix);
  rank->communicators =
      (Communicators){.engine = engine, .spans = &rank->spans, .timing = setup->timing};
  communicators_init(&rank->communicators, setup->seats, setup->name_suffix);
  rank->memory = (DeviceMemory){.program = program,
                                .labels = &rank->labels,
                                .host = &rank->host,
                                .gpu = &rank->gpu,
                                .recorder = rank->recorder};
  device_memory_init(&rank->memory, setup->allocator, device);
}

void
rank_clear(Rank *rank)
{
  device_memory_clear(&rank->memory);
  communicators_clear(&rank->communicators);
  gpu_clear(&rank->gpu);
  progress_clear(&rank->progress);
  span_log_clear(&rank->spans);
  recorder_free(rank->recorder);
  labels_clear(&rank->labels);
  g_free(rank->waits);
}

void
rank_begin(Rank *rank, int step, gboolean keeps_spans)
{
  span_log_begin(&rank->spans, step, keeps_spans);
  rank->gpu.slowness = rank_speed_factor(&rank->speed, step);
}

/* A list that repeats itself does so under new names. */
static void
begin_list(Rank *rank, const OpList *list)
{
  if (list == rank->last_list) {
    device_memory_carry(&rank->memory, list->carries);
    gpu_carry(&rank->gpu, list->event_carries);
  }
  rank->last_list = list;
}

gboolean
rank_run_until(Rank *rank, const OpList *list, SimTime time, guint *issued)
{
  begin_list(rank, list);
  for (*issued = 0; *issued < list->ops->len; (*issued)++) {
    const ProgramOp *op = &g_array_index(list->ops, ProgramOp, *issued);
    if (rank->host.now > time || !run_op[op->kind](rank, op))
      return FALSE;
  }
  return TRUE;
}

gboolean
rank_run(Rank *rank, const OpList *list)
{
  begin_list(rank, list);
  const ProgramOp *ops = (const ProgramOp *) (gconstpointer) list->ops->data;
  for (guint i = 0; i < list->ops->len; i++) {
    if (!run_op[ops[i].kind](rank, &ops[i]))
      return FALSE;
    if (rank->check_every > 0 && ++rank->unchecked == rank->check_every) {
      caching_allocator_check(rank->memory.allocator);
      rank->unchecked = 0;
    }
  }
  return TRUE;
}
