/* gradient_memory.c - which bytes of a Program's storages hold which gradients. */
#include "search/gradient_memory.h"

void
gradient_memory_init(GradientMemory *memory, GradientSets *sets, guint storages)
{
  *memory = (GradientMemory){sets, storages, g_new0(GArray *, MAX(storages, 1))};
}

void
gradient_memory_clear(GradientMemory *memory)
{
  for (guint i = 0; i < memory->storages; i++)
    gradient_memory_forget(memory, (gint32) i);
  g_free(memory->held);
}

const GArray *
gradient_memory_pieces(const GradientMemory *memory, gint32 storage)
{
  return memory->held[storage];
}

void
gradient_memory_forget(GradientMemory *memory, gint32 storage)
{
  g_clear_pointer(&memory->held[storage], g_array_unref);
}

void
gradient_memory_cut(GradientMemory *memory, gint32 storage, gint64 begin, gint64 end)
{
  GArray *old = memory->held[storage];
  if (old == NULL)
    return;
  GArray *left = g_array_new(FALSE, FALSE, sizeof(GradientPiece));
  for (guint i = 0; i < old->len; i++) {
    GradientPiece piece = g_array_index(old, GradientPiece, i);
    GradientPiece before = {piece.begin, MIN(piece.end, begin), piece.set};
    GradientPiece after = {MAX(piece.begin, end), piece.end, piece.set};
    if (before.begin < before.end)
      g_array_append_val(left, before);
    if (after.begin < after.end)
      g_array_append_val(left, after);
  }
  g_array_unref(old);
  memory->held[storage] = left;
}

void
gradient_memory_put(GradientMemory *memory, gint32 storage, GradientPiece piece)
{
  GArray **held = &memory->held[storage];
  if (piece.set == NULL || piece.begin >= piece.end)
    return;
  if (*held == NULL)
    *held = g_array_new(FALSE, FALSE, sizeof(GradientPiece));
  g_array_append_val(*held, piece);
}

const GradientSet *
gradient_memory_look(const GradientMemory *memory, gint32 storage, gint64 begin, gint64 end)
{
  const GradientSet *set = NULL, *last = NULL;
  const GArray *held = memory->held[storage];
  for (guint i = 0; held != NULL && i < held->len; i++) {
    const GradientPiece *piece = &g_array_index(held, GradientPiece, i);
    if (piece->end <= begin || piece->begin >= end || piece->set == last)
      continue;
    set = gradient_sets_join(memory->sets, set, piece->set);
    last = piece->set;
  }
  return set;
}

void
gradient_memory_add(GradientMemory *memory, gint32 storage, GradientPiece piece)
{
  const GradientSet *held = gradient_memory_look(memory, storage, piece.begin, piece.end);
  gradient_memory_cut(memory, storage, piece.begin, piece.end);
  piece.set = gradient_sets_add(memory->sets, held, piece.set);
  gradient_memory_put(memory, storage, piece);
}

void
gradient_memory_reduce(GradientMemory *memory, gint32 storage, gint64 begin, gint64 end,
                       const Collective *c)
{
  const GArray *held = memory->held[storage];
  g_autoptr(GArray) inside = g_array_new(FALSE, FALSE, sizeof(GradientPiece));
  for (guint i = 0; held != NULL && i < held->len; i++) {
    GradientPiece piece = g_array_index(held, GradientPiece, i);
    piece.begin = MAX(piece.begin, begin);
    piece.end = MIN(piece.end, end);
    if (piece.begin >= piece.end)
      continue;
    piece.set = gradient_sets_reduce(memory->sets, piece.set, c->communicator, c->kind);
    g_array_append_val(inside, piece);
  }
  gradient_memory_cut(memory, storage, begin, end);
  for (guint i = 0; i < inside->len; i++)
    gradient_memory_put(memory, storage, g_array_index(inside, GradientPiece, i));
}
