/* program_totals.c - sums over a Program: what stays alive, what is sent. */
#include "program/program_totals.h"

#include <string.h>

static void
add_list(const Program *program, const OpList *list, gint64 bytes[CATEGORY_COUNT])
{
  for (guint i = 0; i < list->ops->len; i++) {
    const ProgramOp *op = &g_array_index(list->ops, ProgramOp, i);
    if (op->kind != PROGRAM_ALLOC && op->kind != PROGRAM_FREE)
      continue;
    const Storage *storage = &g_array_index(program->storages, Storage, op->a);
    if (storage->space == SPACE_DEVICE)
      bytes[storage->category] += op->kind == PROGRAM_ALLOC ? storage->bytes : -storage->bytes;
  }
}

void
program_bytes_alive(const Program *program, gint64 bytes[CATEGORY_COUNT])
{
  memset(bytes, 0, sizeof(gint64) * CATEGORY_COUNT);
  add_list(program, g_ptr_array_index(program->lists, 0), bytes);
  for (int step = 0; step < program->steps; step++)
    add_list(program, program_step(program, step), bytes);
}

double
program_elements_sent(const Program *program, const OpList *list)
{
  double elements = 0;
  for (guint i = 0; i < list->ops->len; i++) {
    const ProgramOp *op = &g_array_index(list->ops, ProgramOp, i);
    if (op->kind != PROGRAM_COLLECTIVE)
      continue;
    const Collective *c = &g_array_index(program->collectives, Collective, op->a);
    int passes = c->kind == COLLECTIVE_ALL_REDUCE ? 2 : 1;
    if (g_array_index(program->communicators, Communicator, c->communicator).ranks > 1)
      elements += passes * (double) c->bytes / dtype_size((DType) c->dtype);
  }
  return elements;
}
