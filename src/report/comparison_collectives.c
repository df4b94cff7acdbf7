/* comparison_collectives.c - collectives of a step of two runs, in the order of each communicator.
 */
#include "report/comparison_parts.h"
#include <stdlib.h>
#include <string.h>

typedef struct {
  Comparison *c;
  const Recording *recordings[SIDES];
  gboolean by_communicator; /* both have the same names, or one has no others than the other */
  gboolean by_module;       /* both say which group a collective serves */
  GPtrArray *spans[SIDES];  /* GArray * of gint64 for each lane: indexes into spans, in order */
} Walk;

/* ---- kinds ---- */

const char *
comparison_collective_kind(const char *name)
{
  /* The longer ones first, where one name is within another. */
  static const struct {
    const char *letters, *kind;
  } kinds[] = {
      {"allgather", "all_gather"}, {"reducescatter", "reduce_scatter"},
      {"allreduce", "all_reduce"}, {"alltoall", "all_to_all"},
      {"broadcast", "broadcast"},  {"sendrecv", "send_recv"},
      {"barrier", "barrier"},      {"reduce", "reduce"},
  };
  g_autoptr(GString) letters = g_string_new(NULL);
  for (const char *at = name; *at && *at != '('; at++)
    if (g_ascii_isalpha(*at))
      g_string_append_c(letters, g_ascii_tolower(*at));
  for (guint i = 0; i < G_N_ELEMENTS(kinds); i++)
    if (strstr(letters->str, kinds[i].letters))
      return kinds[i].kind;
  return name;
}

/* ---- lanes ---- */

static const Span *
span_at(const Walk *w, int side, gint64 i)
{
  return &g_array_index(w->recordings[side]->spans, Span, (guint) i);
}

static gboolean
is_collective(const Walk *w, int side, const Span *span)
{
  return span->kind == SPAN_COLLECTIVE && comparison_counts(w->c, side, span);
}

/* Names of communicators of a side's collectives.  Free with g_hash_table_unref. */
static GHashTable *
communicators_of(const Walk *w, int side, gboolean *all_have_modules)
{
  GHashTable *names = g_hash_table_new(g_str_hash, g_str_equal);
  for (guint i = 0; i < w->recordings[side]->spans->len; i++) {
    const Span *span = span_at(w, side, i);
    if (!is_collective(w, side, span))
      continue;
    *all_have_modules = *all_have_modules && span->module >= 0;
    const char *name = report_text(w->recordings[side], span->communicator, "");
    g_hash_table_add(names, (gpointer) (gsize) name);
  }
  return names;
}

static gboolean
is_subset(GHashTable *part, GHashTable *whole)
{
  GHashTableIter iter;
  gpointer name;
  g_hash_table_iter_init(&iter, part);
  while (g_hash_table_iter_next(&iter, &name, NULL))
    if (!g_hash_table_contains(whole, name))
      return FALSE;
  return TRUE;
}

static void
choose_keys(Walk *w)
{
  w->by_module = TRUE;
  GHashTable *a = communicators_of(w, SIDE_A, &w->by_module);
  GHashTable *b = communicators_of(w, SIDE_B, &w->by_module);
  w->by_communicator = is_subset(a, b) || is_subset(b, a);
  g_hash_table_unref(a);
  g_hash_table_unref(b);
}

static guint
find_lane(Walk *w, const char *communicator, const char *kind)
{
  GArray *lanes = w->c->lanes;
  for (guint i = 0; i < lanes->len; i++) {
    const LaneComparison *lane = &g_array_index(lanes, LaneComparison, i);
    if (g_strcmp0(lane->communicator, communicator) == 0 && g_str_equal(lane->kind, kind))
      return i;
  }
  LaneComparison lane = {.communicator = g_strdup(communicator), .kind = kind};
  g_array_append_val(lanes, lane);
  for (int side = 0; side < SIDES; side++)
    g_ptr_array_add(w->spans[side], g_array_new(FALSE, FALSE, sizeof(gint64)));
  return lanes->len - 1;
}

static void
add_collective(Walk *w, int side, gint64 index)
{
  const Span *span = span_at(w, side, index);
  const Recording *recording = w->recordings[side];
  const char *communicator =
      w->by_communicator ? report_text(recording, span->communicator, "") : NULL;
  const char *kind = comparison_collective_kind(report_text(recording, span->name, ""));
  guint position = find_lane(w, communicator, kind);
  LaneComparison *lane = &g_array_index(w->c->lanes, LaneComparison, position);
  lane->count[side]++;
  lane->bytes[side] += span->bytes;
  lane->time[side] += span->end - span->start;
  g_array_append_val((GArray *) g_ptr_array_index(w->spans[side], position), index);
}

/* ---- pairs ---- */

static gint64
index_in(const Walk *w, int side, guint lane, guint position)
{
  const GArray *spans = g_ptr_array_index(w->spans[side], lane);
  return position < spans->len ? g_array_index(spans, gint64, position) : -1;
}

static gboolean
pair_differs(const Walk *w, const CollectivePair *pair)
{
  if (pair->span[SIDE_A] < 0 || pair->span[SIDE_B] < 0)
    return TRUE;
  const Span *a = span_at(w, SIDE_A, pair->span[SIDE_A]),
             *b = span_at(w, SIDE_B, pair->span[SIDE_B]);
  if (a->bytes > 0 && b->bytes > 0 && a->bytes != b->bytes)
    return TRUE;
  return w->by_module && !g_str_equal(recording_text(w->recordings[SIDE_A], a->module),
                                      recording_text(w->recordings[SIDE_B], b->module));
}

static SimTime
duration(const Walk *w, int side, const CollectivePair *pair)
{
  const Span *span = span_at(w, side, pair->span[side]);
  return span->end - span->start;
}

static SimTime
step_start(const Walk *w, int side)
{
  const StepSummary *step = report_model_last_step(w->c->models[side]);
  return step ? step->start : 0;
}

/* When it begins, since the step's beginning, on the side that has it. */
static SimTime
begin_of(const Walk *w, const CollectivePair *pair)
{
  int side = pair->span[SIDE_A] >= 0 ? SIDE_A : SIDE_B;
  return span_at(w, side, pair->span[side])->start - step_start(w, side);
}

static void
compare_lane(const Walk *w, guint lane)
{
  Comparison *c = w->c;
  const LaneComparison *l = &g_array_index(c->lanes, LaneComparison, lane);
  guint most = (guint) MAX(l->count[SIDE_A], l->count[SIDE_B]);
  gboolean differs = FALSE;
  for (guint i = 0; i < most && !differs; i++) {
    const CollectivePair pair = {
        (int) lane, i, {index_in(w, SIDE_A, lane, i), index_in(w, SIDE_B, lane, i)}};
    differs = pair_differs(w, &pair);
    if (differs &&
        (c->first_differs.lane < 0 || begin_of(w, &pair) < begin_of(w, &c->first_differs)))
      c->first_differs = pair;
    if (differs || duration(w, SIDE_A, &pair) == duration(w, SIDE_B, &pair))
      continue;
    if (c->slowest.lane < 0 ||
        ABS(duration(w, SIDE_B, &pair) - duration(w, SIDE_A, &pair)) >
            ABS(duration(w, SIDE_B, &c->slowest) - duration(w, SIDE_A, &c->slowest)))
      c->slowest = pair;
  }
}

void
comparison_collectives(Comparison *c)
{
  Walk w = {.c = c};
  c->first_differs.lane = c->slowest.lane = -1;
  for (int side = 0; side < SIDES; side++) {
    w.recordings[side] = c->models[side]->recording;
    w.spans[side] = g_ptr_array_new_with_free_func((GDestroyNotify) g_array_unref);
  }
  choose_keys(&w);
  for (int side = 0; side < SIDES && c->has_spans; side++)
    for (guint i = 0; i < w.recordings[side]->spans->len; i++)
      if (is_collective(&w, side, span_at(&w, side, i)))
        add_collective(&w, side, i);
  for (guint i = 0; i < c->lanes->len; i++)
    compare_lane(&w, i);
  for (int side = 0; side < SIDES; side++)
    g_ptr_array_unref(w.spans[side]);
}
