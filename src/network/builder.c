/* builder.c - the network while a family writes it: modules, parameters, values, functions. */
#include "network/builder.h"

#include <string.h>

#include "base/units.h"
#include "network/builder_private.h"
#include "network/compiled.h"
#include "network/strides.h"

#define MOST_SLOTS 30000

/* What stands for tensors that cannot exist, after an error: no formula can overflow on it, or
 * divide by zero; it has every dimension that a view may ask for, and room for one that it adds. */
static const ValueInfo one_element = {
    .dtype = DTYPE_FP32, .dims = OP_DIMS - 1, .shape = {1, 1, 1, 1, 1}, .stride = {1, 1, 1, 1, 1}};

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

GArray *
builder_array(gsize size, GDestroyNotify clear)
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
  n->modules = builder_array(sizeof(Module), module_clear);
  n->parameters = builder_array(sizeof(Parameter), parameter_clear);
  n->buffers = builder_array(sizeof(Buffer), buffer_clear);
  n->blocks = builder_array(sizeof(Block), NULL);
  n->functions = g_ptr_array_new_with_free_func(network_function_free);
  n->compiled = g_ptr_array_new_with_free_func(compiled_block_free);
  n->tables = builder_array(sizeof(gint16), NULL);
  n->inputs = builder_array(sizeof(ValueInfo), NULL);
  n->embedding_modules = builder_array(sizeof(int), NULL);
  n->head_modules = builder_array(sizeof(int), NULL);
  n->construct = n->main = n->after_backward = n->before_step = n->items = n->scale_loss = -1;
  for (int i = 0; i < LOSS_STEPS; i++)
    n->loss_step[i] = -1;
  n->ties = builder_array(sizeof(Tie), NULL);
  b->outer = builder_array(sizeof(Writing), NULL);
  b->written = builder_array(sizeof(WrittenBlock), NULL);
  b->open_modules = builder_array(sizeof(int), NULL);
  b->paths = g_hash_table_new(g_str_hash, g_str_equal);
  b->now.module = -1;
  builder_module(b, "", "Model");
  return b;
}

/* The functions of the loss that an engine calls: the same for every family.  The Trainer has it
 * not divided (scale_wrt_gas). */
static void
write_loss_steps(Builder *b)
{
  static const OpId ops[LOSS_STEPS] = {OP_DIV_SCALAR, OP_MUL_SCALAR};
  static const char *const names[LOSS_STEPS] = {"divide_loss", "scale_loss"};
  const Function *main = network_function(b->network, b->network->main);
  const PlanSpec *plan = b->network->shape.plan;
  ValueInfo loss = g_array_index(main->values, ValueInfo, main->result);
  for (int i = b->network->shape.trainer ? 1 : 0; i < b->network->shape.loss_steps; i++) {
    Val argument;
    builder_function_begin(b, names[i], -1, 1, &loss, &argument);
    OpAttributes at = {.key = plan != NULL ? "value" : NULL};
    if (plan != NULL)
      at.number =
          i == 0 ? plan->accumulation.steps : network_loss_scale(plan->precision.parameters);
    b->network->loss_step[i] = builder_function_end(b, builder_op(b, ops[i], &at, 1, &argument));
  }
}

/* GradScaler.scale(); ShardedGradScaler gives back the loss's own dtype. */
static void
write_loss_scaling(Builder *b)
{
  const NetworkShape *shape = &b->network->shape;
  const Function *main = network_function(b->network, b->network->main);
  ValueInfo infos[2] = {g_array_index(main->values, ValueInfo, main->result), {0}};
  infos[1] = infos[0];
  infos[1].dtype = DTYPE_FP32;
  infos[1].requires_grad = FALSE;
  Val arguments[2];
  builder_function_begin(b, "scale_loss", -1, 2, infos, arguments);
  Val scaled = builder_op(b, OP_MUL, NULL, 2, arguments);
  if (shape->keeps_loss_dtype && infos[0].dtype != DTYPE_FP32) {
    OpAttributes at = {.result = infos[0]};
    scaled = builder_op(b, OP_TO_COPY, &at, 1, &scaled);
  }
  b->network->scale_loss = builder_function_end(b, scaled);
}

Network *
builder_finish(Builder *b, GError **error)
{
  if (b->error == NULL && b->network->main >= 0)
    write_loss_steps(b);
  if (b->error == NULL && b->network->main >= 0 && b->network->shape.scales_loss)
    write_loss_scaling(b);
  Network *network = b->network;
  if (b->error != NULL) {
    g_propagate_error(error, b->error);
    g_clear_pointer(&network, network_free);
  }
  g_array_unref(b->outer);
  g_array_unref(b->written);
  g_array_unref(b->open_modules);
  g_hash_table_unref(b->paths);
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

gboolean
builder_in_block(const Builder *b)
{
  int open = g_array_index(b->open_modules, int, b->open_modules->len - 1);
  return network_module(b->network, open)->block >= 0;
}

char *
builder_path(const Builder *b, const char *name)
{
  GArray *open = b->open_modules;
  const char *above = "";
  if (open->len > 0)
    above = network_module(b->network, g_array_index(open, int, open->len - 1))->path;
  return *above != '\0' ? g_strconcat(above, ".", name, NULL) : g_strdup(name);
}

int
builder_module(Builder *b, const char *name, const char *type)
{
  GArray *open = b->open_modules;
  int parent = open->len > 0 ? g_array_index(open, int, open->len - 1) : -1;
  Module module = {
      .path = builder_path(b, name),
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
ValueInfo
builder_checked_value(Builder *b, const char *what, const ValueInfo *info)
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

/* With adapters and nothing said about who trains, those do (PEFT freezes the rest). */
static gboolean
is_trainable(const Builder *b, const char *name)
{
  const NetworkShape *shape = &b->network->shape;
  if (shape->trainable != NULL)
    return name_patterns_choose(shape->trainable, name);
  return shape->lora == NULL || b->adapter;
}

void
builder_adapter(Builder *b, gboolean begins)
{
  b->adapter = begins;
}

int
builder_parameter(Builder *b, const char *name, int dims, ...)
{
  int module = g_array_index(b->open_modules, int, b->open_modules->len - 1);
  Module *owner = &g_array_index(b->network->modules, Module, module);
  Parameter p = {
      .shard_of = -1,
      .name = *owner->path != '\0' ? g_strconcat(owner->path, ".", name, NULL) : g_strdup(name),
      .module = module,
      .dims = dims,
      .adapter = b->adapter,
  };
  p.trainable = p.requires_grad = is_trainable(b, p.name);
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
builder_freeze(Builder *b, int parameter)
{
  Parameter *p = &g_array_index(b->network->parameters, Parameter, parameter);
  p->trainable = p->requires_grad = FALSE;
}

void
builder_train_like(Builder *b, int parameter, int other)
{
  Parameter *p = &g_array_index(b->network->parameters, Parameter, parameter);
  p->trainable = p->requires_grad = network_parameter(b->network, other)->trainable;
}

void
builder_tie_shards(Builder *b, int parameter, int other)
{
  g_array_index(b->network->parameters, Parameter, parameter).shard_of = other;
}

void
builder_tie(Builder *b, int parameter)
{
  Tie tie = {g_array_index(b->open_modules, int, b->open_modules->len - 1), parameter};
  g_array_append_val(b->network->ties, tie);
}

static void
add_buffer(Builder *b, const char *name, Buffer buffer)
{
  buffer.module = g_array_index(b->open_modules, int, b->open_modules->len - 1);
  buffer.name = g_strdup(name);
  g_array_append_val(b->network->buffers, buffer);
}

void
builder_buffer(Builder *b, const char *name, DType dtype, gint64 elements)
{
  add_buffer(b, name, (Buffer){.elements = elements, .dtype = dtype});
}

void
builder_attribute(Builder *b, const char *name, DType dtype, gint64 elements)
{
  add_buffer(b, name, (Buffer){.elements = elements, .dtype = dtype, .attribute = TRUE});
}

/* How many blocks the open module has already. */
static int
blocks_in_list(const Builder *b)
{
  int open = g_array_index(b->open_modules, int, b->open_modules->len - 1), count = 0;
  for (guint i = 0; i < b->network->blocks->len; i++)
    count += network_module(b->network, network_block(b->network, (int) i)->module)->parent == open;
  return count;
}

void
builder_block_begin(Builder *b, const char *type)
{
  g_autofree char *name = g_strdup_printf("%d", blocks_in_list(b));
  builder_block_begin_named(b, name, type);
}

void
builder_block_begin_named(Builder *b, const char *name, const char *type)
{
  int index = (int) b->network->blocks->len;
  int module = builder_module(b, name, type);
  g_array_index(b->network->modules, Module, module).block = index;
  Block block = {.module = module,
                 .first_parameter = (int) b->network->parameters->len,
                 .function = -1,
                 .compiled = -1};
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
  int before = b->now.module;
  b->now.module = module;
  return before;
}

/* ---- slots and references ---- */

guint8
builder_depth(const Builder *b, gboolean temporary)
{
  return (guint8) MIN(2 * b->now.frames->len + (temporary ? 1 : 0), 255);
}

void
builder_held_at(Builder *b, gint16 slot, guint8 depth)
{
  if (slot < 0)
    return;
  guint8 *held = &g_array_index(b->now.function->depths, guint8, slot);
  *held = MIN(*held, depth);
}

gint16
builder_new_slot(Builder *b, const ValueInfo *info)
{
  guint slot = b->now.function->values->len;
  guint8 depth = builder_depth(b, TRUE);
  gint32 one = 1;
  ValueInfo checked = builder_checked_value(b, b->now.function->name, info);
  if (slot >= MOST_SLOTS)
    builder_fail(b, "%s: more than %d values", b->now.function->name, MOST_SLOTS);
  g_array_append_val(b->now.function->values, checked);
  g_array_append_val(b->now.function->depths, depth);
  g_array_append_val(b->now.references, one);
  return (gint16) MIN(slot, MOST_SLOTS);
}

void
builder_add_statement(Builder *b, const Statement *statement)
{
  g_array_append_val(b->now.function->statements, *statement);
}

void
builder_reference(Builder *b, gint16 slot)
{
  if (slot >= 0)
    g_array_index(b->now.references, gint32, slot)++;
}

void
builder_unreference(Builder *b, gint16 slot)
{
  if (slot < 0)
    return;
  gint32 *count = &g_array_index(b->now.references, gint32, slot);
  g_assert(*count > 0 || b->error != NULL);
  if (--*count == 0)
    builder_add_statement(b, &(Statement){.kind = STATEMENT_DROP, .a = slot});
}

Val
builder_share(Builder *b, Val v)
{
  if (v.temporary)
    return v;
  builder_reference(b, v.slot);
  return (Val){v.slot, TRUE};
}

void
builder_discard(Builder *b, Val v)
{
  if (v.temporary)
    builder_unreference(b, v.slot);
}

Val
builder_weight(Builder *b, int parameter)
{
  int relative =
      b->error == NULL ? parameter - b->now.base_parameter : 0; /* after an error any will do */
  return (Val){SLOT_OF_PARAMETER(relative), FALSE};
}

/* A parameter's value as ops see it. */
static ValueInfo
weight_info(const Builder *b, gint16 slot)
{
  const Parameter *p =
      network_parameter(b->network, PARAMETER_OF_SLOT(slot) + b->now.base_parameter);
  ValueInfo info = {
      .dtype = (guint8) b->network->shape.precision.weights,
      .dims = (guint8) p->dims,
      .requires_grad = (guint8) p->requires_grad,
  };
  memcpy(info.shape, p->shape, sizeof(p->shape));
  value_set_contiguous(&info);
  return info;
}

ValueInfo
builder_info_of(const Builder *b, gint16 slot)
{
  return slot < 0 ? weight_info(b, slot) : g_array_index(b->now.function->values, ValueInfo, slot);
}

ValueInfo
builder_info(const Builder *b, Val v)
{
  return builder_info_of(b, v.slot);
}

/* ---- functions ---- */

/* All modules are defined: views of a flat tensor require a gradient if one parameter of it does.
 */
static void
share_requires_grad(Network *n)
{
  g_autofree int *tensor = g_new(int, n->parameters->len);
  g_autoptr(GHashTable) required = g_hash_table_new(NULL, NULL);
  n->shape.flat_tensors(n->shape.plan, n, tensor);
  for (guint i = 0; i < n->parameters->len; i++)
    if (network_parameter(n, (int) i)->trainable)
      g_hash_table_add(required, GINT_TO_POINTER(tensor[i]));
  for (guint i = 0; i < n->parameters->len; i++)
    g_array_index(n->parameters, Parameter, i).requires_grad =
        g_hash_table_contains(required, GINT_TO_POINTER(tensor[i]));
}

gboolean
builder_dispatches(const Builder *b, int block)
{
  const CheckpointSpec *by_op = b->network->shape.dispatched;
  return block >= 0 && by_op != NULL &&
         checkpoint_spec_of_block(by_op, block) == CHECKPOINT_SELECTIVE_OP;
}

gboolean
builder_is_dispatched(const Builder *b)
{
  return b->now.dispatched;
}

void
builder_function_begin(Builder *b, const char *name, int block, int n, const ValueInfo *infos,
                       Val *args)
{
  if (b->network->functions->len == 0 && b->outer->len == 0 &&
      b->network->shape.flat_tensors != NULL)
    share_requires_grad(b->network);
  g_array_append_val(b->outer, b->now);
  Function *f = b->now.function = g_new0(Function, 1);
  b->now.frames = g_ptr_array_new();
  b->now.references = builder_array(sizeof(gint32), NULL);
  f->name = g_strdup(name);
  f->values = builder_array(sizeof(ValueInfo), NULL);
  f->depths = builder_array(sizeof(guint8), NULL);
  f->statements = builder_array(sizeof(Statement), NULL);
  f->ops = builder_array(sizeof(Op), NULL);
  f->steps = builder_array(sizeof(OpStep), NULL);
  f->kernels = builder_array(sizeof(OpKernel), NULL);
  f->arguments = n;
  f->result = -1;
  b->now.base_module = block >= 0 ? network_block(b->network, block)->module : 0;
  b->now.base_parameter = block >= 0 ? network_block(b->network, block)->first_parameter : 0;
  b->now.module = b->now.base_module;
  b->now.dispatched = builder_dispatches(b, block);
  b->now.beside = NO_VAL;
  for (int i = 0; i < n; i++)
    args[i] = (Val){builder_new_slot(b, &infos[i]),
                    FALSE}; /* the caller's references: never dropped here */
}

int
builder_function_end(Builder *b, Val result)
{
  b->now.function->result = result.slot;
  g_assert(b->now.frames->len == 0 || b->error != NULL);
  g_ptr_array_add(b->network->functions, b->now.function);
  g_ptr_array_unref(b->now.frames);
  g_array_unref(b->now.references);
  b->now = g_array_index(b->outer, Writing, b->outer->len - 1);
  g_array_set_size(b->outer, b->outer->len - 1);
  return (int) b->network->functions->len - 1;
}

int
builder_function_end_keeping(Builder *b, int n, const Val *kept)
{
  for (int i = 0; i < n; i++)
    g_array_append_val(b->network->tables, kept[i].slot);
  return builder_function_end(b, NO_VAL);
}
