/* gradient_memory.h - which bytes of a Program's storages hold which gradients. */
#ifndef HIGHWATER_SEARCH_GRADIENT_MEMORY_H
#define HIGHWATER_SEARCH_GRADIENT_MEMORY_H

#include "program/program.h"
#include "search/gradient_sets.h"

/* Bytes [begin, end) of a storage hold a set, or parts of it. */
typedef struct {
  gint64 begin, end;
  const GradientSet *set;
} GradientPiece;

typedef struct {
  GradientSets *sets; /* borrowed */
  guint storages;
  GArray **held; /* by storage: GradientPiece; NULL: nothing */
} GradientMemory;

/* Of so many storages, all empty. */
void gradient_memory_init(GradientMemory *memory, GradientSets *sets, guint storages);
void gradient_memory_clear(GradientMemory *memory);

/* Pieces of a storage, or NULL; borrowed until it changes. */
const GArray *gradient_memory_pieces(const GradientMemory *memory, gint32 storage);
/* What bytes [begin, end) hold, all of it beside each other; NULL: nothing. */
const GradientSet *gradient_memory_look(const GradientMemory *memory, gint32 storage, gint64 begin,
                                        gint64 end);

/* The storage holds nothing any more. */
void gradient_memory_forget(GradientMemory *memory, gint32 storage);
/* Bytes [begin, end) hold nothing any more. */
void gradient_memory_cut(GradientMemory *memory, gint32 storage, gint64 begin, gint64 end);
/* One more piece, beside what is there; nothing for an empty one. */
void gradient_memory_put(GradientMemory *memory, gint32 storage, GradientPiece piece);
/* Adds to what its bytes hold; what lies elsewhere stays. */
void gradient_memory_add(GradientMemory *memory, gint32 storage, GradientPiece piece);
/* Bytes [begin, end) are reduced in place. */
void gradient_memory_reduce(GradientMemory *memory, gint32 storage, gint64 begin, gint64 end,
                            const Collective *collective);

#endif
