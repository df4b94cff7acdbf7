/* zero3_leaf.c - modules that stage 3 fetches and reduces with all that is in them: its default
 * leaf modules (runtime/zero/leaf_module_config.py, utils/z3_leaf_module.py). */
#include "strategy/zero3_private.h"

/* DEFAULT_LEAF_MODULE_CLASSES: mixtures of experts of transformers. */
static const char *const leaf_classes[] = {"MixtralSparseMoeBlock", "Qwen2MoeSparseMoeBlock",
                                           "Qwen3MoeSparseMoeBlock", NULL};

void
leaf_init(StrategyContext *x)
{
  guint n = x->network->modules->len;
  int *leaf = zero3_of(x)->leaf = g_new(int, MAX(n, 1));
  for (guint i = 0; i < n; i++) {
    const Module *m = network_module(x->network, (int) i);
    leaf[i] = m->parent >= 0 ? leaf[m->parent] : -1;
    if (leaf[i] < 0 && g_strv_contains(leaf_classes, m->type))
      leaf[i] = (int) i;
  }
}

/* The hook that reduces a leaf module's gradients runs when its input's are there; of an input that
 * wants none PyTorch runs it before the module's backward. */
gboolean
leaf_accept(const PlanSpec *plan, const Network *network, GError **error)
{
  gboolean before = FALSE;
  for (guint i = 0; i < network->parameters->len; i++) {
    const Parameter *p = network_parameter(network, (int) i);
    int module = p->module;
    while (module >= 0 && !g_strv_contains(leaf_classes, network_module(network, module)->type))
      module = network_module(network, module)->parent;
    if (p->trainable && module >= 0 && !before)
      return plan_spec_refuse(
          plan, error, "trainable",
          "not yet supported: DeepSpeed reduces %.120s, whose input requires no "
          "gradient, before there is one",
          network_module(network, module)->path);
    before |= p->trainable;
  }
  return TRUE;
}

/* The leaf module that a module is, or is in; -1: none.  A checkpoint's wrapper is in none. */
static int
leaf_of(const StrategyContext *x, int module)
{
  return module < (int) x->network->modules->len ? zero3_of(x)->leaf[module] : -1;
}

int
leaf_of_parameter(const StrategyContext *x, int parameter)
{
  return leaf_of(x, network_parameter(x->network, parameter)->module);
}

gboolean
leaf_hooks_module(const StrategyContext *x, int module)
{
  int leaf = leaf_of(x, module);
  return leaf < 0 || leaf == module;
}

/* The first of its parameters, which follow each other; returns how many they are, 0 for a module
 * that is no leaf. */
static int
leaf_parameters(const StrategyContext *x, int module, int *first)
{
  int count = 0;
  for (int i = 0; module >= 0 && leaf_of(x, module) == module && i < zero3_of(x)->count; i++)
    if (leaf_of_parameter(x, i) == module) {
      *first = count == 0 ? i : *first;
      count++;
    }
  return count;
}

int
zero3_module_parameters(const StrategyContext *x, int module)
{
  int first;
  if (module >= (int) x->network->modules->len) /* a checkpoint's wrapper has none */
    return 0;
  if (leaf_of(x, module) == module)
    return leaf_parameters(x, module, &first);
  return network_module_parameters(x->network, module);
}

int
zero3_module_parameter(const StrategyContext *x, int module, int i)
{
  int first = 0;
  if (leaf_parameters(x, module, &first) > 0)
    return first + i;
  return network_module_parameter(x->network, module, i);
}

void
leaf_reduce(StrategyContext *x, int module)
{
  int first = 0, n = leaf_parameters(x, module, &first);
  for (int i = first; i < first + n; i++)
    if (zero3_of(x)->parameter[i].trains)
      gradients_add(x, i);
}
