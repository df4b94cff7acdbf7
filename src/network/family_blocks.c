/* family_blocks.c - a network given as explicit blocks: each a list of ops from the table, or just
 * numbers.  For models in no family, and for tests.  doc/formats.md has the format. */
#include <string.h>

#include "base/units.h"
#include "network/family.h"
#include "network/layers.h"
#include "network/model_call.h"

#define MOST_BLOCKS 4096
#define MOST_OPS 256
#define MOST_SIZE ((gint64) 1 << 40)

typedef enum {
  BLOCK_LINEAR,
  BLOCK_LAYER_NORM,
  BLOCK_RMS_NORM,
  BLOCK_ATTENTION,
  BLOCK_GELU,
  BLOCK_SILU,
  BLOCK_DROPOUT,
  BLOCK_ADD,
  BLOCK_MUL,
  BLOCK_NUMBERS,
} BlockOpKind;

static const char *const op_names[] = {"linear", "layer_norm", "rms_norm", "attention",
                                       "gelu",   "silu",       "dropout",  "add",
                                       "mul",    "numbers",    NULL};

/* One op as written.  The current value goes in (or the one named `from`), the result is the new
 * current value. */
typedef struct {
  BlockOpKind kind;
  const char *name; /* of its module, or how it begins */
  int number; /* of ops of this kind that are not named: the second one is "linear_2"; 0: named */
  const char *from, *as; /* names of values; NULL: the current one, none */
  const char *with;      /* add, mul: the other operand */
  gint64 in, out;        /* widths; linear's out as written, 0: like its input */
  gboolean bias;
  gint64 heads, kv_heads;                                      /* attention */
  gint64 parameters, activation_bytes, workspace_bytes, flops; /* numbers */
} BlockOp;

/* A block as written, `repeat` times in a row. */
typedef struct {
  gint64 repeat;
  GArray *ops; /* BlockOp */
} BlockSpec;

typedef struct {
  gint64 hidden, vocabulary;
  gboolean sum_loss, fp32_loss;
  const char *list_name, *embedding_name, *head_name;
  gboolean has_embedding, has_head;
  GPtrArray *blocks; /* BlockSpec * */
  const NetworkShape *shape;
  AttentionCode attention;
} Blocks;

/* ---- reading ---- */

static void
read_op(JsonReader *r, BlockOp *op)
{
  op->kind = (BlockOpKind) json_reader_enum(r, "op", op_names, BLOCK_NUMBERS);
  op->name = json_reader_string(r, "name", NULL);
  op->number = op->name == NULL;
  if (op->name == NULL)
    op->name = op_names[op->kind];
  op->from = json_reader_string(r, "from", NULL);
  op->as = json_reader_string(r, "as", NULL);
  switch (op->kind) {
  case BLOCK_LINEAR:
    op->out = json_reader_int(r, "out", 0, 1, MOST_SIZE);
    op->bias = json_reader_bool(r, "bias", FALSE);
    break;
  case BLOCK_ATTENTION:
    op->heads = json_reader_required_int(r, "heads", 1, 1 << 20);
    op->kv_heads = json_reader_int(r, "kv_heads", op->heads, 1, 1 << 20);
    op->bias = json_reader_bool(r, "bias", FALSE);
    if (op->heads % op->kv_heads != 0)
      json_reader_fail(r, "kv_heads",
                       "%" G_GINT64_FORMAT " does not divide heads %" G_GINT64_FORMAT, op->kv_heads,
                       op->heads);
    break;
  case BLOCK_ADD:
  case BLOCK_MUL:
    op->with = json_reader_required_string(r, "with");
    break;
  case BLOCK_NUMBERS:
    op->parameters = json_reader_int(r, "parameters", 0, 0, MOST_SIZE);
    op->activation_bytes = json_reader_size(r, "activation_bytes", 0);
    op->workspace_bytes = json_reader_size(r, "workspace_bytes", 0);
    op->flops = json_reader_int(r, "forward_flops", 0, 0, (gint64) 1 << 52);
    break;
  default:
    break;
  }
}

/* A name in a block and the width of its value. */
typedef struct {
  const char *name;
  gint64 width;
} NamedWidth;

static gint64
width_of(JsonReader *r, const char *key, const GArray *names, const char *name)
{
  for (guint i = names->len; i > 0; i--) {
    const NamedWidth *named = &g_array_index(names, NamedWidth, i - 1);
    if (strcmp(named->name, name) == 0)
      return named->width;
  }
  json_reader_fail(
      r, key, "there is no value '%s' before this op: 'input', or what an earlier op's 'as' names",
      name);
  return 1;
}

/* Modules of a block have names of their own.  Caller frees. */
static char *
module_name(const BlockOp *op)
{
  return op->number > 1 ? g_strdup_printf("%s_%d", op->name, op->number) : g_strdup(op->name);
}

/* Parts of a path: a dot would make two of them. */
static void
check_module_name(JsonReader *r, const char *key, const char *name)
{
  if (*name == '\0' || strchr(name, '.') != NULL)
    json_reader_fail(r, key, "'%s' is no name of a module: it is empty or has a dot", name);
}

static void
check_op_name(JsonReader *r, const BlockOp *op, const GArray *before)
{
  g_autofree char *name = module_name(op);
  check_module_name(r, "name", name);
  for (guint i = 0; i < before->len; i++) {
    g_autofree char *other = module_name(&g_array_index(before, BlockOp, i));
    if (strcmp(name, other) == 0)
      json_reader_fail(r, "name", "two ops of the block are named '%s'", name);
  }
}

static int
number_unnamed(const BlockOp *op, const GArray *before)
{
  int number = 1;
  for (guint i = 0; i < before->len; i++) {
    const BlockOp *other = &g_array_index(before, BlockOp, i);
    number += other->kind == op->kind && other->number > 0;
  }
  return number;
}

/* Finds widths: of what goes into the op and what comes out. */
static void
resolve_op(JsonReader *r, BlockOp *op, gint64 current, const GArray *names)
{
  op->in = op->from != NULL ? width_of(r, "from", names, op->from) : current;
  if (op->kind != BLOCK_LINEAR || op->out == 0)
    op->out = op->in;
  if (op->with != NULL && width_of(r, "with", names, op->with) != op->in)
    json_reader_fail(r, "with", "'%s' is not as wide as the value it is combined with", op->with);
  if (op->kind == BLOCK_ATTENTION && op->in % op->heads != 0)
    json_reader_fail(r, "heads", "%" G_GINT64_FORMAT " does not divide the width %" G_GINT64_FORMAT,
                     op->heads, op->in);
}

static void
block_spec_free(gpointer data)
{
  BlockSpec *block = data;
  g_array_unref(block->ops);
  g_free(block);
}

static void
read_block(JsonReader *r, Blocks *m)
{
  BlockSpec *block = g_new0(BlockSpec, 1);
  block->ops = g_array_new(FALSE, TRUE, sizeof(BlockOp));
  g_ptr_array_add(m->blocks, block);
  block->repeat = json_reader_int(r, "repeat", 1, 1, MOST_BLOCKS);
  guint n = json_reader_array_length(r, "ops");
  if (n == 0 || n > MOST_OPS)
    json_reader_fail(r, "ops", "a block has 1 to %d ops, not %u", MOST_OPS, n);
  g_autoptr(GArray) names = g_array_new(FALSE, FALSE, sizeof(NamedWidth));
  NamedWidth named = {"input", m->hidden};
  g_array_append_val(names, named);
  gint64 width = m->hidden;
  for (guint i = 0; i < MIN(n, MOST_OPS); i++) {
    JsonReader *element = json_reader_element(r, "ops", i);
    BlockOp op = {0};
    read_op(element, &op);
    if (op.number > 0)
      op.number = number_unnamed(&op, block->ops);
    check_op_name(element, &op, block->ops);
    resolve_op(element, &op, width, names);
    json_reader_finish(element, NULL);
    json_reader_free(element);
    width = op.out;
    named = (NamedWidth){op.as, width};
    if (op.as != NULL)
      g_array_append_val(names, named);
    g_array_append_val(block->ops, op);
  }
  if (n > 0 && width != m->hidden)
    json_reader_fail(
        r, "ops", "the block ends with width %" G_GINT64_FORMAT ", not 'hidden' %" G_GINT64_FORMAT,
        width, m->hidden);
  json_reader_finish(r, NULL);
}

/* "embedding" and "head": an object with a name, or false. */
static gboolean
read_end(JsonReader *r, const char *key, const char *fallback, const char **name)
{
  const cJSON *raw = json_reader_raw(r, key);
  *name = fallback;
  if (raw == NULL || cJSON_IsTrue(raw))
    return TRUE;
  if (cJSON_IsFalse(raw))
    return FALSE;
  JsonReader *section = json_reader_section(r, key);
  *name = json_reader_string(section, "name", fallback);
  json_reader_finish(section, NULL);
  json_reader_free(section);
  return TRUE;
}

/* Names of the root's children. */
static void
check_names(JsonReader *r, const Blocks *m)
{
  const char *const keys[] = {"list", m->has_embedding ? "embedding" : NULL,
                              m->has_head ? "head" : NULL};
  const char *const names[] = {m->list_name, m->embedding_name, m->head_name};
  for (int i = 0; i < 3; i++) {
    if (keys[i] == NULL)
      continue;
    check_module_name(r, keys[i], names[i]);
    for (int k = 0; k < i; k++)
      if (keys[k] != NULL && strcmp(names[i], names[k]) == 0)
        json_reader_fail(r, keys[i], "is named '%s' like '%s'", names[i], keys[k]);
  }
}

static gboolean
read_config(Blocks *m, NetworkSpec *spec, GError **error)
{
  static const char *const losses[] = {"cross_entropy", "sum", NULL};
  JsonReader *r = spec->reader;
  m->hidden = json_reader_required_int(r, "hidden", 1, MOST_SIZE);
  m->vocabulary = json_reader_int(r, "vocabulary", 0, 1, MOST_SIZE);
  m->sum_loss = json_reader_enum(r, "loss", losses, 0) == 1;
  m->fp32_loss = spec->implementation.loss == LOSS_FP32;
  m->attention = spec->implementation.attention;
  m->list_name = json_reader_string(r, "list", "layers");
  m->has_embedding = read_end(r, "embedding", "embedding", &m->embedding_name);
  m->has_head = read_end(r, "head", "head", &m->head_name);
  check_names(r, m);
  json_reader_string(r, "family", NULL);
  json_reader_string(r, "name", NULL);
  if (m->vocabulary == 0 && (m->has_embedding || m->has_head || !m->sum_loss))
    json_reader_fail(r, "vocabulary",
                     "is needed by an embedding, a head and the cross-entropy loss");
  guint n = json_reader_array_length(r, "blocks");
  gint64 total = 0;
  if (n == 0)
    json_reader_fail(r, "blocks", "a network has at least one block");
  for (guint i = 0; i < MIN(n, MOST_BLOCKS); i++) {
    JsonReader *element = json_reader_element(r, "blocks", i);
    read_block(element, m);
    json_reader_free(element);
    total += ((BlockSpec *) g_ptr_array_index(m->blocks, i))->repeat;
  }
  if (n > MOST_BLOCKS || total > MOST_BLOCKS)
    json_reader_fail(r, "blocks", "there are more than %d blocks", MOST_BLOCKS);
  return json_reader_finish(r, error);
}

/* ---- modules and forward() of one block: both walk its ops ---- */

/* What an op's module has, by index; -1: none. */
typedef struct {
  int module, parameter; /* the first one */
  Linear linear[4];      /* a linear layer, or attention's four */
} OpParts;

typedef struct {
  Builder *b;
  const Blocks *m;
  const OpParts *parts; /* by op */
} BlockWriter;

/* Defines the module of an op. */
static OpParts
define_op(Builder *b, const BlockOp *op)
{
  g_autofree char *name = module_name(op);
  gint64 width = op->in;
  OpParts p = {-1, -1, {{0}}};
  switch (op->kind) {
  case BLOCK_LINEAR:
    p.linear[0] = define_linear(b, name, op->out, width, op->bias);
    break;
  case BLOCK_LAYER_NORM:
    p.parameter = define_norm(b, name, "LayerNorm", width, TRUE);
    break;
  case BLOCK_RMS_NORM:
    p.parameter = define_norm(b, name, "RMSNorm", width, FALSE);
    break;
  case BLOCK_ATTENTION: {
    gint64 kv = width / op->heads * op->kv_heads;
    p.module = builder_module(b, name, "Attention");
    p.linear[0] = define_linear(b, "q", width, width, op->bias);
    p.linear[1] = define_linear(b, "k", kv, width, op->bias);
    p.linear[2] = define_linear(b, "v", kv, width, op->bias);
    p.linear[3] = define_linear(b, "o", width, width, op->bias);
    builder_module_end(b);
    break;
  }
  case BLOCK_NUMBERS:
    p.module = builder_module(b, name, "Numbers");
    p.parameter = op->parameters > 0 ? builder_parameter(b, "weight", 1, op->parameters) : -1;
    builder_module_end(b);
    break;
  default:
    break;
  }
  return p;
}

/* Defines one block; returns the parts of its ops.  Caller frees. */
static OpParts *
define_block(Builder *b, const BlockSpec *block)
{
  OpParts *parts = g_new(OpParts, block->ops->len);
  builder_block_begin(b, "Block");
  for (guint i = 0; i < block->ops->len; i++)
    parts[i] = define_op(b, &g_array_index(block->ops, BlockOp, i));
  builder_block_end(b);
  return parts;
}

static Val
run_attention(const BlockWriter *w, const BlockOp *op, const OpParts *parts, Val x)
{
  Builder *b = w->b;
  gint64 head_dim = op->in / op->heads;
  const Linear *p = parts->linear;
  x = call_module(b, parts->module, x);
  Val q = let(b, "q", transpose(b, split_heads(b, linear(b, x, p[0]), op->heads, head_dim)));
  Val k = let(b, "k", transpose(b, split_heads(b, linear(b, x, p[1]), op->kv_heads, head_dim)));
  Val v = let(b, "v", transpose(b, split_heads(b, linear(b, x, p[2]), op->kv_heads, head_dim)));
  AttentionCall call = {w->m->attention, op->heads, op->kv_heads, FALSE, NO_VAL, 0};
  Val o = let(b, "o", merge_heads(b, contiguous(b, transpose(b, attention(b, q, k, v, &call)))));
  return builder_leave(b, linear(b, o, p[3]));
}

static Val
run_numbers(const BlockWriter *w, const BlockOp *op, const OpParts *parts, Val x)
{
  int first = parts->parameter;
  if (first >= 0)
    x = call_module(w->b, parts->module, x);
  OpAttributes at = {.result = builder_info(w->b, x),
                     .size = {op->activation_bytes, op->workspace_bytes, op->flops}};
  Val operands[2] = {x, NO_VAL};
  if (first >= 0)
    operands[1] = builder_weight(w->b, first);
  Val y = builder_op(w->b, OP_OPAQUE, &at, first >= 0 ? 2 : 1, operands);
  return first >= 0 ? builder_leave(w->b, y) : y;
}

static Val
run_op(const BlockWriter *w, const BlockOp *op, const OpParts *parts, Val x, Val other)
{
  Builder *b = w->b;
  switch (op->kind) {
  case BLOCK_LINEAR:
    return linear(b, x, parts->linear[0]);
  case BLOCK_LAYER_NORM:
    return layer_norm(b, x, parts->parameter);
  case BLOCK_RMS_NORM:
    return rms_norm(b, x, parts->parameter, NORM_FUSED);
  case BLOCK_ATTENTION:
    return run_attention(w, op, parts, x);
  case BLOCK_GELU:
    return unary(b, OP_GELU, x);
  case BLOCK_SILU:
    return unary(b, OP_SILU, x);
  case BLOCK_DROPOUT:
    return unary_with(b, OP_DROPOUT, x, "p", 0.1); /* as most have it */
  case BLOCK_ADD:
    return binary(b, OP_ADD, x, other);
  case BLOCK_MUL:
    return binary(b, OP_MUL, x, other);
  case BLOCK_NUMBERS:
    return run_numbers(w, op, parts, x);
  }
  g_assert_not_reached();
}

/* Names of a block's values. */
typedef struct {
  const char *name;
  Val value;
} Named;

/* The value of a name: reading has made sure that it is there. */
static Val
find_named(const GArray *names, const char *name)
{
  guint i = names->len - 1;
  while (strcmp(g_array_index(names, Named, i).name, name) != 0)
    i--;
  return g_array_index(names, Named, i).value;
}

static Val
block_forward(const BlockWriter *w, const BlockSpec *block, Val input)
{
  g_autoptr(GArray) names = g_array_new(FALSE, FALSE, sizeof(Named));
  Named named = {"input", input};
  g_array_append_val(names, named);
  builder_call(w->b, 0, NULL);
  Val x = input;
  for (guint i = 0; i < block->ops->len; i++) {
    const BlockOp *op = &g_array_index(block->ops, BlockOp, i);
    if (op->from != NULL) {
      builder_discard(w->b, x);
      x = find_named(names, op->from);
    }
    x = run_op(w, op, &w->parts[i], x, op->with != NULL ? find_named(names, op->with) : NO_VAL);
    if (op->as == NULL)
      continue;
    x = let(w->b, op->as, x);
    named = (Named){op->as, x};
    g_array_append_val(names, named);
  }
  return builder_leave(w->b, x);
}

/* ---- the network ---- */

/* What main needs to know of the modules. */
typedef struct {
  int embedding_module, embedding_weight, head_module;
  Linear head;
  const Blocks *m;
  GPtrArray *ops;   /* OpParts * by block */
  GPtrArray *specs; /* const BlockSpec * by block */
  GArray *kinds;    /* int by block: which of the description's */
} Parts;

static ValueInfo
activation(const Blocks *m, gboolean requires_grad)
{
  ValueInfo info = value_shape(m->shape->precision.weights, 3, m->shape->micro_batch,
                               m->shape->sequence_length, m->hidden);
  info.requires_grad = (guint8) requires_grad;
  return info;
}

/* Defines all blocks. */
static void
define_blocks(Builder *b, const Blocks *m, Parts *parts)
{
  builder_module(b, m->list_name, "ModuleList");
  for (guint i = 0; i < m->blocks->len; i++) {
    BlockSpec *block = g_ptr_array_index(m->blocks, i);
    int kind = (int) i;
    for (gint64 k = 0; k < block->repeat; k++) {
      g_ptr_array_add(parts->ops, define_block(b, block));
      g_ptr_array_add(parts->specs, block);
      g_array_append_val(parts->kinds, kind);
    }
  }
  builder_module_end(b);
}

static Val
forward_of_block(Builder *b, gconstpointer model, int block, const Val *args)
{
  const Parts *p = model;
  BlockWriter w = {b, p->m, g_ptr_array_index(p->ops, (guint) block)};
  return block_forward(&w, g_ptr_array_index(p->specs, (guint) block), args[0]);
}

static Parts
define_modules(Builder *b, const Blocks *m)
{
  Network *network = builder_network(b);
  Parts parts = {.m = m,
                 .ops = g_ptr_array_new_with_free_func(g_free),
                 .specs = g_ptr_array_new(),
                 .kinds = g_array_new(FALSE, FALSE, sizeof(int)),
                 .embedding_module = -1,
                 .head_module = -1};
  if (m->has_embedding) {
    parts.embedding_module = builder_module(b, m->embedding_name, "Embedding");
    parts.embedding_weight = builder_parameter(b, "weight", 2, m->vocabulary, m->hidden);
    builder_module_end(b);
    g_array_append_val(network->embedding_modules, parts.embedding_module);
  }
  define_blocks(b, m, &parts);
  if (m->has_head) {
    parts.head = define_linear(b, m->head_name, m->vocabulary, m->hidden, FALSE);
    parts.head_module = network_parameter(network, parts.head.weight)->module;
    g_array_append_val(network->head_modules, parts.head_module);
  }
  return parts;
}

static Val
model_forward(Builder *b, const Blocks *m, const Parts *p, Val input)
{
  builder_call(b, 0, NULL);
  Val x = m->has_embedding ? let(b, "x", embedding(b, p->embedding_weight, input)) : input;
  for (guint i = 0; i < p->kinds->len; i++) {
    BlockCode code = {
        .forward = forward_of_block, .model = p, .kind = g_array_index(p->kinds, int, i)};
    x = let(b, "x", builder_block_call(b, (int) i, &code, 1, &x));
  }
  return builder_leave(b, m->has_head ? linear(b, x, p->head) : x);
}

/* The loss of the output: cross entropy with labels, or the sum of the output in fp32. */
static Val
loss_of(Builder *b, const Blocks *m, Val out, Val labels)
{
  ValueInfo info = builder_info(b, out);
  builder_enter(b, 1, (const char *const[]){"output"}, &out);
  out.temporary = FALSE;
  if (m->sum_loss) {
    Val wide = to(b, out, DTYPE_FP32);
    return builder_leave(b, shaped(b, OP_SUM, wide, value_shape(DTYPE_FP32, 0)));
  }
  Val flat = let(b, "output", view(b, out, 2, info.shape[0] * info.shape[1], info.shape[2]));
  return builder_leave(b, cross_entropy(b, m->fp32_loss ? to(b, flat, DTYPE_FP32) : flat, labels));
}

static void
write_main(Builder *b, const Blocks *m, const Parts *p)
{
  const NetworkShape *shape = m->shape;
  Network *network = builder_network(b);
  ValueInfo tokens = value_shape(DTYPE_INT64, 2, shape->micro_batch, shape->sequence_length);
  ValueInfo inputs[2] = {m->has_embedding ? tokens : activation(m, FALSE), tokens};
  int n = m->sum_loss ? 1 : 2;
  Val args[2];
  g_array_append_vals(network->inputs, inputs, (guint) n);
  builder_function_begin(b, "main", -1, n, inputs, args);
  builder_call(b, 0, NULL);
  Val received = args[0];
  builder_module_enter(b, 0, 1, &received);
  Val out = model_forward(b, m, p, (Val){received.slot, FALSE});
  builder_discard(b, received);
  model_call_wrapped(b, 1, &out);
  builder_module_exit(b, 0, out);
  model_call_end(b, 1, &out);
  out = let(b, "output", out);
  Val loss = model_call_bind_loss(b, loss_of(b, m, out, n > 1 ? args[1] : NO_VAL));
  unlet(b, "output");
  gboolean divides = !m->sum_loss || builder_shape(b)->trainer;
  loss = builder_leave(b, divides ? model_call_loss(b, loss) : loss);
  model_call_autocast_end(b);
  network->main = builder_function_end(b, loss);
}

static void
figures(Builder *b, const Blocks *m)
{
  Network *network = builder_network(b);
  network->vocabulary = m->vocabulary;
  network->hidden = m->hidden;
  network->loss_is_sum = m->sum_loss;
  network->embedding_parameters = m->has_embedding ? m->vocabulary * m->hidden : 0;
  for (guint i = 0; i < m->blocks->len; i++) {
    const BlockSpec *block = g_ptr_array_index(m->blocks, i);
    for (guint k = 0; k < block->ops->len; k++)
      if (g_array_index(block->ops, BlockOp, k).kind == BLOCK_ATTENTION)
        network->attention_width = g_array_index(block->ops, BlockOp, k).in;
  }
}

static Network *
build(NetworkSpec *spec, const NetworkShape *shape, GError **error)
{
  Blocks m = {.shape = shape, .blocks = g_ptr_array_new_with_free_func(block_spec_free)};
  Network *network = NULL;
  if (read_config(&m, spec, error)) {
    Builder *b = builder_new(spec->name, shape);
    Parts parts = define_modules(b, &m);
    write_main(b, &m, &parts);
    figures(b, &m);
    g_ptr_array_unref(parts.ops);
    g_ptr_array_unref(parts.specs);
    g_array_unref(parts.kinds);
    network = builder_finish(b, error);
  }
  g_ptr_array_unref(m.blocks);
  return network;
}

const NetworkFamily family_blocks = {
    .name = "blocks",
    .summary = "explicit blocks: ops from the table, or parameters, bytes and FLOPs as numbers",
    .model_types = (const char *const[]){"blocks", NULL},
    .build = build,
};
