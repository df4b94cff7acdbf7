/* numeric_task.c - a stream of a rank runs its next task. */
#include <math.h>
#include <string.h>

#include "base/units.h"
#include "numeric/numeric_interruption.h"
#include "program/meaning.h"

/* ---- operands ---- */

static const Layout *
layout_at(const NumericRank *r, const ProgramOp *op, int i)
{
  return &g_array_index(r->program->layouts, Layout,
                        program_operand_tensor(r->program, op, i)->layout);
}

/* The doubles of an operand's storage, those that it views looked at; views without elements have
 * no memory. */
static double *
data_of(const NumericRank *r, const NumericTask *task, int i)
{
  const NumericBlock *block = task->blocks[i];
  const Layout *layout = layout_at(r, task->op, i);
  int size = dtype_size((DType) layout->dtype);
  gint64 first = program_operand_tensor(r->program, task->op, i)->offset;
  gint64 reach = layout_reach(layout);
  if (block == NULL)
    return NULL;
  if (reach > 0)
    numeric_block_look(block, first * size, (first + reach) * size);
  return block->data;
}

/* The next part of a storage from the i-th row on; i is then behind it.  NULL: no more. */
static const ParameterPart *
next_part(const NumericRank *r, const Storage *storage, guint *i)
{
  const GArray *parts = r->program->parts;
  while (*i < parts->len) {
    const ParameterPart *part = &g_array_index(parts, ParameterPart, (*i)++);
    if (&g_array_index(r->program->storages, Storage, part->storage) == storage)
      return part;
  }
  return NULL;
}

void
numeric_rank_initialize(const NumericRank *r, NumericBlock *block)
{
  const NumericHooks *hooks = &r->config->hooks;
  guint row = 0;
  const ParameterPart *part = block->fresh ? next_part(r, block->storage, &row) : NULL;
  if (part == NULL)
    return;
  numeric_block_touch(block);
  numeric_block_look(block, 0, block->bytes);
  memset(block->data, 0, sizeof(double) * (gsize) block->bytes);
  for (; part != NULL; part = next_part(r, block->storage, &row)) {
    int size = dtype_size((DType) part->dtype);
    hooks->initialize(hooks->user,
                      &(NumericFilling){.rank = r->rank,
                                        .parameter = program_text(r->program, part->parameter),
                                        .first = part->first,
                                        .elements = part->elements,
                                        .stride = size,
                                        .slots = block->data + part->offset * size});
  }
}

/* What construction makes of a model's parameters has first values; what it makes of those it makes
 * by ops. */
static void
touch(const NumericRank *r, const NumericTask *task, NumericBlock *block)
{
  if (task->place.step == 0 && block->storage->category == CATEGORY_PARAMETER)
    numeric_rank_initialize(r, block);
  numeric_block_touch(block);
}

NumericTensor *
numeric_rank_load(const NumericRank *r, const NumericTask *task)
{
  NumericTensor *operands = g_new0(NumericTensor, MAX(task->op->operands, 1));
  for (int i = 0; i < task->op->operands; i++) {
    if (task->blocks[i] != NULL)
      touch(r, task, task->blocks[i]);
    numeric_tensor_load(&operands[i], data_of(r, task, i),
                        program_operand_tensor(r->program, task->op, i), layout_at(r, task->op, i));
    operands[i].role = (Role) program_operand(r->program, task->op, i)->role;
  }
  return operands;
}

void
numeric_rank_store(const NumericRank *r, const NumericTask *task, NumericTensor *operands)
{
  for (int i = 0; i < task->op->operands; i++) {
    if (operands[i].role == ROLE_READ)
      continue;
    if (task->blocks[i] != NULL)
      task->blocks[i]->writer = task->op;
    numeric_tensor_store(&operands[i], data_of(r, task, i),
                         program_operand_tensor(r->program, task->op, i), layout_at(r, task->op, i),
                         r->config->rounds);
  }
}

void
numeric_rank_unload(const NumericTask *task, NumericTensor *operands)
{
  for (int i = 0; i < task->op->operands; i++)
    numeric_tensor_clear(&operands[i]);
  g_free(operands);
}

/* ---- what is watched ---- */

char *
numeric_op_text(const Program *program, const ProgramOp *op)
{
  const char *module = op->module >= 0 ? program_module_path(program, op->module) : "";
  if (op->kind == PROGRAM_COLLECTIVE) {
    const Collective *c = &g_array_index(program->collectives, Collective, op->a);
    return g_strdup_printf("%s of %s", program_collective_name((CollectiveKind) c->kind),
                           program_text(program, c->name));
  }
  const Kernel *k = &g_array_index(program->kernels, Kernel, op->a);
  const char *name = program_text(program, k->name);
  const char *meaning = k->meaning > 0 ? program_text(program, k->meaning - 1) : name;
  return g_strdup_printf("kernel %s%s%s%s%s", name, meaning != name ? " = " : "",
                         meaning != name ? meaning : "", module[0] != '\0' ? " of " : "", module);
}

static const char *
name_of(const NumericRank *r, const ProgramOp *op, int i)
{
  gint32 storage = program_operand_tensor(r->program, op, i)->storage;
  return program_text(r->program, g_array_index(r->program->storages, Storage, storage).what);
}

gboolean
numeric_is_unknown(const double *data, gint64 elements)
{
  for (gint64 i = 0; i < elements; i++)
    if (isnan(data[i]))
      return TRUE;
  return FALSE;
}

void
numeric_rank_note_unknown(NumericRank *r, const NumericTask *task, int from)
{
  if (r->first_unknown != NULL)
    return;
  g_autofree char *op = numeric_op_text(r->program, task->op);
  const NumericBlock *block = from >= 0 ? task->blocks[from] : NULL;
  g_autofree char *writer = block != NULL && block->writer != NULL
                                ? numeric_op_text(r->program, block->writer)
                                : g_strdup("nobody");
  r->unknown_at = *r->clock;
  r->first_unknown = g_strdup_printf(
      "rank %d, step %d: %s reads %s, last written by %s, before its value is there", r->rank,
      task->place.step, op, from >= 0 ? name_of(r, task->op, from) : "the host's memory", writer);
}

/* Is it made by an op of which nobody has said what it makes?  Scans of such are no better. */
static gboolean
is_unsaid(const NumericRank *r, const ProgramOp *op)
{
  if (op == NULL || op->kind != PROGRAM_LAUNCH)
    return FALSE;
  const Kernel *kernel = &g_array_index(r->program->kernels, Kernel, op->a);
  const char *name = program_text(r->program, kernel->name);
  return kernel->meaning == 0 && (strcmp(name, "create") == 0 || strcmp(name, "cumsum") == 0);
}

/* The first kernel that makes a NaN, and what it made it from.  What is created without a value is
 * no news. */
static void
look_for_unknown(NumericRank *r, const NumericTask *task, const NumericTensor *operands)
{
  int from = -1, made = -1;
  if (r->first_unknown != NULL || is_unsaid(r, task->op))
    return;
  for (int i = 0; i < task->op->operands && made < 0; i++)
    if (operands[i].role != ROLE_READ && numeric_is_unknown(operands[i].data, operands[i].elements))
      made = i;
  if (made < 0)
    return;
  NumericTensor *before = numeric_rank_load(r, task);
  for (int i = 0; i < task->op->operands && from < 0; i++)
    if (before[i].role != ROLE_WRITE && numeric_is_unknown(before[i].data, before[i].elements))
      from = i;
  numeric_rank_unload(task, before);
  if (from >= 0 || task->op->kind == PROGRAM_COPY)
    numeric_rank_note_unknown(r, task, from);
}

static gboolean
is_optimizer(const char *formula)
{
  return strcmp(formula, "adam") == 0 || strcmp(formula, "sgd") == 0;
}

typedef void NumericReport(gpointer user, const NumericUpdate *update);

/* One tensor's update, told of each parameter that its storage holds there. */
static void
report_update(const NumericRank *r, const NumericTask *task, int value, NumericReport *report,
              const NumericUpdate *all)
{
  gint64 begin = program_operand_tensor(r->program, task->op, value)->offset;
  guint row = 0;
  for (const ParameterPart *part;
       (part = next_part(r, task->blocks[value]->storage, &row)) != NULL;) {
    gint64 first = MAX(part->offset, begin);
    gint64 last = MIN(part->offset + part->elements, begin + all->elements), at = first - begin;
    NumericUpdate u = *all;
    if (last <= first)
      continue;
    u.parameter = program_text(r->program, part->parameter);
    u.first = part->first + first - part->offset;
    u.elements = last - first;
    u.gradient += at;
    u.value += at;
    for (guint k = 0; k < G_N_ELEMENTS(u.state); k++)
      u.state[k] = u.state[k] != NULL ? u.state[k] + at : NULL;
    report(r->config->hooks.user, &u);
  }
}

/* A list of tensors is updated: gradient, value, states of each. */
static void
report_updates(const NumericRank *r, const NumericTask *task, const NumericTensor *operands,
               NumericReport *report)
{
  for (int i = 0; i + 1 < task->op->operands;) {
    NumericUpdate u = {.rank = r->rank,
                       .step = task->place.step,
                       .count = task->place.update,
                       .elements = MIN(operands[i].elements, operands[i + 1].elements),
                       .gradient = operands[i].data,
                       .value = operands[i + 1].data};
    const NumericBlock *block = task->blocks[i];
    g_autofree char *writer =
        block != NULL && block->writer != NULL ? numeric_op_text(r->program, block->writer) : NULL;
    u.written_by = writer;
    int value = i + 1, next = i + 2;
    for (int k = 0; next < task->op->operands && operands[next].role != ROLE_READ; k++, next++)
      if (k < 2)
        u.state[k] = operands[next].data;
    if (task->blocks[value] != NULL)
      report_update(r, task, value, report, &u);
    i = next;
  }
}

/* The host's, where it has made the norm. */
static double
norm_of(const NumericRank *r, const NumericTask *task, const NumericTensor *operands)
{
  const Kernel *kernel = &g_array_index(r->program->kernels, Kernel, task->op->a);
  double of = 0;
  if (task->op->kind != PROGRAM_HOST_COMPUTE)
    return operands[task->op->operands - 1].data[0];
  meaning_number(r->program, kernel->meaning, "of", &of);
  return r->number[CLAMP((int) of, 0, HOST_NUMBERS - 1)];
}

/* Of steps: an optimizer that runs in the construction only makes its states. */
static void
watch(const NumericRank *r, const NumericTask *task, const char *formula,
      const NumericTensor *operands)
{
  if (task->place.step < 1)
    return;
  const Kernel *kernel = &g_array_index(r->program->kernels, Kernel, task->op->a);
  double global;
  const NumericHooks *hooks = &r->config->hooks;
  if (is_optimizer(formula))
    report_updates(r, task, operands, hooks->updated);
  else if (meaning_number(r->program, kernel->meaning, "global", &global))
    hooks->norm(hooks->user, r->rank, task->place.step, norm_of(r, task, operands));
  else if (strcmp(formula, "ones_like") == 0 && task->op->operands == 2)
    hooks->loss(hooks->user, r->rank, task->place.step, operands[0].data[0]);
}

/* States that come from before are there when the optimizer makes its own. */
static void
prepare(const NumericRank *r, const NumericTask *task, const NumericTensor *operands)
{
  const NumericHooks *hooks = &r->config->hooks;
  if (hooks->updating == NULL || task->place.step != r->config->steps_before + 1)
    return;
  const Kernel *kernel = &g_array_index(r->program->kernels, Kernel, task->op->a);
  g_autofree char *formula = meaning_formula(r->program, kernel->meaning, kernel->name);
  if (is_optimizer(formula))
    report_updates(r, task, operands, hooks->updating);
}

/* ---- running ---- */

/* A copy between memories: what is read becomes what is written; what is longer keeps its end. From
 * a host that nobody computes on comes what construction would: parameters' first values, which are
 * there; else nothing is known. */
static void
copy(const NumericTask *task, NumericTensor *operands, int n)
{
  const NumericTensor *from = NULL;
  for (int i = 0; i < n; i++)
    if (operands[i].role == ROLE_READ)
      from = &operands[i];
  if (from == NULL && task->place.step == 0)
    return;
  for (int i = 0; i < n; i++)
    for (gint64 k = 0; operands[i].role != ROLE_READ && k < operands[i].elements; k++)
      if (from == NULL || k < from->elements)
        operands[i].data[k] = from != NULL ? from->data[k] : NAN;
}

/* No op reads what nobody has said: there is no answer then.  FALSE and error. */
static gboolean
check_said(const NumericRank *r, const NumericTask *task, GError **error)
{
  if (is_unsaid(r, task->op))
    return TRUE;
  for (int i = 0; i < task->op->operands; i++) {
    const NumericBlock *block = task->blocks[i];
    if (program_operand(r->program, task->op, i)->role != ROLE_READ || block == NULL ||
        block->fresh || !is_unsaid(r, block->writer))
      continue;
    g_autofree char *op = numeric_op_text(r->program, task->op);
    g_set_error(error, HIGHWATER_ERROR, HIGHWATER_ERROR_INPUT,
                "%s reads %s, and nobody has said what is in it", op, name_of(r, task->op, i));
    return FALSE;
  }
  return TRUE;
}

/* An update that takes scaled gradients: what is read of them here is what it unscales first. */
static void
unscale_gradients(const NumericRank *r, const NumericTask *task, NumericTensor *operands)
{
  const Kernel *kernel = &g_array_index(r->program->kernels, Kernel, task->op->a);
  double scale;
  if (!meaning_number(r->program, kernel->meaning, "gradient_scale", &scale))
    return;
  for (int i = 0; i < task->op->operands; i++)
    for (gint64 k = 0; operands[i].role == ROLE_READ && k < operands[i].elements; k++)
      operands[i].data[k] /= scale;
}

gboolean
numeric_rank_run_kernel(NumericRank *r, const NumericTask *task, GError **error)
{
  const Kernel *kernel = &g_array_index(r->program->kernels, Kernel, task->op->a);
  NumericTensor *operands = numeric_rank_load(r, task);
  KernelCall call = {.program = r->program,
                     .kernel = kernel,
                     .place = task->place,
                     .operand = operands,
                     .operands = task->op->operands,
                     .is_hosts = task->op->kind == PROGRAM_HOST_COMPUTE};
  gboolean ok = check_said(r, task, error);
  if (ok && task->op->kind == PROGRAM_COPY && kernel->meaning == 0)
    copy(task, operands, task->op->operands);
  else if (ok) {
    unscale_gradients(r, task, operands);
    prepare(r, task, operands);
    ok = numeric_kernel_run(&call, error);
    numeric_interruption_stay(r, task, operands);
  }
  if (ok)
    look_for_unknown(r, task, operands);
  if (ok) {
    if (call.is_hosts)
      memcpy(r->number, call.place.number, sizeof r->number);
    numeric_rank_store(r, task, operands);
    watch(r, task, call.row != NULL ? call.row->formula : "", operands);
  } else {
    numeric_rank_locate(r, &task->place, error);
  }
  numeric_rank_unload(task, operands);
  return ok;
}

gboolean
numeric_rank_run(NumericRank *r, int stream, GError **error)
{
  const NumericTask *task = numeric_stream_head(&r->streams[stream]);
  const NumericHooks *hooks = &r->config->hooks;
  gboolean ok = TRUE;
  switch (task->kind) {
  case TASK_KERNEL:
    ok = numeric_rank_run_kernel(r, task, error);
    break;
  case TASK_BATCH:
    numeric_block_touch(task->blocks[0]);
    numeric_block_look(task->blocks[0], 0, task->blocks[0]->bytes);
    hooks->batch(hooks->user, r->rank, task->place.step, task->name, task->number,
                 task->blocks[0]->bytes, task->blocks[0]->data);
    break;
  case TASK_WAIT:
    break;
  case TASK_COLLECTIVE:
    g_assert_not_reached();
  }
  numeric_rank_pop(r, stream);
  return ok;
}
