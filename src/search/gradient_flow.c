/* gradient_flow.c - follows gradients through one step of a Program. */
#include "search/gradient_flow.h"

#include <string.h>

#include "search/gradient_memory.h"

/* Scalars carry no gradient: norms, factors, flags. */
enum { SCALAR_BYTES = 8 };

typedef struct {
  const Network *network;
  const Program *program;
  GradientFlow *flow;
  GHashTable *parameters; /* name -> index + 1 */
  gint32 *parameter_of;   /* by name id: index, or -1 */
  GradientMemory memory;
  gint32 *maker;     /* by storage: module whose backward wrote it last, or -1 */
  GArray *ranges;    /* gint32: kinds of open ranges; -1: another kind than a phase */
  const char *phase; /* name of the open one, or NULL */
  gboolean backward;
  int micro_batch;
  gint32 *claimed_by; /* by parameter: storage that was taken for its gradient, or -1 */
} Walk;

/* An operand as bytes. */
typedef struct {
  const Storage *storage;
  gint32 id;
  gint64 begin, end, elements;
  int element; /* bytes */
} Range;

static Range
range_of(const Walk *w, const Operand *operand)
{
  const Tensor *tensor = &g_array_index(w->program->tensors, Tensor, operand->tensor);
  const Layout *layout = &g_array_index(w->program->layouts, Layout, tensor->layout);
  Range r = {.storage = &g_array_index(w->program->storages, Storage, tensor->storage),
             .id = tensor->storage,
             .elements = 1,
             .element = dtype_size((DType) layout->dtype)};
  for (int i = 0; i < layout->dims; i++)
    r.elements *= layout->shape[i];
  r.begin = tensor->offset * r.element;
  r.end = r.begin + layout_reach(layout) * r.element;
  return r;
}

/* The parameter that a storage is named after, or -1. */
static gint32
named(const Walk *w, const Storage *storage)
{
  return storage->what >= 0 ? w->parameter_of[storage->what] : -1;
}

static gboolean
is_gradient_memory(const Storage *storage)
{
  return storage->category == CATEGORY_UNSHARDED_GRADIENT ||
         storage->category == CATEGORY_SHARDED_GRADIENT ||
         storage->category == CATEGORY_REDUCE_SCATTER_BUFFER;
}

static gboolean
is_scalar(const Storage *storage)
{
  return storage->bytes <= SCALAR_BYTES &&
         (storage->category == CATEGORY_TEMPORARY || storage->category == CATEGORY_OTHER);
}

/* ---- what backward makes ---- */

/* The parameter of a module (or, for a weight that two modules share, of the model) that a gradient
 * of so many elements belongs to, and that no other storage was taken for yet; -1: none. */
static gint32
parameter_like(const Walk *w, gint32 module, gint64 elements, gint32 storage)
{
  int found = -1, alike = 0;
  for (int i = 0; i < (int) w->network->parameters->len; i++) {
    const Parameter *p = network_parameter(w->network, i);
    if (!p->requires_grad || p->elements != elements)
      continue;
    if (w->claimed_by[i] == storage || (p->module == module && w->claimed_by[i] < 0))
      return i;
    found = i;
    alike++;
  }
  return alike == 1 ? found : -1;
}

static const GradientSet *
source(Walk *w, gint32 parameter)
{
  const GradientSet *set = gradient_sets_source(w->flow->sets, parameter, w->micro_batch);
  if (gradient_set_find(w->flow->made, parameter) == NULL)
    w->flow->made = gradient_sets_join(w->flow->sets, w->flow->made, set);
  return set;
}

/* What a kernel of backward reads and no name tells: the gradient of a parameter of the module that
 * made it. */
static const GradientSet *
unnamed_source(Walk *w, const Range *r)
{
  if (!w->backward || w->maker[r->id] < 0 || r->storage->category == CATEGORY_PARAMETER)
    return NULL;
  gint32 parameter = parameter_like(w, w->maker[r->id], r->elements, r->id);
  if (parameter < 0)
    return NULL;
  w->claimed_by[parameter] = r->id;
  return source(w, parameter);
}

/* ---- kernels ---- */

/* Operands [first, reads) of an op are read, [reads, end) written. */
typedef struct {
  int first, reads, end;
} Group;

/* The next group from operand i on: an op over a list of tensors names the operands of one after
 * those of another. */
static gboolean
next_group(const Walk *w, const ProgramOp *op, int i, Group *g)
{
  *g = (Group){i, i, i};
  while (g->reads < op->operands && program_operand(w->program, op, g->reads)->role == ROLE_READ)
    g->reads++;
  g->end = g->reads;
  while (g->end < op->operands && program_operand(w->program, op, g->end)->role != ROLE_READ)
    g->end++;
  return g->end > g->first;
}

/* The op's only written operand takes in all that is read, wherever it stands. */
static gboolean
writes_once(const Walk *w, const ProgramOp *op)
{
  int written = 0;
  for (int i = 0; i < op->operands; i++)
    written += program_operand(w->program, op, i)->role != ROLE_READ;
  return written == 1;
}

/* Copies what [from] holds to the place of its bytes in a row, `at` bytes into `to`. */
static void
copy_pieces(Walk *w, const Range *from, const Range *to, gint64 at, GArray *arriving)
{
  const GArray *held = gradient_memory_pieces(&w->memory, from->id);
  for (guint i = 0; held != NULL && i < held->len; i++) {
    const GradientPiece *piece = &g_array_index(held, GradientPiece, i);
    gint64 begin = MAX(piece->begin, from->begin), end = MIN(piece->end, from->end);
    if (begin >= end)
      continue;
    GradientPiece arrived = {to->begin + at + (begin - from->begin) / from->element * to->element,
                             to->begin + at + (end - from->begin) / from->element * to->element,
                             piece->set};
    g_array_append_val(arriving, arrived);
  }
}

/* What arrives at a written operand: GradientPiece. */
static GArray *
arriving_at(Walk *w, const ProgramOp *op, const Group *g, const Range *to)
{
  GArray *pieces = g_array_new(FALSE, FALSE, sizeof(GradientPiece));
  gint64 elements = 0;
  for (int i = g->first; i < g->reads; i++)
    if (program_operand(w->program, op, i)->role == ROLE_READ)
      elements += range_of(w, program_operand(w->program, op, i)).elements;
  gboolean in_a_row = elements == to->elements;
  gint64 at = 0;
  for (int i = g->first; i < g->reads; i++) {
    if (program_operand(w->program, op, i)->role != ROLE_READ)
      continue;
    Range from = range_of(w, program_operand(w->program, op, i));
    if (in_a_row)
      copy_pieces(w, &from, to, at, pieces);
    GradientPiece all = {to->begin, to->end, NULL};
    if (!in_a_row)
      all.set = gradient_memory_look(&w->memory, from.id, from.begin, from.end);
    if (gradient_memory_pieces(&w->memory, from.id) == NULL && is_gradient_memory(to->storage) &&
        named(w, to->storage) < 0) {
      all.set = unnamed_source(w, &from);
      if (in_a_row) {
        all.begin = to->begin + at;
        all.end = all.begin + from.elements * to->element;
      }
    }
    if (all.set != NULL)
      g_array_append_val(pieces, all);
    at += from.elements * to->element;
  }
  return pieces;
}

/* Does a kernel of backward make this parameter's gradient here, from what is no gradient of a
 * parameter? */
static gboolean
makes_gradient(const Walk *w, const ProgramOp *op, const Group *g, const Range *to)
{
  if (!w->backward || op->kind != PROGRAM_LAUNCH || named(w, to->storage) < 0 ||
      to->storage->category != CATEGORY_UNSHARDED_GRADIENT)
    return FALSE;
  int reads = 0;
  for (int i = g->first; i < g->reads; i++) {
    Range from = range_of(w, program_operand(w->program, op, i));
    if (program_operand(w->program, op, i)->role != ROLE_READ)
      continue;
    if (is_gradient_memory(from.storage) && from.id != to->id)
      return FALSE;
    reads++;
  }
  return reads > 0;
}

/* Is it only the same micro-batch's gradient, in the making? */
static gboolean
is_in_the_making(const GradientSet *set, gint32 parameter, int micro_batch)
{
  const GradientPart *part = gradient_set_find(set, parameter);
  for (guint i = 0; part != NULL && i < part->shares->len; i++)
    if (g_array_index(part->shares, GradientShare, i).micro_batch == micro_batch)
      return TRUE;
  return FALSE;
}

static void
write_pieces(Walk *w, const Range *to, Role role, GArray *pieces)
{
  gint32 own = named(w, to->storage);
  for (guint i = 0; i < pieces->len && own >= 0; i++) {
    GradientPiece *piece = &g_array_index(pieces, GradientPiece, i);
    piece->set = gradient_sets_only(w->flow->sets, piece->set, own);
  }
  if (role == ROLE_WRITE) {
    gradient_memory_cut(&w->memory, to->id, to->begin, to->end);
    for (guint i = 0; i < pieces->len; i++)
      gradient_memory_put(&w->memory, to->id, g_array_index(pieces, GradientPiece, i));
  } else {
    for (guint i = 0; i < pieces->len; i++)
      gradient_memory_add(&w->memory, to->id, g_array_index(pieces, GradientPiece, i));
  }
}

/* A kernel writes one operand. */
static void
flow_into(Walk *w, const ProgramOp *op, const Group *g, const Operand *operand)
{
  Range to = range_of(w, operand);
  if (w->backward && g->reads > g->first)
    w->maker[to.id] = op->module;
  if (to.begin >= to.end || to.storage->category == CATEGORY_PARAMETER)
    return;
  if (makes_gradient(w, op, g, &to)) {
    gint32 parameter = named(w, to.storage);
    const GradientSet *held = gradient_memory_look(&w->memory, to.id, to.begin, to.end);
    if (operand->role == ROLE_ACCUMULATE && is_in_the_making(held, parameter, w->micro_batch))
      return;
    g_autoptr(GArray) made = g_array_new(FALSE, FALSE, sizeof(GradientPiece));
    GradientPiece piece = {to.begin, to.end, source(w, parameter)};
    g_array_append_val(made, piece);
    write_pieces(w, &to, (Role) operand->role, made);
    return;
  }
  if (is_scalar(to.storage))
    return;
  g_autoptr(GArray) pieces = arriving_at(w, op, g, &to);
  write_pieces(w, &to, (Role) operand->role, pieces);
}

/* ---- the optimizer ---- */

static gboolean
was_updated(const GradientFlow *flow, const Range *r)
{
  for (guint i = 0; i < flow->updates->len; i++) {
    const GradientUpdate *u = &g_array_index(flow->updates, GradientUpdate, i);
    if (u->storage == r->id && u->begin < r->end && r->begin < u->end)
      return TRUE;
  }
  return FALSE;
}

/* A group writes a parameter's memory from gradients.  Which parameter's: the memory's name says
 * it, or that of the optimizer state beside it. */
static void
note_update(Walk *w, const ProgramOp *op, const Group *g, const Operand *operand, guint before)
{
  Range to = range_of(w, operand);
  const GradientSet *from = NULL;
  for (int i = g->first; i < g->reads; i++) {
    Range read = range_of(w, program_operand(w->program, op, i));
    if (program_operand(w->program, op, i)->role == ROLE_READ)
      from = gradient_sets_join(w->flow->sets, from,
                                gradient_memory_look(&w->memory, read.id, read.begin, read.end));
  }
  GradientUpdate update = {.parameter = named(w, to.storage),
                           .state = -1,
                           .storage = to.id,
                           .begin = to.begin,
                           .end = to.end,
                           .elements = to.elements,
                           .from = from};
  for (int i = g->reads; i < g->end && update.state < 0; i++) {
    Range beside = range_of(w, program_operand(w->program, op, i));
    update.state = named(w, beside.storage);
    if (update.parameter >= 0 || update.state < 0 || beside.elements == to.elements)
      continue; /* state of all of the buffer */
    update.parameter = update.state;
    update.elements = beside.elements;
  }
  if (from == NULL && g->end - g->reads < 2) /* a decay, a copy: nothing of a gradient */
    return;
  /* tensors of one list may share a buffer: what this op has noted itself does not count */
  GArray *all = w->flow->updates;
  guint noted = all->len;
  all->len = before;
  update.again = was_updated(w->flow, &to);
  all->len = noted;
  for (guint i = before; i < noted && update.parameter >= 0; i++)
    update.again |= g_array_index(all, GradientUpdate, i).parameter == update.parameter;
  g_array_append_val(all, update);
}

static void
walk_kernel(Walk *w, const ProgramOp *op)
{
  Group g = {0, op->operands, op->operands};
  gboolean once = writes_once(w, op);
  guint before = w->flow->updates->len;
  gboolean optimizer = w->phase != NULL && g_str_equal(w->phase, "optimizer");
  for (int i = 0; i < op->operands; i = g.end) {
    if (!once && !next_group(w, op, i, &g))
      return;
    for (int k = once ? 0 : g.reads; k < g.end; k++) {
      const Operand *operand = program_operand(w->program, op, k);
      if (operand->role == ROLE_READ)
        continue;
      if (optimizer && range_of(w, operand).storage->category == CATEGORY_PARAMETER)
        note_update(w, op, &g, operand, before);
      flow_into(w, op, &g, operand);
    }
  }
}

/* ---- collectives ---- */

static gboolean
reduces(CollectiveKind kind)
{
  return kind == COLLECTIVE_ALL_REDUCE || kind == COLLECTIVE_REDUCE_SCATTER ||
         kind == COLLECTIVE_REDUCE;
}

/* Reduced into other memory. */
static const GradientSet *
scatter(Walk *w, const GradientSet *sent, const Collective *c)
{
  const GradientSet **all = &w->flow->scattered[c->communicator];
  *all = gradient_sets_add(w->flow->sets, *all, sent);
  return gradient_sets_reduce(w->flow->sets, sent, c->communicator, c->kind);
}

static void
walk_collective(Walk *w, const ProgramOp *op)
{
  const Collective *c = &g_array_index(w->program->collectives, Collective, op->a);
  const GradientSet *sent = NULL;
  for (int i = 0; i < op->operands; i++) {
    const Operand *operand = program_operand(w->program, op, i);
    Range r = range_of(w, operand);
    if (operand->role == ROLE_READ) {
      sent = gradient_sets_join(w->flow->sets, sent,
                                gradient_memory_look(&w->memory, r.id, r.begin, r.end));
    } else if (operand->role == ROLE_ACCUMULATE && reduces((CollectiveKind) c->kind)) {
      gradient_memory_reduce(&w->memory, r.id, r.begin, r.end, c);
    } else if (operand->role == ROLE_WRITE && r.storage->category != CATEGORY_PARAMETER) {
      const GradientSet *arrived = reduces((CollectiveKind) c->kind) ? scatter(w, sent, c) : sent;
      gradient_memory_cut(&w->memory, r.id, r.begin, r.end);
      gradient_memory_put(&w->memory, r.id, (GradientPiece){r.begin, r.end, arrived});
    }
  }
}

/* ---- ranges ---- */

/* Gradients that wait in the host's memory. */
static void
look_at_host(Walk *w)
{
  for (guint i = 0; i < w->program->storages->len; i++) {
    const Storage *storage = &g_array_index(w->program->storages, Storage, i);
    if (storage->space != SPACE_DEVICE && gradient_memory_pieces(&w->memory, (gint32) i) != NULL)
      w->flow->on_host =
          gradient_sets_join(w->flow->sets, w->flow->on_host,
                             gradient_memory_look(&w->memory, (gint32) i, 0, storage->bytes));
  }
}

/* Gradients that the step leaves. */
static void
look_at_gradients(Walk *w)
{
  for (guint i = 0; i < w->program->storages->len; i++) {
    const Storage *storage = &g_array_index(w->program->storages, Storage, i);
    if (gradient_memory_pieces(&w->memory, (gint32) i) != NULL && is_gradient_memory(storage))
      w->flow->left =
          gradient_sets_join(w->flow->sets, w->flow->left,
                             gradient_memory_look(&w->memory, (gint32) i, 0, storage->bytes));
  }
}

static void
enter_phase(Walk *w, gint32 name, int micro_batch)
{
  w->phase = name >= 0 ? program_text(w->program, name) : NULL;
  w->backward = w->phase != NULL && g_str_equal(w->phase, "backward");
  if (w->backward) {
    w->micro_batch = MAX(micro_batch, 0);
    memset(w->claimed_by, -1, sizeof(gint32) * w->network->parameters->len);
  }
  if (w->phase != NULL && g_str_equal(w->phase, "optimizer"))
    look_at_host(w);
}

static void
walk_range(Walk *w, const ProgramOp *op)
{
  gint32 name = op->b == RANGE_PHASE ? op->a : -1;
  g_array_append_val(w->ranges, name);
  if (name >= 0)
    enter_phase(w, name, op->c);
}

static void
leave_range(Walk *w)
{
  g_assert(w->ranges->len > 0);
  gint32 name = g_array_index(w->ranges, gint32, w->ranges->len - 1);
  g_array_set_size(w->ranges, w->ranges->len - 1);
  if (name >= 0)
    enter_phase(w, -1, 0);
}

/* FALSE: the step is over. */
static gboolean
walk_op(Walk *w, const ProgramOp *op)
{
  switch (op->kind) {
  case PROGRAM_LAUNCH:
  case PROGRAM_COPY:
    walk_kernel(w, op);
    break;
  case PROGRAM_COLLECTIVE:
    walk_collective(w, op);
    break;
  case PROGRAM_ALLOC:
  case PROGRAM_FREE:
    gradient_memory_forget(&w->memory, op->a);
    w->maker[op->a] = -1;
    break;
  case PROGRAM_HOST_WORK:
    w->flow->optimizer_on_host |=
        op->a == HOST_WORK_MEMORY && w->phase != NULL && g_str_equal(w->phase, "optimizer");
    break;
  case PROGRAM_RANGE_PUSH:
    if (op->b == RANGE_BEYOND)
      return FALSE;
    walk_range(w, op);
    break;
  case PROGRAM_RANGE_POP:
    leave_range(w);
    break;
  default:
    break;
  }
  return TRUE;
}

static void
walk_init(Walk *w, GHashTable *parameters)
{
  guint storages = w->program->storages->len, names = w->program->names->len;
  for (guint i = 0; i < w->network->parameters->len; i++)
    g_hash_table_insert(parameters, network_parameter(w->network, (int) i)->name,
                        GINT_TO_POINTER((int) i + 1));
  w->parameter_of = g_new(gint32, MAX(names, 1));
  for (guint i = 0; i < names; i++)
    w->parameter_of[i] =
        GPOINTER_TO_INT(g_hash_table_lookup(parameters, w->program->names->pdata[i])) - 1;
  gradient_memory_init(&w->memory, w->flow->sets, storages);
  w->maker = g_new(gint32, MAX(storages, 1));
  memset(w->maker, -1, sizeof(gint32) * storages);
  w->claimed_by = g_new(gint32, MAX(w->network->parameters->len, 1));
  memset(w->claimed_by, -1, sizeof(gint32) * w->network->parameters->len);
}

GradientFlow *
gradient_flow_new(const Network *network, const Program *program, const OpList *list)
{
  GradientFlow *flow = g_new0(GradientFlow, 1);
  flow->sets = gradient_sets_new();
  flow->updates = g_array_new(FALSE, FALSE, sizeof(GradientUpdate));
  g_autoptr(GHashTable) parameters = g_hash_table_new(g_str_hash, g_str_equal);
  g_autoptr(GArray) ranges = g_array_new(FALSE, FALSE, sizeof(gint32));
  Walk w = {.network = network, .program = program, .flow = flow, .ranges = ranges};
  walk_init(&w, parameters);
  for (guint i = 0; i < list->ops->len; i++)
    if (!walk_op(&w, &g_array_index(list->ops, ProgramOp, i)))
      break;
  look_at_gradients(&w);
  gradient_memory_clear(&w.memory);
  g_free(w.parameter_of);
  g_free(w.maker);
  g_free(w.claimed_by);
  return flow;
}

void
gradient_flow_free(GradientFlow *flow)
{
  gradient_sets_free(flow->sets);
  g_array_unref(flow->updates);
  g_free(flow);
}
