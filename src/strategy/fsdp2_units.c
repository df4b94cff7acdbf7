/* fsdp2_units.c - which modules are a group each, and in which order a group has its parameters. */
#include "strategy/fsdp2_private.h"
#include "strategy/fsdp_groups.h"
#include "strategy/fsdp_options.h"

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

void
fsdp2_make_units(StrategyContext *x)
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

void
fsdp2_order_parameters(StrategyContext *x)
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
