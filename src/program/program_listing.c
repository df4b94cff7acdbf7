/* program_listing.c - a Program's lists for people: names and sizes instead of ids. */
#include <string.h>

#include "base/units.h"
#include "program/program_schema.h"

#define STREAM_WIDTH 15
#define OP_WIDTH 14

static void
append_padded(GString *out, const char *text, gsize width)
{
  gsize length = strlen(text);

  g_string_append_len(out, text, (gssize) length);
  for (; length < width; length++)
    g_string_append_c(out, ' ');
  g_string_append_c(out, ' ');
}

/* The storage as people know it, with its id to tell namesakes apart: "wq.weight#12". */
static void
append_storage(const Program *program, gint32 id, GString *out)
{
  const Storage *storage = &g_array_index(program->storages, Storage, id);

  g_string_append_printf(out, "%s#%d", program_text(program, storage->what), id);
}

static void
describe_storage(const Program *program, const ProgramOp *op, GString *out)
{
  const Storage *storage = &g_array_index(program->storages, Storage, op->a);
  g_autofree char *size = format_bytes(storage->bytes);

  append_storage(program, op->a, out);
  g_string_append_printf(out, " %s %s", size,
                         program_value_name(VALUE_CATEGORY, storage->category));
  if (storage->space != SPACE_DEVICE)
    g_string_append_printf(out, " %s", program_value_name(VALUE_SPACE, storage->space));
}

/* "read wq.weight#12 bf16[4096,4096]". */
static void
append_operand(const Program *program, const Operand *operand, GString *out)
{
  const Tensor *tensor = &g_array_index(program->tensors, Tensor, operand->tensor);
  const Layout *layout = &g_array_index(program->layouts, Layout, tensor->layout);

  g_string_append_printf(out, ", %s ", program_value_name(VALUE_ROLE, operand->role));
  append_storage(program, tensor->storage, out);
  if (tensor->offset > 0)
    g_string_append_printf(out, "+%" G_GINT64_FORMAT, tensor->offset);
  g_string_append_printf(out, " %s[", program_value_name(VALUE_DTYPE, layout->dtype));
  for (int i = 0; i < layout->dims; i++)
    g_string_append_printf(out, "%s%" G_GINT64_FORMAT, i > 0 ? "," : "", layout->shape[i]);
  g_string_append_c(out, ']');
}

static void
append_operands(const Program *program, const ProgramOp *op, GString *out)
{
  for (int i = 0; i < op->operands; i++)
    append_operand(program, program_operand(program, op, i), out);
}

static void
append_meaning(const Program *program, gint32 meaning, GString *out)
{
  if (meaning > 0)
    g_string_append_printf(out, " = %s", program_text(program, meaning - 1));
}

static void
describe_kernel(const Program *program, const ProgramOp *op, GString *out)
{
  const Kernel *kernel = &g_array_index(program->kernels, Kernel, op->a);
  g_autofree char *bytes = format_bytes((gint64) MIN(kernel->bytes, 0x1p62));

  g_string_append_printf(out, "%s (%s %s", program_text(program, kernel->name),
                         program_value_name(VALUE_KERNEL_KIND, kernel->kind),
                         program_value_name(VALUE_DTYPE, kernel->dtype));
  if (kernel->flops > 0)
    g_string_append_printf(out, ", %.3g FLOP", kernel->flops);
  g_string_append_printf(out, ", %s)", bytes);
  append_meaning(program, kernel->meaning, out);
  append_operands(program, op, out);
}

static void
describe_collective(const Program *program, const ProgramOp *op, GString *out)
{
  const Collective *collective = &g_array_index(program->collectives, Collective, op->a);
  const Communicator *communicator =
      &g_array_index(program->communicators, Communicator, collective->communicator);
  g_autofree char *bytes = format_bytes(collective->bytes);

  g_string_append_printf(out, "%s of %s over %s (%d ranks, %s, %s)",
                         program_value_name(VALUE_COLLECTIVE_KIND, collective->kind),
                         program_text(program, collective->name),
                         program_text(program, communicator->name), communicator->ranks,
                         program_value_name(VALUE_DTYPE, collective->dtype), bytes);
  append_meaning(program, collective->meaning, out);
  append_operands(program, op, out);
}

static void
describe_event(const Program *program, const ProgramOp *op, GString *out)
{
  (void) program;
  g_string_append_printf(out, "event %d", op->a);
}

static void
describe_host_work(const Program *program, const ProgramOp *op, GString *out)
{
  (void) program;
  g_string_append_printf(out, "%s x %d", program_value_name(VALUE_HOST_WORK, op->a), op->b);
}

static void
describe_communicator(const Program *program, const ProgramOp *op, GString *out)
{
  const Communicator *c = &g_array_index(program->communicators, Communicator, op->a);
  g_string_append_printf(out, "over %s (%d ranks)", program_text(program, c->name), c->ranks);
}

static void
describe_range(const Program *program, const ProgramOp *op, GString *out)
{
  g_string_append_printf(out, "%s %s", program_value_name(VALUE_RANGE_KIND, op->b),
                         program_text(program, op->a));
  if (op->c >= 0)
    g_string_append_printf(out, ", micro-batch %d", op->c);
}

static void
describe_nothing(const Program *program, const ProgramOp *op, GString *out)
{
  (void) program;
  (void) op;
  g_string_append_c(out, '-');
}

/* What to say of an op follows from what its first argument is. */
static void (*const describe[VALUE_KIND_COUNT])(const Program *, const ProgramOp *, GString *) = {
    [VALUE_NONE] = describe_nothing,  [VALUE_HOST_WORK] = describe_host_work,
    [VALUE_KERNEL] = describe_kernel, [VALUE_COLLECTIVE] = describe_collective,
    [VALUE_EVENT] = describe_event,   [VALUE_STORAGE] = describe_storage,
    [VALUE_NAME] = describe_range,    [VALUE_COMMUNICATOR] = describe_communicator,
};

void
program_print_list(const Program *program, int list, GString *out)
{
  const GArray *ops = ((const OpList *) g_ptr_array_index(program->lists, list))->ops;

  for (guint i = 0; i < ops->len; i++) {
    const ProgramOp *op = &g_array_index(ops, ProgramOp, i);
    const ProgramOpForm *form = &program_op_form[op->kind];

    append_padded(out, program_value_name(VALUE_STREAM, op->stream), STREAM_WIDTH);
    append_padded(out, form->name, OP_WIDTH);
    describe[form->argument[0]](program, op, out);
    if (op->module >= 0)
      g_string_append_printf(out, "  @ %s", program_module_path(program, op->module));
    g_string_append_c(out, '\n');
  }
}

void
program_print_allocations(const Program *program, const OpList *list, GString *out)
{
  for (guint i = 0; i < list->ops->len; i++) {
    const ProgramOp *op = &g_array_index(list->ops, ProgramOp, i);
    const Storage *storage;

    if (op->kind != PROGRAM_ALLOC && op->kind != PROGRAM_FREE)
      continue;
    storage = &g_array_index(program->storages, Storage, op->a);
    if (storage->space != SPACE_DEVICE)
      continue;
    const char *module = program_module_path(program, storage->module);
    g_string_append_printf(out, "%c %" G_GINT64_FORMAT " %s %s %s %s\n",
                           op->kind == PROGRAM_ALLOC ? '+' : '-', storage->bytes,
                           program_value_name(VALUE_STREAM, storage->stream),
                           program_value_name(VALUE_CATEGORY, storage->category),
                           *module != '\0' ? module : "-", program_text(program, storage->what));
  }
}
