/* kineto_trace.c - the value that traces of PyTorch's profiler are read into, and the file around
 * the events. */
#include "import/kineto_internal.h"

#include <string.h>

#include "base/units.h"
#include "spec/dtype.h"

/* ---- the value ---- */

static void
row_free(gpointer data)
{
  KinetoRow *row = data;
  g_free(row->name);
  g_free(row->shapes);
  g_free(row->types);
  g_array_unref(row->runs);
  g_free(row);
}

static void
collective_free(gpointer data)
{
  KinetoCollective *collective = data;
  g_free(collective->name);
  g_free(collective->type);
  g_array_unref(collective->runs);
  g_free(collective);
}

KinetoTrace *
kineto_trace_new(void)
{
  KinetoTrace *trace = g_new0(KinetoTrace, 1);
  trace->rows = g_ptr_array_new_with_free_func(row_free);
  trace->collectives = g_ptr_array_new_with_free_func(collective_free);
  trace->notes = g_ptr_array_new_with_free_func(g_free);
  trace->row_of = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, NULL);
  trace->collective_of = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, NULL);
  for (int i = 0; i < KINETO_DIRECTION_COUNT; i++)
    trace->host[i] = g_array_new(FALSE, FALSE, sizeof(double));
  return trace;
}

void
kineto_trace_free(KinetoTrace *trace)
{
  if (trace == NULL)
    return;
  g_ptr_array_unref(trace->rows);
  g_ptr_array_unref(trace->collectives);
  g_ptr_array_unref(trace->notes);
  g_hash_table_unref(trace->row_of);
  g_hash_table_unref(trace->collective_of);
  for (int i = 0; i < KINETO_DIRECTION_COUNT; i++)
    g_array_unref(trace->host[i]);
  g_free(trace);
}

/* Index of the key's row, or -1 where there is none; the next one is then the key's (taken). */
static int
find_or_number(GHashTable *table, char *key, guint next)
{
  gpointer found = g_hash_table_lookup(table, key);
  if (found != NULL) {
    g_free(key);
    return GPOINTER_TO_INT(found) - 1;
  }
  g_hash_table_insert(table, key, GINT_TO_POINTER((int) next + 1));
  return -1;
}

guint
kineto_row_of(KinetoTrace *trace, KinetoRowKind kind, const KinetoEvent *event)
{
  gboolean is_op = kind == KINETO_OP;
  gint64 bytes = kind == KINETO_COPY ? MAX(event->bytes, 0) : 0;
  const char *shapes = is_op ? event->shapes->str : "", *types = is_op ? event->types->str : "";
  char *key = g_strdup_printf("%d\n%s\n%s\n%s\n%" G_GINT64_FORMAT, kind, event->name->str, shapes,
                              types, bytes);
  int found = find_or_number(trace->row_of, key, trace->rows->len);
  if (found >= 0)
    return (guint) found;
  KinetoRow *row = g_new0(KinetoRow, 1);
  row->kind = kind;
  row->name = g_strdup(event->name->str);
  row->shapes = g_strdup(shapes);
  row->types = g_strdup(types);
  row->bytes = bytes;
  row->n_arguments = is_op ? event->n_arguments : 0;
  memcpy(row->arguments, event->arguments, sizeof(row->arguments));
  row->runs = g_array_new(FALSE, FALSE, sizeof(KinetoRun));
  g_ptr_array_add(trace->rows, row);
  return trace->rows->len - 1;
}

guint
kineto_collective_of(KinetoTrace *trace, const KinetoEvent *event)
{
  const char *name = event->collective->len > 0 ? event->collective->str : event->name->str;
  int dtype = kineto_dtype(event->type->str);
  gint64 elements = MAX(event->elements[0], event->elements[1]);
  gboolean known = dtype >= 0 && elements > 0 && elements < (gint64) 1 << 50;
  gint64 bytes = known ? elements * dtype_size((DType) dtype) : 0;
  int ranks = event->ranks > 0 && event->ranks < 1 << 20 ? (int) event->ranks : 0;
  char *key = g_strdup_printf("%s\n%s\n%" G_GINT64_FORMAT "\n%d\n%d", name, event->type->str, bytes,
                              ranks, (int) event->stride);
  int found = find_or_number(trace->collective_of, key, trace->collectives->len);
  if (found >= 0)
    return (guint) found;
  KinetoCollective *collective = g_new0(KinetoCollective, 1);
  collective->name = g_strdup(name);
  collective->type = g_strdup(event->type->str);
  collective->bytes = bytes;
  collective->ranks = ranks;
  collective->stride = (int) event->stride;
  collective->runs = g_array_new(FALSE, FALSE, sizeof(KinetoRun));
  g_ptr_array_add(trace->collectives, collective);
  return trace->collectives->len - 1;
}

/* ---- one file ---- */

typedef struct {
  KinetoTrace *trace;
  KinetoFile file;
  GHashTable *threads; /* "pid/tid" and "pid": numbers from 1 */
} TraceReader;

static guint32
number_of(TraceReader *reader, const char *process, const char *thread)
{
  char *key = thread != NULL ? g_strdup_printf("%s/%s", process, thread) : g_strdup(process);
  guint next = g_hash_table_size(reader->threads);
  int found = find_or_number(reader->threads, key, next);
  return found >= 0 ? (guint32) found : next;
}

static guint8
flags_of(const char *name)
{
  if (g_str_has_prefix(name, "aten::"))
    return OP_ATEN;
  /* c10d's and fused ops stand at the same place as those of ATen. */
  return g_str_has_prefix(name, "autograd::engine::evaluate_function") ? OP_NODE : 0;
}

static void
keep_op(TraceReader *reader, const KinetoEvent *event)
{
  reader->trace->ops++;
  TracedOp op = {
      .row = kineto_row_of(reader->trace, KINETO_OP, event),
      .collective = -1,
      .id = event->id,
      .begin = event->begin,
      .end = event->begin + event->length,
      .thread = number_of(reader, event->process->str, event->thread->str),
      .parent = KINETO_NO_OP,
      .flags = flags_of(event->name->str),
  };
  if (event->collective->len > 0)
    op.collective = (gint32) kineto_collective_of(reader->trace, event);
  g_array_append_val(reader->file.ops, op);
}

static void
keep_launch(TraceReader *reader, const KinetoEvent *event)
{
  if (event->correlation == 0)
    return;
  TracedLaunch launch = {
      .correlation = event->correlation,
      .id = event->id,
      .at = event->begin,
      .thread = number_of(reader, event->process->str, event->thread->str),
  };
  g_array_append_val(reader->file.launches, launch);
}

/* Not one within the device, which a kernel of an op might do as well. */
static gboolean
leaves_device(const KinetoEvent *event)
{
  return event->kind == KINETO_EVENT_COPY && strstr(event->name->str, "DtoD") == NULL;
}

static void
keep_kernel(TraceReader *reader, const KinetoEvent *event)
{
  reader->trace->kernels++;
  gboolean copy = leaves_device(event);
  gboolean collective = event->kind == KINETO_EVENT_KERNEL &&
                        (event->collective->len > 0 || g_str_has_prefix(event->name->str, "nccl"));
  TracedKernel kernel = {
      .correlation = event->correlation,
      .id = event->id,
      .begin = event->begin,
      .end = event->begin + event->length,
      .row = kineto_row_of(reader->trace, copy ? KINETO_COPY : KINETO_KERNEL, event),
      .collective = collective ? (gint32) kineto_collective_of(reader->trace, event) : -1,
      .device = number_of(reader, event->process->str, NULL),
      .copy = copy,
  };
  g_array_append_val(reader->file.kernels, kernel);
}

static gboolean
keep_event(gpointer user, const KinetoEvent *event, JsonPull *pull)
{
  TraceReader *reader = user;
  reader->trace->events++;
  if (!event->complete)
    return TRUE;
  if (g_str_has_prefix(event->name->str, "ProfilerStep#")) {
    reader->trace->steps++;
    return TRUE;
  }
  if (event->kind == KINETO_EVENT_OP)
    keep_op(reader, event);
  else if (event->kind == KINETO_EVENT_LAUNCH)
    keep_launch(reader, event);
  else if (kineto_event_is_work(event))
    keep_kernel(reader, event);
  const KinetoFile *file = &reader->file;
  if (MAX(file->ops->len, MAX(file->launches->len, file->kernels->len)) > KINETO_MAX_EVENTS)
    return json_pull_fail(pull, "more than %d ops, launches or kernels", KINETO_MAX_EVENTS);
  return TRUE;
}

gboolean
kineto_trace_read(KinetoTrace *trace, ByteSource *source, GError **error)
{
  TraceReader reader = {
      .trace = trace,
      .file.ops = g_array_new(FALSE, FALSE, sizeof(TracedOp)),
      .file.launches = g_array_new(FALSE, FALSE, sizeof(TracedLaunch)),
      .file.kernels = g_array_new(FALSE, FALSE, sizeof(TracedKernel)),
      .threads = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, NULL),
  };
  KinetoDocument document = {
      .machine = &trace->machine, .notes = trace->notes, .keep = keep_event, .user = &reader};
  gboolean ok = kineto_document_read(&document, source, error);
  if (ok)
    kineto_link(trace, &reader.file);
  g_hash_table_unref(reader.threads);
  g_array_unref(reader.file.ops);
  g_array_unref(reader.file.launches);
  g_array_unref(reader.file.kernels);
  return ok;
}

gboolean
kineto_trace_load(KinetoTrace *trace, const char *path, GError **error)
{
  g_autoptr(ByteSource) source = byte_source_open(path, error);
  if (source == NULL)
    return FALSE;
  source->limit = KINETO_BYTE_LIMIT;
  return kineto_trace_read(trace, source, error);
}

gboolean
kineto_trace_recognized(const char *text, gsize length)
{
  static const char *const marks[] = {"\"traceEvents\"", "\"schemaVersion\"",
                                      "\"deviceProperties\"", "\"baseTimeNanoseconds\"", "\"ph\""};
  gsize i = 0;
  while (i < length && (g_ascii_isspace(text[i]) || text[i] == '['))
    i++;
  /* mpirun's labels, "[1,0]<stdout>:", begin with a bracket too. */
  if (i == length || text[i] != '{')
    return FALSE;
  for (guint mark = 0; mark < G_N_ELEMENTS(marks); mark++)
    if (g_strstr_len(text + i, (gssize) (length - i), marks[mark]) != NULL)
      return TRUE;
  return FALSE;
}
