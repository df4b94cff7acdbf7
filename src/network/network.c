/* network.c - a model as a value: counting and freeing it. */
#include "network/network.h"

#include <string.h>

void
network_function_free(gpointer function)
{
  Function *f = function;
  g_free(f->name);
  g_array_unref(f->values);
  g_array_unref(f->depths);
  g_array_unref(f->statements);
  g_array_unref(f->ops);
  g_array_unref(f->steps);
  g_array_unref(f->kernels);
  g_free(f);
}

void
network_free(Network *network)
{
  if (network == NULL)
    return;
  g_free(network->name);
  g_array_unref(network->modules);
  g_array_unref(network->parameters);
  g_array_unref(network->buffers);
  g_array_unref(network->blocks);
  g_ptr_array_unref(network->functions);
  g_ptr_array_unref(network->compiled);
  g_array_unref(network->tables);
  g_array_unref(network->inputs);
  g_array_unref(network->ties);
  g_array_unref(network->embedding_modules);
  g_array_unref(network->head_modules);
  g_free(network);
}

gint64
network_usual_count(const Network *network)
{
  return network->base_parameters > 0 ? network->base_parameters : network_parameter_count(network);
}

gboolean
network_splits_weight(const Network *network)
{
  for (guint i = 0; i < network->parameters->len; i++)
    if (network_parameter(network, (int) i)->shard_of >= 0)
      return FALSE;
  return network->split;
}

gint64
network_trainable_count(const Network *network)
{
  gint64 count = 0;
  for (guint i = 0; i < network->parameters->len; i++) {
    const Parameter *p = network_parameter(network, (int) i);
    count += p->trainable && p->shard_of < 0 ? p->elements : 0;
  }
  return count;
}

int
network_trainable_tensors(const Network *network)
{
  int count = 0;
  for (guint i = 0; i < network->parameters->len; i++)
    count += network_parameter(network, (int) i)->trainable &&
             network_parameter(network, (int) i)->shard_of < 0;
  return count;
}

gint64
network_positions(const Network *network)
{
  return network->positions > 0 ? network->positions : network->shape.sequence_length;
}

gint64
network_parameter_count(const Network *network)
{
  gint64 count = 0;
  for (guint i = 0; i < network->parameters->len; i++) {
    const Parameter *p = network_parameter(network, (int) i);
    count += p->shard_of < 0 ? p->elements : 0;
  }
  return count;
}

const char *
parameter_short_name(const Parameter *parameter)
{
  const char *dot = strrchr(parameter->name, '.');
  return dot != NULL ? dot + 1 : parameter->name;
}

/* calls: of modules so far. */
static void
order_calls(const Network *network, const Function *f, int first_module, int *order, int *calls)
{
  for (guint i = 0; i < f->statements->len; i++) {
    const Statement *s = &g_array_index(f->statements, Statement, i);
    int module = first_module + s->a;
    if (s->kind == STATEMENT_CALL)
      module = network_block(network, s->b)->module;
    else if (s->kind != STATEMENT_ENTER)
      continue;
    if (order[module] < 0)
      order[module] = (*calls)++;
    if (s->kind == STATEMENT_CALL)
      order_calls(network, network_function(network, s->a), module, order, calls);
  }
}

int
network_module_parameters(const Network *network, int module)
{
  int count = network_module(network, module)->parameter_count;
  for (guint i = 0; i < network->ties->len; i++)
    count += network_tie(network, (int) i)->module == module;
  return count;
}

int
network_module_parameter(const Network *network, int module, int i)
{
  const Module *m = network_module(network, module);
  if (i < m->parameter_count)
    return m->first_parameter + i;
  for (guint k = 0, left = (guint) (i - m->parameter_count); k < network->ties->len; k++)
    if (network_tie(network, (int) k)->module == module && left-- == 0)
      return network_tie(network, (int) k)->parameter;
  g_assert_not_reached();
}

int
network_ties_of(const Network *network, int parameter)
{
  int count = 0;
  for (guint i = 0; i < network->ties->len; i++) {
    const Tie *tie = network_tie(network, (int) i);
    count += tie->module >= 0 && tie->parameter == parameter;
  }
  return count;
}

GArray *
network_state_order(const Network *network)
{
  GArray *order = g_array_new(FALSE, FALSE, sizeof(int));
  for (guint i = 0; i < network->modules->len; i++) {
    for (int k = 0; k < network_module_parameters(network, (int) i); k++) {
      int parameter = network_module_parameter(network, (int) i, k);
      g_array_append_val(order, parameter);
    }
  }
  return order;
}

int *
network_call_order(const Network *network)
{
  int *order = g_new(int, network->modules->len), calls = 0;
  for (guint i = 0; i < network->modules->len; i++)
    order[i] = -1;
  order_calls(network, network_function(network, network->main), 0, order, &calls);
  return order;
}
