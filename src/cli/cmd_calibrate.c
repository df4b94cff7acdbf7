/* cmd_calibrate.c - highwater calibrate: from measurements to a cluster file. */
#include "base/json_document.h"
#include "base/json_output.h"
#include "base/output_file.h"
#include "base/units.h"
#include "calibrate/calibration_report.h"
#include "calibrate/collectives_table.h"
#include "calibrate/measurements_file.h"
#include "calibrate/profile_writer.h"
#include "cli/calibrate_gpus.h"
#include "cli/registry.h"
#include "import/kineto_trace.h"
#include "import/nccl_tests_table.h"
#include <glib/gstdio.h>
#include <stdio.h>
#include <string.h>

typedef struct {
  char **from; /* files after --from; further ones are positionals */
  char *cluster, *output, *table;
  int ranks, nodes;
  gboolean json;
  char *plan, *device, *samples, *budget; /* for GPUs, see CalibrateRequest */
  char **assignments;
} CalibrateArguments;

/* Tables of all files, and messages of the files that have none. */
typedef struct {
  GPtrArray *tables;  /* NcclTestsTable; the arrays own them */
  GPtrArray *files;   /* arrays of tables */
  GPtrArray *refused; /* strings */
} Inputs;

static void
array_free(gpointer array)
{
  g_ptr_array_unref(array);
}

static void
read_file(Inputs *inputs, const char *path, NcclTestsHints hints)
{
  g_autoptr(GError) error = NULL;
  GPtrArray *tables = nccl_tests_tables_load(path, hints, &error);
  if (!tables) {
    g_ptr_array_add(inputs->refused, g_strdup(error->message));
    return;
  }
  g_ptr_array_add(inputs->files, tables);
  for (guint i = 0; i < tables->len; i++)
    g_ptr_array_add(inputs->tables, g_ptr_array_index(tables, i));
}

static Inputs
read_files(const CalibrateArguments *arguments, char **positionals)
{
  const NcclTestsHints hints = {arguments->ranks, arguments->nodes};
  Inputs inputs = {
      .tables = g_ptr_array_new(),
      .files = g_ptr_array_new_with_free_func(array_free),
      .refused = g_ptr_array_new_with_free_func(g_free),
  };
  for (char **path = arguments->from; *path; path++)
    read_file(&inputs, *path, hints);
  for (char **path = positionals; *path; path++)
    read_file(&inputs, *path, hints);
  return inputs;
}

static void
inputs_clear(Inputs *inputs)
{
  g_ptr_array_unref(inputs->tables);
  g_ptr_array_unref(inputs->files);
  g_ptr_array_unref(inputs->refused);
}

/* ---- the cluster */

/* Name of the one that a table is compared with; NULL: the table does not say which GPU it was. */
static const char *
cluster_of(const CalibrateArguments *arguments, const NcclTestsTable *table)
{
  int per_node = table->nodes > 0 ? (int) ceil_div(table->ranks, table->nodes) : 1;
  return arguments->cluster ? arguments->cluster : profile_base_for(table->gpu, per_node);
}

/* What the output begins with: the cluster of the first table that has one. */
static const char *
choose_base(const CalibrateArguments *arguments, const Inputs *inputs)
{
  const char *base = NULL;
  for (guint i = 0; i < inputs->tables->len && !base; i++)
    base = cluster_of(arguments, g_ptr_array_index(inputs->tables, i));
  return base ? base : CALIBRATE_BASE;
}

static void
cluster_free(gpointer cluster)
{
  cluster_spec_free(cluster);
}

/* Loads a cluster once.  Borrowed. */
static const ClusterSpec *
load_cluster(GHashTable *clusters, const char *name, GError **error)
{
  ClusterSpec *cluster = g_hash_table_lookup(clusters, name);
  if (cluster)
    return cluster;
  cluster = cluster_spec_load(name, error);
  if (cluster)
    g_hash_table_insert(clusters, g_strdup(name), cluster);
  return cluster;
}

static char *
remark_of(const NcclTestsTable *table)
{
  return g_strdup_printf("ranks from %s%s%s%s%s", ranks_source_names[table->ranks_source],
                         table->gpu ? "; " : "", table->gpu ? table->gpu : "",
                         table->nccl ? "; NCCL " : "", table->nccl ? table->nccl : "");
}

static CalibratedCollective *
calibrate_table(const NcclTestsTable *table, const ClusterSpec *cluster)
{
  g_autofree char *remark = remark_of(table);
  g_autofree FitSample *samples = g_new(FitSample, table->rows->len);
  for (guint i = 0; i < table->rows->len; i++) {
    const NcclTestsRow *row = &g_array_index(table->rows, NcclTestsRow, i);
    samples[i] = (FitSample){row->bytes, row->time_us};
  }
  const MeasuredCollective about = {
      .source = table->file,
      .line = table->line,
      .collective = table->collective,
      .ranks = table->ranks,
      .nodes =
          table->nodes > 0 ? table->nodes : (int) ceil_div(table->ranks, cluster->gpus_per_node),
      .rejected_rows = table->rejected->len,
      .remark = remark,
  };
  CalibratedCollective *collective = calibrated_collective_new(&about, samples, table->rows->len);
  calibrated_collective_compare(collective, cluster);
  return collective;
}

/* ---- answers */

/* A cluster has one kind of GPU: tables of several are mixed only by who names the cluster. */
static gboolean
check_gpus(const CalibrateArguments *arguments, const Inputs *inputs, GError **error)
{
  const char *gpu = NULL;
  for (guint i = 0; i < inputs->tables->len && !arguments->cluster; i++) {
    const NcclTestsTable *table = g_ptr_array_index(inputs->tables, i);
    if (gpu && table->gpu && !g_str_equal(gpu, table->gpu)) {
      g_set_error(
          error, HIGHWATER_ERROR, HIGHWATER_ERROR_USAGE,
          "calibrate: --output: tables of %s and of %s are not of one cluster; give --cluster "
          "if they are",
          gpu, table->gpu);
      return FALSE;
    }
    gpu = table->gpu ? table->gpu : gpu;
  }
  return TRUE;
}

static gboolean
write_profile(const CalibrateArguments *arguments, const char *base, const GPtrArray *collectives,
              GError **error)
{
  cJSON *root = profile_tree(base, collectives, arguments->cluster == NULL, error);
  if (!root)
    return FALSE;
  g_autofree char *text = json_finish(root);
  return output_file_write(arguments->output, text, strlen(text), error);
}

/* CalibratedCollective of every table; NULL and error when a cluster cannot be loaded. */
static GPtrArray *
calibrate_tables(const CalibrateArguments *arguments, const Inputs *inputs, const char *base,
                 GError **error)
{
  g_autoptr(GHashTable) clusters =
      g_hash_table_new_full(g_str_hash, g_str_equal, g_free, cluster_free);
  g_autoptr(GPtrArray) collectives = calibrated_collectives_new();
  for (guint i = 0; i < inputs->tables->len; i++) {
    const NcclTestsTable *table = g_ptr_array_index(inputs->tables, i);
    const char *own = cluster_of(arguments, table);
    const ClusterSpec *cluster = load_cluster(clusters, own ? own : base, error);
    if (!cluster)
      return NULL;
    g_ptr_array_add(collectives, calibrate_table(table, cluster));
  }
  return g_steal_pointer(&collectives);
}

static char *
json_report(const GPtrArray *collectives, const GPtrArray *refused)
{
  cJSON *root = cJSON_CreateObject();
  calibration_report_json(collectives, refused, root);
  return json_finish(root);
}

static int
answer(const CalibrateArguments *arguments, const Inputs *inputs, GError **error)
{
  const char *base = choose_base(arguments, inputs);
  if (arguments->output && !check_gpus(arguments, inputs, error))
    return EXIT_BAD_INPUT;
  g_autoptr(GPtrArray) collectives = calibrate_tables(arguments, inputs, base, error);
  if (!collectives)
    return EXIT_BAD_INPUT;
  if (arguments->output && !write_profile(arguments, base, collectives, error))
    return EXIT_BAD_INPUT;
  if (arguments->table && !collectives_table_write(collectives, arguments->table, error))
    return EXIT_BAD_INPUT;
  g_autofree char *report = arguments->json ? json_report(collectives, inputs->refused)
                                            : calibration_report_text(collectives);
  /* A profile on standard output stands there alone. */
  gboolean quiet = arguments->output && g_str_equal(arguments->output, "-");
  fputs(report, quiet ? stderr : stdout);
  for (guint i = 0; i < inputs->refused->len; i++)
    fprintf(stderr, "highwater: %s\n", (const char *) g_ptr_array_index(inputs->refused, i));
  return inputs->refused->len > 0 ? EXIT_ANSWER_NO : EXIT_ANSWER_YES;
}

/* What the options say of all tables has to be true of each. */
static gboolean
check_shapes(const CalibrateArguments *arguments, const Inputs *inputs, GError **error)
{
  for (guint i = 0; i < inputs->tables->len; i++) {
    const NcclTestsTable *table = g_ptr_array_index(inputs->tables, i);
    if (arguments->nodes <= table->ranks)
      continue;
    g_set_error(error, HIGHWATER_ERROR, HIGHWATER_ERROR_USAGE,
                "calibrate: --nodes: %d nodes are more than the %d ranks of %s:%d",
                arguments->nodes, table->ranks, table->file, table->line);
    return FALSE;
  }
  return TRUE;
}

static int
calibrate_files(const CalibrateArguments *arguments, char **positionals, GError **error)
{
  int status = EXIT_BAD_INPUT;
  if (arguments->device) {
    g_set_error(error, HIGHWATER_ERROR, HIGHWATER_ERROR_USAGE,
                "calibrate: --device is for measuring and for stored samples: tables have no "
                "constants of a device");
    return status;
  }
  Inputs inputs = read_files(arguments, positionals);
  if (inputs.tables->len > 0 && !check_shapes(arguments, &inputs, error)) {
    status = EXIT_BAD_INPUT;
  } else if (inputs.tables->len > 0) {
    status = answer(arguments, &inputs, error);
  } else {
    g_set_error_literal(error, HIGHWATER_ERROR, HIGHWATER_ERROR_INPUT,
                        g_ptr_array_index(inputs.refused, 0));
    for (guint i = 1; i < inputs.refused->len; i++)
      fprintf(stderr, "highwater: %s\n", (const char *) g_ptr_array_index(inputs.refused, i));
  }
  inputs_clear(&inputs);
  return status;
}

/* ---- GPUs */

static CalibrateRequest
request_of(const CalibrateArguments *arguments)
{
  return (CalibrateRequest){
      .plan = arguments->plan ? arguments->plan : "fsdp2",
      .assignments = arguments->assignments,
      .device = arguments->device,
      .cluster = arguments->cluster,
      .output = arguments->output,
      .samples = arguments->samples,
      .table = arguments->table,
      .budget = arguments->budget,
      .json = arguments->json,
  };
}

/* Samples that were stored by an earlier calibration, in a file alone.  FALSE: it is none. */
static gboolean
fit_again(const CalibrateArguments *arguments, char **positionals, int *status, GError **error)
{
  gsize length;
  /* What can be read only once is left to the tables' reader. */
  if (arguments->from[1] || positionals[0] ||
      !g_file_test(arguments->from[0], G_FILE_TEST_IS_REGULAR))
    return FALSE;
  g_autofree char *text = json_text_load(arguments->from[0], &length, NULL);
  if (!text || !measurements_recognized(text, length))
    return FALSE;
  *status = EXIT_BAD_INPUT;
  if (arguments->ranks || arguments->nodes) {
    g_set_error(error, HIGHWATER_ERROR, HIGHWATER_ERROR_USAGE,
                "calibrate: --ranks and --nodes are for tables: stored samples say theirs");
    return TRUE;
  }
  CalibrateRequest request = request_of(arguments);
  *status = calibrate_samples(&request, json_text_name(arguments->from[0]), text, length, error);
  return TRUE;
}

/* By its beginning; what can be read only once is left to the tables' reader. */
static gboolean
is_trace(const char *path)
{
  if (!g_file_test(path, G_FILE_TEST_IS_REGULAR))
    return FALSE;
  g_autoptr(ByteSource) source = byte_source_open(path, NULL);
  return source && byte_source_refill(source) &&
         kineto_trace_recognized((const char *) source->at, (gsize) (source->end - source->at));
}

/* Traces of a step.  FALSE: no file is one. */
static gboolean
fit_traces(const CalibrateArguments *arguments, char **positionals, int *status, GError **error)
{
  g_autoptr(GPtrArray) traces = g_ptr_array_new();
  const char *other = NULL;
  char **lists[] = {arguments->from, positionals};
  for (guint i = 0; i < G_N_ELEMENTS(lists); i++)
    for (char **path = lists[i]; *path; path++) {
      if (is_trace(*path))
        g_ptr_array_add(traces, *path);
      else
        other = *path;
    }
  if (traces->len == 0)
    return FALSE;
  CalibrateRequest request = request_of(arguments);
  const TracedJob job = {arguments->ranks, arguments->nodes};
  *status = EXIT_BAD_INPUT;
  if (!other)
    *status = calibrate_traces(&request, traces, job, error);
  else
    g_set_error(error, HIGHWATER_ERROR, HIGHWATER_ERROR_USAGE,
                "calibrate: %s is a trace and %s is none: fit one, and begin with its output "
                "(--cluster) for the other",
                (const char *) g_ptr_array_index(traces, 0), other);
  return TRUE;
}

static int
calibrate(const CalibrateArguments *arguments, char **positionals, GError **error)
{
  int status;
  if (arguments->from && fit_traces(arguments, positionals, &status, error))
    return status;
  if (arguments->from && fit_again(arguments, positionals, &status, error))
    return status;
  if (arguments->from)
    return calibrate_files(arguments, positionals, error);
  CalibrateRequest request = request_of(arguments);
  request.network = positionals[0];
  return calibrate_gpus(&request, error);
}

/* An option that the other of the two ways would leave unused. */
static const char *
misplaced(const CalibrateArguments *a, char **positionals)
{
  if (a->from && (a->plan || a->assignments || a->budget || a->samples))
    return "--plan, --set, --budget and --samples are for measuring, not for --from";
  if (!a->from && (a->ranks || a->nodes))
    return "--ranks and --nodes are for tables of --from";
  if (!a->from && positionals[0] && positionals[1])
    return "one network at most; files are given with --from";
  if (!a->from && !positionals[0] && (a->plan || a->assignments))
    return "--plan and --set need a network";
  return NULL;
}

/* Is it the same file, whatever its names?  FALSE too where one does not exist. */
static gboolean
same_file(const char *a, const char *b)
{
  GStatBuf x, y;
  return g_stat(a, &x) == 0 && g_stat(b, &y) == 0 && S_ISREG(x.st_mode) && x.st_dev == y.st_dev &&
         x.st_ino == y.st_ino;
}

/* Measurements are not to be lost: no file that is written is one that is read, or another one. */
static gboolean
check_output(const CalibrateArguments *a, char **positionals, GError **error)
{
  const char *const written[] = {a->output, a->samples, a->table};
  const char *lost = NULL;
  for (guint i = 0; i < G_N_ELEMENTS(written); i++)
    for (guint j = 0; j < i; j++)
      if (written[i] && g_strcmp0(written[i], written[j]) == 0)
        lost = written[i];
  char **const lists[] = {a->from, a->from ? positionals : NULL};
  for (guint i = 0; i < G_N_ELEMENTS(written); i++)
    for (gsize k = 0; k < G_N_ELEMENTS(lists) && written[i]; k++)
      for (char **path = lists[k]; path && *path; path++)
        lost = same_file(*path, written[i]) ? written[i] : lost;
  if (lost)
    g_set_error(error, HIGHWATER_ERROR, HIGHWATER_ERROR_USAGE,
                "calibrate: --output: '%s' holds the measurements: give another file", lost);
  return !lost;
}

static gboolean
check_arguments(const CalibrateArguments *arguments, char **positionals, GError **error)
{
  const char *wrong = misplaced(arguments, positionals);
  if (arguments->ranks < 0 || arguments->ranks == 1 || arguments->ranks > 1 << 20)
    wrong = "--ranks: 2 to 1048576 are allowed";
  else if (arguments->nodes < 0 || arguments->nodes > 1 << 20)
    wrong = "--nodes: 1 to 1048576 are allowed";
  if (wrong)
    g_set_error(error, HIGHWATER_ERROR, HIGHWATER_ERROR_USAGE, "calibrate: %s", wrong);
  return wrong == NULL;
}

static int
run(int argc, char **argv, GError **error)
{
  CalibrateArguments arguments = {0};
  const GOptionEntry entries[] = {
      {"from", 0, 0, G_OPTION_ARG_FILENAME_ARRAY, &arguments.from,
       "Fit tables of nccl-tests or traces of PyTorch's profiler (more may follow), or samples",
       "FILE"},
      {"plan", 0, 0, G_OPTION_ARG_FILENAME, &arguments.plan,
       "Measure groups and products of this plan (default fsdp2)", "P"},
      {"set", 0, 0, G_OPTION_ARG_FILENAME_ARRAY, &arguments.assignments,
       "Override a key of the plan", "KEY=VALUE"},
      {"budget", 0, 0, G_OPTION_ARG_STRING, &arguments.budget,
       "Time to measure: 90s, 5min (default), 1h", "TIME"},
      {"samples", 0, 0, G_OPTION_ARG_FILENAME, &arguments.samples,
       "Write all samples; --from fits them again", "FILE"},
      {"device", 0, 0, G_OPTION_ARG_STRING, &arguments.device,
       "Device profile to begin with (default: by the GPU's name)", "D"},
      {"cluster", 0, 0, G_OPTION_ARG_STRING, &arguments.cluster,
       "Compare with this cluster and begin the output with it (default: by the GPU)", "CLUSTER"},
      {"ranks", 0, 0, G_OPTION_ARG_INT, &arguments.ranks,
       "Ranks of tables and traces that do not say (default: from the table)", "N"},
      {"nodes", 0, 0, G_OPTION_ARG_INT, &arguments.nodes,
       "Nodes they were on (default: from the table)", "N"},
      {"output", 'o', 0, G_OPTION_ARG_FILENAME, &arguments.output,
       "Write a cluster file that run --cluster takes", "FILE"},
      {"table", 0, 0, G_OPTION_ARG_FILENAME, &arguments.table,
       "Write measured collectives and their fits for plot collectives", "FILE"},
      {"json", 0, 0, G_OPTION_ARG_NONE, &arguments.json, "Print JSON", NULL},
      {0},
  };
  g_auto(GStrv) positionals = NULL;
  int status = EXIT_BAD_INPUT;
  if (command_parse(&command_calibrate, argc, argv, entries, 0, -1, &positionals, error)) {
    if (check_arguments(&arguments, positionals, error) &&
        check_output(&arguments, positionals, error))
      status = calibrate(&arguments, positionals, error);
  } else if (!*error) {
    status = EXIT_ANSWER_YES;
  }
  g_strfreev(arguments.from);
  g_strfreev(arguments.assignments);
  g_free(arguments.plan);
  g_free(arguments.budget);
  g_free(arguments.samples);
  g_free(arguments.device);
  g_free(arguments.cluster);
  g_free(arguments.output);
  g_free(arguments.table);
  return status;
}

const Command command_calibrate = {
    .name = "calibrate",
    .arguments = "[NETWORK [--plan P]] [--budget TIME] | --from FILE...  [--output FILE] [--json]",
    .summary = "Measure GPUs, or fit measurements, and write a cluster file",
    .run = run,
};
