/* network_summary_text.c - the summary of a network for people. */
#include "base/text_table.h"
#include "base/units.h"
#include "report/network_summary.h"

/* "weight [4096, 4096], bias [4096]"; caller frees. */
static char *
weights_text(const Network *network, const Module *module)
{
  GString *text = g_string_new(NULL);
  for (int i = 0; i < module->parameter_count; i++) {
    const Parameter *p = network_parameter(network, module->first_parameter + i);
    g_string_append_printf(text, "%s%s [", i > 0 ? ", " : "", parameter_short_name(p));
    for (int k = 0; k < p->dims; k++)
      g_string_append_printf(text, "%s%" G_GINT64_FORMAT, k > 0 ? ", " : "", p->shape[k]);
    g_string_append_c(text, ']');
  }
  return g_string_free(text, FALSE);
}

static void
print_heading(const NetworkSummary *s, const char *separator, GString *out)
{
  const Network *n = s->network;
  g_autofree char *exact = format_grouped(network_usual_count(n));
  g_autofree char *trained = format_grouped(s->parameters);
  g_autofree char *frozen = format_grouped(s->parameters - s->trainable_parameters);
  if (g_str_equal(s->network->family, "ops"))
    g_string_append_printf(out, "%s%sas it was recorded%s%s parameters", s->network->name,
                           separator, separator, exact);
  else
    g_string_append_printf(out, "%s%s%s, as %s computes it%s%s parameters", s->network->name,
                           separator, s->network->family,
                           implementation_code_name(s->spec->implementation.code), separator,
                           exact);
  if (n->base_parameters > 0)
    g_string_append_printf(out, " as %s; trained as %s with %s", n->base_class, n->trained_class,
                           trained);
  if (s->trainable_parameters < s->parameters)
    g_string_append_printf(out, ", %s of them frozen", frozen);
  g_string_append(out, "\n\n");
}

static void
print_modules(const NetworkSummary *s, GString *out)
{
  g_autoptr(TextTable) table = text_table_new("llrrl");
  text_table_row(table, "Module", "type", "parameters", "of each", "its own", NULL);
  for (guint i = 0; i < s->modules->len; i++) {
    const ModuleLine *line = &g_array_index(s->modules, ModuleLine, i);
    const Module *module = network_module(s->network, line->module);
    g_autofree char *parameters = format_grouped(line->parameters);
    g_autofree char *each = format_grouped(line->parameters / line->count);
    g_autofree char *weights = weights_text(s->network, module);
    text_table_row(table, *line->path != '\0' ? line->path : "(all)", module->type,
                   line->parameters > 0 ? parameters : "", line->count > 1 ? each : "", weights,
                   NULL);
  }
  text_table_print(table, 0, out);
  for (guint i = 0; i < s->network->ties->len; i++) {
    const Tie *tie = network_tie(s->network, (int) i);
    if (tie->module >= 0)
      g_string_append_printf(out, "%s has the weight of %s.\n",
                             network_module(s->network, tie->module)->path,
                             network_parameter(s->network, tie->parameter)->name);
  }
}

static void
print_flops(const NetworkSummary *s, GString *out)
{
  g_string_append_printf(out,
                         "\nFLOPs per token, in sequences of %d tokens: forward %.4g G, backward "
                         "%.4g G; by the convention 6 N + 12 L A s %.4g G\n",
                         s->plan->sequence_length, s->flops_per_token.forward / 1e9,
                         s->flops_per_token.backward / 1e9, s->model_flops_per_token / 1e9);
}

static void
print_activations(const NetworkSummary *s, GString *out)
{
  static const CheckpointPolicy policies[] = {CHECKPOINT_NONE, CHECKPOINT_SELECTIVE_OP,
                                              CHECKPOINT_FULL};
  g_autoptr(TextTable) table = text_table_new("lrrr");
  g_string_append_printf(out,
                         "\nA block keeps, between its forward and its backward (%d x %d tokens, "
                         "%s), by checkpointing policy\n",
                         s->plan->micro_batch, s->plan->sequence_length,
                         dtype_name(s->network->shape.precision.matmul));
  text_table_row(table, "", checkpoint_policy_name(policies[0]),
                 checkpoint_policy_name(policies[1]), checkpoint_policy_name(policies[2]), NULL);
  for (guint i = 0; i < s->blocks->len; i++) {
    const BlockLine *line = &g_array_index(s->blocks, BlockLine, i);
    char *cells[G_N_ELEMENTS(policies)];
    for (guint k = 0; k < G_N_ELEMENTS(policies); k++)
      cells[k] = format_bytes(line->activation_bytes[policies[k]]);
    text_table_row(table, line->path, cells[0], cells[1], cells[2], NULL);
    for (guint k = 0; k < G_N_ELEMENTS(policies); k++)
      g_free(cells[k]);
  }
  text_table_print(table, 2, out);
  g_autofree char *all = format_bytes(s->planned_bytes);
  g_string_append_printf(out, "Together they keep %s under the plan's policy, %s.\n", all,
                         checkpoint_policy_name(s->plan->checkpointing.policy));
}

/* Paths of a group's modules, the first ones of many; nothing when they are its name.  Caller
 * frees. */
static char *
members_text(const NetworkSummary *s, const Unit *unit)
{
  enum { MOST = 4 };
  GString *text = g_string_new(NULL);
  for (guint i = 0; i < MIN(unit->modules->len, MOST); i++) {
    const char *path = network_module(s->network, g_array_index(unit->modules, int, i))->path;
    g_string_append_printf(text, "%s%s", i > 0 ? ", " : "", *path != '\0' ? path : "(all)");
  }
  if (unit->modules->len > MOST)
    g_string_append_printf(text, " and %u more", unit->modules->len - MOST);
  if (g_str_equal(text->str, unit->name))
    g_string_truncate(text, 0);
  return g_string_free(text, FALSE);
}

static gboolean
units_are_alike(const Unit *a, const Unit *b)
{
  return a->elements == b->elements && a->unsharded_bytes == b->unsharded_bytes &&
         a->shard_bytes == b->shard_bytes;
}

/* How many units from this one on are alike. */
static guint
alike_units(const GPtrArray *units, guint first)
{
  guint end = first + 1;
  while (end < units->len &&
         units_are_alike(g_ptr_array_index(units, first), g_ptr_array_index(units, end)))
    end++;
  return end - first;
}

static void
print_groups(const NetworkSummary *s, GString *out)
{
  const GPtrArray *units = s->lowered->units;
  if (units->len == 0) {
    g_string_append_printf(out, "\nStrategy %s forms no groups.\n", s->plan->strategy);
    return;
  }
  g_autoptr(TextTable) table = text_table_new("lrrrrrl");
  text_table_row(table, "Group", "count", "parameters", "gathered", "padding", "shard", "members",
                 NULL);
  for (guint i = 0; i < units->len;) {
    const Unit *unit = g_ptr_array_index(units, i);
    guint count = alike_units(units, i);
    const Unit *last = g_ptr_array_index(units, i + count - 1);
    g_autofree char *name =
        count > 1 ? g_strdup_printf("%s to %s", unit->name, last->name) : g_strdup(unit->name);
    g_autofree char *how_many = g_strdup_printf("%u", count);
    g_autofree char *elements = format_grouped(unit->elements);
    g_autofree char *gathered = format_bytes(unit->unsharded_bytes);
    g_autofree char *shard = format_bytes(unit->shard_bytes);
    gint64 padding = unit_padding_bytes(s, unit);
    g_autofree char *padded = padding > 0 ? format_bytes(padding) : g_strdup("");
    g_autofree char *members = count > 1 ? g_strdup("") : members_text(s, unit);
    if (unit->parameters->len > 0)
      text_table_row(table, name, how_many, elements, gathered, padded, shard, members, NULL);
    i += count;
  }
  g_string_append_printf(out, "\nGroups of %s over %d ranks\n", s->plan->strategy, s->plan->shard);
  text_table_print(table, 2, out);
}

void
network_summary_text(const NetworkSummary *s, gboolean ascii, GString *out)
{
  print_heading(s, ascii ? " - " : " \302\267 ", out);
  print_modules(s, out);
  print_flops(s, out);
  print_activations(s, out);
  print_groups(s, out);
}
