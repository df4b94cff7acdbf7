/* executor.c - a whole run: construction, steps one after another, and what is known only at the
 * end. */
#include "exec/executor.h"

#include "exec/rank.h"

/* With HIGHWATER_CHECK=1 the allocator is checked every so many ops. */
#define CHECK_EVERY 1000

typedef struct {
  const Program *program;
  const ExecutorConfig *config;
  Recording *recording;
  Engine *engine;
  Rank rank;
  GPtrArray *ends;   /* SyncPoint *: STREAM_COUNT a step, that say when it is done */
  GPtrArray *beyond; /* SyncPoint *: twice STREAM_COUNT a phase beyond: what came before it, and its
                        own */
  int step;
  gboolean is_over; /* the construction, or step */
} Executor;

static gboolean
checks_asked_for(void)
{
  return g_strcmp0(g_getenv("HIGHWATER_CHECK"), "1") == 0;
}

static void
check_program_rules(const Program *program)
{
  g_autoptr(GError) error = NULL;
  if (!program_check(program, &error))
    g_error("the Program breaks its rules: %s", error->message);
}

static gboolean
keeps_spans(const Executor *executor, int step)
{
  return executor->config->keep_spans || step == executor->program->steps;
}

/* What the steps will leave in the Recording is known beforehand. */
static void
reserve_recording(Executor *executor)
{
  const Program *program = executor->program;
  guint memory = 0, ranges = 0, spans = 0;
  for (int step = 0; step < program->steps; step++) {
    guint counts[PROGRAM_OP_COUNT] = {0};
    const GArray *ops = program_step(program, step)->ops;
    for (guint i = 0; i < ops->len; i++)
      counts[g_array_index(ops, ProgramOp, i).kind]++;
    memory += counts[PROGRAM_ALLOC] + counts[PROGRAM_FREE];
    ranges += counts[PROGRAM_RANGE_PUSH];
    if (keeps_spans(executor, step + 1))
      spans += counts[PROGRAM_LAUNCH] + counts[PROGRAM_COPY] + counts[PROGRAM_COLLECTIVE];
  }
  recorder_reserve(executor->rank.recorder, memory, ranges, spans);
}

/* Remembers when all that was issued so far is done. */
static void
mark_all(Executor *executor, GPtrArray *into)
{
  SyncPoint *ends[STREAM_COUNT];
  gpu_mark_all(&executor->rank.gpu, executor->rank.host.now, ends);
  for (int i = 0; i < STREAM_COUNT; i++)
    g_ptr_array_add(into, ends[i]);
}

static gboolean
wait_for_device(Executor *executor)
{
  Rank *rank = &executor->rank;
  SyncPoint *ends[STREAM_COUNT];
  gpu_mark_all(&rank->gpu, rank->host.now, ends);
  return host_thread_wait(&rank->host, ends, STREAM_COUNT);
}

static gboolean
end_construction(Executor *executor)
{
  gboolean goes_on = wait_for_device(executor);
  if (executor->recording->out_of_memory.happened)
    recorder_close_ranges(executor->rank.recorder, executor->rank.host.now);
  recorder_end_construction(executor->rank.recorder);
  if (executor->config->built_elsewhere)
    caching_allocator_set_limit(executor->rank.memory.allocator,
                                executor->config->allocator.memory_limit);
  return goes_on;
}

/* The first phase beyond a step (or the construction) ends it. */
static void
on_beyond(gpointer user, gboolean begins)
{
  Executor *executor = user;
  if (begins && !executor->is_over) {
    executor->is_over = TRUE;
    if (executor->step == 0)
      end_construction(executor);
    else
      mark_all(executor, executor->ends);
  }
  mark_all(executor, executor->beyond);
}

/* Builds the model, then waits for the device, as a training script does before its loop. */
static gboolean
run_construction(Executor *executor)
{
  Rank *rank = &executor->rank;
  span_log_begin(&rank->spans, 0, executor->config->keep_spans);
  gboolean goes_on = rank_run(rank, g_ptr_array_index(executor->program->lists, 0));
  if (executor->is_over)
    return wait_for_device(executor) && goes_on;
  return end_construction(executor) && goes_on;
}

/* FALSE when the run ends in this step. */
static gboolean
issue_step(Executor *executor, int step)
{
  const OpList *list = program_step(executor->program, step - 1);
  const ExecutorConfig *config = executor->config;
  if (config->stop_at == 0)
    return rank_run(&executor->rank, list);
  ExecutorStop stop = {.step = step};
  gboolean goes_on = rank_run_until(&executor->rank, list, config->stop_at, &stop.ops);
  if (config->stop != NULL)
    *config->stop = stop;
  return goes_on && executor->rank.host.now <= config->stop_at;
}

/* step: from 1. */
static gboolean
run_step(Executor *executor, int step)
{
  Rank *rank = &executor->rank;
  executor->step = step;
  executor->is_over = FALSE;
  span_log_begin(&rank->spans, step, keeps_spans(executor, step));
  recorder_begin_step(rank->recorder, rank->host.now);
  gboolean goes_on = issue_step(executor, step);
  recorder_end_step(rank->recorder, rank->host.now);
  if (!executor->is_over)
    mark_all(executor, executor->ends);
  /* Keeps what is queued short; the device is not drained. */
  host_thread_look(&rank->host);
  return goes_on;
}

/* When the points marked in mark_all() number i fired; the run's end for those that never will. */
static SimTime
time_of_mark(const Executor *executor, const GPtrArray *marks, guint i)
{
  SimTime stop = executor->config->stop_at, done = 0;
  SimTime last = stop > 0 ? stop : engine_now(executor->engine);
  for (guint j = i * STREAM_COUNT; j < (i + 1) * STREAM_COUNT; j++) {
    SyncPoint *end = j < marks->len ? g_ptr_array_index(marks, j) : NULL;
    done = MAX(done, end != NULL && sync_point_fired(end) ? sync_point_time(end) : last);
  }
  return stop > 0 ? MIN(done, stop) : done;
}

static void
record_ends(Executor *executor)
{
  Recorder *recorder = executor->rank.recorder;
  for (guint i = 0; i < executor->recording->steps->len; i++)
    recorder_step_done(recorder, i, time_of_mark(executor, executor->ends, i));
  for (guint i = 0; i < executor->recording->beyond->len; i++)
    recorder_beyond_done(recorder, i, time_of_mark(executor, executor->beyond, 2 * i),
                         time_of_mark(executor, executor->beyond, 2 * i + 1));
}

static void
record_stuck(Executor *executor)
{
  g_autofree char *report = engine_stuck_report(executor->engine);
  const char *host = executor->rank.waits;
  if (host == NULL && report[0] == '\0')
    return;
  executor->recording->stuck =
      g_strconcat(host != NULL ? host : "", host != NULL && report[0] != '\0' ? "\n" : "",
                  g_strchomp(report), NULL);
}

/* Drops what a host that waited beyond the moment of the stop has seen end. */
static void
drop_later_spans(Executor *executor)
{
  GArray *spans = executor->recording->spans;
  guint n = spans->len;
  while (n > 0 && g_array_index(spans, Span, n - 1).end > executor->config->stop_at)
    n--;
  g_array_set_size(spans, n);
}

static void
finish(Executor *executor)
{
  SimTime stop = executor->config->stop_at;
  if (stop == 0) {
    engine_run(executor->engine);
    record_stuck(executor);
  } else {
    engine_run_to(executor->engine, MAX(stop, engine_now(executor->engine)));
    drop_later_spans(executor);
  }
  record_ends(executor);
  for (int i = 0; i < STREAM_COUNT; i++) {
    gint64 bytes = caching_allocator_cached_bytes(executor->rank.memory.allocator, i);
    g_array_append_val(executor->recording->cached, bytes);
  }
  recorder_finish(executor->rank.recorder);
}

static Recording *
describe_run(const ExecutorConfig *config)
{
  Recording *recording = recording_new();
  g_free(recording->title);
  recording->title = g_strdup(config->title != NULL ? config->title : "");
  recording->capacity_bytes = MIN(config->allocator.memory_limit, config->allocator.process_limit);
  recording->outside_allocator_bytes = config->outside_allocator_bytes;
  for (int i = 0; i < STREAM_COUNT; i++)
    g_ptr_array_add(recording->streams, g_strdup(program_stream_name((StreamId) i)));
  return recording;
}

Recording *
executor_run(const Program *program, const ExecutorConfig *config)
{
  g_assert(program->steps <= G_MAXINT16); /* as wide as a step's number is in the Recording */
  if (checks_asked_for())
    check_program_rules(program);
  g_autoptr(Engine) engine = engine_new();
  Executor executor = {.program = program,
                       .config = config,
                       .recording = describe_run(config),
                       .engine = engine,
                       .ends = g_ptr_array_new(),
                       .beyond = g_ptr_array_new()};
  AllocatorConfig allocator = config->allocator;
  if (config->built_elsewhere)
    allocator.memory_limit = G_MAXINT64;
  rank_init(&executor.rank, program, config->cluster, &allocator, engine, executor.recording);
  executor.rank.on_beyond = on_beyond;
  executor.rank.user = &executor;
  if (config->keeps_gradients)
    recorder_keep_gradients(executor.rank.recorder);
  if (checks_asked_for())
    executor.rank.check_every = CHECK_EVERY;
  gboolean goes_on = run_construction(&executor);
  reserve_recording(&executor);
  for (int step = 1; step <= program->steps && goes_on; step++)
    goes_on = run_step(&executor, step);
  finish(&executor);
  rank_clear(&executor.rank);
  g_ptr_array_unref(executor.ends);
  g_ptr_array_unref(executor.beyond);
  return executor.recording;
}
