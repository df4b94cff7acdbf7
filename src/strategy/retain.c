/* retain.c - keeps full parameters and losses as a debugging hook or a list of the training script
 * would. */
#include "strategy/retain.h"

#include <string.h>

/* ---- which ---- */

static const RetainSpec *
find_spec(const StrategyContext *x, const char *name)
{
  for (guint i = 0; i < x->plan->retain->len; i++) {
    const RetainSpec *spec = g_ptr_array_index(x->plan->retain, i);
    if (strcmp(spec->group, name) == 0)
      return spec;
  }
  return NULL;
}

gboolean
retain_needs_groups(const PlanSpec *plan)
{
  for (guint i = 0; i < plan->retain->len; i++)
    if (strcmp(((const RetainSpec *) g_ptr_array_index(plan->retain, i))->group, RETAIN_LOSS) != 0)
      return TRUE;
  return FALSE;
}

/* A root whose parameters all are in other groups has none. */
static const Unit *
unit_at(const StrategyContext *x, guint i)
{
  const Unit *unit = g_ptr_array_index(x->units, i);
  return unit->parameters->len > 0 ? unit : NULL;
}

static gboolean
is_group(const StrategyContext *x, const char *name)
{
  for (guint i = 0; i < x->units->len; i++)
    if (unit_at(x, i) != NULL && g_str_equal(unit_at(x, i)->name, name))
      return TRUE;
  return FALSE;
}

static gboolean
is_module(const StrategyContext *x, const char *name)
{
  for (guint i = 1; i < x->network->modules->len; i++)
    if (g_str_equal(network_module(x->network, (int) i)->path, name))
      return TRUE;
  return FALSE;
}

gboolean
retain_accept(const StrategyContext *x, GError **error)
{
  for (guint i = 0; i < x->plan->retain->len; i++) {
    const RetainSpec *spec = g_ptr_array_index(x->plan->retain, i);
    gboolean clones = spec->as != RETAIN_UNSHARDED;
    if (is_group(x, spec->group) || (clones && is_module(x, spec->group)) ||
        (spec->as == RETAIN_REFERENCE && g_str_equal(spec->group, RETAIN_LOSS)))
      continue;
    g_autoptr(GString) names = g_string_new(NULL);
    for (guint k = 0; k < x->units->len; k++)
      if (unit_at(x, k) != NULL)
        g_string_append_printf(names, "%s%s", names->len > 0 ? ", " : "", unit_at(x, k)->name);
    return plan_spec_refuse(x->plan, error, "retain", "there is no group '%s': the groups are %s",
                            spec->group, names->str);
  }
  return TRUE;
}

/* ---- holding ---- */

static Retained *
hold(StrategyContext *x, const RetainSpec *spec, int unit)
{
  Retained *held = g_new0(Retained, 1);
  held->spec = spec;
  held->unit = unit;
  held->clones = g_array_new(FALSE, FALSE, sizeof(StorageId));
  g_ptr_array_add(x->retained, held);
  return held;
}

void
retain_free(gpointer retained)
{
  g_array_unref(((Retained *) retained)->clones);
  g_free(retained);
}

static void
clone(StrategyContext *x, Retained *held, int module, StorageId full, gint64 bytes)
{
  g_autofree char *what = g_strdup_printf("clone of %s held by plan's retain", held->spec->group);
  StoragePurpose purpose = {CATEGORY_UNSHARDED_PARAMETER, module,
                            program_builder_name(x->builder, what)};
  StorageId copy = live_storage_alloc(x->live, bytes, STREAM_COMPUTE, purpose);
  DType dtype = x->network->shape.precision.weights;
  program_builder_operand(x->builder, live_storage_tensor(x->live, full, dtype), ROLE_READ);
  program_builder_operand(x->builder, live_storage_tensor(x->live, copy, dtype), ROLE_WRITE);
  strategy_launch(x, STREAM_COMPUTE, "clone", 2.0 * (double) bytes);
  g_array_append_val(held->clones, copy);
}

gboolean
strategy_retain(StrategyContext *x, int unit_index, int count, const StorageId *full)
{
  const Unit *unit = g_ptr_array_index(x->units, (guint) unit_index);
  const RetainSpec *spec = find_spec(x, unit->name);
  if (spec == NULL || spec->as == RETAIN_REFERENCE)
    return FALSE; /* what a reference holds, resharding empties */
  Retained *held = hold(x, spec, unit_index);
  if (spec->as == RETAIN_UNSHARDED)
    return TRUE;
  for (int i = 0; i < count; i++)
    clone(x, held, g_array_index(unit->modules, int, 0), full[i],
          live_storage_bytes(x->live, full[i]));
  return FALSE;
}

void
retain_module(StrategyContext *x, int module)
{
  const RetainSpec *spec = find_spec(x, network_module(x->network, module)->path);
  if (spec == NULL || spec->as != RETAIN_CLONE || is_group(x, spec->group))
    return;
  Retained *held = hold(x, spec, -1);
  for (guint i = 0; i < x->network->parameters->len; i++) {
    const Parameter *p = network_parameter(x->network, (int) i);
    if (strategy_module_contains(x->network, module, p->module))
      clone(x, held, module, x->parameters[i].unsharded,
            p->elements * dtype_size(x->network->shape.precision.weights));
  }
}

void
retain_loss(StrategyContext *x, StorageId loss)
{
  const RetainSpec *spec = find_spec(x, RETAIN_LOSS);
  if (spec == NULL || loss == NO_STORAGE)
    return;
  live_storage_hold(x->live, loss);
  g_array_append_val(hold(x, spec, -1)->clones, loss);
}

void
strategy_release_retained(StrategyContext *x, const Strategy *strategy, RetainUntil moment)
{
  for (guint i = 0; i < x->retained->len;) {
    Retained *held = g_ptr_array_index(x->retained, i);
    if (held->spec->until != moment) {
      i++;
      continue;
    }
    for (guint k = 0; k < held->clones->len; k++)
      live_storage_drop(x->live, g_array_index(held->clones, StorageId, k));
    if (held->spec->as == RETAIN_UNSHARDED)
      strategy->release(x, held->unit);
    g_ptr_array_remove_index(x->retained, i);
  }
}
