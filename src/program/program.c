/* program.c - the Program's tables: making, freeing, and the names of everything in them. */
#include "program/program.h"

/* 10^5 of them make a step. */
G_STATIC_ASSERT(sizeof(ProgramOp) == 24);

#define FORM_STREAM TRUE
#define FORM_NO_STREAM FALSE
#define FORM_OPERANDS TRUE
#define FORM_NO_OPERANDS FALSE

const ProgramOpForm program_op_form[PROGRAM_OP_COUNT] = {
#define X(name, text, stream, a, b, c, operands)                                                   \
  [PROGRAM_##name] = {text, FORM_##stream, FORM_##operands, {VALUE_##a, VALUE_##b, VALUE_##c}},
    PROGRAM_OPS(X)
#undef X
};

const char *
program_op_name(ProgramOpKind kind)
{
  g_assert(kind < PROGRAM_OP_COUNT);
  return program_op_form[kind].name;
}

/* A function that gives the text of each constant of an X-macro list. */
#define NAME_FUNCTION(function, Type, LIST, count)                                                 \
  const char *function(Type value)                                                                 \
  {                                                                                                \
    static const char *const names[] = {LIST(NAME_OF)};                                            \
    G_STATIC_ASSERT(G_N_ELEMENTS(names) == (count));                                               \
    g_assert((guint) value < (guint) (count));                                                     \
    return names[value];                                                                           \
  }
#define NAME_OF(name, text) text,

NAME_FUNCTION(program_stream_name, StreamId, PROGRAM_STREAMS, STREAM_COUNT)
NAME_FUNCTION(program_host_work_name, HostWork, HOST_WORKS, HOST_WORK_COUNT)
NAME_FUNCTION(program_kernel_kind_name, KernelKind, KERNEL_KINDS, KERNEL_KIND_COUNT)
NAME_FUNCTION(program_collective_name, CollectiveKind, COLLECTIVE_KINDS, COLLECTIVE_KIND_COUNT)
NAME_FUNCTION(program_range_kind_name, RangeKind, RANGE_KINDS, RANGE_KIND_COUNT)
NAME_FUNCTION(program_space_name, Space, SPACES, SPACE_COUNT)
NAME_FUNCTION(program_role_name, Role, ROLES, ROLE_COUNT)

const char *
program_text(const Program *program, gint32 name)
{
  return name < 0 ? "-" : g_ptr_array_index(program->names, name);
}

const char *
program_module_path(const Program *program, gint32 module)
{
  return module < 0 ? "-" : g_ptr_array_index(program->modules, module);
}

gint64
layout_reach(const Layout *layout)
{
  gint64 last = 0;
  for (int i = 0; i < layout->dims; i++) {
    if (layout->shape[i] == 0)
      return 0;
    last += (layout->shape[i] - 1) * layout->stride[i];
  }
  return last + 1;
}

OpList *
op_list_new(void)
{
  OpList *list = g_new(OpList, 1);

  list->ops = g_array_new(FALSE, FALSE, sizeof(ProgramOp));
  list->carries = g_array_new(FALSE, FALSE, sizeof(Carry));
  list->event_carries = g_array_new(FALSE, FALSE, sizeof(Carry));
  return list;
}

void
op_list_free(OpList *list)
{
  if (list == NULL)
    return;
  g_array_unref(list->ops);
  g_array_unref(list->carries);
  g_array_unref(list->event_carries);
  g_free(list);
}

static void
free_list(gpointer list)
{
  op_list_free(list);
}

Program *
program_new(void)
{
  Program *program = g_new0(Program, 1);

  program->names = g_ptr_array_new_with_free_func(g_free);
  program->storages = g_array_new(FALSE, FALSE, sizeof(Storage));
  program->layouts = g_array_new(FALSE, FALSE, sizeof(Layout));
  program->tensors = g_array_new(FALSE, FALSE, sizeof(Tensor));
  program->parts = g_array_new(FALSE, FALSE, sizeof(ParameterPart));
  program->operands = g_array_new(FALSE, FALSE, sizeof(Operand));
  program->kernels = g_array_new(FALSE, FALSE, sizeof(Kernel));
  program->collectives = g_array_new(FALSE, FALSE, sizeof(Collective));
  program->communicators = g_array_new(FALSE, FALSE, sizeof(Communicator));
  program->modules = g_ptr_array_new_with_free_func(g_free);
  program->lists = g_ptr_array_new_with_free_func(free_list);
  program->step_list = g_array_new(FALSE, FALSE, sizeof(int));
  return program;
}

void
program_free(Program *program)
{
  if (program == NULL)
    return;
  g_ptr_array_unref(program->names);
  g_array_unref(program->storages);
  g_array_unref(program->layouts);
  g_array_unref(program->tensors);
  g_array_unref(program->parts);
  g_array_unref(program->operands);
  g_array_unref(program->kernels);
  g_array_unref(program->collectives);
  g_array_unref(program->communicators);
  g_ptr_array_unref(program->modules);
  g_ptr_array_unref(program->lists);
  g_array_unref(program->step_list);
  g_free(program);
}

const OpList *
program_step(const Program *program, int step)
{
  g_assert(step >= 0 && (guint) step < program->step_list->len);
  return g_ptr_array_index(program->lists, g_array_index(program->step_list, int, step));
}
