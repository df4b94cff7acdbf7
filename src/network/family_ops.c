/* family_ops.c - a network that tools/export_network.py has recorded from any nn.Module: its
 * modules are defined and its functions written as they were seen. */
#include <string.h>

#include "network/family.h"
#include "network/layers.h"
#include "network/model_call.h"
#include "network/ops_play.h"

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

static Val
divided(Builder *b, Val loss)
{
  Val result = unary(b, OP_DIV_SCALAR, (Val){loss.slot, FALSE});
  builder_discard(b, loss);
  return result;
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
                   ? ops_planned(ops, &g_array_index(f->arguments, ValueInfo, i))
                   : g_array_index(f->arguments, ValueInfo, i);
  g_array_append_vals(n->inputs, infos, ops->format->inputs->len);
  builder_function_begin(b, "main", -1, (int) f->arguments->len, infos, args);
  Val loss;
  ops_play(ops, f, "", args, &loss);
  const NetworkShape *shape = builder_shape(b);
  if (shape->keeps_loss && !shape->trainer)
    builder_keep(b, loss);
  if (shape->micro_batches > 1 || shape->divides_loss || shape->trainer)
    loss = divided(b, loss);
  if (shape->keeps_loss && shape->trainer)
    builder_keep(b, loss);
  if (shape->divides_loss && shape->trainer)
    loss = divided(b, loss);
  model_call_autocast_end(b);
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
  gint64 looked_up = f->embedding_parameters;
  if (n->split) /* the table that the output layer no longer shares is only looked up */
    looked_up += network_parameter(n, ops->tied_weight)->elements;
  n->embedding_parameters = MIN(looked_up, network_parameter_count(n));
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
  ops_define_modules(&ops);
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
