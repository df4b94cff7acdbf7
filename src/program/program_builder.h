/* program_builder.h - appends to a Program, sharing equal names, layouts, kernels. */
#ifndef HIGHWATER_PROGRAM_PROGRAM_BUILDER_H
#define HIGHWATER_PROGRAM_PROGRAM_BUILDER_H

#include "program/program.h"

typedef struct _ProgramBuilder ProgramBuilder;

ProgramBuilder *program_builder_new(void);
/* Ends building; the builder is freed and the Program returned. */
Program *program_builder_finish(ProgramBuilder *builder);
/* Discards everything. */
void program_builder_free(ProgramBuilder *builder);

/* Starts the next list (the first call: the construction).  Not after folding. */
void program_builder_begin_list(ProgramBuilder *builder);
/* Compares the last list with its predecessor.  When both are the same up to a renaming of
 * storages, tensors and events, and the predecessor with its carries can run for ever in place of
 * what would follow: drops the last list, stores the carries in its predecessor and returns TRUE.
 * Storages, tensors and events made since the last list began are gone then, so that no further
 * list can be built; steps can still be added.  That later steps would repeat this one too is the
 * caller's to know. FALSE, with nothing changed, for different lists, and for the first step (after
 * the construction). */
gboolean program_builder_fold_last_list(ProgramBuilder *builder);
/* The same comparison, for when other lists will follow: the last list stays, and before it the
 * next `times` steps execute its predecessor once more.  To be called before the last list's own
 * step is added. */
gboolean program_builder_repeat_before_last(ProgramBuilder *builder, int times);
/* Says that the next step executes the last list. */
void program_builder_add_step(ProgramBuilder *builder);

/* Ids of shared tables. */
gint32 program_builder_name(ProgramBuilder *builder, const char *text);
gint32 program_builder_module(ProgramBuilder *builder, const char *path);
gint32 program_builder_communicator(ProgramBuilder *builder, const char *name, int ranks,
                                    int stride);
gint32 program_builder_kernel(ProgramBuilder *builder, const Kernel *kernel);
gint32 program_builder_event(ProgramBuilder *builder);
gint32 program_builder_storage(ProgramBuilder *builder, const Storage *storage);
/* Says what a storage of the construction holds of a parameter; to be called while that list is
 * written. */
void program_builder_part(ProgramBuilder *builder, const ParameterPart *part);
/* A view; layout is copied and shared. */
gint32 program_builder_tensor(ProgramBuilder *builder, gint32 storage, gint64 offset,
                              const Layout *layout);
/* A contiguous one-dimensional view of elements of a storage. */
gint32 program_builder_flat_tensor(ProgramBuilder *builder, gint32 storage, gint64 offset,
                                   gint64 elements, DType dtype);

/* What follows is done on behalf of this module (-1: none), until changed.  Returns the previous
 * one. */
gint32 program_builder_set_module(ProgramBuilder *builder, gint32 module);

/* Operands of the next LAUNCH, COPY or COLLECTIVE. */
void program_builder_operand(ProgramBuilder *builder, gint32 tensor, Role role);

void program_builder_alloc(ProgramBuilder *builder, gint32 storage);
void program_builder_release(ProgramBuilder *builder, gint32 storage);
void program_builder_record_stream(ProgramBuilder *builder, gint32 storage, StreamId stream);
void program_builder_launch(ProgramBuilder *builder, StreamId stream, gint32 kernel);
void program_builder_copy(ProgramBuilder *builder, StreamId stream, gint32 kernel);
void program_builder_collective(ProgramBuilder *builder, StreamId stream,
                                const Collective *collective);
void program_builder_record(ProgramBuilder *builder, StreamId stream, gint32 event);
void program_builder_wait(ProgramBuilder *builder, StreamId stream, gint32 event);
void program_builder_event_sync(ProgramBuilder *builder, gint32 event);
void program_builder_stream_sync(ProgramBuilder *builder, StreamId stream);
/* The host computes on the operands given before, as a kernel that takes no time. */
void program_builder_host_compute(ProgramBuilder *builder, gint32 kernel);
/* The hosts of a communicator's ranks sum the number that each has in hand. */
void program_builder_host_reduce(ProgramBuilder *builder, gint32 communicator);
void program_builder_host_work(ProgramBuilder *builder, HostWork kind, int count);
void program_builder_empty_cache(ProgramBuilder *builder);
/* micro_batch only for phases. */
void program_builder_push(ProgramBuilder *builder, RangeKind kind, const char *name,
                          int micro_batch);
void program_builder_pop(ProgramBuilder *builder);

/* The Program so far, borrowed. */
const Program *program_builder_program(const ProgramBuilder *builder);

#endif
