/* compile.c - compiles the blocks of a network one by one, as torch.compile does when it is given
 * each of them. */
#include <string.h>

#include "network/compile_private.h"

static CompiledGraph
graph_new(void)
{
  return (CompiledGraph){g_array_new(FALSE, FALSE, sizeof(CompiledKernel)),
                         g_array_new(FALSE, FALSE, sizeof(CompiledOperand)),
                         g_array_new(FALSE, FALSE, sizeof(CompiledScratch))};
}

static void
graph_clear(CompiledGraph *graph)
{
  g_array_unref(graph->kernels);
  g_array_unref(graph->operands);
  g_array_unref(graph->scratch);
}

void
compiled_block_free(gpointer data)
{
  CompiledBlock *compiled = data;
  graph_clear(&compiled->forward);
  graph_clear(&compiled->backward);
  g_array_unref(compiled->buffers);
  g_array_unref(compiled->gradients);
  g_free(compiled);
}

/* ---- lives of buffers ---- */

static void
note_uses(CompiledBlock *compiled, const CompiledGraph *graph, gboolean backward)
{
  for (guint i = 0; i < graph->kernels->len; i++) {
    const CompiledKernel *kernel = &g_array_index(graph->kernels, CompiledKernel, i);
    for (int k = 0; k < kernel->operands; k++) {
      CompiledBuffer *buffer = compiled_buffer(
          compiled,
          g_array_index(graph->operands, CompiledOperand, kernel->first_operand + k).buffer);
      *(backward ? &buffer->last_backward : &buffer->last_forward) = (gint32) i;
    }
  }
}

static gboolean
is_result(const CompiledBlock *compiled, gint32 buffer)
{
  if (buffer == compiled->result)
    return TRUE;
  for (guint i = 0; i < compiled->gradients->len; i++)
    if (g_array_index(compiled->gradients, CompiledGradient, i).buffer == buffer)
      return TRUE;
  return FALSE;
}

/* Is this a buffer that ends with the kernel, made in the same graph, of so many bytes? */
static gboolean
can_be_taken(const CompiledBlock *compiled, gint32 index, gint32 kernel, gboolean backward,
             gint64 bytes)
{
  const CompiledBuffer *buffer = compiled_buffer(compiled, index);
  gint32 last = backward ? buffer->last_backward : buffer->last_forward;
  gboolean here =
      buffer->origin == COMPILED_MADE && !buffer->saved && (!backward || buffer->last_forward < 0);
  return here && last == kernel && !is_result(compiled, index) &&
         value_bytes(&buffer->info) == bytes;
}

/* A generated kernel writes over what it reads last (torch/_inductor/config.py, inplace_buffers).
 */
static void
work_in_place(CompiledBlock *compiled, const CompiledGraph *graph, gint32 index, gboolean backward)
{
  const CompiledKernel *kernel = &g_array_index(graph->kernels, CompiledKernel, index);
  const CompiledOperand *operand =
      &g_array_index(graph->operands, CompiledOperand, kernel->first_operand);
  g_autofree gboolean *taken = g_new0(gboolean, kernel->operands + 1);
  for (int w = 0; w < kernel->operands; w++) {
    CompiledBuffer *made = compiled_buffer(compiled, operand[w].buffer);
    for (int r = 0; r < kernel->operands && operand[w].role == ROLE_WRITE && made->takes < 0; r++) {
      if (operand[r].role != ROLE_READ || taken[r] ||
          !can_be_taken(compiled, operand[r].buffer, index, backward, value_bytes(&made->info)))
        continue;
      made->takes = operand[r].buffer;
      taken[r] = TRUE;
    }
  }
}

static void
finish_lives(CompiledBlock *compiled)
{
  CompiledGraph *graphs[] = {&compiled->forward, &compiled->backward};
  for (int g = 0; g < 2; g++)
    note_uses(compiled, graphs[g], g == 1);
  for (int g = 0; g < 2; g++)
    for (guint i = 0; i < graphs[g]->kernels->len; i++) {
      const CompiledKernel *kernel = &g_array_index(graphs[g]->kernels, CompiledKernel, i);
      if (g_str_has_prefix(kernel->name, "fused"))
        work_in_place(compiled, graphs[g], (gint32) i, g == 1);
    }
}

/* ---- one block ---- */

static CompiledBlock *
compile_block(const Network *network, const Block *block, CheckpointPolicy policy, KeptOps kept)
{
  CompiledBlock *out = g_new0(CompiledBlock, 1);
  Compile c = {.network = network,
               .f = network_function(network, block->function),
               .policy = policy,
               .kept = kept,
               .out = out,
               .gradients = g_array_new(FALSE, FALSE, sizeof(Gradient)),
               .backward = g_array_new(FALSE, FALSE, sizeof(BackwardOp)),
               .contributions = g_array_new(FALSE, FALSE, sizeof(Contribution))};
  out->buffers = g_array_new(FALSE, FALSE, sizeof(CompiledBuffer));
  out->gradients = g_array_new(FALSE, FALSE, sizeof(CompiledGradient));
  out->forward = graph_new();
  out->backward = graph_new();
  out->incoming = -1;
  compile_graph(&c, block->parameter_count, block->first_parameter);
  compile_plan_backward(&c);
  compile_partition(&c);
  compile_write_forward(&c);
  compile_write_backward(&c);
  finish_lives(out);
  g_array_unref(c.gradients);
  g_array_unref(c.backward);
  g_array_unref(c.contributions);
  g_free(c.same);
  g_free(c.value);
  g_free(c.node);
  g_free(c.emitted);
  return out;
}

void
network_compile(Network *network, const CheckpointSpec *checkpointing)
{
  for (guint i = 0; i < network->blocks->len; i++) {
    Block *block = &g_array_index(network->blocks, Block, i);
    CheckpointPolicy policy = checkpoint_spec_of_block(checkpointing, (int) i);
    for (guint k = 0; k < i && block->compiled < 0; k++) {
      const Block *other = network_block(network, (int) k);
      if (other->function == block->function &&
          checkpoint_spec_of_block(checkpointing, (int) k) == policy)
        block->compiled = other->compiled;
    }
    if (block->compiled >= 0)
      continue;
    block->compiled = (int) network->compiled->len;
    g_ptr_array_add(network->compiled, compile_block(network, block, policy, checkpointing->keep));
  }
}
