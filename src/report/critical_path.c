/* critical_path.c - walks back from the end of a step: whatever ended when the present span began
 * is what it waited for; if nothing did, the host had not issued it before. */
#include "report/critical_path.h"
#include "base/sorted_times.h"

typedef struct {
  CriticalPath *path;
  const Recording *recording;
  GArray *device, *host; /* guint: the step's spans by kind of place, in order of their ends */
  int compute_stream;
  gint32 all_gather; /* string id of that name, -1: there is none */
  SimTime start;
} Walk;

static const char *const kind_names[PATH_KINDS] = {
    [PATH_COMPUTE] = "compute", [PATH_OTHER] = "other", [PATH_COLLECTIVE] = "collective",
    [PATH_RANKS] = "ranks",     [PATH_HOST] = "host",   [PATH_HOST_CALL] = "host_call",
};

const char *
path_kind_name(PathKind kind)
{
  return kind_names[kind];
}

/* ---- stretches, found from the last to the first ---- */

static gboolean
continues(const PathStretch *later, const PathStretch *piece)
{
  return later->kind == piece->kind && later->stream == piece->stream &&
         later->communicator == piece->communicator;
}

/* A piece that ends where the one found before begins. */
static void
add_piece(Walk *walk, const PathStretch *piece)
{
  GArray *stretches = walk->path->stretches;
  SimTime length = piece->end - piece->start;
  if (length <= 0)
    return;
  walk->path->time[piece->kind] += length;
  PathStretch *later =
      stretches->len > 0 ? &g_array_index(stretches, PathStretch, stretches->len - 1) : NULL;
  if (later == NULL || !continues(later, piece)) {
    g_array_append_vals(stretches, piece, 1);
    return;
  }
  later->start = piece->start;
  later->spans += piece->spans;
}

static PathKind
kind_of(const Walk *walk, const Span *span)
{
  if (span->kind == SPAN_COLLECTIVE)
    return PATH_COLLECTIVE;
  return span->stream == walk->compute_stream ? PATH_COMPUTE : PATH_OTHER;
}

static void
add_span(Walk *walk, const Span *span, PathKind kind, SimTime start, SimTime end)
{
  PathStretch piece = {.start = MAX(start, walk->start),
                       .end = end,
                       .kind = kind,
                       .stream = span->stream,
                       .name = span->name,
                       .module = span->module,
                       .communicator = span->communicator,
                       .spans = 1};
  add_piece(walk, &piece);
}

static void
add_host(Walk *walk, SimTime start, SimTime end)
{
  PathStretch piece = {.start = MAX(start, walk->start),
                       .end = end,
                       .kind = PATH_HOST,
                       .stream = -1,
                       .name = -1,
                       .module = -1,
                       .communicator = -1};
  add_piece(walk, &piece);
}

/* ---- what came before ---- */

static const Span *
span_at(const Walk *walk, const GArray *order, int i)
{
  return &g_array_index(walk->recording->spans, Span, g_array_index(order, guint, i));
}

/* The last position below `below` whose span ends by t, or -1. */
static int
last_by(const Walk *walk, const GArray *order, int below, SimTime t)
{
  guint ended = sorted_times_find(walk->recording->spans, G_STRUCT_OFFSET(Span, end), order, t + 1);
  return MIN(below, (int) ended) - 1;
}

/* The device span that ended just at t, one of the same stream if there is one, else the last
 * recorded; -1: none did. */
static int
ended_at(const Walk *walk, int below, SimTime t, int stream)
{
  int last = last_by(walk, walk->device, below, t);
  for (int i = last; i >= 0 && span_at(walk, walk->device, i)->end == t; i--)
    if (span_at(walk, walk->device, i)->stream == stream)
      return i;
  return last >= 0 && span_at(walk, walk->device, last)->end == t ? last : -1;
}

/* The host issued something at t.  Back to where it was held up last, and to what held it up: a
 * position below `below`, or -1 when the step begins there. */
static int
before_host(Walk *walk, int below, SimTime *t)
{
  int i = last_by(walk, walk->host, (int) walk->host->len, *t);
  for (; i >= 0; i--) {
    const Span *wait = span_at(walk, walk->host, i);
    if (wait->end <= walk->start)
      break;
    add_host(walk, wait->end, *t);
    int cause = last_by(walk, walk->device, below, wait->end);
    gboolean found = cause >= 0 && span_at(walk, walk->device, cause)->end > wait->start;
    *t = found ? span_at(walk, walk->device, cause)->end : wait->start;
    add_span(walk, wait, PATH_HOST_CALL, *t, wait->end);
    if (found)
      return cause;
  }
  add_host(walk, walk->start, *t);
  return -1;
}

/* Nothing ended at t, and it is not known that the host issued something then: what ended last is
 * what came before, and the gap the host's. */
static int
before_gap(Walk *walk, int below, SimTime *t)
{
  int last = last_by(walk, walk->device, below, *t);
  SimTime end = last >= 0 ? span_at(walk, walk->device, last)->end : walk->start;
  add_host(walk, end, *t);
  *t = end;
  return last;
}

/* The two follow each other on the path: did the later one only wait for its turn?  Behind a gather
 * that another one waited for so, the gathers before it count as well. */
static gboolean
was_queued(const Walk *walk, const Span *earlier, const Span *later, gboolean later_was)
{
  return earlier->kind == SPAN_COLLECTIVE && later->kind == SPAN_COLLECTIVE &&
         earlier->name == walk->all_gather && earlier->communicator == later->communicator &&
         (earlier->stream != later->stream || later_was);
}

static void
walk_back(Walk *walk, SimTime end)
{
  SimTime t = end;
  int at = ended_at(walk, (int) walk->device->len, t, walk->compute_stream);
  if (at < 0)
    at = before_gap(walk, (int) walk->device->len, &t);
  gboolean queued = FALSE;
  while (at >= 0 && t > walk->start) {
    const Span *span = span_at(walk, walk->device, at);
    SimTime length = span->end - span->start;
    add_span(walk, span, kind_of(walk, span), span->start, t);
    if (span->alone > 0 && span->start >= walk->start)
      walk->path->contention += MAX(length - span->alone, 0);
    t = span->start;
    if (span->kind == SPAN_COLLECTIVE && span->arrived > 0 && span->arrived < t) {
      add_span(walk, span, PATH_RANKS, span->arrived, t);
      t = span->arrived;
    }
    if (t <= walk->start)
      break;
    int before = ended_at(walk, at, t, span->stream);
    queued = before >= 0 && was_queued(walk, span_at(walk, walk->device, before), span, queued);
    if (queued)
      walk->path->queued += t - MAX(span_at(walk, walk->device, before)->start, walk->start);
    at = before >= 0         ? before
         : span->issued == t ? before_host(walk, at, &t)
                             : before_gap(walk, at, &t);
  }
}

/* ---- all ---- */

static void
reverse(GArray *stretches)
{
  for (guint i = 0; i < stretches->len / 2; i++) {
    PathStretch *a = &g_array_index(stretches, PathStretch, i);
    PathStretch *b = &g_array_index(stretches, PathStretch, stretches->len - 1 - i);
    PathStretch kept = *a;
    *a = *b;
    *b = kept;
  }
}

static void
sort_spans(Walk *walk, int step)
{
  const GArray *spans = walk->recording->spans;
  for (guint i = 0; i < spans->len; i++) {
    const Span *span = &g_array_index(spans, Span, i);
    gboolean is_host = span->kind == SPAN_HOST_BLOCKED || span->kind == SPAN_LOST;
    if (span->step == step)
      g_array_append_val(is_host ? walk->host : walk->device, i);
  }
}

CriticalPath *
critical_path_new(const Recording *recording, int step, int compute_stream, SimTime start,
                  SimTime end)
{
  CriticalPath *path = g_new0(CriticalPath, 1);
  path->stretches = g_array_new(FALSE, FALSE, sizeof(PathStretch));
  Walk walk = {.path = path,
               .recording = recording,
               .device = g_array_new(FALSE, FALSE, sizeof(guint)),
               .host = g_array_new(FALSE, FALSE, sizeof(guint)),
               .compute_stream = compute_stream,
               .all_gather = recording_find_string(recording, "all_gather"),
               .start = start};
  sort_spans(&walk, step);
  walk_back(&walk, end);
  reverse(path->stretches);
  g_array_unref(walk.device);
  g_array_unref(walk.host);
  return path;
}

void
critical_path_free(CriticalPath *path)
{
  if (path == NULL)
    return;
  g_array_unref(path->stretches);
  g_free(path);
}

static int
compare_lengths(gconstpointer a, gconstpointer b)
{
  SimTime x = *(const SimTime *) a, y = *(const SimTime *) b;
  return (x < y) - (x > y);
}

SimTime
critical_path_length_of(const CriticalPath *path, guint most)
{
  if (path->stretches->len <= most)
    return 0;
  g_autoptr(GArray) lengths = g_array_new(FALSE, FALSE, sizeof(SimTime));
  for (guint i = 0; i < path->stretches->len; i++) {
    const PathStretch *stretch = &g_array_index(path->stretches, PathStretch, i);
    SimTime length = stretch->end - stretch->start;
    g_array_append_val(lengths, length);
  }
  g_array_sort(lengths, compare_lengths);
  return g_array_index(lengths, SimTime, most - 1);
}
