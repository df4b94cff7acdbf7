/* program_check.c - plays a Program without times and refuses what no execution may do.
 *
 * Host order: storages are allocated and freed at issue, so "use after free" is a matter of the
 * order of ops.  Device order: work on different streams is ordered only by what the program says.
 * Each stream, the host and each event have a vector clock (C. Fidge, "Timestamps in
 * message-passing systems that preserve the partial ordering", 1988): work is ordered after earlier
 * work of its stream, after events that the stream waits for, and after all that the host had
 * synchronised with when it issued the work. */
#include "base/units.h"
#include "program/access_map.h"
#include "program/program_ids.h"
#include "program/program_schema.h"

/* A list that repeats itself is played this often: its first run, one that sees the carries, and
 * one that sees the carries of a run that saw them. */
#define MOST_RUNS 3

typedef struct {
  gint64 begin, end;
} Bytes;

typedef struct {
  const Program *program;
  GError **error;
  int step; /* 0: construction */
  guint op; /* index in its list */
  const OpList *list;
  guint8 *alive; /* per storage */
  AccessMap *accesses;
  Bytes *tensor;              /* what each tensor touches of its storage */
  Clock stream[STREAM_COUNT]; /* that of STREAM_HOST is the host's */
  Clock *event;
  guint8 *recorded; /* per event */
  int open_ranges;
} Checker;

/* "step 2, op 17 (launch mm on compute for layers.3): ...". */
G_GNUC_PRINTF(2, 3)
static gboolean
fail(const Checker *checker, const char *format, ...)
{
  const Program *program = checker->program;
  g_autoptr(GString) message = g_string_new("program: ");
  va_list arguments;

  if (checker->step == 0)
    g_string_append(message, "construction");
  else
    g_string_append_printf(message, "step %d", checker->step);
  if (checker->op < checker->list->ops->len) {
    const ProgramOp *op = &g_array_index(checker->list->ops, ProgramOp, checker->op);

    g_string_append_printf(message, ", op %u (%s", checker->op, program_op_form[op->kind].name);
    if (program_op_form[op->kind].argument[0] == VALUE_KERNEL)
      g_string_append_printf(
          message, " %s",
          program_text(program, g_array_index(program->kernels, Kernel, op->a).name));
    g_string_append_printf(message, " on %s", program_value_name(VALUE_STREAM, op->stream));
    if (op->module >= 0)
      g_string_append_printf(message, " for %s", program_module_path(program, op->module));
    g_string_append_c(message, ')');
  }
  g_string_append(message, ": ");
  va_start(arguments, format);
  g_string_append_vprintf(message, format, arguments);
  va_end(arguments);
  g_set_error_literal(checker->error, HIGHWATER_ERROR, HIGHWATER_ERROR_INPUT, message->str);
  return FALSE;
}

static const Storage *
storage_at(const Checker *checker, gint32 id)
{
  return &g_array_index(checker->program->storages, Storage, id);
}

/* Fails about a storage: what is wrong before and after its name. */
static gboolean
fail_storage(const Checker *checker, gint32 id, const char *before, const char *after)
{
  return fail(checker, "%s storage %d (%s)%s", before, id,
              program_text(checker->program, storage_at(checker, id)->what), after);
}

/* Contents that no op of the program writes: the model's state before the first step, made at
 * construction, and what the CPU makes in the host's memory (an offloaded optimizer's states),
 * whose work is time alone. */
static gboolean
comes_from_outside(const Checker *checker, gint32 id)
{
  const Storage *storage = storage_at(checker, id);
  Category category = storage->category;

  if (storage->space != SPACE_DEVICE && category == CATEGORY_OPTIMIZER_STATE)
    return TRUE;
  return checker->step == 0 && (category == CATEGORY_PARAMETER ||
                                category == CATEGORY_OPTIMIZER_STATE || category == CATEGORY_OTHER);
}

static gboolean
check_alloc(Checker *checker, const ProgramOp *op)
{
  if (checker->alive[op->a])
    return fail_storage(checker, op->a, "allocates", " again");
  if (op->stream != storage_at(checker, op->a)->stream)
    return fail_storage(checker, op->a, "allocates", ", which belongs to another stream");
  checker->alive[op->a] = TRUE;
  access_map_begin(checker->accesses, op->a, comes_from_outside(checker, op->a));
  return TRUE;
}

static gboolean
check_free(Checker *checker, const ProgramOp *op)
{
  if (!checker->alive[op->a])
    return fail_storage(checker, op->a, "frees", ", which is not allocated");
  checker->alive[op->a] = FALSE;
  access_map_end(checker->accesses, op->a);
  return TRUE;
}

static gboolean
check_record_stream(Checker *checker, const ProgramOp *op)
{
  return checker->alive[op->a] ||
         fail_storage(checker, op->a, "records a stream of", ", which is not allocated");
}

static gboolean
fail_access(const Checker *checker, gint32 storage, gboolean write, AccessResult result,
            StreamId other)
{
  g_autofree char *why = NULL;

  if (result == ACCESS_UNWRITTEN)
    return fail_storage(checker, storage, "reads", " before anything wrote it");
  why = g_strdup_printf(" although nothing orders this after the last %s of it on %s",
                        result == ACCESS_AFTER_WRITE ? "write" : "read",
                        program_value_name(VALUE_STREAM, other));
  return fail_storage(checker, storage, write ? "writes" : "reads", why);
}

/* One operand as a read or as a write, if it is that. */
static gboolean
check_operand(Checker *checker, const ProgramOp *op, const Operand *operand, gboolean write)
{
  const Tensor *tensor = &g_array_index(checker->program->tensors, Tensor, operand->tensor);
  Bytes bytes = checker->tensor[operand->tensor];
  Access access = {tensor->storage, bytes.begin, bytes.end, op->stream,
                   &checker->stream[op->stream]};
  StreamId other = STREAM_HOST;
  AccessResult result;

  if (operand->role == (write ? ROLE_READ : ROLE_WRITE))
    return TRUE;
  if (!checker->alive[tensor->storage])
    return fail_storage(checker, tensor->storage, write ? "writes" : "reads",
                        ", which is not allocated");
  if (bytes.begin == bytes.end)
    return TRUE;
  result = write ? access_map_write(checker->accesses, &access, &other)
                 : access_map_read(checker->accesses, &access, &other);
  return result == ACCESS_ORDERED || fail_access(checker, tensor->storage, write, result, other);
}

/* What the host computes, kernels, copies, collectives.  All reads come before all writes: an op
 * may work in place, but not live on what it writes itself. */
static gboolean
check_work(Checker *checker, const ProgramOp *op)
{
  const GArray *operands = checker->program->operands;
  Clock *now = &checker->stream[op->stream];

  access_clock_join(now, &checker->stream[STREAM_HOST]);
  now->at[op->stream]++;
  for (int pass = 0; pass < 2; pass++)
    for (int i = 0; i < op->operands; i++)
      if (!check_operand(checker, op, &g_array_index(operands, Operand, op->first_operand + i),
                         pass == 1))
        return FALSE;
  return TRUE;
}

/* What the host has seen by now is of no use to the event: whatever waits for it is issued later,
 * and knows that. */
static gboolean
check_record(Checker *checker, const ProgramOp *op)
{
  checker->event[op->a] = checker->stream[op->stream];
  checker->recorded[op->a] = TRUE;
  return TRUE;
}

/* Also for the host, whose stream field is STREAM_HOST. */
static gboolean
check_wait(Checker *checker, const ProgramOp *op)
{
  if (!checker->recorded[op->a])
    return fail(checker, "waits for event %d, which was never recorded", op->a);
  access_clock_join(&checker->stream[op->kind == PROGRAM_EVENT_SYNC ? STREAM_HOST : op->stream],
                    &checker->event[op->a]);
  return TRUE;
}

static gboolean
check_stream_sync(Checker *checker, const ProgramOp *op)
{
  access_clock_join(&checker->stream[STREAM_HOST], &checker->stream[op->stream]);
  return TRUE;
}

static gboolean
check_push(Checker *checker, const ProgramOp *op)
{
  (void) op;
  checker->open_ranges++;
  return TRUE;
}

static gboolean
check_pop(Checker *checker, const ProgramOp *op)
{
  (void) op;
  if (checker->open_ranges == 0)
    return fail(checker, "ends a range where none is open");
  checker->open_ranges--;
  return TRUE;
}

/* Ops without a rule are always allowed. */
static gboolean (*const rule[PROGRAM_OP_COUNT])(Checker *checker, const ProgramOp *op) = {
    [PROGRAM_HOST_COMPUTE] = check_work,
    [PROGRAM_LAUNCH] = check_work,
    [PROGRAM_COPY] = check_work,
    [PROGRAM_COLLECTIVE] = check_work,
    [PROGRAM_EVENT_RECORD] = check_record,
    [PROGRAM_STREAM_WAIT] = check_wait,
    [PROGRAM_EVENT_SYNC] = check_wait,
    [PROGRAM_STREAM_SYNC] = check_stream_sync,
    [PROGRAM_ALLOC] = check_alloc,
    [PROGRAM_FREE] = check_free,
    [PROGRAM_RECORD_STREAM] = check_record_stream,
    [PROGRAM_RANGE_PUSH] = check_push,
    [PROGRAM_RANGE_POP] = check_pop,
};

static gboolean
check_list(Checker *checker)
{
  const GArray *ops = checker->list->ops;

  for (checker->op = 0; checker->op < ops->len; checker->op++) {
    const ProgramOp *op = &g_array_index(ops, ProgramOp, checker->op);

    if (rule[op->kind] != NULL && !rule[op->kind](checker, op))
      return FALSE;
  }
  return checker->open_ranges == 0 ||
         fail(checker, "%d ranges are still open at its end", checker->open_ranges);
}

/* Takes all blocks from their old names before it gives any a new one, so that chains and swaps
 * work. */
static gboolean
carry_storages(Checker *checker)
{
  const GArray *carries = checker->list->carries;
  g_autofree gint32 *taken = g_new(gint32, carries->len);

  for (guint i = 0; i < carries->len; i++) {
    gint32 from = g_array_index(carries, Carry, i).from;

    if (!checker->alive[from])
      return fail_storage(checker, from, "carries", ", which is not allocated");
    checker->alive[from] = FALSE;
    taken[i] = access_map_take(checker->accesses, from);
  }
  for (guint i = 0; i < carries->len; i++) {
    const Carry *carry = &g_array_index(carries, Carry, i);

    if (checker->alive[carry->to])
      return fail_storage(checker, carry->to, "carries to", ", which is allocated");
    if (storage_at(checker, carry->from)->bytes != storage_at(checker, carry->to)->bytes)
      return fail_storage(checker, carry->to, "carries to", ", which has another size");
    checker->alive[carry->to] = TRUE;
    access_map_give(checker->accesses, carry->to, taken[i]);
  }
  return TRUE;
}

static gboolean
carry_events(Checker *checker)
{
  const GArray *carries = checker->list->event_carries;
  g_autofree Clock *taken = g_new(Clock, carries->len);

  for (guint i = 0; i < carries->len; i++) {
    gint32 from = g_array_index(carries, Carry, i).from;

    if (!checker->recorded[from])
      return fail(checker, "carries event %d, which was never recorded", from);
    taken[i] = checker->event[from];
  }
  for (guint i = 0; i < carries->len; i++) {
    gint32 to = g_array_index(carries, Carry, i).to;

    checker->event[to] = taken[i];
    checker->recorded[to] = TRUE;
  }
  return TRUE;
}

/* The construction and all steps in order. */
static gboolean
check_steps(Checker *checker)
{
  const Program *program = checker->program;
  const OpList *previous = NULL;
  int runs = 0;

  checker->list = g_ptr_array_index(program->lists, 0);
  if (!check_list(checker))
    return FALSE;
  for (int step = 0; step < program->steps; step++) {
    gboolean again;

    checker->step = step + 1;
    checker->list = program_step(program, step);
    checker->op = checker->list->ops->len; /* carries are no op's fault */
    again = checker->list == previous;
    runs = again ? runs + 1 : 1;
    if (runs > MOST_RUNS)
      continue;
    if (again && (!carry_storages(checker) || !carry_events(checker)))
      return FALSE;
    if (!check_list(checker))
      return FALSE;
    previous = checker->list;
  }
  return TRUE;
}

gboolean
program_check(const Program *program, GError **error)
{
  Checker checker = {.program = program, .error = error};
  g_autofree guint8 *alive = g_malloc0(program->storages->len + 1);
  g_autofree guint8 *recorded = g_malloc0((gsize) MAX(program->events, 0) + 1);
  g_autofree Clock *events = g_new0(Clock, (gsize) MAX(program->events, 0) + 1);
  g_autofree Bytes *tensors = g_new(Bytes, program->tensors->len + 1);
  g_autoptr(AccessMap) accesses = access_map_new(program->storages->len);

  if (!program_check_ids(program, error))
    return FALSE;
  for (guint i = 0; i < program->tensors->len; i++)
    program_tensor_bytes(program, &g_array_index(program->tensors, Tensor, i), &tensors[i].begin,
                         &tensors[i].end);
  checker.alive = alive;
  checker.recorded = recorded;
  checker.event = events;
  checker.tensor = tensors;
  checker.accesses = accesses;
  return check_steps(&checker);
}
