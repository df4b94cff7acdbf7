/* compile_kernels.c - writes the kernels of a compiled block: generated ones for groups of ops, and
 * those of libraries (torch/_inductor/scheduler.py, and ir.py for what is computed twice rather
 * than written). */
#include <string.h>

#include "network/compile_private.h"

/* ---- buffers ---- */

gint32
compile_new_buffer(Compile *c, CompiledOrigin origin, int number, ValueInfo info, const char *what)
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

/* ---- kernels ---- */

Fused
compile_fused_begin(Compile *c, const char *prefix)
{
  return (Fused){.reads = g_array_new(FALSE, FALSE, sizeof(Read)),
                 .writes = g_array_new(FALSE, FALSE, sizeof(gint32)),
                 .name = g_string_new(prefix),
                 .number = ++c->generated};
}

/* TRUE the first time that the kernel comes to something that it computes by itself. */
gboolean
compile_fused_follows(const Fused *fused, int *seen)
{
  gboolean first = *seen != fused->number;
  *seen = fused->number;
  return first;
}

/* A view reads no more than it shows, several views no more than there is. */
void
compile_fused_read(Compile *c, Fused *fused, gint32 buffer, double bytes)
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

void
compile_fused_name(Fused *fused, const char *op)
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
void
compile_fused_end(Compile *c, CompiledGraph *graph, Fused *fused, gboolean recomputes)
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
void
compile_library_kernels(Compile *c, CompiledGraph *graph, const Op *op, gboolean backward,
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
    compile_fused_read(c, fused, forward_buffer(c, value),
                       (double) value_bytes(&c->value[value].info));
    return;
  }
  const Op *op = compile_op(c, v->producer);
  if (!compile_fused_follows(fused, &c->value[base].seen))
    return;
  for (int k = 0; k < op->ins; k++)
    read_forward(c, fused, compile_value(c, op->in[k]));
}

static void
write_forward_group(Compile *c, int group)
{
  Fused fused = compile_fused_begin(c, "fused");
  if (c->emitted[group])
    return;
  c->emitted[group] = TRUE;
  for (int i = 0; i < c->ops; i++) {
    const Op *op = compile_op(c, i);
    if (c->node[i].class != FUSE_FUSED || c->node[i].group != group)
      continue;
    compile_fused_name(&fused, op->info->name);
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
      v->buffer = compile_new_buffer(c, COMPILED_MADE, 0, v->info, op->info->name);
      g_array_append_val(fused.writes, v->buffer);
    }
  }
  compile_fused_end(c, &c->out->forward, &fused, FALSE);
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
    v->buffer = compile_new_buffer(c, COMPILED_MADE, 0, v->info, op->info->name);
  }
  compile_library_kernels(c, &c->out->forward, op, FALSE, forward_operand, NULL);
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
      c->value[i].buffer = compile_new_buffer(c, parameter ? COMPILED_PARAMETER : COMPILED_ARGUMENT,
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
