/* allocator_fixture.c - see allocator_fixture.h. */
#include "allocator_fixture.h"
#include <check.h>

static guint64
record_event(gpointer user, int stream)
{
  Fixture *fixture = user;
  gboolean done = FALSE;
  (void) stream;
  g_array_append_val(fixture->done, done);
  return fixture->done->len - 1;
}

static gboolean
event_done(gpointer user, guint64 event)
{
  const Fixture *fixture = user;
  return g_array_index(fixture->done, gboolean, event);
}

static void
synchronize_event(gpointer user, guint64 event)
{
  Fixture *fixture = user;
  fixture->n_waits++;
  g_array_index(fixture->done, gboolean, event) = TRUE;
}

static void
note_segment(gpointer user, SegmentAction action, int stream, guint64 address, gint64 bytes)
{
  static const char *const names[] = {
      [SEGMENT_ALLOC] = "alloc",
      [SEGMENT_FREE] = "free",
      [SEGMENT_MAP] = "map",
      [SEGMENT_UNMAP] = "unmap",
  };
  const Fixture *fixture = user;
  (void) stream;
  (void) address;
  g_string_append_printf(fixture->log, "%s%s %dM", fixture->log->len ? ", " : "", names[action],
                         (int) (bytes / MIB));
}

Fixture *
fixture_new(const AllocatorConfig *config)
{
  Fixture *fixture = g_new0(Fixture, 1);
  fixture->log = g_string_new(NULL);
  fixture->done = g_array_new(FALSE, FALSE, sizeof(gboolean));
  const AllocatorHost host = {
      .user = fixture,
      .record_event = record_event,
      .event_done = event_done,
      .synchronize_event = synchronize_event,
      .segment = note_segment,
  };
  fixture->allocator = caching_allocator_new(config, &host);
  return fixture;
}

void
fixture_free(Fixture *fixture)
{
  caching_allocator_free(fixture->allocator);
  g_string_free(fixture->log, TRUE);
  g_array_free(fixture->done, TRUE);
  g_free(fixture);
}

BlockHandle
fixture_malloc(Fixture *fixture, gint64 bytes, int stream)
{
  BlockHandle block = caching_allocator_malloc(fixture->allocator, bytes, stream, NULL);
  ck_assert_int_ne(block, BLOCK_NONE);
  caching_allocator_check(fixture->allocator);
  return block;
}

void
fixture_release(Fixture *fixture, BlockHandle block)
{
  caching_allocator_release(fixture->allocator, block);
  caching_allocator_check(fixture->allocator);
}

void
fixture_cache(Fixture *fixture, gint64 bytes, int stream)
{
  fixture_release(fixture, fixture_malloc(fixture, bytes, stream));
}

void
fixture_complete(Fixture *fixture, guint event)
{
  g_array_index(fixture->done, gboolean, event) = TRUE;
}
