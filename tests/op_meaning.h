/* op_meaning.h - what an op's kernel or collective means, for tests that make mistakes in a
 * Program.
 */
#ifndef HIGHWATER_TESTS_OP_MEANING_H
#define HIGHWATER_TESTS_OP_MEANING_H

#include "program/program.h"

/* What the kernel of an op means; its name, where that says it. */
static inline const char *
kernel_text(const Program *program, const ProgramOp *op)
{
  const Kernel *k = &g_array_index(program->kernels, Kernel, op->a);
  return program_text(program, k->meaning > 0 ? k->meaning - 1 : k->name);
}

/* The op has a kernel or collective of its own, which means the text; NULL: what its name says. */
static inline void
give_meaning(Program *program, ProgramOp *op, const char *text)
{
  gint32 meaning = 0;
  if (text != NULL) {
    g_ptr_array_add(program->names, g_strdup(text));
    meaning = (gint32) program->names->len;
  }
  if (op->kind == PROGRAM_COLLECTIVE) {
    Collective other = g_array_index(program->collectives, Collective, op->a);
    other.meaning = meaning;
    g_array_append_val(program->collectives, other);
    op->a = (gint32) program->collectives->len - 1;
  } else {
    Kernel other = g_array_index(program->kernels, Kernel, op->a);
    other.meaning = meaning;
    g_array_append_val(program->kernels, other);
    op->a = (gint32) program->kernels->len - 1;
  }
}

#endif
