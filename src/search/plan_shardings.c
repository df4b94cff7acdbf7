/* plan_shardings.c - the ways to share a model over so many ranks. */
#include "search/plan_space_internal.h"

#include <string.h>

static char *
sharding_label(const PlanMesh *mesh)
{
  if (mesh->shard * mesh->replicate == 1)
    return g_strdup_printf("%s, one rank", mesh->strategy);
  if (mesh->shard == 1)
    return g_strdup_printf("%s, %d replicas", mesh->strategy, mesh->replicate);
  if (mesh->replicate == 1)
    return g_strdup_printf("%s, %d shards", mesh->strategy, mesh->shard);
  return g_strdup_printf("%s, %d shards x %d replicas", mesh->strategy, mesh->shard,
                         mesh->replicate);
}

/* A section of another strategy that an assignment names cannot be meant for this one. */
static gboolean
sections_allow(const RunRequest *base, const char *strategy)
{
  const Strategy *own = strategy_find(strategy);
  for (const Strategy *const *s = strategies(); *s != NULL; s++) {
    const OptionSection *section = (*s)->section;
    gboolean is_own =
        own->section != NULL && section != NULL && g_str_equal(own->section->name, section->name);
    if (section != NULL && !is_own && plan_space_is_given(base, section->name))
      return FALSE;
  }
  return TRUE;
}

static gboolean
assignments_allow(const RunRequest *base, const PlanSpec *plan, const PlanMesh *mesh)
{
  if (plan_space_is_given(base, "strategy") && !g_str_equal(plan->strategy, mesh->strategy))
    return FALSE;
  if (plan_space_is_given(base, "mesh.shard") && plan->shard != mesh->shard)
    return FALSE;
  if (plan_space_is_given(base, "mesh.replicate") && plan->replicate != mesh->replicate)
    return FALSE;
  return sections_allow(base, mesh->strategy);
}

static gboolean
has_sharding(const PlanSpace *space, const PlanMesh *mesh)
{
  for (guint i = 0; i < space->shardings->len; i++) {
    const PlanSharding *s = &g_array_index(space->shardings, PlanSharding, i);
    if (g_str_equal(s->strategy, mesh->strategy) && s->shard == mesh->shard &&
        s->replicate == mesh->replicate)
      return TRUE;
  }
  return FALSE;
}

static void
add_sharding(PlanSpace *space, const RunRequest *base, const PlanSpec *plan, const PlanMesh *mesh)
{
  if (has_sharding(space, mesh) || !assignments_allow(base, plan, mesh))
    return;
  char *text = plan_document_for(&base->inputs.plan, base->inputs.assignments, plan, mesh);
  if (text == NULL)
    return;
  PlanSharding sharding = {g_strdup(mesh->strategy), mesh->shard, mesh->replicate, *base};
  sharding.request.inputs.plan =
      (InputText){g_strdup(base->inputs.plan.name), text, strlen(text), NULL};
  sharding.request.inputs.assignments = NULL;
  sharding.request.rank = 0;
  g_autofree char *label = sharding_label(mesh);
  plan_space_add_choice(space, AXIS_SHARDING, label, "");
  g_array_append_val(space->shardings, sharding);
}

void
plan_space_fill_shardings(PlanSpace *space, const RunRequest *base, const PlanSpec *plan)
{
  int n = space->ranks;
  if (n == plan->shard * plan->replicate)
    add_sharding(space, base, plan, &(PlanMesh){plan->strategy, plan->shard, plan->replicate});
  space->base.at[AXIS_SHARDING] = space->shardings->len > 0 ? 0 : -1;
  if (n == 1) {
    add_sharding(space, base, plan, &(PlanMesh){"none", 1, 1});
    return;
  }
  for (int shard = n; shard >= 2; shard = shard % 2 == 0 ? shard / 2 : 0)
    add_sharding(space, base, plan, &(PlanMesh){"fsdp2", shard, n / shard});
  add_sharding(space, base, plan, &(PlanMesh){"ddp", 1, n});
  add_sharding(space, base, plan, &(PlanMesh){"zero1", n, 1});
  add_sharding(space, base, plan, &(PlanMesh){"zero2", n, 1});
  add_sharding(space, base, plan, &(PlanMesh){"zero3", n, 1});
}
