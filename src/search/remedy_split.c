/* remedy_split.c - a plan's groups as lists, the largest of them in two.
 *
 * Of a module that is a group by itself one child becomes a group of its own, the one that leaves
 * the least in the larger half; of several modules each. */
#include "base/json_output.h"
#include "search/remedy_kinds.h"
#include <string.h>

/* Parameters in a module and all that lie in it. */
static gint64
parameters_under(const Network *network, const char *path)
{
  gsize length = strlen(path);
  gint64 sum = 0;
  for (guint i = 0; i < network->parameters->len; i++) {
    const Parameter *parameter = network_parameter(network, (int) i);
    if (strncmp(parameter->name, path, length) == 0 && parameter->name[length] == '.')
      sum += parameter->elements;
  }
  return sum;
}

static int
find_module(const Network *network, const char *path)
{
  for (guint i = 0; i < network->modules->len; i++)
    if (g_str_equal(network_module(network, (int) i)->path, path))
      return (int) i;
  return -1;
}

/* The module in it, at any depth, that comes nearest to half of its parameters; NULL: one holds
 * all. */
static const char *
half_of(const Network *network, const char *path)
{
  int module = find_module(network, path);
  gint64 all = parameters_under(network, path), least = all;
  gsize length = strlen(path);
  const char *half = NULL;
  for (int i = module + 1; module >= 0 && i < (int) network->modules->len; i++) {
    const char *inner = network_module(network, i)->path;
    if (strncmp(inner, path, length) != 0 || inner[length] != '.')
      break;
    gint64 part = parameters_under(network, inner), larger = MAX(part, all - part);
    if (part > 0 && larger < least) {
      least = larger;
      half = inner;
    }
  }
  return half;
}

static const char *
first_module(const GroupInfo *group)
{
  return g_ptr_array_index(group->modules, 0);
}

static gboolean
is_root(const GroupInfo *group)
{
  return *first_module(group) == '\0';
}

static gint64
largest_group(const GArray *groups)
{
  gint64 largest = 0;
  for (guint i = 0; i < groups->len; i++)
    largest = MAX(largest, g_array_index(groups, GroupInfo, i).parameters);
  return largest;
}

/* "layers.*" when each block is a group by itself; NULL: they are not.  *alike: they are as large
 * as each other. */
static char *
pattern_of_blocks(const RemedyPlan *p, gboolean *alike)
{
  const Network *network = p->network;
  guint found = 0;
  gint64 parameters = 0;
  const char *first = network->blocks->len > 0
                          ? network_module(network, network_block(network, 0)->module)->path
                          : "";
  const char *dot = strrchr(first, '.');
  gsize head = dot != NULL ? (gsize) (dot - first) + 1 : 0;
  *alike = TRUE;
  for (guint i = 0; i < p->info->groups->len && head > 0; i++) {
    const GroupInfo *group = &g_array_index(p->info->groups, GroupInfo, i);
    if (strncmp(first_module(group), first, head) != 0)
      continue;
    if (group->modules->len != 1 || strchr(first_module(group) + head, '.') != NULL)
      return NULL;
    *alike = *alike && (found == 0 || group->parameters == parameters);
    parameters = group->parameters;
    found++;
  }
  return found > 1 && found == network->blocks->len ? g_strdup_printf("%.*s*", (int) head, first)
                                                    : NULL;
}

static void
add_name(cJSON *lists, const char *name)
{
  cJSON_AddItemToArray(lists, cJSON_CreateString(name));
}

/* One half of a group that is a module, which has to stand before the module that it lies in: it
 * takes its parameters.  FALSE: the module has no parts. */
static gboolean
add_half(const RemedyPlan *p, const GroupInfo *group, const char *pattern, cJSON *lists)
{
  const char *path = first_module(group), *half = half_of(p->network, path);
  if (half == NULL)
    return FALSE;
  g_autofree char *inner = g_strconcat(pattern != NULL ? pattern : path, half + strlen(path), NULL);
  add_name(lists, inner);
  return TRUE;
}

/* A group in two; FALSE: it is one module without parts. */
static gboolean
add_split(const RemedyPlan *p, const GroupInfo *group, cJSON *lists)
{
  if (group->modules->len == 1) {
    if (!add_half(p, group, NULL, lists))
      return FALSE;
    add_name(lists, first_module(group));
    return TRUE;
  }
  for (guint i = 0; i < group->modules->len; i++)
    add_name(lists, g_ptr_array_index(group->modules, i));
  return TRUE;
}

static void
add_whole(const GroupInfo *group, cJSON *lists)
{
  if (group->modules->len == 1) {
    add_name(lists, first_module(group));
    return;
  }
  cJSON *list = cJSON_CreateArray();
  for (guint i = 0; i < group->modules->len; i++)
    add_name(list, g_ptr_array_index(group->modules, i));
  cJSON_AddItemToArray(lists, list);
}

/* All blocks by their pattern, behind the halves of the largest; returns how many are split. */
static int
list_blocks(const RemedyPlan *p, const char *pattern, gboolean alike, gint64 largest, cJSON *lists)
{
  int split = 0;
  for (guint i = 0; i < p->info->groups->len; i++) {
    const GroupInfo *group = &g_array_index(p->info->groups, GroupInfo, i);
    if (group->parameters != largest || !g_pattern_match_simple(pattern, first_module(group)))
      continue;
    split += add_half(p, group, alike ? pattern : NULL, lists);
    if (alike)
      break;
  }
  add_name(lists, pattern);
  return split;
}

/* All groups but the root's; returns how many are split. */
static int
list_groups(const RemedyPlan *p, cJSON *lists)
{
  gboolean alike, blocks_done = FALSE;
  g_autofree char *pattern = pattern_of_blocks(p, &alike);
  gint64 largest = largest_group(p->info->groups);
  int split = 0;
  for (guint i = 0; i < p->info->groups->len; i++) {
    const GroupInfo *group = &g_array_index(p->info->groups, GroupInfo, i);
    gboolean is_block = pattern != NULL && g_pattern_match_simple(pattern, first_module(group));
    if (is_root(group) || (is_block && blocks_done))
      continue;
    blocks_done |= is_block;
    if (is_block)
      split += list_blocks(p, pattern, alike, largest, lists);
    else if (group->parameters == largest && add_split(p, group, lists))
      split++;
    else
      add_whole(group, lists);
  }
  return split;
}

/* Keys that say otherwise what a group is have to be at their defaults. */
static void
add_defaults(const RemedyPlan *p, GPtrArray *assignments)
{
  static const char *const keys[] = {"blocks_per_group", "embedding", "head", "reshard_head",
                                     "reshard_last_block"};
  for (guint i = 0; i < G_N_ELEMENTS(keys); i++)
    if (plan_spec_option(p->plan, keys[i])->given)
      g_ptr_array_add(assignments, g_strdup_printf("fsdp.%s=null", keys[i]));
}

void
remedy_split_largest(const RemedyPlan *p, GPtrArray *proposals)
{
  if (!g_str_has_prefix(p->plan->strategy, "fsdp"))
    return;
  /* Fewer blocks in a group is a change of its own. */
  if (plan_spec_option(p->plan, "groups")->lists == NULL &&
      plan_spec_number(p->plan, "blocks_per_group") != 1)
    return;
  cJSON *lists = cJSON_CreateArray();
  if (list_groups(p, lists) > 0) {
    g_autofree char *text = json_line(lists);
    GPtrArray *assignments = g_ptr_array_new();
    g_ptr_array_add(assignments, g_strdup_printf("fsdp.groups=%s", text));
    add_defaults(p, assignments);
    g_ptr_array_add(assignments, NULL);
    g_ptr_array_add(proposals, g_ptr_array_free(assignments, FALSE));
  }
  cJSON_Delete(lists);
}
