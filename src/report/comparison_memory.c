/* comparison_memory.c - aligns the allocations and frees of two runs, step by step. */
#include "report/comparison_parts.h"

/* How far behind a difference the two are looked for together again, and how many events must be
 * the same for that. */
enum { LOOK_AHEAD = 256, SAME_AGAIN = 8 };

/* Events of one step: [first, end) of Recording.memory. */
typedef struct {
  int step;
  guint first, end;
} Segment;

typedef struct {
  Comparison *c;
  const Recording *recordings[SIDES];
  GArray *segments[SIDES]; /* Segment, in order */
  gint32 *strings;         /* of A -> B */
  gboolean by_requested;   /* both know more than the rounded size */
  GArray *partners;        /* gint32: of A's allocations, B's number; -1: none yet */
} Alignment;

/* ---- segments ---- */

static GArray *
segments_of(const Recording *recording)
{
  GArray *segments = g_array_new(FALSE, FALSE, sizeof(Segment));
  for (guint i = 0; i < recording->memory->len; i++) {
    int step = g_array_index(recording->memory, MemoryEvent, i).step;
    Segment *last = segments->len > 0 ? &g_array_index(segments, Segment, segments->len - 1) : NULL;
    if (last && last->step == step) {
      last->end = i + 1;
      continue;
    }
    Segment segment = {step, i, i + 1};
    g_array_append_val(segments, segment);
  }
  return segments;
}

static const Segment *
find_segment(const GArray *segments, int step)
{
  for (guint i = 0; i < segments->len; i++)
    if (g_array_index(segments, Segment, i).step == step)
      return &g_array_index(segments, Segment, i);
  return NULL;
}

/* A construction, or no steps at all: then all events are those of "step" 0. */
static gboolean
begin_together(const Alignment *x)
{
  for (int side = 0; side < SIDES; side++)
    if (!find_segment(x->segments[side], 0))
      return FALSE;
  if (x->c->models[SIDE_A]->is_simulated != x->c->models[SIDE_B]->is_simulated)
    return FALSE;
  return (x->recordings[SIDE_A]->steps->len > 0) == (x->recordings[SIDE_B]->steps->len > 0);
}

/* ---- events ---- */

static const MemoryEvent *
event_at(const Alignment *x, int side, guint i)
{
  return &g_array_index(x->recordings[side]->memory, MemoryEvent, i);
}

typedef gboolean (*EventTells)(const MemoryEvent *event);

static gboolean
tells_category(const MemoryEvent *event)
{
  return event->category != CATEGORY_OTHER;
}

static gboolean
tells_requested(const MemoryEvent *event)
{
  return event->requested_bytes != event->block_bytes;
}

/* Whether some event of each side tells it: else a side does not record it. */
static gboolean
both_tell(const Alignment *x, EventTells tells)
{
  for (int side = 0; side < SIDES; side++) {
    guint i = 0, n = x->recordings[side]->memory->len;
    while (i < n && !tells(event_at(x, side, i)))
      i++;
    if (i == n)
      return FALSE;
  }
  return TRUE;
}

/* B's id of the module of an event of A. */
static gint32
module_in_b(const Alignment *x, const MemoryEvent *event)
{
  return event->module < 0 ? -1 : x->strings[event->module];
}

/* Whether both speak of the same modules: a measured run may have functions of the script instead.
 */
static gboolean
share_modules(const Alignment *x)
{
  guint n[SIDES];
  for (int side = 0; side < SIDES; side++)
    n[side] = x->recordings[side]->memory->len;
  g_autofree gboolean *used = g_new0(gboolean, x->recordings[SIDE_B]->strings->len + 1);
  for (guint i = 0; i < n[SIDE_B]; i++)
    if (event_at(x, SIDE_B, i)->module >= 0)
      used[event_at(x, SIDE_B, i)->module] = TRUE;
  for (guint i = 0; i < n[SIDE_A]; i++) {
    gint32 module = module_in_b(x, event_at(x, SIDE_A, i));
    if (module >= 0 && used[module])
      return TRUE;
  }
  return FALSE;
}

static gboolean
is_like(const Alignment *x, guint i, guint j)
{
  const MemoryEvent *a = event_at(x, SIDE_A, i), *b = event_at(x, SIDE_B, j);
  const MemoryComparison *memory = &x->c->memory;
  if (a->block_bytes != b->block_bytes ||
      (x->by_requested && a->requested_bytes != b->requested_bytes))
    return FALSE;
  if (memory->by_category && a->category != b->category)
    return FALSE;
  return !memory->by_module ||
         (module_in_b(x, a) == b->module && (a->module < 0) == (b->module < 0));
}

static gint32 *
partner_of(const Alignment *x, gint32 allocation)
{
  return &g_array_index(x->partners, gint32, (guint) allocation);
}

/* The same, and of a free: of allocations that were the same. */
static gboolean
match(const Alignment *x, guint i, guint j)
{
  const MemoryEvent *a = event_at(x, SIDE_A, i), *b = event_at(x, SIDE_B, j);
  if (!is_like(x, i, j))
    return FALSE;
  gint32 *partner = partner_of(x, a->allocation);
  if (a->requested_bytes < 0)
    return *partner < 0 || *partner == b->allocation;
  *partner = b->allocation;
  return TRUE;
}

/* ---- the first difference ---- */

/* A side's way behind the first difference. */
typedef struct {
  guint at, end;
  gint32 made_from, made_to; /* numbers of the allocations that were passed over */
} Rest;

/* Passes over so many events. */
static Rest
rest_behind(const Alignment *x, int side, const Segment *segment, guint at, guint count)
{
  Rest rest = {at + count, segment->end, G_MAXINT32, G_MAXINT32};
  for (guint i = at; i < MIN(at + count, segment->end); i++) {
    const MemoryEvent *event = event_at(x, side, i);
    if (event->requested_bytes < 0)
      continue;
    if (rest.made_from == G_MAXINT32)
      rest.made_from = event->allocation;
    rest.made_to = event->allocation + 1;
  }
  return rest;
}

/* What was allocated in the part that differs is freed some time: that is no difference of its own.
 */
static void
skip_its_frees(const Alignment *x, int side, Rest *rest)
{
  for (; rest->at < rest->end; rest->at++) {
    const MemoryEvent *event = event_at(x, side, rest->at);
    if (event->requested_bytes > 0 || event->allocation < rest->made_from ||
        event->allocation >= rest->made_to)
      return;
  }
}

/* Are the next events the same, so many of them or all that there are? */
static gboolean
go_on_together(const Alignment *x, Rest a, Rest b)
{
  if (a.at > a.end || b.at > b.end)
    return FALSE;
  for (int n = 0; n < SAME_AGAIN; n++, a.at++, b.at++) {
    skip_its_frees(x, SIDE_A, &a);
    skip_its_frees(x, SIDE_B, &b);
    if (a.at == a.end || b.at == b.end)
      return a.at == a.end && b.at == b.end;
    if (!is_like(x, a.at, b.at))
      return FALSE;
  }
  return TRUE;
}

/* What lies between here and where they come together again. */
static void
judge(const Alignment *x, const Segment *a, const Segment *b, guint i, guint j)
{
  MemoryComparison *memory = &x->c->memory;
  guint left_a = a->end - i, left_b = b->end - j;
  memory->verdict = MEMORY_APART;
  for (guint n = 1; n <= LOOK_AHEAD && memory->verdict == MEMORY_APART; n++) {
    const Rest here_a = rest_behind(x, SIDE_A, a, i, 0), here_b = rest_behind(x, SIDE_B, b, j, 0);
    const Rest next_a = rest_behind(x, SIDE_A, a, i, n), next_b = rest_behind(x, SIDE_B, b, j, n);
    gboolean changed = go_on_together(x, next_a, next_b);
    memory->count = n;
    if (changed && left_a == left_b)
      memory->verdict = MEMORY_CHANGED;
    else if (left_a >= left_b && go_on_together(x, next_a, here_b))
      memory->verdict = MEMORY_ONLY_A;
    else if (left_b >= left_a && go_on_together(x, here_a, next_b))
      memory->verdict = MEMORY_ONLY_B;
    else if (changed)
      memory->verdict = MEMORY_CHANGED;
  }
  if (memory->verdict == MEMORY_APART)
    memory->count = 0;
}

/* FALSE at a difference, which is noted. */
static gboolean
align_segments(const Alignment *x, const Segment *a, const Segment *b)
{
  MemoryComparison *memory = &x->c->memory;
  guint i = a->first, j = b->first;
  while (i < a->end && j < b->end && match(x, i, j))
    i++, j++;
  if (i == a->end && j == b->end)
    return TRUE;
  memory->step[SIDE_A] = a->step;
  memory->step[SIDE_B] = b->step;
  memory->position = i - a->first;
  memory->event[SIDE_A] = i < a->end ? (gint64) i : -1;
  memory->event[SIDE_B] = j < b->end ? (gint64) j : -1;
  judge(x, a, b, i, j);
  return FALSE;
}

/* ---- whatever the order ---- */

/* What an allocation is paired by. */
typedef struct {
  gint64 bytes;
  gint32 module; /* B's id; of A's modules that B has not: below -1 */
  gint32 category;
} AllocationKey;

static int
compare_keys(gconstpointer a, gconstpointer b)
{
  const AllocationKey *x = a, *y = b;
  if (x->bytes != y->bytes)
    return x->bytes < y->bytes ? -1 : 1;
  if (x->module != y->module)
    return x->module < y->module ? -1 : 1;
  return x->category - y->category;
}

static void
append_keys(const Alignment *x, int side, const Segment *segment, GArray *keys)
{
  const MemoryComparison *memory = &x->c->memory;
  for (guint i = segment->first; i < segment->end; i++) {
    const MemoryEvent *event = event_at(x, side, i);
    if (event->requested_bytes < 0)
      continue;
    gint32 module = side == SIDE_A ? module_in_b(x, event) : event->module;
    if (module < 0 && event->module >= 0)
      module = -2 - event->module;
    AllocationKey key = {event->block_bytes, memory->by_module ? module : 0,
                         memory->by_category ? event->category : 0};
    g_array_append_val(keys, key);
  }
}

static void
count_unmatched(MemoryComparison *memory, GArray *const keys[SIDES])
{
  guint at[SIDES] = {0};
  while (at[SIDE_A] < keys[SIDE_A]->len || at[SIDE_B] < keys[SIDE_B]->len) {
    const AllocationKey *k[SIDES];
    for (int side = 0; side < SIDES; side++)
      k[side] =
          at[side] < keys[side]->len ? &g_array_index(keys[side], AllocationKey, at[side]) : NULL;
    int order = !k[SIDE_A] ? 1 : !k[SIDE_B] ? -1 : compare_keys(k[SIDE_A], k[SIDE_B]);
    if (order != 0) {
      int side = order < 0 ? SIDE_A : SIDE_B;
      memory->unmatched[side]++;
      memory->unmatched_bytes[side] += k[side]->bytes;
    }
    at[SIDE_A] += order <= 0;
    at[SIDE_B] += order >= 0;
  }
}

/* ---- all ---- */

static void
compare_pair(const Alignment *x, const Segment *const pair[SIDES], GArray *const keys[SIDES])
{
  MemoryComparison *memory = &x->c->memory;
  for (int side = 0; side < SIDES; side++) {
    if (memory->events[side] == 0)
      memory->first[side] = pair[side]->step;
    memory->last[side] = pair[side]->step;
    memory->events[side] += pair[side]->end - pair[side]->first;
    append_keys(x, side, pair[side], keys[side]);
  }
  memory->known = TRUE;
  if (memory->verdict == MEMORY_SAME)
    align_segments(x, pair[SIDE_A], pair[SIDE_B]);
}

/* Steps of the same index from the construction on, or those whose times are compared. */
static void
compare_segments(const Alignment *x, ComparedSteps steps, GArray *const keys[SIDES])
{
  const GArray *a = x->segments[SIDE_A], *b = x->segments[SIDE_B];
  x->c->memory.all_steps = steps == COMPARE_ALL || (steps == COMPARE_AUTO && begin_together(x));
  if (!x->c->memory.all_steps) {
    const Segment *pair[SIDES] = {find_segment(a, x->c->step[SIDE_A]),
                                  find_segment(b, x->c->step[SIDE_B])};
    if (x->c->step[SIDE_A] > 0 && x->c->step[SIDE_B] > 0 && pair[SIDE_A] && pair[SIDE_B])
      compare_pair(x, pair, keys);
    return;
  }
  for (guint i = 0; i < a->len; i++) {
    const Segment *pair[SIDES] = {&g_array_index(a, Segment, i), NULL};
    pair[SIDE_B] = find_segment(b, pair[SIDE_A]->step);
    if (pair[SIDE_B])
      compare_pair(x, pair, keys);
  }
}

static guint
count_allocations(const Recording *recording)
{
  gint32 most = -1;
  for (guint i = 0; i < recording->memory->len; i++)
    most = MAX(most, g_array_index(recording->memory, MemoryEvent, i).allocation);
  return (guint) (most + 1);
}

void
comparison_memory(Comparison *c, ComparedSteps steps)
{
  Alignment x = {.c = c};
  GArray *keys[SIDES];
  for (int side = 0; side < SIDES; side++) {
    x.recordings[side] = c->models[side]->recording;
    x.segments[side] = segments_of(x.recordings[side]);
    keys[side] = g_array_new(FALSE, FALSE, sizeof(AllocationKey));
  }
  x.strings = comparison_string_map(x.recordings[SIDE_A], x.recordings[SIDE_B]);
  x.partners = g_array_new(FALSE, FALSE, sizeof(gint32));
  gint32 none = -1;
  for (guint i = 0, n = count_allocations(x.recordings[SIDE_A]); i < n; i++)
    g_array_append_val(x.partners, none);
  x.by_requested = both_tell(&x, tells_requested);
  c->memory = (MemoryComparison){
      .by_category = both_tell(&x, tells_category),
      .by_module = share_modules(&x),
      .event = {-1, -1},
  };
  compare_segments(&x, steps, keys);
  for (int side = 0; side < SIDES; side++)
    g_array_sort(keys[side], compare_keys);
  count_unmatched(&c->memory, keys);
  for (int side = 0; side < SIDES; side++) {
    g_array_unref(x.segments[side]);
    g_array_unref(keys[side]);
  }
  g_array_unref(x.partners);
  g_free(x.strings);
}
