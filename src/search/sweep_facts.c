/* sweep_facts.c - the plans of a sweep's variants read before anything runs: unknown keys are
 * found, and what all of them have in common. */
#include "search/sweep_facts.h"

#include <string.h>

#include "base/units.h"
#include "spec/preset.h"

/* ---- facts ---- */

static char *
strategy_text(const PlanSpec *plan)
{
  return g_strdup(plan->strategy);
}

static char *
shard_text(const PlanSpec *plan)
{
  return g_strdup_printf("%d", plan->shard);
}

static char *
replicate_text(const PlanSpec *plan)
{
  return g_strdup_printf("%d", plan->replicate);
}

static gint64
global_batch(const PlanSpec *plan)
{
  gint64 tokens = 0, ranks = (gint64) plan->shard * plan->replicate;
  if (!checked_multiply((gint64) plan->micro_batch * plan->sequence_length,
                        ranks * plan->accumulation.steps, &tokens))
    return G_MAXINT64;
  return tokens;
}

static char *
global_batch_text(const PlanSpec *plan)
{
  g_autofree char *tokens = format_grouped(global_batch(plan));
  return g_strdup_printf("%s tokens", tokens);
}

static char *
batch_text(const PlanSpec *plan)
{
  return g_strdup_printf("%d x %d tokens x %d", plan->micro_batch, plan->sequence_length,
                         plan->accumulation.steps);
}

/* An option of the strategy's section, if it has it. */
static char *
option_text(const PlanSpec *plan, const char *key)
{
  int index = plan->section != NULL ? option_section_index(plan->section, key) : -1;
  if (index < 0)
    return NULL;
  const OptionInfo *option = &plan->section->options[index];
  const OptionValue *value = &plan->options[index];
  if (value->is_null)
    return g_strdup("default");
  if (value->is_bool || option->type == OPTION_BOOL)
    return g_strdup(value->number ? "true" : "false");
  if (option->type == OPTION_ENUM || value->is_name)
    return g_strdup(option->names[value->number]);
  return g_strdup_printf("%" G_GINT64_FORMAT, value->number);
}

static char *
reshard_text(const PlanSpec *plan)
{
  return option_text(plan, strcmp(plan->strategy, "fsdp1") == 0 ? "sharding_strategy"
                                                                : "reshard_after_forward");
}

static const struct {
  const char *name;
  char *(*text)(const PlanSpec *plan);
} fact_kinds[] = {
    {"strategy", strategy_text},  {"shard degree", shard_text},
    {"replicas", replicate_text}, {"global batch", global_batch_text},
    {"micro-batch", batch_text},  {"reshard after forward", reshard_text},
};

static void
fact_clear(gpointer data)
{
  g_free(((SweepFact *) data)->text);
}

GArray *
sweep_facts_new(void)
{
  GArray *facts = g_array_new(FALSE, TRUE, sizeof(SweepFact));
  g_array_set_clear_func(facts, fact_clear);
  for (guint i = 0; i < G_N_ELEMENTS(fact_kinds); i++) {
    SweepFact fact = {.name = fact_kinds[i].name};
    g_array_append_val(facts, fact);
  }
  return facts;
}

void
sweep_facts_free(GArray *facts)
{
  if (facts != NULL)
    g_array_unref(facts);
}

/* Of the first plan that can be read, then what the others leave of it. */
static void
compare_facts(GArray *facts, const PlanSpec *plan, gboolean is_first)
{
  for (guint i = 0; i < facts->len; i++) {
    SweepFact *fact = &g_array_index(facts, SweepFact, i);
    if (!is_first && fact->text == NULL)
      continue;
    g_autofree char *text = fact_kinds[i].text(plan);
    if (is_first)
      fact->text = g_steal_pointer(&text);
    else if (g_strcmp0(fact->text, text) != 0)
      g_clear_pointer(&fact->text, g_free);
  }
}

/* ---- inputs ---- */

/* What is known while plans are read. */
typedef struct {
  Sweep *sweep;
  const SweepRequest *request;
  PlanStrategy *strategies;
  GHashTable *checked; /* texts of networks and clusters that can be read */
  gint64 held;         /* global batch of all variants; 0: as their plans say */
  guint readable;
  GError *first_refusal;
} PlanReader;

static gboolean
check_inputs(PlanReader *reader, const ScenarioInputs *in, GError **error)
{
  if (g_hash_table_add(reader->checked, in->network.text)) {
    NetworkSpec *network =
        network_spec_parse(in->network.name, in->network.text, in->network.length, error);
    if (network == NULL)
      return FALSE;
    network_spec_free(network);
  }
  if (g_hash_table_add(reader->checked, in->cluster.text)) {
    ClusterSpec *cluster =
        cluster_spec_parse(in->cluster.name, in->cluster.text, in->cluster.length, error);
    if (cluster == NULL)
      return FALSE;
    cluster_spec_free(cluster);
  }
  return TRUE;
}

/* The plan of the base with these assignments after its own. */
static PlanSpec *
read_plan(const PlanReader *reader, const GPtrArray *assignments, GError **error)
{
  const ScenarioInputs *in = &reader->request->base->inputs;
  g_autoptr(GPtrArray) all = g_ptr_array_new();
  for (char **set = in->assignments; set != NULL && *set != NULL; set++)
    g_ptr_array_add(all, *set);
  for (guint i = 0; assignments != NULL && i + 1 < assignments->len; i++)
    g_ptr_array_add(all, g_ptr_array_index(assignments, i));
  g_ptr_array_add(all, NULL);
  PlanSpec *plan = plan_spec_parse(in->plan.name, in->plan.text, in->plan.length,
                                   (const char *const *) all->pdata, reader->strategies, error);
  if (plan == NULL)
    scenario_name_assignment((char *const *) all->pdata, error);
  return plan;
}

/* ---- the global batch ---- */

/* No value of any other key makes an unknown one known. */
static gboolean
is_unknown_key(const GError *error)
{
  return strstr(error->message, ": unknown key '") != NULL;
}

/* The plan without what is varied: it may be refused, but has no unknown keys, and the batch that
 * is held is its own. */
static gboolean
read_base(PlanReader *reader, GError **error)
{
  g_autoptr(GError) refusal = NULL;
  g_autoptr(PlanSpec) plan = read_plan(reader, NULL, &refusal);
  gboolean holds = reader->request->hold_global_batch;
  if (plan == NULL && (holds || is_unknown_key(refusal))) {
    g_propagate_error(error, g_steal_pointer(&refusal));
    return FALSE;
  }
  reader->held = holds ? global_batch(plan) : 0;
  return TRUE;
}

/* Gives the variant as many micro-batches as make up the batch. */
static PlanSpec *
hold_batch(const PlanReader *reader, SweepVariant *variant, PlanSpec *plan, GError **error)
{
  gint64 once = global_batch(plan) / plan->accumulation.steps;
  plan_spec_free(plan);
  if (reader->held % once != 0) {
    g_set_error(error, HIGHWATER_ERROR, HIGHWATER_ERROR_INPUT,
                "a global batch of %" G_GINT64_FORMAT
                " tokens is no multiple of the %" G_GINT64_FORMAT
                " that all ranks have in a micro-batch",
                reader->held, once);
    return NULL;
  }
  char *steps = g_strdup_printf("accumulation.steps=%" G_GINT64_FORMAT, reader->held / once);
  g_ptr_array_insert(variant->owned, (gint) variant->owned->len - 1, steps);
  return read_plan(reader, variant->owned, error);
}

/* ---- variants ---- */

static void
note_plan(PlanReader *reader, SweepVariant *variant, const PlanSpec *plan)
{
  Sweep *sweep = reader->sweep;
  variant->global_batch = global_batch(plan);
  gboolean is_first = reader->readable++ == 0;
  sweep->least_global_batch =
      is_first ? variant->global_batch : MIN(sweep->least_global_batch, variant->global_batch);
  sweep->most_global_batch = MAX(sweep->most_global_batch, variant->global_batch);
  compare_facts(sweep->facts, plan, is_first);
}

static gboolean
read_variant(PlanReader *reader, SweepVariant *variant, GError **error)
{
  if (!check_inputs(reader, &variant->request.inputs, error))
    return FALSE;
  g_autoptr(GError) refusal = NULL;
  PlanSpec *plan = read_plan(reader, variant->owned, &refusal);
  if (plan != NULL && reader->held > 0)
    plan = hold_batch(reader, variant, plan, &refusal);
  if (plan != NULL && !scenario_check_rank(plan, variant->request.rank, &refusal))
    g_clear_pointer(&plan, plan_spec_free);
  if (plan != NULL) {
    note_plan(reader, variant, plan);
    plan_spec_free(plan);
    return TRUE;
  }
  if (is_unknown_key(refusal)) {
    const char *set = "--set ", *message = refusal->message;
    message += g_str_has_prefix(message, set) ? strlen(set) : 0;
    g_set_error(error, HIGHWATER_ERROR, HIGHWATER_ERROR_USAGE, "--vary %s", message);
    return FALSE;
  }
  variant->outcome.refusal = g_strdup(refusal->message);
  variant->outcome.rank_without_room = -1;
  variant->is_done = TRUE;
  if (reader->first_refusal == NULL)
    reader->first_refusal = g_steal_pointer(&refusal);
  return TRUE;
}

static char *
title_of(const Sweep *sweep, const RunRequest *base)
{
  g_autofree char *network = preset_name_of(base->inputs.network.name);
  g_autofree char *plan = preset_name_of(base->inputs.plan.name);
  g_autofree char *cluster = preset_name_of(base->inputs.cluster.name);
  const char *names[] = {network, plan, cluster};
  const char *keys[] = {"network", "plan", "cluster"};
  GString *title = g_string_new(NULL);
  for (guint i = 0; i < G_N_ELEMENTS(names); i++) {
    gboolean is_varied = FALSE;
    for (guint k = 0; k < sweep->vary->axes->len; k++)
      is_varied |=
          g_str_equal(((VaryAxis *) g_ptr_array_index(sweep->vary->axes, k))->key, keys[i]);
    if (!is_varied)
      g_string_append_printf(title, "%s%s", title->len > 0 ? ", " : "", names[i]);
  }
  return g_string_free(title, FALSE);
}

static gboolean
read_all(PlanReader *reader, GError **error)
{
  if (!read_base(reader, error))
    return FALSE;
  for (guint i = 0; i < reader->sweep->variants->len; i++)
    if (!read_variant(reader, sweep_variant(reader->sweep, i), error))
      return FALSE;
  if (reader->readable > 0)
    return TRUE;
  g_propagate_error(error, g_steal_pointer(&reader->first_refusal));
  return FALSE;
}

gboolean
sweep_read_plans(Sweep *sweep, const SweepRequest *request, GError **error)
{
  PlanReader reader = {
      .sweep = sweep,
      .request = request,
      .strategies = strategy_plan_table(),
      .checked = g_hash_table_new(NULL, NULL),
  };
  sweep->title = title_of(sweep, request->base);
  gboolean is_read = read_all(&reader, error);
  g_clear_error(&reader.first_refusal);
  g_hash_table_unref(reader.checked);
  g_free(reader.strategies);
  return is_read;
}
