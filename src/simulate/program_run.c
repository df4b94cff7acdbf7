/* program_run.c - runs a Program that somebody wrote or kept: no network and no plan, only what a
 * rank issues. */
#include "simulate/program_run.h"

#include <string.h>

#include "base/units.h"
#include "program/program_totals.h"
#include "simulate/process_memory.h"
#include "simulate/run_facts.h"
#include "spec/preset.h"

gboolean
is_program(const InputText *input)
{
  return input->text != NULL && program_text_begins(input->text);
}

Program *
program_read(const InputText *input, GError **error)
{
  if (strlen(input->text) != input->length) {
    g_set_error(error, HIGHWATER_ERROR, HIGHWATER_ERROR_INPUT,
                "%s: a NUL character is no part of a Program's text", input->name);
    return NULL;
  }
  g_autoptr(Program) program = program_parse(input->name, input->text, error);
  if (program == NULL)
    return NULL;
  if (!program_check(program, error)) {
    g_prefix_error(error, "%s: ", input->name);
    return NULL;
  }
  return g_steal_pointer(&program);
}

/* ---- facts ---- */

/* As many as the widest communicator spans. */
static int
count_ranks(const Program *program)
{
  int ranks = 1;
  for (guint i = 0; i < program->communicators->len; i++) {
    const Communicator *c = &g_array_index(program->communicators, Communicator, i);
    ranks = MAX(ranks, c->ranks * c->stride);
  }
  return ranks;
}

static gboolean
has_group(const RunInfo *info, const char *name)
{
  for (guint i = 0; i < info->groups->len; i++)
    if (g_str_equal(g_array_index(info->groups, GroupInfo, i).name, name))
      return TRUE;
  return FALSE;
}

/* What is gathered under a name is a group's parameters, of the module of that name. */
static void
add_groups(RunInfo *info, const Program *program)
{
  for (guint i = 0; i < program->collectives->len; i++) {
    const Collective *c = &g_array_index(program->collectives, Collective, i);
    const char *name = program_text(program, c->name);
    if (c->kind != COLLECTIVE_ALL_GATHER || c->name < 0 || has_group(info, name))
      continue;
    GroupInfo *group = run_info_add_group(info, name, (const char *const[]){name, NULL});
    const Communicator *over =
        &g_array_index(program->communicators, Communicator, c->communicator);
    group->parameters = c->bytes / dtype_size((DType) c->dtype);
    group->unsharded_bytes = c->bytes;
    group->shard_bytes = c->bytes / over->ranks;
  }
}

static RunInfo *
program_facts(const RunRequest *request, const Program *program, const ClusterSpec *cluster)
{
  RunInfo *info = run_info_new();
  info->model = preset_name_of(request->inputs.network.name);
  info->rank = request->rank;
  info->shard = count_ranks(program);
  info->replicate = 1;
  program_host_bytes_alive(program, &info->pinned_bytes, &info->pageable_bytes);
  run_facts_machine(info, cluster, program, info->shard);
  add_groups(info, program);
  return info;
}

/* ---- the run ---- */

static gboolean
refuse(const RunRequest *request, const char *what, GError **error)
{
  g_set_error(error, HIGHWATER_ERROR, HIGHWATER_ERROR_USAGE,
              "%s: %s: this is a Program, what one rank issues, and has %s",
              request->inputs.network.name, what,
              g_str_equal(what, "--all-ranks") ? "no other ranks" : "no plan");
  return FALSE;
}

/* A Program leaves nothing to be said by a plan or about other ranks. */
static gboolean
check_request(const RunRequest *request, GError **error)
{
  if (request->inputs.plan.text != NULL)
    return refuse(request, "--plan", error);
  if (request->inputs.assignments != NULL && request->inputs.assignments[0] != NULL)
    return refuse(request, "--set", error);
  return !request->all_ranks || refuse(request, "--all-ranks", error);
}

gboolean
program_run(const RunRequest *request, RunResult *result, GError **error)
{
  const ScenarioInputs *inputs = &request->inputs;
  if (!check_request(request, error))
    return FALSE;
  g_autoptr(Program) program = program_read(&inputs->network, error);
  g_autoptr(ClusterSpec) cluster =
      program != NULL ? cluster_spec_parse(inputs->cluster.name, inputs->cluster.text,
                                           inputs->cluster.length, error)
                      : NULL;
  if (cluster == NULL)
    return FALSE;
  result->info = program_facts(request, program, cluster);
  ExecutorConfig config = {
      .cluster = cluster,
      .allocator = allocator_config_default(),
      .keep_spans = request->keep_spans,
      .title = result->info->model,
  };
  limit_memory(&config, program, request->memory_limit);
  if (request->without_limit)
    config.allocator.memory_limit = G_MAXINT64;
  result->recording = executor_run(program, &config);
  return TRUE;
}
