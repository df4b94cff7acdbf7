/* ops_function.c - reads the functions of an exported network: statements whose operands were made
 * before and are still there. */
#include <string.h>

#include "base/units.h"
#include "network/ops_format.h"

#define MOST_STATEMENTS 65536
#define MOST_VALUES 30000

/* What has become of each value so far. */
typedef enum { VALUE_THERE, VALUE_DROPPED, VALUE_ARGUMENT } ValueState;

typedef struct {
  OpsFunction *function;
  GArray *states; /* guint8 by number */
} Reading;

static void
statement_clear(gpointer data)
{
  OpsStatement *s = data;
  if (s->drops != NULL)
    g_array_unref(s->drops);
  if (s->backward != NULL)
    g_array_unref(s->backward);
}

void
ops_function_free(OpsFunction *function)
{
  if (function == NULL)
    return;
  g_free(function->path);
  g_array_unref(function->arguments);
  g_array_unref(function->statements);
  g_free(function);
}

/* ---- operands ---- */

static void
new_values(Reading *r, ValueState state, int n)
{
  guint8 stored = (guint8) state;
  for (int i = 0; i < n; i++)
    g_array_append_val(r->states, stored);
  r->function->slots = (gint32) r->states->len;
}

/* A value's number, checked: it was made before, and is still there. */
static gint32
check_value(const Reading *r, JsonReader *reader, const char *key, const cJSON *item)
{
  double number = item->valuedouble;
  if (!cJSON_IsNumber(item) || number < 0 || number != (double) (gint64) number) {
    json_reader_fail(reader, key, "values are numbers from 0 on");
    return 0;
  }
  if (number >= r->states->len) {
    json_reader_fail(reader, key, "value %.0f is not made yet: there are %u", number,
                     r->states->len);
    return 0;
  }
  if (g_array_index(r->states, guint8, (guint) number) == VALUE_DROPPED) {
    json_reader_fail(reader, key, "value %.0f was dropped before", number);
    return 0;
  }
  return (gint32) number;
}

static void
read_operands(const Reading *r, JsonReader *reader, gboolean parameters, OpsStatement *s)
{
  const cJSON *array = json_reader_raw(reader, "in"), *item;
  if (array == NULL || !cJSON_IsArray(array)) {
    json_reader_fail(reader, "in", "an array of values is needed");
    return;
  }
  cJSON_ArrayForEach(item, array)
  {
    if (s->ins >= (parameters ? OP_INPUTS : STATEMENT_SLOTS)) {
      json_reader_fail(reader, "in", "there are more than %d values",
                       parameters ? OP_INPUTS : STATEMENT_SLOTS);
      return;
    }
    OpsOperand *operand = &s->in[s->ins++];
    if (parameters && cJSON_IsString(item))
      operand->parameter = item->valuestring;
    else
      operand->slot = check_value(r, reader, "in", item);
  }
}

/* ---- kinds of statements ---- */

static void
read_drop(Reading *r, JsonReader *reader, OpsStatement *s)
{
  const cJSON *array = json_reader_raw(reader, "drop"), *item;
  s->kind = OPS_DROP;
  s->drops = g_array_new(FALSE, FALSE, sizeof(gint32));
  if (!cJSON_IsArray(array)) {
    json_reader_fail(reader, "drop", "an array of values is needed");
    return;
  }
  cJSON_ArrayForEach(item, array)
  {
    gint32 slot = check_value(r, reader, "drop", item);
    if (r->states->len == 0)
      return;
    guint8 *state = &g_array_index(r->states, guint8, slot);
    if (*state == VALUE_ARGUMENT)
      json_reader_fail(reader, "drop", "value %d is an argument, which the caller drops", slot);
    else
      g_array_append_val(s->drops, slot);
    if (*state == VALUE_THERE)
      *state = VALUE_DROPPED;
  }
}

static void
read_outputs(JsonReader *reader, OpsStatement *s)
{
  guint n = json_reader_array_length(reader, "out");
  int want = s->row->outs;
  if (n < 1 || n > OP_OUTPUTS || (want > 0 && (int) n != want))
    json_reader_fail(reader, "out", "'%s' has %s, not %u", s->row->name,
                     want == 1 ? "one result" : "1 to 5 results", n);
  for (guint i = 0; i < MIN(n, OP_OUTPUTS); i++) {
    g_autoptr(JsonReader) element = json_reader_element(reader, "out", i);
    s->out[s->outs++] = ops_value_read(element);
    json_reader_finish(element, NULL);
  }
}

static void
read_op(Reading *r, JsonReader *reader, OpsStatement *s)
{
  const char *name = json_reader_required_string(reader, "op");
  s->kind = OPS_OP;
  s->row = ops_row_find(name);
  if (s->row == NULL) {
    g_autofree char *names = ops_row_names();
    json_reader_fail(reader, "op", "'%.60s' is not one of %s", name, names);
    return;
  }
  read_operands(r, reader, TRUE, s);
  if (s->ins < s->row->ins || s->ins > s->row->most_ins)
    json_reader_fail(reader, "in", "'%s' has %d to %d operands, not %d", name, s->row->ins,
                     s->row->most_ins, s->ins);
  read_outputs(reader, s);
  s->number = json_reader_int(reader, "dim", 0, 0, OP_DIMS);
  if (json_reader_has(reader, "offset"))
    s->number = json_reader_int(reader, "offset", 0, 0, BUILDER_MOST_ELEMENTS);
  s->causal = json_reader_bool(reader, "causal", FALSE);
  s->dropout = json_reader_bool(reader, "dropout", FALSE);
  s->recorded.what = g_intern_string(json_reader_string(reader, "what", name));
  ops_recorded_read(reader, s);
}

static void
read_call(Reading *r, JsonReader *reader, OpsStatement *s)
{
  s->kind = OPS_CALL;
  s->block = (gint32) json_reader_int(reader, "call", 0, 0, BUILDER_MOST_BLOCKS - 1);
  read_operands(r, reader, FALSE, s);
  s->outs = (int) json_reader_int(reader, "results", 1, 1, FUNCTION_RESULTS);
}

static void
read_module(Reading *r, JsonReader *reader, OpsStatement *s)
{
  s->kind = json_reader_has(reader, "enter") ? OPS_ENTER : OPS_EXIT;
  s->module = json_reader_required_string(reader, s->kind == OPS_ENTER ? "enter" : "exit");
  read_operands(r, reader, FALSE, s);
  if (s->kind == OPS_ENTER)
    s->outs = s->ins;
  else if (s->ins == 0)
    json_reader_fail(reader, "in", "a module gives back at least one value");
}

static OpsStatement
read_statement(Reading *r, JsonReader *reader)
{
  OpsStatement s = {.first_out = (gint32) r->states->len};
  if (json_reader_has(reader, "op"))
    read_op(r, reader, &s);
  else if (json_reader_has(reader, "drop"))
    read_drop(r, reader, &s);
  else if (json_reader_has(reader, "call"))
    read_call(r, reader, &s);
  else if (json_reader_has(reader, "enter") || json_reader_has(reader, "exit"))
    read_module(r, reader, &s);
  else
    json_reader_fail(reader, "op", "a statement has op, drop, call, enter or exit");
  new_values(r, VALUE_THERE, s.outs);
  json_reader_finish(reader, NULL);
  return s;
}

/* ---- functions ---- */

/* Is the value the function's own, and there? */
static gboolean
is_result(const Reading *r, JsonReader *reader, const char *key, gint64 value)
{
  static const char *const what[] = {
      [VALUE_THERE] = "", [VALUE_DROPPED] = "dropped", [VALUE_ARGUMENT] = "an argument"};
  guint8 state = g_array_index(r->states, guint8, value);
  if (state != VALUE_THERE)
    json_reader_fail(reader, key, "value %d is %s", (int) value, what[state]);
  return state == VALUE_THERE;
}

static void
read_result(Reading *r, JsonReader *reader)
{
  OpsFunction *f = r->function;
  gint64 most = (gint64) r->states->len - 1, other[FUNCTION_RESULTS - 1];
  if (most < 0) {
    json_reader_fail(reader, "statements", "there are no values");
    return;
  }
  f->result = (gint32) json_reader_required_int(reader, "result", 0, most);
  if (!is_result(r, reader, "result", f->result))
    return;
  int n = ops_numbers_read(reader, "others", other, FUNCTION_RESULTS - 1, 0, most);
  for (int i = 0; i < n; i++) {
    gboolean twice = other[i] == f->result || (i > 0 && other[i] == other[0]);
    if (twice)
      json_reader_fail(reader, "others", "value %d is a result twice", (int) other[i]);
    else if (is_result(r, reader, "others", other[i]))
      f->other[f->others++] = (gint32) other[i];
  }
}

static void
read_arguments(JsonReader *reader, GArray *arguments)
{
  guint n = json_reader_array_length(reader, "arguments");
  if (n < 1 || n > STATEMENT_SLOTS)
    json_reader_fail(reader, "arguments", "a block has 1 to %d arguments, not %u", STATEMENT_SLOTS,
                     n);
  for (guint i = 0; i < MIN(n, STATEMENT_SLOTS); i++) {
    g_autoptr(JsonReader) element = json_reader_element(reader, "arguments", i);
    ValueInfo value = ops_value_read(element);
    json_reader_finish(element, NULL);
    g_array_append_val(arguments, value);
  }
}

/* Statements as far as they are right: what refers to a wrong one would be wrong too. */
static void
read_statements(Reading *r, JsonReader *reader, JsonDocument *document)
{
  guint n = json_reader_array_length(reader, "statements");
  if (n > MOST_STATEMENTS)
    json_reader_fail(reader, "statements", "there are more than %d", MOST_STATEMENTS);
  for (guint i = 0; i < n && json_document_error(document) == NULL; i++) {
    g_autoptr(JsonReader) element = json_reader_element(reader, "statements", i);
    OpsStatement s = read_statement(r, element);
    g_array_append_val(r->function->statements, s);
    if (r->states->len > MOST_VALUES)
      json_reader_fail(element, "out", "there are more than %d values", MOST_VALUES);
  }
}

OpsFunction *
ops_function_read(JsonReader *reader, JsonDocument *document, const char *path, GArray *arguments)
{
  OpsFunction *f = g_new0(OpsFunction, 1);
  g_autoptr(GArray) states = g_array_new(FALSE, FALSE, sizeof(guint8));
  Reading r = {f, states};
  f->path = g_strdup(path);
  f->statements = g_array_new(FALSE, TRUE, sizeof(OpsStatement));
  g_array_set_clear_func(f->statements, statement_clear);
  f->arguments = arguments;
  if (arguments == NULL) {
    f->arguments = g_array_new(FALSE, TRUE, sizeof(ValueInfo));
    read_arguments(reader, f->arguments);
  }
  new_values(&r, VALUE_ARGUMENT, (int) f->arguments->len);
  read_statements(&r, reader, document);
  if (json_document_error(document) == NULL)
    read_result(&r, reader);
  json_reader_finish(reader, NULL);
  return f;
}
