/* stream_clock.c - when a stream comes to what the host does at a moment. */
#include "report/stream_clock.h"
#include "base/sorted_times.h"

typedef struct {
  SimTime issued, start;
} Tick;

struct _StreamClock {
  GArray *ticks; /* Tick, by issued; starts rise with them, since a stream works in order */
  SimTime done;
};

static int
by_issue(gconstpointer a, gconstpointer b)
{
  const Tick *x = a, *y = b;
  return x->issued != y->issued ? (x->issued > y->issued) - (x->issued < y->issued)
                                : (x->start > y->start) - (x->start < y->start);
}

StreamClock *
stream_clock_new(const Recording *recording, int stream)
{
  StreamClock *clock = g_new0(StreamClock, 1);
  clock->ticks = g_array_new(FALSE, FALSE, sizeof(Tick));
  for (guint i = 0; i < recording->spans->len; i++) {
    const Span *span = &g_array_index(recording->spans, Span, i);
    if (span->stream != stream || span->issued == 0)
      continue;
    const Tick tick = {span->issued, span->start};
    g_array_append_val(clock->ticks, tick);
    clock->done = MAX(clock->done, span->end);
  }
  g_array_sort(clock->ticks, by_issue);
  return clock;
}

void
stream_clock_free(StreamClock *clock)
{
  g_array_unref(clock->ticks);
  g_free(clock);
}

SimTime
stream_clock_at(const StreamClock *clock, SimTime host)
{
  guint i = sorted_times_find(clock->ticks, G_STRUCT_OFFSET(Tick, issued), NULL, host);
  SimTime next = i < clock->ticks->len ? g_array_index(clock->ticks, Tick, i).start : clock->done;
  return MAX(next, host);
}
