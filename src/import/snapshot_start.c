/* snapshot_start.c - undoes a history, entry by entry from the last. */
#include "import/snapshot_start.h"

/* How much of a large expandable segment is mapped at a time. */
#define LARGE_PAGE (20 * MIB)
/* At a time: a device has no room for more. */
#define MAX_SEGMENTS (1 << 16)

typedef struct {
  const SnapshotFile *file;
  SnapshotStart *start;
  GHashTable *blocks; /* address -> StartBlock, owned */
  guint entry;        /* being undone */
  GError **error;
} Undo;

static gboolean
fail(const Undo *undo, const char *what)
{
  const SnapshotEntry *entry = &g_array_index(undo->file->entries, SnapshotEntry, undo->entry);
  g_set_error(undo->error, HIGHWATER_ERROR, HIGHWATER_ERROR_INPUT,
              "%s: device_traces[%u]: %s: %s (address %" G_GUINT64_FORMAT ")", undo->file->name,
              undo->entry, trace_action_name((TraceAction) entry->action), what, entry->address);
  return FALSE;
}

static StartBlock *
find_block(const Undo *undo, guint64 address)
{
  return g_hash_table_lookup(undo->blocks, GSIZE_TO_POINTER(address));
}

static void
put_block(const Undo *undo, StartBlock block)
{
  g_hash_table_insert(undo->blocks, GSIZE_TO_POINTER(block.address),
                      g_memdup2(&block, sizeof block));
}

/* ---- each action undone ---- */

static gboolean
undo_alloc(const Undo *undo, const SnapshotEntry *entry)
{
  const StartBlock *block = find_block(undo, entry->address);
  if (!block || block->pending)
    return fail(undo, "is no allocation afterwards");
  g_hash_table_remove(undo->blocks, GSIZE_TO_POINTER(entry->address));
  return TRUE;
}

static gboolean
undo_free_completed(const Undo *undo, const SnapshotEntry *entry)
{
  if (find_block(undo, entry->address))
    return fail(undo, "is an allocation afterwards");
  put_block(undo, (StartBlock){.address = entry->address,
                               .requested_bytes = entry->bytes,
                               .label = -1,
                               .pending = TRUE});
  return TRUE;
}

static gboolean
undo_free_requested(const Undo *undo, const SnapshotEntry *entry)
{
  StartBlock *block = find_block(undo, entry->address);
  if (!block || !block->pending)
    return fail(undo, "is not waiting to be free afterwards");
  block->pending = FALSE;
  return TRUE;
}

static gboolean
undo_growth(const Undo *undo, const SnapshotEntry *entry)
{
  return segment_map_remove(&undo->start->map, entry->address, entry->bytes, NULL) ||
         fail(undo, "is no segment afterwards");
}

/* That of the pages beside them; a guess when there are none. */
static gboolean
is_small(const Undo *undo, const SnapshotEntry *entry)
{
  const SegmentMap *map = &undo->start->map;
  if (entry->action == TRACE_SEGMENT_FREE)
    return entry->bytes == ALLOCATOR_SMALL_SEGMENT;
  const MappedSegment *beside = segment_map_find(map, entry->address + (guint64) entry->bytes);
  if (!beside && entry->address > 0)
    beside = segment_map_find(map, entry->address - 1);
  return beside ? beside->small_pool : entry->bytes % LARGE_PAGE != 0;
}

static gboolean
undo_release(const Undo *undo, const SnapshotEntry *entry)
{
  const MappedSegment segment = {.address = entry->address,
                                 .bytes = entry->bytes,
                                 .stream = (gint64) entry->stream,
                                 .small_pool = (guint8) is_small(undo, entry),
                                 .expandable = entry->action == TRACE_SEGMENT_UNMAP};
  return (undo->start->map.segments->len < MAX_SEGMENTS &&
          segment_map_add(&undo->start->map, &segment)) ||
         fail(undo, "is a segment afterwards, or there are too many");
}

static gboolean (*const undo_entry[TRACE_ACTION_COUNT])(const Undo *undo,
                                                        const SnapshotEntry *entry) = {
    [TRACE_ALLOC] = undo_alloc,
    [TRACE_FREE_REQUESTED] = undo_free_requested,
    [TRACE_FREE_COMPLETED] = undo_free_completed,
    [TRACE_SEGMENT_ALLOC] = undo_growth,
    [TRACE_SEGMENT_FREE] = undo_release,
    [TRACE_SEGMENT_MAP] = undo_growth,
    [TRACE_SEGMENT_UNMAP] = undo_release,
};

/* ---- the end, and what is left at the beginning ---- */

static gboolean
take_end(const Undo *undo)
{
  const SnapshotFile *file = undo->file;
  for (guint i = 0; i < file->segments->len; i++) {
    const SnapshotSegment *segment = &g_array_index(file->segments, SnapshotSegment, i);
    const MappedSegment mapped = {.address = segment->address,
                                  .bytes = segment->bytes,
                                  .stream = (gint64) segment->stream,
                                  .small_pool = (guint8) segment->small_pool,
                                  .expandable = (guint8) segment->expandable};
    if (i >= MAX_SEGMENTS || !segment_map_add(&undo->start->map, &mapped)) {
      g_set_error(undo->error, HIGHWATER_ERROR, HIGHWATER_ERROR_INPUT,
                  "%s: segments[%u]: overlaps another one, or there are too many", file->name, i);
      return FALSE;
    }
    for (guint k = 0; k < segment->n_blocks; k++) {
      const SnapshotBlock *block =
          &g_array_index(file->blocks, SnapshotBlock, segment->first_block + k);
      if (block->state != SNAPSHOT_INACTIVE)
        put_block(undo, (StartBlock){block->address, block->bytes, block->requested_bytes,
                                     block->label, block->state == SNAPSHOT_PENDING_FREE});
    }
  }
  return TRUE;
}

static gint
compare_blocks(gconstpointer a, gconstpointer b)
{
  const StartBlock *x = a, *y = b;
  return (x->address > y->address) - (x->address < y->address);
}

/* How much of the room up to the next block, or the segment's end, is a block's own.  Of a large
 * segment's block the allocator cuts off only what makes a free block larger than kSmallSize. */
static gint64
block_bytes(const Undo *undo, const MappedSegment *segment, const StartBlock *block, gint64 room)
{
  const AllocatorConfig *config = &undo->file->config;
  gint64 rounded = allocator_round_request(config, MAX(block->requested_bytes, 1));
  gboolean is_cut = segment->small_pool || segment->expandable ||
                    (room - rounded > ALLOCATOR_SMALL_REQUEST && rounded < config->max_split_size);
  return is_cut ? MIN(rounded, room) : room;
}

static gboolean
place_blocks(const Undo *undo)
{
  GArray *blocks = undo->start->blocks;
  for (guint i = 0; i < blocks->len; i++) {
    StartBlock *block = &g_array_index(blocks, StartBlock, i);
    const MappedSegment *segment = segment_map_find(&undo->start->map, block->address);
    guint64 end = segment ? segment->address + (guint64) segment->bytes : 0;
    if (i + 1 < blocks->len)
      end = MIN(end, block[1].address);
    gint64 room = segment ? (gint64) (end - block->address) : 0;
    if (block->bytes == 0 && segment)
      block->bytes = block_bytes(undo, segment, block, room);
    if (!segment || block->bytes > room || block->requested_bytes > block->bytes) {
      g_set_error(undo->error, HIGHWATER_ERROR, HIGHWATER_ERROR_INPUT,
                  "%s: the block at address %" G_GUINT64_FORMAT
                  " has no room in a segment when the history begins",
                  undo->file->name, block->address);
      return FALSE;
    }
  }
  return TRUE;
}

gboolean
snapshot_start_find(SnapshotStart *start, const SnapshotFile *file, GError **error)
{
  segment_map_init(&start->map);
  start->blocks = g_array_new(FALSE, FALSE, sizeof(StartBlock));
  g_autoptr(GHashTable) blocks = g_hash_table_new_full(NULL, NULL, NULL, g_free);
  Undo undo = {.file = file, .start = start, .blocks = blocks, .error = error};
  if (!take_end(&undo))
    return FALSE;
  for (undo.entry = file->entries->len; undo.entry-- > 0;) {
    const SnapshotEntry *entry = &g_array_index(file->entries, SnapshotEntry, undo.entry);
    if (undo_entry[entry->action] && !undo_entry[entry->action](&undo, entry))
      return FALSE;
  }
  GHashTableIter iter;
  gpointer block;
  g_hash_table_iter_init(&iter, blocks);
  while (g_hash_table_iter_next(&iter, NULL, &block))
    g_array_append_vals(start->blocks, block, 1);
  g_array_sort(start->blocks, compare_blocks);
  return place_blocks(&undo);
}

void
snapshot_start_clear(SnapshotStart *start)
{
  segment_map_clear(&start->map);
  g_clear_pointer(&start->blocks, g_array_unref);
}
