/* trace_compare.c - a replay beside the trace's own segment events and addresses. */
#include "import/trace_replay_internal.h"

static gboolean
is_segment_event(const TraceEvent *event)
{
  return event->action >= TRACE_SEGMENT_ALLOC && event->action <= TRACE_SEGMENT_UNMAP;
}

gboolean
trace_event_is_release(const TraceEvent *event)
{
  return event->action == TRACE_SEGMENT_FREE || event->action == TRACE_SEGMENT_UNMAP;
}

gboolean
trace_event_is_growth(const TraceEvent *event)
{
  return event->action == TRACE_SEGMENT_ALLOC || event->action == TRACE_SEGMENT_MAP;
}

gboolean
trace_event_is_call(const TraceEvent *event)
{
  return !is_segment_event(event) && event->action != TRACE_FREE_COMPLETED &&
         event->action != TRACE_SNAPSHOT;
}

/* The next segment event of the trace before the next call, or NULL. */
static const TraceEvent *
expected_segment(ReplayDriver *driver)
{
  for (; driver->compared < driver->call; driver->compared++) {
    const TraceEvent *event = trace_event(driver->trace, driver->compared);
    if (is_segment_event(event))
      return event;
  }
  return NULL;
}

static char *
describe(const ReplayDriver *driver, TraceAction action, int stream, gint64 bytes, guint64 address)
{
  return g_strdup_printf(
      "%s of %" G_GINT64_FORMAT " bytes at %" G_GUINT64_FORMAT " on stream %" G_GUINT64_FORMAT,
      trace_action_name(action), bytes, address, replay_stream(driver, stream)->stream);
}

void
trace_compare_diverge(ReplayDriver *driver, guint event, char *trace_did, char *replay_did)
{
  TraceReplay *replay = driver->replay;
  if (!driver->trace->has_segment_events || replay->first_divergence >= 0) {
    g_free(trace_did);
    g_free(replay_did);
    return;
  }
  replay->first_divergence = (gint32) event;
  replay->trace_did = trace_did;
  replay->replay_did = replay_did;
}

static char *
describe_expected(const ReplayDriver *driver, const TraceEvent *expected)
{
  if (expected)
    return describe(driver, (TraceAction) expected->action, expected->stream, expected->bytes,
                    expected->address);
  gboolean failed = trace_event(driver->trace, driver->event)->action == TRACE_OUT_OF_MEMORY;
  return g_strdup(failed ? "out of memory" : "nothing");
}

void
trace_compare_segment(ReplayDriver *driver, TraceAction action, int stream, guint64 address,
                      gint64 bytes)
{
  const TraceEvent *expected = expected_segment(driver);
  guint at = expected ? driver->compared : driver->event;
  driver->compared += expected != NULL;
  if (expected && expected->action == action && expected->stream == stream &&
      expected->bytes == bytes && expected->address == address) {
    driver->replay->segment_events_compared++;
    return;
  }
  trace_compare_diverge(driver, at, describe_expected(driver, expected),
                        describe(driver, action, stream, bytes, address));
}

/* Best fit takes one block of many: where it differs shows earlier than by segments. */
void
trace_compare_address(ReplayDriver *driver, guint64 expected, guint64 address)
{
  TraceReplay *replay = driver->replay;
  if (!driver->trace->has_segment_events || replay->first_misplaced >= 0 || address == expected)
    return;
  replay->first_misplaced = (gint32) driver->event;
  replay->trace_address = expected;
  replay->replay_address = address;
}

/* What the trace did for this call and the replay did not. */
void
trace_compare_finish(ReplayDriver *driver)
{
  const TraceEvent *expected = expected_segment(driver);
  if (expected)
    trace_compare_diverge(driver, driver->compared, describe_expected(driver, expected),
                          g_strdup("nothing"));
}
