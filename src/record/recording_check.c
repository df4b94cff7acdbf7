/* recording_check.c - what must hold between the parts of a Recording, whoever made it. */
#include "record/recording.h"

/* An allocation is numbered in order, and freed at most once with the bytes it had.  births: the
 * event of each allocation that lives, else G_MAXUINT. */
static const char *
check_pairing(const Recording *recording, GArray *births, guint i)
{
  const MemoryEvent *event = &g_array_index(recording->memory, MemoryEvent, i);
  if (event->requested_bytes > 0) {
    if (event->allocation != (gint64) births->len || event->block_bytes <= 0)
      return "is not the next allocation";
    g_array_append_val(births, i);
    return NULL;
  }
  if (event->allocation < 0 || (guint) event->allocation >= births->len)
    return "frees what was not allocated";
  guint *birth = &g_array_index(births, guint, event->allocation);
  if (*birth == G_MAXUINT)
    return "frees what is free";
  const MemoryEvent *begin = &g_array_index(recording->memory, MemoryEvent, *birth);
  *birth = G_MAXUINT;
  if (begin->requested_bytes != -event->requested_bytes ||
      begin->block_bytes != -event->block_bytes || begin->category != event->category)
    return "does not match its allocation";
  return NULL;
}

static char *
check_memory(const Recording *recording)
{
  g_autoptr(GArray) births = g_array_new(FALSE, FALSE, sizeof(guint));
  SimTime before = 0;
  for (guint i = 0; i < recording->memory->len; i++) {
    SimTime time = g_array_index(recording->memory, MemoryEvent, i).time;
    const char *wrong =
        time < before ? "is earlier than the one before" : check_pairing(recording, births, i);
    if (wrong != NULL)
      return g_strdup_printf("row %u %s", i + 1, wrong);
    before = time;
  }
  return NULL;
}

static char *
check_segments(const Recording *recording)
{
  gint32 before = 0;
  for (guint i = 0; i < recording->segments->len; i++) {
    const SegmentEvent *event = &g_array_index(recording->segments, SegmentEvent, i);
    if (event->memory_events < before || (guint) event->memory_events > recording->memory->len)
      return g_strdup_printf("row %u is not in order of the memory events before it", i + 1);
    before = event->memory_events;
  }
  return NULL;
}

/* How many memory events there are up to and with the free of each allocation; 0: it lives. */
static guint *
list_frees(const Recording *recording)
{
  guint *freed = g_new0(guint, recording->memory->len + 1);
  for (guint i = 0; i < recording->memory->len; i++) {
    const MemoryEvent *event = &g_array_index(recording->memory, MemoryEvent, i);
    if (event->requested_bytes < 0)
      freed[event->allocation] = i + 1;
  }
  return freed;
}

/* Times do not go back, and behind one that did not complete there are only such. */
static gboolean
times_are_in_order(SimTime before, SimTime time)
{
  return time == -1 || (before >= 0 && time >= before);
}

/* A free completes once, after it was asked for; those that did not complete come last. */
static char *
check_completions(const Recording *recording)
{
  g_autofree guint *freed = list_frees(recording);
  CompletionEvent before = {0};
  for (guint i = 0; i < recording->completions->len; i++) {
    CompletionEvent event = g_array_index(recording->completions, CompletionEvent, i);
    if (event.allocation < 0 || (guint) event.allocation >= recording->memory->len ||
        freed[event.allocation] == 0 || freed[event.allocation] > (guint) event.memory_events)
      return g_strdup_printf("row %u completes no free that waits", i + 1);
    if (event.memory_events < before.memory_events ||
        event.segment_events < before.segment_events ||
        (guint) event.memory_events > recording->memory->len ||
        (guint) event.segment_events > recording->segments->len ||
        !times_are_in_order(before.time, event.time))
      return g_strdup_printf("row %u is not in order", i + 1);
    freed[event.allocation] = 0;
    before = event;
  }
  return NULL;
}

static char *
check_spans(const Recording *recording)
{
  SimTime before = 0;
  for (guint i = 0; i < recording->spans->len; i++) {
    const Span *span = &g_array_index(recording->spans, Span, i);
    if (span->start > span->end || span->end < before)
      return g_strdup_printf("row %u is not in order of the ends", i + 1);
    if (span->phase < 0 || (guint) span->phase > recording->ranges->len)
      return g_strdup_printf("row %u names a phase that is not in ranges", i + 1);
    if (span->dtype < 0 || (guint) span->dtype > recording->strings->len)
      return g_strdup_printf("row %u names a dtype that is not in strings", i + 1);
    before = span->end;
  }
  return NULL;
}

static char *
check_waits(const Recording *recording)
{
  SimTime before = 0;
  for (guint i = 0; i < recording->waits->len; i++) {
    const Wait *wait = &g_array_index(recording->waits, Wait, i);
    if (wait->start > wait->end || wait->end < before)
      return g_strdup_printf("row %u is not in order of the ends", i + 1);
    before = wait->end;
  }
  return NULL;
}

static char *
check_ranges(const Recording *recording)
{
  SimTime before = 0;
  for (guint i = 0; i < recording->ranges->len; i++) {
    const Range *range = &g_array_index(recording->ranges, Range, i);
    if (range->start > range->end || range->start < before)
      return g_strdup_printf("row %u is not in order of the starts", i + 1);
    before = range->start;
  }
  return NULL;
}

static char *
check_range_events(const Recording *recording)
{
  const GArray *all = recording->range_events;
  if (all->len != 0 && all->len != recording->ranges->len)
    return g_strdup("has not one row a range");
  gint32 before = 0;
  for (guint i = 0; i < all->len; i++) {
    const RangeEvents *events = &g_array_index(all, RangeEvents, i);
    if (events->first < before || events->first > events->end ||
        (guint) events->end > recording->memory->len)
      return g_strdup_printf("row %u is not in order, or beyond the memory events", i + 1);
    before = events->first;
  }
  return NULL;
}

static char *
check_steps(const Recording *recording)
{
  for (guint i = 0; i < recording->steps->len; i++) {
    const StepRecord *step = &g_array_index(recording->steps, StepRecord, i);
    if (step->index != (int) i + 1 || step->start > step->end ||
        (i > 0 && (step[-1].start > step->start || step[-1].end > step->end)))
      return g_strdup_printf("row %u is not in order: steps count from 1", i + 1);
  }
  return NULL;
}

static char *
check_beyond(const Recording *recording)
{
  SimTime before = 0;
  for (guint i = 0; i < recording->beyond->len; i++) {
    const BeyondRecord *beyond = &g_array_index(recording->beyond, BeyondRecord, i);
    if (beyond->range < 0 || (guint) beyond->range >= recording->ranges->len ||
        g_array_index(recording->ranges, Range, beyond->range).kind != RECORDED_PHASE)
      return g_strdup_printf("row %u names no phase of ranges", i + 1);
    if (beyond->start > beyond->end || beyond->start < before)
      return g_strdup_printf("row %u is not in order of the starts", i + 1);
    before = beyond->start;
  }
  return NULL;
}

char *
recording_check(const Recording *recording, const char **key)
{
  static const struct {
    const char *key;
    char *(*check)(const Recording *recording);
  } rules[] = {
      {"memory", check_memory}, {"segments", check_segments}, {"completions", check_completions},
      {"spans", check_spans},   {"ranges", check_ranges},     {"steps", check_steps},
      {"beyond", check_beyond}, {"waits", check_waits},       {"range_events", check_range_events},
  };
  for (guint i = 0; i < G_N_ELEMENTS(rules); i++) {
    char *wrong = rules[i].check(recording);
    if (wrong != NULL) {
      *key = rules[i].key;
      return wrong;
    }
  }
  return NULL;
}
