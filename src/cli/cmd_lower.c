/* cmd_lower.c - highwater lower: the Program of a scenario, or its allocations and frees. */
#include <stdio.h>

#include "base/units.h"
#include "cli/plan_input.h"
#include "cli/registry.h"
#include "simulate/program_run.h"
#include "spec/preset.h"

enum { MOST_STEPS = 10000, NOT_GIVEN = G_MININT };

typedef struct {
  char *plan, *cluster;
  char **assignments;
  int rank, steps;
  int step;             /* only that step, 0: the construction; NOT_GIVEN: all */
  gboolean allocations; /* allocations and frees only */
  gboolean program;     /* the form that can be read back */
  gboolean check;       /* the Program's order first */
} LowerOptions;

/* What the command prints for one step, or for the construction. */
static void
print_step(const Program *program, int step, const LowerOptions *o, GString *out)
{
  int list = step > 0 ? g_array_index(program->step_list, int, step - 1) : 0;
  if (o->allocations)
    program_print_allocations(program, g_ptr_array_index(program->lists, (guint) list), out);
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
  if (o->step >= 0) {
    print_step(program, o->step, o, out);
    return;
  }
  for (int step = 1; step <= program->steps; step++)
    print_step(program, step, o, out);
}

static gboolean
parse_options(int argc, char **argv, LowerOptions *o, char ***positionals, GError **error)
{
  const GOptionEntry entries[] = {
      {"plan", 0, 0, G_OPTION_ARG_FILENAME, &o->plan, "plan: a preset or a file (default fsdp2)",
       "P"},
      {"cluster", 0, 0, G_OPTION_ARG_FILENAME, &o->cluster,
       "cluster: a preset or a file (default h100-8)", "C"},
      {"set", 0, 0, G_OPTION_ARG_FILENAME_ARRAY, &o->assignments, "override a key of the plan",
       "KEY=VALUE"},
      {"rank", 0, 0, G_OPTION_ARG_INT, &o->rank, "rank (default 0)", "N"},
      {"steps", 0, 0, G_OPTION_ARG_INT, &o->steps, "print steps 1 to N (default 2)", "N"},
      {"step", 0, 0, G_OPTION_ARG_INT, &o->step, "print step K alone; 0: the construction", "K"},
      {"allocations", 0, 0, G_OPTION_ARG_NONE, &o->allocations, "print allocations and frees only",
       NULL},
      {"program", 0, 0, G_OPTION_ARG_NONE, &o->program, "print the whole Program in its text form",
       NULL},
      {"check", 0, 0, G_OPTION_ARG_NONE, &o->check, "check the Program's order first", NULL},
      {0},
  };
  return command_parse(&command_lower, argc, argv, entries, 1, 1, positionals, error);
}

static gboolean
check_options(LowerOptions *o, GError **error)
{
  gboolean one = o->step != NOT_GIVEN;
  if (o->program && (one || o->allocations)) {
    g_set_error(error, HIGHWATER_ERROR, HIGHWATER_ERROR_USAGE,
                "--program prints all of it: not together with %s",
                o->allocations ? "--allocations" : "--step");
    return FALSE;
  }
  if (o->steps == NOT_GIVEN)
    o->steps = one ? MAX(o->step, 1) : 2;
  if (o->steps < 1 || o->steps > MOST_STEPS) {
    g_set_error(error, HIGHWATER_ERROR, HIGHWATER_ERROR_USAGE, "--steps: %d is not in 1..%d",
                o->steps, MOST_STEPS);
    return FALSE;
  }
  if (one && (o->step < 0 || o->step > o->steps)) {
    g_set_error(error, HIGHWATER_ERROR, HIGHWATER_ERROR_USAGE, "--step: %d is not in 0..%d",
                o->step, o->steps);
    return FALSE;
  }
  return TRUE;
}

static gboolean
read_inputs(const LowerOptions *o, const char *network, ScenarioInputs *inputs, GError **error)
{
  const char *kind = preset_exists("program", network) ? "program" : "network";
  inputs->assignments = o->assignments;
  return input_text_read(kind, network, &inputs->network, error) &&
         plan_input_read(o->plan != NULL ? o->plan : "fsdp2", &inputs->plan, error) &&
         input_text_read("cluster", o->cluster != NULL ? o->cluster : "h100-8", &inputs->cluster,
                         error);
}

/* A Program that is there already: every step that it has. */
static int
print_present(LowerOptions o, const ScenarioInputs *inputs, GError **error)
{
  if (o.plan != NULL || o.assignments != NULL) {
    g_set_error(error, HIGHWATER_ERROR, HIGHWATER_ERROR_USAGE,
                "%s: %s: this is a Program, what one rank issues, and has no plan",
                inputs->network.name, o.plan != NULL ? "--plan" : "--set");
    return EXIT_BAD_INPUT;
  }
  g_autoptr(Program) program = program_read(&inputs->network, error);
  if (program == NULL)
    return EXIT_BAD_INPUT;
  if (o.step > program->steps) {
    g_set_error(error, HIGHWATER_ERROR, HIGHWATER_ERROR_USAGE, "--step: %d is not in 0..%d", o.step,
                program->steps);
    return EXIT_BAD_INPUT;
  }
  g_autoptr(GString) out = g_string_new(NULL);
  print_program(program, &o, out);
  fwrite(out->str, 1, out->len, stdout);
  return EXIT_ANSWER_YES;
}

static int
lower_and_print(const LowerOptions *o, const ScenarioInputs *inputs, GError **error)
{
  if (is_program(&inputs->network))
    return print_present(*o, inputs, error);
  g_autoptr(Scenario) scenario = scenario_new(inputs, o->rank, error);
  g_autoptr(Lowered) lowered =
      scenario != NULL ? scenario_lower(scenario, o->rank, o->steps, error) : NULL;
  if (lowered == NULL || (o->check && !program_check(lowered->program, error)))
    return EXIT_BAD_INPUT;
  g_autoptr(GString) out = g_string_new(NULL);
  print_program(lowered->program, o, out);
  fwrite(out->str, 1, out->len, stdout);
  return EXIT_ANSWER_YES;
}

static int
run(int argc, char **argv, GError **error)
{
  LowerOptions o = {.steps = NOT_GIVEN, .step = NOT_GIVEN};
  ScenarioInputs inputs = {0};
  g_auto(GStrv) positionals = NULL;
  int status = EXIT_ANSWER_YES;
  if (parse_options(argc, argv, &o, &positionals, error)) {
    status = check_options(&o, error) && read_inputs(&o, positionals[0], &inputs, error)
                 ? lower_and_print(&o, &inputs, error)
                 : EXIT_BAD_INPUT;
    scenario_name_assignment(o.assignments, error);
  }
  input_text_clear(&inputs.network);
  input_text_clear(&inputs.plan);
  input_text_clear(&inputs.cluster);
  g_free(o.plan);
  g_free(o.cluster);
  g_strfreev(o.assignments);
  return status;
}

const Command command_lower = {
    .name = "lower",
    .arguments = "NETWORK [--plan P] [--cluster C] [--set K=V]... [--rank R] "
                 "[--steps N | --step K] [--allocations | --program] [--check]",
    .summary = "Print what a rank's host issues: the Program, or its allocations and frees",
    .run = run,
};
