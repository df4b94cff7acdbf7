/* fsdp2.c - torch.distributed.fsdp.fully_shard: groups, hooks and options (_fsdp_state.py,
 * _fully_shard.py). */
#include <string.h>

#include "base/units.h"
#include "strategy/fsdp2_private.h"
#include "strategy/fsdp_groups.h"
#include "strategy/fsdp_ignored.h"
#include "strategy/fsdp_options.h"

/* Elements that all ranks hold together, far below what sums over a step could overflow. */
#define MOST_ELEMENTS ((gint64) 1 << 50)

/* A parameter of few rows is padded to one for each rank. */
static gboolean
accept_padding(const PlanSpec *plan, const Network *network, GError **error)
{
  gint64 total = 0;
  for (guint i = 0; i < network->parameters->len; i++) {
    const Parameter *p = network_parameter(network, (int) i);
    gint64 chunk = shard_padded_elements(p, plan->shard), all;
    if (!checked_multiply(chunk, plan->shard, &all) || all > MOST_ELEMENTS - total)
      return plan_spec_refuse(plan, error, "mesh.shard",
                              "parameters padded to %d shards have more than 2^50 elements",
                              plan->shard);
    total += all;
  }
  return TRUE;
}

static gboolean
accept(const PlanSpec *plan, const Network *network, GError **error)
{
  const OptionValue *reshard = plan_spec_option(plan, "reshard_after_forward");
  if (plan_spec_number(plan, "sharding_strategy") != 0)
    return plan_spec_refuse(plan, error, "fsdp.sharding_strategy",
                            "only FSDP1 has it; fsdp2 shards fully");
  if (plan_spec_number(plan, "wrap") != 0)
    return plan_spec_refuse(plan, error, "fsdp.wrap", "only FSDP1 has it: FSDP2 groups all blocks");
  if (plan_spec_number(plan, "limit_all_gathers") == 0)
    return plan_spec_refuse(plan, error, "fsdp.limit_all_gathers", "only FSDP1 has it");
  if (plan_spec_number(plan, "cast_buffers") != 0)
    return plan_spec_refuse(plan, error, "fsdp.cast_buffers", "only FSDP1 has it");
  if (plan_spec_number(plan, "use_orig_params") == 0)
    return plan_spec_refuse(plan, error, "fsdp.use_orig_params",
                            "only FSDP1 has it; fsdp2 keeps the parameters");
  if (plan_spec_option(plan, "backward_prefetch")->is_name)
    return plan_spec_refuse(plan, error, "fsdp.backward_prefetch",
                            "only FSDP1 names a moment; fsdp2 takes a number of groups");
  if (!plan_spec_option(plan, "prefetch_budget")->is_null &&
      (plan_spec_number(plan, "forward_prefetch") || plan_spec_number(plan, "backward_prefetch")))
    return plan_spec_refuse(plan, error, "fsdp.prefetch_budget",
                            "takes the place of forward_prefetch and backward_prefetch");
  if (plan->precision.autocast)
    return plan_spec_refuse(plan, error, "precision.autocast",
                            "fsdp2 casts by its mixed precision policy, not by autocast");
  if (!reshard->is_null && !reshard->is_bool && plan->shard % reshard->number != 0)
    return plan_spec_refuse(plan, error, "fsdp.reshard_after_forward",
                            "%" G_GINT64_FORMAT " does not divide mesh.shard %d", reshard->number,
                            plan->shard);
  if (plan->accumulation.all_reduce_every > 1 && plan->replicate == 1)
    return plan_spec_refuse(plan, error, "accumulation.all_reduce_every",
                            "needs replicas: mesh.replicate is 1");
  if (plan->optimizer.name == OPTIMIZER_SGD &&
      plan->optimizer.implementation == OPTIMIZER_FUSED) /* _sharding_prop.py */
    return plan_spec_refuse(plan, error, "optimizer.implementation",
                            "fused SGD has no sharding strategy for FSDP2's DTensors: use foreach");
  if (!plan_spec_number(plan, "pin_memory") && !plan_spec_number(plan, "cpu_offload"))
    return plan_spec_refuse(plan, error, "fsdp.pin_memory", "needs \"cpu_offload\": true");
  if (network->split && !network_splits_weight(network) && plan_spec_number(plan, "cpu_offload"))
    return plan_spec_refuse(plan, error, "fsdp.cpu_offload",
                            "not yet supported where a model ties its weights after fully_shard()");
  if (plan_spec_number(plan, "reshard_head") && plan_spec_number(plan, "head") == 0)
    return plan_spec_refuse(plan, error, "fsdp.reshard_head", "needs \"head\": \"own\"");
  for (guint i = 0; i < network->parameters->len; i++)
    if (network_parameter(network, (int) i)->dims == 0)
      return plan_spec_refuse(plan, error, "strategy",
                              "fully_shard does not take scalar parameters, as '%s' is: make it a "
                              "vector of one, or use another strategy",
                              network_parameter(network, (int) i)->name);
  gint64 blocks = plan_spec_number(plan, "blocks_per_group");
  if (blocks > (gint64) network->blocks->len)
    return plan_spec_refuse(plan, error, "fsdp.blocks_per_group",
                            "%" G_GINT64_FORMAT " is more than the network's %u blocks", blocks,
                            network->blocks->len);
  return fsdp_groups_accept(plan, network, TRUE, error) &&
         fsdp_ignored_accept(plan, network, error) && accept_padding(plan, network, error);
}

/* fully_shard takes what is a parameter of its modules and knows nothing of other modules that
 * share it: those keep the full weight, which the next call shards once more
 * (_get_param_module_infos, _fsdp_init.py).  One group for both keeps them tied. */
static gboolean
splits_tied(const PlanSpec *plan)
{
  gint64 embedding = plan_spec_number(plan, "embedding");
  return embedding == PLACE_OWN ||
         (embedding == PLACE_ROOT && plan_spec_number(plan, "head") == PLACE_OWN);
}

/* ---- groups ---- */

static void
add_blocks(StrategyContext *x, int per_group, int *owner)
{
  int blocks = (int) x->network->blocks->len;
  for (int first = 0; first < blocks && per_group > 0; first += per_group) {
    const Block *b = network_block(x->network, first);
    int unit = strategy_new_unit(x, network_module(x->network, b->module)->path);
    for (int i = first; i < MIN(first + per_group, blocks); i++) {
      b = network_block(x->network, i);
      strategy_add_module(x, unit, b->module, b->module + b->modules - 1, owner);
    }
  }
}

static gboolean
is_tied(const Network *n)
{
  for (guint i = 0; i < n->ties->len; i++)
    if (network_tie(n, (int) i)->module >= 0)
      return TRUE;
  return FALSE;
}

static void
add_embedding(StrategyContext *x, int *owner)
{
  const GArray *modules = x->network->embedding_modules;
  for (guint i = 0; i < modules->len; i++) {
    int module = g_array_index(modules, int, i);
    int unit = strategy_new_unit(x, network_module(x->network, module)->path);
    strategy_add_module(x, unit, module, module, owner);
  }
}

/* The final norm and the output layer; between them the embedding, whose call then begins the
 * group's forward (fsdp2_prepare_model, accelerate 1.15). */
static void
add_head(StrategyContext *x, gboolean with_embedding, int *owner)
{
  const Network *n = x->network;
  if (n->head_modules->len == 0)
    return;
  int first = g_array_index(n->head_modules, int, 0);
  int head = strategy_new_unit(x, network_module(n, first)->path);
  for (guint i = 0; i < n->head_modules->len; i++) {
    int module = g_array_index(n->head_modules, int, i);
    strategy_add_module(x, head, module, module, owner);
    for (guint k = 0; k < n->embedding_modules->len && with_embedding && i == 0; k++) {
      int embedding = g_array_index(n->embedding_modules, int, k);
      strategy_add_module(x, head, embedding, embedding, owner);
      g_array_index(x->unit_begins, int, first) = -1;
      g_array_index(x->unit_begins, int, embedding) = k == 0 ? head : -1;
    }
  }
}

/* Embedding, blocks and head. */
static void
make_usual_units(StrategyContext *x, int *owner)
{
  gint64 embedding = plan_spec_number(x->plan, "embedding");
  gboolean tied = embedding == PLACE_UNTIED && is_tied(x->network);
  gboolean head = plan_spec_number(x->plan, "head") == PLACE_OWN;
  if (embedding != PLACE_ROOT && !tied)
    add_embedding(x, owner);
  if (tied && head)
    add_head(x, TRUE, owner);
  add_blocks(x, (int) plan_spec_number(x->plan, "blocks_per_group"), owner);
  if (!tied && head)
    add_head(x, FALSE, owner);
}

/* Units in the order of named_modules().  The root's comes first but takes what is left. */
static void
make_units(StrategyContext *x)
{
  const Network *n = x->network;
  g_autofree int *owner = g_new(int, n->parameters->len);
  for (guint i = 0; i < n->parameters->len; i++)
    owner[i] = x->parameters[i].ignored ? G_MAXINT : -1;
  int root = strategy_new_unit(x, "root");
  if (fsdp_groups_given(x->plan))
    fsdp_groups_make_units(x, owner);
  else
    make_usual_units(x, owner);
  strategy_add_module(x, root, 0, (int) n->modules->len - 1, owner);
}

/* By parameter: its place among those that modules have, children before their parent
 * (_get_managed_modules, _fsdp_init.py). */
typedef struct {
  int *place;
  int next;
} Places;

static int
find_places(const Network *n, int module, Places *places)
{
  int next = module + 1;
  while (next < (int) n->modules->len && network_module(n, next)->parent == module)
    next = find_places(n, next, places);
  for (int i = 0; i < network_module_parameters(n, module); i++) {
    int *place = &places->place[network_module_parameter(n, module, i)];
    if (*place < 0)
      *place = places->next++;
  }
  return next;
}

/* Which of the unit's modules, in the order of the call of fully_shard, has the parameter. */
static int
module_in_call(const StrategyContext *x, const Unit *unit, int parameter)
{
  int module = network_parameter(x->network, parameter)->module, k = 0;
  while (k + 1 < (int) unit->modules->len &&
         !strategy_module_contains(x->network, g_array_index(unit->modules, int, k), module))
    k++;
  return k;
}

static int
compare_places(gconstpointer a, gconstpointer b, gpointer places)
{
  const int *place = places;
  return place[*(const int *) a] - place[*(const int *) b];
}

/* A group has its parameters in that order, module by module of those that were given. */
static void
order_parameters(StrategyContext *x)
{
  int n = (int) x->network->parameters->len;
  Places places = {g_new(int, MAX(n, 1)), 0};
  for (int i = 0; i < n; i++)
    places.place[i] = -1;
  find_places(x->network, 0, &places);
  for (guint i = 0; i < x->units->len; i++) {
    const Unit *unit = g_ptr_array_index(x->units, i);
    for (guint k = 0; k < unit->parameters->len; k++) {
      int parameter = g_array_index(unit->parameters, int, k);
      places.place[parameter] += n * module_in_call(x, unit, parameter);
    }
    g_array_sort_with_data(unit->parameters, compare_places, places.place);
  }
  g_free(places.place);
}

static void
fill_group(StrategyContext *x, Fsdp2 *f, int index)
{
  Group *g = &f->groups[index];
  Unit *unit = g_ptr_array_index(x->units, (guint) index);
  g->unit = unit;
  g->index = index;
  g->count = (int) unit->parameters->len;
  g->parameter = (const int *) (const void *) unit->parameters->data;
  g->shard = g_new(Shard, MAX(g->count, 1));
  g->full = g_new(StorageId, MAX(g->count, 1));
  g->slice = g_new(StorageId, MAX(g->count, 1));
  g->on_host_event = g_new(gint32, MAX(g->count, 1));
  for (int i = 0; i < g->count; i++) {
    int p = g->parameter[i];
    f->shards[p] = g->shard[i] = shard_of(network_parameter(x->network, p), f->ranks, x->rank);
    g->full[i] = g->slice[i] = NO_STORAGE;
    g->on_host_event[i] = -1;
    g->shard_elements += g->shard[i].padded_elements;
    if (network_parameter(x->network, p)->trainable)
      g->reduced_elements += g->shard[i].padded_elements;
    x->parameters[p].local_elements = g->shard[i].local_elements;
  }
  for (guint i = 0; i < unit->modules->len; i++)
    f->group_of_module[g_array_index(unit->modules, int, i)] = index;
  g->gathered_elements = f->ranks * g->shard_elements;
  g->gathered = g->all_reduce_input = g->partial = NO_STORAGE;
  g->reshard_event = g->reduce_event = g->all_reduce_event = -1;
  unit->unsharded_bytes = g->gathered_elements * dtype_size(f->gathered);
  unit->shard_bytes = g->shard_elements * dtype_size(f->stored);
}

/* Which groups stay gathered after forward. */
static ReshardAfterForward
reshard_policy(const StrategyContext *x, const Fsdp2 *f, int index)
{
  const OptionValue *v = plan_spec_option(x->plan, "reshard_after_forward");
  const Group *g = &f->groups[index];
  int first = g->unit->modules->len > 0 ? g_array_index(g->unit->modules, int, 0) : 0;
  gboolean is_block = network_module(x->network, first)->block >= 0 && !fsdp_groups_given(x->plan);
  gboolean is_head = !is_block && !fsdp_groups_given(x->plan) &&
                     x->network->head_modules->len > 0 &&
                     first == g_array_index(x->network->head_modules, int, 0) && index > 0;
  if (index == 0 && !plan_spec_number(x->plan, "reshard_root"))
    return RESHARD_NO;
  if (is_head && !plan_spec_number(x->plan, "reshard_head"))
    return RESHARD_NO;
  int last_block = network_block(x->network, (int) x->network->blocks->len - 1)->module;
  if (is_block && !plan_spec_number(x->plan, "reshard_last_block") &&
      g_array_index(g->unit->modules, int, g->unit->modules->len - 1) == last_block)
    return RESHARD_NO;
  if (v->is_null)
    return index == 0 ? RESHARD_NO : RESHARD_YES; /* the library's default: all but the root */
  if (v->is_bool)
    return v->number ? RESHARD_YES : RESHARD_NO;
  if (v->number == 1)
    return RESHARD_NO;
  return v->number == f->ranks ? RESHARD_YES : RESHARD_SLICE;
}

static void
mark_ignored(StrategyContext *x)
{
  for (guint i = 0; i < x->network->parameters->len; i++) {
    const Parameter *p = network_parameter(x->network, (int) i);
    x->parameters[i].ignored = fsdp_ignores(x->plan, p->name);
    if (x->parameters[i].ignored)
      x->parameters[i].local_elements = p->elements;
  }
}

static void
setup(StrategyContext *x)
{
  Fsdp2 *f = x->state = g_new0(Fsdp2, 1);
  const PlanSpec *plan = x->plan;
  f->ranks = plan->shard;
  f->replicas = plan->replicate;
  f->stored = plan->precision.parameters;
  f->gathered = plan->precision.compute;
  f->reduce = plan->precision.reduce;
  f->offloads = x->offloads = plan_spec_number(plan, "cpu_offload") != 0;
  f->pins = f->offloads && plan_spec_number(plan, "pin_memory") != 0;
  f->previous_gather = f->reduce_input = NO_STORAGE;
  f->forward_root = -1;
  f->forward_order = g_array_new(FALSE, FALSE, sizeof(int));
  f->shard_communicator = program_builder_communicator(x->builder, "shard", f->ranks, 1);
  if (f->replicas > 1)
    f->replicate_communicator =
        program_builder_communicator(x->builder, "replicate", f->replicas, f->ranks);
  mark_ignored(x);
  make_units(x);
  f->count = (int) x->units->len;
  f->groups = g_new0(Group, f->count);
  f->shards = g_new0(Shard, x->network->parameters->len);
  f->group_of_module = g_new(int, x->network->modules->len);
  memset(f->group_of_module, -1, sizeof(int) * x->network->modules->len);
  order_parameters(x);
  for (int i = 0; i < f->count; i++)
    fill_group(x, f, i);
  const OptionValue *reshard = plan_spec_option(plan, "reshard_after_forward");
  for (int i = 0; i < f->count; i++) {
    Group *g = &f->groups[i];
    g->reshard_after_forward = reshard_policy(x, f, i);
    g->slice_ranks = g->reshard_after_forward == RESHARD_SLICE ? (int) reshard->number : f->ranks;
    if (g->reshard_after_forward == RESHARD_SLICE)
      f->slice_communicator = program_builder_communicator(x->builder, "slice", g->slice_ranks, 1);
  }
  fsdp2_set_prefetch(x, f);
}

static void
teardown(StrategyContext *x)
{
  Fsdp2 *f = fsdp2_of(x);
  for (int i = 0; i < f->count; i++) {
    Group *g = &f->groups[i];
    g_free(g->shard);
    g_free(g->full);
    g_free(g->slice);
    g_free(g->on_host_event);
    g_clear_pointer(&g->forward_prefetch, g_array_unref);
    g_clear_pointer(&g->backward_prefetch, g_array_unref);
  }
  g_free(f->groups);
  g_free(f->shards);
  g_free(f->group_of_module);
  g_array_unref(f->forward_order);
  g_free(f);
}

/* ---- construction: to_empty() on a sharded meta model ---- */

/* reset_sharded_param: a short shard is replaced by a padded one, one on the host by a page-locked
 * one. */
static void
reset_shard(StrategyContext *x, int parameter, const Shard *shard)
{
  if (shard->local_elements == shard->padded_elements && !fsdp2_of(x)->pins)
    return;
  StoragePurpose purpose = parameter_purpose(x, parameter, CATEGORY_PARAMETER);
  gint64 bytes = shard->padded_elements * dtype_size(fsdp2_of(x)->stored);
  StorageId old = x->parameters[parameter].sharded;
  x->parameters[parameter].sharded =
      live_storage_alloc_in(x->live, offload_space(fsdp2_of(x)), bytes, STREAM_COMPUTE, purpose);
  fsdp2_holds(x, parameter);
  live_storage_drop(x->live, old);
}

/* to_empty() where the policy says: on the host what it makes is pageable. */
static void
construct_parameter(StrategyContext *x, int parameter)
{
  ParameterState *state = &x->parameters[parameter];
  gint64 bytes = state->local_elements * dtype_size(fsdp2_of(x)->stored);
  StorageId old = state->sharded; /* a tied weight is visited twice */
  state->sharded =
      live_storage_alloc_in(x->live, fsdp2_of(x)->offloads ? SPACE_HOST : SPACE_DEVICE, bytes,
                            STREAM_COMPUTE, parameter_purpose(x, parameter, CATEGORY_PARAMETER));
  fsdp2_holds(x, parameter);
  live_storage_drop(x->live, old);
  if (state->ignored)
    state->unsharded = state->sharded;
}

/* A module that fully_shard was called on ends its _apply: its short shards are padded then.  The
 * root's last. */
static void
construct_module_end(StrategyContext *x, int module)
{
  const Fsdp2 *f = fsdp2_of(x);
  int index = f->group_of_module[module];
  if (index < 0)
    return;
  const Group *g = &f->groups[index];
  for (int i = 0; i < g->count; i++)
    if (strategy_module_contains(x->network, module,
                                 network_parameter(x->network, g->parameter[i])->module))
      reset_shard(x, g->parameter[i], &g->shard[i]);
}

static void
construct(StrategyContext *x)
{
  if (x->plan->phases.initialize.from == INITIALIZE_FULL) {
    fsdp2_construct_from_full(x);
    return;
  }
  strategy_visit_construction(x, construct_parameter, construct_module_end);
}

/* ---- hooks ---- */

static void
begin_micro_batch(StrategyContext *x)
{
  Fsdp2 *f = fsdp2_of(x);
  f->keep_unsharded = !x->plan->accumulation.reshard_after_backward && !x->last_micro_batch;
  for (int i = 0; i < f->count; i++)
    f->groups[i].reduced = FALSE;
}

static void
begin_step(StrategyContext *x)
{
  for (guint i = 0; i < x->units->len; i++) {
    Unit *unit = g_ptr_array_index(x->units, i);
    unit->all_gathers = unit->reduce_scatters = 0;
  }
}

/* _root_pre_forward, of the first module of a forward: gathers may not overtake the optimizer step.
 */
static void
root_pre_forward(StrategyContext *x, int unit)
{
  Fsdp2 *f = fsdp2_of(x);
  if (f->forward_root >= 0)
    return;
  f->forward_root = unit;
  wait_stream(x, STREAM_COPY_IN, STREAM_COMPUTE);
  wait_stream(x, STREAM_ALL_GATHER, STREAM_COMPUTE);
}

/* Its end lets the last all-gather output go (_post_forward). */
static void
root_post_forward(StrategyContext *x, int unit)
{
  Fsdp2 *f = fsdp2_of(x);
  if (f->forward_root != unit)
    return;
  f->forward_root = -1;
  if (f->previous_gather == NO_STORAGE)
    return;
  program_builder_wait(x->builder, STREAM_COPY_IN, f->previous_copy_event);
  program_builder_wait(x->builder, STREAM_ALL_GATHER, f->previous_copy_event);
  live_storage_clear(x->live, &f->previous_gather);
}

/* lazy_init() of the first forward finds that a weight was tied after it had been sharded, and
 * takes the other's shard in place of its own (FSDPParam.reset_sharded_param). */
static void
tie_shards(StrategyContext *x)
{
  for (guint i = 0; i < x->network->parameters->len; i++) {
    int other = network_parameter(x->network, (int) i)->shard_of;
    StorageId old = x->parameters[i].sharded;
    if (other < 0 || old == x->parameters[other].sharded)
      continue;
    x->parameters[i].sharded = x->parameters[other].sharded;
    live_storage_hold(x->live, x->parameters[i].sharded);
    live_storage_drop(x->live, old);
  }
}

static void
begin_forward(StrategyContext *x)
{
  begin_micro_batch(x);
  tie_shards(x);
  root_pre_forward(x, 0);
}

static void
before_forward(StrategyContext *x, int unit)
{
  Fsdp2 *f = fsdp2_of(x);
  Group *g = &f->groups[unit];
  program_builder_host_work(x->builder, HOST_WORK_HOOK, 1);
  if (g->count == 0) /* a root whose parameters all are in other groups */
    return;
  group_unshard(x, g);
  group_wait_for_unshard(x, g, TRUE);
  for (guint i = 0; g->forward_prefetch != NULL && i < g->forward_prefetch->len; i++)
    group_unshard(x, &f->groups[g_array_index(g->forward_prefetch, int, i)]);
}

static int
after_forward(StrategyContext *x, int unit)
{
  Fsdp2 *f = fsdp2_of(x);
  Group *g = &f->groups[unit];
  program_builder_host_work(x->builder, HOST_WORK_HOOK, 1);
  if (g->count == 0)
    return -1;
  g->held = strategy_retain(x, unit, g->count, g->full);
  if (g->reshard_after_forward == RESHARD_SLICE && !g->held)
    group_reshard_to_slice(x, g);
  else if (g->reshard_after_forward == RESHARD_YES)
    group_reshard(x, g);
  g_array_append_val(f->forward_order, unit);
  return (int) f->forward_order->len - 1;
}

/* The root's post-forward lets the last all-gather output go. */
static void
end_forward(StrategyContext *x)
{
  root_post_forward(x, 0);
}

/* A group around the checkpoint's region is in backward already, which gathered its parameters.
 * One inside of the region knows nothing of that: it begins a forward, from which its parameters
 * stay until its backward. */
static void
before_recompute(StrategyContext *x, int unit)
{
  Group *g = &fsdp2_of(x)->groups[unit];
  if (!g->in_backward) {
    root_pre_forward(x, unit);
    before_forward(x, unit);
    return;
  }
  group_unshard(x, g);
  group_wait_for_unshard(x, g, FALSE);
}

static void
after_recompute(StrategyContext *x, int unit)
{
  if (!fsdp2_of(x)->groups[unit].in_backward)
    root_post_forward(x, unit);
}

static void
before_backward(StrategyContext *x, int unit, int token)
{
  Fsdp2 *f = fsdp2_of(x);
  Group *g = &f->groups[unit];
  gboolean before = g->in_backward;
  g->in_backward = TRUE;
  program_builder_host_work(x->builder, HOST_WORK_HOOK, 1);
  if (g->count == 0 || before) /* of another output */
    return;
  group_unshard(x, g);
  group_wait_for_unshard(x, g, FALSE);
  if (g->backward_prefetch != NULL && g->backward_prefetch->len > 0) {
    for (guint i = 0; i < g->backward_prefetch->len; i++)
      group_unshard(x, &f->groups[g_array_index(g->backward_prefetch, int, i)]);
  } else if (token > 0) {
    group_unshard(x, &f->groups[g_array_index(f->forward_order, int, token - 1)]);
  }
}

static void
after_backward(StrategyContext *x, int unit)
{
  group_post_backward(x, &fsdp2_of(x)->groups[unit]);
}

/* FSDPState._root_post_backward_final_callback: state by state, a post_backward that has not run
 * (inputs that want no gradient have no node for it) and then finalize_backward. */
static void
end_backward(StrategyContext *x)
{
  Fsdp2 *f = fsdp2_of(x);
  gboolean last = x->last_micro_batch || !x->plan->accumulation.set_last_backward;
  for (int i = 0; i < f->count; i++) {
    Group *g = &f->groups[i];
    g->in_backward = FALSE;
    if (!g->reduced && g->count > 0)
      group_post_backward(x, g);
    if (!last)
      continue;
    group_wait_for_post_backward(x, g);
    offload_wait(x, g);
    group_drop_gather(x, g);
  }
  if (!last)
    return;
  g_array_set_size(f->forward_order, 0);
  if (f->reduce_input == NO_STORAGE)
    return;
  program_builder_wait(x->builder, STREAM_COMPUTE, f->reduce_input_event);
  live_storage_clear(x->live, &f->reduce_input);
}

static void
release(StrategyContext *x, int unit)
{
  Group *g = &fsdp2_of(x)->groups[unit];
  g->held = FALSE;
  group_reshard(x, g);
}

/* ---- closed form ---- */

/* Parameters that are gathered again in backward: stage 3; kept from forward on: stage 2. */
static int
zero_stage(StrategyContext *x)
{
  const Fsdp2 *f = fsdp2_of(x);
  if (f->ranks == 1)
    return 0;
  for (int i = 0; i < f->count; i++)
    if (f->groups[i].count > 0 && f->groups[i].reshard_after_forward != RESHARD_NO)
      return 3;
  return 2;
}

/* With set_is_last_backward(False) the order of the micro-batch before stays in place: the first
 * group of backward's end prefetches that one's last, which has been reduced already unless it is
 * the root.  The next forward uses what it gathers, the last micro-batch gives it up. */
static gint64
misled_prefetch(const Fsdp2 *f, const PlanSpec *plan)
{
  if (!plan->accumulation.set_last_backward || plan->accumulation.steps == 1 ||
      f->groups[0].count > 0)
    return 0;
  int first = 1, last = f->count - 1;
  while (first < last && f->groups[first].count == 0)
    first++;
  while (last > first && f->groups[last].count == 0)
    last--;
  return first < last ? f->groups[last].gathered_elements : 0;
}

/* Where backward comes to: the first group, in the order of forward, whose output requires a
 * gradient.  The root's hooks end last. */
static int
first_reached(const StrategyContext *x, const Fsdp2 *f)
{
  for (int i = 1; i < f->count; i++) {
    const GArray *modules = f->groups[i].unit->modules;
    if (f->groups[i].count > 0 &&
        strategy_output_requires_grad(x->network, g_array_index(modules, int, modules->len - 1)))
      return i;
  }
  return f->count;
}

/* The group before it is prefetched for nothing. */
static int
first_gathered_in_backward(const StrategyContext *x, const Fsdp2 *f)
{
  int i = first_reached(x, f) - 1;
  while (i > 0 && f->groups[i].count == 0)
    i--;
  return i;
}

/* Bytes of parameters that no group has. */
static gint64
ignored_bytes(const StrategyContext *x)
{
  gint64 bytes = 0;
  for (guint i = 0; i < x->network->parameters->len; i++)
    if (x->parameters[i].ignored)
      bytes += x->parameters[i].local_elements * dtype_size(fsdp2_of(x)->stored);
  return bytes;
}

/* Bytes of shards that are another parameter's. */
static gint64
tied_bytes(const StrategyContext *x)
{
  gint64 bytes = 0;
  for (guint i = 0; i < x->network->parameters->len; i++)
    if (network_parameter(x->network, (int) i)->shard_of >= 0)
      bytes += x->parameters[i].local_elements * dtype_size(fsdp2_of(x)->stored);
  return bytes;
}

/* Tensors whose norms are summed over ranks. */
static int
sharded_gradients(const StrategyContext *x)
{
  int count = 0;
  for (guint i = 0; i < x->network->parameters->len; i++)
    count += network_parameter(x->network, (int) i)->trainable &&
             network_parameter(x->network, (int) i)->shard_of < 0 && !x->parameters[i].ignored;
  return count;
}

/* Every group is gathered once in forward, and again in backward where it was resharded; its
 * gradients are reduced once in every micro-batch that synchronizes, and summed over replicas in
 * every n-th of them and the last. */
static ExpectedTotals
expected(StrategyContext *x)
{
  const Fsdp2 *f = fsdp2_of(x);
  const PlanSpec *plan = x->plan;
  ExpectedTotals total = {.parameter_bytes = ignored_bytes(x) - tied_bytes(x)};
  int steps = plan->accumulation.steps,
      synchronized = plan->accumulation.sync_every_step ? steps : 1;
  gint64 summed = ceil_div(synchronized, plan->accumulation.all_reduce_every);
  int kept_backward = plan->accumulation.reshard_after_backward ? 0 : steps - 1;
  int first = first_gathered_in_backward(x, f);
  for (int i = 0; i < f->count; i++) {
    const Group *g = &f->groups[i];
    gint64 gathers = steps - kept_backward;
    if (g->reshard_after_forward != RESHARD_NO && (i == 0 || i >= first))
      gathers += steps;
    if (f->ranks > 1)
      total.elements_gathered += gathers * g->gathered_elements;
    if (f->ranks > 1)
      total.elements_reduced += synchronized * f->ranks * g->reduced_elements;
    total.elements_all_reduced += f->replicas > 1 ? summed * g->reduced_elements : 0;
    if (g->reshard_after_forward == RESHARD_SLICE && i > 0 && i < first_reached(x, f))
      total.parameter_bytes += g->gathered_elements / g->slice_ranks * dtype_size(f->gathered);
    *(f->offloads ? &total.host_parameter_bytes : &total.parameter_bytes) +=
        g->shard_elements * dtype_size(f->stored);
  }
  if (f->ranks > 1)
    total.elements_gathered += misled_prefetch(f, plan);
  /* Their norms; those of gradients on the host are summed between hosts. */
  if (f->ranks > 1 && plan->optimizer.clip_grad_norm > 0 && !f->offloads)
    total.elements_all_reduced += sharded_gradients(x);
  /* Below the first group that is reached, other orders than the implicit one are not counted; and
   * modules inside of a block are not used in the order of their definition. */
  gboolean other_order = plan_spec_number(plan, "backward_prefetch") > 0 || kept_backward > 0 ||
                         plan->accumulation.set_last_backward;
  if ((first > 0 && other_order) || (fsdp_groups_given(plan) && strategy_freezes(x->network)))
    total.elements_gathered = EXPECTED_UNKNOWN;
  return total;
}

static StateSpread
spread(const StrategyContext *x)
{
  const Fsdp2 *f = x->state;
  return (StateSpread){f->ranks, f->ranks};
}

const Strategy strategy_fsdp2 = {
    .name = "fsdp2",
    .summary = "PyTorch fully_shard: parameters, gradients and optimizer state sharded by groups",
    .section = &fsdp_section,
    .sharded_norms = TRUE,
    .splits_tied = splits_tied,
    .casts_inputs = TRUE,
    .marks_inputs = TRUE,
    .accept = accept,
    .setup = setup,
    .construct = construct,
    .teardown = teardown,
    .begin_step = begin_step,
    .begin_forward = begin_forward,
    .before_forward = before_forward,
    .after_forward = after_forward,
    .end_forward = end_forward,
    .before_recompute = before_recompute,
    .after_recompute = after_recompute,
    .before_backward = before_backward,
    .after_backward = after_backward,
    .end_backward = end_backward,
    .release = release,
    .saves_states = TRUE,
    .begin_state = fsdp2_begin_state,
    .full_tensor = fsdp2_full_tensor,
    .state_ranks = fsdp2_state_ranks,
    .state_ranges = fsdp2_state_ranges,
    .zero_stage = zero_stage,
    .spread = spread,
    .expected = expected,
    .initializes = INITIALIZES_META | INITIALIZES_ON_DEVICE | INITIALIZES_ON_CPU,
};
