/* program_parse.c - reads the Program's text form, statement by statement; what was read can be
 * walked without further care, since every id was checked against the table it indexes. */
#include <string.h>

#include "program/program_scan.h"

static gboolean
parse_name_row(Scanner *scanner)
{
  return program_scan_due_id(scanner, "name", scanner->program->names->len) &&
         program_scan_text(scanner, scanner->program->names);
}

static gboolean
parse_module_row(Scanner *scanner)
{
  return program_scan_due_id(scanner, "module", scanner->program->modules->len) &&
         program_scan_text(scanner, scanner->program->modules);
}

/* "2,3,4" or nothing. */
static gboolean
parse_dimensions(Scanner *scanner, Token list, gint64 *values, guint8 *count)
{
  const char *stop = list.start + list.length;

  *count = 0;
  if (list.length == 0)
    return TRUE;
  while (*count < TENSOR_MAX_DIMS) {
    const char *comma = memchr(list.start, ',', (gsize) (stop - list.start));
    Token item = {list.start, (gsize) ((comma == NULL ? stop : comma) - list.start)};

    if (!program_scan_value(scanner, VALUE_INTEGER, item, &values[(*count)++]))
      return FALSE;
    if (comma == NULL)
      return TRUE;
    list.start = comma + 1;
  }
  return program_scan_fail(scanner, "more than %d dimensions", TENSOR_MAX_DIMS);
}

static gboolean
parse_layout_row(Scanner *scanner)
{
  GArray *layouts = scanner->program->layouts;
  Layout layout = {0};
  Token dtype, shape, stride;
  gint64 value;
  guint8 strides;

  if (!program_scan_due_id(scanner, "layout", layouts->len) ||
      !program_scan_key(scanner, "dtype", &dtype) ||
      !program_scan_value(scanner, VALUE_DTYPE, dtype, &value) ||
      !program_scan_key(scanner, "shape", &shape) ||
      !parse_dimensions(scanner, shape, layout.shape, &layout.dims) ||
      !program_scan_key(scanner, "stride", &stride) ||
      !parse_dimensions(scanner, stride, layout.stride, &strides))
    return FALSE;
  if (strides != layout.dims)
    return program_scan_fail(scanner, "%d dimensions but %d strides", layout.dims, strides);
  layout.dtype = (guint8) value;
  if (!program_layout_span(&layout, &value))
    return program_scan_fail(scanner, "the layout spans more than 2^63 elements");
  g_array_append_val(layouts, layout);
  return program_scan_end(scanner);
}

/* A name's id, if anything follows at all. */
static gboolean
parse_meaning(Scanner *scanner, const Field *field, gpointer row)
{
  Token token;
  gint64 value;

  if (program_scan_at_end(scanner))
    return TRUE;
  if (!program_scan_key(scanner, field->key, &token) ||
      !program_scan_value(scanner, VALUE_NAME, token, &value))
    return FALSE;
  program_field_set(row, field, value + 1);
  return TRUE;
}

static gboolean
parse_field(Scanner *scanner, const Field *field, gpointer row)
{
  Token token;
  gint64 value;
  double real = 0;

  if (field->kind == VALUE_MEANING)
    return parse_meaning(scanner, field, row);
  if (!program_scan_key(scanner, field->key, &token))
    return FALSE;
  if (field->kind == VALUE_REAL) {
    if (!program_scan_real(scanner, token, &real))
      return FALSE;
    program_field_set_real(row, field, real);
    return TRUE;
  }
  if (!program_scan_value(scanner, field->kind, token, &value))
    return FALSE;
  program_field_set(row, field, value);
  return TRUE;
}

/* Any row of plain members; every table's row fits. */
typedef union {
  Communicator communicator;
  Kernel kernel;
  Collective collective;
  Storage storage;
  Tensor tensor;
} AnyRow;

static gboolean
parse_row(Scanner *scanner, const TableForm *table)
{
  GArray *rows = program_table_array(scanner->program, table);
  AnyRow row;
  gint64 begin, end;

  memset(&row, 0, sizeof row);
  if (!program_scan_due_id(scanner, table->keyword, rows->len))
    return FALSE;
  for (int i = 0; i < table->fields; i++)
    if (!parse_field(scanner, &table->field[i], &row))
      return FALSE;
  if (table == &program_table[TABLE_TENSOR] &&
      !program_tensor_bytes(scanner->program, &row.tensor, &begin, &end))
    return program_scan_fail(scanner, "the tensor ends beyond 2^63 bytes");
  g_array_append_vals(rows, &row, 1);
  return program_scan_end(scanner);
}

static gboolean
parse_events(Scanner *scanner)
{
  Token token = program_scan_token(scanner);
  gint64 count;

  if (!program_token_integer(token, &count) || count > PROGRAM_MAX_EVENTS)
    return program_scan_fail(scanner, "'%.*s' is no number of events in 0..%d",
                             TOKEN_ARGUMENTS(token), PROGRAM_MAX_EVENTS);
  if (count < scanner->program->events)
    return program_scan_fail(scanner, "there are %d events already", scanner->program->events);
  scanner->program->events = (int) count;
  return program_scan_end(scanner);
}

static gboolean
parse_list(Scanner *scanner)
{
  scanner->list = op_list_new();
  g_ptr_array_add(scanner->program->lists, scanner->list);
  return program_scan_end(scanner);
}

static gboolean
parse_carry_of(Scanner *scanner, ValueKind kind, GArray *carries)
{
  Carry carry;

  if (!program_scan_id(scanner, kind, &carry.from) || !program_scan_id(scanner, kind, &carry.to))
    return FALSE;
  g_array_append_val(carries, carry);
  return program_scan_end(scanner);
}

static gboolean
parse_carry(Scanner *scanner)
{
  return parse_carry_of(scanner, VALUE_STORAGE, scanner->list->carries);
}

static gboolean
parse_carry_event(Scanner *scanner)
{
  return parse_carry_of(scanner, VALUE_EVENT, scanner->list->event_carries);
}

static gboolean
parse_steps(Scanner *scanner)
{
  Program *program = scanner->program;

  while (!program_scan_at_end(scanner)) {
    Token token = program_scan_token(scanner);
    gint64 value;
    int list;

    if (!program_token_integer(token, &value) || value < 1 || value >= program->lists->len)
      return program_scan_fail(
          scanner, "'%.*s' is no list of a step; lists after the construction are 1..%d",
          TOKEN_ARGUMENTS(token), (int) program->lists->len - 1);
    list = (int) value;
    g_array_append_val(program->step_list, list);
    program->steps++;
  }
  scanner->ended = TRUE;
  return TRUE;
}

static gboolean
parse_operand(Scanner *scanner)
{
  Token token = program_scan_token(scanner);
  Token id = {token.start + 1, token.length - 1};
  Operand operand = {.role = 0};
  gint64 tensor;

  while (operand.role < ROLE_COUNT &&
         program_value_name(VALUE_ROLE, operand.role)[0] != token.start[0])
    operand.role++;
  if (operand.role == ROLE_COUNT)
    return program_scan_fail(scanner,
                             "'%.*s' is no operand; a role (r, w or a) and a tensor are due",
                             TOKEN_ARGUMENTS(token));
  if (!program_scan_value(scanner, VALUE_TENSOR, id, &tensor))
    return FALSE;
  operand.tensor = (gint32) tensor;
  g_array_append_val(scanner->program->operands, operand);
  return TRUE;
}

static gboolean
parse_operands(Scanner *scanner, ProgramOp *op)
{
  guint first = scanner->program->operands->len;

  if (first >= G_MAXINT32 - G_MAXUINT16)
    return program_scan_fail(scanner, "more than 2^31 operands");
  while (!program_scan_at_end(scanner)) {
    if (op->operands == G_MAXUINT16)
      return program_scan_fail(scanner, "more than %d operands", G_MAXUINT16);
    if (!parse_operand(scanner))
      return FALSE;
    op->operands++;
  }
  if (op->operands > 0)
    op->first_operand = (gint32) first;
  return TRUE;
}

/* "@3", the module, if it stands here. */
static gboolean
parse_module(Scanner *scanner, gint32 *module)
{
  Token token;
  gint64 value;

  *module = -1;
  if (program_scan_at_end(scanner) || *scanner->cursor != '@')
    return TRUE;
  token = program_scan_token(scanner);
  token.start++;
  token.length--;
  if (!program_scan_value(scanner, VALUE_ANY_MODULE, token, &value))
    return FALSE;
  *module = (gint32) value;
  return TRUE;
}

static gboolean
parse_op(Scanner *scanner, ProgramOpKind kind)
{
  const ProgramOpForm *form = &program_op_form[kind];
  ProgramOp op = {.kind = (guint8) kind};
  gint32 *const arguments[] = {&op.a, &op.b, &op.c};
  gint32 stream = STREAM_HOST;

  if (form->stream && !program_scan_id(scanner, VALUE_STREAM, &stream))
    return FALSE;
  op.stream = (guint8) stream;
  for (guint i = 0; i < G_N_ELEMENTS(arguments) && form->argument[i] != VALUE_NONE; i++)
    if (!program_scan_id(scanner, form->argument[i], arguments[i]))
      return FALSE;
  if (!parse_module(scanner, &op.module) || (form->operands && !parse_operands(scanner, &op)))
    return FALSE;
  g_array_append_val(scanner->list->ops, op);
  return program_scan_end(scanner);
}

/* Statements that are neither a plain table's row nor an op. */
typedef struct {
  const char *keyword;
  gboolean in_list; /* only inside a list; else only before the first */
  gboolean (*parse)(Scanner *scanner);
} Statement;

static const Statement statements[] = {
    {"name", FALSE, parse_name_row},     {"module", FALSE, parse_module_row},
    {"layout", FALSE, parse_layout_row}, {"events", FALSE, parse_events},
    {"list", FALSE, parse_list},         {"list", TRUE, parse_list},
    {"steps", FALSE, parse_steps},       {"steps", TRUE, parse_steps},
    {"carry", TRUE, parse_carry},        {"carry_event", TRUE, parse_carry_event},
};

static gboolean
parse_statement(Scanner *scanner, Token keyword)
{
  gboolean in_list = scanner->list != NULL;

  if (scanner->ended)
    return program_scan_fail(scanner, "'%.*s' after the steps", TOKEN_ARGUMENTS(keyword));
  for (int i = 0; in_list && i < PROGRAM_OP_COUNT; i++)
    if (program_token_is(keyword, program_op_form[i].name))
      return parse_op(scanner, (ProgramOpKind) i);
  for (int i = 0; !in_list && i < TABLE_COUNT; i++)
    if (program_token_is(keyword, program_table[i].keyword))
      return parse_row(scanner, &program_table[i]);
  for (guint i = 0; i < G_N_ELEMENTS(statements); i++)
    if (statements[i].in_list == in_list && program_token_is(keyword, statements[i].keyword))
      return statements[i].parse(scanner);
  return program_scan_fail(scanner, "'%.*s' is no %s", TOKEN_ARGUMENTS(keyword),
                           in_list ? "op; tables stand before the first list"
                                   : "table; ops stand in lists");
}

/* One line, cursor and end set.  Empty ones and comments count as lines only. */
static gboolean
parse_line(Scanner *scanner)
{
  Token keyword = program_scan_token(scanner);

  if (keyword.length == 0 || keyword.start[0] == '#')
    return TRUE;
  if (scanner->begun)
    return parse_statement(scanner, keyword);
  scanner->begun = TRUE;
  if (!program_token_is(keyword, PROGRAM_FORMAT))
    return program_scan_fail(scanner, "a Program begins with '" PROGRAM_FORMAT "'");
  return program_scan_end(scanner);
}

gboolean
program_text_begins(const char *text)
{
  for (;;) {
    text += strspn(text, " \t\n");
    if (*text != '#')
      break;
    text += strcspn(text, "\n");
  }
  return strncmp(text, PROGRAM_FORMAT, strlen(PROGRAM_FORMAT)) == 0 &&
         strchr(" \t\n", text[strlen(PROGRAM_FORMAT)]) != NULL;
}

Program *
program_parse(const char *name, const char *text, GError **error)
{
  g_autoptr(Program) program = program_new();
  Scanner scanner = {.name = name, .program = program, .error = error};

  for (const char *line = text; *line != '\0';) {
    const char *newline = strchr(line, '\n');

    scanner.line++;
    scanner.cursor = line;
    scanner.end = newline == NULL ? line + strlen(line) : newline;
    if (!parse_line(&scanner))
      return NULL;
    line = newline == NULL ? scanner.end : newline + 1;
  }
  scanner.line++;
  if (!scanner.ended) {
    program_scan_fail(&scanner, "the text ends before the steps");
    return NULL;
  }
  return g_steal_pointer(&program);
}
