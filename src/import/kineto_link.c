/* kineto_link.c - whose kernels they are: by the id of the op, by the launch with the same
 * correlation, by the innermost op that was running on the thread of the launch. */
#include "import/kineto_internal.h"

#include <string.h>

#define OP(file, i) (&g_array_index((file)->ops, TracedOp, (i)))
#define KERNEL(file, i) (&g_array_index((file)->kernels, TracedKernel, (i)))
#define NO_TIME G_MAXINT64

/* ---- order ---- */

static int
compare(gint64 a, gint64 b)
{
  return (a > b) - (a < b);
}

/* By thread and begin; of those that begin together the outer first. */
static int
compare_ops(gconstpointer a, gconstpointer b)
{
  const TracedOp *x = a, *y = b;
  int order = compare(x->thread, y->thread);
  if (order == 0)
    order = compare(x->begin, y->begin);
  return order != 0 ? order : compare(y->end, x->end);
}

static int
compare_launches(gconstpointer a, gconstpointer b)
{
  const TracedLaunch *x = a, *y = b;
  return compare(x->correlation, y->correlation);
}

static int
compare_kernels(gconstpointer a, gconstpointer b)
{
  const TracedKernel *x = a, *y = b;
  int order = compare(x->device, y->device);
  return order != 0 ? order : compare(x->begin, y->begin);
}

typedef struct {
  gint64 id;
  guint32 op;
} OpId;

static int
compare_ids(gconstpointer a, gconstpointer b)
{
  const OpId *x = a, *y = b;
  return compare(x->id, y->id);
}

/* ---- who is within whom ---- */

/* Begin and duration are rounded apart, in old traces to microseconds. */
#define ROUNDING_NS 1000

static gboolean
is_within(const TracedOp *op, const TracedOp *around)
{
  return op->thread == around->thread && op->begin >= around->begin && op->begin < around->end &&
         op->end <= around->end + ROUNDING_NS;
}

/* Ops are in order; what is around an op is the one before it, or around that one. */
static void
nest_ops(KinetoFile *file)
{
  for (guint i = 1; i < file->ops->len; i++) {
    TracedOp *op = OP(file, i);
    guint32 around = i - 1;
    while (around != KINETO_NO_OP && !is_within(op, OP(file, around)))
      around = OP(file, around)->parent;
    op->parent = around;
    if (around == KINETO_NO_OP)
      continue;
    guint8 outer = OP(file, around)->flags;
    if (outer & (OP_ATEN | OP_IN_ATEN))
      op->flags |= OP_IN_ATEN;
    if (outer & (OP_NODE | OP_IN_NODE))
      op->flags |= OP_IN_NODE;
  }
}

/* ---- which op launched it ---- */

typedef struct {
  KinetoFile *file;
  GArray *ids; /* OpId, by id */
} Linker;

static guint32
op_with_id(const Linker *linker, gint64 id)
{
  const OpId *ids = (const OpId *) (const void *) linker->ids->data;
  const OpId wanted = {id, 0};
  if (id == 0 || linker->ids->len == 0)
    return KINETO_NO_OP;
  const OpId *found = bsearch(&wanted, ids, linker->ids->len, sizeof(OpId), compare_ids);
  return found != NULL ? found->op : KINETO_NO_OP;
}

static guint32
op_running_at(const KinetoFile *file, guint32 thread, gint64 time)
{
  const TracedOp moment = {.thread = thread, .begin = time, .end = G_MININT64};
  guint low = 0, high = file->ops->len;
  while (low < high) {
    guint middle = low + (high - low) / 2;
    if (compare_ops(OP(file, middle), &moment) <= 0)
      low = middle + 1;
    else
      high = middle;
  }
  guint32 op = low > 0 && OP(file, low - 1)->thread == thread ? low - 1 : KINETO_NO_OP;
  while (op != KINETO_NO_OP && OP(file, op)->end < time)
    op = OP(file, op)->parent;
  return op;
}

static guint32
op_of(const Linker *linker, const TracedKernel *kernel)
{
  guint32 op = op_with_id(linker, kernel->id);
  const GArray *launches = linker->file->launches;
  if (op != KINETO_NO_OP || kernel->correlation == 0 || launches->len == 0)
    return op;
  const TracedLaunch wanted = {.correlation = kernel->correlation};
  const TracedLaunch *launch =
      bsearch(&wanted, launches->data, launches->len, sizeof(TracedLaunch), compare_launches);
  if (launch == NULL)
    return KINETO_NO_OP;
  op = op_with_id(linker, launch->id);
  return op != KINETO_NO_OP ? op : op_running_at(linker->file, launch->thread, launch->at);
}

static GArray *
ids_of(KinetoFile *file)
{
  GArray *ids = g_array_new(FALSE, FALSE, sizeof(OpId));
  for (guint i = 0; i < file->ops->len; i++) {
    OpId id = {OP(file, i)->id, i};
    if (id.id != 0)
      g_array_append_val(ids, id);
  }
  g_array_sort(ids, compare_ids);
  return ids;
}

/* ---- what ran during a collective ---- */

/* Sets `beside` for each of the kernels, which are in order: a collective of its device began
 * before its end and ended after its begin. */
static gboolean *
find_beside(const KinetoFile *file)
{
  guint n = file->kernels->len;
  gboolean *beside = g_new0(gboolean, MAX(n, 1));
  gint64 until = G_MININT64, next = NO_TIME;
  for (guint i = 0; i < n; i++) {
    const TracedKernel *kernel = KERNEL(file, i);
    if (i == 0 || KERNEL(file, i - 1)->device != kernel->device)
      until = G_MININT64;
    beside[i] = kernel->begin < until;
    if (kernel->collective >= 0)
      until = MAX(until, kernel->end);
  }
  for (guint i = n; i-- > 0;) {
    const TracedKernel *kernel = KERNEL(file, i);
    if (i == n - 1 || KERNEL(file, i + 1)->device != kernel->device)
      next = NO_TIME;
    beside[i] = beside[i] || next < kernel->end;
    if (kernel->collective >= 0)
      next = kernel->begin;
  }
  return beside;
}

/* ---- runs ---- */

static void
add_run(GArray *runs, double ns, gboolean beside)
{
  KinetoRun run = {ns, beside};
  g_array_append_val(runs, run);
}

/* The op and all around it launch something. */
static void
mark_launching(KinetoFile *file, guint32 op)
{
  while (op != KINETO_NO_OP && !(OP(file, op)->flags & OP_LAUNCHES)) {
    OP(file, op)->flags |= OP_LAUNCHES;
    op = OP(file, op)->parent;
  }
}

static double
duration(const TracedKernel *kernel)
{
  return (double) (kernel->end - kernel->begin);
}

static void
add_collective(KinetoTrace *trace, const KinetoFile *file, const TracedKernel *kernel, guint32 op)
{
  gint32 index = kernel->collective;
  const KinetoCollective *own = g_ptr_array_index(trace->collectives, (guint) index);
  /* Earlier versions tell sizes with the op alone. */
  if (own->bytes == 0 && op != KINETO_NO_OP && OP(file, op)->collective >= 0)
    index = OP(file, op)->collective;
  KinetoCollective *collective = g_ptr_array_index(trace->collectives, (guint) index);
  add_run(collective->runs, duration(kernel), FALSE);
}

/* What one call of an op launched. */
typedef struct {
  double ns;
  guint32 kernels;
  gboolean beside;
} OpWork;

static void
share_out(KinetoTrace *trace, const Linker *linker, OpWork *work)
{
  KinetoFile *file = linker->file;
  g_autofree gboolean *beside = find_beside(file);
  for (guint i = 0; i < file->kernels->len; i++) {
    const TracedKernel *kernel = KERNEL(file, i);
    guint32 op = op_of(linker, kernel);
    trace->unlinked += op == KINETO_NO_OP;
    mark_launching(file, op);
    if (kernel->collective >= 0) {
      add_collective(trace, file, kernel, op);
    } else if (op == KINETO_NO_OP || kernel->copy) {
      KinetoRow *row = g_ptr_array_index(trace->rows, kernel->row);
      row->kernels++;
      add_run(row->runs, duration(kernel), beside[i]);
    } else {
      work[op].ns += duration(kernel);
      work[op].kernels++;
      work[op].beside = work[op].beside || beside[i];
    }
  }
}

static void
add_op_runs(KinetoTrace *trace, const KinetoFile *file, const OpWork *work)
{
  for (guint i = 0; i < file->ops->len; i++) {
    if (work[i].kernels == 0)
      continue;
    KinetoRow *row = g_ptr_array_index(trace->rows, OP(file, i)->row);
    row->kernels += work[i].kernels;
    add_run(row->runs, work[i].ns, work[i].beside);
  }
}

/* ---- the host's time ---- */

/* The direction in which it counts as one op of the host, or -1. */
static int
direction_of(const TracedOp *op)
{
  if (!(op->flags & OP_LAUNCHES))
    return -1;
  if (op->flags & OP_NODE)
    return op->flags & OP_IN_NODE ? -1 : KINETO_BACKWARD;
  gboolean outermost = (op->flags & OP_ATEN) && !(op->flags & (OP_IN_ATEN | OP_IN_NODE));
  return outermost ? KINETO_FORWARD : -1;
}

static void
add_host_times(KinetoTrace *trace, const KinetoFile *file)
{
  int last_direction = -1;
  const TracedOp *last = NULL;
  for (guint i = 0; i < file->ops->len; i++) {
    const TracedOp *op = OP(file, i);
    int direction = direction_of(op);
    if (direction < 0)
      continue;
    if (last != NULL && last->thread == op->thread && last_direction == direction) {
      double ns = (double) (op->begin - last->begin);
      g_array_append_val(trace->host[direction], ns);
    }
    last = op;
    last_direction = direction;
  }
}

void
kineto_link(KinetoTrace *trace, KinetoFile *file)
{
  g_array_sort(file->ops, compare_ops);
  g_array_sort(file->launches, compare_launches);
  g_array_sort(file->kernels, compare_kernels);
  nest_ops(file);
  g_autoptr(GArray) ids = ids_of(file);
  g_autofree OpWork *work = g_new0(OpWork, MAX(file->ops->len, 1));
  const Linker linker = {file, ids};
  share_out(trace, &linker, work);
  add_op_runs(trace, file, work);
  add_host_times(trace, file);
}
