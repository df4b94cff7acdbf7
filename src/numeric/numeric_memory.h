/* numeric_memory.h - a rank's storages as numbers, where the caching allocator puts them: memory
 * that it reuses is the same memory here.
 *
 * Device memory is an array of doubles for each segment, one for each byte (numeric_tensor.h); host
 * memory an array for each storage.  Arrays outlive their segments and storages, so that work that
 * is issued but has not run finds what it was given. */
#ifndef HIGHWATER_NUMERIC_NUMERIC_MEMORY_H
#define HIGHWATER_NUMERIC_NUMERIC_MEMORY_H

#include "memory/caching_allocator.h"
#include "program/program.h"

typedef struct _NumericMemory NumericMemory;

/* Program is borrowed.  is_done says whether what a stream has been given up to a moment has run;
 * position_of gives that moment: both of frees that wait for other streams (record_stream). */
typedef struct {
  gpointer user;
  guint64 (*position_of)(gpointer user, int stream);
  gboolean (*is_done)(gpointer user, int stream, guint64 position);
} NumericClock;

NumericMemory *numeric_memory_new(const Program *program, const AllocatorConfig *config,
                                  const NumericClock *clock);
void numeric_memory_free(NumericMemory *memory);

/* One allocation: its doubles, and whether anything has run on it.  What is in fresh memory is not
 * known: whoever runs on it first makes it so (numeric_block_touch).  Unknown doubles are NaN, but
 * are written only where they are looked at (numeric_block_look): a bucket of gigabytes costs what
 * is used of it.  Lives as long as the memory. */
typedef struct {
  double *data;
  guint8 *known; /* by chunk of 512 doubles, as the allocator aligns: they are there */
  gint64 bytes;
  gboolean fresh;
  const Storage *storage;
  const ProgramOp *writer; /* the op that wrote any of it last; NULL: none */
} NumericBlock;

void numeric_block_touch(NumericBlock *block);
/* From here on doubles begin .. end - 1 can be read and written. */
void numeric_block_look(const NumericBlock *block, gint64 begin, gint64 end);

/* ALLOC; FALSE when the allocator has no memory, or the machine none for the numbers. */
gboolean numeric_memory_allocate(NumericMemory *memory, gint32 storage, StreamId stream);
/* FREE: the memory may be handed out again at once, or when other streams are done with it. */
void numeric_memory_release(NumericMemory *memory, gint32 storage);
void numeric_memory_record_stream(NumericMemory *memory, gint32 storage, StreamId stream);
/* Renames storages (Carry). */
void numeric_memory_carry(NumericMemory *memory, const GArray *carries);
void numeric_memory_empty_cache(NumericMemory *memory);

/* The storage's memory; NULL: it is not allocated, or has no bytes. */
NumericBlock *numeric_memory_at(const NumericMemory *memory, gint32 storage);
/* Highest sum of rounded sizes of live allocations so far. */
gint64 numeric_memory_peak(const NumericMemory *memory);
void numeric_memory_reset_peak(NumericMemory *memory);

#endif
