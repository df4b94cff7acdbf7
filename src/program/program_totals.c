/* program_totals.c - sums over a Program: what stays alive, what is sent. */
#include "program/program_totals.h"

#include <string.h>

typedef struct {
  gint64 device[CATEGORY_COUNT];
  gint64 spaces[SPACE_COUNT];
  gint64 anywhere[CATEGORY_COUNT];
} Alive;

/* What a list adds and frees, so many times. */
static void
add_list(const Program *program, const OpList *list, gint64 times, Alive *alive)
{
  for (guint i = 0; i < list->ops->len; i++) {
    const ProgramOp *op = &g_array_index(list->ops, ProgramOp, i);
    if (op->kind != PROGRAM_ALLOC && op->kind != PROGRAM_FREE)
      continue;
    const Storage *storage = &g_array_index(program->storages, Storage, op->a);
    gint64 change = times * (op->kind == PROGRAM_ALLOC ? storage->bytes : -storage->bytes);
    alive->spaces[storage->space] += change;
    alive->anywhere[storage->category] += change;
    if (storage->space == SPACE_DEVICE)
      alive->device[storage->category] += change;
  }
}

static Alive
alive_after(const Program *program, int steps)
{
  Alive alive = {0};
  gint64 times = 0;
  add_list(program, g_ptr_array_index(program->lists, 0), 1, &alive);
  for (int step = 0; step < steps; step++) {
    const OpList *list = program_step(program, step);
    times++;
    if (step + 1 < steps && program_step(program, step + 1) == list)
      continue;
    add_list(program, list, times, &alive);
    times = 0;
  }
  return alive;
}

void
program_bytes_alive(const Program *program, gint64 bytes[CATEGORY_COUNT])
{
  Alive alive = alive_after(program, program->steps);
  memcpy(bytes, alive.device, sizeof(alive.device));
}

void
program_host_bytes_alive(const Program *program, gint64 *pinned, gint64 *pageable)
{
  Alive alive = alive_after(program, program->steps);
  *pinned = alive.spaces[SPACE_PINNED];
  *pageable = alive.spaces[SPACE_HOST];
}

/* A range of this name that is beyond the step; the program's length when there is none. */
static guint
find_beyond(const Program *program, const OpList *list, const char *name)
{
  guint i = 0;
  for (; i < list->ops->len; i++) {
    const ProgramOp *op = &g_array_index(list->ops, ProgramOp, i);
    if (op->kind == PROGRAM_RANGE_PUSH && op->b == RANGE_BEYOND &&
        g_str_equal(program_text(program, op->a), name))
      break;
  }
  return i;
}

gboolean
program_beyond_bytes(const Program *program, const OpList *list, const char *name,
                     ProgramBeyond *bytes)
{
  guint i = find_beyond(program, list, name);
  int depth = 0;
  *bytes = (ProgramBeyond){0, 0};
  if (i == list->ops->len)
    return FALSE;
  do {
    const ProgramOp *op = &g_array_index(list->ops, ProgramOp, i);
    depth += (op->kind == PROGRAM_RANGE_PUSH) - (op->kind == PROGRAM_RANGE_POP);
    if (op->kind == PROGRAM_COLLECTIVE)
      bytes->communicated += g_array_index(program->collectives, Collective, op->a).bytes;
    if (op->kind == PROGRAM_COPY)
      bytes->copied += (gint64) g_array_index(program->kernels, Kernel, op->a).bytes;
  } while (++i < list->ops->len && depth > 0);
  return TRUE;
}

gint64
program_category_bytes(const Program *program, int steps, Category category)
{
  return alive_after(program, steps).anywhere[category];
}

double
program_elements_sent(const Program *program, const OpList *list)
{
  double elements = 0;
  for (guint i = 0; i < list->ops->len; i++) {
    const ProgramOp *op = &g_array_index(list->ops, ProgramOp, i);
    if (op->kind == PROGRAM_RANGE_PUSH && op->b == RANGE_BEYOND)
      break; /* the step is over */
    if (op->kind != PROGRAM_COLLECTIVE)
      continue;
    const Collective *c = &g_array_index(program->collectives, Collective, op->a);
    int passes = c->kind == COLLECTIVE_ALL_REDUCE ? 2 : 1;
    if (g_array_index(program->communicators, Communicator, c->communicator).ranks > 1)
      elements += passes * (double) c->bytes / dtype_size((DType) c->dtype);
  }
  return elements;
}
