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
  HostTurn *turn; /* NULL: the only rank */
  Rank rank;
  gboolean keeps_spans; /* of any step */
  GPtrArray *ends;      /* SyncPoint *: STREAM_COUNT a step, that say when it is done */
  GPtrArray *beyond; /* SyncPoint *: twice STREAM_COUNT a phase beyond: what came before it, and its
                        own */
  int step;
  int last_step;
  guint first_event[2]; /* in memory, of the step before and of this one */
  gboolean is_over;     /* the construction, or step */
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
  return executor->keeps_spans && (executor->config->keep_spans || step == executor->last_step);
}

/* What the steps will leave in the Recording is known beforehand, unless many may be left out. */
static void
reserve_recording(Executor *executor)
{
  const Program *program = executor->program;
  guint memory = 0, ranges = 0, spans = 0;
  int steps = MIN(program->steps, executor->config->stops_when_steady ? 4 : G_MAXINT);
  for (int step = 0; step < steps; step++) {
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
  rank_begin(rank, 0, keeps_spans(executor, 0));
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
  executor->first_event[0] = executor->first_event[1];
  executor->first_event[1] = executor->recording->memory->len;
  executor->is_over = FALSE;
  rank_begin(rank, step, keeps_spans(executor, step));
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
  span_log_finish(&executor->rank.spans);
  device_memory_finish(&executor->rank.memory);
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

/* ---- steps that repeat ---- */

/* The same at the same moment of its step? */
static gboolean
same_event(const MemoryEvent *a, SimTime start_a, const MemoryEvent *b, SimTime start_b)
{
  return a->time - start_a == b->time - start_b && a->requested_bytes == b->requested_bytes &&
         a->block_bytes == b->block_bytes && a->address == b->address &&
         a->allocated_after == b->allocated_after && a->reserved_after == b->reserved_after;
}

/* Do this step and all that follow issue the list of the one before? */
static gboolean
lists_are_one(const Executor *executor)
{
  const OpList *list = program_step(executor->program, executor->step - 2);
  for (int step = executor->step; step <= executor->program->steps; step++)
    if (program_step(executor->program, step - 1) != list)
      return FALSE;
  return TRUE;
}

/* The step did what the one before did: every block at the same address, and each at the same
 * moment, whatever the host waited for in between.  So what it found must have been the same, and
 * so is what it leaves. */
static gboolean
is_steady(const Executor *executor)
{
  const GArray *memory = executor->recording->memory;
  guint before = executor->first_event[0], begin = executor->first_event[1];
  guint n = memory->len - begin;
  if (executor->step < 2 || n != begin - before || !lists_are_one(executor))
    return FALSE;
  const StepRecord *steps =
      &g_array_index(executor->recording->steps, StepRecord, executor->step - 2);
  const MemoryEvent *a = &g_array_index(memory, MemoryEvent, before), *b = a + n;
  for (guint i = 0; i < n; i++)
    if (!same_event(&a[i], steps[0].start, &b[i], steps[1].start))
      return FALSE;
  return TRUE;
}

/* All that one rank does; the body of its host. */
static void
play(gpointer user)
{
  Executor *executor = user;
  gboolean goes_on = run_construction(executor);
  if (executor->keeps_spans)
    reserve_recording(executor);
  for (int step = 1; step <= executor->last_step && goes_on; step++) {
    goes_on = run_step(executor, step);
    if (executor->config->stops_when_steady && step + 1 < executor->last_step &&
        is_steady(executor))
      executor->last_step = step + 1;
  }
}

/* setup has what is the rank's own; the rest is filled in. */
static void
begin(Executor *executor, RankSetup *setup)
{
  AllocatorConfig allocator = executor->config->allocator;
  if (executor->config->built_elsewhere)
    allocator.memory_limit = G_MAXINT64;
  executor->last_step = executor->program->steps;
  setup->allocator = &allocator;
  setup->engine = executor->engine;
  setup->recording = executor->recording;
  setup->turn = executor->turn;
  setup->only_peaks = !executor->keeps_spans;
  rank_init(&executor->rank, setup);
  if (executor->config->keeps_gradients)
    recorder_keep_gradients(executor->rank.recorder);
  if (checks_asked_for())
    executor->rank.check_every = CHECK_EVERY;
  executor->rank.on_beyond = on_beyond;
  executor->rank.user = executor;
  executor->ends = g_ptr_array_new();
  executor->beyond = g_ptr_array_new();
}

static void
end(Executor *executor)
{
  rank_clear(&executor->rank);
  g_ptr_array_unref(executor->ends);
  g_ptr_array_unref(executor->beyond);
}

static void
check_program(const Program *program)
{
  g_assert(program->steps <= G_MAXINT16); /* as wide as a step's number is in the Recording */
  if (checks_asked_for())
    check_program_rules(program);
}

Recording *
executor_run(const Program *program, const ExecutorConfig *config)
{
  check_program(program);
  g_autoptr(Engine) engine = engine_new();
  Executor executor = {.program = program,
                       .config = config,
                       .recording = describe_run(config),
                       .engine = engine,
                       .keeps_spans = TRUE};
  guint n = program->communicators->len;
  g_autofree Seat *seats = g_new0(Seat, n);
  for (guint i = 0; i < n; i++) {
    gint32 name = g_array_index(program->communicators, Communicator, i).name;
    seats[i].rendezvous = rendezvous_new(engine, program_text(program, name), -1, 1);
  }
  Timing timing;
  timing_init(&timing, program, config->cluster);
  begin(&executor, &(RankSetup){.timing = &timing, .seats = seats, .name_suffix = ""});
  play(&executor);
  finish(&executor);
  end(&executor);
  timing_clear(&timing);
  return executor.recording;
}

/* ---- several ranks ---- */

/* One for each distinct Program, in order of appearance. */
typedef struct {
  Timing *timings;
  int n;
} Timings;

static Timing *
timing_of(Timings *all, const Program *program, const ClusterSpec *cluster)
{
  for (int i = 0; i < all->n; i++)
    if (all->timings[i].program == program)
      return &all->timings[i];
  check_program(program);
  timing_init(&all->timings[all->n], program, cluster);
  return &all->timings[all->n++];
}

/* A rendezvous for each meeting, under the name of its communicator. */
static Rendezvous **
make_meetings(Engine *engine, const RankClasses *classes, const Program *program)
{
  Rendezvous **meetings = g_new0(Rendezvous *, classes->meetings->len);
  for (int c = 0; c < classes->n; c++)
    for (int k = 0; k < classes->communicators; k++) {
      int meeting = classes->seats[c * classes->communicators + k].meeting;
      gint32 name = g_array_index(program->communicators, Communicator, k).name;
      if (meetings[meeting] == NULL)
        meetings[meeting] = rendezvous_new(engine, program_text(program, name), -1,
                                           g_array_index(classes->meetings, int, meeting));
    }
  return meetings;
}

static Seat *
seats_of(const RankClasses *classes, int class_number, Rendezvous *const *meetings)
{
  int n = classes->communicators;
  Seat *seats = g_new(Seat, n);
  for (int k = 0; k < n; k++) {
    const ClassSeat *seat = &classes->seats[class_number * n + k];
    seats[k] = (Seat){meetings[seat->meeting], seat->party};
  }
  return seats;
}

static RankOutcome
outcome_of(const Executor *executor, const Seat *seats, int communicators)
{
  const Recording *recording = executor->recording;
  RankOutcome outcome = {.out_of_memory = recording->out_of_memory.happened};
  for (int k = 0; k < communicators; k++)
    outcome.waited += rendezvous_waited(seats[k].rendezvous, seats[k].party);
  for (guint i = 0; i < recording->steps->len; i++) {
    outcome.last_step = recording_step_duration(recording, i);
    outcome.peak_reserved =
        MAX(outcome.peak_reserved, g_array_index(recording->steps, StepRecord, i).peak_reserved);
  }
  return outcome;
}

Recording *
executor_run_ranks(const RankClasses *classes, const SimulatedRank *ranks, int described,
                   const ExecutorConfig *config, RankOutcome *outcomes)
{
  int n = classes->n;
  g_autoptr(Engine) engine = engine_new();
  g_autoptr(HostTurns) turns = host_turns_new(engine);
  g_autofree Executor *executors = g_new0(Executor, n);
  g_autofree Seat **seats = g_new(Seat *, n);
  g_autofree Rendezvous **meetings = make_meetings(engine, classes, ranks[0].program);
  Timings timings = {.timings = g_new(Timing, n)};
  for (int i = 0; i < n; i++) {
    g_autofree char *suffix = g_strdup_printf(" of rank %d", classes->first[i]);
    g_autofree char *host = g_strconcat("host", suffix, NULL);
    executors[i] = (Executor){.program = ranks[i].program,
                              .config = config,
                              .recording = describe_run(config),
                              .engine = engine,
                              .keeps_spans = i == described};
    executors[i].turn = host_turns_add(turns, host, play, &executors[i]);
    seats[i] = seats_of(classes, i, meetings);
    begin(&executors[i],
          &(RankSetup){.timing = timing_of(&timings, ranks[i].program, config->cluster),
                       .seats = seats[i],
                       .speed = ranks[i].speed,
                       .name_suffix = suffix});
  }
  host_turns_run(turns);
  for (int i = 0; i < n; i++) {
    finish(&executors[i]);
    outcomes[i] = outcome_of(&executors[i], seats[i], classes->communicators);
    end(&executors[i]);
    if (i != described)
      recording_free(executors[i].recording);
    g_free(seats[i]);
  }
  for (int i = 0; i < timings.n; i++)
    timing_clear(&timings.timings[i]);
  g_free(timings.timings);
  return executors[described].recording;
}
