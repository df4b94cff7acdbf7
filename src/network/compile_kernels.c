/* compile_kernels.c - writes the kernels of a compiled block: generated ones for groups of ops, and
 * those of libraries (torch/_inductor/scheduler.py, and ir.py for what is computed twice rather
 * than written). */
#include <string.h>

#include "network/compile_private.h"

/* A value that few reads give is computed again by each kernel that wants it
 * (realize_reads_threshold of torch/_inductor/config.py). */
enum { CHEAP_READS = 4, DEAR = 1000, NAMED_OPS = 5 };

/* ---- buffers ---- */

static gint32
new_buffer(Compile *c, CompiledOrigin origin, int number, ValueInfo info, const char *what)
{
  CompiledBuffer buffer = {.info = info,
                           .origin = (guint8) origin,
                           .number = (gint16) number,
                           .takes = -1,
                           .last_forward = -1,
                           .last_backward = -1,
                           .what = what};
  g_array_append_val(c->out->buffers, buffer);
  return (gint32) c->out->buffers->len - 1;
}

static const char *
name_of(const Compile *c, int op)
{
  return op >= 0 ? compile_op(c, op)->info->name : "sum";
}

/* ---- kernels ---- */

/* What a kernel reads: bytes by buffer. */
typedef struct {
  gint32 buffer;
  double bytes;
} Read;

typedef struct {
  GArray *reads;  /* Read */
  GArray *writes; /* gint32: buffers */
  GString *name;
  int named;
} Fused;

static Fused
fused_begin(const char *prefix)
{
  return (Fused){g_array_new(FALSE, FALSE, sizeof(Read)), g_array_new(FALSE, FALSE, sizeof(gint32)),
                 g_string_new(prefix), 0};
}

/* A view reads no more than it shows, several views no more than there is. */
static void
fused_read(Compile *c, Fused *fused, gint32 buffer, double bytes)
{
  double whole = (double) value_bytes(&compiled_buffer(c->out, buffer)->info);
  for (guint i = 0; i < fused->reads->len; i++) {
    Read *read = &g_array_index(fused->reads, Read, i);
    if (read->buffer != buffer)
      continue;
    read->bytes = MIN(whole, read->bytes + bytes);
    return;
  }
  Read read = {buffer, MIN(whole, bytes)};
  g_array_append_val(fused->reads, read);
}

static void
fused_name(Fused *fused, const char *op)
{
  if (fused->named++ < NAMED_OPS)
    g_string_append_printf(fused->name, "_%s", op);
}

static CompiledKernel *
add_kernel(CompiledGraph *graph, Kernel kernel, const char *name, int module)
{
  CompiledKernel made = {.kernel = kernel,
                         .name = name,
                         .module = module,
                         .first_operand = (gint32) graph->operands->len,
                         .first_scratch = (gint32) graph->scratch->len};
  g_array_append_val(graph->kernels, made);
  return &g_array_index(graph->kernels, CompiledKernel, graph->kernels->len - 1);
}

static void
add_operand(CompiledGraph *graph, CompiledKernel *kernel, gint32 buffer, Role role)
{
  CompiledOperand operand = {buffer, (guint8) role};
  g_array_append_val(graph->operands, operand);
  kernel->operands++;
}

/* Writes the kernel, unless it would write nothing. */
static void
fused_end(Compile *c, CompiledGraph *graph, Fused *fused, gboolean recomputes)
{
  double bytes = 0;
  for (guint i = 0; i < fused->reads->len; i++)
    bytes += g_array_index(fused->reads, Read, i).bytes;
  for (guint i = 0; i < fused->writes->len; i++)
    bytes += (double) value_bytes(
        &compiled_buffer(c->out, g_array_index(fused->writes, gint32, i))->info);
  if (fused->writes->len > 0) {
    const CompiledBuffer *first = compiled_buffer(c->out, g_array_index(fused->writes, gint32, 0));
    Kernel kernel = {
        .kind = KERNEL_MEMORY, .dtype = first->info.dtype, .launches = 1, .bytes = bytes};
    CompiledKernel *made = add_kernel(graph, kernel, g_intern_string(fused->name->str), 0);
    made->recomputes = recomputes;
    for (guint i = 0; i < fused->reads->len; i++)
      add_operand(graph, made, g_array_index(fused->reads, Read, i).buffer, ROLE_READ);
    for (guint i = 0; i < fused->writes->len; i++)
      add_operand(graph, made, g_array_index(fused->writes, gint32, i), ROLE_WRITE);
  }
  g_array_unref(fused->reads);
  g_array_unref(fused->writes);
  g_string_free(fused->name, TRUE);
}

/* Which buffer of the block a recipe's buffer is; -1: none that is an operand. */
typedef gint32 (*BufferOf)(Compile *c, const Op *op, int buffer, gpointer data);

static void
add_library_launch(Compile *c, CompiledGraph *graph, const Op *op, const OpKernel *from,
                   BufferOf buffer_of, gpointer data)
{
  CompiledKernel *kernel = add_kernel(graph, from->kernel, from->name, op->module);
  for (int i = 0; i < from->operands; i++) {
    gint32 buffer = buffer_of(c, op, from->operand[i].buffer, data);
    if (buffer >= 0)
      add_operand(graph, kernel, buffer, (Role) from->operand[i].role);
  }
}

/* A library's kernels as the op's recipe has them; temporaries belong to the first that follows. */
static void
add_library_kernels(Compile *c, CompiledGraph *graph, const Op *op, gboolean backward,
                    BufferOf buffer_of, gpointer data)
{
  gint32 first = backward ? op->backward : op->forward;
  gint32 end = backward ? op->validate : op->backward;
  int scratch = 0;
  for (gint32 i = first; i < end; i++) {
    const OpStep *step = &g_array_index(c->f->steps, OpStep, i);
    if (step->action == STEP_ALLOC && step->buffer >= BUFFER_TEMP &&
        step->buffer < BUFFER_INCOMING) {
      CompiledScratch temporary = {step->bytes, step->what};
      g_array_append_val(graph->scratch, temporary);
      scratch++;
    }
    if (step->action == STEP_LAUNCH) {
      add_library_launch(c, graph, op, &g_array_index(c->f->kernels, OpKernel, step->index),
                         buffer_of, data);
      CompiledKernel *made =
          &g_array_index(graph->kernels, CompiledKernel, graph->kernels->len - 1);
      made->first_scratch = (gint32) graph->scratch->len - scratch;
      made->scratch = scratch;
      scratch = 0;
    }
    if (step->action == STEP_WORKSPACE && graph->kernels->len > 0)
      g_array_index(graph->kernels, CompiledKernel, graph->kernels->len - 1).workspaces |=
          (guint8) (1 << step->index);
  }
}

/* ---- forward ---- */

/* How many reads give the value to a kernel that does not find it written. */
static int
reads_of(const Compile *c, int base)
{
  const Value *v = &c->value[base];
  if (v->producer < 0 || c->node[v->producer].class == FUSE_EXTERN)
    return 1;
  if (v->reduces)
    return DEAR;
  const Op *op = compile_op(c, v->producer);
  int reads = 0;
  for (int k = 0; k < op->ins && reads < DEAR; k++)
    reads += reads_of(c, c->value[compile_value(c, op->in[k])].base);
  return reads;
}

/* Does a kernel other than its own group's want the value written?  Libraries do, and generated
 * ones if it is not cheap. */
static gboolean
is_wanted_written(const Compile *c, int base)
{
  int group = c->node[c->value[base].producer].group;
  gboolean dear = reads_of(c, base) > CHEAP_READS;
  for (int i = 0; i < c->ops; i++) {
    const Op *op = compile_op(c, i);
    FuseClass class = c->node[i].class;
    if (class == FUSE_VIEW || (class == FUSE_FUSED && (!dear || c->node[i].group == group)))
      continue;
    for (int k = 0; k < op->ins; k++)
      if (c->value[compile_value(c, op->in[k])].base == base)
        return TRUE;
  }
  return FALSE;
}

static gboolean
is_written(const Compile *c, int base)
{
  return c->value[base].saved || c->value[c->result].base == base || is_wanted_written(c, base);
}

static gint32 forward_buffer(Compile *c, int value);

static void
read_forward(Compile *c, Fused *fused, int value)
{
  int base = c->value[value].base;
  const Value *v = &c->value[base];
  gboolean fuses = v->producer >= 0 && c->node[v->producer].class == FUSE_FUSED;
  if (!fuses || is_written(c, base)) {
    fused_read(c, fused, forward_buffer(c, value), (double) value_bytes(&c->value[value].info));
    return;
  }
  const Op *op = compile_op(c, v->producer);
  for (int k = 0; k < op->ins; k++)
    read_forward(c, fused, compile_value(c, op->in[k]));
}

static void
write_forward_group(Compile *c, int group)
{
  Fused fused = fused_begin("fused");
  if (c->emitted[group])
    return;
  c->emitted[group] = TRUE;
  for (int i = 0; i < c->ops; i++) {
    const Op *op = compile_op(c, i);
    if (c->node[i].class != FUSE_FUSED || c->node[i].group != group)
      continue;
    fused_name(&fused, op->info->name);
    for (int k = 0; k < op->ins; k++) {
      int value = compile_value(c, op->in[k]), producer = compile_base(c, value)->producer;
      gboolean inside = producer >= 0 && c->node[producer].class == FUSE_FUSED &&
                        c->node[producer].group == group;
      if (!inside)
        read_forward(c, &fused, value);
    }
    for (int k = 0; k < op->outs; k++) {
      if (!is_written(c, op->out[k]))
        continue;
      Value *v = &c->value[op->out[k]];
      v->buffer = new_buffer(c, COMPILED_MADE, 0, v->info, op->info->name);
      g_array_append_val(fused.writes, v->buffer);
    }
  }
  fused_end(c, &c->out->forward, &fused, FALSE);
}

static gint32
forward_operand(Compile *c, const Op *op, int buffer, gpointer data)
{
  (void) data;
  if (buffer >= BUFFER_TEMP)
    return -1;
  if (buffer >= BUFFER_OUT)
    return c->value[op->out[buffer - BUFFER_OUT]].buffer;
  return forward_buffer(c, compile_value(c, op->in[buffer - BUFFER_IN]));
}

static void
write_forward_library(Compile *c, int i)
{
  const Op *op = compile_op(c, i);
  if (c->emitted[i])
    return;
  c->emitted[i] = TRUE;
  for (int k = 0; k < op->ins; k++)
    forward_buffer(c, compile_value(c, op->in[k]));
  for (int k = 0; k < op->outs; k++) {
    Value *v = &c->value[op->out[k]];
    v->buffer = new_buffer(c, COMPILED_MADE, 0, v->info, op->info->name);
  }
  add_library_kernels(c, &c->out->forward, op, FALSE, forward_operand, NULL);
}

/* The value's buffer, which the kernels written so far have made. */
static gint32
forward_buffer(Compile *c, int value)
{
  Value *v = compile_base(c, value);
  if (v->buffer >= 0)
    return v->buffer;
  if (v->producer < 0)
    g_assert_not_reached(); /* arguments and parameters have theirs from the beginning */
  if (c->node[v->producer].class == FUSE_EXTERN)
    write_forward_library(c, v->producer);
  else
    write_forward_group(c, c->node[v->producer].group);
  return v->buffer;
}

void
compile_write_forward(Compile *c)
{
  c->emitted = g_new0(gboolean, MAX(c->ops, 1));
  for (int i = 0; i < c->values; i++) {
    gboolean parameter = i >= c->slots;
    if (i < c->f->arguments || parameter)
      c->value[i].buffer = new_buffer(c, parameter ? COMPILED_PARAMETER : COMPILED_ARGUMENT,
                                      parameter ? i - c->slots : i, c->value[i].info, NULL);
  }
  for (int i = 0; i < c->ops; i++)
    if (c->node[i].class == FUSE_EXTERN)
      write_forward_library(c, i);
  c->out->result = forward_buffer(c, c->result);
  for (int i = 0; i < c->values; i++)
    if (c->value[i].saved)
      compiled_buffer(c->out, forward_buffer(c, i))->saved = TRUE;
  memset(c->emitted, 0, sizeof(gboolean) * (gsize) c->ops);
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
    v->again = new_buffer(c, COMPILED_MADE, 0, v->info, op->info->name);
  }
  add_library_kernels(c, &c->out->backward, op, FALSE, again_operand, NULL);
  for (guint k = first; k < c->out->backward.kernels->len; k++)
    g_array_index(c->out->backward.kernels, CompiledKernel, k).recomputes = TRUE;
}

/* What a generated kernel reads to have a value of forward: itself, or that from which it follows.
 */
static void
read_needed(Compile *c, Fused *fused, int value)
{
  const Value *v = compile_base(c, value);
  gboolean fuses = v->producer >= 0 && c->node[v->producer].class == FUSE_FUSED;
  if (present_buffer(v) < 0 && fuses && !v->reduces) {
    const Op *op = compile_op(c, v->producer);
    for (int k = 0; k < op->ins; k++)
      read_needed(c, fused, compile_value(c, op->in[k]));
    return;
  }
  fused_read(c, fused, needed_buffer(c, value), (double) value_bytes(&c->value[value].info));
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
  Fused fused = fused_begin("fused");
  fused_name(&fused, op->info->name);
  for (int k = 0; k < op->ins; k++)
    read_needed(c, &fused, compile_value(c, op->in[k]));
  v->again = new_buffer(c, COMPILED_MADE, 0, v->info, op->info->name);
  g_array_append_val(fused.writes, v->again);
  fused_end(c, &c->out->backward, &fused, TRUE);
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
  const Gradient *g = compile_gradient(c, gradient);
  const BackwardOp *b = g->producer >= 0 ? compile_backward_op(c, g->producer) : NULL;
  if (b == NULL || b->kind != BACKWARD_FUSED || is_gradient_written(c, gradient)) {
    fused_read(c, fused, gradient_buffer(c, gradient), (double) value_bytes(&g->info));
    return;
  }
  for (int k = 0; k < b->reads; k++)
    read_gradient(c, fused, b->read[k]);
  for (int k = 0; k < b->needs; k++)
    read_needed(c, fused, b->need[k]);
}

static void
write_gradient(Compile *c, Fused *fused, int gradient, const char *what)
{
  gint32 buffer = new_buffer(c, COMPILED_MADE, 0, compile_gradient(c, gradient)->info, what);
  compile_gradient(c, gradient)->buffer = buffer;
  g_array_append_val(fused->writes, buffer);
}

static void
write_backward_group(Compile *c, int group)
{
  Fused fused = fused_begin("fused_backward");
  if (compile_backward_op(c, group)->emitted)
    return;
  compile_backward_op(c, group)->emitted = TRUE;
  for (guint i = 0; i < c->backward->len; i++) {
    const BackwardOp *b = compile_backward_op(c, (int) i);
    if (b->kind != BACKWARD_FUSED || b->group != group)
      continue;
    fused_name(&fused, name_of(c, b->op));
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
  fused_end(c, &c->out->backward, &fused, FALSE);
}

static void
write_column(Compile *c, int index)
{
  BackwardOp *b = compile_backward_op(c, index);
  Fused fused = fused_begin("fused_sum");
  b->emitted = TRUE;
  fused_name(&fused, name_of(c, b->op));
  for (int k = 0; k < b->reads; k++)
    read_gradient(c, &fused, b->read[k]);
  for (int k = 0; k < b->needs; k++)
    read_needed(c, &fused, b->need[k]);
  for (int k = 0; k < b->writes; k++)
    write_gradient(c, &fused, b->write[k], "gradient");
  fused_end(c, &c->out->backward, &fused, FALSE);
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
    g->buffer = new_buffer(c, COMPILED_MADE, 0, g->info, "gradient");
  }
  add_library_kernels(c, &c->out->backward, compile_op(c, b->op), TRUE, backward_operand, &index);
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
  incoming->buffer = c->out->incoming = new_buffer(c, COMPILED_INCOMING, 0, incoming->info, NULL);
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
