/* numeric_interruption.c - what an interruption in the middle of a step changes. */
#include "numeric/numeric_interruption.h"

gboolean
numeric_is_work(const NumericTask *task)
{
  return (task->kind == TASK_KERNEL || task->kind == TASK_COLLECTIVE) && task->place.step > 0;
}

gboolean
numeric_interruption_is_failure(const NumericConfig *config)
{
  return config->interruption != NULL && config->interruption->kind == NUMERIC_RANK_STOPS;
}

/* Is the stream's next task one that comes after the interruption? */
static gboolean
is_after(const NumericRank *r, int stream)
{
  return r->works[stream] >= r->config->interruption->done[stream];
}

gboolean
numeric_interruption_stops(const NumericRank *r, int stream)
{
  const NumericInterruption *i = r->config->interruption;
  const NumericTask *task = numeric_stream_head(&r->streams[stream]);
  return i != NULL && i->kind == NUMERIC_RANK_STOPS && i->rank == r->rank && task != NULL &&
         numeric_is_work(task) && is_after(r, stream);
}

/* What it works on stays as it is. */
gboolean
numeric_interruption_loses(const NumericRank *r, const NumericTask *task, int stream)
{
  const NumericInterruption *in = r->config->interruption;
  const Collective *c = &g_array_index(r->program->collectives, Collective, task->op->a);
  if (in == NULL || in->kind != NUMERIC_REDUCTIONS_LOST || task->place.step != in->step)
    return FALSE;
  return task->in_backward &&
         g_array_index(r->program->communicators, Communicator, c->communicator).ranks > 1 &&
         c->kind != COLLECTIVE_ALL_GATHER && c->kind != COLLECTIVE_BROADCAST && is_after(r, stream);
}

static const Storage *
storage_of(const NumericRank *r, const NumericTask *task, int i)
{
  return &g_array_index(r->program->storages, Storage,
                        program_operand_tensor(r->program, task->op, i)->storage);
}

static gboolean
is_gradient(const Storage *storage)
{
  return storage->category == CATEGORY_UNSHARDED_GRADIENT ||
         storage->category == CATEGORY_SHARDED_GRADIENT ||
         storage->category == CATEGORY_REDUCE_SCATTER_BUFFER;
}

/* Made from no gradient, it counts twice; what is made of it does then, too. */
void
numeric_interruption_stay(NumericRank *r, const NumericTask *task, NumericTensor *operands)
{
  const NumericInterruption *in = r->config->interruption;
  if (in == NULL || in->kind != NUMERIC_GRADIENTS_STAY || task->place.step != in->step ||
      is_after(r, task->op->stream))
    return;
  for (int i = 0; i < task->op->operands; i++)
    if (operands[i].role == ROLE_READ && is_gradient(storage_of(r, task, i)))
      return;
  for (int i = 0; i < task->op->operands; i++) {
    if (operands[i].role != ROLE_WRITE ||
        storage_of(r, task, i)->category != CATEGORY_UNSHARDED_GRADIENT)
      continue;
    r->interrupted++;
    for (gint64 k = 0; k < operands[i].elements; k++)
      operands[i].data[k] *= 2;
  }
}
