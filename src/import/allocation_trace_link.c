/* allocation_trace_link.c - what the events of a trace have to do with each other. */
#include "base/units.h"
#include "import/allocation_trace_internal.h"

/* Frees that wait are explained by at most so many queues. */
#define MAX_LANES 64

static TraceEvent *
event_at(const AllocationTrace *trace, guint i)
{
  return &g_array_index(trace->events, TraceEvent, i);
}

static TraceSlot *
slot_at(const AllocationTrace *trace, gint32 i)
{
  return &g_array_index(trace->slots, TraceSlot, i);
}

static gboolean
refuse(const AllocationTrace *trace, guint event, GError **error, const char *what)
{
  g_set_error(error, HIGHWATER_ERROR, HIGHWATER_ERROR_INPUT,
              "%s: event %u: %s (address %" G_GUINT64_FORMAT ")", trace->name, event, what,
              event_at(trace, event)->address);
  return FALSE;
}

static gint
compare_names(gconstpointer a, gconstpointer b)
{
  guint64 first = *(const guint64 *) a, second = *(const guint64 *) b;
  return (first > second) - (first < second);
}

/* The allocator orders streams by the value of their pointers, here by number: renumber. */
static void
order_streams(AllocationTrace *trace)
{
  GArray *streams = trace->streams;
  g_autofree guint64 *found = g_new(guint64, MAX(streams->len, 1));
  g_autofree gint32 *number = g_new(gint32, MAX(streams->len, 1));
  for (guint i = 0; i < streams->len; i++)
    found[i] = g_array_index(streams, guint64, i);
  g_array_sort(streams, compare_names);
  for (guint i = 0; i < streams->len; i++) {
    number[i] = 0;
    while (g_array_index(streams, guint64, number[i]) != found[i])
      number[i]++;
  }
  for (guint i = 0; i < trace->segments->len; i++) {
    TraceSegment *segment = &g_array_index(trace->segments, TraceSegment, i);
    segment->stream = number[segment->stream];
  }
  for (guint i = 0; i < trace->events->len; i++) {
    TraceEvent *event = event_at(trace, i);
    event->stream = streams->len > 0 ? number[event->stream] : 0;
  }
}

static gint
compare_segments(gconstpointer a, gconstpointer b)
{
  return compare_names(&((const TraceSegment *) a)->address, &((const TraceSegment *) b)->address);
}

/* Addresses in use while the events are followed. */
typedef struct {
  AllocationTrace *trace;
  GHashTable *slots; /* address -> slot + 1 */
  GError **error;
} Linker;

static gboolean
insert_blocks(Linker *linker)
{
  const AllocationTrace *trace = linker->trace;
  for (guint i = 0; i < trace->segments->len; i++) {
    const TraceSegment *segment = &g_array_index(trace->segments, TraceSegment, i);
    guint64 address = segment->address;
    for (guint k = 0; k < segment->n_blocks; k++) {
      const TraceBlock *block = &g_array_index(trace->blocks, TraceBlock, segment->first_block + k);
      if (block->slot >= 0)
        g_hash_table_insert(linker->slots, GSIZE_TO_POINTER(address),
                            GINT_TO_POINTER(block->slot + 1));
      address += (guint64) block->bytes;
    }
  }
  return TRUE;
}

static gint32
slot_of(const Linker *linker, guint64 address)
{
  return GPOINTER_TO_INT(g_hash_table_lookup(linker->slots, GSIZE_TO_POINTER(address))) - 1;
}

static gboolean
link_alloc(Linker *linker, guint i)
{
  AllocationTrace *trace = linker->trace;
  TraceEvent *event = event_at(trace, i);
  if (event->bytes == 0)
    return refuse(trace, i, linker->error, "alloc of 0 bytes");
  if (slot_of(linker, event->address) >= 0)
    return refuse(trace, i, linker->error, "alloc where something is already allocated");
  TraceSlot slot = {G_MAXINT32, G_MAXINT32, -1};
  event->slot = (gint32) trace->slots->len;
  g_array_append_val(trace->slots, slot);
  g_hash_table_insert(linker->slots, GSIZE_TO_POINTER(event->address),
                      GINT_TO_POINTER(event->slot + 1));
  return TRUE;
}

static gboolean
link_free_requested(Linker *linker, guint i)
{
  TraceEvent *event = event_at(linker->trace, i);
  event->slot = slot_of(linker, event->address);
  if (event->slot < 0)
    return refuse(linker->trace, i, linker->error, "free of an unknown block");
  TraceSlot *slot = slot_at(linker->trace, event->slot);
  if (slot->freed_at != G_MAXINT32)
    return refuse(linker->trace, i, linker->error, "double free");
  slot->freed_at = (gint32) i;
  return TRUE;
}

static gboolean
link_free_completed(Linker *linker, guint i)
{
  TraceEvent *event = event_at(linker->trace, i);
  event->slot = slot_of(linker, event->address);
  if (event->slot < 0)
    return refuse(linker->trace, i, linker->error, "completed free of an unknown block");
  TraceSlot *slot = slot_at(linker->trace, event->slot);
  if (slot->freed_at == G_MAXINT32)
    return refuse(linker->trace, i, linker->error, "completed free that nobody requested");
  slot->completed_at = (gint32) i;
  g_hash_table_remove(linker->slots, GSIZE_TO_POINTER(event->address));
  return TRUE;
}

static gboolean
link_slots(Linker *linker)
{
  static gboolean (*const link[TRACE_ACTION_COUNT])(Linker * linker, guint i) = {
      [TRACE_ALLOC] = link_alloc,
      [TRACE_FREE_REQUESTED] = link_free_requested,
      [TRACE_FREE_COMPLETED] = link_free_completed,
  };
  insert_blocks(linker);
  for (guint i = 0; i < linker->trace->events->len; i++) {
    guint action = event_at(linker->trace, i)->action;
    if (link[action] && !link[action](linker, i))
      return FALSE;
  }
  return TRUE;
}

static gint
compare_completion(gconstpointer a, gconstpointer b, gpointer user)
{
  const AllocationTrace *trace = user;
  gint32 first = *(const gint32 *) a, second = *(const gint32 *) b;
  const TraceSlot *x = slot_at(trace, first), *y = slot_at(trace, second);
  /* Of those requested before the trace the order of requests is unknown: that of completion. */
  gint32 when = x->freed_at != y->freed_at
                    ? (x->freed_at > y->freed_at) - (x->freed_at < y->freed_at)
                    : (x->completed_at > y->completed_at) - (x->completed_at < y->completed_at);
  return when ? when : (first > second) - (first < second);
}

/* The trace does not say which streams a block was recorded on.  On one stream frees complete in
 * the order of their requests, so each free that waits joins the queue whose last one completes
 * latest among those that complete before it: no other rule needs fewer queues. */
static void
assign_lanes(AllocationTrace *trace)
{
  g_autoptr(GArray) waiting = g_array_new(FALSE, FALSE, sizeof(gint32));
  for (gint32 i = 0; i < (gint32) trace->slots->len; i++) {
    const TraceSlot *slot = slot_at(trace, i);
    if (slot->freed_at < 0 ||
        (slot->freed_at != G_MAXINT32 && slot->completed_at - 1 > slot->freed_at))
      g_array_append_val(waiting, i);
  }
  g_array_sort_with_data(waiting, compare_completion, trace);
  gint32 last[MAX_LANES];
  for (guint i = 0; i < waiting->len; i++) {
    TraceSlot *slot = slot_at(trace, g_array_index(waiting, gint32, i));
    int best = -1;
    for (int lane = 0; lane < trace->n_lanes; lane++) {
      if (last[lane] <= slot->completed_at && (best < 0 || last[lane] > last[best]))
        best = lane;
    }
    if (best < 0)
      best = trace->n_lanes < MAX_LANES ? trace->n_lanes++ : MAX_LANES - 1;
    slot->lane = best;
    last[best] = slot->completed_at;
  }
}

static gboolean
is_growth(const TraceEvent *event)
{
  return event->action == TRACE_SEGMENT_ALLOC || event->action == TRACE_SEGMENT_MAP;
}

/* The lowest reservation of a stream and pool as the trace begins. */
typedef struct {
  TraceSegment *first; /* NULL: none, or it is gone */
  gint64 mapped;
} FirstReservation;

/* Nonsense adds up to no more than nonsense. */
static void
add_mapped(FirstReservation *reservation, gint64 bytes)
{
  reservation->mapped = MIN(reservation->mapped + bytes, (gint64) 1 << 60);
}

static guint64
reservation_begin(const TraceSegment *segment)
{
  return segment->reservation_address ? segment->reservation_address : segment->address;
}

/* Two for each stream: of the large and of the small pool. */
static FirstReservation *
list_first_reservations(const AllocationTrace *trace)
{
  FirstReservation *list = g_new0(FirstReservation, 2 * MAX(trace->streams->len, 1));
  for (guint i = 0; i < trace->segments->len; i++) {
    TraceSegment *segment = &g_array_index(trace->segments, TraceSegment, i);
    FirstReservation *reservation = &list[2 * segment->stream + segment->small_pool];
    if (!reservation->first)
      reservation->first = segment;
    for (guint k = 0; k < segment->n_blocks; k++)
      add_mapped(reservation,
                 g_array_index(trace->blocks, TraceBlock, segment->first_block + k).bytes);
  }
  return list;
}

/* Pages that were mapped on a stream, for which of its pools is not said: that of the allocation
 * they are for. */
static void
follow_map(const AllocationTrace *trace, FirstReservation *list, const TraceEvent *event,
           const TraceEvent *cause)
{
  gint64 total = trace->config.device_total_bytes;
  guint64 nearest = (guint64) MIN(trace->reservation_bytes, total + total / 8);
  FirstReservation *reservation = &list[2 * event->stream + (cause->bytes <= MIB)];
  TraceSegment *first = reservation->first;
  if (!first || first->address > event->address + nearest)
    return;
  if (event->address < reservation_begin(first))
    first->reservation_address = event->address;
  add_mapped(reservation, event->bytes);
}

static void
follow_unmap(const AllocationTrace *trace, FirstReservation *list, const TraceEvent *event)
{
  for (int pool = 0; pool < 2; pool++) {
    FirstReservation *reservation = &list[2 * event->stream + pool];
    if (!reservation->first || event->address < reservation_begin(reservation->first) ||
        event->address - reservation_begin(reservation->first) >=
            (guint64) trace->reservation_bytes)
      continue;
    reservation->mapped -= event->bytes;
    if (reservation->mapped <= 0)
      reservation->first = NULL;
  }
}

/* A reservation whose first pages are unmapped when the trace begins shows where it really begins
 * when they are mapped again: closer below than another reservation could be. */
static void
find_reservations(AllocationTrace *trace)
{
  g_autofree FirstReservation *list = list_first_reservations(trace);
  guint cause = 0; /* the next allocation */
  for (guint i = 0; i < trace->events->len; i++) {
    const TraceEvent *event = event_at(trace, i);
    while (cause < trace->events->len &&
           (cause < i || (event_at(trace, cause)->action != TRACE_ALLOC &&
                          event_at(trace, cause)->action != TRACE_OUT_OF_MEMORY)))
      cause++;
    if (event->action == TRACE_SEGMENT_MAP && cause < trace->events->len)
      follow_map(trace, list, event, event_at(trace, cause));
    else if (event->action == TRACE_SEGMENT_UNMAP)
      follow_unmap(trace, list, event);
  }
}

/* Where cudaMalloc's addresses begin, or reservations end, so that those of the trace are inside.
 */
static void
find_address_base(AllocationTrace *trace)
{
  const guint64 granule = 2 * MIB;
  guint64 lowest = G_MAXUINT64, highest = 0;
  for (guint i = 0; i < trace->segments->len; i++) {
    guint64 address = g_array_index(trace->segments, TraceSegment, i).address;
    lowest = MIN(lowest, address);
    highest = MAX(highest, address);
  }
  for (guint i = 0; i < trace->events->len; i++) {
    const TraceEvent *event = event_at(trace, i);
    if (!is_growth(event))
      continue;
    lowest = MIN(lowest, event->address);
    highest = MAX(highest, event->address);
  }
  if (lowest > highest)
    return;
  guint64 end = (highest + (guint64) trace->reservation_bytes) / granule * granule + 32 * granule;
  trace->config.address_base = trace->config.expandable_segments
                                   ? MIN(end, (guint64) 1 << 51)
                                   : MIN(lowest / granule * granule, (guint64) 1 << 51);
}

gboolean
allocation_trace_link(AllocationTrace *trace, GError **error)
{
  if (trace->events->len == 0 && trace->segments->len == 0) {
    g_set_error(error, HIGHWATER_ERROR, HIGHWATER_ERROR_INPUT, "%s: no events", trace->name);
    return FALSE;
  }
  order_streams(trace);
  g_array_sort(trace->segments, compare_segments);
  if (trace->has_segment_events) {
    g_autoptr(GHashTable) slots = g_hash_table_new(g_direct_hash, g_direct_equal);
    Linker linker = {trace, slots, error};
    if (!link_slots(&linker))
      return FALSE;
    find_address_base(trace);
    if (trace->config.expandable_segments)
      find_reservations(trace);
  }
  assign_lanes(trace);
  return TRUE;
}
