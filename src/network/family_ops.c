/* family_ops.c - a network that tools/export_network.py has recorded from any nn.Module: its
 * modules are defined and its functions written as they were seen. */
#include <string.h>

#include "network/family.h"
#include "network/layers.h"
#include "network/ops_format.h"

typedef struct {
  const OpsFormat *format;
  Builder *b;
  GHashTable *modules;    /* path -> index */
  GHashTable *parameters; /* full name -> index */
  int tied_module;        /* has the weight's other name, or -1 */
  int tied_weight, split_weight;
} Ops;

/* A function while it is written. */
typedef struct {
  const Ops *ops;
  const OpsFunction *function;
  const char *base; /* path of its block, "" */
  Val *values;      /* by number */
  int module;       /* the innermost one that was entered, or -1 */
  gboolean failed;
} Playing;

/* ---- modules ---- */

static void
define_parameters(const Ops *ops, const OpsModule *m)
{
  Network *n = builder_network(ops->b);
  for (guint i = 0; i < m->parameters->len; i++) {
    const OpsParameter *p = &g_array_index(m->parameters, OpsParameter, i);
    g_autofree char *path = builder_path(ops->b, p->name);
    int index = builder_parameter(ops->b, p->name, p->dims, p->shape[0], p->shape[1], p->shape[2],
                                  p->shape[3]);
    Parameter *made = &g_array_index(n->parameters, Parameter, index);
    if (n->shape.trainable == NULL)
      made->trainable = made->requires_grad = p->trainable;
    if (!g_hash_table_insert(ops->parameters, g_steal_pointer(&path), GINT_TO_POINTER(index)))
      builder_fail(ops->b, "two parameters are called '%s'", made->name);
  }
  for (guint i = 0; i < m->buffers->len; i++) {
    const OpsBuffer *buffer = &g_array_index(m->buffers, OpsBuffer, i);
    g_autofree char *path = builder_path(ops->b, buffer->name);
    builder_buffer(ops->b, path, buffer->bytes);
  }
}

/* The last part of a module's path. */
static const char *
own_name(const char *path)
{
  const char *dot = strrchr(path, '.');
  return dot != NULL ? dot + 1 : path;
}

static gboolean
is_inside(const char *path, const char *parent)
{
  gsize length = strlen(parent);
  return length == 0 || (strncmp(path, parent, length) == 0 && path[length] == '.');
}

/* Closes modules until the innermost open one is the path's parent. */
static void
close_until(const Ops *ops, GPtrArray *open, const char *path)
{
  while (open->len > 0) {
    const OpsModule *m = g_ptr_array_index(open, open->len - 1);
    if (path != NULL && is_inside(path, m->path))
      return;
    if (m->block)
      builder_block_end(ops->b);
    else
      builder_module_end(ops->b);
    g_ptr_array_set_size(open, (int) open->len - 1);
  }
}

/* The file's last tie: an output layer's; NULL: none.  Others are the same parameter. */
static const OpsTied *
tie_of(const Ops *ops)
{
  const GArray *tied = ops->format->tied;
  return tied->len > 0 ? &g_array_index(tied, OpsTied, tied->len - 1) : NULL;
}

/* A module that is defined has the other name of a tied weight: where the plan's strategy makes two
 * of those, a parameter of its own. */
static void
define_tied(Ops *ops, int module, const char *path)
{
  Network *n = builder_network(ops->b);
  const OpsTied *tied = tie_of(ops);
  gpointer weight;
  if (tied == NULL || !is_inside(tied->name, path) ||
      strcmp(own_name(tied->name), tied->name + (*path == '\0' ? 0 : strlen(path) + 1)) != 0)
    return;
  if (!g_hash_table_lookup_extended(ops->parameters, tied->weight, NULL, &weight)) {
    builder_fail(ops->b, "key 'tied': there is no parameter '%.120s' before '%.120s'", tied->weight,
                 tied->name);
    return;
  }
  ops->tied_module = module;
  ops->tied_weight = GPOINTER_TO_INT(weight);
  n->split = n->shape.splits_tied;
  if (!n->split) {
    n->tied_module = module;
    n->tied_weight = ops->tied_weight;
    return;
  }
  const Parameter *first = network_parameter(n, ops->tied_weight);
  gint64 shape[4];
  memcpy(shape, first->shape, sizeof(shape));
  ops->split_weight = builder_parameter(ops->b, own_name(tied->name), first->dims, shape[0],
                                        shape[1], shape[2], shape[3]);
  builder_train_like(ops->b, ops->split_weight, ops->tied_weight);
}

static void
define_modules(Ops *ops)
{
  const OpsFormat *f = ops->format;
  g_autoptr(GPtrArray) open = g_ptr_array_new();
  define_parameters(ops, &g_array_index(f->modules, OpsModule, 0));
  g_hash_table_insert(ops->modules, g_strdup(""), GINT_TO_POINTER(0));
  for (guint i = 1; i < f->modules->len; i++) {
    OpsModule *m = &g_array_index(f->modules, OpsModule, i);
    close_until(ops, open, m->path);
    int index = (int) builder_network(ops->b)->modules->len;
    if (m->block && builder_in_block(ops->b))
      builder_fail(ops->b, "%s: a block is inside of another one", m->path);
    if (m->block)
      builder_block_begin_named(ops->b, own_name(m->path), m->type);
    else
      builder_module(ops->b, own_name(m->path), m->type);
    g_ptr_array_add(open, m);
    if (!g_hash_table_insert(ops->modules, g_strdup(m->path), GINT_TO_POINTER(index)))
      builder_fail(ops->b, "two modules are called '%s'", m->path);
    define_parameters(ops, m);
    define_tied(ops, index, m->path);
  }
  close_until(ops, open, NULL);
  if (tie_of(ops) != NULL && ops->tied_module < 0)
    builder_fail(ops->b, "key 'tied': no module has the weight '%.120s'", tie_of(ops)->name);
}

/* ---- statements ---- */

static void G_GNUC_PRINTF(3, 4) fail(Playing *p, guint statement, const char *format, ...)
{
  va_list args;
  va_start(args, format);
  g_autofree char *text = g_strdup_vprintf(format, args);
  va_end(args);
  builder_fail(p->ops->b, "key '%s.statements[%u]': %s", p->function->path, statement, text);
  p->failed = TRUE;
}

/* "attention.wq" of block "layers.3".  Caller frees. */
static char *
full_path(const Playing *p, const char *name)
{
  if (*p->base == '\0')
    return g_strdup(name);
  return *name == '\0' ? g_strdup(p->base) : g_strconcat(p->base, ".", name, NULL);
}

static Val
operand(Playing *p, guint statement, const OpsOperand *o)
{
  gpointer index;
  if (o->parameter == NULL)
    return (Val){p->values[o->slot].slot, FALSE};
  g_autofree char *path = full_path(p, o->parameter);
  if (g_hash_table_lookup_extended(p->ops->parameters, path, NULL, &index)) {
    int parameter = GPOINTER_TO_INT(index);
    gboolean other = builder_network(p->ops->b)->split && p->module == p->ops->tied_module;
    return builder_weight(
        p->ops->b, other && parameter == p->ops->tied_weight ? p->ops->split_weight : parameter);
  }
  fail(p, statement, "there is no parameter '%.120s'", path);
  return NO_VAL;
}

/* What a value of the file is under the plan: what the exported model computed in its dtype is in
 * the plan's. */
static ValueInfo
planned(const Ops *ops, const ValueInfo *value)
{
  ValueInfo info = *value;
  if (info.dtype == ops->format->dtype && !ops->format->autocast)
    info.dtype = (guint8) builder_shape(ops->b)->precision.weights;
  return info;
}

static gboolean
same_layout(const ValueInfo *a, const ValueInfo *b)
{
  gboolean same = a->dims == b->dims && a->dtype == b->dtype;
  for (int i = 0; i < a->dims && same; i++)
    same = a->shape[i] == b->shape[i] && (a->shape[i] == 1 || a->stride[i] == b->stride[i]);
  return same;
}

/* Is what the op has made what the model had? */
static void
check_outputs(Playing *p, guint statement, const OpsStatement *s)
{
  for (int i = 0; i < s->outs && !p->failed; i++) {
    ValueInfo made = builder_info(p->ops->b, p->values[s->first_out + i]);
    if (same_layout(&made, &s->out[i]))
      continue;
    g_autofree char *here = ops_value_text(&made), *there = ops_value_text(&s->out[i]);
    fail(p, statement, "%s gives %s under this plan, where the exported model had %s", s->row->name,
         here, there);
  }
}

/* Has a tensor of the call no elements? */
static gboolean
has_empty(const OpsStatement *s, const ValueInfo *in)
{
  gboolean empty = FALSE;
  for (int i = 0; i < s->ins; i++)
    empty |= value_elements(&in[i]) == 0;
  for (int i = 0; i < s->outs; i++)
    empty |= value_elements(&s->out[i]) == 0;
  return empty;
}

static void
play_op(Playing *p, guint statement, const OpsStatement *written)
{
  Builder *b = p->ops->b;
  OpsStatement s = *written;
  Val in[OP_INPUTS];
  ValueInfo infos[OP_INPUTS];
  for (int i = 0; i < s.ins && !p->failed; i++)
    in[i] = operand(p, statement, &s.in[i]);
  for (int i = 0; i < s.ins && !p->failed; i++)
    infos[i] = builder_info(b, in[i]);
  for (int i = 0; i < s.outs; i++)
    s.out[i] = planned(p->ops, &s.out[i]);
  if (p->failed)
    return;
  if (!ops_row_takes_empty(s.row) && has_empty(&s, infos)) {
    fail(p, statement, "%s cannot have operands without elements", s.row->name);
    return;
  }
  const char *wrong = s.row->check != NULL ? s.row->check(&s, infos) : NULL;
  if (wrong != NULL) {
    fail(p, statement, "%s: %s", s.row->name, wrong);
    return;
  }
  ops_row_call(b, &s, in, p->values + s.first_out);
  check_outputs(p, statement, &s);
}

static int
find_module(Playing *p, guint statement, const OpsStatement *s)
{
  gpointer index;
  g_autofree char *path = full_path(p, s->module);
  if (g_hash_table_lookup_extended(p->ops->modules, path, NULL, &index))
    return GPOINTER_TO_INT(index);
  fail(p, statement, "there is no module '%.120s'", path);
  return 0;
}

static void
play_enter(Playing *p, guint statement, const OpsStatement *s)
{
  Builder *b = p->ops->b;
  Val args[STATEMENT_SLOTS];
  int module = find_module(p, statement, s);
  for (int i = 0; i < s->ins; i++)
    args[i] = operand(p, statement, &s->in[i]);
  if (p->failed)
    return;
  builder_module_enter(b, module, s->ins, args);
  builder_in_module(b, module);
  p->module = module;
  for (int i = 0; i < s->ins; i++)
    p->values[s->first_out + i] = args[i];
}

/* The root gives back what the training loop gets: cast as FSDP's output_dtype says, and copied
 * where a wrapper does that. */
static void
play_root_exit(Playing *p, const OpsStatement *s)
{
  Builder *b = p->ops->b;
  const NetworkPrecision *precision = &builder_shape(b)->precision;
  Val outputs[STATEMENT_SLOTS], before[STATEMENT_SLOTS];
  for (int i = 0; i < s->ins; i++) {
    before[i] = p->values[s->in[i].slot];
    DType dtype = (DType) builder_info(b, before[i]).dtype;
    gboolean cast = precision->has_output && dtype_size(dtype) <= 4 && dtype <= DTYPE_FP16;
    outputs[i] = builder_share(b, cast ? to(b, (Val){before[i].slot, FALSE}, precision->output)
                                       : (Val){before[i].slot, FALSE});
  }
  builder_forward_end(b);
  for (int i = 0; i < s->ins; i++)
    builder_discard(b, (Val){before[i].slot, TRUE});
  receive_outputs(b, s->ins, outputs);
  for (int i = 0; i < s->ins; i++)
    p->values[s->in[i].slot] = (Val){outputs[i].slot, TRUE};
}

static void
play_exit(Playing *p, guint statement, const OpsStatement *s)
{
  Builder *b = p->ops->b;
  int module = find_module(p, statement, s);
  if (p->failed)
    return;
  builder_module_exit(b, module, p->values[s->in[0].slot]);
  p->module = MAX(network_module(builder_network(b), module)->parent, 0);
  builder_in_module(b, p->module);
  if (module == 0)
    play_root_exit(p, s);
}

static Val block_forward(Builder *b, gconstpointer model, int block, const Val *args);

static void
play_call(Playing *p, guint statement, const OpsStatement *s)
{
  const Ops *ops = p->ops;
  BlockCode code = {block_forward, ops,
                    g_array_index(ops->format->block_functions, gint32, s->block)};
  Val args[STATEMENT_SLOTS];
  for (int i = 0; i < s->ins; i++)
    args[i] = operand(p, statement, &s->in[i]);
  p->values[s->first_out] = builder_block_call(ops->b, s->block, &code, s->ins, args);
}

static void
play(Playing *p, guint statement, const OpsStatement *s)
{
  switch (s->kind) {
  case OPS_OP:
    play_op(p, statement, s);
    break;
  case OPS_DROP:
    for (guint i = 0; i < s->drops->len; i++)
      builder_discard(p->ops->b, (Val){p->values[g_array_index(s->drops, gint32, i)].slot, TRUE});
    break;
  case OPS_ENTER:
    play_enter(p, statement, s);
    break;
  case OPS_EXIT:
    play_exit(p, statement, s);
    break;
  case OPS_CALL:
    play_call(p, statement, s);
    break;
  }
}

/* All statements; returns the result, after an error any value. */
static Val
play_function(const Ops *ops, const OpsFunction *f, const char *base, const Val *args)
{
  g_autofree Val *values = g_new0(Val, (gsize) f->slots);
  Playing p = {ops, f, base, values, -1, FALSE};
  for (guint i = 0; i < f->arguments->len; i++) {
    ValueInfo expected = planned(ops, &g_array_index(f->arguments, ValueInfo, i));
    ValueInfo given = builder_info(ops->b, args[i]);
    values[i] = args[i];
    if (!same_layout(&given, &expected)) {
      g_autofree char *here = ops_value_text(&given), *there = ops_value_text(&expected);
      builder_fail(ops->b, "key '%s.arguments[%u]': %s is given, where the exported model had %s",
                   f->path, i, here, there);
      p.failed = TRUE;
    }
  }
  for (guint i = 0; i < f->statements->len && !p.failed; i++)
    play(&p, i, &g_array_index(f->statements, OpsStatement, i));
  return p.failed ? args[0] : (Val){values[f->result].slot, TRUE};
}

static Val
block_forward(Builder *b, gconstpointer model, int block, const Val *args)
{
  const Ops *ops = model;
  const Network *n = builder_network(b);
  gint32 function = g_array_index(ops->format->block_functions, gint32, block);
  g_autofree char *base = g_strdup(network_module(n, network_block(n, block)->module)->path);
  return play_function(ops, g_ptr_array_index(ops->format->functions, (guint) function), base,
                       args);
}

/* ---- the step ---- */

/* Tensors that were there before the step, made after the parameters. */
static void
write_constants(const Ops *ops)
{
  const GArray *constants = ops->format->constants;
  Val kept[16];
  if (constants->len == 0)
    return;
  builder_function_begin(ops->b, "constants", -1, 0, NULL, NULL);
  for (guint i = 0; i < constants->len; i++)
    kept[i] = create(ops->b, g_array_index(ops->format->constant_names, const char *, i),
                     g_array_index(constants, ValueInfo, i));
  builder_network(ops->b)->construct =
      builder_function_end_keeping(ops->b, (int) constants->len, kept);
}

static void
write_main(const Ops *ops)
{
  Builder *b = ops->b;
  const OpsFunction *f = ops->format->main;
  Network *n = builder_network(b);
  Val args[16];
  ValueInfo infos[16];
  for (guint i = 0; i < f->arguments->len; i++)
    infos[i] = i < ops->format->inputs->len
                   ? planned(ops, &g_array_index(f->arguments, ValueInfo, i))
                   : g_array_index(f->arguments, ValueInfo, i);
  g_array_append_vals(n->inputs, infos, ops->format->inputs->len);
  builder_function_begin(b, "main", -1, (int) f->arguments->len, infos, args);
  Val loss = play_function(ops, f, "", args);
  if (builder_shape(b)->micro_batches > 1) {
    Val divided = unary(b, OP_DIV_SCALAR, (Val){loss.slot, FALSE});
    builder_discard(b, loss);
    loss = divided;
  }
  builder_autocast_end(b);
  n->main = builder_function_end(b, loss);
}

static void
add_modules(const Ops *ops, const char *key, const GArray *paths, GArray *modules)
{
  for (guint i = 0; i < paths->len; i++) {
    const char *path = g_array_index(paths, const char *, i);
    gpointer found;
    if (!g_hash_table_lookup_extended(ops->modules, path, NULL, &found)) {
      builder_fail(ops->b, "key 'figures.%s': there is no module '%.120s'", key, path);
      return;
    }
    int module = GPOINTER_TO_INT(found);
    if (network_module(builder_network(ops->b), module)->block >= 0 || module == 0)
      builder_fail(ops->b, "key 'figures.%s': module '%.120s' is the model or in a block", key,
                   path);
    g_array_append_val(modules, module);
  }
}

static void
figures(const Ops *ops)
{
  const OpsFormat *f = ops->format;
  Network *n = builder_network(ops->b);
  n->vocabulary = f->vocabulary;
  n->hidden = f->hidden;
  n->attention_width = f->attention_width;
  n->embedding_parameters = MIN(f->embedding_parameters, network_parameter_count(n));
  add_modules(ops, "embedding", f->embedding, n->embedding_modules);
  add_modules(ops, "head", f->head, n->head_modules);
  n->loss_inside = f->loss_inside;
  n->checkpoints_forward = f->checkpoints_forward;
}

/* ---- what it was exported for ---- */

static void
check_plan(JsonReader *reader, const OpsFormat *f, const NetworkShape *shape)
{
  DType weights = shape->precision.weights;
  if (f->batch != shape->micro_batch)
    json_reader_fail(reader, "batch",
                     "exported for micro-batches of %" G_GINT64_FORMAT
                     ", the plan's batch.micro_batch is %" G_GINT64_FORMAT,
                     f->batch, shape->micro_batch);
  if (f->sequence_length != shape->sequence_length)
    json_reader_fail(reader, "sequence_length",
                     "exported for sequences of %" G_GINT64_FORMAT
                     ", the plan's batch.sequence_length is %" G_GINT64_FORMAT,
                     f->sequence_length, shape->sequence_length);
  if (f->autocast != shape->precision.autocast)
    json_reader_fail(reader, "autocast", "exported %s autocast, the plan computes %s it",
                     f->autocast ? "under" : "without",
                     shape->precision.autocast ? "under" : "without");
  else if (f->autocast && f->autocast_dtype != shape->precision.matmul)
    json_reader_fail(reader, "autocast", "exported under autocast to %s, the plan's is to %s",
                     dtype_name(f->autocast_dtype), dtype_name(shape->precision.matmul));
  else if (f->dtype != weights && dtype_size(f->dtype) > dtype_size(weights))
    json_reader_fail(reader, "dtype", "exported in %s, the plan computes in %s",
                     dtype_name(f->dtype), dtype_name(weights));
  if (shape->lora != NULL)
    json_reader_fail(reader, "modules", "the plan's 'lora' adds no adapters to exported networks");
}

static Network *
build_from(const OpsFormat *format, const char *name, const NetworkShape *shape, GError **error)
{
  Ops ops = {.format = format, .b = builder_new(name, shape), .tied_module = -1};
  ops.modules = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, NULL);
  ops.parameters = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, NULL);
  define_modules(&ops);
  write_constants(&ops);
  figures(&ops);
  write_main(&ops);
  g_hash_table_unref(ops.modules);
  g_hash_table_unref(ops.parameters);
  return builder_finish(ops.b, error);
}

static Network *
build(NetworkSpec *spec, const NetworkShape *shape, GError **error)
{
  g_autoptr(OpsFormat) format = ops_format_read(spec->reader, spec->document, error);
  if (format == NULL)
    return NULL;
  check_plan(spec->reader, format, shape);
  if (!json_reader_finish(spec->reader, error))
    return NULL;
  return build_from(format, spec->name, shape, error);
}

const NetworkFamily family_ops = {
    .name = "ops",
    .summary = "a network that tools/export_network.py recorded: modules, and ops in order",
    .model_types = (const char *const[]){"ops", NULL},
    .build = build,
};
