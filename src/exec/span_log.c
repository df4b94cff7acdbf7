/* span_log.c - spans of kernels, copies, collectives and of the host's waits. */
#include "exec/span_log.h"

/* The device runs behind the host, so work is known by step and op: 32 bits each. */
#define TAG_OP_BITS 32

/* Work issued from `tag` on belongs to a phase, as Span.phase has it. */
typedef struct {
  guint64 tag;
  gint32 phase;
} PhaseMark;

void
span_log_init(SpanLog *log)
{
  log->phases = g_array_new(FALSE, FALSE, sizeof(PhaseMark));
  log->host = g_array_new(FALSE, FALSE, sizeof(Span));
  log->waits = g_array_new(FALSE, FALSE, sizeof(SpanWait));
  log->host_waits = g_array_new(FALSE, FALSE, sizeof(Wait));
  log->issued = g_new0(SimTime *, (gsize) log->program->steps + 1);
  log->step_ops = g_new(const ProgramOp *, (gsize) log->program->steps + 1);
  for (int step = 0; step <= log->program->steps; step++) {
    const OpList *list = step == 0 ? g_ptr_array_index(log->program->lists, 0)
                                   : program_step(log->program, step - 1);
    log->step_ops[step] = (const ProgramOp *) (gconstpointer) list->ops->data;
  }
}

void
span_log_clear(SpanLog *log)
{
  for (int step = 0; step <= log->program->steps; step++)
    g_free(log->issued[step]);
  g_free(log->issued);
  g_free(log->step_ops);
  g_array_unref(log->phases);
  g_array_unref(log->host);
  g_array_unref(log->waits);
  g_array_unref(log->host_waits);
}

void
span_log_begin(SpanLog *log, int step, gboolean keeps)
{
  log->step = step;
  log->keeps = keeps;
  log->keeps_waits = keeps && (step == 0 || log->keeps_waits);
  if (!keeps)
    return;
  const OpList *list =
      step == 0 ? g_ptr_array_index(log->program->lists, 0) : program_step(log->program, step - 1);
  log->issued[step] = g_new(SimTime, list->ops->len);
}

static int
tag_step(guint64 tag)
{
  return (int) (tag >> TAG_OP_BITS);
}

static const ProgramOp *
tag_op(const SpanLog *log, guint64 tag)
{
  return log->step_ops[tag_step(tag)] + (guint32) tag;
}

/* A collective runs on its communicator's queue, but what issued it waits: a stream does one thing.
 */
static void
on_started(gpointer user, guint64 tag)
{
  SpanLog *log = user;
  const ProgramOp *op = tag_op(log, tag);
  log->started[op->stream] = engine_now(log->engine);
  if (op->kind != PROGRAM_COLLECTIVE)
    return;
  const Collective *collective = &g_array_index(log->program->collectives, Collective, op->a);
  const Seat *seat = &log->seats[collective->communicator];
  log->arrived[op->stream] = rendezvous_arrived(seat->rendezvous, seat->party);
}

static void
describe_kernel(const SpanLog *log, const ProgramOp *op, Span *span)
{
  const Kernel *kernel = &g_array_index(log->program->kernels, Kernel, op->a);
  span->kind = op->kind == PROGRAM_COPY ? SPAN_COPY : SPAN_KERNEL;
  span->name = labels_name(log->labels, kernel->name);
  span->flops = kernel->flops;
  span->bytes = op->kind == PROGRAM_COPY ? (gint64) kernel->bytes : 0;
  span->alone = timing_kernel(log->timing, op->a, rank_speed_factor(log->speed, span->step));
}

static void
describe_collective(const SpanLog *log, const ProgramOp *op, Span *span)
{
  const Collective *collective = &g_array_index(log->program->collectives, Collective, op->a);
  const Communicator *communicator =
      &g_array_index(log->program->communicators, Communicator, collective->communicator);
  span->kind = SPAN_COLLECTIVE;
  span->name = recording_string(log->recording, program_collective_name(collective->kind));
  if (collective->name >= 0) /* not the module whose hook issued it, perhaps ahead of time */
    span->module = labels_name(log->labels, collective->name);
  span->communicator = labels_name(log->labels, communicator->name);
  span->dtype = 1 + recording_string(log->recording, dtype_name((DType) collective->dtype));
  span->bytes = collective->bytes;
  span->arrived = log->arrived[op->stream];
  span->alone = log->timing->collectives[op->a].alone;
}

static void
mark_phase(SpanLog *log, guint64 tag)
{
  PhaseMark mark = {tag, recorder_phase(log->recorder)};
  guint n = log->phases->len;
  if (n == 0 || g_array_index(log->phases, PhaseMark, n - 1).phase != mark.phase)
    g_array_append_val(log->phases, mark);
}

/* The device is at most a few phases behind, so the search begins at the end. */
static gint32
tag_phase(const SpanLog *log, guint64 tag)
{
  for (guint i = log->phases->len; i > 0; i--) {
    const PhaseMark *mark = &g_array_index(log->phases, PhaseMark, i - 1);
    if (mark->tag <= tag)
      return mark->phase;
  }
  return 0;
}

static void
on_finished(gpointer user, guint64 tag)
{
  SpanLog *log = user;
  const ProgramOp *op = tag_op(log, tag);
  Span span = {.start = log->started[op->stream],
               .end = engine_now(log->engine),
               .issued = log->issued[tag_step(tag)][(guint32) tag],
               .stream = op->stream,
               .step = (gint16) tag_step(tag),
               .module = labels_module(log->labels, op->module),
               .communicator = -1,
               .phase = tag_phase(log, tag)};
  if (op->kind == PROGRAM_COLLECTIVE)
    describe_collective(log, op, &span);
  else
    describe_kernel(log, op, &span);
  recorder_span(log->recorder, &span);
}

void
span_log_observe(SpanLog *log, SimTime now, const ProgramOp *op, Work *work)
{
  if (!log->keeps)
    return;
  guint index = (guint) (op - log->step_ops[log->step]);
  work->started = on_started;
  work->finished = on_finished;
  work->user = log;
  work->tag = (guint64) log->step << TAG_OP_BITS | index;
  log->issued[log->step][index] = now;
  log->works[op->stream]++;
  mark_phase(log, work->tag);
}

void
span_log_host(SpanLog *log, SpanKind kind, const char *what, SimTime start, SimTime end)
{
  if (!log->keeps || start == end)
    return;
  Span span = {.start = start,
               .end = end,
               .issued = start,
               .alone = end - start,
               .kind = (guint8) kind,
               .stream = STREAM_HOST,
               .step = (gint16) log->step,
               .name = recording_string(log->recording, what),
               .module = recorder_hook(log->recorder),
               .communicator = -1,
               .phase = recorder_phase(log->recorder)};
  g_array_append_val(log->host, span);
}

void
span_log_wait(SpanLog *log, const SpanWait *wait)
{
  if (!log->keeps_waits || wait->stream == wait->source)
    return;
  SpanWait kept = *wait;
  kept.step = (gint16) log->step;
  kept.works = log->works[wait->stream];
  g_array_append_val(log->waits, kept);
}

void
span_log_host_wait(SpanLog *log, const Wait *wait)
{
  if (!log->keeps_waits || wait->start == wait->end)
    return;
  Wait kept = *wait;
  kept.step = (gint16) log->step;
  g_array_append_val(log->host_waits, kept);
}

/* ---- the end ---- */

/* By end; of those that end together the device's come first. */
static void
add_host_spans(SpanLog *log)
{
  GArray *spans = log->recording->spans;
  guint from = spans->len, left = log->host->len;
  if (left == 0)
    return;
  g_array_set_size(spans, from + left);
  while (left > 0) {
    const Span *host = &g_array_index(log->host, Span, left - 1);
    gboolean device_is_last = from > 0 && g_array_index(spans, Span, from - 1).end > host->end;
    g_array_index(spans, Span, from + left - 1) =
        device_is_last ? g_array_index(spans, Span, from - 1) : *host;
    device_is_last ? from-- : left--;
  }
  g_array_set_size(log->host, 0);
}

/* How far a stream has come, item by item in order of issue. */
typedef struct {
  const Recording *recording;
  StreamId stream;
  guint next;   /* the stream's next span is here or behind */
  guint works;  /* spans of it before */
  SimTime free; /* when it had done all up to now */
} StreamWalk;

/* The stream's first `works` works are done.  FALSE when they never were. */
static gboolean
pass_works(StreamWalk *walk, guint works)
{
  const GArray *spans = walk->recording->spans;
  for (; walk->works < works && walk->next < spans->len; walk->next++) {
    const Span *span = &g_array_index(spans, Span, walk->next);
    if (span->stream != walk->stream)
      continue;
    walk->works++;
    walk->free = MAX(walk->free, span->end);
  }
  return walk->works == works;
}

static void
add_waits_of(const SpanLog *log, StreamId stream)
{
  StreamWalk walk = {.recording = log->recording, .stream = stream};
  for (guint i = 0; i < log->waits->len; i++) {
    const SpanWait *wait = &g_array_index(log->waits, SpanWait, i);
    if (wait->stream != stream)
      continue;
    if (!pass_works(&walk, wait->works) || !sync_point_fired(wait->point))
      return;
    SimTime start = MAX(walk.free, wait->issued);
    walk.free = MAX(start, sync_point_time(wait->point));
    Wait held = {.start = start,
                 .end = walk.free,
                 .issued = wait->issued,
                 .recorded = wait->recorded,
                 .stream = wait->stream,
                 .source = wait->source,
                 .step = wait->step};
    if (held.end > held.start)
      g_array_append_val(log->recording->waits, held);
  }
}

static int
compare_waits(gconstpointer a, gconstpointer b)
{
  const Wait *x = a, *y = b;
  if (x->end != y->end)
    return x->end < y->end ? -1 : 1;
  if (x->stream != y->stream)
    return x->stream - y->stream;
  return x->issued < y->issued ? -1 : x->issued > y->issued;
}

/* The engine does not tell who waited: it follows from when each item before was done. */
static void
add_waits(SpanLog *log)
{
  for (int stream = 0; stream < STREAM_COUNT; stream++)
    add_waits_of(log, (StreamId) stream);
  g_array_append_vals(log->recording->waits, log->host_waits->data, log->host_waits->len);
  g_array_sort(log->recording->waits, compare_waits);
}

void
span_log_finish(SpanLog *log)
{
  if (log->keeps_waits)
    add_waits(log);
  add_host_spans(log);
}
