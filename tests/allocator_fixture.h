/* allocator_fixture.h - an allocator whose device is played by the test: events complete when the
 * test says so, segment operations are written down. */
#ifndef HIGHWATER_TESTS_ALLOCATOR_FIXTURE_H
#define HIGHWATER_TESTS_ALLOCATOR_FIXTURE_H

#include "base/units.h"
#include "memory/caching_allocator.h"

typedef struct {
  CachingAllocator *allocator;
  GString *log;  /* "alloc 20M, free 2M, map 40M, unmap 2M": in MiB */
  GArray *done;  /* gboolean by event number */
  guint n_waits; /* synchronize_event calls */
} Fixture;

/* Free with fixture_free. */
Fixture *fixture_new(const AllocatorConfig *config);
void fixture_free(Fixture *fixture);
G_DEFINE_AUTOPTR_CLEANUP_FUNC(Fixture, fixture_free)

/* Allocates and checks all invariants; the block must be there. */
BlockHandle fixture_malloc(Fixture *fixture, gint64 bytes, int stream);
/* Frees and checks all invariants. */
void fixture_release(Fixture *fixture, BlockHandle block);
/* Allocates a block of that size and frees it again: leaves it in the cache. */
void fixture_cache(Fixture *fixture, gint64 bytes, int stream);
/* The event of that number, from 0 in order of recording, has completed. */
void fixture_complete(Fixture *fixture, guint event);

#endif
