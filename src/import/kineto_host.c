/* kineto_host.c - the host's side of a trace played through a Recorder, as a simulated run is: so
 * peaks mean the same. */
#include "import/kineto_timeline.h"

#include "record/recorder.h"

/* In the order in which they count at one moment: an allocation belongs to what was open until
 * then, unless the trace says that its step, or its phase, had begun. */
typedef enum {
  MARK_MEMORY,
  MARK_END,
  MARK_BEGIN,
  MARK_MEMORY_OF_STEP,
  MARK_RANGE,
  MARK_MEMORY_OF_PHASE,
} MarkKind;

typedef struct {
  SimTime time;
  MarkKind kind;
  guint index; /* into memory, steps or ranges */
} Mark;

typedef struct {
  Timeline *timeline;
  Recorder *recorder;
  gint64 device;
  guint step;        /* from 1; 0: before the first */
  gboolean in_step;  /* begun and not ended */
  GArray *open;      /* SimTime: ends of open ranges, innermost last */
  GHashTable *alive; /* address -> number of the allocation + 1 */
  GArray *bytes;     /* gint64: of each allocation; 0: it was freed */
  gint64 known;      /* bytes alive that the trace names */
  gint64 rest;       /* bytes of the one allocation that stands for all that it does not */
  gint32 rest_number;
  MemoryLevel level;
} Player;

static MemoryLevel
read_level(gpointer user)
{
  Player *player = user;
  MemoryLevel level = player->level;
  player->level.peak_allocated = level.allocated;
  player->level.peak_reserved = level.reserved;
  return level;
}

/* ---- memory ---- */

static void
set_level(Player *player, gint64 reserved)
{
  MemoryLevel *level = &player->level;
  level->allocated = player->known + player->rest;
  level->reserved = MAX(reserved >= 0 ? reserved : level->reserved, level->allocated);
  level->peak_allocated = MAX(level->peak_allocated, level->allocated);
  level->peak_reserved = MAX(level->peak_reserved, level->reserved);
}

static gint32
allocate(Player *player, SimTime time, gint64 bytes, const MemoryEvent *event)
{
  MemoryEvent allocated = *event;
  allocated.time = time;
  allocated.block_bytes = bytes;
  allocated.allocated_after = player->level.allocated;
  allocated.reserved_after = player->level.reserved;
  gint32 number = recorder_allocate(player->recorder, &allocated);
  g_array_set_size(player->bytes, (guint) number + 1);
  g_array_index(player->bytes, gint64, number) = bytes;
  return number;
}

static void
release(Player *player, SimTime time, gint32 number)
{
  g_array_index(player->bytes, gint64, number) = 0;
  recorder_release(player->recorder, number, time, player->level.allocated, player->level.reserved);
}

/* What the trace does not name is one allocation, made anew when it is found to be another size. */
static void
set_rest(Player *player, SimTime time, gint64 rest, gint64 reserved)
{
  MemoryEvent unknown = {.requested_bytes = rest,
                         .category = CATEGORY_OTHER,
                         .module = -1,
                         .what = recording_string(player->timeline->recording, "not in the trace")};
  if (rest == player->rest)
    return;
  if (player->rest > 0) {
    player->rest = 0;
    set_level(player, reserved);
    release(player, time, player->rest_number);
  }
  player->rest = rest;
  set_level(player, reserved);
  if (rest > 0)
    player->rest_number = allocate(player, time, rest, &unknown);
}

/* The allocation at the event's address, or -1. */
static gint32
take_alive(Player *player, gint64 address)
{
  gpointer found = g_hash_table_lookup(player->alive, &address);
  if (found == NULL)
    return -1;
  g_hash_table_remove(player->alive, &address);
  return GPOINTER_TO_INT(found) - 1;
}

static void
free_alive(Player *player, const TimelineMemory *memory, gint64 reserved)
{
  gint32 number = take_alive(player, memory->address);
  if (number < 0)
    return; /* it was made before the trace: the rest shrinks */
  player->known -= g_array_index(player->bytes, gint64, number);
  set_level(player, reserved);
  release(player, memory->time, number);
}

static void
play_allocation(Player *player, const TimelineMemory *memory)
{
  MemoryEvent event = {.requested_bytes = memory->requested > 0 ? memory->requested : memory->bytes,
                       .address = (guint64) memory->address,
                       .category = memory->category,
                       .stream = (guint8) MAX(timeline_stream(player->timeline, memory->stream), 0),
                       .module = memory->module,
                       .what = memory->what};
  if (memory->address < 0 || memory->bytes >= KINETO_MOST - player->known - player->rest)
    return;
  free_alive(player, memory, -1); /* its free is missing */
  /* What was there before counts before. */
  if (memory->allocated >= memory->bytes)
    set_rest(player, memory->time, MAX(memory->allocated - memory->bytes - player->known, 0),
             player->level.reserved);
  player->known += memory->bytes;
  set_level(player, memory->reserved);
  gint32 number = allocate(player, memory->time, memory->bytes, &event);
  g_hash_table_insert(player->alive, g_memdup2(&memory->address, sizeof memory->address),
                      GINT_TO_POINTER(number + 1));
}

static void
play_memory(Player *player, const TimelineMemory *memory)
{
  if (player->device >= 0 && memory->device >= 0 && memory->device != player->device)
    return;
  if (memory->failed) {
    const OutOfMemoryRecord record = {.what = -1,
                                      .module = -1,
                                      .requested_bytes = memory->bytes,
                                      .segment_bytes = memory->bytes,
                                      .limit_bytes = player->timeline->recording->capacity_bytes,
                                      .allocated_bytes = player->level.allocated,
                                      .reserved_bytes = player->level.reserved};
    if (!player->timeline->recording->out_of_memory.happened)
      recorder_out_of_memory(player->recorder, &record);
    return;
  }
  if (memory->bytes > 0) {
    play_allocation(player, memory);
    return;
  }
  free_alive(player, memory, memory->reserved);
  if (memory->allocated >= 0)
    set_rest(player, memory->time, MAX(memory->allocated - player->known, 0), memory->reserved);
}

/* Before the first event as much was there as it leaves, less its own. */
static void
begin_memory(Player *player)
{
  const GArray *all = player->timeline->memory;
  for (guint i = 0; i < all->len; i++) {
    const TimelineMemory *memory = &g_array_index(all, TimelineMemory, i);
    if (memory->failed ||
        (player->device >= 0 && memory->device >= 0 && memory->device != player->device))
      continue;
    if (memory->allocated >= 0 && memory->allocated - memory->bytes > 0)
      set_rest(player, 0, memory->allocated - memory->bytes, memory->reserved);
    return;
  }
}

/* ---- ranges and steps ---- */

static void
close_until(Player *player, SimTime time, gboolean and_then)
{
  while (player->open->len > 0) {
    SimTime end = g_array_index(player->open, SimTime, player->open->len - 1);
    if (end > time || (end == time && !and_then))
      return;
    recorder_pop(player->recorder, end);
    g_array_set_size(player->open, player->open->len - 1);
  }
}

/* One that reaches over the end of that in which it begins ends there. */
static void
play_range(Player *player, const Range *range)
{
  SimTime end = range->end;
  gboolean beyond = player->open->len == 0 && !player->in_step && player->step > 0 &&
                    range->kind == RECORDED_PHASE;
  if (player->open->len > 0)
    end = MIN(end, g_array_index(player->open, SimTime, player->open->len - 1));
  if (beyond)
    recorder_begin_beyond(player->recorder, range->start, range);
  else
    recorder_push(player->recorder, range->start, range);
  g_array_append_val(player->open, end);
}

static void
begin_step(Player *player, const TimelineStep *step)
{
  recorder_close_ranges(player->recorder, step->begin);
  g_array_set_size(player->open, 0);
  if (player->step == 0)
    recorder_end_construction(player->recorder);
  recorder_begin_step(player->recorder, step->begin);
  player->step++;
  player->in_step = TRUE;
}

static void
end_step(Player *player, const TimelineStep *step)
{
  recorder_end_step(player->recorder, step->end);
  g_array_set_size(player->open, 0);
  player->in_step = FALSE;
}

/* ---- all ---- */

static int
compare_marks(gconstpointer a, gconstpointer b)
{
  const Mark *x = a, *y = b;
  if (x->time != y->time)
    return x->time < y->time ? -1 : 1;
  if (x->kind != y->kind)
    return (int) x->kind - (int) y->kind;
  return (x->index > y->index) - (x->index < y->index);
}

static void
add_mark(GArray *marks, SimTime time, MarkKind kind, guint index)
{
  Mark mark = {time, kind, index};
  g_array_append_val(marks, mark);
}

guint
timeline_steps_before(const Timeline *timeline, SimTime time)
{
  guint low = 0, high = timeline->steps->len;
  while (low < high) {
    guint middle = low + (high - low) / 2;
    if (g_array_index(timeline->steps, TimelineStep, middle).begin < time)
      low = middle + 1;
    else
      high = middle;
  }
  return low;
}

/* The step that begins at that moment; 0: none does. */
static guint
step_begun_at(const Timeline *timeline, SimTime time)
{
  guint i = timeline_steps_before(timeline, time);
  return i < timeline->steps->len && g_array_index(timeline->steps, TimelineStep, i).begin == time
             ? i + 1
             : 0;
}

static GArray *
marks_new(const Timeline *timeline)
{
  GArray *marks = g_array_new(FALSE, FALSE, sizeof(Mark));
  for (guint i = 0; i < timeline->memory->len; i++) {
    const TimelineMemory *memory = &g_array_index(timeline->memory, TimelineMemory, i);
    gboolean begun = memory->step > 0 && memory->step == step_begun_at(timeline, memory->time);
    add_mark(marks, memory->time,
             memory->in_phase ? MARK_MEMORY_OF_PHASE
             : begun          ? MARK_MEMORY_OF_STEP
                              : MARK_MEMORY,
             i);
  }
  for (guint i = 0; i < timeline->steps->len; i++) {
    const TimelineStep *step = &g_array_index(timeline->steps, TimelineStep, i);
    add_mark(marks, step->begin, MARK_BEGIN, i);
    add_mark(marks, step->end, MARK_END, i);
  }
  for (guint i = 0; i < timeline->ranges->len; i++)
    add_mark(marks, g_array_index(timeline->ranges, TimelineRange, i).range.start, MARK_RANGE, i);
  g_array_sort(marks, compare_marks);
  return marks;
}

static void
play(Player *player, const Mark *mark)
{
  const Timeline *timeline = player->timeline;
  close_until(player, mark->time, mark->kind != MARK_MEMORY);
  switch (mark->kind) {
  case MARK_MEMORY:
  case MARK_MEMORY_OF_STEP:
  case MARK_MEMORY_OF_PHASE:
    play_memory(player, &g_array_index(timeline->memory, TimelineMemory, mark->index));
    break;
  case MARK_END:
    end_step(player, &g_array_index(timeline->steps, TimelineStep, mark->index));
    break;
  case MARK_BEGIN:
    begin_step(player, &g_array_index(timeline->steps, TimelineStep, mark->index));
    break;
  case MARK_RANGE:
    play_range(player, &g_array_index(timeline->ranges, TimelineRange, mark->index).range);
    break;
  }
}

/* Outer ranges before those that begin with them. */
static int
compare_ranges(gconstpointer a, gconstpointer b)
{
  const Range *x = &((const TimelineRange *) a)->range, *y = &((const TimelineRange *) b)->range;
  if (x->start != y->start)
    return x->start < y->start ? -1 : 1;
  if (x->end != y->end)
    return x->end > y->end ? -1 : 1;
  guint first = ((const TimelineRange *) a)->order, second = ((const TimelineRange *) b)->order;
  return (first > second) - (first < second);
}

void
timeline_play_host(Timeline *timeline, gint64 device)
{
  Player player = {.timeline = timeline,
                   .device = device,
                   .open = g_array_new(FALSE, FALSE, sizeof(SimTime)),
                   .alive = g_hash_table_new_full(g_int64_hash, g_int64_equal, g_free, NULL),
                   .bytes = g_array_new(FALSE, TRUE, sizeof(gint64))};
  g_array_sort(timeline->ranges, compare_ranges);
  g_autoptr(GArray) marks = marks_new(timeline);
  player.recorder = recorder_new(timeline->recording, read_level, &player);
  begin_memory(&player);
  for (guint i = 0; i < marks->len; i++)
    play(&player, &g_array_index(marks, Mark, i));
  close_until(&player, G_MAXINT64, TRUE);
  recorder_finish(player.recorder);
  recorder_free(player.recorder);
  g_array_unref(player.open);
  g_array_unref(player.bytes);
  g_hash_table_unref(player.alive);
}
