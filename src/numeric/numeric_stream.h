/* numeric_stream.h - what a stream was given to do: tasks, each with the memory that its operands
 * had when it was issued. */
#ifndef HIGHWATER_NUMERIC_NUMERIC_STREAM_H
#define HIGHWATER_NUMERIC_NUMERIC_STREAM_H

#include "numeric/numeric_kernel.h"
#include "numeric/numeric_memory.h"

typedef enum {
  TASK_KERNEL, /* LAUNCH or COPY */
  TASK_COLLECTIVE,
  TASK_WAIT,  /* until `position` tasks of `stream` have run */
  TASK_BATCH, /* a batch's tensor is filled */
} TaskKind;

typedef struct {
  TaskKind kind;
  const ProgramOp *op;   /* KERNEL, COLLECTIVE */
  gboolean in_backward;  /* the phase that issued it */
  NumericBlock **blocks; /* by operand */
  NumericPlace place;
  guint64 sequence; /* COLLECTIVE: how manieth of its communicator */
  int stream;       /* WAIT */
  guint64 position; /* WAIT */
  const char *name; /* BATCH: what it is called */
  int number;       /* and the how manieth of these */
} NumericTask;

typedef struct {
  GArray *tasks; /* NumericTask: all that were issued */
  guint64 done;  /* how many have run */
} NumericStream;

void numeric_stream_init(NumericStream *stream);
void numeric_stream_clear(NumericStream *stream);
/* Takes the task's blocks. */
void numeric_stream_push(NumericStream *stream, const NumericTask *task);
/* The next task; NULL: all have run. */
static inline const NumericTask *
numeric_stream_head(const NumericStream *stream)
{
  if (stream->done == stream->tasks->len)
    return NULL;
  return &g_array_index(stream->tasks, NumericTask, stream->done);
}
/* It has run. */
void numeric_stream_pop(NumericStream *stream);

#endif
