/* compiled.c - runs blocks that are compiled: their kernels instead of their ops, and one node of
 * the graph for the whole of backward (torch/_functorch/_aot_autograd/runtime_wrappers.py). */
#include <string.h>

#include "lower/tape_private.h"
#include "network/compiled.h"
#include "network/strides.h"

/* Ids of a compiled block's texts and kernels in the Program, made once. */
typedef struct {
  gint32 *kernels[2]; /* forward, backward */
  gint32 *what;       /* by buffer */
} CompiledIds;

static CompiledIds *
ids_new(Tape *t, const CompiledBlock *compiled)
{
  CompiledIds *ids = g_new0(CompiledIds, 1);
  const CompiledGraph *graphs[] = {&compiled->forward, &compiled->backward};
  for (int g = 0; g < 2; g++) {
    guint n = graphs[g]->kernels->len;
    ids->kernels[g] = g_new(gint32, MAX(n, 1));
    for (guint i = 0; i < n; i++) {
      const CompiledKernel *kernel = &g_array_index(graphs[g]->kernels, CompiledKernel, i);
      Kernel named = kernel->kernel;
      named.name = program_builder_name(t->builder, kernel->name);
      ids->kernels[g][i] = program_builder_kernel(t->builder, &named);
    }
  }
  ids->what = g_new(gint32, MAX(compiled->buffers->len, 1));
  for (guint i = 0; i < compiled->buffers->len; i++) {
    const char *what = compiled_buffer(compiled, (gint32) i)->what;
    ids->what[i] = what != NULL ? program_builder_name(t->builder, what) : -1;
  }
  return ids;
}

void
compiled_ids_free(gpointer data)
{
  CompiledIds *ids = data;
  g_free(ids->kernels[0]);
  g_free(ids->kernels[1]);
  g_free(ids->what);
  g_free(ids);
}

void
compiled_make_ids(Tape *t)
{
  t->compiled_ids = g_ptr_array_new_with_free_func(compiled_ids_free);
  for (guint i = 0; i < t->network->compiled->len; i++)
    g_ptr_array_add(t->compiled_ids, ids_new(t, g_ptr_array_index(t->network->compiled, i)));
}

void
compiled_call_free(gpointer data)
{
  CompiledCall *call = data;
  g_free(call->edges);
  g_free(call->tensors);
  g_free(call);
}

/* ---- kernels ---- */

/* One graph of a block being played. */
typedef struct {
  const CompiledBlock *compiled;
  const CompiledIds *ids;
  Place place;
  TensorRef *tensors; /* by buffer */
  gboolean backward;
} Play;

static void
add_operand(Tape *t, const Play *play, const CompiledOperand *operand)
{
  const TensorRef *ref = &play->tensors[operand->buffer];
  const ParameterState *p = ref->parameter >= 0 ? &t->x->parameters[ref->parameter] : NULL;
  StorageId storage = p != NULL ? p->unsharded : ref->storage;
  if (storage == NO_STORAGE)
    return;
  const CompiledBuffer *buffer = compiled_buffer(play->compiled, operand->buffer);
  const ValueInfo *info = &buffer->info;
  Layout layout = {.dtype = info->dtype, .dims = info->dims};
  memcpy(layout.shape, info->shape, sizeof(info->shape));
  memcpy(layout.stride, buffer->origin == COMPILED_INCOMING ? ref->stride : info->stride,
         sizeof(info->stride));
  gint64 offset = ref->offset + (p != NULL ? p->offset : 0);
  program_builder_operand(t->builder, program_builder_tensor(t->builder, storage, offset, &layout),
                          (Role) operand->role);
}

/* What the kernel makes: new, or in the place of what it reads last. */
static void
make_outputs(Tape *t, Play *play, const CompiledKernel *kernel, const CompiledOperand *operand)
{
  for (int i = 0; i < kernel->operands; i++) {
    TensorRef *ref = &play->tensors[operand[i].buffer];
    const CompiledBuffer *buffer = compiled_buffer(play->compiled, operand[i].buffer);
    if (operand[i].role == ROLE_READ || ref->storage != NO_STORAGE ||
        buffer->origin != COMPILED_MADE)
      continue;
    if (buffer->takes >= 0) {
      *ref = play->tensors[buffer->takes]; /* that one still names it, for this kernel */
      continue;
    }
    StoragePurpose purpose = {CATEGORY_TEMPORARY, play->place.first_module + kernel->module,
                              play->ids->what[operand[i].buffer]};
    *ref = tape_new_tensor(t, value_bytes(&buffer->info), (DType) buffer->info.dtype, purpose);
  }
}

/* Buffers that this kernel was the last to use go.  Without a graph nothing is saved. */
static void
let_go(Tape *t, Play *play, gint32 index, const CompiledKernel *kernel,
       const CompiledOperand *operand)
{
  for (int i = 0; i < kernel->operands; i++) {
    gint32 b = operand[i].buffer;
    const CompiledBuffer *buffer = compiled_buffer(play->compiled, b);
    gboolean kept = buffer->saved && !play->backward && !t->x->no_grad;
    gint32 last = play->backward ? buffer->last_backward : buffer->last_forward;
    gboolean given = buffer->origin != COMPILED_MADE && !(play->backward && buffer->saved);
    if (last != index || kept || given || (!play->backward && b == play->compiled->result) ||
        play->tensors[b].storage == NO_STORAGE || play->tensors[b].parameter >= 0)
      continue;
    gboolean taken = FALSE, result = FALSE;
    for (int k = 0; k < kernel->operands; k++)
      taken |= compiled_buffer(play->compiled, operand[k].buffer)->takes == b &&
               operand[k].role != ROLE_READ;
    for (guint k = 0; k < play->compiled->gradients->len && play->backward; k++)
      result |= g_array_index(play->compiled->gradients, CompiledGradient, k).buffer == b;
    if (result)
      continue;
    if (!taken)
      tape_drop(t, &play->tensors[b]);
    play->tensors[b] = NO_TENSOR;
  }
}

static void
run_kernel(Tape *t, Play *play, gint32 index)
{
  const CompiledGraph *graph =
      play->backward ? &play->compiled->backward : &play->compiled->forward;
  const CompiledKernel *kernel = &g_array_index(graph->kernels, CompiledKernel, index);
  const CompiledOperand *operand =
      &g_array_index(graph->operands, CompiledOperand, kernel->first_operand);
  StorageId scratch[OP_TEMPS];
  program_builder_set_module(t->builder, play->place.first_module + kernel->module);
  if (kernel->recomputes)
    program_builder_push(t->builder, RANGE_HOOK, "recompute", 0);
  make_outputs(t, play, kernel, operand);
  for (int i = 0; i < kernel->scratch; i++) {
    const CompiledScratch *s =
        &g_array_index(graph->scratch, CompiledScratch, kernel->first_scratch + i);
    StoragePurpose purpose = {CATEGORY_TEMPORARY, play->place.first_module + kernel->module,
                              program_builder_name(t->builder, s->what)};
    scratch[i] = live_storage_alloc(t->live, s->bytes, STREAM_COMPUTE, purpose);
  }
  for (int i = 0; i < kernel->operands; i++)
    add_operand(t, play, &operand[i]);
  program_builder_launch(t->builder, STREAM_COMPUTE, play->ids->kernels[play->backward][index]);
  for (int i = 0; i < WORKSPACE_COUNT; i++)
    if ((kernel->workspaces >> i) & 1)
      tape_use_workspace(t, (Workspace) i);
  for (int i = kernel->scratch - 1; i >= 0; i--)
    live_storage_drop(t->live, scratch[i]);
  if (kernel->recomputes)
    program_builder_pop(t->builder);
  let_go(t, play, index, kernel, operand);
}

/* The host enters the compiled code once, and launches its kernels one by one. */
static void
play_graph(Tape *t, Play *play)
{
  const GArray *kernels =
      play->backward ? play->compiled->backward.kernels : play->compiled->forward.kernels;
  program_builder_host_work(t->builder, HOST_WORK_COMPILED_REGION, 1);
  for (guint i = 0; i < kernels->len; i++)
    run_kernel(t, play, (gint32) i);
  if (kernels->len > 0)
    program_builder_host_work(t->builder, HOST_WORK_COMPILED_KERNEL, (int) kernels->len);
}

/* ---- forward ---- */

/* Arguments and parameters as the block finds them. */
static void
fill_given(Play *play, const TensorRef *args)
{
  for (guint i = 0; i < play->compiled->buffers->len; i++) {
    const CompiledBuffer *buffer = compiled_buffer(play->compiled, (gint32) i);
    play->tensors[i] = NO_TENSOR;
    if (buffer->origin == COMPILED_ARGUMENT) {
      play->tensors[i] = args[buffer->number];
    } else if (buffer->origin == COMPILED_PARAMETER) {
      play->tensors[i].parameter = play->place.first_parameter + buffer->number;
      play->tensors[i].dtype = buffer->info.dtype;
    }
  }
}

/* Saved tensors are the node's; of what was given it holds a reference more. */
static void
save(Tape *t, const Play *play)
{
  for (guint i = 0; i < play->compiled->buffers->len; i++) {
    const CompiledBuffer *buffer = compiled_buffer(play->compiled, (gint32) i);
    TensorRef *ref = &play->tensors[i];
    if (!buffer->saved || buffer->origin == COMPILED_PARAMETER) {
      if (buffer->origin == COMPILED_ARGUMENT)
        *ref = NO_TENSOR;
      continue;
    }
    if (buffer->origin == COMPILED_ARGUMENT || (gint32) i == play->compiled->result)
      tape_hold(t, ref);
    live_storage_promote(t->live, ref->storage, CATEGORY_ACTIVATION);
  }
}

/* Where the gradients of the block's arguments and parameters go. */
static Edge *
find_edges(Tape *t, const Play *play, const TensorRef *args)
{
  const GArray *gradients = play->compiled->gradients;
  Edge *edges = g_new(Edge, MAX(gradients->len, 1));
  for (guint i = 0; i < gradients->len; i++) {
    const CompiledGradient *g = &g_array_index(gradients, CompiledGradient, i);
    edges[i] =
        g->argument >= 0
            ? (Edge){args[g->argument].node, args[g->argument].output}
            : (Edge){autograd_accumulate_node(t, play->place.first_parameter + g->parameter), 0};
  }
  return edges;
}

TensorRef
compiled_run(Tape *t, int compiled, Place place, const TensorRef *args)
{
  const CompiledBlock *block = g_ptr_array_index(t->network->compiled, compiled);
  Play play = {block, g_ptr_array_index(t->compiled_ids, compiled), place,
               g_new(TensorRef, block->buffers->len), FALSE};
  gboolean records = block->incoming >= 0 && !t->x->no_grad;
  fill_given(&play, args);
  gint32 node =
      records ? autograd_compiled_node(t, find_edges(t, &play, args), (int) block->gradients->len)
              : -1;
  play_graph(t, &play);
  TensorRef result = play.tensors[block->result];
  result.node = node;
  result.output = 0;
  if (!records) {
    g_free(play.tensors);
    return result;
  }
  save(t, &play);
  if (!compiled_buffer(block, block->result)->saved)
    play.tensors[block->result] = NO_TENSOR;
  autograd_keep_compiled(t, node, compiled, place, play.tensors);
  return result;
}

/* ---- backward ---- */

void
compiled_backward(Tape *t, CompiledCall *call, TensorRef incoming, TensorRef *gradients)
{
  const CompiledBlock *block = g_ptr_array_index(t->network->compiled, call->compiled);
  Play play = {block, g_ptr_array_index(t->compiled_ids, call->compiled), call->place,
               call->tensors, TRUE};
  play.tensors[block->incoming] = incoming;
  play_graph(t, &play);
  for (guint i = 0; i < block->buffers->len; i++) {
    const CompiledBuffer *buffer = compiled_buffer(block, (gint32) i);
    if (buffer->saved && buffer->last_backward < 0 && buffer->origin != COMPILED_PARAMETER)
      tape_drop(t, &play.tensors[i]);
  }
  for (guint i = 0; i < block->gradients->len; i++) {
    gint32 buffer = g_array_index(block->gradients, CompiledGradient, i).buffer;
    const ValueInfo *info = &compiled_buffer(block, buffer)->info;
    gradients[i] = play.tensors[buffer];
    gradients[i].node = -1;
    gradients[i].is_view = FALSE;
    if (buffer != block->incoming)
      memcpy(gradients[i].stride, info->stride, sizeof(info->stride));
    for (guint k = 0; k < i; k++) /* one tensor for two: each has a reference */
      if (g_array_index(block->gradients, CompiledGradient, k).buffer == buffer) {
        tape_hold(t, &gradients[i]);
        break;
      }
    if (buffer == block->incoming)
      tape_hold(t, &gradients[i]);
  }
}
