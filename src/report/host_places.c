/* host_places.c - where the host was at each memory event: the innermost open range of each kind.
 *
 * Modules have ranges in forward only.  In backward the module is that of the hook the host is in,
 * else that of the last allocation: the node that runs has just made its gradients. */
#include "report/host_places.h"

#include "report/summary.h"

struct _HostPlaces {
  const Recording *recording;
  gint32 *innermost[RECORDED_RANGE_KINDS]; /* by memory event: 1 + index into ranges, 0: none */
};

/* First event whose time is at least (after: more than) that. */
static guint
first_event(const Recording *recording, SimTime time, gboolean after)
{
  guint low = 0, high = recording->memory->len;
  while (low < high) {
    guint middle = low + (high - low) / 2;
    SimTime at = g_array_index(recording->memory, MemoryEvent, middle).time;
    if (at > time || (at == time && !after))
      high = middle;
    else
      low = middle + 1;
  }
  return low;
}

static RangeEvents
events_of_range(const Recording *recording, guint i)
{
  if (i < recording->range_events->len)
    return g_array_index(recording->range_events, RangeEvents, i);
  const Range *range = &g_array_index(recording->ranges, Range, i);
  return (RangeEvents){(gint32) first_event(recording, range->start, FALSE),
                       (gint32) first_event(recording, range->end, FALSE)};
}

HostPlaces *
host_places_new(const Recording *recording)
{
  HostPlaces *places = g_new0(HostPlaces, 1);
  places->recording = recording;
  for (int kind = 0; kind < RECORDED_RANGE_KINDS; kind++)
    places->innermost[kind] = g_new0(gint32, recording->memory->len + 1);
  /* Ranges come by their starts, so inner ones overwrite outer ones. */
  for (guint i = 0; i < recording->ranges->len; i++) {
    guint8 kind = g_array_index(recording->ranges, Range, i).kind;
    RangeEvents events = events_of_range(recording, i);
    for (gint32 k = events.first; k < events.end; k++)
      places->innermost[kind][k] = (gint32) i + 1;
  }
  return places;
}

void
host_places_free(HostPlaces *places)
{
  if (places == NULL)
    return;
  for (int kind = 0; kind < RECORDED_RANGE_KINDS; kind++)
    g_free(places->innermost[kind]);
  g_free(places);
}

static const Range *
range_at(const HostPlaces *places, RecordedRange kind, guint event)
{
  gint32 range = places->innermost[kind][event];
  return range == 0 ? NULL : &g_array_index(places->recording->ranges, Range, (guint) (range - 1));
}

/* The module of the last allocation of the phase up to an event. */
static gint32
last_allocating_module(const HostPlaces *places, guint event)
{
  const gint32 *phases = places->innermost[RECORDED_PHASE];
  for (guint i = event + 1; i > 0 && phases[i - 1] == phases[event]; i--) {
    const MemoryEvent *at = &g_array_index(places->recording->memory, MemoryEvent, i - 1);
    if (at->requested_bytes > 0 && at->module >= 0)
      return at->module;
  }
  return -1;
}

static gint32
module_at(const HostPlaces *places, guint event)
{
  const Range *module = range_at(places, RECORDED_MODULE, event);
  const Range *hook = range_at(places, RECORDED_HOOK, event);
  if (module != NULL)
    return module->name;
  if (hook != NULL && hook->module >= 0)
    return hook->module;
  return last_allocating_module(places, event);
}

/* Are there no further events in phases of the event's step? */
static gboolean
is_after_phases(const HostPlaces *places, guint event)
{
  const GArray *memory = places->recording->memory;
  int step = g_array_index(memory, MemoryEvent, event).step;
  for (guint i = event; i < memory->len; i++) {
    if (g_array_index(memory, MemoryEvent, i).step != step)
      return TRUE;
    if (places->innermost[RECORDED_PHASE][i] > 0)
      return FALSE;
  }
  return TRUE;
}

HostPlace
host_place_at(const HostPlaces *places, guint event)
{
  const Range *phase = range_at(places, RECORDED_PHASE, event);
  const Range *hook = range_at(places, RECORDED_HOOK, event);
  return (HostPlace){
      .step = g_array_index(places->recording->memory, MemoryEvent, event).step,
      .phase = phase != NULL ? phase->name : -1,
      .micro_batch = phase != NULL ? phase->micro_batch : -1,
      .module = phase != NULL ? module_at(places, event) : -1,
      .hook = hook != NULL ? hook->name : -1,
      .at_end = phase == NULL && is_after_phases(places, event),
  };
}

void
host_place_append_named(const Recording *recording, const HostPlace *place, const HostPlace *known,
                        const char *module, GString *out)
{
  const char *hook = report_text(recording, place->hook, NULL);
  gboolean same_step = known != NULL && known->step == place->step;
  if (!same_step && place->step > 0)
    g_string_append_printf(out, "step %d, ", place->step);
  const char *no_phase = place->step == 0 ? "construction"
                         : place->at_end  ? "end of the step"
                                          : "between phases";
  g_string_append(out, report_text(recording, place->phase, no_phase));
  if (*module != '\0')
    g_string_append_printf(out, " of %s", module);
  if (hook != NULL)
    g_string_append_printf(out, " in %s", hook);
  if (place->micro_batch > 0 && !(same_step && known->micro_batch == place->micro_batch))
    g_string_append_printf(out, ", micro-batch %d", place->micro_batch);
}

void
host_place_append(const Recording *recording, const HostPlace *place, const HostPlace *known,
                  GString *out)
{
  host_place_append_named(recording, place, known, report_text(recording, place->module, ""), out);
}
