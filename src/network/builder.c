/* builder.c - references and statements while a family writes its forward(). */
#include "network/builder.h"

#include <string.h>

#include "base/units.h"
#include "network/op_recipe.h"

#define MOST_SLOTS 30000

/* What stands for tensors that cannot exist, after an error: no formula can overflow on it, or
 * divide by zero; it has every dimension that a view may ask for, and room for one that it adds. */
static const ValueInfo one_element = {
    .dtype = DTYPE_FP32, .dims = OP_DIMS - 1, .shape = {1, 1, 1, 1, 1}, .stride = {1, 1, 1, 1, 1}};

typedef struct {
  const char *name;
  gint16 slot; /* G_MININT16: deleted */
} Local;

typedef struct {
  GArray *locals;    /* Local, in order of first appearance */
  GArray *arguments; /* gint16: references of a module call's argument tuple */
  int module;        /* the module to return to */
  int called;        /* the module whose hooks see the call, or -1 */
} Frame;

struct _Builder {
  Network *network;
  GPtrArray *frames;               /* Frame * */
  GArray *open_modules;            /* int */
  GHashTable *paths;               /* of all modules, borrowed: a Program knows modules by them */
  Function *function;              /* the one being written */
  GArray *references;              /* gint32 by slot: Python references */
  int base_module, base_parameter; /* of the block that the function is written for */
  int module;                      /* on whose behalf, absolute */
  gint64 parameter_elements;       /* so far */
  GError *error;
};

/* ---- life ---- */

static void
module_clear(gpointer data)
{
  g_free(((Module *) data)->path);
}

static void
parameter_clear(gpointer data)
{
  g_free(((Parameter *) data)->name);
}

static void
buffer_clear(gpointer data)
{
  g_free(((Buffer *) data)->name);
}

static GArray *
array_of(gsize size, GDestroyNotify clear)
{
  GArray *array = g_array_new(FALSE, TRUE, (guint) size);
  if (clear != NULL)
    g_array_set_clear_func(array, clear);
  return array;
}

Builder *
builder_new(const char *name, const NetworkShape *shape)
{
  Builder *b = g_new0(Builder, 1);
  Network *n = b->network = g_new0(Network, 1);
  n->name = g_strdup(name);
  n->shape = *shape;
  n->modules = array_of(sizeof(Module), module_clear);
  n->parameters = array_of(sizeof(Parameter), parameter_clear);
  n->buffers = array_of(sizeof(Buffer), buffer_clear);
  n->blocks = array_of(sizeof(Block), NULL);
  n->functions = g_ptr_array_new_with_free_func(network_function_free);
  n->tables = array_of(sizeof(gint16), NULL);
  n->inputs = array_of(sizeof(ValueInfo), NULL);
  n->embedding_modules = array_of(sizeof(int), NULL);
  n->head_modules = array_of(sizeof(int), NULL);
  n->construct = n->main = -1;
  for (int i = 0; i < LOSS_STEPS; i++)
    n->loss_step[i] = -1;
  n->tied_module = n->tied_weight = -1;
  b->frames = g_ptr_array_new();
  b->open_modules = array_of(sizeof(int), NULL);
  b->paths = g_hash_table_new(g_str_hash, g_str_equal);
  b->references = array_of(sizeof(gint32), NULL);
  b->module = -1;
  builder_module(b, "", "Model");
  return b;
}

/* The functions of the loss that an engine calls: the same for every family. */
static void
write_loss_steps(Builder *b)
{
  static const OpId ops[LOSS_STEPS] = {OP_DIV_SCALAR, OP_MUL_SCALAR};
  static const char *const names[LOSS_STEPS] = {"divide_loss", "scale_loss"};
  const Function *main = network_function(b->network, b->network->main);
  ValueInfo loss = g_array_index(main->values, ValueInfo, main->result);
  for (int i = 0; i < b->network->shape.loss_steps; i++) {
    Val argument;
    builder_function_begin(b, names[i], -1, 1, &loss, &argument);
    b->network->loss_step[i] = builder_function_end(b, builder_op(b, ops[i], NULL, 1, &argument));
  }
}

Network *
builder_finish(Builder *b, GError **error)
{
  if (b->error == NULL && b->network->main >= 0)
    write_loss_steps(b);
  g_assert(b->frames->len == 0 || b->error != NULL);
  Network *network = b->network;
  if (b->error != NULL) {
    g_propagate_error(error, b->error);
    g_clear_pointer(&network, network_free);
  }
  g_ptr_array_unref(b->frames);
  g_array_unref(b->open_modules);
  g_hash_table_unref(b->paths);
  g_array_unref(b->references);
  g_free(b);
  return network;
}

Network *
builder_network(Builder *b)
{
  return b->network;
}

const NetworkShape *
builder_shape(const Builder *b)
{
  return &b->network->shape;
}

void
builder_fail(Builder *b, const char *format, ...)
{
  if (b->error != NULL)
    return;
  va_list args;
  va_start(args, format);
  g_autofree char *text = g_strdup_vprintf(format, args);
  va_end(args);
  b->error = g_error_new(HIGHWATER_ERROR, HIGHWATER_ERROR_INPUT, "%s", text);
}

/* ---- modules and parameters ---- */

int
builder_module(Builder *b, const char *name, const char *type)
{
  GArray *open = b->open_modules;
  int parent = open->len > 0 ? g_array_index(open, int, open->len - 1) : -1;
  const char *above = parent >= 0 ? network_module(b->network, parent)->path : "";
  Module module = {
      .path = *above != '\0' ? g_strconcat(above, ".", name, NULL) : g_strdup(name),
      .type = type,
      .parent = parent,
      .first_parameter = (int) b->network->parameters->len,
      .block = parent >= 0 ? network_module(b->network, parent)->block : -1,
  };
  int index = (int) b->network->modules->len;
  if (!g_hash_table_add(b->paths, module.path))
    builder_fail(b, "two modules are called '%s'", module.path);
  g_array_append_val(b->network->modules, module);
  g_array_append_val(open, index);
  return index;
}

void
builder_module_end(Builder *b)
{
  g_array_set_size(b->open_modules, b->open_modules->len - 1);
}

/* Product of sizes; FALSE when it is not a tensor that can exist. */
static gboolean
count_elements(int dims, const gint64 *shape, gint64 *elements)
{
  *elements = 1;
  for (int i = 0; i < dims; i++)
    if (!checked_multiply(*elements, shape[i], elements) || *elements > BUILDER_MOST_ELEMENTS)
      return FALSE;
  return TRUE;
}

/* "1024 x 4096".  Caller frees. */
static char *
sizes_text(int dims, const gint64 *shape)
{
  GString *text = g_string_new(NULL);
  for (int i = 0; i < dims; i++)
    g_string_append_printf(text, "%s%" G_GINT64_FORMAT, i > 0 ? " x " : "", shape[i]);
  return g_string_free(text, FALSE);
}

/* Counts a parameter's elements.  One that cannot exist is an error, and has one element from then
 * on. */
static void
count_parameter(Builder *b, Parameter *p)
{
  if (!count_elements(p->dims, p->shape, &p->elements)) {
    g_autofree char *sizes = sizes_text(p->dims, p->shape);
    builder_fail(b, "%s: %s elements are too many for a tensor", p->name, sizes);
    for (int i = 0; i < p->dims; i++)
      p->shape[i] = 1;
    p->elements = 1;
  }
  b->parameter_elements += p->elements;
  if (b->parameter_elements > BUILDER_MOST_PARAMETERS)
    builder_fail(b, "%s: the network has more than 2^50 parameters", p->name);
  if (b->network->parameters->len >= BUILDER_MOST_TENSORS)
    builder_fail(b, "%s: the network has more than %d parameter tensors", p->name,
                 BUILDER_MOST_TENSORS);
}

/* The value, or after an error one that can exist.  Activations grow with the batch, so the message
 * names it. */
static ValueInfo
checked_value(Builder *b, const char *what, const ValueInfo *info)
{
  gint64 elements;
  const NetworkShape *shape = &b->network->shape;
  if (b->error == NULL && count_elements(info->dims, info->shape, &elements))
    return *info;
  g_autofree char *sizes = sizes_text(info->dims, info->shape);
  builder_fail(b,
               "%s: %s elements are too many for a tensor, with batch.micro_batch %" G_GINT64_FORMAT
               " and batch.sequence_length %" G_GINT64_FORMAT,
               what, sizes, shape->micro_batch, shape->sequence_length);
  return one_element;
}

int
builder_parameter(Builder *b, const char *name, int dims, ...)
{
  int module = g_array_index(b->open_modules, int, b->open_modules->len - 1);
  Module *owner = &g_array_index(b->network->modules, Module, module);
  Parameter p = {
      .name = *owner->path != '\0' ? g_strconcat(owner->path, ".", name, NULL) : g_strdup(name),
      .module = module,
      .dims = dims,
      .trainable = TRUE,
  };
  va_list args;
  va_start(args, dims);
  for (int i = 0; i < dims; i++)
    p.shape[i] = va_arg(args, gint64);
  va_end(args);
  count_parameter(b, &p);
  if (owner->parameter_count == 0)
    owner->first_parameter = (int) b->network->parameters->len;
  owner->parameter_count++;
  g_array_append_val(b->network->parameters, p);
  return (int) b->network->parameters->len - 1;
}

void
builder_buffer(Builder *b, const char *name, gint64 bytes)
{
  int module = g_array_index(b->open_modules, int, b->open_modules->len - 1);
  Buffer buffer = {.name = g_strdup(name), .module = module, .bytes = bytes};
  g_array_append_val(b->network->buffers, buffer);
}

void
builder_block_begin(Builder *b, const char *type)
{
  int index = (int) b->network->blocks->len;
  g_autofree char *name = g_strdup_printf("%d", index);
  int module = builder_module(b, name, type);
  g_array_index(b->network->modules, Module, module).block = index;
  Block block = {
      .module = module, .first_parameter = (int) b->network->parameters->len, .function = -1};
  g_array_append_val(b->network->blocks, block);
}

void
builder_block_end(Builder *b)
{
  Block *block = &g_array_index(b->network->blocks, Block, b->network->blocks->len - 1);
  block->modules = (int) b->network->modules->len - block->module;
  block->parameter_count = (int) b->network->parameters->len - block->first_parameter;
  builder_module_end(b);
}

int
builder_in_module(Builder *b, int module)
{
  int before = b->module;
  b->module = module;
  return before;
}

/* ---- slots and references ---- */

static gint16
new_slot(Builder *b, const ValueInfo *info)
{
  guint slot = b->function->values->len;
  guint8 depth = (guint8) MIN(b->frames->len, 255);
  gint32 one = 1;
  ValueInfo checked = checked_value(b, b->function->name, info);
  if (slot >= MOST_SLOTS)
    builder_fail(b, "%s: more than %d values", b->function->name, MOST_SLOTS);
  g_array_append_val(b->function->values, checked);
  g_array_append_val(b->function->depths, depth);
  g_array_append_val(b->references, one);
  return (gint16) MIN(slot, MOST_SLOTS);
}

static void
add_statement(Builder *b, const Statement *statement)
{
  g_array_append_val(b->function->statements, *statement);
}

static void
reference(Builder *b, gint16 slot)
{
  if (slot >= 0)
    g_array_index(b->references, gint32, slot)++;
}

static void
unreference(Builder *b, gint16 slot)
{
  if (slot < 0)
    return;
  gint32 *count = &g_array_index(b->references, gint32, slot);
  g_assert(*count > 0 || b->error != NULL);
  if (--*count == 0)
    add_statement(b, &(Statement){.kind = STATEMENT_DROP, .a = slot});
}

Val
builder_share(Builder *b, Val v)
{
  if (v.temporary)
    return v;
  reference(b, v.slot);
  return (Val){v.slot, TRUE};
}

void
builder_discard(Builder *b, Val v)
{
  if (v.temporary)
    unreference(b, v.slot);
}

Val
builder_weight(Builder *b, int parameter)
{
  int relative =
      b->error == NULL ? parameter - b->base_parameter : 0; /* after an error any will do */
  return (Val){SLOT_OF_PARAMETER(relative), FALSE};
}

/* A parameter's value as ops see it. */
static ValueInfo
weight_info(const Builder *b, gint16 slot)
{
  const Parameter *p = network_parameter(b->network, PARAMETER_OF_SLOT(slot) + b->base_parameter);
  ValueInfo info = {
      .dtype = (guint8) b->network->shape.precision.weights,
      .dims = (guint8) p->dims,
      .requires_grad = (guint8) p->trainable,
  };
  memcpy(info.shape, p->shape, sizeof(p->shape));
  value_set_contiguous(&info);
  return info;
}

static ValueInfo
info_of(const Builder *b, gint16 slot)
{
  return slot < 0 ? weight_info(b, slot) : g_array_index(b->function->values, ValueInfo, slot);
}

ValueInfo
builder_info(const Builder *b, Val v)
{
  return info_of(b, v.slot);
}

/* ---- functions ---- */

void
builder_function_begin(Builder *b, const char *name, int block, int n, const ValueInfo *infos,
                       Val *args)
{
  Function *f = b->function = g_new0(Function, 1);
  f->name = g_strdup(name);
  f->values = array_of(sizeof(ValueInfo), NULL);
  f->depths = array_of(sizeof(guint8), NULL);
  f->statements = array_of(sizeof(Statement), NULL);
  f->ops = array_of(sizeof(Op), NULL);
  f->steps = array_of(sizeof(OpStep), NULL);
  f->kernels = array_of(sizeof(OpKernel), NULL);
  f->arguments = n;
  f->result = -1;
  b->base_module = block >= 0 ? network_block(b->network, block)->module : 0;
  b->base_parameter = block >= 0 ? network_block(b->network, block)->first_parameter : 0;
  b->module = b->base_module;
  g_array_set_size(b->references, 0);
  for (int i = 0; i < n; i++)
    args[i] =
        (Val){new_slot(b, &infos[i]), FALSE}; /* the caller's references: never dropped here */
}

int
builder_function_end(Builder *b, Val result)
{
  b->function->result = result.slot;
  g_ptr_array_add(b->network->functions, b->function);
  b->function = NULL;
  return (int) b->network->functions->len - 1;
}

int
builder_function_end_keeping(Builder *b, int n, const Val *kept)
{
  for (int i = 0; i < n; i++)
    g_array_append_val(b->network->tables, kept[i].slot);
  return builder_function_end(b, NO_VAL);
}

/* ---- ops ---- */

/* Which tensors the node saves, given which inputs want a gradient. */
static void
choose_saved(OpCase *c)
{
  for (int i = 0; i < c->info->save_count; i++) {
    OpSave save = c->info->saves[i];
    gboolean exists =
        save.tensor >= BUFFER_OUT ? save.tensor - BUFFER_OUT < c->outs : save.tensor < c->ins;
    if (exists && (save.wanted_by < 0 || recipe_wants(c, save.wanted_by)))
      c->saved[c->saves++] = (guint8) save.tensor;
  }
}

/* Writes the recipes of one call into the function; fills op. */
static void
write_recipes(OpCase *c, Op *op)
{
  op->forward = (gint32) c->steps->len;
  c->info->forward(c);
  op->backward = op->validate = op->end = (gint32) c->steps->len;
  gboolean wanted = FALSE;
  for (int i = 0; i < c->ins; i++)
    wanted |= recipe_wants(c, i);
  op->node = wanted && c->info->backward != NULL;
  if (!op->node)
    return;
  choose_saved(c);
  op->saves = (guint8) c->saves;
  memcpy(op->saved, c->saved, sizeof(c->saved));
  memset(c->temp_used, 0, sizeof(c->temp_used));
  c->backward = TRUE;
  c->info->backward(c);
  op->validate = (gint32) c->steps->len;
  recipe_validate(c);
  op->end = (gint32) c->steps->len;
}

/* The call's shapes; FALSE after an error, this one's or an earlier one's. */
static gboolean
fill_case(Builder *b, OpCase *c, const OpAttributes *at, const Val *in)
{
  if (b->error != NULL)
    return FALSE;
  if (at != NULL)
    c->at = *at;
  for (int i = 0; i < c->ins; i++)
    c->in[i] = info_of(b, in[i].slot);
  c->info->shape(c);
  for (int i = 0; i < c->outs; i++)
    c->out[i] = checked_value(b, c->info->name, &c->out[i]);
  return b->error == NULL;
}

/* Outputs of a call: the caller's, or nobody's but the node's. */
static void
hand_out(Builder *b, const OpCase *c, const Op *op, int outs, Val *out)
{
  for (int i = 0; i < c->outs; i++) {
    if (i < outs)
      out[i] = (Val){op->out[i], TRUE};
    else
      unreference(b, op->out[i]);
  }
}

void
builder_op_multi(Builder *b, OpId op_id, const OpAttributes *at, int ins, const Val *in, int outs,
                 Val *out)
{
  OpCase c = {.info = op_info(op_id),
              .ins = ins,
              .device = b->network->shape.device,
              .steps = b->function->steps,
              .kernels = b->function->kernels};
  Op op = {.info = c.info, .module = b->module - b->base_module, .ins = (guint8) ins};
  if (fill_case(b, &c, at, in))
    write_recipes(&c, &op);
  else
    c.outs = outs; /* values to go on with */
  op.outs = (guint8) c.outs;
  for (int i = 0; i < ins; i++)
    op.in[i] = in[i].slot;
  for (int i = 0; i < c.outs; i++) {
    c.out[i].requires_grad = op.node;
    op.out[i] = new_slot(b, &c.out[i]);
  }
  gint32 index = (gint32) b->function->ops->len;
  g_array_append_val(b->function->ops, op);
  add_statement(b, &(Statement){.kind = STATEMENT_OP, .a = index});
  hand_out(b, &c, &op, outs, out);
  for (int i = 0; i < ins; i++)
    builder_discard(b, in[i]);
}

Val
builder_op(Builder *b, OpId op, const OpAttributes *at, int ins, const Val *in)
{
  Val out;
  builder_op_multi(b, op, at, ins, in, 1, &out);
  return out;
}

/* ---- Python frames ---- */

static Frame *
top_frame(Builder *b)
{
  g_assert(b->frames->len > 0);
  return g_ptr_array_index(b->frames, b->frames->len - 1);
}

static Frame *
push_frame(Builder *b)
{
  Frame *frame = g_new0(Frame, 1);
  frame->locals = array_of(sizeof(Local), NULL);
  frame->arguments = array_of(sizeof(gint16), NULL);
  frame->module = b->module;
  frame->called = -1;
  g_ptr_array_add(b->frames, frame);
  return frame;
}

void
builder_call(Builder *b, int n, const Val *args)
{
  Frame *frame = push_frame(b);
  for (int i = 0; i < n; i++) {
    Val held = builder_share(b, args[i]);
    g_array_append_val(frame->arguments, held.slot);
  }
}

void
builder_enter(Builder *b, int n, const char *const *names, const Val *args)
{
  Frame *frame = push_frame(b);
  for (int i = 0; i < n; i++) {
    Local local = {names[i], builder_share(b, args[i]).slot};
    g_array_append_val(frame->locals, local);
  }
}

/* The local of that name in the innermost frame, made (deleted) when it is new. */
static Local *
find_local(Frame *frame, const char *name)
{
  for (guint i = 0; i < frame->locals->len; i++) {
    Local *local = &g_array_index(frame->locals, Local, i);
    if (strcmp(local->name, name) == 0)
      return local;
  }
  Local local = {name, G_MININT16};
  g_array_append_val(frame->locals, local);
  return &g_array_index(frame->locals, Local, frame->locals->len - 1);
}

Val
let(Builder *b, const char *name, Val v)
{
  Local *local = find_local(top_frame(b), name);
  gint16 old = local->slot;
  local->slot = builder_share(b, v).slot;
  unreference(b, old);
  return (Val){local->slot, FALSE};
}

void
let_pair(Builder *b, const char *const names[2], Val values[2])
{
  find_local(top_frame(b), names[0]);
  values[1] = let(b, names[1], values[1]);
  values[0] = let(b, names[0], values[0]);
}

void
let_triple(Builder *b, const char *const names[3], Val values[3])
{
  find_local(top_frame(b), names[0]);
  find_local(top_frame(b), names[1]);
  for (int i = 2; i >= 0; i--)
    values[i] = let(b, names[i], values[i]);
}

void
unlet(Builder *b, const char *name)
{
  Local *local = find_local(top_frame(b), name);
  gint16 old = local->slot;
  local->slot = G_MININT16;
  unreference(b, old);
}

void
builder_leave_with(Builder *b, int n, Val *results)
{
  Frame *frame = top_frame(b);
  for (int i = 0; i < n; i++)
    results[i] = builder_share(b, results[i]);
  for (guint i = 0; i < frame->locals->len; i++)
    unreference(b, g_array_index(frame->locals, Local, i).slot);
  if (frame->called >= 0)
    builder_module_exit(b, frame->called, results[0]);
  g_ptr_array_set_size(b->frames, (int) b->frames->len - 1);
  for (guint i = 0; i < frame->arguments->len; i++)
    unreference(b, g_array_index(frame->arguments, gint16, i));
  b->module = frame->module;
  g_array_unref(frame->locals);
  g_array_unref(frame->arguments);
  g_free(frame);
}

Val
builder_leave(Builder *b, Val result)
{
  builder_leave_with(b, 1, &result);
  return result;
}

/* ---- module calls that hooks see ---- */

void
builder_module_enter(Builder *b, int module, int n, Val *args)
{
  Statement s = {
      .kind = STATEMENT_ENTER, .a = module - b->base_module, .ins = (guint8) n, .outs = (guint8) n};
  g_assert(n <= STATEMENT_SLOTS);
  for (int i = 0; i < n; i++) {
    ValueInfo info = info_of(b, args[i].slot);
    s.in[i] = args[i].slot;
    s.out[i] = new_slot(b, &info);
  }
  add_statement(b, &s);
  for (int i = 0; i < n; i++) {
    builder_discard(b, args[i]);
    args[i] = (Val){s.out[i], TRUE};
  }
}

void
builder_module_exit(Builder *b, int module, Val output)
{
  add_statement(
      b, &(Statement){
             .kind = STATEMENT_EXIT, .a = module - b->base_module, .ins = 1, .in = {output.slot}});
}

void
builder_module_call(Builder *b, int module, int n, Val *args)
{
  builder_call(b, n, args);
  Frame *frame = top_frame(b);
  frame->called = module;
  for (int i = 0; i < n; i++)
    args[i].temporary = FALSE;
  builder_module_enter(b, module, n, args);
  for (int i = 0; i < n; i++) {
    g_array_append_val(frame->arguments, args[i].slot);
    args[i].temporary = FALSE;
  }
  b->module = module;
}

void
builder_module_call_by_keyword(Builder *b, int module, Val *arg)
{
  builder_call(b, 1, arg);
  arg->temporary = FALSE;
  top_frame(b)->called = module;
  builder_module_enter(b, module, 0, NULL);
  b->module = module;
}

Val
builder_block_call(Builder *b, int block, int function, int n, const Val *args)
{
  Block *called = &g_array_index(b->network->blocks, Block, block);
  const Function *f = network_function(b->network, function);
  Statement s = {.kind = STATEMENT_CALL, .a = function, .b = block, .ins = (guint8) n, .outs = 1};
  g_assert(n == f->arguments && n <= STATEMENT_SLOTS);
  called->function = function;
  for (int i = 0; i < n; i++)
    s.in[i] = args[i].slot;
  s.out[0] = new_slot(b, &g_array_index(f->values, ValueInfo, f->result));
  add_statement(b, &s);
  return (Val){s.out[0], TRUE};
}

void
builder_forward_end(Builder *b)
{
  add_statement(b, &(Statement){.kind = STATEMENT_FORWARD_END});
}

void
builder_autocast_end(Builder *b)
{
  add_statement(b, &(Statement){.kind = STATEMENT_AUTOCAST_END});
}
