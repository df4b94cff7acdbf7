/* numeric_stream.c - queues of tasks. */
#include "numeric/numeric_stream.h"

static void
task_clear(NumericTask *task)
{
  g_clear_pointer(&task->blocks, g_free);
}

void
numeric_stream_init(NumericStream *stream)
{
  stream->tasks = g_array_new(FALSE, FALSE, sizeof(NumericTask));
  stream->done = 0;
}

void
numeric_stream_clear(NumericStream *stream)
{
  for (guint i = 0; i < stream->tasks->len; i++)
    task_clear(&g_array_index(stream->tasks, NumericTask, i));
  g_array_unref(stream->tasks);
}

void
numeric_stream_push(NumericStream *stream, const NumericTask *task)
{
  g_array_append_vals(stream->tasks, task, 1);
}

void
numeric_stream_pop(NumericStream *stream)
{
  task_clear(&g_array_index(stream->tasks, NumericTask, stream->done));
  stream->done++;
}
