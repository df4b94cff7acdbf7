/* ops_modules.c - defines the modules of an exported network. */
#include <string.h>

#include "network/ops_play.h"

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
      builder_fail(ops->b, "key 'modules': two parameters are called '%s'", made->name);
  }
  for (guint i = 0; i < m->buffers->len; i++) {
    const OpsBuffer *buffer = &g_array_index(m->buffers, OpsBuffer, i);
    g_autofree char *path = builder_path(ops->b, buffer->name);
    builder_buffer(ops->b, path, DTYPE_UINT8, buffer->bytes);
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

/* The module's name for a parameter of another one; NULL when the tie is of another module. */
static const char *
name_in_module(const OpsTied *tied, const char *path)
{
  gsize length = strlen(path);
  const char *name = tied->name + (length > 0 ? length + 1 : 0);
  gboolean its = is_inside(tied->name, path) && strchr(name, '.') == NULL;
  return its ? name : NULL;
}

/* The weight becomes two where the plan's strategy makes it so (the last tie is an output layer's):
 * the open module gets one of its own. */
static void
split_weight(Ops *ops, int module, const char *name, int weight)
{
  const Parameter *first = network_parameter(builder_network(ops->b), weight);
  gint64 shape[4];
  int dims = first->dims;
  memcpy(shape, first->shape, sizeof(shape));
  ops->tied_module = module;
  ops->tied_weight = weight;
  ops->split_weight = builder_parameter(ops->b, name, dims, shape[0], shape[1], shape[2], shape[3]);
  builder_train_like(ops->b, ops->split_weight, weight);
}

/* A module that is defined may have parameters of others. */
static void
define_ties(Ops *ops, int module, const char *path)
{
  Network *n = builder_network(ops->b);
  const GArray *tied = ops->format->tied;
  for (guint i = 0; i < tied->len; i++) {
    const OpsTied *tie = &g_array_index(tied, OpsTied, i);
    const char *name = name_in_module(tie, path);
    gpointer weight;
    if (name == NULL)
      continue;
    if (!g_hash_table_lookup_extended(ops->parameters, tie->weight, NULL, &weight)) {
      builder_fail(ops->b, "key 'tied': there is no parameter '%.120s' before '%.120s'",
                   tie->weight, tie->name);
      return;
    }
    ops->ties++;
    n->split = n->shape.splits_tied && i == tied->len - 1;
    if (n->split)
      split_weight(ops, module, name, GPOINTER_TO_INT(weight));
    else
      builder_tie(ops->b, GPOINTER_TO_INT(weight));
  }
}

void
ops_define_modules(Ops *ops)
{
  const OpsFormat *f = ops->format;
  g_autoptr(GPtrArray) open = g_ptr_array_new();
  define_parameters(ops, &g_array_index(f->modules, OpsModule, 0));
  define_ties(ops, 0, "");
  g_hash_table_insert(ops->modules, g_strdup(""), GINT_TO_POINTER(0));
  for (guint i = 1; i < f->modules->len; i++) {
    OpsModule *m = &g_array_index(f->modules, OpsModule, i);
    close_until(ops, open, m->path);
    int index = (int) builder_network(ops->b)->modules->len;
    if (m->block && builder_in_block(ops->b))
      builder_fail(ops->b, "key 'modules': %s: a block is inside of another one", m->path);
    if (m->block)
      builder_block_begin_named(ops->b, own_name(m->path), m->type);
    else
      builder_module(ops->b, own_name(m->path), m->type);
    g_ptr_array_add(open, m);
    if (!g_hash_table_insert(ops->modules, g_strdup(m->path), GINT_TO_POINTER(index)))
      builder_fail(ops->b, "key 'modules': two modules are called '%s'", m->path);
    define_parameters(ops, m);
    define_ties(ops, index, m->path);
  }
  close_until(ops, open, NULL);
  if (ops->ties < f->tied->len)
    builder_fail(ops->b, "key 'tied': not each name is of a module's parameter");
}
