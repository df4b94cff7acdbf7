/* history.h - what an engine did, for its tests: when works began and ended, in the order of it. */
#ifndef HIGHWATER_TESTS_HISTORY_H
#define HIGHWATER_TESTS_HISTORY_H

#include "engine/engine.h"
#include <check.h>

typedef enum { WORK_BEGAN, WORK_ENDED, CALLED } Happening;

typedef struct {
  SimTime time;
  guint64 tag;
  guint64 what; /* Happening; of full width so that entries compare as bytes */
} HistoryEntry;

typedef struct {
  Engine *engine;
  GArray *entries; /* HistoryEntry */
} History;

static inline History
history_new(void)
{
  return (History){engine_new(), g_array_new(FALSE, FALSE, sizeof(HistoryEntry))};
}

static inline void
history_clear(History *history)
{
  engine_free(history->engine);
  g_array_free(history->entries, TRUE);
}

static inline void
history_add(History *history, guint64 tag, Happening what)
{
  HistoryEntry entry = {engine_now(history->engine), tag, what};

  g_array_append_val(history->entries, entry);
}

/* The callbacks of a Work whose user is a History. */
static inline void
history_began(gpointer history, guint64 tag)
{
  history_add(history, tag, WORK_BEGAN);
}

static inline void
history_ended(gpointer history, guint64 tag)
{
  history_add(history, tag, WORK_ENDED);
}

static inline void
history_called(gpointer history, guint64 tag)
{
  history_add(history, tag, CALLED);
}

static inline Work
history_work(History *history, guint64 tag, SimTime duration)
{
  return (Work){.duration = duration,
                .started = history_began,
                .finished = history_ended,
                .user = history,
                .tag = tag};
}

/* Appends a plain work that may begin at once. */
static inline void
history_submit(History *history, Stream *stream, guint64 tag, SimTime duration)
{
  Work work = history_work(history, tag, duration);

  stream_submit(stream, 0, &work);
}

/* When it happened to the work of that tag, which must have been exactly once. */
static inline SimTime
history_time(const History *history, guint64 tag, Happening what)
{
  SimTime time = -1;

  for (guint i = 0; i < history->entries->len; i++) {
    const HistoryEntry *entry = &g_array_index(history->entries, HistoryEntry, i);

    if (entry->tag == tag && entry->what == what) {
      ck_assert_int_eq(time, -1);
      time = entry->time;
    }
  }
  ck_assert_int_ne(time, -1);
  return time;
}

#define ck_assert_began(history, tag, at)                                                          \
  ck_assert_int_eq(history_time(history, tag, WORK_BEGAN), at)
#define ck_assert_ended(history, tag, at)                                                          \
  ck_assert_int_eq(history_time(history, tag, WORK_ENDED), at)

/* xorshift64 (Marsaglia 2003), so that tests are the same on every machine. */
static inline guint64
history_random(guint64 *state)
{
  *state ^= *state << 13;
  *state ^= *state >> 7;
  *state ^= *state << 17;
  return *state;
}

#endif
