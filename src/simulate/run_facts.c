/* run_facts.c - model, plan, machine, FLOPs and groups of a scenario, as reports want them. */
#include "simulate/run_facts.h"

#include <string.h>

#include "base/units.h"
#include "collective/measured.h"
#include "network/network_flops.h"
#include "program/program_totals.h"

/* ---- FLOPs ---- */

/* Of the last step: what it does once, and what it does a second time. */
typedef struct {
  double once, again;
} StepFlops;

static StepFlops
step_flops(const Program *program)
{
  const OpList *list = program_step(program, program->steps - 1);
  StepFlops flops = {0, 0};
  int depth = 0, recompute = 0;
  for (guint i = 0; i < list->ops->len; i++) {
    const ProgramOp *op = &g_array_index(list->ops, ProgramOp, i);
    if (op->kind == PROGRAM_RANGE_PUSH) {
      depth++;
      if (recompute == 0 && op->b == RANGE_HOOK &&
          g_str_equal(program_text(program, op->a), "recompute"))
        recompute = depth;
    } else if (op->kind == PROGRAM_RANGE_POP) {
      recompute = recompute == depth ? 0 : recompute;
      depth--;
    } else if (op->kind == PROGRAM_LAUNCH) {
      double counted = network_counted_flops(&g_array_index(program->kernels, Kernel, op->a));
      *(recompute > 0 ? &flops.again : &flops.once) += counted;
    }
  }
  return flops;
}

/* By the convention, or where parameters are frozen what is left of it: nobody computes their
 * gradients, nor those of what lies before the first that trains. */
static void
fill_flops(RunInfo *info, const Scenario *s, const Program *program)
{
  StepFlops flops = step_flops(program);
  info->model_flops =
      info->trainable_parameters < info->parameters
          ? flops.once
          : network_model_flops_per_token(s->network) * (double) info->tokens_per_step;
  info->hardware_flops = info->model_flops + flops.again;
}

/* ---- groups, communicators ---- */

static void
add_groups(RunInfo *info, const Scenario *s, const Lowered *lowered)
{
  for (guint i = 0; i < lowered->units->len; i++) {
    const Unit *unit = g_ptr_array_index(lowered->units, i);
    if (unit->parameters->len == 0)
      continue;
    g_autoptr(GPtrArray) modules = g_ptr_array_new();
    for (guint k = 0; k < unit->modules->len; k++)
      g_ptr_array_add(modules,
                      network_module(s->network, g_array_index(unit->modules, int, k))->path);
    g_ptr_array_add(modules, NULL);
    GroupInfo *group = run_info_add_group(info, unit->name, (const char *const *) modules->pdata);
    group->parameters = unit->elements;
    group->unsharded_bytes = unit->unsharded_bytes;
    group->shard_bytes = unit->shard_bytes;
    group->forward_prefetches = unit->forward_prefetches;
    group->backward_prefetches = unit->backward_prefetches;
    group->forward_prefetched_bytes = unit->forward_prefetched_bytes;
    group->backward_prefetched_bytes = unit->backward_prefetched_bytes;
  }
}

/* Of one call; a reference to parameters holds nothing, one to a loss a number. */
static gint64
retained_bytes(const Scenario *s, const Lowered *lowered, const RetainSpec *spec)
{
  if (spec->as == RETAIN_REFERENCE)
    return g_str_equal(spec->group, RETAIN_LOSS) ? 4 : 0;
  for (guint k = 0; k < lowered->units->len; k++) {
    const Unit *unit = g_ptr_array_index(lowered->units, k);
    if (g_str_equal(unit->name, spec->group))
      return unit->unsharded_bytes;
  }
  gint64 elements = 0;
  for (guint i = 0; i < s->network->parameters->len; i++) {
    const Parameter *p = network_parameter(s->network, (int) i);
    gsize length = strlen(spec->group);
    if (strncmp(p->name, spec->group, length) == 0 && p->name[length] == '.')
      elements += p->elements;
  }
  return elements * dtype_size(s->network->shape.precision.weights);
}

static void
add_retained(RunInfo *info, const Scenario *s, const Lowered *lowered)
{
  static const char *const as[] = {"a clone", "an unshard without its reshard", "a reference"};
  static const char *const until[] = {"end of forward", "end of backward", "end of the step",
                                      "end of the run"};
  for (guint i = 0; i < s->plan->retain->len; i++) {
    const RetainSpec *spec = g_ptr_array_index(s->plan->retain, i);
    g_autofree char *holder =
        g_strdup_printf("%s of the plan's \"retain\", until %s", as[spec->as], until[spec->until]);
    gint64 bytes = retained_bytes(s, lowered, spec);
    run_info_add_retained(info, spec->group, holder, bytes);
  }
}

static gboolean
has_phases(const PlanSpec *plan)
{
  return plan->phases.evaluate.given || plan->phases.save.given || plan->phases.load.given;
}

/* The last list that has the phase says what it moves. */
static gboolean
find_phase(const Program *program, const char *name, ProgramBeyond *bytes)
{
  for (guint i = program->lists->len; i > 0; i--)
    if (program_beyond_bytes(program, g_ptr_array_index(program->lists, i - 1), name, bytes))
      return TRUE;
  return FALSE;
}

static void
add_state(PhaseInfo *phase, const Lowered *lowered)
{
  for (guint i = 0; i < lowered->phases->len; i++) {
    const LoweredPhase *moved = &g_array_index(lowered->phases, LoweredPhase, i);
    if (!g_str_equal(moved->name, phase->name))
      continue;
    phase->has_state = TRUE;
    phase->state_bytes = moved->state_bytes;
    phase->rank_0_bytes = moved->rank_0_bytes;
    phase->others_bytes = moved->others_bytes;
    phase->sources = MIN(moved->sources, LOWERED_SOURCES);
    if (phase->sources > 0)
      phase->source_bytes = g_memdup2(moved->source_bytes, sizeof(gint64) * (gsize) phase->sources);
  }
}

static void
add_phases(RunInfo *info, const Lowered *lowered)
{
  static const char *const names[] = {"load", "evaluate", "save"};
  for (guint i = 0; i < G_N_ELEMENTS(names); i++) {
    ProgramBeyond bytes;
    if (!find_phase(lowered->program, names[i], &bytes))
      continue;
    PhaseInfo *phase = run_info_add_phase(info, names[i]);
    phase->communication_bytes = bytes.communicated;
    phase->host_copy_bytes = bytes.copied;
    add_state(phase, lowered);
  }
}

static char *
link_of(const ClusterSpec *cluster, const Communicator *c)
{
  static const char *const intra[] = {"NVSwitch", "NVLink", "PCIe"};
  static const char *const inter[] = {"InfiniBand", "RoCE", "EFA", "Slingshot", "TCP"};
  int span = c->ranks * c->stride,
      nodes = MAX(1, (span + cluster->gpus_per_node - 1) / cluster->gpus_per_node);
  if (nodes == 1)
    return g_strdup(intra[cluster->intra_node]);
  return g_strdup_printf("%s over %d nodes", inter[cluster->inter_node], nodes);
}

static void
add_communicators(RunInfo *info, const ClusterSpec *cluster, const Program *program)
{
  for (guint i = 0; i < program->communicators->len; i++) {
    const Communicator *c = &g_array_index(program->communicators, Communicator, i);
    g_autofree char *link = link_of(cluster, c);
    run_info_add_communicator(info, program_text(program, c->name), c->ranks, link)->stride =
        c->stride;
  }
}

/* What the last step's collectives pay to begin; what comes beyond the step is not its own. */
static StartupInfo
step_startup(const ClusterSpec *cluster, const Program *program)
{
  StartupInfo startup = {0};
  const OpList *list = program_step(program, program->steps - 1);
  for (guint i = 0; i < list->ops->len; i++) {
    const ProgramOp *op = &g_array_index(list->ops, ProgramOp, i);
    if (op->kind == PROGRAM_RANGE_PUSH && op->b == RANGE_BEYOND)
      break;
    if (op->kind != PROGRAM_COLLECTIVE)
      continue;
    const Collective *c = &g_array_index(program->collectives, Collective, op->a);
    const Communicator *over =
        &g_array_index(program->communicators, Communicator, c->communicator);
    GroupShape shape = group_shape(cluster, over->ranks, over->stride);
    startup.collectives += over->ranks > 1;
    if (cluster->device->clock == CLOCK_RUNNING)
      startup.time += collective_startup(cluster, (CollectiveKind) c->kind, shape, c->bytes);
  }
  return startup;
}

/* ---- all ---- */

static void
fill_plan(RunInfo *info, const Scenario *s)
{
  const PlanSpec *plan = s->plan;
  info->strategy = g_strdup(plan->strategy);
  info->checkpointing = checkpoint_spec_text(&plan->checkpointing);
  info->compile = plan->compile_per_block ? "per_block" : "none";
  info->shard = plan->shard;
  info->replicate = plan->replicate;
  info->micro_batch = plan->micro_batch;
  info->sequence_length = plan->sequence_length;
  info->accumulation_steps = plan->accumulation.steps;
  info->tokens_per_step =
      (gint64) plan->micro_batch * plan->sequence_length * plan->accumulation.steps;
}

/* Names the tables that times of the Program's collectives come from, each once. */
static void
add_measured(RunInfo *info, const ClusterSpec *cluster, const Program *program)
{
  g_autoptr(GHashTable) named = g_hash_table_new(NULL, NULL);
  if (cluster->tables->len == 0)
    return;
  for (guint i = 0; i < program->collectives->len; i++) {
    const Collective *c = &g_array_index(program->collectives, Collective, i);
    const Communicator *over =
        &g_array_index(program->communicators, Communicator, c->communicator);
    GroupShape shape = group_shape(cluster, over->ranks, over->stride);
    const CollectiveTable *table = measured_table(cluster, (CollectiveKind) c->kind, shape);
    if (!table || !g_hash_table_add(named, (gpointer) (gintptr) table))
      continue;
    g_autofree char *name =
        g_strdup_printf("%s over %d ranks on %d node%s", table->collective, table->ranks,
                        table->nodes, table->nodes == 1 ? "" : "s");
    run_info_add_constant(info, name, ORIGIN_IMPORTED);
  }
}

void
run_facts_machine(RunInfo *info, const ClusterSpec *c, const Program *program, int ranks)
{
  info->device = g_strdup(c->device->name);
  info->cluster = g_strdup(c->name);
  info->nodes = (ranks + c->gpus_per_node - 1) / c->gpus_per_node;
  g_autofree char *device = g_strdup_printf("device %s", c->device->name);
  run_info_add_constant(info, device, ORIGIN_DEFAULT);
  for (char **key = c->device->measured; key != NULL && *key != NULL; key++)
    run_info_add_constant(info, *key, ORIGIN_MEASURED);
  g_autofree char *fabric = g_strdup_printf("fabrics of cluster %s", c->name);
  run_info_add_constant(info, fabric, ORIGIN_DEFAULT);
  add_communicators(info, c, program);
  add_measured(info, c, program);
  info->startup = step_startup(c, program);
}

RunInfo *
run_facts(const Scenario *s, const Lowered *lowered, int rank)
{
  RunInfo *info = run_info_new();
  info->model = g_strdup(s->network->name);
  info->parameters = network_parameter_count(s->network);
  info->trainable_parameters = network_trainable_count(s->network);
  info->rank = rank;
  info->equivalent_zero_stage = lowered->zero_stage;
  info->split_tied = network_splits_weight(s->network);
  const Program *program = lowered->program;
  double sent = program_elements_sent(program, program_step(program, program->steps - 1));
  info->elements_sent = sent / (double) info->trainable_parameters / s->plan->accumulation.steps;
  program_host_bytes_alive(program, &info->pinned_bytes, &info->pageable_bytes);
  fill_plan(info, s);
  run_facts_machine(info, s->cluster, program, s->plan->shard * s->plan->replicate);
  info->peak_flops = device_profile_peak(s->cluster->device, s->network->shape.precision.matmul);
  fill_flops(info, s, lowered->program);
  add_groups(info, s, lowered);
  add_retained(info, s, lowered);
  info->initializes = s->plan->phases.initialize.given;
  if (has_phases(s->plan))
    add_phases(info, lowered);
  if (s->strategy->zero_stage != NULL && s->plan->shard * s->plan->replicate == 1)
    run_info_warn(info, "one rank: strategy %s shards nothing", s->plan->strategy);
  else if (s->strategy->zero_stage != NULL && s->plan->shard == 1 && !s->strategy->only_replicas)
    run_info_warn(info, "mesh.shard is 1: strategy %s shards nothing", s->plan->strategy);
  return info;
}
