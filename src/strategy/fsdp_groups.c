/* fsdp_groups.c - groups that the plan lists by the paths of their modules: one call of fully_shard
 * (or of FSDP1's constructor) each, in that order. */
#include "strategy/fsdp_groups.h"

#include <string.h>

#include "base/nearest_name.h"

/* What a list of the plan has matched. */
typedef struct {
  GArray *modules; /* int: as they were listed */
  int first;       /* the least of them */
} ListedGroup;

static void
listed_group_free(gpointer data)
{
  ListedGroup *group = data;
  g_array_unref(group->modules);
  g_free(group);
}

static GPtrArray *
lists_of(const PlanSpec *plan)
{
  return plan_spec_option(plan, "groups")->lists;
}

gboolean
fsdp_groups_given(const PlanSpec *plan)
{
  return lists_of(plan) != NULL;
}

/* ---- matching ---- */

/* "*" and "?" stand for what is between dots. */
static gboolean
path_matches(const char *pattern, const char *path)
{
  g_auto(GStrv) wanted = g_strsplit(pattern, ".", -1);
  g_auto(GStrv) parts = g_strsplit(path, ".", -1);
  guint n = g_strv_length(wanted);
  gboolean matches = n == g_strv_length(parts);
  for (guint i = 0; i < n && matches; i++)
    matches = g_pattern_match_simple(wanted[i], parts[i]);
  return matches;
}

static const char *
path_of(const Network *network, int module)
{
  return network_module(network, module)->path;
}

static gboolean
refuse_unmatched(const PlanSpec *plan, const Network *network, const char *name, GError **error)
{
  g_autofree const char **paths = g_new0(const char *, network->modules->len + 1);
  for (guint i = 1; i < network->modules->len; i++)
    paths[i - 1] = path_of(network, (int) i);
  const char *nearest = nearest_name(name, paths);
  return plan_spec_refuse(plan, error, "fsdp.groups", "no module matches '%s'%s%s%s", name,
                          nearest ? "; did you mean '" : "", nearest ? nearest : "",
                          nearest ? "'?" : "");
}

static ListedGroup *
new_group(GPtrArray *groups)
{
  ListedGroup *group = g_new0(ListedGroup, 1);
  group->modules = g_array_new(FALSE, FALSE, sizeof(int));
  group->first = G_MAXINT;
  g_ptr_array_add(groups, group);
  return group;
}

static void
add_module(ListedGroup *group, int module)
{
  g_array_append_val(group->modules, module);
  group->first = MIN(group->first, module);
}

/* All that a name matches, in the order of named_modules(); a single name makes a group of each. */
static gboolean
match_name(const PlanSpec *plan, const Network *network, const char *name, gboolean single,
           GPtrArray *groups, GError **error)
{
  gboolean matched = FALSE;
  for (int i = 0; i < (int) network->modules->len; i++) {
    if (!path_matches(name, path_of(network, i)))
      continue;
    add_module(single ? new_group(groups) : g_ptr_array_index(groups, groups->len - 1), i);
    matched = TRUE;
  }
  return matched || refuse_unmatched(plan, network, name, error);
}

static GPtrArray *
match_lists(const PlanSpec *plan, const Network *network, GError **error)
{
  g_autoptr(GPtrArray) groups = g_ptr_array_new_with_free_func(listed_group_free);
  const GPtrArray *lists = lists_of(plan);
  for (guint i = 0; i < lists->len; i++) {
    const NameList *list = g_ptr_array_index(lists, i);
    if (!list->is_single)
      new_group(groups);
    for (char **name = list->names; *name != NULL; name++)
      if (!match_name(plan, network, *name, list->is_single, groups, error))
        return NULL;
  }
  return g_steal_pointer(&groups);
}

/* ---- what PyTorch refuses, or nothing here simulates ---- */

static gboolean
accept_module(const PlanSpec *plan, const Network *network, const int *calls, int module,
              GError **error)
{
  const Module *m = network_module(network, module);
  if (module == 0)
    return plan_spec_refuse(plan, error, "fsdp.groups",
                            "the model itself is a group without being listed: of what is left");
  if (calls[module] < 0)
    return plan_spec_refuse(plan, error, "fsdp.groups",
                            "'%s' is never called, so that no hook of its own could run", m->path);
  return TRUE;
}

/* What lies inside of a block, and not only around it. */
static gboolean
accept_inside(const PlanSpec *plan, const Network *network, int module, gboolean in_checkpoints,
              GError **error)
{
  const Module *m = network_module(network, module);
  if (m->block < 0 || network_block(network, m->block)->module == module)
    return TRUE;
  if (plan->compile_per_block)
    return plan_spec_refuse(plan, error, "fsdp.groups",
                            "'%s' lies inside of a compiled block: not yet supported", m->path);
  if (!in_checkpoints && plan_spec_checkpoints(plan, m->block))
    return plan_spec_refuse(plan, error, "fsdp.groups",
                            "'%s' lies inside of a checkpointed block: not yet supported with %s",
                            m->path, plan->strategy);
  return TRUE;
}

/* owner: which group of those before took a module, itself or with one that it lies in; -1. */
static gboolean
accept_group(const PlanSpec *plan, const Network *network, const ListedGroup *group, int index,
             int *owner, GError **error)
{
  int modules = (int) network->modules->len;
  for (guint i = 0; i < group->modules->len; i++) {
    int module = g_array_index(group->modules, int, i);
    if (owner[module] >= 0)
      return plan_spec_refuse(plan, error, "fsdp.groups", "'%s' is in %s", path_of(network, module),
                              owner[module] == index
                                  ? "one list twice, or inside of another module of it"
                                  : "two groups, or inside of one that is listed before it");
    for (int inner = module; inner < modules; inner++)
      if (strategy_module_contains(network, module, inner) && owner[inner] < 0)
        owner[inner] = index;
  }
  return TRUE;
}

/* Has the group parameters that none before it took? */
static gboolean
accept_parameters(const PlanSpec *plan, const Network *network, const ListedGroup *group, int index,
                  const int *owner, GError **error)
{
  for (guint i = 0; i < network->parameters->len; i++)
    if (owner[network_parameter(network, (int) i)->module] == index)
      return TRUE;
  return plan_spec_refuse(plan, error, "fsdp.groups", "no parameters are left for the group '%s'",
                          path_of(network, g_array_index(group->modules, int, 0)));
}

/* A group knows nothing of other modules that share its weight: they would keep a full one. */
static gboolean
accept_tied(const PlanSpec *plan, const Network *network, const int *owner, GError **error)
{
  for (guint i = 0; i < network->ties->len; i++) {
    const Tie *tie = network_tie(network, (int) i);
    int weight = network_parameter(network, tie->parameter)->module;
    if (tie->module >= 0 && owner[tie->module] != owner[weight])
      return plan_spec_refuse(plan, error, "fsdp.groups",
                              "'%s' and '%s' share a weight: put them into one list, or into none",
                              path_of(network, weight), path_of(network, tie->module));
  }
  return TRUE;
}

static gboolean
accept_other_options(const PlanSpec *plan, GError **error)
{
  static const struct {
    const char *key;
    gint64 kept;
  } others[] = {{"blocks_per_group", 1},
                {"embedding", 0},
                {"head", 0},
                {"reshard_head", 0},
                {"reshard_last_block", 1}};
  for (guint i = 0; i < G_N_ELEMENTS(others); i++) {
    g_autofree char *key = g_strconcat("fsdp.", others[i].key, NULL);
    if (plan_spec_number(plan, others[i].key) != others[i].kept)
      return plan_spec_refuse(plan, error, key,
                              "fsdp.groups lists all groups: leave this key out, or null");
  }
  return TRUE;
}

gboolean
fsdp_groups_accept(const PlanSpec *plan, const Network *network, gboolean in_checkpoints,
                   GError **error)
{
  if (!fsdp_groups_given(plan))
    return TRUE;
  if (!accept_other_options(plan, error))
    return FALSE;
  g_autoptr(GPtrArray) groups = match_lists(plan, network, error);
  g_autofree int *owner = g_new(int, network->modules->len);
  g_autofree int *calls = network_call_order(network);
  memset(owner, -1, sizeof(int) * network->modules->len);
  for (guint i = 0; groups != NULL && i < groups->len; i++) {
    const ListedGroup *group = g_ptr_array_index(groups, i);
    for (guint k = 0; k < group->modules->len; k++) {
      int module = g_array_index(group->modules, int, k);
      if (!accept_module(plan, network, calls, module, error) ||
          !accept_inside(plan, network, module, in_checkpoints, error))
        return FALSE;
    }
    if (!accept_group(plan, network, group, (int) i, owner, error) ||
        !accept_parameters(plan, network, group, (int) i, owner, error))
      return FALSE;
  }
  return groups != NULL && accept_tied(plan, network, owner, error);
}

/* ---- units ---- */

static int
compare_first(gconstpointer a, gconstpointer b)
{
  const ListedGroup *one = *(ListedGroup *const *) a, *other = *(ListedGroup *const *) b;
  return one->first - other->first;
}

/* The last module of `module` and all that lie in it. */
static int
last_inside(const Network *network, int module)
{
  int last = module;
  while (last + 1 < (int) network->modules->len &&
         strategy_module_contains(network, module, last + 1))
    last++;
  return last;
}

/* Forward begins with the module that is called first and ends with the one called last, whatever
 * their order in the list (_register_group_forward_hooks). */
static void
set_hooks(StrategyContext *x, const ListedGroup *group, int unit, const int *calls)
{
  int first = g_array_index(group->modules, int, 0), last = first;
  for (guint i = 0; i < group->modules->len; i++) {
    int module = g_array_index(group->modules, int, i);
    g_array_index(x->unit_begins, int, module) = g_array_index(x->unit_ends, int, module) = -1;
    first = calls[module] < calls[first] ? module : first;
    last = calls[module] > calls[last] ? module : last;
  }
  g_array_index(x->unit_begins, int, first) = unit;
  g_array_index(x->unit_ends, int, last) = unit;
}

void
fsdp_groups_owners(const PlanSpec *plan, const Network *network, int *owner)
{
  g_autoptr(GPtrArray) groups = match_lists(plan, network, NULL);
  for (guint i = 0; groups != NULL && i < groups->len; i++) {
    const GArray *modules = ((const ListedGroup *) g_ptr_array_index(groups, i))->modules;
    for (guint k = 0; k < modules->len; k++) {
      int module = g_array_index(modules, int, k), last = last_inside(network, module);
      for (guint p = 0; p < network->parameters->len; p++) {
        int of = network_parameter(network, (int) p)->module;
        if (of >= module && of <= last && owner[p] < 0)
          owner[p] = (int) i;
      }
    }
  }
}

void
fsdp_groups_make_units(StrategyContext *x, int *owner)
{
  const Network *n = x->network;
  g_autoptr(GPtrArray) groups = match_lists(x->plan, n, NULL);
  g_autoptr(GPtrArray) sorted = g_ptr_array_new();
  g_autofree int *calls = network_call_order(n);
  for (guint i = 0; i < groups->len; i++)
    g_ptr_array_add(sorted, g_ptr_array_index(groups, i));
  g_ptr_array_sort(sorted, compare_first);
  int base = (int) x->units->len;
  for (guint i = 0; i < sorted->len; i++) {
    const ListedGroup *group = g_ptr_array_index(sorted, i);
    strategy_new_unit(x, path_of(n, g_array_index(group->modules, int, 0)));
  }
  for (guint i = 0; i < groups->len; i++) { /* in the order of the calls: who comes first owns */
    const ListedGroup *group = g_ptr_array_index(groups, i);
    guint place = 0;
    while (g_ptr_array_index(sorted, place) != group)
      place++;
    int unit = base + (int) place;
    ((Unit *) g_ptr_array_index(x->units, (guint) unit))->made = base + (int) i;
    for (guint k = 0; k < group->modules->len; k++) {
      int module = g_array_index(group->modules, int, k);
      strategy_add_module(x, unit, module, last_inside(n, module), owner);
    }
    set_hooks(x, group, unit, calls);
  }
}

static int
first_call(const StrategyContext *x, const int *calls, int index)
{
  const Unit *unit = g_ptr_array_index(x->units, (guint) index);
  int first = G_MAXINT;
  for (guint i = 0; i < unit->modules->len; i++)
    first = MIN(first, calls[g_array_index(unit->modules, int, i)]);
  return first;
}

typedef struct {
  int call, unit;
} CalledUnit;

static int
compare_calls(gconstpointer a, gconstpointer b)
{
  return ((const CalledUnit *) a)->call - ((const CalledUnit *) b)->call;
}

void
fsdp_groups_sort_by_call(const StrategyContext *x, GArray *units)
{
  g_autofree int *calls = network_call_order(x->network);
  g_autoptr(GArray) called = g_array_new(FALSE, FALSE, sizeof(CalledUnit));
  for (guint i = 0; i < units->len; i++) {
    int unit = g_array_index(units, int, i);
    CalledUnit entry = {first_call(x, calls, unit), unit};
    g_array_append_val(called, entry);
  }
  g_array_sort(called, compare_calls);
  for (guint i = 0; i < units->len; i++)
    g_array_index(units, int, i) = g_array_index(called, CalledUnit, i).unit;
}
