/* program_print.c - the Program's text form: tables first, then the lists, one op a line. */
#include <math.h>
#include <stdlib.h>

#include "program/program_schema.h"

/* Decimal digits without a format string: a step has 10^5 lines. */
static void
append_integer(GString *out, gint64 value)
{
  char digits[24];
  int start = sizeof digits;
  guint64 rest = value < 0 ? -(guint64) value : (guint64) value;

  do
    digits[--start] = (char) ('0' + rest % 10);
  while ((rest /= 10) > 0);
  if (value < 0)
    digits[--start] = '-';
  g_string_append_len(out, digits + start, (gssize) sizeof digits - start);
}

/* The shortest digits that read back as the same double. */
static void
append_real(GString *out, double value)
{
  static const char *const formats[] = {"%.15g", "%.16g", "%.17g"};
  char digits[G_ASCII_DTOSTR_BUF_SIZE];

  for (guint i = 0; i < G_N_ELEMENTS(formats); i++) {
    g_ascii_formatd(digits, sizeof digits, formats[i], value);
    if (g_ascii_strtod(digits, NULL) == value)
      break;
  }
  g_string_append(out, digits);
}

/* Quoted; quotes, backslashes and control characters escaped. */
static void
append_text(GString *out, const char *text)
{
  g_string_append_c(out, '"');
  for (; *text != '\0'; text++) {
    if (*text == '"' || *text == '\\')
      g_string_append_c(out, '\\');
    if ((guchar) *text < ' ' || *text == 0x7f)
      g_string_append_printf(out, "\\x%02x", (guchar) *text);
    else
      g_string_append_c(out, *text);
  }
  g_string_append_c(out, '"');
}

/* By name, as a number, or "-" for -1. */
static void
append_value(GString *out, ValueKind kind, gint64 value)
{
  const char *name = program_value_name(kind, value);

  if (name != NULL)
    g_string_append(out, name);
  else if (value == -1)
    g_string_append_c(out, '-');
  else
    append_integer(out, value);
}

static void
print_texts(const GPtrArray *texts, const char *keyword, GString *out)
{
  for (guint i = 0; i < texts->len; i++) {
    g_string_append(out, keyword);
    g_string_append_c(out, ' ');
    append_integer(out, i);
    g_string_append_c(out, ' ');
    append_text(out, g_ptr_array_index(texts, i));
    g_string_append_c(out, '\n');
  }
}

static void
append_dimensions(GString *out, const char *key, const gint64 *values, int dims)
{
  g_string_append(out, key);
  for (int i = 0; i < dims; i++) {
    if (i > 0)
      g_string_append_c(out, ',');
    append_integer(out, values[i]);
  }
}

static void
print_layouts(const GArray *layouts, GString *out)
{
  for (guint i = 0; i < layouts->len; i++) {
    const Layout *layout = &g_array_index(layouts, Layout, i);

    g_string_append(out, "layout ");
    append_integer(out, i);
    g_string_append(out, " dtype=");
    g_string_append(out, program_value_name(VALUE_DTYPE, layout->dtype));
    append_dimensions(out, " shape=", layout->shape, layout->dims);
    append_dimensions(out, " stride=", layout->stride, layout->dims);
    g_string_append_c(out, '\n');
  }
}

static void
print_row(const TableForm *table, gconstpointer row, GString *out)
{
  for (int i = 0; i < table->fields; i++) {
    const Field *field = &table->field[i];
    gboolean meaning = field->kind == VALUE_MEANING;

    if (meaning && program_field_get(row, field) == 0)
      continue;
    g_string_append_c(out, ' ');
    g_string_append(out, field->key);
    g_string_append_c(out, '=');
    if (field->kind == VALUE_REAL)
      append_real(out, program_field_get_real(row, field));
    else
      append_value(out, field->kind, program_field_get(row, field) - meaning);
  }
}

static void
print_table(const Program *program, const TableForm *table, GString *out)
{
  const GArray *rows = program_table_array(program, table);

  for (guint i = 0; i < rows->len; i++) {
    g_string_append(out, table->keyword);
    g_string_append_c(out, ' ');
    append_integer(out, i);
    print_row(table, rows->data + i * table->row_bytes, out);
    g_string_append_c(out, '\n');
  }
}

static void
print_op(const Program *program, const ProgramOp *op, GString *out)
{
  const ProgramOpForm *form = &program_op_form[op->kind];
  const gint32 arguments[] = {op->a, op->b, op->c};

  g_string_append(out, form->name);
  if (form->stream) {
    g_string_append_c(out, ' ');
    g_string_append(out, program_value_name(VALUE_STREAM, op->stream));
  }
  for (guint i = 0; i < G_N_ELEMENTS(arguments) && form->argument[i] != VALUE_NONE; i++) {
    g_string_append_c(out, ' ');
    append_value(out, form->argument[i], arguments[i]);
  }
  if (op->module >= 0) {
    g_string_append(out, " @");
    append_integer(out, op->module);
  }
  for (int i = 0; i < op->operands; i++) {
    const Operand *operand = program_operand(program, op, i);

    g_string_append_c(out, ' ');
    g_string_append_c(out, program_value_name(VALUE_ROLE, operand->role)[0]);
    append_integer(out, operand->tensor);
  }
  g_string_append_c(out, '\n');
}

static void
print_carries(const GArray *carries, const char *keyword, GString *out)
{
  for (guint i = 0; i < carries->len; i++) {
    const Carry *carry = &g_array_index(carries, Carry, i);

    g_string_append(out, keyword);
    g_string_append_c(out, ' ');
    append_integer(out, carry->from);
    g_string_append_c(out, ' ');
    append_integer(out, carry->to);
    g_string_append_c(out, '\n');
  }
}

static void
print_list(const Program *program, const OpList *list, GString *out)
{
  g_string_append(out, "list\n");
  print_carries(list->carries, "carry", out);
  print_carries(list->event_carries, "carry_event", out);
  for (guint i = 0; i < list->ops->len; i++)
    print_op(program, &g_array_index(list->ops, ProgramOp, i), out);
}

void
program_print(const Program *program, GString *out)
{
  g_string_append(out, PROGRAM_FORMAT "\n");
  print_texts(program->names, "name", out);
  print_texts(program->modules, "module", out);
  print_layouts(program->layouts, out);
  for (int i = 0; i < TABLE_COUNT; i++)
    print_table(program, &program_table[i], out);
  g_string_append(out, "events ");
  append_integer(out, program->events);
  g_string_append_c(out, '\n');
  for (guint i = 0; i < program->lists->len; i++)
    print_list(program, g_ptr_array_index(program->lists, i), out);
  g_string_append(out, "steps");
  for (guint i = 0; i < program->step_list->len; i++) {
    g_string_append_c(out, ' ');
    append_integer(out, g_array_index(program->step_list, int, i));
  }
  g_string_append_c(out, '\n');
}
