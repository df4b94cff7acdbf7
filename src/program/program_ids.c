/* program_ids.c - whether every id and enum of a Program names something. */
#include <math.h>

#include "base/units.h"
#include "program/program_ids.h"
#include "program/program_schema.h"

/* The range of each kind of value, looked up once. */
typedef struct {
  const Program *program;
  gint64 minimum[VALUE_KIND_COUNT], maximum[VALUE_KIND_COUNT];
  GError **error;
} Ranges;

G_GNUC_PRINTF(2, 3)
static gboolean
fail(const Ranges *ranges, const char *format, ...)
{
  va_list arguments;
  g_autofree char *what = NULL;

  va_start(arguments, format);
  what = g_strdup_vprintf(format, arguments);
  va_end(arguments);
  g_set_error(ranges->error, HIGHWATER_ERROR, HIGHWATER_ERROR_INPUT, "program: %s", what);
  return FALSE;
}

static gboolean
in_range(const Ranges *ranges, ValueKind kind, gint64 value)
{
  return value >= ranges->minimum[kind] && value <= ranges->maximum[kind];
}

static gboolean
check_field(const Ranges *ranges, const Field *field, gconstpointer row)
{
  if (field->kind == VALUE_REAL) {
    double value = program_field_get_real(row, field);

    return isfinite(value) && value >= 0;
  }
  return in_range(ranges, field->kind, program_field_get(row, field));
}

static gboolean
check_table(const Ranges *ranges, const TableForm *table)
{
  const GArray *rows = program_table_array(ranges->program, table);

  for (guint i = 0; i < rows->len; i++)
    for (int j = 0; j < table->fields; j++)
      if (!check_field(ranges, &table->field[j], rows->data + i * table->row_bytes))
        return fail(ranges, "%s %u has no valid %s", table->keyword, i, table->field[j].key);
  return TRUE;
}

static gboolean
check_layouts(const Ranges *ranges)
{
  const GArray *layouts = ranges->program->layouts;

  for (guint i = 0; i < layouts->len; i++) {
    const Layout *layout = &g_array_index(layouts, Layout, i);
    gint64 span;

    if (layout->dims > TENSOR_MAX_DIMS || !in_range(ranges, VALUE_DTYPE, layout->dtype) ||
        !program_layout_span(layout, &span))
      return fail(ranges, "layout %u has no valid dtype, shape or stride", i);
  }
  return TRUE;
}

static gboolean
check_tensors(const Ranges *ranges)
{
  const Program *program = ranges->program;

  for (guint i = 0; i < program->tensors->len; i++) {
    const Tensor *tensor = &g_array_index(program->tensors, Tensor, i);
    const Storage *storage = &g_array_index(program->storages, Storage, tensor->storage);
    gint64 begin, end;

    if (!program_tensor_bytes(program, tensor, &begin, &end))
      return fail(ranges, "tensor %u ends beyond 2^63 bytes", i);
    if (end > begin && end > storage->bytes)
      return fail(ranges,
                  "tensor %u ends at byte %" G_GINT64_FORMAT
                  " of storage %d (%s), which has %" G_GINT64_FORMAT,
                  i, end, tensor->storage, program_text(program, storage->what), storage->bytes);
  }
  return TRUE;
}

/* Parts lie inside of their storages. */
static gboolean
check_parts(const Ranges *ranges)
{
  const Program *program = ranges->program;

  for (guint i = 0; i < program->parts->len; i++) {
    const ParameterPart *part = &g_array_index(program->parts, ParameterPart, i);
    const Storage *storage = &g_array_index(program->storages, Storage, part->storage);
    gint64 room = storage->bytes / dtype_size((DType) part->dtype);

    if (part->offset > room || part->elements > room - part->offset)
      return fail(ranges, "part %u ends beyond storage %d (%s)", i, part->storage,
                  program_text(program, storage->what));
  }
  return TRUE;
}

static gboolean
check_operands(const Ranges *ranges, const ProgramOp *op)
{
  const GArray *operands = ranges->program->operands;

  if (op->operands == 0)
    return TRUE;
  if (!program_op_form[op->kind].operands || op->first_operand < 0 ||
      (gint64) op->first_operand + op->operands > operands->len)
    return FALSE;
  for (int i = 0; i < op->operands; i++) {
    const Operand *operand = &g_array_index(operands, Operand, op->first_operand + i);

    if (!in_range(ranges, VALUE_TENSOR, operand->tensor) ||
        !in_range(ranges, VALUE_ROLE, operand->role))
      return FALSE;
  }
  return TRUE;
}

static gboolean
check_op(const Ranges *ranges, const ProgramOp *op)
{
  const ProgramOpForm *form;

  if (op->kind >= PROGRAM_OP_COUNT || op->stream >= STREAM_COUNT)
    return FALSE;
  form = &program_op_form[op->kind];
  return in_range(ranges, form->argument[0], op->a) && in_range(ranges, form->argument[1], op->b) &&
         in_range(ranges, form->argument[2], op->c) &&
         in_range(ranges, VALUE_ANY_MODULE, op->module) && check_operands(ranges, op);
}

static gboolean
check_carries(const Ranges *ranges, ValueKind kind, const GArray *carries)
{
  for (guint i = 0; i < carries->len; i++) {
    const Carry *carry = &g_array_index(carries, Carry, i);

    if (!in_range(ranges, kind, carry->from) || !in_range(ranges, kind, carry->to))
      return FALSE;
  }
  return TRUE;
}

static gboolean
check_list(const Ranges *ranges, guint index)
{
  const OpList *list = g_ptr_array_index(ranges->program->lists, index);

  for (guint i = 0; i < list->ops->len; i++) {
    const ProgramOp *op = &g_array_index(list->ops, ProgramOp, i);

    if (!check_op(ranges, op))
      return fail(ranges, "list %u, op %u (%s): unknown id", index, i,
                  op->kind < PROGRAM_OP_COUNT ? program_op_form[op->kind].name : "unknown");
  }
  return (check_carries(ranges, VALUE_STORAGE, list->carries) &&
          check_carries(ranges, VALUE_EVENT, list->event_carries)) ||
         fail(ranges, "list %u: a carry has an unknown id", index);
}

static gboolean
check_steps(const Ranges *ranges)
{
  const Program *program = ranges->program;

  if (program->lists->len == 0)
    return fail(ranges, "there is no construction");
  if (program->steps < 0 || (guint) program->steps != program->step_list->len)
    return fail(ranges, "%d steps, but lists for %u", program->steps, program->step_list->len);
  for (guint i = 0; i < program->step_list->len; i++) {
    int list = g_array_index(program->step_list, int, i);

    if (list < 1 || (guint) list >= program->lists->len)
      return fail(ranges, "step %u has no list", i + 1);
  }
  return TRUE;
}

gboolean
program_check_ids(const Program *program, GError **error)
{
  Ranges ranges = {.program = program, .error = error};

  for (int i = 0; i < VALUE_KIND_COUNT; i++)
    program_value_range(program, (ValueKind) i, &ranges.minimum[i], &ranges.maximum[i]);
  if (!check_layouts(&ranges))
    return FALSE;
  for (int i = 0; i < TABLE_COUNT; i++)
    if (!check_table(&ranges, &program_table[i]))
      return FALSE;
  if (!check_tensors(&ranges) || !check_parts(&ranges) || !check_steps(&ranges))
    return FALSE;
  for (guint i = 0; i < program->lists->len; i++)
    if (!check_list(&ranges, i))
      return FALSE;
  return TRUE;
}
