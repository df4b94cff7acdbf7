/* peak_story.c - who is alive at a moment, what came since the high before it, what is cached. */
#include "report/peak_story_parts.h"

#include "memory/caching_allocator.h"
#include "report/summary.h"

/* A high ends when memory goes down by this share of the peak. */
static const double high_dip = 0.01;

static const MemoryEvent *
event_at(const Recording *recording, guint i)
{
  return &g_array_index(recording->memory, MemoryEvent, i);
}

guint
peak_story_peak_events(const Recording *recording)
{
  const PeakRecord *peak = &recording->peak;
  guint before = 0; /* events until a step begins at the peak, without an event of its own */
  for (guint i = 0; i < recording->memory->len; i++) {
    const MemoryEvent *event = event_at(recording, i);
    if (event->allocated_after == peak->allocated && event->time == peak->time &&
        event->requested_bytes > 0)
      return i + 1;
    if (event->allocated_after == peak->allocated && event->time <= peak->time)
      before = i + 1;
  }
  return before;
}

/* ---- who is alive ---- */

static const char *
holder_of(const PeakStory *story, const StoryTensor *tensor)
{
  /* phase: where it is freed; NULL: anywhere.  The first row that agrees counts. */
  static const struct {
    Category category;
    const char *made, *freed, *holder;
  } holders[] = {
      {CATEGORY_PARAMETER, NULL, NULL, "the model"},
      {CATEGORY_OPTIMIZER_STATE, NULL, NULL, "the optimizer"},
      {CATEGORY_SHARDED_GRADIENT, NULL, NULL, "parameters, as .grad"},
      {CATEGORY_UNSHARDED_PARAMETER, NULL, NULL, "its group, gathered"},
      {CATEGORY_UNSHARDED_GRADIENT, NULL, "zero_grad", "parameters, as .grad"},
      {CATEGORY_UNSHARDED_GRADIENT, NULL, NULL, "its group, until reduced"},
      {CATEGORY_ALL_GATHER_BUFFER, NULL, NULL, "an all-gather"},
      {CATEGORY_REDUCE_SCATTER_BUFFER, NULL, NULL, "a reduce-scatter"},
      {CATEGORY_ACTIVATION, "backward", NULL, "recomputed, for backward"},
      {CATEGORY_ACTIVATION, NULL, "backward", "saved for backward"},
      {CATEGORY_ACTIVATION, NULL, "forward", "a local of forward"},
      {CATEGORY_ACTIVATION, NULL, NULL, "saved, or a local of forward"},
      {CATEGORY_TEMPORARY, NULL, NULL, "ops that run"},
      {CATEGORY_WORKSPACE, NULL, NULL, "a library, as workspace"},
      {CATEGORY_OTHER, NULL, NULL, "the training loop"},
  };
  const Recording *recording = story->recording;
  if (peak_story_is_clone(story, tensor))
    return "a reference beyond its time";
  const char *made = report_text(recording, tensor->made.phase, "");
  const char *freed = tensor->death < 0 ? "" : report_text(recording, tensor->freed.phase, "");
  for (guint i = 0; i < G_N_ELEMENTS(holders); i++)
    if (holders[i].category == tensor->category &&
        (holders[i].made == NULL || g_str_equal(holders[i].made, made)) &&
        (holders[i].freed == NULL || g_str_equal(holders[i].freed, freed)))
      return holders[i].holder;
  return "";
}

static int
compare_tensors(gconstpointer a, gconstpointer b)
{
  const StoryTensor *x = a, *y = b;
  if (x->bytes != y->bytes)
    return x->bytes > y->bytes ? -1 : 1;
  return x->birth < y->birth ? -1 : x->birth > y->birth;
}

/* By allocation: the event that frees it, -1: none. */
static gint64 *
deaths_of(const Recording *recording)
{
  gint64 *deaths = g_new(gint64, recording->memory->len + 1);
  for (guint i = 0; i < recording->memory->len; i++) {
    const MemoryEvent *event = event_at(recording, i);
    deaths[event->allocation] = event->requested_bytes > 0 ? -1 : (gint64) i;
  }
  return deaths;
}

static void
collect_tensors(PeakStory *story, const gint64 *deaths)
{
  for (guint i = 0; i < story->events; i++) {
    const MemoryEvent *event = event_at(story->recording, i);
    gint64 death = deaths[event->allocation];
    if (event->requested_bytes < 0 || (death >= 0 && death < story->events))
      continue;
    StoryTensor tensor = {.birth = i,
                          .death = death,
                          .bytes = event_at(story->levels, i)->block_bytes,
                          .category = event->category,
                          .module = event->module,
                          .what = event->what,
                          .is_new = (gint64) i > story->high_event,
                          .made = host_place_at(story->places, i)};
    if (death >= 0)
      tensor.freed = host_place_at(story->places, (guint) death);
    tensor.holder = holder_of(story, &tensor);
    story->categories[tensor.category] += tensor.bytes;
    g_array_append_val(story->tensors, tensor);
  }
  g_array_sort(story->tensors, compare_tensors);
}

/* ---- the high before ---- */

/* Walks back from this moment: down into the valley before it, and up to what is highest before
 * memory goes down again. */
static void
find_high(PeakStory *story)
{
  gint64 dip = MAX((gint64) (high_dip * (double) story->allocated), 1);
  story->valley = story->allocated;
  for (guint i = story->events - 1; i > 0; i--) {
    gint64 level = event_at(story->levels, i - 1)->allocated_after;
    if (story->high_event < 0 && level - story->valley < dip) {
      story->valley = MIN(story->valley, level);
    } else if (story->high_event < 0 || level > story->high) {
      story->high_event = (gint64) i - 1;
      story->high = level;
    } else if (story->high - level >= dip) {
      return;
    }
  }
}

/* What the high had and this moment has not. */
static void
compare_with_high(PeakStory *story, const gint64 *deaths)
{
  for (guint i = 0; i < story->tensors->len; i++) {
    const StoryTensor *tensor = &g_array_index(story->tensors, StoryTensor, i);
    story->came += tensor->is_new ? tensor->bytes : 0;
  }
  for (gint64 i = 0; i <= story->high_event; i++) {
    const MemoryEvent *event = event_at(story->levels, (guint) i);
    gint64 death = deaths[event->allocation];
    if (event->requested_bytes > 0 && death > story->high_event && death < story->events)
      story->went += event->block_bytes;
  }
}

/* ---- reserved and not allocated ---- */

/* Segments of each stream less its live blocks; nothing where segments do not add up to what was
 * reserved. */
static void
collect_cached(PeakStory *story)
{
  const Recording *recording = story->recording;
  SimTime now = event_at(recording, story->events - 1)->time;
  gint64 reserved = 0;
  g_array_set_size(story->cached, recording->streams->len);
  gint64 *bytes = (gint64 *) (gpointer) story->cached->data;
  for (guint i = 0; i < recording->segments->len; i++) {
    const SegmentEvent *segment = &g_array_index(recording->segments, SegmentEvent, i);
    if (segment->time > now)
      break;
    gboolean comes = segment->action == SEGMENT_ALLOC || segment->action == SEGMENT_MAP;
    bytes[segment->stream] += comes ? segment->bytes : -segment->bytes;
    reserved += comes ? segment->bytes : -segment->bytes;
  }
  for (guint i = 0; i < story->tensors->len; i++) {
    guint birth = g_array_index(story->tensors, StoryTensor, i).birth;
    const MemoryEvent *event = event_at(recording, birth);
    bytes[event->stream] -= event->block_bytes;
  }
  if (reserved != story->reserved)
    g_array_set_size(story->cached, 0);
}

/* ---- the whole ---- */

static void
row_clear(gpointer data)
{
  StoryRow *row = data;
  g_free(row->name);
  g_free(row->until);
}

static PeakStory *
tell(const Recording *recording, const RunInfo *info, guint events, const Recording *levels)
{
  g_assert(events > 0 && events <= recording->memory->len && events <= levels->memory->len);
  PeakStory *story = g_new0(PeakStory, 1);
  const MemoryEvent *last = event_at(levels, events - 1);
  story->recording = recording;
  story->levels = levels;
  story->info = info;
  story->events = events;
  story->allocated = last->allocated_after;
  story->reserved = last->reserved_after;
  story->high_event = -1;
  story->places = host_places_new(recording);
  story->place = host_place_at(story->places, events - 1);
  story->tensors = g_array_new(FALSE, TRUE, sizeof(StoryTensor));
  story->rows = g_array_new(FALSE, TRUE, sizeof(StoryRow));
  g_array_set_clear_func(story->rows, row_clear);
  story->groups = g_array_new(FALSE, TRUE, sizeof(GatheredGroup));
  story->cached = g_array_new(FALSE, TRUE, sizeof(gint64));
  g_autofree gint64 *deaths = deaths_of(recording);
  find_high(story);
  collect_tensors(story, deaths);
  compare_with_high(story, deaths);
  peak_story_rows(story);
  peak_story_groups(story);
  return story;
}

PeakStory *
peak_story_new(const Recording *recording, const RunInfo *info, guint events)
{
  PeakStory *story = tell(recording, info, events, recording);
  collect_cached(story);
  return story;
}

PeakStory *
peak_story_new_failure(const Recording *recording, const RunInfo *info, const Recording *ended)
{
  PeakStory *story = tell(recording, info, ended->memory->len, ended);
  story->reserved = ended->out_of_memory.reserved_bytes; /* some was given back before */
  g_array_append_vals(story->cached, ended->cached->data, ended->cached->len);
  return story;
}

void
peak_story_free(PeakStory *story)
{
  if (story == NULL)
    return;
  host_places_free(story->places);
  g_array_unref(story->tensors);
  g_array_unref(story->rows);
  g_array_unref(story->groups);
  g_array_unref(story->cached);
  g_free(story);
}
