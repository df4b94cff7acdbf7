/* program_fold.c - recognises that two consecutive lists of a Program are the same step under other
 * names.
 *
 * The lists (call them old and new) are walked side by side while a bijection between the storages
 * of one and those of the other grows; events likewise.  A storage that old uses before allocating
 * it was handed to it by the past.  Where new uses another one in its place, that other one must
 * take its name before old runs again: a carry.  Then old is played once more on the names alone:
 * only if it runs and ends with the names it began with can it run a third time. */
#include <string.h>

#include "program/program_fold.h"

/* A bijection under construction; -1 is "none yet". */
typedef struct {
  gint32 *new_of, *old_of;
  GArray *carries; /* Carry */
} Renaming;

typedef struct {
  const Program *program;
  FoldMark mark;
  Renaming storages, events;
} Fold;

FoldMark
program_fold_mark(const Program *program)
{
  return (FoldMark){
      .storages = program->storages->len,
      .tensors = program->tensors->len,
      .operands = program->operands->len,
      .events = program->events,
  };
}

static Renaming
renaming_new(guint ids)
{
  gsize bytes = sizeof(gint32) * ids;
  Renaming renaming = {g_malloc(bytes), g_malloc(bytes), g_array_new(FALSE, FALSE, sizeof(Carry))};

  if (ids > 0) {
    memset(renaming.new_of, -1, bytes);
    memset(renaming.old_of, -1, bytes);
  }
  return renaming;
}

static void
renaming_clear(Renaming *renaming)
{
  g_free(renaming->new_of);
  g_free(renaming->old_of);
  g_array_unref(renaming->carries);
}

/* Pairs two ids.  born: the op that names them makes them anew, so that no past is behind them. */
static gboolean
renaming_pair(Renaming *renaming, gint32 old, gint32 new, gboolean born)
{
  if (renaming->new_of[old] != -1 || renaming->old_of[new] != -1)
    return renaming->new_of[old] == new && renaming->old_of[new] == old;
  renaming->new_of[old] = new;
  renaming->old_of[new] = old;
  if (!born && old != new) {
    Carry carry = {.from = new, .to = old};

    g_array_append_val(renaming->carries, carry);
  }
  return TRUE;
}

static gboolean
same_storage(const Storage *a, const Storage *b)
{
  return a->bytes == b->bytes && a->space == b->space && a->category == b->category &&
         a->stream == b->stream && a->module == b->module && a->what == b->what;
}

static gboolean
pair_storages(Fold *fold, gint32 old, gint32 new, gboolean born)
{
  const Storage *storages = (const Storage *) (gconstpointer) fold->program->storages->data;

  if (fold->storages.new_of[old] == new)
    return TRUE;
  return same_storage(&storages[old], &storages[new]) &&
         renaming_pair(&fold->storages, old, new, born);
}

static gboolean
pair_operands(Fold *fold, const ProgramOp *old, const ProgramOp *new)
{
  const GArray *operands = fold->program->operands;
  const Tensor *tensors = (const Tensor *) (gconstpointer) fold->program->tensors->data;

  for (int i = 0; i < old->operands; i++) {
    const Operand *a = &g_array_index(operands, Operand, old->first_operand + i);
    const Operand *b = &g_array_index(operands, Operand, new->first_operand + i);
    const Tensor *left = &tensors[a->tensor], *right = &tensors[b->tensor];

    if (a->role != b->role || left->layout != right->layout || left->offset != right->offset ||
        !pair_storages(fold, left->storage, right->storage, FALSE))
      return FALSE;
  }
  return TRUE;
}

static gboolean
pair_argument(Fold *fold, ProgramOpKind kind, ValueKind argument, gint32 old, gint32 new)
{
  if (argument == VALUE_STORAGE)
    return pair_storages(fold, old, new, kind == PROGRAM_ALLOC);
  if (argument == VALUE_EVENT)
    return renaming_pair(&fold->events, old, new, kind == PROGRAM_EVENT_RECORD);
  return old == new;
}

static gboolean
pair_ops(Fold *fold, const ProgramOp *old, const ProgramOp *new)
{
  const ProgramOpForm *form = &program_op_form[old->kind];

  return old->kind == new->kind && old->stream == new->stream && old->module == new->module &&
         old->operands ==
             new->operands &&pair_argument(fold, old->kind, form->argument[0], old->a, new->a) &&
         old->b == new->b && old->c == new->c &&pair_operands(fold, old, new);
}

static gboolean
pair_lists(Fold *fold, const OpList *old, const OpList *new)
{
  if (old->ops->len != new->ops->len)
    return FALSE;
  for (guint i = 0; i < old->ops->len; i++)
    if (!pair_ops(fold, &g_array_index(old->ops, ProgramOp, i),
                  &g_array_index(new->ops, ProgramOp, i)))
      return FALSE;
  return TRUE;
}

/* Moves names; FALSE when one to move has no block or one to give has one already. */
static gboolean
carry_names(const GArray *carries, guint names, guint8 *alive)
{
  for (guint i = 0; i < carries->len; i++) {
    const Carry *carry = &g_array_index(carries, Carry, i);

    if ((guint) carry->from >= names || !alive[carry->from])
      return FALSE;
    alive[carry->from] = FALSE;
  }
  for (guint i = 0; i < carries->len; i++) {
    const Carry *carry = &g_array_index(carries, Carry, i);

    if ((guint) carry->to >= names || alive[carry->to])
      return FALSE;
    alive[carry->to] = TRUE;
  }
  return TRUE;
}

/* One op on the set of allocated names. */
static gboolean
play_op(const Program *program, const ProgramOp *op, guint8 *alive)
{
  gboolean allocates = op->kind == PROGRAM_ALLOC;

  for (int i = 0; i < op->operands; i++) {
    if (!alive[program_operand_tensor(program, op, i)->storage])
      return FALSE;
  }
  if (program_op_form[op->kind].argument[0] != VALUE_STORAGE)
    return TRUE;
  if (alive[op->a] == allocates)
    return FALSE;
  if (allocates || op->kind == PROGRAM_FREE)
    alive[op->a] = allocates;
  return TRUE;
}

/* Whether old, run again after itself, finds all it uses and leaves the names as it found them. */
static gboolean
repeats(const Fold *fold, const OpList *old, const guint8 *alive)
{
  guint names = fold->mark.storages;
  g_autofree guint8 *now = g_malloc(names + 1);
  gboolean runs;

  if (names > 0)
    memcpy(now, alive, names);
  runs = carry_names(fold->storages.carries, names, now);
  for (guint i = 0; runs && i < old->ops->len; i++)
    runs = play_op(fold->program, &g_array_index(old->ops, ProgramOp, i), now);
  return runs && (names == 0 || memcmp(now, alive, names) == 0);
}

/* Whether each event that is carried on will have been recorded again by then, or carried there
 * itself. */
static gboolean
events_repeat(const Fold *fold, const OpList *old)
{
  const GArray *carries = fold->events.carries;
  guint names = (guint) fold->mark.events;
  g_autofree guint8 *fresh = g_malloc0(names + 1);

  if (carries->len == 0)
    return TRUE;
  for (guint i = 0; i < old->ops->len; i++) {
    const ProgramOp *op = &g_array_index(old->ops, ProgramOp, i);

    if (op->kind == PROGRAM_EVENT_RECORD)
      fresh[op->a] = TRUE;
  }
  for (guint i = 0; i < carries->len; i++)
    fresh[g_array_index(carries, Carry, i).to] = TRUE;
  for (guint i = 0; i < carries->len; i++) {
    guint from = (guint) g_array_index(carries, Carry, i).from;

    if (from >= names || !fresh[from])
      return FALSE;
  }
  return TRUE;
}

static void
store_carries(GArray *target, const GArray *carries)
{
  g_array_set_size(target, 0);
  g_array_append_vals(target, carries->data, carries->len);
}

static void
drop_last_list(Program *program, FoldMark mark)
{
  int kept = (int) program->lists->len - 2;

  g_ptr_array_set_size(program->lists, kept + 1);
  for (guint i = 0; i < program->step_list->len; i++) {
    int *list = &g_array_index(program->step_list, int, i);

    *list = MIN(*list, kept);
  }
  g_array_set_size(program->storages, mark.storages);
  g_array_set_size(program->tensors, mark.tensors);
  g_array_set_size(program->operands, mark.operands);
  program->events = mark.events;
}

/* Stores the carries in the last list's predecessor if that can repeat itself in the last one's
 * place. */
static gboolean
find_repetition(Program *program, FoldMark mark, const guint8 *alive)
{
  guint last = program->lists->len - 1;
  OpList *old = g_ptr_array_index(program->lists, last - 1);
  const OpList *new = g_ptr_array_index(program->lists, last);
  Fold fold = {
      .program = program,
      .mark = mark,
      .storages = renaming_new(program->storages->len),
      .events = renaming_new((guint) program->events),
  };
  gboolean same =
      pair_lists(&fold, old, new) && repeats(&fold, old, alive) && events_repeat(&fold, old);

  if (same) {
    store_carries(old->carries, fold.storages.carries);
    store_carries(old->event_carries, fold.events.carries);
  }
  renaming_clear(&fold.storages);
  renaming_clear(&fold.events);
  return same;
}

gboolean
program_fold_last_list(Program *program, FoldMark mark, const guint8 *alive)
{
  if (!find_repetition(program, mark, alive))
    return FALSE;
  drop_last_list(program, mark);
  return TRUE;
}

gboolean
program_fold_before_last_list(Program *program, FoldMark mark, const guint8 *alive, int times)
{
  int repeated = (int) program->lists->len - 2;

  if (!find_repetition(program, mark, alive))
    return FALSE;
  for (int i = 0; i < times; i++)
    g_array_append_val(program->step_list, repeated);
  program->steps += times;
  return TRUE;
}
