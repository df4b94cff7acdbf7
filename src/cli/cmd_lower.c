/* cmd_lower.c - highwater lower: the Program of a scenario, or its allocations and frees. */
#include <stdio.h>

#include "base/units.h"
#include "cli/registry.h"
#include "cli/scenario.h"

typedef struct {
  ScenarioOptions scenario;
  int step;            /* --step K: only that step; 0: all */
  gboolean allocations; /* --allocations */
  gboolean program;     /* --program: the form that can be read back */
  gboolean check;       /* --check */
} LowerOptions;

/* What the command prints for one step. */
static void
print_step(const Program *program, int step, const LowerOptions *o, GString *out)
{
  int list = g_array_index(program->step_list, int, step - 1);
  if (o->allocations)
    program_print_allocations(program, program_step(program, step - 1), out);
  else
    program_print_list(program, list, out);
}

static void
print_program(const Program *program, const LowerOptions *o, GString *out)
{
  if (o->program) {
    program_print(program, out);
    return;
  }
  if (o->step > 0) {
    print_step(program, o->step, o, out);
    return;
  }
  for (int step = 1; step <= program->steps; step++)
    print_step(program, step, o, out);
}

static int
run(int argc, char **argv, GError **error)
{
  LowerOptions o = {.scenario = {.steps = 0}};
  g_auto(GStrv) positionals = NULL;
  const GOptionEntry entries[] = {
      {"plan", 0, 0, G_OPTION_ARG_FILENAME, &o.scenario.plan, "plan: a preset or a file (default fsdp2)", "P"},
      {"cluster", 0, 0, G_OPTION_ARG_FILENAME, &o.scenario.cluster, "cluster: a preset or a file (default h100-8)", "C"},
      {"set", 0, 0, G_OPTION_ARG_FILENAME_ARRAY, &o.scenario.set, "override a key of the plan", "KEY=VALUE"},
      {"rank", 0, 0, G_OPTION_ARG_INT, &o.scenario.rank, "rank (default 0)", "N"},
      {"steps", 0, 0, G_OPTION_ARG_INT, &o.scenario.steps, "print steps 1 to N (default 2)", "N"},
      {"step", 0, 0, G_OPTION_ARG_INT, &o.step, "print step K alone", "K"},
      {"allocations", 0, 0, G_OPTION_ARG_NONE, &o.allocations, "print allocations and frees only", NULL},
      {"program", 0, 0, G_OPTION_ARG_NONE, &o.program, "print the whole Program in its text form", NULL},
      {"check", 0, 0, G_OPTION_ARG_NONE, &o.check, "check the Program's order first", NULL},
      {0},
  };
  if (!command_parse(&command_lower, argc, argv, entries, 1, 1, &positionals, error)) {
    scenario_options_clear(&o.scenario);
    return EXIT_ANSWER_YES;
  }
  if (o.scenario.steps == 0)
    o.scenario.steps = o.step > 0 ? o.step : 2;
  if (o.step < 0 || o.step > o.scenario.steps) {
    g_set_error(error, HIGHWATER_ERROR, HIGHWATER_ERROR_USAGE, "--step: %d is not in 1..%d", o.step, o.scenario.steps);
    scenario_options_clear(&o.scenario);
    return EXIT_BAD_INPUT;
  }
  g_autoptr(Scenario) scenario = scenario_load(positionals[0], &o.scenario, error);
  g_autoptr(Lowered) lowered =
      scenario != NULL ? scenario_lower(scenario, o.scenario.rank, o.scenario.steps, error) : NULL;
  scenario_options_clear(&o.scenario);
  if (lowered == NULL || (o.check && !program_check(lowered->program, error)))
    return EXIT_BAD_INPUT;
  g_autoptr(GString) out = g_string_new(NULL);
  print_program(lowered->program, &o, out);
  fwrite(out->str, 1, out->len, stdout);
  return EXIT_ANSWER_YES;
}

const Command command_lower = {
    .name = "lower",
    .arguments = "NETWORK [--plan P] [--steps N | --step K] [--allocations]",
    .summary = "print what a rank's host issues: the Program, or its allocations and frees",
    .run = run,
};
