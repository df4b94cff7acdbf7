/* traced_ops.c - which op is which experiment, by its name and the shapes of its arguments. */
#include "calibrate/traced_ops.h"

#include <string.h>

#include "base/units.h"
#include "spec/dtype.h"

/* ---- products ---- */

/* Where the factors stand among the arguments. */
static const struct {
  const char *name;
  guint a, b;
  gboolean batched;
  gboolean transposed; /* b is [n, k], and all of a's dimensions but the last are rows */
} products[] = {
    {"aten::mm", 0, 1, FALSE, FALSE},
    {"aten::addmm", 1, 2, FALSE, FALSE},
    {"aten::_addmm_activation", 1, 2, FALSE, FALSE},
    {"aten::bmm", 0, 1, TRUE, FALSE},
    {"aten::baddbmm", 1, 2, TRUE, FALSE},
    {"aten::linear", 0, 1, FALSE, TRUE},
};

/* Whether products of fp32 run as TF32 a trace does not say. */
static gboolean
is_half(const KinetoArgument *argument)
{
  return argument->dtype == DTYPE_BF16 || argument->dtype == DTYPE_FP16;
}

static gboolean
product(const KinetoRow *row, guint rule, Experiment *e)
{
  guint first = products[rule].batched ? 1 : 0;
  if (row->n_arguments <= products[rule].b)
    return FALSE;
  const KinetoArgument *a = &row->arguments[products[rule].a],
                       *b = &row->arguments[products[rule].b];
  if (!is_half(a) || a->dtype != b->dtype || b->n_dims != 2 + first || a->n_dims < 2 + first ||
      (a->n_dims != b->n_dims && !products[rule].transposed))
    return FALSE;
  const gint64 *inner = &b->dims[first];
  gint64 k = a->dims[a->n_dims - 1];
  gboolean transposed = products[rule].transposed;
  gint64 batch = first == 1 ? a->dims[0] : 1;
  if (k <= 0 || batch <= 0 || k != inner[transposed ? 1 : 0] || (first == 1 && b->dims[0] != batch))
    return FALSE;
  const gint64 most = 1 << 30;
  double rows = a->elements / (double) k / (double) batch;
  if (!(rows < (double) most))
    return FALSE;
  *e = (Experiment){
      .kind = EXPERIMENT_GEMM,
      .dtype = (guint8) a->dtype,
      .m = (gint64) rows,
      .n = inner[transposed ? 0 : 1],
      .k = k,
      .batch = batch > 1 ? batch : 0,
  };
  return e->m > 0 && e->n > 0 && e->n < most && k < most && batch < most;
}

/* ---- element-wise kernels ---- */

typedef enum {
  READS_ONE,    /* writes as much */
  READS_TWO,    /* writes what the two broadcast to */
  READS_BOTH,   /* of one size, writes as much again */
  WRITES_FIRST, /* reads and writes the first, reads the second */
  CASTS,        /* reads the second, writes the first, of another type */
  FILLS,        /* writes the first */
} Traffic;

static const struct {
  const char *name;
  Traffic traffic;
} elementwise[] = {
    {"aten::add", READS_TWO},
    {"aten::sub", READS_TWO},
    {"aten::mul", READS_TWO},
    {"aten::div", READS_TWO},
    {"aten::add_", WRITES_FIRST},
    {"aten::sub_", WRITES_FIRST},
    {"aten::mul_", WRITES_FIRST},
    {"aten::div_", WRITES_FIRST},
    {"aten::silu", READS_ONE},
    {"aten::gelu", READS_ONE},
    {"aten::relu", READS_ONE},
    {"aten::sigmoid", READS_ONE},
    {"aten::tanh", READS_ONE},
    {"aten::neg", READS_ONE},
    {"aten::exp", READS_ONE},
    {"aten::rsqrt", READS_ONE},
    {"aten::silu_backward", READS_BOTH},
    {"aten::gelu_backward", READS_BOTH},
    {"aten::copy_", CASTS},
    {"aten::fill_", FILLS},
    {"aten::zero_", FILLS},
};

static double
bytes_of(const KinetoArgument *argument)
{
  return argument->elements * dtype_size((DType) argument->dtype);
}

/* Elements of what two tensors broadcast to. */
static double
broadcast(const KinetoArgument *a, const KinetoArgument *b)
{
  double elements = 1;
  guint n = MAX(a->n_dims, b->n_dims);
  for (guint i = 1; i <= n; i++) {
    gint64 x = i <= a->n_dims ? a->dims[a->n_dims - i] : 1;
    gint64 y = i <= b->n_dims ? b->dims[b->n_dims - i] : 1;
    elements *= (double) MAX(x, y);
  }
  return elements;
}

/* Bytes that it reads and writes; 0: not known. */
static double
traffic_of(Traffic traffic, const KinetoArgument *a, const KinetoArgument *b)
{
  gboolean second = b->n_dims > 0 && b->dtype >= 0;
  if (a->n_dims == 0 || a->dtype < 0)
    return 0;
  double own = bytes_of(a), other = second ? bytes_of(b) : 0;
  switch (traffic) {
  case READS_ONE:
    return 2 * own;
  case READS_TWO: {
    int size = MAX(dtype_size((DType) a->dtype), second ? dtype_size((DType) b->dtype) : 0);
    return own + other + broadcast(a, b) * size;
  }
  case READS_BOTH:
    return other == own ? 3 * own : 0;
  case WRITES_FIRST:
    return 2 * own + other;
  case CASTS:
    /* Copies within a type are mostly there to change the layout. */
    return second && a->dtype != b->dtype && a->elements == b->elements ? own + other : 0;
  case FILLS:
    return own;
  }
  return 0;
}

static gboolean
elements(const KinetoRow *row, guint rule, Experiment *e)
{
  const KinetoArgument none = {.dtype = -1};
  if (row->n_arguments == 0)
    return FALSE;
  const KinetoArgument *b = row->n_arguments > 1 ? &row->arguments[1] : &none;
  double bytes = traffic_of(elementwise[rule].traffic, &row->arguments[0], b);
  if (!(bytes >= 1 && bytes < 1e15))
    return FALSE;
  *e = (Experiment){.kind = EXPERIMENT_MEMORY, .bytes = (gint64) bytes};
  return TRUE;
}

/* ---- rows ---- */

/* Copies from memory that is not page-locked take a way of their own. */
static gboolean
copy(const KinetoRow *row, Experiment *e)
{
  gboolean pinned = strstr(row->name, "Pinned") != NULL;
  gboolean to_device = strstr(row->name, "HtoD") != NULL;
  if (!pinned || row->bytes <= 0 || (!to_device && strstr(row->name, "DtoH") == NULL))
    return FALSE;
  *e = (Experiment){.kind = to_device ? EXPERIMENT_COPY_TO_DEVICE : EXPERIMENT_COPY_TO_HOST,
                    .bytes = row->bytes};
  return TRUE;
}

gboolean
traced_experiment(const KinetoRow *row, Experiment *e)
{
  if (row->kind == KINETO_COPY)
    return copy(row, e);
  if (row->kind != KINETO_OP)
    return FALSE;
  for (guint i = 0; i < G_N_ELEMENTS(products); i++)
    if (g_str_equal(row->name, products[i].name))
      return product(row, i, e);
  for (guint i = 0; i < G_N_ELEMENTS(elementwise); i++)
    if (g_str_equal(row->name, elementwise[i].name))
      return elements(row, i, e);
  return FALSE;
}

/* ---- collectives ---- */

/* The name in small letters without what separates its words. */
static char *
plain_name(const char *name)
{
  GString *plain = g_string_new(NULL);
  for (; *name != '\0'; name++)
    if (g_ascii_isalnum(*name))
      g_string_append_c(plain, g_ascii_tolower(*name));
  return g_string_free(plain, FALSE);
}

gboolean
traced_collective(const KinetoCollective *c, Experiment *e)
{
  static const struct {
    const char *part;
    CollectiveKind kind;
  } kinds[] = {
      {"allgather", COLLECTIVE_ALL_GATHER}, {"reducescatter", COLLECTIVE_REDUCE_SCATTER},
      {"allreduce", COLLECTIVE_ALL_REDUCE}, {"alltoall", COLLECTIVE_ALL_TO_ALL},
      {"broadcast", COLLECTIVE_BROADCAST},
  };
  g_autofree char *name = plain_name(c->name);
  /* Of several at once the trace has one size, and of uneven ones no more. */
  if (c->bytes <= 0 || c->ranks < 2 || strstr(name, "coalesced") != NULL ||
      strstr(name, "alltoallv") != NULL)
    return FALSE;
  for (guint i = 0; i < G_N_ELEMENTS(kinds); i++) {
    if (strstr(name, kinds[i].part) == NULL)
      continue;
    *e = (Experiment){.kind = EXPERIMENT_COLLECTIVE,
                      .call = {.collective = (guint8) kinds[i].kind,
                               .group = {c->ranks, MAX(c->stride, 1)},
                               .bytes = c->bytes}};
    return TRUE;
  }
  return FALSE;
}

/* ---- measurements ---- */

/* Rows of one experiment (a view and its base, add and add_) are measured together. */
static Measurement *
find_or_add(Measurements *all, GHashTable *found, const Experiment *experiment)
{
  g_autofree char *key = experiment_text(experiment);
  g_autofree char *exact = g_strdup_printf("%s %" G_GINT64_FORMAT " %" G_GINT64_FORMAT, key,
                                           experiment->bytes, experiment->call.bytes);
  Measurement *m = g_hash_table_lookup(found, exact);
  if (m == NULL) {
    m = measurements_add(all, experiment);
    g_hash_table_insert(found, g_steal_pointer(&exact), m);
  }
  return m;
}

static gboolean
has_run_alone(const GArray *runs)
{
  for (guint i = 0; i < runs->len; i++)
    if (!g_array_index(runs, KinetoRun, i).beside && g_array_index(runs, KinetoRun, i).ns > 0)
      return TRUE;
  return FALSE;
}

static void
add_samples(Measurements *all, GHashTable *found, const Experiment *experiment, const GArray *runs)
{
  if (!has_run_alone(runs))
    return;
  Measurement *m = find_or_add(all, found, experiment);
  for (guint i = 0; i < runs->len; i++) {
    const KinetoRun *run = &g_array_index(runs, KinetoRun, i);
    if (!run->beside && run->ns > 0)
      g_array_append_val(m->samples, run->ns);
  }
}

static void
conclude(Measurement *m)
{
  SampleStats stats =
      sample_stats((const double *) (const void *) m->samples->data, m->samples->len);
  double value = m->experiment.kind == EXPERIMENT_COLLECTIVE ? stats.least : stats.median;
  g_array_append_val(m->medians, value);
  measurement_conclude(m);
}

static ProbeFacts
facts_of(const KinetoTrace *trace, TracedJob job)
{
  const KinetoMachine *machine = &trace->machine;
  ProbeFacts facts = {
      .memory_bytes = machine->memory_bytes,
      .sms = (gint32) machine->sms,
      .max_threads_per_sm = (gint32) machine->max_threads_per_sm,
      .compute_capability = (gint32) machine->compute_capability,
      .ranks = job.ranks > 0 ? job.ranks : (gint32) MAX(machine->world_size, 1),
  };
  g_strlcpy(facts.device, machine->device, sizeof(facts.device));
  g_strlcpy(facts.runtime, machine->runtime, sizeof(facts.runtime));
  g_strlcpy(facts.nccl, machine->nccl, sizeof(facts.nccl));
  for (guint i = 0; i < trace->collectives->len; i++) {
    const KinetoCollective *c = g_ptr_array_index(trace->collectives, i);
    facts.ranks = MAX(facts.ranks, c->ranks);
  }
  /* A process that sees one GPU of its node only does not know how many there are. */
  if (job.nodes > 0)
    facts.ranks_of_node = (gint32) ceil_div(facts.ranks, job.nodes);
  else if (machine->devices > 1)
    facts.ranks_of_node = (gint32) MIN(machine->devices, facts.ranks);
  return facts;
}

Measurements *
traced_measurements(const KinetoTrace *trace, TracedJob job)
{
  Measurements *all = measurements_new();
  g_autoptr(GHashTable) found = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, NULL);
  Experiment experiment;
  all->facts = facts_of(trace, job);
  all->in_step = all->complete = TRUE;
  all->origin = g_strdup_printf("%u steps, %" G_GUINT64_FORMAT " ops, %" G_GUINT64_FORMAT
                                " kernels and copies, %" G_GUINT64_FORMAT " of no known op",
                                trace->steps, trace->ops, trace->kernels, trace->unlinked);
  for (guint i = 0; i < trace->rows->len; i++) {
    const KinetoRow *row = g_ptr_array_index(trace->rows, i);
    if (traced_experiment(row, &experiment))
      add_samples(all, found, &experiment, row->runs);
  }
  for (guint i = 0; i < trace->collectives->len; i++) {
    const KinetoCollective *collective = g_ptr_array_index(trace->collectives, i);
    if (traced_collective(collective, &experiment))
      add_samples(all, found, &experiment, collective->runs);
  }
  for (guint i = 0; i < all->measurements->len; i++)
    conclude(g_ptr_array_index(all->measurements, i));
  return all;
}
