/* compile_backward.c - writes the kernels of a compiled block's backward, and of what it computes
 * again.
 */
#include "network/compile_private.h"

static const char *
name_of(const Compile *c, int op)
{
  return op >= 0 ? compile_op(c, op)->info->name : "sum";
}

/* ---- values of forward in backward ---- */

static gint32 needed_buffer(Compile *c, int value);

static gint32
again_operand(Compile *c, const Op *op, int buffer, gpointer data)
{
  (void) data;
  if (buffer >= BUFFER_TEMP)
    return -1;
  if (buffer >= BUFFER_OUT)
    return c->value[op->out[buffer - BUFFER_OUT]].again;
  return needed_buffer(c, compile_value(c, op->in[buffer - BUFFER_IN]));
}

/* In memory without doing anything: saved, given, or computed again already.  -1: not. */
static gint32
present_buffer(const Value *v)
{
  return v->saved || v->producer < 0 ? v->buffer : v->again;
}

static void
compute_library_again(Compile *c, int i)
{
  const Op *op = compile_op(c, i);
  guint first = c->out->backward.kernels->len;
  for (int k = 0; k < op->ins; k++)
    needed_buffer(c, compile_value(c, op->in[k]));
  first = c->out->backward.kernels->len;
  for (int k = 0; k < op->outs; k++) {
    Value *v = &c->value[op->out[k]];
    v->again = compile_new_buffer(c, COMPILED_MADE, 0, v->info, op->info->name);
  }
  compile_library_kernels(c, &c->out->backward, op, FALSE, again_operand, NULL);
  for (guint k = first; k < c->out->backward.kernels->len; k++)
    g_array_index(c->out->backward.kernels, CompiledKernel, k).recomputes = TRUE;
}

/* What a generated kernel reads to have a value of forward: itself, or that from which it follows.
 */
static void
read_needed(Compile *c, Fused *fused, int value)
{
  Value *v = compile_base(c, value);
  gboolean fuses = v->producer >= 0 && c->node[v->producer].class == FUSE_FUSED;
  if (present_buffer(v) < 0 && fuses && !v->reduces) {
    const Op *op = compile_op(c, v->producer);
    gboolean first = compile_fused_follows(fused, &v->seen);
    for (int k = 0; k < op->ins && first; k++)
      read_needed(c, fused, compile_value(c, op->in[k]));
    return;
  }
  compile_fused_read(c, fused, needed_buffer(c, value),
                     (double) value_bytes(&c->value[value].info));
}

static gint32
needed_buffer(Compile *c, int value)
{
  Value *v = compile_base(c, value);
  gint32 present = present_buffer(v);
  if (present >= 0)
    return present;
  if (c->node[v->producer].class == FUSE_EXTERN) {
    compute_library_again(c, v->producer);
    return v->again;
  }
  const Op *op = compile_op(c, v->producer);
  Fused fused = compile_fused_begin(c, "fused");
  compile_fused_name(&fused, op->info->name);
  for (int k = 0; k < op->ins; k++)
    read_needed(c, &fused, compile_value(c, op->in[k]));
  v->again = compile_new_buffer(c, COMPILED_MADE, 0, v->info, op->info->name);
  g_array_append_val(fused.writes, v->again);
  compile_fused_end(c, &c->out->backward, &fused, TRUE);
  return v->again;
}

/* ---- backward ---- */

static int
gradient_reads(const Compile *c, int gradient)
{
  int producer = compile_gradient(c, gradient)->producer;
  const BackwardOp *b = producer >= 0 ? compile_backward_op(c, producer) : NULL;
  if (b == NULL || b->kind != BACKWARD_FUSED)
    return 1;
  if (b->reduces)
    return DEAR;
  int reads = b->needs;
  for (int k = 0; k < b->reads && reads < DEAR; k++)
    reads += gradient_reads(c, b->read[k]);
  return reads;
}

/* As in forward. */
static gboolean
is_gradient_written(const Compile *c, int gradient)
{
  const Gradient *g = compile_gradient(c, gradient);
  int group = compile_backward_op(c, g->producer)->group;
  gboolean dear = gradient_reads(c, gradient) > CHEAP_READS;
  if (g->result)
    return TRUE;
  for (guint i = 0; i < c->backward->len; i++) {
    const BackwardOp *b = compile_backward_op(c, (int) i);
    if (b->kind != BACKWARD_EXTERN && (!dear || (b->kind == BACKWARD_FUSED && b->group == group)))
      continue;
    for (int k = 0; k < b->reads; k++)
      if (b->read[k] == gradient)
        return TRUE;
  }
  return FALSE;
}

static gint32 gradient_buffer(Compile *c, int gradient);

static void
read_gradient(Compile *c, Fused *fused, int gradient)
{
  Gradient *g = compile_gradient(c, gradient);
  const BackwardOp *b = g->producer >= 0 ? compile_backward_op(c, g->producer) : NULL;
  if (b == NULL || b->kind != BACKWARD_FUSED || is_gradient_written(c, gradient)) {
    compile_fused_read(c, fused, gradient_buffer(c, gradient), (double) value_bytes(&g->info));
    return;
  }
  if (!compile_fused_follows(fused, &g->seen))
    return;
  for (int k = 0; k < b->reads; k++)
    read_gradient(c, fused, b->read[k]);
  for (int k = 0; k < b->needs; k++)
    read_needed(c, fused, b->need[k]);
}

static void
write_gradient(Compile *c, Fused *fused, int gradient, const char *what)
{
  gint32 buffer =
      compile_new_buffer(c, COMPILED_MADE, 0, compile_gradient(c, gradient)->info, what);
  compile_gradient(c, gradient)->buffer = buffer;
  g_array_append_val(fused->writes, buffer);
}

static void
write_backward_group(Compile *c, int group)
{
  Fused fused = compile_fused_begin(c, "fused_backward");
  if (compile_backward_op(c, group)->emitted)
    return;
  compile_backward_op(c, group)->emitted = TRUE;
  for (guint i = 0; i < c->backward->len; i++) {
    const BackwardOp *b = compile_backward_op(c, (int) i);
    if (b->kind != BACKWARD_FUSED || b->group != group)
      continue;
    compile_fused_name(&fused, name_of(c, b->op));
    for (int k = 0; k < b->reads; k++) {
      int producer = compile_gradient(c, b->read[k])->producer;
      const BackwardOp *from = producer >= 0 ? compile_backward_op(c, producer) : NULL;
      if (from == NULL || from->kind != BACKWARD_FUSED || from->group != group)
        read_gradient(c, &fused, b->read[k]);
    }
    for (int k = 0; k < b->needs; k++)
      read_needed(c, &fused, b->need[k]);
    for (int k = 0; k < b->writes; k++)
      if (is_gradient_written(c, b->write[k]))
        write_gradient(c, &fused, b->write[k], "gradient");
  }
  compile_fused_end(c, &c->out->backward, &fused, FALSE);
}

static void
write_column(Compile *c, int index)
{
  BackwardOp *b = compile_backward_op(c, index);
  Fused fused = compile_fused_begin(c, "fused_sum");
  b->emitted = TRUE;
  compile_fused_name(&fused, name_of(c, b->op));
  for (int k = 0; k < b->reads; k++)
    read_gradient(c, &fused, b->read[k]);
  for (int k = 0; k < b->needs; k++)
    read_needed(c, &fused, b->need[k]);
  for (int k = 0; k < b->writes; k++)
    write_gradient(c, &fused, b->write[k], "gradient");
  compile_fused_end(c, &c->out->backward, &fused, FALSE);
}

static gint32
backward_operand(Compile *c, const Op *op, int buffer, gpointer data)
{
  const BackwardOp *b = compile_backward_op(c, *(const int *) data);
  if (buffer >= BUFFER_GRAD) {
    for (int k = 0; k < b->writes; k++)
      if (b->input[k] == buffer - BUFFER_GRAD)
        return compile_gradient(c, b->write[k])->buffer;
    return -1;
  }
  if (buffer >= BUFFER_INCOMING)
    return b->reads > 0 ? gradient_buffer(c, b->read[0]) : -1;
  if (buffer >= BUFFER_TEMP)
    return -1;
  return needed_buffer(c, buffer >= BUFFER_OUT ? op->out[buffer - BUFFER_OUT]
                                               : compile_value(c, op->in[buffer - BUFFER_IN]));
}

static void
write_backward_library(Compile *c, int index)
{
  BackwardOp *b = compile_backward_op(c, index);
  if (b->emitted)
    return;
  b->emitted = TRUE;
  for (int k = 0; k < b->reads; k++)
    gradient_buffer(c, b->read[k]);
  for (int k = 0; k < b->needs; k++)
    needed_buffer(c, b->need[k]);
  for (int k = 0; k < b->writes; k++) {
    Gradient *g = compile_gradient(c, b->write[k]);
    g->buffer = compile_new_buffer(c, COMPILED_MADE, 0, g->info, "gradient");
  }
  compile_library_kernels(c, &c->out->backward, compile_op(c, b->op), TRUE, backward_operand,
                          &index);
}

static gint32
gradient_buffer(Compile *c, int gradient)
{
  const Gradient *g = compile_gradient(c, gradient);
  if (g->buffer >= 0)
    return g->buffer;
  const BackwardOp *b = compile_backward_op(c, g->producer);
  if (b->kind == BACKWARD_EXTERN)
    write_backward_library(c, g->producer);
  else if (b->kind == BACKWARD_COLUMN)
    write_column(c, g->producer);
  else
    write_backward_group(c, b->group);
  return compile_gradient(c, gradient)->buffer;
}

void
compile_write_backward(Compile *c)
{
  if (c->gradients->len == 0)
    return;
  Gradient *incoming = compile_gradient(c, 0);
  incoming->buffer = c->out->incoming =
      compile_new_buffer(c, COMPILED_INCOMING, 0, incoming->info, NULL);
  for (guint i = 0; i < c->backward->len; i++) {
    const BackwardOp *b = compile_backward_op(c, (int) i);
    if (b->kind == BACKWARD_EXTERN)
      write_backward_library(c, (int) i);
    else if (b->kind == BACKWARD_COLUMN && !b->emitted)
      write_column(c, (int) i);
  }
  for (guint i = 0; i < c->out->gradients->len; i++) {
    CompiledGradient *made = &g_array_index(c->out->gradients, CompiledGradient, i);
    made->buffer = gradient_buffer(c, made->buffer);
  }
}
