/* builder_frames.c - Python frames and module calls while a family writes its forward(). */
#include <string.h>

#include "network/builder.h"
#include "network/builder_private.h"

typedef struct {
  const char *name;
  gint16 slot; /* G_MININT16: deleted */
} Local;

typedef struct {
  GArray *locals;    /* Local, in order of first appearance */
  GArray *arguments; /* gint16: references of a module call's argument tuple */
  int module;        /* the module to return to */
  int called;        /* the module whose hooks see the call, or -1 */
} Frame;

/* ---- Python frames ---- */

static Frame *
top_frame(Builder *b)
{
  g_assert(b->now.frames->len > 0);
  return g_ptr_array_index(b->now.frames, b->now.frames->len - 1);
}

static Frame *
push_frame(Builder *b)
{
  Frame *frame = g_new0(Frame, 1);
  frame->locals = builder_array(sizeof(Local), NULL);
  frame->arguments = builder_array(sizeof(gint16), NULL);
  frame->module = b->now.module;
  frame->called = -1;
  g_ptr_array_add(b->now.frames, frame);
  return frame;
}

void
builder_call(Builder *b, int n, const Val *args)
{
  Frame *frame = push_frame(b);
  for (int i = 0; i < n; i++) {
    Val held = builder_share(b, args[i]);
    g_array_append_val(frame->arguments, held.slot);
  }
}

void
builder_enter(Builder *b, int n, const char *const *names, const Val *args)
{
  Frame *frame = push_frame(b);
  for (int i = 0; i < n; i++) {
    Local local = {names[i], builder_share(b, args[i]).slot};
    g_array_append_val(frame->locals, local);
  }
}

/* The local of that name in the innermost frame, made (deleted) when it is new. */
static Local *
find_local(Frame *frame, const char *name)
{
  for (guint i = 0; i < frame->locals->len; i++) {
    Local *local = &g_array_index(frame->locals, Local, i);
    if (strcmp(local->name, name) == 0)
      return local;
  }
  Local local = {name, G_MININT16};
  g_array_append_val(frame->locals, local);
  return &g_array_index(frame->locals, Local, frame->locals->len - 1);
}

Val
let(Builder *b, const char *name, Val v)
{
  Local *local = find_local(top_frame(b), name);
  gint16 old = local->slot;
  local->slot = builder_share(b, v).slot;
  builder_held_at(b, local->slot, builder_depth(b, FALSE));
  builder_unreference(b, old);
  return (Val){local->slot, FALSE};
}

void
let_pair(Builder *b, const char *const names[2], Val values[2])
{
  find_local(top_frame(b), names[0]);
  values[1] = let(b, names[1], values[1]);
  values[0] = let(b, names[0], values[0]);
}

void
let_triple(Builder *b, const char *const names[3], Val values[3])
{
  find_local(top_frame(b), names[0]);
  find_local(top_frame(b), names[1]);
  for (int i = 2; i >= 0; i--)
    values[i] = let(b, names[i], values[i]);
}

void
unlet(Builder *b, const char *name)
{
  Local *local = find_local(top_frame(b), name);
  gint16 old = local->slot;
  local->slot = G_MININT16;
  builder_unreference(b, old);
}

void
builder_leave_with(Builder *b, int n, Val *results)
{
  Frame *frame = top_frame(b);
  for (int i = 0; i < n; i++)
    results[i] = builder_share(b, results[i]);
  for (guint i = 0; i < frame->locals->len; i++)
    builder_unreference(b, g_array_index(frame->locals, Local, i).slot);
  if (frame->called >= 0)
    builder_module_exit_with(b, frame->called, n, results);
  g_ptr_array_set_size(b->now.frames, (int) b->now.frames->len - 1);
  for (int i = 0; i < n; i++)
    builder_held_at(b, results[i].slot, builder_depth(b, TRUE));
  for (guint i = 0; i < frame->arguments->len; i++)
    builder_unreference(b, g_array_index(frame->arguments, gint16, i));
  b->now.module = frame->module;
  g_array_unref(frame->locals);
  g_array_unref(frame->arguments);
  g_free(frame);
}

Val
builder_leave(Builder *b, Val result)
{
  builder_leave_with(b, 1, &result);
  return result;
}

Val
builder_leave_beside(Builder *b, Val result, Val *beside)
{
  Val results[2] = {result, *beside};
  builder_leave_with(b, beside->slot != NO_VAL.slot ? 2 : 1, results);
  *beside = results[1];
  return results[0];
}

/* ---- module calls that hooks see ---- */

void
builder_module_enter(Builder *b, int module, int n, Val *args)
{
  Statement s = {.kind = STATEMENT_ENTER,
                 .a = module - b->now.base_module,
                 .ins = (guint8) n,
                 .outs = (guint8) n};
  g_assert(n <= STATEMENT_SLOTS);
  for (int i = 0; i < n; i++) {
    ValueInfo info = builder_info_of(b, args[i].slot);
    s.in[i] = args[i].slot;
    s.out[i] = builder_new_slot(b, &info);
  }
  builder_add_statement(b, &s);
  for (int i = 0; i < n; i++) {
    builder_discard(b, args[i]);
    args[i] = (Val){s.out[i], TRUE};
  }
}

void
builder_module_exit_with(Builder *b, int module, int n, const Val *outputs)
{
  Statement s = {.kind = STATEMENT_EXIT, .a = module - b->now.base_module, .ins = (guint8) n};
  g_assert(n <= STATEMENT_SLOTS);
  for (int i = 0; i < n; i++)
    s.in[i] = outputs[i].slot;
  builder_add_statement(b, &s);
}

void
builder_module_exit(Builder *b, int module, Val output)
{
  builder_module_exit_with(b, module, 1, &output);
}

void
builder_module_call(Builder *b, int module, int n, Val *args)
{
  builder_call(b, n, args);
  Frame *frame = top_frame(b);
  frame->called = module;
  for (int i = 0; i < n; i++)
    args[i].temporary = FALSE;
  builder_module_enter(b, module, n, args);
  for (int i = 0; i < n; i++) {
    g_array_append_val(frame->arguments, args[i].slot);
    args[i].temporary = FALSE;
  }
  b->now.module = module;
}

void
builder_module_call_by_keyword(Builder *b, int module, Val *arg)
{
  builder_call(b, 1, arg);
  arg->temporary = FALSE;
  top_frame(b)->called = module;
  builder_module_enter(b, module, 0, NULL);
  b->now.module = module;
}

/* ---- blocks ---- */

static gboolean
same_value(const ValueInfo *a, const ValueInfo *b)
{
  return a->dtype == b->dtype && a->requires_grad == b->requires_grad && a->dims == b->dims &&
         memcmp(a->shape, b->shape, sizeof(gint64) * a->dims) == 0 &&
         memcmp(a->stride, b->stride, sizeof(gint64) * a->dims) == 0;
}

/* Do ops see the same in the parameters of both blocks? */
static gboolean
same_parameters(const Network *n, int block, int other)
{
  const Block *x = network_block(n, block), *y = network_block(n, other);
  if (x->modules != y->modules || x->parameter_count != y->parameter_count)
    return FALSE;
  for (int i = 0; i < x->parameter_count; i++) {
    const Parameter *p = network_parameter(n, x->first_parameter + i);
    const Parameter *q = network_parameter(n, y->first_parameter + i);
    if (p->requires_grad != q->requires_grad || p->dims != q->dims ||
        p->module - x->module != q->module - y->module ||
        memcmp(p->shape, q->shape, sizeof(p->shape)) != 0)
      return FALSE;
  }
  return TRUE;
}

/* The function that computes a block for such arguments: one that is there, or a new one. */
static int
block_function(Builder *b, int block, const BlockCode *code, int n, const ValueInfo *infos)
{
  gboolean dispatched = builder_dispatches(b, block);
  for (guint i = b->written->len; i > 0; i--) {
    const WrittenBlock *w = &g_array_index(b->written, WrittenBlock, i - 1);
    const Function *f = network_function(b->network, w->function);
    gboolean same = w->kind == code->kind && w->dispatched == dispatched && f->arguments == n;
    for (int k = 0; k < n && same; k++)
      same = same_value(&infos[k], &g_array_index(f->values, ValueInfo, k));
    if (same && same_parameters(b->network, block, w->block))
      return w->function;
  }
  Val args[STATEMENT_SLOTS];
  builder_function_begin(b, "block", block, n, infos, args);
  WrittenBlock w = {.block = block, .kind = code->kind, .dispatched = dispatched};
  Val results[FUNCTION_RESULTS];
  int results_count = 1;
  if (code->forward_several != NULL)
    results_count = code->forward_several(b, code->model, block, args, results);
  else
    results[0] = code->forward(b, code->model, block, args);
  Function *written = b->now.function;
  if (results_count > 1)
    written->others = results_count - 1;
  for (int i = 1; i < results_count; i++)
    written->other[i - 1] = results[i].slot;
  w.function = builder_function_end(b, results[0]);
  g_array_append_val(b->written, w);
  return w.function;
}

int
builder_block_call_several(Builder *b, int block, const BlockCode *code, int n, const Val *args,
                           Val *results)
{
  Block *called = &g_array_index(b->network->blocks, Block, block);
  ValueInfo infos[STATEMENT_SLOTS];
  g_assert(n <= STATEMENT_SLOTS);
  for (int i = 0; i < n; i++)
    infos[i] = builder_info_of(b, args[i].slot);
  int function = block_function(b, block, code, n, infos);
  const Function *f = network_function(b->network, function);
  Statement s = {.kind = STATEMENT_CALL, .a = function, .b = block, .ins = (guint8) n};
  called->function = function;
  for (int i = 0; i < n; i++)
    s.in[i] = args[i].slot;
  s.outs = (guint8) (1 + f->others);
  for (int i = 0; i < s.outs; i++) {
    gint16 result = i == 0 ? f->result : f->other[i - 1];
    s.out[i] = builder_new_slot(b, &g_array_index(f->values, ValueInfo, result));
    results[i] = (Val){s.out[i], TRUE};
  }
  builder_add_statement(b, &s);
  return s.outs;
}

Val
builder_block_call(Builder *b, int block, const BlockCode *code, int n, const Val *args)
{
  Val results[FUNCTION_RESULTS];
  int count = builder_block_call_several(b, block, code, n, args, results);
  g_assert(count <= 2);
  b->now.beside = count == 2 ? results[1] : NO_VAL;
  return results[0];
}

void
builder_give_beside(Builder *b, Val v)
{
  Function *f = b->now.function;
  f->other[f->others++] = builder_share(b, v).slot;
}

void
builder_capture(Builder *b, Val v)
{
  b->now.function->captured++;
  builder_give_beside(b, (Val){v.slot, FALSE});
}

Val
builder_take_beside(Builder *b)
{
  Val beside = b->now.beside;
  b->now.beside = NO_VAL;
  return beside;
}

void
builder_forward_end(Builder *b)
{
  builder_add_statement(b, &(Statement){.kind = STATEMENT_FORWARD_END});
}

void
builder_keep(Builder *b, Val v)
{
  builder_add_statement(b, &(Statement){.kind = STATEMENT_KEEP, .ins = 1, .in = {v.slot}});
}

void
builder_autocast_end(Builder *b)
{
  builder_add_statement(b, &(Statement){.kind = STATEMENT_AUTOCAST_END});
}
