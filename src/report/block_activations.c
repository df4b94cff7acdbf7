/* block_activations.c - follows storages through the first forward of a Program. */
#include "report/block_activations.h"

enum { OUTSIDE = -1 };

/* What is known of a storage. */
typedef struct {
  gint32 block;    /* whose range allocated it, or OUTSIDE */
  gboolean is_new; /* allocated in this forward */
  gboolean is_live;
  gboolean leaves; /* by a launch of forward outside the block that made it */
} Traced;

typedef struct {
  const Program *program;
  const Network *network;
  GHashTable *blocks; /* path -> index + 1 */
  Traced *storages;
  gint32 *inputs;         /* storage by block, or -1 */
  int depth;              /* open ranges */
  int forward_depth;      /* the forward phase is open at this depth; 0: not yet */
  int block, block_depth; /* the block whose range is open */
} Trace;

static const Storage *
storage_at(const Trace *t, gint32 storage)
{
  return &g_array_index(t->program->storages, Storage, storage);
}

static void
push(Trace *t, const ProgramOp *op)
{
  const char *name = program_text(t->program, op->a);
  t->depth++;
  if (op->b == RANGE_PHASE && t->forward_depth == 0 && g_str_equal(name, "forward"))
    t->forward_depth = t->depth;
  if (op->b != RANGE_MODULE || t->forward_depth == 0 || t->block != OUTSIDE)
    return;
  t->block = GPOINTER_TO_INT(g_hash_table_lookup(t->blocks, name)) - 1;
  t->block_depth = t->depth;
}

/* FALSE: the forward phase is over. */
static gboolean
pop(Trace *t)
{
  gboolean ends = t->depth == t->forward_depth;
  if (t->block != OUTSIDE && t->depth == t->block_depth)
    t->block = OUTSIDE;
  t->depth--;
  return !ends;
}

/* Made by an op of the network: neither parameters nor what a strategy or the training loop
 * allocates. */
static gboolean
is_value(const Trace *t, gint32 storage)
{
  guint8 category = storage_at(t, storage)->category;
  return t->storages[storage].is_new &&
         (category == CATEGORY_ACTIVATION || category == CATEGORY_TEMPORARY);
}

static void
read_operands(Trace *t, const ProgramOp *op)
{
  for (int i = 0; i < op->operands; i++) {
    const Operand *operand = program_operand(t->program, op, i);
    gint32 storage = program_operand_tensor(t->program, op, i)->storage;
    if (operand->role == ROLE_WRITE || t->storages[storage].block == t->block)
      continue;
    t->storages[storage].leaves |= t->storages[storage].block != OUTSIDE;
    if (t->block != OUTSIDE && t->inputs[t->block] < 0 && is_value(t, storage))
      t->inputs[t->block] = storage;
  }
}

/* FALSE: the forward phase is over. */
static gboolean
follow(Trace *t, const ProgramOp *op)
{
  switch ((ProgramOpKind) op->kind) {
  case PROGRAM_RANGE_PUSH:
    push(t, op);
    break;
  case PROGRAM_RANGE_POP:
    return pop(t);
  case PROGRAM_ALLOC:
    t->storages[op->a] = (Traced){t->block, t->forward_depth > 0, TRUE, FALSE};
    break;
  case PROGRAM_FREE:
    t->storages[op->a].is_live = FALSE;
    break;
  case PROGRAM_LAUNCH:
    read_operands(t, op);
    break;
  default:
    break;
  }
  return TRUE;
}

static gint64
kept_bytes(const Trace *t, gint32 storage)
{
  const Storage *s = storage_at(t, storage);
  return t->storages[storage].is_live && s->category == CATEGORY_ACTIVATION ? s->bytes : 0;
}

static GArray *
sums(const Trace *t)
{
  GArray *bytes = g_array_new(FALSE, TRUE, sizeof(gint64));
  g_array_set_size(bytes, t->network->blocks->len);
  for (guint i = 0; i < t->program->storages->len; i++)
    if (t->storages[i].block != OUTSIDE && !t->storages[i].leaves)
      g_array_index(bytes, gint64, t->storages[i].block) += kept_bytes(t, (gint32) i);
  for (guint i = 0; i < bytes->len; i++)
    if (t->inputs[i] >= 0)
      g_array_index(bytes, gint64, i) += kept_bytes(t, t->inputs[i]);
  return bytes;
}

GArray *
block_activations(const Program *program, const Network *network)
{
  g_autoptr(GHashTable) blocks = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, NULL);
  g_autofree Traced *storages = g_new0(Traced, program->storages->len + 1);
  g_autofree gint32 *inputs = g_new(gint32, network->blocks->len + 1);
  Trace t = {.program = program,
             .network = network,
             .blocks = blocks,
             .storages = storages,
             .inputs = inputs,
             .block = OUTSIDE};
  for (guint i = 0; i < network->blocks->len; i++) {
    const char *path = network_module(network, network_block(network, (int) i)->module)->path;
    g_hash_table_insert(blocks, g_strdup(path), GINT_TO_POINTER(i + 1));
    inputs[i] = -1;
  }
  for (guint i = 0; i < program->storages->len; i++)
    storages[i].block = OUTSIDE;
  const GArray *ops = program_step(program, 0)->ops;
  for (guint i = 0; i < ops->len; i++)
    if (!follow(&t, &g_array_index(ops, ProgramOp, i)))
      break;
  return sums(&t);
}
