/* calibrate_gpus.c - from a probe of GPUs to a report and a cluster file. */
#include "cli/calibrate_gpus.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/json_output.h"
#include "base/output_file.h"
#include "base/units.h"
#include "calibrate/calibration_report.h"
#include "calibrate/collectives_table.h"
#include "calibrate/device_writer.h"
#include "calibrate/machine_profile.h"
#include "calibrate/measured_collectives.h"
#include "calibrate/measurement_report.h"
#include "calibrate/measurements_file.h"
#include "calibrate/probe_group.h"
#include "calibrate/sweep.h"
#include "calibrate/traced_report.h"
#include "cli/command.h"
#include "cli/plan_input.h"
#include "simulate/scenario.h"

/* ---- options ---- */

gboolean
parse_budget(const char *text, double *seconds, GError **error)
{
  static const struct {
    const char *unit;
    double seconds;
  } units[] = {{"", 1}, {"s", 1}, {"sec", 1}, {"m", 60}, {"min", 60}, {"h", 3600}};
  char *end;
  double number = g_ascii_strtod(text, &end);
  for (guint i = 0; end != text && i < G_N_ELEMENTS(units); i++)
    if (g_str_equal(end, units[i].unit) && number > 0 && number * units[i].seconds <= 86400) {
      *seconds = number * units[i].seconds;
      return TRUE;
    }
  g_set_error(error, HIGHWATER_ERROR, HIGHWATER_ERROR_USAGE,
              "--budget: '%s' is not a time up to a day, as 90s, 5min or 1h", text);
  return FALSE;
}

/* The program whose products and groups are measured; NULL without a network, or with an error. */
static Lowered *
lower_network(const CalibrateRequest *request, GError **error)
{
  ScenarioInputs inputs = {.assignments = request->assignments};
  Lowered *lowered = NULL;
  if (input_text_read("network", request->network, &inputs.network, error) &&
      plan_input_read(request->plan, &inputs.plan, error) &&
      input_text_read("cluster", request->cluster != NULL ? request->cluster : CALIBRATE_BASE,
                      &inputs.cluster, error)) {
    g_autoptr(Scenario) scenario = scenario_new(&inputs, 0, error);
    lowered = scenario != NULL ? scenario_lower(scenario, 0, 2, error) : NULL;
  }
  input_text_clear(&inputs.network);
  input_text_clear(&inputs.plan);
  input_text_clear(&inputs.cluster);
  return lowered;
}

/* ---- measuring ---- */

static volatile int interrupted;

static void
on_interrupt(int signal_number G_GNUC_UNUSED)
{
  interrupted = 1;
}

static void
show_progress(const MeasureProgress *p, gpointer data G_GNUC_UNUSED)
{
  fprintf(stderr, "\r\033[K%.0f of %.0f s, round %d of %d, %d of %d: %s", p->elapsed_s, p->budget_s,
          p->round + 1, p->rounds, p->done + 1, p->of, p->experiment);
}

/* What all experiments may take of the device's memory: the rest is for its libraries. */
static gint64
room_for_experiments(const ProbeFacts *facts)
{
  return (facts->memory_bytes - facts->context_bytes) / 10 * 7;
}

static Measurements *
measure_all(DeviceProbe *probe, const Program *program, double budget_s)
{
  ProbeFacts facts;
  probe->class->describe(probe, &facts);
  MeasureOptions options = measure_defaults();
  options.budget_s = budget_s;
  options.interrupted = &interrupted;
  options.device_bytes = room_for_experiments(&facts);
  if (isatty(STDERR_FILENO))
    options.progress = show_progress;
  /* A second one ends the program as usual. */
  struct sigaction once = {.sa_handler = on_interrupt, .sa_flags = (int) SA_RESETHAND}, before;
  sigaction(SIGINT, &once, &before);
  g_autoptr(GArray) list = sweep_experiments(&facts, program);
  Measurements *all =
      measure(probe, (const Experiment *) (const void *) list->data, list->len, &options);
  sigaction(SIGINT, &before, NULL);
  if (options.progress != NULL)
    fputs("\r\033[K", stderr);
  return all;
}

/* ---- answers ---- */

typedef struct {
  const CalibrateRequest *request;
  const Measurements *measured;
  const Program *program;   /* may be NULL */
  const char *source;       /* of the measurements */
  const KinetoTrace *trace; /* that they are from, or NULL */
} Answer;

/* The device and cluster that the answer is compared with and begins with. */
static gboolean
choose_bases(const Answer *answer, char **device, char **cluster, GError **error)
{
  const CalibrateRequest *request = answer->request;
  const char *name = answer->measured->facts.device;
  *device = request->device != NULL ? g_strdup(request->device)
                                    : device_preset_for(&answer->measured->facts);
  if (*device == NULL) {
    g_set_error(error, HIGHWATER_ERROR, HIGHWATER_ERROR_USAGE,
                "no preset is like '%s': name the device to begin with by --device", name);
    return FALSE;
  }
  *cluster = request->cluster != NULL
                 ? g_strdup(request->cluster)
                 : cluster_preset_for(*device, answer->measured->facts.ranks_of_node);
  if (*cluster == NULL)
    *cluster = g_strdup(CALIBRATE_BASE);
  return TRUE;
}

static char *
today(void)
{
  g_autoptr(GDateTime) now = g_date_time_new_now_utc();
  return g_date_time_format(now, "%Y-%m-%d");
}

static void
print_answer(const Answer *answer, const MeasurementReport *report, const GPtrArray *collectives)
{
  /* A profile on standard output stands there alone. */
  gboolean quiet = g_strcmp0(answer->request->output, "-") == 0;
  FILE *out = quiet ? stderr : stdout;
  if (answer->request->json) {
    cJSON *object = cJSON_CreateObject();
    calibration_report_json(collectives, NULL, object);
    measurement_report_json(report, object);
    if (answer->trace != NULL)
      traced_report_json(answer->trace, object);
    g_autofree char *text = json_finish(object);
    fputs(text, out);
    return;
  }
  g_autoptr(GString) text = g_string_new(NULL);
  measurement_report_text(report, text);
  if (answer->trace != NULL)
    traced_report_text(answer->trace, text);
  fputs(text->str, out);
  g_autofree char *tables = collectives->len > 0 ? calibration_report_text(collectives) : NULL;
  if (tables != NULL)
    fprintf(out, "\n%s", tables);
}

static gboolean
write_output(const Answer *answer, const MachineProfile *profile, GError **error)
{
  const CalibrateRequest *request = answer->request;
  if (request->samples != NULL) {
    g_autofree char *text = measurements_print(answer->measured, profile->when);
    if (!output_file_write(request->samples, text, strlen(text), error))
      return FALSE;
  }
  if (request->output == NULL)
    return TRUE;
  g_autofree char *text = machine_profile_text(profile, error);
  return text != NULL && output_file_write(request->output, text, strlen(text), error);
}

static int
give_answer(const Answer *answer, GError **error)
{
  g_autofree char *device = NULL, *cluster = NULL, *when = today();
  if (!choose_bases(answer, &device, &cluster, error))
    return EXIT_BAD_INPUT;
  g_autoptr(DeviceProfile) base = device_profile_load(device, error);
  g_autoptr(ClusterSpec) spec = base != NULL ? cluster_spec_load(cluster, error) : NULL;
  if (spec == NULL)
    return EXIT_BAD_INPUT;
  g_autoptr(GArray) constants = fit_device(base, answer->measured);
  g_autoptr(GPtrArray) collectives = measured_collectives(answer->measured, spec, answer->source);
  g_autoptr(GArray) left_out = sweep_groups_left_out(&answer->measured->facts, answer->program);
  const MachineProfile profile = {
      .cluster = cluster,
      .device = device,
      .measured = answer->measured,
      .constants = constants,
      .collectives = collectives,
      .when = when,
  };
  if (!write_output(answer, &profile, error))
    return EXIT_BAD_INPUT;
  if (answer->request->table &&
      !collectives_table_write(collectives, answer->request->table, error))
    return EXIT_BAD_INPUT;
  const MeasurementReport report = {answer->measured, constants, left_out, device};
  print_answer(answer, &report, collectives);
  return EXIT_ANSWER_YES;
}

/* ---- commands ---- */

/* The first process of the job measures, for all of them. */
static int
lead(const CalibrateRequest *request, const ProbeJob *job, double budget_s, GError **error)
{
  g_autoptr(Lowered) lowered = NULL;
  if (request->network != NULL) {
    lowered = lower_network(request, error);
    if (lowered == NULL)
      return EXIT_BAD_INPUT;
  }
  DeviceProbe *probe = probe_group_open(job, error);
  if (probe == NULL)
    return EXIT_BAD_INPUT;
  const Program *program = lowered != NULL ? lowered->program : NULL;
  g_autoptr(Measurements) measured = measure_all(probe, program, budget_s);
  device_probe_close(probe);
  const Answer answer = {request, measured, program, "this machine", NULL};
  return give_answer(&answer, error);
}

int
calibrate_gpus(const CalibrateRequest *request, GError **error)
{
  double budget_s;
  ProbeJob job = {.listener = -1, .patience_s = 120};
  if (!parse_budget(request->budget != NULL ? request->budget : "5min", &budget_s, error) ||
      (job.module = device_probe_module_load(error)) == NULL ||
      !process_place_find(&job.place, error) ||
      (job.place.size > 1 && !meeting_point_find(&job.place, &job.point, error)))
    return EXIT_BAD_INPUT;
  int status = EXIT_BAD_INPUT;
  if (job.place.rank == 0)
    status = lead(request, &job, budget_s, error);
  else if (probe_group_serve(&job, error))
    status = EXIT_ANSWER_YES;
  g_free(job.point.host);
  return status;
}

int
calibrate_samples(const CalibrateRequest *request, const char *name, const char *text, gsize length,
                  GError **error)
{
  g_autoptr(Measurements) measured = measurements_parse(name, text, length, error);
  if (measured == NULL)
    return EXIT_BAD_INPUT;
  const Answer answer = {request, measured, NULL, name, NULL};
  return give_answer(&answer, error);
}

int
calibrate_traces(const CalibrateRequest *request, const GPtrArray *paths, TracedJob job,
                 GError **error)
{
  g_autoptr(KinetoTrace) trace = kineto_trace_new();
  const char *first = g_ptr_array_index(paths, 0);
  for (guint i = 0; i < paths->len; i++)
    if (!kineto_trace_load(trace, g_ptr_array_index(paths, i), error))
      return EXIT_BAD_INPUT;
  if (trace->kernels == 0) {
    g_set_error(error, HIGHWATER_ERROR, HIGHWATER_ERROR_INPUT,
                "%s: no kernels in it: profile with ProfilerActivity.CUDA", first);
    return EXIT_BAD_INPUT;
  }
  if (trace->machine.device[0] == '\0' && request->device == NULL) {
    g_set_error(error, HIGHWATER_ERROR, HIGHWATER_ERROR_USAGE,
                "%s: does not say which GPU it is of: name it by --device", first);
    return EXIT_BAD_INPUT;
  }
  g_autoptr(Measurements) measured = traced_measurements(trace, job);
  if (measured->facts.device[0] == '\0')
    g_strlcpy(measured->facts.device, request->device, sizeof(measured->facts.device));
  const Answer answer = {request, measured, NULL, first, trace};
  return give_answer(&answer, error);
}
