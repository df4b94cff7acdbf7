/* strategy.c - the registry of strategies, and what many of them do. */
#include "strategy/strategy.h"

#include <string.h>

#include "base/units.h"
#include "program/meaning.h"
#include "strategy/registry.h"
#include "strategy/retain.h"
#include "strategy/shard.h"
#include "strategy/torch_optimizer.h"

const Strategy *const *
strategies(void)
{
  static const Strategy *const all[] = {
#define X(name) &strategy_##name,
      STRATEGY_LIST(X)
#undef X
          NULL,
  };
  return all;
}

const Strategy *
strategy_find(const char *name)
{
  for (const Strategy *const *s = strategies(); *s != NULL; s++)
    if (strcmp((*s)->name, name) == 0)
      return *s;
  return NULL;
}

PlanStrategy *
strategy_plan_table(void)
{
  guint n = 0;
  while (strategies()[n] != NULL)
    n++;
  PlanStrategy *table = g_new0(PlanStrategy, n + 1);
  for (guint i = 0; i < n; i++)
    table[i] = (PlanStrategy){strategies()[i]->name, strategies()[i]->section};
  return table;
}

StoragePurpose
parameter_purpose(const StrategyContext *x, int parameter, Category category)
{
  const Parameter *p = network_parameter(x->network, parameter);
  return (StoragePurpose){category, p->module, x->parameter_names[parameter]};
}

void
strategy_return_norm(StrategyContext *x, StorageId norm)
{
  if (x->plan->loop != LOOP_TRAINER) {
    live_storage_drop(x->live, norm);
    return;
  }
  live_storage_promote(x->live, norm, CATEGORY_OTHER);
  x->grad_norm = norm;
}

void
strategy_launch(StrategyContext *x, StreamId stream, const char *name, double bytes)
{
  strategy_launch_as(x, stream, name, bytes, NULL);
}

void
strategy_launch_as(StrategyContext *x, StreamId stream, const char *name, double bytes,
                   const char *meaning)
{
  Kernel kernel = {
      .kind = KERNEL_MEMORY,
      .dtype = DTYPE_FP32,
      .name = program_builder_name(x->builder, name),
      .launches = 1,
      .bytes = bytes,
      .meaning = meaning_of(x->builder, meaning),
  };
  program_builder_launch(x->builder, stream, program_builder_kernel(x->builder, &kernel));
}

StorageId
strategy_scalar(StrategyContext *x, StorageId from, const char *what, const char *meaning)
{
  const gint64 bytes = dtype_size(DTYPE_FP32);
  StoragePurpose purpose = {CATEGORY_TEMPORARY, -1, program_builder_name(x->builder, what)};
  StorageId made = live_storage_alloc(x->live, bytes, STREAM_COMPUTE, purpose);
  if (from != NO_STORAGE)
    program_builder_operand(x->builder, live_storage_tensor(x->live, from, DTYPE_FP32), ROLE_READ);
  program_builder_operand(x->builder, live_storage_tensor(x->live, made, DTYPE_FP32), ROLE_WRITE);
  strategy_launch_as(x, STREAM_COMPUTE, what, 2.0 * (double) bytes, meaning);
  return made;
}

void
strategy_copy(StrategyContext *x, StreamId stream, const char *name, double bytes)
{
  strategy_copy_as(x, stream, name, bytes, NULL);
}

void
strategy_copy_as(StrategyContext *x, StreamId stream, const char *name, double bytes,
                 const char *meaning)
{
  Kernel kernel = {
      .kind = KERNEL_COPY,
      .dtype = DTYPE_UINT8,
      .name = program_builder_name(x->builder, name),
      .launches = 1,
      .bytes = bytes,
      .meaning = meaning_of(x->builder, meaning),
  };
  program_builder_copy(x->builder, stream, program_builder_kernel(x->builder, &kernel));
}

void
strategy_work_on_host(StrategyContext *x, double bytes)
{
  program_builder_host_work(x->builder, HOST_WORK_MEMORY, (int) ceil_div((gint64) bytes, MIB));
}

void
strategy_compute_on_host(StrategyContext *x, const char *name, const char *meaning)
{
  Kernel kernel = {
      .kind = KERNEL_MEMORY,
      .dtype = DTYPE_FP32,
      .name = program_builder_name(x->builder, name),
      .launches = 1,
      .meaning = meaning_of(x->builder, meaning),
  };
  program_builder_host_compute(x->builder, program_builder_kernel(x->builder, &kernel));
}

/* DeepSpeedCPUAdam (csrc/adam/cpu_adam_impl.cpp) goes once over weights, gradients and moments, and
 * writes all but the gradients; the weights are then read and written in 16 bits. */
void
strategy_update_on_host(StrategyContext *x, gint64 elements)
{
  gint64 bytes = 4 * (3 + 2 * optimizer_moments(x->plan)) + 6;
  strategy_work_on_host(x, (double) (elements * bytes));
}

/* ---- units ---- */

int
strategy_new_unit(StrategyContext *x, const char *name)
{
  Unit *unit = g_new0(Unit, 1);
  unit->name = g_strdup(name);
  unit->parameters = g_array_new(FALSE, FALSE, sizeof(int));
  unit->modules = g_array_new(FALSE, FALSE, sizeof(int));
  unit->made = (int) x->units->len;
  g_ptr_array_add(x->units, unit);
  return (int) x->units->len - 1;
}

void
strategy_add_module(StrategyContext *x, int unit_index, int module, int last_module, int *owner)
{
  Unit *unit = g_ptr_array_index(x->units, (guint) unit_index);
  if (unit->modules->len == 0)
    g_array_index(x->unit_begins, int, module) = unit_index;
  else
    g_array_index(x->unit_ends, int, g_array_index(unit->modules, int, unit->modules->len - 1)) =
        -1;
  g_array_index(x->unit_ends, int, module) = unit_index;
  g_array_append_val(unit->modules, module);
  for (guint i = 0; i < x->network->parameters->len; i++) {
    const Parameter *p = network_parameter(x->network, (int) i);
    if (owner[i] >= 0 || p->module < module || p->module > last_module)
      continue;
    owner[i] = unit_index;
    unit->elements += p->elements;
    int index = (int) i;
    g_array_append_val(unit->parameters, index);
  }
}

/* ---- construction ---- */

gboolean
strategy_module_contains(const Network *network, int module, int other)
{
  while (other > module)
    other = network_module(network, other)->parent;
  return other == module;
}

gboolean
strategy_output_requires_grad(const Network *network, int module)
{
  int last = module;
  while (last + 1 < (int) network->modules->len &&
         strategy_module_contains(network, module, last + 1))
    last++;
  for (guint i = 0; i < network->parameters->len; i++) {
    const Parameter *p = network_parameter(network, (int) i);
    if (p->requires_grad && p->module <= last)
      return TRUE;
  }
  return FALSE;
}

StorageId
strategy_make_buffer(StrategyContext *x, int index, DType dtype)
{
  const Buffer *buffer = &g_array_index(x->network->buffers, Buffer, (guint) index);
  StoragePurpose purpose = {CATEGORY_OTHER, buffer->module,
                            program_builder_name(x->builder, buffer->name)};
  return live_storage_alloc(x->live, buffer->elements * dtype_size(dtype), STREAM_COMPUTE, purpose);
}

/* They live as long as the model. */
static void
construct_buffers(StrategyContext *x, int module)
{
  for (guint i = 0; i < x->network->buffers->len; i++) {
    const Buffer *buffer = &g_array_index(x->network->buffers, Buffer, i);
    if (buffer->module == module)
      x->buffers[i] = strategy_make_buffer(x, (int) i, buffer->dtype);
  }
}

/* What a visit is for. */
typedef struct {
  void (*parameter)(StrategyContext *, int);
  void (*end)(StrategyContext *, int); /* may be NULL */
  gboolean skips_adapters;
} Visitor;

/* Is that a module of an adapter's own? */
static gboolean
is_adapter(const Network *n, int module)
{
  const Module *m = network_module(n, module);
  return m->parameter_count > 0 && network_parameter(n, m->first_parameter)->adapter;
}

/* The modules from the first one on, up to the end of `module`. */
static int
visit(StrategyContext *x, int module, const Visitor *visitor)
{
  const Network *n = x->network;
  int next = module + 1;
  while (next < (int) n->modules->len && network_module(n, next)->parent == module)
    next = visit(x, next, visitor);
  if (visitor->skips_adapters && is_adapter(n, module))
    return next;
  for (int i = 0; i < network_module_parameters(n, module); i++)
    visitor->parameter(x, network_module_parameter(n, module, i));
  construct_buffers(x, module);
  if (visitor->end != NULL)
    visitor->end(x, module);
  return next;
}

void
strategy_visit_construction(StrategyContext *x, void (*parameter)(StrategyContext *, int),
                            void (*end)(StrategyContext *, int module))
{
  visit(x, 0, &(Visitor){parameter, end, FALSE});
}

void
strategy_visit_whole(StrategyContext *x, void (*parameter)(StrategyContext *, int),
                     void (*end)(StrategyContext *, int module))
{
  const Visitor visitor = {parameter, end, FALSE};
  visit(x, 0, &(Visitor){parameter, end, TRUE});
  for (guint i = 0; i < x->network->modules->len; i++)
    if (is_adapter(x->network, (int) i))
      visit(x, (int) i, &visitor);
}

void
strategy_holds(StrategyContext *x, StorageId storage, DType dtype, StateRange range, gint64 offset)
{
  ParameterPart part = {.storage = storage, .dtype = (guint8) dtype, .offset = offset};
  if (storage == NO_STORAGE || range.elements <= 0)
    return;
  part.parameter = x->parameter_names[range.parameter];
  part.first = range.first;
  part.elements = range.elements;
  program_builder_part(x->builder, &part);
}

static void
holds_whole(StrategyContext *x, StorageId storage, int parameter)
{
  gint64 elements = network_parameter(x->network, parameter)->elements;
  strategy_holds(x, storage, x->plan->precision.parameters, (StateRange){parameter, 0, elements},
                 0);
}

static void
construct_whole_parameter(StrategyContext *x, int parameter)
{
  ParameterState *p = &x->parameters[parameter];
  const Parameter *info = network_parameter(x->network, parameter);
  gint64 bytes = info->elements * dtype_size(x->plan->precision.parameters);
  StorageId made = live_storage_alloc(x->live, bytes, STREAM_COMPUTE,
                                      parameter_purpose(x, parameter, CATEGORY_PARAMETER));
  if (p->sharded != NO_STORAGE) { /* a tied layer makes its own weight and gives it up */
    live_storage_drop(x->live, made);
    return;
  }
  p->sharded = p->unsharded = made;
  p->local_elements = info->elements;
  holds_whole(x, made, parameter);
}

static void
construct_host_parameter(StrategyContext *x, int parameter)
{
  ParameterState *p = &x->parameters[parameter];
  const Parameter *info = network_parameter(x->network, parameter);
  if (p->sharded != NO_STORAGE)
    return;
  gint64 bytes = info->elements * dtype_size(x->plan->precision.parameters);
  p->sharded = live_storage_alloc_in(x->live, SPACE_HOST, bytes, STREAM_COMPUTE,
                                     parameter_purpose(x, parameter, CATEGORY_PARAMETER));
  holds_whole(x, p->sharded, parameter);
}

void
strategy_construct_on_host(StrategyContext *x)
{
  strategy_visit_construction(x, construct_host_parameter, NULL);
}

void
strategy_move_to_device(StrategyContext *x, int parameter)
{
  ParameterState *p = &x->parameters[parameter];
  DType dtype = x->plan->precision.parameters;
  StorageId host = p->sharded;
  gint64 bytes = live_storage_bytes(x->live, host);
  p->sharded = live_storage_alloc(x->live, bytes, STREAM_COMPUTE,
                                  parameter_purpose(x, parameter, CATEGORY_PARAMETER));
  holds_whole(x, p->sharded, parameter);
  program_builder_operand(x->builder, live_storage_tensor(x->live, host, dtype), ROLE_READ);
  program_builder_operand(x->builder, live_storage_tensor(x->live, p->sharded, dtype), ROLE_WRITE);
  strategy_copy(x, STREAM_COMPUTE, "parameter to device", (double) bytes);
  program_builder_stream_sync(x->builder, STREAM_COMPUTE);
  live_storage_drop(x->live, host);
  p->local_elements = network_parameter(x->network, parameter)->elements;
}

/* A tied weight is visited twice: the second time it is there. */
static void
move_parameter(StrategyContext *x, int parameter)
{
  ParameterState *p = &x->parameters[parameter];
  if (live_storage_space(x->live, p->sharded) == SPACE_HOST)
    strategy_move_to_device(x, parameter);
  p->unsharded = p->sharded;
}

/* On the device as it is made, or by model.to(device): modules in order, adapters in their places.
 */
void
strategy_construct_whole(StrategyContext *x)
{
  if (x->plan->phases.initialize.on != INITIALIZE_ON_CPU) {
    strategy_visit_whole(x, construct_whole_parameter, NULL);
    return;
  }
  for (guint i = 0; i < x->network->parameters->len; i++)
    construct_host_parameter(x, (int) i);
  strategy_visit_construction(x, move_parameter, NULL);
}

void
strategy_add_rows(const Network *network, int parameter, StateLayout *layout)
{
  gint64 first = 0;
  for (int rank = 0; rank < layout->ranks; rank++) {
    gint64 elements =
        shard_of(network_parameter(network, parameter), layout->ranks, rank).local_elements;
    state_layout_add(layout, rank, (StateRange){parameter, first, elements});
    first += elements;
  }
}

void
strategy_state_whole(const StrategyContext *x, StateLayout *layout)
{
  for (guint i = 0; i < x->network->parameters->len; i++)
    state_layout_add(layout, 0,
                     (StateRange){(gint32) i, 0, network_parameter(x->network, (int) i)->elements});
}

gboolean
strategy_accept_unsharded(const PlanSpec *plan, GError **error)
{
  if (!plan->accumulation.reshard_after_backward)
    return plan_spec_refuse(plan, error, "accumulation.reshard_after_backward",
                            "only FSDP2 reshards");
  if (plan->accumulation.set_last_backward)
    return plan_spec_refuse(plan, error, "accumulation.set_last_backward", "only FSDP2 has it");
  if (plan->accumulation.all_reduce_every > 1)
    return plan_spec_refuse(plan, error, "accumulation.all_reduce_every", "only FSDP2 has it");
  if (!plan->precision.autocast && plan->precision.compute != plan->precision.parameters)
    return plan_spec_refuse(plan, error, "precision.compute",
                            "without autocast, strategy %s computes in the parameters' dtype",
                            plan->strategy);
  if (plan->precision.reduce != plan->precision.parameters)
    return plan_spec_refuse(plan, error, "precision.reduce",
                            "strategy %s reduces in the parameters' dtype", plan->strategy);
  if (plan->precision.has_output && !plan->precision.autocast)
    return plan_spec_refuse(plan, error, "precision.output",
                            "only FSDP2's mixed precision casts outputs, or a wrapper that "
                            "autocasts");
  if (plan->checkpointing.around != AROUND_MODULE)
    return plan_spec_refuse(plan, error, "activation_checkpointing.around",
                            "strategy %s has no FSDP modules", plan->strategy);
  if (retain_needs_groups(plan))
    return plan_spec_refuse(plan, error, "retain", "strategy %s has no groups", plan->strategy);
  return TRUE;
}
