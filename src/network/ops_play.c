/* ops_play.c - writes the functions of an exported network, statement by statement. */
#include <string.h>

#include "network/layers.h"
#include "network/model_call.h"
#include "network/ops_play.h"

/* A function while it is written. */
typedef struct {
  const Ops *ops;
  const OpsFunction *function;
  const char *base; /* path of its block, "" */
  Val *values;      /* by number */
  int module;       /* the innermost one that was entered, or -1 */
  gboolean failed;
} Playing;

static void G_GNUC_PRINTF(3, 4) fail(Playing *p, guint statement, const char *format, ...)
{
  va_list args;
  va_start(args, format);
  g_autofree char *text = g_strdup_vprintf(format, args);
  va_end(args);
  builder_fail(p->ops->b, "key '%s.statements[%u]': %s", p->function->path, statement, text);
  p->failed = TRUE;
}

/* "attention.wq" of block "layers.3".  Caller frees. */
static char *
full_path(const Playing *p, const char *name)
{
  if (*p->base == '\0')
    return g_strdup(name);
  return *name == '\0' ? g_strdup(p->base) : g_strconcat(p->base, ".", name, NULL);
}

static Val
operand(Playing *p, guint statement, const OpsOperand *o)
{
  gpointer index;
  if (o->parameter == NULL)
    return (Val){p->values[o->slot].slot, FALSE};
  g_autofree char *path = full_path(p, o->parameter);
  if (g_hash_table_lookup_extended(p->ops->parameters, path, NULL, &index)) {
    int parameter = GPOINTER_TO_INT(index);
    gboolean other = builder_network(p->ops->b)->split && p->module == p->ops->tied_module;
    return builder_weight(
        p->ops->b, other && parameter == p->ops->tied_weight ? p->ops->split_weight : parameter);
  }
  fail(p, statement, "there is no parameter '%.120s'", path);
  return NO_VAL;
}

ValueInfo
ops_planned(const Ops *ops, const ValueInfo *value)
{
  ValueInfo info = *value;
  if (info.dtype == ops->format->dtype && !ops->format->autocast)
    info.dtype = (guint8) builder_shape(ops->b)->precision.weights;
  return info;
}

static gboolean
same_layout(const ValueInfo *a, const ValueInfo *b)
{
  gboolean same = a->dims == b->dims && a->dtype == b->dtype;
  for (int i = 0; i < a->dims && same; i++)
    same = a->shape[i] == b->shape[i] && (a->shape[i] == 1 || a->stride[i] == b->stride[i]);
  return same;
}

/* Is what the op has made what the model had? */
static void
check_outputs(Playing *p, guint statement, const OpsStatement *s)
{
  for (int i = 0; i < s->outs && !p->failed; i++) {
    ValueInfo made = builder_info(p->ops->b, p->values[s->first_out + i]);
    if (same_layout(&made, &s->out[i]))
      continue;
    g_autofree char *here = ops_value_text(&made), *there = ops_value_text(&s->out[i]);
    fail(p, statement, "%s gives %s under this plan, where the exported model had %s", s->row->name,
         here, there);
  }
}

/* Has a tensor of the call no elements? */
static gboolean
has_empty(const OpsStatement *s, const ValueInfo *in)
{
  gboolean empty = FALSE;
  for (int i = 0; i < s->ins; i++)
    empty |= value_elements(&in[i]) == 0;
  for (int i = 0; i < s->outs; i++)
    empty |= value_elements(&s->out[i]) == 0;
  return empty;
}

static void
play_op(Playing *p, guint statement, const OpsStatement *written)
{
  Builder *b = p->ops->b;
  OpsStatement s = *written;
  Val in[OP_INPUTS];
  ValueInfo infos[OP_INPUTS];
  for (int i = 0; i < s.ins && !p->failed; i++)
    in[i] = operand(p, statement, &s.in[i]);
  for (int i = 0; i < s.ins && !p->failed; i++)
    infos[i] = builder_info(b, in[i]);
  for (int i = 0; i < s.outs; i++)
    s.out[i] = ops_planned(p->ops, &s.out[i]);
  if (p->failed)
    return;
  if (!ops_row_takes_empty(s.row) && has_empty(&s, infos)) {
    fail(p, statement, "%s cannot have operands without elements", s.row->name);
    return;
  }
  const char *wrong = s.row->check != NULL ? s.row->check(&s, infos) : NULL;
  if (wrong != NULL) {
    fail(p, statement, "%s: %s", s.row->name, wrong);
    return;
  }
  ops_row_call(b, &s, in, p->values + s.first_out);
  check_outputs(p, statement, &s);
}

static int
find_module(Playing *p, guint statement, const OpsStatement *s)
{
  gpointer index;
  g_autofree char *path = full_path(p, s->module);
  if (g_hash_table_lookup_extended(p->ops->modules, path, NULL, &index))
    return GPOINTER_TO_INT(index);
  fail(p, statement, "there is no module '%.120s'", path);
  return 0;
}

static void
play_enter(Playing *p, guint statement, const OpsStatement *s)
{
  Builder *b = p->ops->b;
  Val args[STATEMENT_SLOTS];
  int module = find_module(p, statement, s);
  for (int i = 0; i < s->ins; i++)
    args[i] = operand(p, statement, &s->in[i]);
  if (p->failed)
    return;
  builder_module_enter(b, module, s->ins, args);
  builder_in_module(b, module);
  p->module = module;
  for (int i = 0; i < s->ins; i++)
    p->values[s->first_out + i] = args[i];
}

/* The root gives back what the training loop gets: cast as FSDP's output_dtype or a wrapper of
 * forward() says, and copied where DDP does that. */
static void
play_root_exit(Playing *p, const OpsStatement *s)
{
  Builder *b = p->ops->b;
  Val outputs[STATEMENT_SLOTS];
  for (int i = 0; i < s->ins; i++)
    outputs[i] = (Val){p->values[s->in[i].slot].slot, TRUE};
  model_call_wrapped(b, s->ins, outputs);
  builder_module_exit(b, 0, outputs[0]);
  p->module = 0;
  builder_in_module(b, 0);
  model_call_end(b, s->ins, outputs);
  for (int i = 0; i < s->ins; i++)
    p->values[s->in[i].slot] = (Val){outputs[i].slot, TRUE};
}

static void
play_exit(Playing *p, guint statement, const OpsStatement *s)
{
  Builder *b = p->ops->b;
  int module = find_module(p, statement, s);
  if (p->failed)
    return;
  if (module == 0) {
    play_root_exit(p, s);
    return;
  }
  builder_module_exit(b, module, p->values[s->in[0].slot]);
  p->module = MAX(network_module(builder_network(b), module)->parent, 0);
  builder_in_module(b, p->module);
}

static int block_forward(Builder *b, gconstpointer model, int block, const Val *args, Val *results);

static void
play_call(Playing *p, guint statement, const OpsStatement *s)
{
  const Ops *ops = p->ops;
  BlockCode code = {.forward_several = block_forward,
                    .model = ops,
                    .kind = g_array_index(ops->format->block_functions, gint32, s->block)};
  Val args[STATEMENT_SLOTS];
  for (int i = 0; i < s->ins; i++)
    args[i] = operand(p, statement, &s->in[i]);
  builder_block_call_several(ops->b, s->block, &code, s->ins, args, p->values + s->first_out);
}

static void
play(Playing *p, guint statement, const OpsStatement *s)
{
  switch (s->kind) {
  case OPS_OP:
    play_op(p, statement, s);
    break;
  case OPS_DROP:
    for (guint i = 0; i < s->drops->len; i++)
      builder_discard(p->ops->b, (Val){p->values[g_array_index(s->drops, gint32, i)].slot, TRUE});
    break;
  case OPS_ENTER:
    play_enter(p, statement, s);
    break;
  case OPS_EXIT:
    play_exit(p, statement, s);
    break;
  case OPS_CALL:
    play_call(p, statement, s);
    break;
  }
}

int
ops_play(const Ops *ops, const OpsFunction *f, const char *base, const Val *args, Val *results)
{
  g_autofree Val *values = g_new0(Val, (gsize) f->slots);
  Playing p = {ops, f, base, values, -1, FALSE};
  for (guint i = 0; i < f->arguments->len; i++) {
    ValueInfo expected = ops_planned(ops, &g_array_index(f->arguments, ValueInfo, i));
    ValueInfo given = builder_info(ops->b, args[i]);
    values[i] = args[i];
    if (!same_layout(&given, &expected)) {
      g_autofree char *here = ops_value_text(&given), *there = ops_value_text(&expected);
      builder_fail(ops->b, "key '%s.arguments[%u]': %s is given, where the exported model had %s",
                   f->path, i, here, there);
      p.failed = TRUE;
    }
  }
  for (guint i = 0; i < f->statements->len && !p.failed; i++)
    play(&p, i, &g_array_index(f->statements, OpsStatement, i));
  results[0] = p.failed ? args[0] : (Val){values[f->result].slot, TRUE};
  for (int i = 0; i < f->others; i++)
    results[i + 1] = p.failed ? args[0] : (Val){values[f->other[i]].slot, TRUE};
  return 1 + f->others;
}

static int
block_forward(Builder *b, gconstpointer model, int block, const Val *args, Val *results)
{
  const Ops *ops = model;
  const Network *n = builder_network(b);
  gint32 function = g_array_index(ops->format->block_functions, gint32, block);
  g_autofree char *base = g_strdup(network_module(n, network_block(n, block)->module)->path);
  return ops_play(ops, g_ptr_array_index(ops->format->functions, (guint) function), base, args,
                  results);
}
