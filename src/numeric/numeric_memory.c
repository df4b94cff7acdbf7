/* numeric_memory.c - storages in the caching allocator's segments, as arrays of doubles. */
#include "numeric/numeric_memory.h"

#include <math.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/units.h"

/* Doubles that become known together: blocks begin at multiples of them. */
enum { CHUNK = 512 };

/* Memory of the device from an address on. */
typedef struct {
  guint64 address;
  gint64 bytes;
  double *data;
  guint8 *known;
} Area;

/* Pages that were asked for. */
typedef struct {
  void *start;
  gsize bytes;
} Mapping;

/* Where a storage is. */
typedef struct {
  BlockHandle handle;
  NumericBlock *block;
} Place;

/* An event of a free that waits. */
typedef struct {
  int stream;
  guint64 position;
} Mark;

struct _NumericMemory {
  const Program *program;
  NumericClock clock;
  CachingAllocator *allocator;
  GArray *areas;     /* Area */
  GArray *mappings;  /* Mapping: of segments and of the host, all of which go in the end */
  GPtrArray *known;  /* of all areas */
  GPtrArray *blocks; /* NumericBlock *: all that were ever handed out */
  GArray *marks;     /* Mark: by event */
  Place *places;     /* by storage */
};

/* Has this process had three quarters of the machine's memory?  Arrays take it when they are looked
 * at, and the system would end who takes too much. */
static gboolean
machine_is_full(void)
{
  struct rusage usage;
  const double page = (double) sysconf(_SC_PAGESIZE), pages = (double) sysconf(_SC_PHYS_PAGES);
  return getrusage(RUSAGE_SELF, &usage) == 0 &&
         (double) usage.ru_maxrss * KIB > 0.75 * page * pages;
}

/* Doubles that nothing is known of: none is written before it is looked at, and a page that nobody
 * looks at, as of a workspace, takes no memory.  FALSE: there is no room for them. */
static gboolean
new_area(NumericMemory *m, guint64 address, gint64 bytes, Area *area)
{
  gsize chunks = (gsize) MAX(ceil_div(bytes, CHUNK), 1);
  if (chunks > G_MAXSSIZE / (CHUNK * sizeof(double)))
    return FALSE;
  Mapping mapping = {.bytes = chunks * CHUNK * sizeof(double)};
  mapping.start = mmap(NULL, mapping.bytes, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapping.start == MAP_FAILED)
    return FALSE;
  *area = (Area){address, bytes, mapping.start, g_new0(guint8, chunks)};
  g_array_append_val(m->mappings, mapping);
  g_ptr_array_add(m->known, area->known);
  return TRUE;
}

/* ---- what the allocator asks ---- */

static void
segment(gpointer user, SegmentAction action, int stream, guint64 address, gint64 bytes)
{
  NumericMemory *m = user;
  (void) stream;
  if (action == SEGMENT_ALLOC || action == SEGMENT_MAP) {
    Area area;
    if (new_area(m, address, bytes, &area)) /* else whoever asked finds none */
      g_array_append_val(m->areas, area);
    return;
  }
  for (guint i = 0; i < m->areas->len; i++)
    if (g_array_index(m->areas, Area, i).address == address) {
      g_array_remove_index_fast(m->areas, i);
      return;
    }
}

static guint64
record_event(gpointer user, int stream)
{
  NumericMemory *m = user;
  Mark mark = {stream, m->clock.position_of(m->clock.user, stream)};
  g_array_append_val(m->marks, mark);
  return m->marks->len - 1;
}

static gboolean
event_done(gpointer user, guint64 event)
{
  NumericMemory *m = user;
  const Mark *mark = &g_array_index(m->marks, Mark, event);
  return m->clock.is_done(m->clock.user, mark->stream, mark->position);
}

/* ---- storages ---- */

NumericMemory *
numeric_memory_new(const Program *program, const AllocatorConfig *config, const NumericClock *clock)
{
  NumericMemory *m = g_new0(NumericMemory, 1);
  AllocatorHost host = {
      .user = m, .record_event = record_event, .event_done = event_done, .segment = segment};
  m->program = program;
  m->clock = *clock;
  m->allocator = caching_allocator_new(config, &host);
  m->areas = g_array_new(FALSE, FALSE, sizeof(Area));
  m->mappings = g_array_new(FALSE, FALSE, sizeof(Mapping));
  m->known = g_ptr_array_new_with_free_func(g_free);
  m->blocks = g_ptr_array_new_with_free_func(g_free);
  m->marks = g_array_new(FALSE, FALSE, sizeof(Mark));
  m->places = g_new0(Place, MAX(program->storages->len, 1));
  for (guint i = 0; i < program->storages->len; i++)
    m->places[i].handle = BLOCK_NONE;
  return m;
}

void
numeric_memory_free(NumericMemory *m)
{
  if (m == NULL)
    return;
  caching_allocator_free(m->allocator);
  g_array_unref(m->areas);
  for (guint i = 0; i < m->mappings->len; i++) {
    const Mapping *mapping = &g_array_index(m->mappings, Mapping, i);
    munmap(mapping->start, mapping->bytes);
  }
  g_array_unref(m->mappings);
  g_ptr_array_unref(m->known);
  g_ptr_array_unref(m->blocks);
  g_array_unref(m->marks);
  g_free(m->places);
  g_free(m);
}

/* The area that an address is in; areas that are mapped one by one are not one together. */
static const Area *
area_at(const NumericMemory *m, guint64 address, gint64 bytes)
{
  for (guint i = 0; i < m->areas->len; i++) {
    const Area *a = &g_array_index(m->areas, Area, i);
    if (address >= a->address && address + (guint64) bytes <= a->address + (guint64) a->bytes)
      return a;
  }
  return NULL;
}

static NumericBlock *
new_block(NumericMemory *m, const Area *area, guint64 address, const Storage *s)
{
  NumericBlock *block = g_new(NumericBlock, 1);
  gint64 first = (gint64) (address - area->address);
  *block = (NumericBlock){.data = area->data + first,
                          .known = area->known + first / CHUNK,
                          .bytes = s->bytes,
                          .fresh = TRUE,
                          .storage = s};
  g_ptr_array_add(m->blocks, block);
  return block;
}

gboolean
numeric_memory_allocate(NumericMemory *m, gint32 storage, StreamId stream)
{
  const Storage *s = &g_array_index(m->program->storages, Storage, storage);
  Place *place = &m->places[storage];
  if (s->bytes == 0)
    return TRUE;
  if (machine_is_full())
    return FALSE;
  if (s->space != SPACE_DEVICE) {
    Area area;
    if (!new_area(m, 0, s->bytes, &area))
      return FALSE;
    place->block = new_block(m, &area, 0, s);
    return TRUE;
  }
  place->handle = caching_allocator_malloc(m->allocator, s->bytes, stream, NULL);
  if (place->handle == BLOCK_NONE)
    return FALSE;
  guint64 address = caching_allocator_address(m->allocator, place->handle);
  const Area *area = area_at(m, address, s->bytes);
  if (area == NULL)
    return FALSE;
  place->block = new_block(m, area, address, s);
  return TRUE;
}

void
numeric_memory_release(NumericMemory *m, gint32 storage)
{
  Place *place = &m->places[storage];
  if (place->handle != BLOCK_NONE)
    caching_allocator_release(m->allocator, place->handle);
  *place = (Place){.handle = BLOCK_NONE};
}

void
numeric_memory_record_stream(NumericMemory *m, gint32 storage, StreamId stream)
{
  if (m->places[storage].handle != BLOCK_NONE)
    caching_allocator_record_stream(m->allocator, m->places[storage].handle, stream);
}

void
numeric_memory_carry(NumericMemory *m, const GArray *carries)
{
  g_autofree Place *moved = g_new(Place, MAX(carries->len, 1));
  for (guint i = 0; i < carries->len; i++) { /* all at once: names may change places */
    gint32 from = g_array_index(carries, Carry, i).from;
    moved[i] = m->places[from];
    m->places[from] = (Place){.handle = BLOCK_NONE};
  }
  for (guint i = 0; i < carries->len; i++)
    m->places[g_array_index(carries, Carry, i).to] = moved[i];
}

void
numeric_memory_empty_cache(NumericMemory *m)
{
  caching_allocator_empty_cache(m->allocator);
}

NumericBlock *
numeric_memory_at(const NumericMemory *m, gint32 storage)
{
  return m->places[storage].block;
}

void
numeric_block_touch(NumericBlock *block)
{
  if (block->fresh)
    memset(block->known, 0, (gsize) ceil_div(block->bytes, CHUNK));
  block->fresh = FALSE;
}

void
numeric_block_look(const NumericBlock *block, gint64 begin, gint64 end)
{
  for (gint64 i = begin / CHUNK; i * CHUNK < end; i++) {
    if (block->known[i])
      continue;
    for (gint64 k = i * CHUNK; k < (i + 1) * CHUNK; k++)
      block->data[k] = NAN;
    block->known[i] = 1;
  }
}

gint64
numeric_memory_peak(const NumericMemory *m)
{
  return caching_allocator_stats(m->allocator)->allocated_bytes.peak;
}

void
numeric_memory_reset_peak(NumericMemory *m)
{
  caching_allocator_reset_peak(m->allocator);
}
