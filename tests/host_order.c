/* host_order.c - the order of a step's host, as lines of text, and what FSDP2's hooks make it. */
#include "host_order.h"

#define BLOCKS 3
#define ROOT BLOCKS

/* ---- sequences */

Sequence
sequence_new(void)
{
  return (Sequence){.lines = g_ptr_array_new_with_free_func(g_free)};
}

void
sequence_clear(Sequence *s)
{
  g_ptr_array_unref(s->lines);
}

void
sequence_add(Sequence *s, const char *format, ...)
{
  va_list arguments;
  va_start(arguments, format);
  g_ptr_array_add(s->lines, g_strdup_vprintf(format, arguments));
  va_end(arguments);
}

int
sequence_record(Sequence *s, char stream)
{
  sequence_add(s, "%c record %d", stream, s->events);
  return s->events++;
}

/* Fails with both sides' lines around the first difference. */

/* ---- by the rules */

/* Sizes of a group, worked out by hand: 8 shards of a block are 8 rows of 64 and 8 of the bias's
 * elements, of the root 16 rows of 64 of each table. */
typedef struct {
  gint64 weights[2]; /* elements of each parameter; rows divide evenly */
  gint64 all;        /* of both */
} Elements;

static Elements
elements_of(int group)
{
  if (group == ROOT)
    return (Elements){{8192, 8192}, 16384};
  return (Elements){{4096, 64}, 4160};
}

enum { BF16 = 2, FP32 = 4 };

typedef struct {
  const Sharding *v;
  Sequence *out;
  int gathered[BLOCKS + 1]; /* event of the gather that is pending, or -1 */
  gboolean full[BLOCKS + 1];
  int sliced[BLOCKS + 1];      /* event of the reshard to a smaller group, or -1 */
  int reduced[BLOCKS + 1];     /* event after which the gradient is there */
  int all_reduced[BLOCKS + 1]; /* replicas: event of the all-reduce */
  gboolean wide[BLOCKS + 1];   /* the group holds fp32 gradients of an earlier micro-batch */
  int deferred, deferred_copy; /* group whose gather output lives on, its copy's event */
  int input, input_event;      /* group whose reduce-scatter input lives on */
} Rules;

/* Cast, gather into one buffer, from shards or from this rank's half. */
static void
unshard(Rules *r, int group)
{
  gint64 all = elements_of(group).all, cast = all / r->v->shards * BF16;
  if (r->full[group] || r->gathered[group] >= 0)
    return;
  if (r->sliced[group] >= 0) {
    sequence_add(r->out, "C wait %d", r->sliced[group]);
    sequence_add(r->out, "A wait %d", r->sliced[group]);
    cast = all / 2 * BF16;
  }
  sequence_add(r->out, "C +%" G_GINT64_FORMAT, cast);
  sequence_add(r->out, "C +%" G_GINT64_FORMAT, all * BF16);
  sequence_add(r->out, "A joins C");
  sequence_add(r->out, "A all_gather");
  r->gathered[group] = sequence_record(r->out, 'A');
  sequence_add(r->out, "C -%" G_GINT64_FORMAT, cast);
}

static void
add_full(Rules *r, int group, char sign)
{
  for (int i = 0; i < 2; i++)
    sequence_add(r->out, "D %c%" G_GINT64_FORMAT " full", sign,
                 elements_of(group).weights[i] * BF16);
}

static void
let_go(Rules *r, char stream, gint64 bytes)
{
  sequence_add(r->out, "%c -%" G_GINT64_FORMAT, stream, bytes);
}

static void
wait_for_unshard(Rules *r, int group, gboolean forward)
{
  if (r->gathered[group] < 0)
    return;
  int previous = forward ? r->deferred : -1;
  if (previous >= 0) {
    sequence_add(r->out, "C wait %d", r->deferred_copy);
    sequence_add(r->out, "A wait %d", r->deferred_copy);
  }
  sequence_add(r->out, "D wait %d", r->gathered[group]);
  add_full(r, group, '+');
  sequence_add(r->out, "D copy_out");
  if (r->sliced[group] >= 0) {
    let_go(r, 'D', elements_of(group).weights[0] / 2 * BF16);
    let_go(r, 'D', elements_of(group).weights[1] / 2 * BF16);
    r->sliced[group] = -1;
  }
  int copied = sequence_record(r->out, 'D');
  if (forward) {
    if (previous >= 0)
      let_go(r, 'C', elements_of(previous).all * BF16);
    r->deferred = group;
    r->deferred_copy = copied;
  } else {
    sequence_add(r->out, "C wait %d", copied);
    sequence_add(r->out, "A wait %d", copied);
    let_go(r, 'C', elements_of(group).all * BF16);
  }
  r->gathered[group] = -1;
  r->full[group] = TRUE;
}

static void
reshard(Rules *r, int group)
{
  if (r->full[group])
    add_full(r, group, '-');
  r->full[group] = FALSE;
}

/* A block's forward is over. */
static void
after_forward(Rules *r, int group)
{
  if (r->v->kept == 0)
    reshard(r, group);
  if (r->v->kept != 2)
    return;
  for (int i = 0; i < 2; i++) {
    gint64 bytes = elements_of(group).weights[i] * BF16;
    sequence_add(r->out, "D +%" G_GINT64_FORMAT, bytes / 2);
    sequence_add(r->out, "D -%" G_GINT64_FORMAT " full", bytes);
  }
  r->full[group] = FALSE;
  r->sliced[group] = sequence_record(r->out, 'D');
}

static void
forward(Rules *r)
{
  sequence_add(r->out, "C joins D");
  sequence_add(r->out, "A joins D");
  unshard(r, ROOT);
  wait_for_unshard(r, ROOT, TRUE);
  for (int i = 0; i < BLOCKS; i++) {
    unshard(r, i);
    wait_for_unshard(r, i, TRUE);
    after_forward(r, i);
  }
  if (r->deferred < 0)
    return;
  sequence_add(r->out, "C wait %d", r->deferred_copy);
  sequence_add(r->out, "A wait %d", r->deferred_copy);
  let_go(r, 'C', elements_of(r->deferred).all * BF16);
  r->deferred = -1;
}

/* Autograd makes one gradient of the group. */
static void
gradient(Rules *r, int group, int which)
{
  sequence_add(r->out, "D +%" G_GINT64_FORMAT, elements_of(group).weights[which] * BF16);
}

/* Gradients stay where they are, in fp32. */
static void
keep_gradients(Rules *r, int group)
{
  Elements e = elements_of(group);
  reshard(r, group);
  for (int i = 0; i < 2; i++) {
    sequence_add(r->out, "D +%" G_GINT64_FORMAT, e.weights[i] * FP32);
    let_go(r, 'D', e.weights[i] * BF16);
  }
  r->wide[group] = TRUE;
}

/* All but the last gradient go when they have been copied; the last one is a loop's variable. */
static void
reduce_gradients(Rules *r, int group)
{
  Elements e = elements_of(group);
  int size = r->v->reduce_size, gradient_size = r->wide[group] ? FP32 : BF16;
  if (r->wide[group]) {
    let_go(r, 'D', e.weights[0] * BF16);
    let_go(r, 'D', e.weights[1] * BF16);
  }
  reshard(r, group);
  if (r->input >= 0) {
    sequence_add(r->out, "D wait %d", r->input_event);
    let_go(r, 'D', elements_of(r->input).all * size);
  }
  sequence_add(r->out, "D +%" G_GINT64_FORMAT, e.all * size);
  let_go(r, 'D', e.weights[0] * gradient_size);
  sequence_add(r->out, "S joins D");
  sequence_add(r->out, "S +%" G_GINT64_FORMAT, e.all / r->v->shards * size);
  sequence_add(r->out, "S reduce_scatter");
  r->input = group;
  r->input_event = sequence_record(r->out, 'S');
  char last = 'S';
  if (r->v->replicas > 1) {
    last = 'R';
    sequence_add(r->out, "R joins S");
    sequence_add(r->out, "R all_reduce");
    r->all_reduced[group] = sequence_record(r->out, 'R');
  }
  if (size != FP32) {
    sequence_add(r->out, "%c +%" G_GINT64_FORMAT, last, e.all / r->v->shards * FP32);
    if (r->v->replicas == 1)
      let_go(r, 'S', e.all / r->v->shards * size);
  }
  r->reduced[group] = sequence_record(r->out, last);
  let_go(r, 'D', e.weights[1] * gradient_size);
  r->wide[group] = FALSE;
}

static void
post_backward(Rules *r, int group, gboolean synchronize)
{
  if (synchronize)
    reduce_gradients(r, group);
  else
    keep_gradients(r, group);
}

/* Root first, then the blocks as they are defined. */
static void
finalize(Rules *r)
{
  for (int i = -1; i < BLOCKS; i++) {
    int group = i < 0 ? ROOT : i;
    sequence_add(r->out, "D wait %d", r->reduced[group]);
    if (r->v->replicas == 1)
      continue;
    sequence_add(r->out, "D wait %d", r->all_reduced[group]);
    if (r->v->reduce_size != FP32)
      let_go(r, 'S', elements_of(group).all / r->v->shards * r->v->reduce_size);
  }
  sequence_add(r->out, "D wait %d", r->input_event);
  let_go(r, 'D', elements_of(r->input).all * r->v->reduce_size);
  r->input = -1;
}

/* The group before it in forward order is gathered ahead: of block 0 that is nothing. */
static void
backward(Rules *r, gboolean synchronize)
{
  unshard(r, BLOCKS - 1);
  gradient(r, ROOT, 1); /* of the head */
  for (int i = BLOCKS - 1; i >= 0; i--) {
    unshard(r, i);
    wait_for_unshard(r, i, FALSE);
    if (i > 0)
      unshard(r, i - 1);
    gradient(r, i, 0);
    gradient(r, i, 1);
    post_backward(r, i, synchronize);
  }
  gradient(r, ROOT, 0); /* of the embedding */
  post_backward(r, ROOT, synchronize);
  if (synchronize)
    finalize(r);
}

/* Sharded gradients are in fp32, one storage a group, in the order of model.parameters() where the
 * root's last comes at the end. */
static void
zero_grad(Rules *r)
{
  for (int i = 0; i <= BLOCKS; i++)
    let_go(r, r->v->replicas > 1 && r->v->reduce_size != FP32 ? 'R' : 'S',
           elements_of(i).all / r->v->shards * FP32);
}

Sequence
sequence_by_rules(const Sharding *v)
{
  Sequence s = sequence_new();
  Rules r = {.v = v, .out = &s, .deferred = -1, .input = -1};
  for (int i = 0; i <= BLOCKS; i++)
    r.gathered[i] = r.sliced[i] = -1;
  zero_grad(&r);
  for (int i = 0; i < v->micro_batches; i++) {
    forward(&r);
    backward(&r, i == v->micro_batches - 1);
  }
  return s;
}
