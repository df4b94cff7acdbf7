/* ops_format.c - reads an exported network's file: what it was exported for, its modules and its
 * functions. */
#include "network/ops_format.h"

#include <string.h>

#include "base/units.h"
#include "network/strides.h"

#define MOST_MODULES 65536
#define MOST_TIED 64
#define MOST_INPUTS 14 /* with constants: arguments of the step */

static void
module_clear(gpointer data)
{
  OpsModule *m = data;
  g_array_unref(m->parameters);
  g_array_unref(m->buffers);
}

static void
function_free(gpointer data)
{
  ops_function_free(data);
}

static OpsFormat *
ops_format_new(void)
{
  OpsFormat *f = g_new0(OpsFormat, 1);
  f->modules = g_array_new(FALSE, TRUE, sizeof(OpsModule));
  g_array_set_clear_func(f->modules, module_clear);
  f->tied = g_array_new(FALSE, TRUE, sizeof(OpsTied));
  f->embedding = g_array_new(FALSE, TRUE, sizeof(const char *));
  f->head = g_array_new(FALSE, TRUE, sizeof(const char *));
  f->inputs = g_array_new(FALSE, TRUE, sizeof(ValueInfo));
  f->constants = g_array_new(FALSE, TRUE, sizeof(ValueInfo));
  f->constant_names = g_array_new(FALSE, TRUE, sizeof(const char *));
  f->functions = g_ptr_array_new_with_free_func(function_free);
  f->block_functions = g_array_new(FALSE, TRUE, sizeof(gint32));
  return f;
}

void
ops_format_free(OpsFormat *format)
{
  if (format == NULL)
    return;
  g_array_unref(format->modules);
  g_array_unref(format->tied);
  g_array_unref(format->embedding);
  g_array_unref(format->head);
  g_array_unref(format->inputs);
  g_array_unref(format->constants);
  g_array_unref(format->constant_names);
  g_ptr_array_unref(format->functions);
  g_array_unref(format->block_functions);
  ops_function_free(format->main);
  g_free(format);
}

/* ---- modules ---- */

static void
read_parameter(JsonReader *reader, OpsModule *m)
{
  OpsParameter p = {.name = json_reader_required_string(reader, "name")};
  json_reader_require(reader, "shape");
  p.dims = ops_numbers_read(reader, "shape", p.shape, 4, 1, BUILDER_MOST_ELEMENTS);
  p.trainable = json_reader_bool(reader, "trainable", TRUE);
  json_reader_finish(reader, NULL);
  g_array_append_val(m->parameters, p);
}

static void
read_buffer(JsonReader *reader, OpsModule *m)
{
  OpsBuffer buffer = {.name = json_reader_required_string(reader, "name")};
  buffer.bytes = json_reader_required_int(reader, "bytes", 0, BUILDER_MOST_ELEMENTS);
  json_reader_finish(reader, NULL);
  g_array_append_val(m->buffers, buffer);
}

/* Every element of the array under key by one of these. */
static void
read_each(JsonReader *reader, const char *key, OpsModule *m,
          void (*read)(JsonReader *reader, OpsModule *m))
{
  guint n = json_reader_array_length(reader, key);
  for (guint i = 0; i < MIN(n, BUILDER_MOST_TENSORS); i++) {
    g_autoptr(JsonReader) element = json_reader_element(reader, key, i);
    read(element, m);
  }
}

/* Is a path's parent among those that are open, the last module's ancestors? */
static gboolean
has_parent(const OpsFormat *f, const char *path)
{
  const char *dot = strrchr(path, '.');
  gsize length = dot != NULL ? (gsize) (dot - path) : 0;
  const char *last = g_array_index(f->modules, OpsModule, f->modules->len - 1).path;
  return length == 0 ||
         (strncmp(last, path, length) == 0 && (last[length] == '\0' || last[length] == '.'));
}

static void
read_module(JsonReader *reader, OpsFormat *f)
{
  OpsModule m = {.path = json_reader_string(reader, "path", "")};
  m.type = g_intern_string(json_reader_string(reader, "type", "Module"));
  m.block = json_reader_bool(reader, "block", FALSE);
  m.parameters = g_array_new(FALSE, TRUE, sizeof(OpsParameter));
  m.buffers = g_array_new(FALSE, TRUE, sizeof(OpsBuffer));
  read_each(reader, "parameters", &m, read_parameter);
  read_each(reader, "buffers", &m, read_buffer);
  if (f->modules->len == 0 && (*m.path != '\0' || m.block))
    json_reader_fail(reader, "path", "the first module is the model itself, \"\"");
  else if (f->modules->len > 0 && (*m.path == '\0' || !has_parent(f, m.path)))
    json_reader_fail(reader, "path", "'%.80s' is not a child of the modules before it", m.path);
  json_reader_finish(reader, NULL);
  g_array_append_val(f->modules, m);
}

static void
read_tied(JsonReader *reader, OpsFormat *f)
{
  OpsTied tied = {json_reader_required_string(reader, "name"),
                  json_reader_required_string(reader, "weight")};
  json_reader_finish(reader, NULL);
  g_array_append_val(f->tied, tied);
}

static void
read_input(JsonReader *reader, OpsFormat *f)
{
  ValueInfo value = ops_value_read(reader);
  json_reader_finish(reader, NULL);
  g_array_append_val(f->inputs, value);
}

static void
read_constant(JsonReader *reader, OpsFormat *f)
{
  const char *name = g_intern_string(json_reader_string(reader, "name", "constant"));
  ValueInfo value = ops_value_read(reader);
  json_reader_finish(reader, NULL);
  g_array_append_val(f->constants, value);
  g_array_append_val(f->constant_names, name);
}

static void
read_list(JsonReader *reader, const char *key, guint most, OpsFormat *f,
          void (*read)(JsonReader *reader, OpsFormat *f))
{
  guint n = json_reader_array_length(reader, key);
  if (n > most)
    json_reader_fail(reader, key, "there are more than %u", most);
  for (guint i = 0; i < MIN(n, most); i++) {
    g_autoptr(JsonReader) element = json_reader_element(reader, key, i);
    read(element, f);
  }
}

/* ---- functions ---- */

static void
read_functions(JsonReader *reader, JsonDocument *document, OpsFormat *f)
{
  guint n = json_reader_array_length(reader, "functions");
  gint64 which[BUILDER_MOST_BLOCKS];
  for (guint i = 0; i < n && json_document_error(document) == NULL; i++) {
    g_autoptr(JsonReader) element = json_reader_element(reader, "functions", i);
    g_autofree char *path = g_strdup_printf("functions[%u]", i);
    g_ptr_array_add(f->functions, ops_function_read(element, document, path, NULL));
  }
  int blocks = ops_numbers_read(reader, "block_functions", which, BUILDER_MOST_BLOCKS, 0,
                                MAX((gint64) n - 1, 0));
  int defined = 0;
  for (guint i = 0; i < f->modules->len; i++)
    defined += g_array_index(f->modules, OpsModule, i).block;
  if (blocks != defined || (n == 0 && blocks > 0))
    json_reader_fail(reader, "block_functions", "%d modules are blocks, and %d have a function",
                     defined, blocks);
  for (int i = 0; i < blocks; i++) {
    gint32 function = (gint32) which[i];
    g_array_append_val(f->block_functions, function);
  }
}

/* Each block is called once, with as many arguments as its function has. */
static void
check_calls(JsonReader *reader, const OpsFormat *f)
{
  g_autofree gboolean *called = g_new0(gboolean, f->block_functions->len + 1);
  guint calls = 0;
  for (guint i = 0; i < f->main->statements->len; i++) {
    const OpsStatement *s = &g_array_index(f->main->statements, OpsStatement, i);
    if (s->kind != OPS_CALL)
      continue;
    if ((guint) s->block >= f->block_functions->len || called[s->block]) {
      json_reader_fail(reader, "main", "statement %u calls block %d, which %s", i, s->block,
                       (guint) s->block >= f->block_functions->len ? "is not one of the modules"
                                                                   : "was called before");
      return;
    }
    gint32 function = g_array_index(f->block_functions, gint32, s->block);
    const OpsFunction *callee = g_ptr_array_index(f->functions, (guint) function);
    if ((guint) s->ins != callee->arguments->len)
      json_reader_fail(reader, "main", "statement %u calls block %d with %d values instead of %u",
                       i, s->block, s->ins, callee->arguments->len);
    if (s->outs != 1 + callee->others)
      json_reader_fail(reader, "main", "statement %u has %d results of block %d instead of %d", i,
                       s->outs, s->block, 1 + callee->others);
    called[s->block] = TRUE;
    calls++;
  }
  if (calls != f->block_functions->len)
    json_reader_fail(reader, "main", "%u of %u blocks are called", calls, f->block_functions->len);
}

/* Blocks call no other blocks; the step enters and leaves the model once. */
static void
check_functions(JsonReader *reader, const OpsFormat *f)
{
  int entered = 0, left = 0;
  for (guint i = 0; i < f->functions->len; i++) {
    const OpsFunction *function = g_ptr_array_index(f->functions, i);
    for (guint k = 0; k < function->statements->len; k++)
      if (g_array_index(function->statements, OpsStatement, k).kind == OPS_CALL)
        json_reader_fail(reader, "functions", "statement %u of function %u: blocks call no blocks",
                         k, i);
  }
  for (guint i = 0; i < f->main->statements->len; i++) {
    const OpsStatement *s = &g_array_index(f->main->statements, OpsStatement, i);
    gboolean root = s->module != NULL && *s->module == '\0';
    entered += root && s->kind == OPS_ENTER;
    left += root && s->kind == OPS_EXIT && entered == 1;
  }
  if (entered != 1 || left != 1)
    json_reader_fail(reader, "main", "the model is entered and left once");
}

static void
read_main(JsonReader *reader, JsonDocument *document, OpsFormat *f)
{
  GArray *arguments = g_array_new(FALSE, TRUE, sizeof(ValueInfo));
  g_array_append_vals(arguments, f->inputs->data, f->inputs->len);
  g_array_append_vals(arguments, f->constants->data, f->constants->len);
  json_reader_require(reader, "main");
  g_autoptr(JsonReader) section = json_reader_section(reader, "main");
  f->main = ops_function_read(section, document, "main", arguments);
  if (json_document_error(document) == NULL && f->main->others > 0)
    json_reader_fail(section, "others", "the step has one result, its loss");
  if (json_document_error(document) == NULL)
    check_functions(reader, f);
  if (json_document_error(document) == NULL)
    check_calls(reader, f);
}

/* ---- the file ---- */

/* Paths of modules. */
static void
read_paths(JsonReader *reader, const char *key, GArray *paths)
{
  const cJSON *list = json_reader_raw(reader, key), *item;
  cJSON_ArrayForEach(item, list)
  {
    const char *path = cJSON_GetStringValue(item);
    if (path != NULL)
      g_array_append_val(paths, path);
    else
      json_reader_fail(reader, key, "an array of paths of modules is needed");
  }
}

static void
read_figures(JsonReader *reader, OpsFormat *f)
{
  g_autoptr(JsonReader) figures = json_reader_section(reader, "figures");
  f->vocabulary = json_reader_int(figures, "vocabulary", 0, 0, BUILDER_MOST_ELEMENTS);
  f->hidden = json_reader_int(figures, "hidden", 0, 0, BUILDER_MOST_ELEMENTS);
  f->attention_width = json_reader_int(figures, "attention_width", 0, 0, (gint64) 1 << 40);
  f->embedding_parameters =
      json_reader_int(figures, "embedding_parameters", 0, 0, BUILDER_MOST_ELEMENTS);
  read_paths(figures, "embedding", f->embedding);
  read_paths(figures, "head", f->head);
  json_reader_finish(figures, NULL);
}

static void
read_purpose(JsonReader *reader, OpsFormat *f)
{
  static const char *const dtypes[] = {"fp32", "bf16", "fp16", NULL};
  static const char *const autocasts[] = {"none", "bf16", "fp16", NULL};
  json_reader_string(reader, "family", NULL);
  json_reader_string(reader, "name", NULL);
  json_reader_string(reader, "torch", NULL);
  json_reader_require(reader, "dtype");
  f->dtype = (DType) json_reader_enum(reader, "dtype", dtypes, DTYPE_FP32);
  int autocast = json_reader_enum(reader, "autocast", autocasts, 0);
  f->autocast = autocast > 0;
  f->autocast_dtype = autocast == 1 ? DTYPE_BF16 : DTYPE_FP16;
  f->batch = json_reader_required_int(reader, "batch", 1, (gint64) 1 << 20);
  f->sequence_length = json_reader_required_int(reader, "sequence_length", 1, (gint64) 1 << 31);
  f->loss_inside = json_reader_bool(reader, "loss_inside", FALSE);
  f->checkpoints_forward = json_reader_bool(reader, "checkpoints_forward", FALSE);
  read_figures(reader, f);
}

OpsFormat *
ops_format_read(JsonReader *reader, JsonDocument *document, GError **error)
{
  g_autoptr(OpsFormat) f = ops_format_new();
  read_purpose(reader, f);
  read_list(reader, "modules", MOST_MODULES, f, read_module);
  read_list(reader, "tied", MOST_TIED, f, read_tied);
  read_list(reader, "inputs", MOST_INPUTS, f, read_input);
  read_list(reader, "constants", MOST_INPUTS, f, read_constant);
  if (f->modules->len == 0)
    json_reader_fail(reader, "modules", "a network has at least one module");
  if (f->inputs->len == 0)
    json_reader_fail(reader, "inputs", "a network has at least one input");
  if (f->inputs->len + f->constants->len > MOST_INPUTS)
    json_reader_fail(reader, "constants", "there are more than %d with the inputs", MOST_INPUTS);
  if (json_document_error(document) == NULL)
    read_functions(reader, document, f);
  if (json_document_error(document) == NULL)
    read_main(reader, document, f);
  return json_reader_finish(reader, error) ? g_steal_pointer(&f) : NULL;
}
