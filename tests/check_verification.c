/* check_verification.c - plans executed on numbers: every one equals an unsharded run, in the order
 * of issue and in random ones; and a Program with a mistake in it never does. */
#include <string.h>

#include "op_meaning.h"
#include "quick.h"
#include "tap_main.h"
#include "verification_run.h"

/* What a mistake is: how a Program is changed. */
typedef struct _Mistake Mistake;

/* ---- plans that are right ---- */

static const Plan plans[] = {
    {LLAMA, DDP, "mesh.replicate=1"},
    {LLAMA, DDP, ""},
    {LLAMA, DDP, "mesh.replicate=3"},
    {LLAMA, DDP, "mesh.replicate=8"},
    {LLAMA, DDP, "accumulation.steps=3"},
    {LLAMA, DDP, "accumulation.steps=3 accumulation.sync_every_step=true"},
    {LLAMA, DDP, "accumulation.steps=2 ddp.gradient_as_bucket_view=true"},
    {LLAMA, DDP, "ddp.find_unused_parameters=true"},
    {LLAMA, DDP, "optimizer.name=sgd"},
    {LLAMA, DDP, "optimizer.name=adam optimizer.implementation=foreach"},
    {LLAMA, DDP, "activation_checkpointing.policy=full"},
    {LLAMA, FSDP2, "mesh.shard=1"},
    {LLAMA, FSDP2, ""},
    {LLAMA, FSDP2, "mesh.shard=3"},
    {LLAMA, FSDP2, "mesh.shard=4"},
    {LLAMA, FSDP2, "mesh.shard=8"},
    {LLAMA, FSDP2, "precision.compute=fp32"},
    {LLAMA, FSDP2, "precision.reduce=bf16"},
    {LLAMA, FSDP2, "fsdp.reshard_after_forward=false"},
    {LLAMA, FSDP2, "mesh.shard=4 fsdp.reshard_after_forward=2"},
    {LLAMA, FSDP2, "fsdp.blocks_per_group=2"},
    {LLAMA, FSDP2, "mesh.replicate=2"},
    {LLAMA, FSDP2, "mesh.replicate=2 mesh.shard=3"},
    {LLAMA, FSDP2, "accumulation.steps=3"},
    {LLAMA, FSDP2, "accumulation.steps=3 accumulation.sync_every_step=false"},
    {LLAMA, FSDP2, "accumulation.steps=2 accumulation.reshard_after_backward=false"},
    {LLAMA, FSDP2, "mesh.replicate=2 accumulation.steps=4 accumulation.all_reduce_every=2"},
    {LLAMA, FSDP2, "activation_checkpointing.policy=full"},
    {LLAMA, FSDP2, "activation_checkpointing.policy=selective_op"},
    {LLAMA, FSDP2, "optimizer.implementation=forloop"},
    {LLAMA, FSDP2, "optimizer.zero_grad=end"},
    {LLAMA, FSDP2, "trainable=[\"*.attention.*\"]"},
    {GPT2, FSDP2, ""},
    {GPT2, FSDP2, "mesh.shard=3 activation_checkpointing.policy=full"},
    {GPT2, DDP, "accumulation.steps=2"},
    {LLAMA, FSDP1, ""},
    {LLAMA, FSDP1, "mesh.shard=1"},
    {LLAMA, FSDP1, "mesh.shard=3 accumulation.steps=2"},
    {LLAMA, FSDP1, "mesh.shard=8"},
    {LLAMA, FSDP1, "fsdp.sharding_strategy=SHARD_GRAD_OP"},
    {LLAMA, FSDP1, "fsdp.sharding_strategy=NO_SHARD mesh.shard=1 mesh.replicate=2"},
    {LLAMA, FSDP1, "fsdp.sharding_strategy=HYBRID_SHARD mesh.replicate=2"},
    {LLAMA, FSDP1, "accumulation.steps=2 accumulation.sync_every_step=false"},
    {LLAMA, FSDP1, "precision.compute=fp32 activation_checkpointing.policy=full"},
    {LLAMA, ZERO1, ""},
    {LLAMA, ZERO1, "mesh.shard=1"},
    {LLAMA, ZERO1, "mesh.shard=3 accumulation.steps=2"},
    {LLAMA, ZERO1, "mesh.shard=8"},
    {LLAMA, ZERO1, "deepspeed.overlap_comm=true"},
    {LLAMA, ZERO1, "deepspeed.reduce_bucket_size=600"},
    {LLAMA, ZERO1, "deepspeed.grad_accum_dtype=fp32"},
    {LLAMA, ZERO1, "strategy=zero2 mesh.shard=3"},
    {LLAMA, ZERO1, "strategy=zero2 accumulation.steps=3 deepspeed.round_robin_gradients=true"},
    {LLAMA, ZERO1, "strategy=zero2 deepspeed.contiguous_gradients=false"},
    {LLAMA, ZERO1, "strategy=zero2 precision.parameters=fp32 deepspeed.reduce_scatter=false"},
    {LLAMA, ZERO1, "strategy=zero3"},
    {LLAMA, ZERO1, "strategy=zero3 mesh.shard=1"},
    {LLAMA, ZERO1, "strategy=zero3 mesh.shard=1 activation_checkpointing.policy=full"},
    {LLAMA, ZERO1, "strategy=zero3 mesh.shard=3 accumulation.steps=2"},
    {LLAMA, ZERO1, "strategy=zero3 mesh.shard=8"},
    {LLAMA, ZERO1, "strategy=zero3 deepspeed.stage3_param_persistence_threshold=0"},
    {LLAMA, ZERO1, "strategy=zero3 deepspeed.sub_group_size=600 mesh.shard=3"},
    {LLAMA, ZERO1,
     "strategy=zero3 deepspeed.stage3_use_all_reduce_for_fetch_params=true "
     "deepspeed.stage3_param_persistence_threshold=0 mesh.shard=3"},
    {LLAMA, ZERO1, "strategy=zero3 deepspeed.sub_group_size=1 precision.parameters=fp32"},
    {LLAMA, FSDP2, "mesh.shard=20 fsdp.cpu_offload=true"}, /* the last rank holds nothing */
    {LLAMA, ZERO1, "strategy=zero3 deepspeed.zero_init=true activation_checkpointing.policy=full"},
    {LLAMA, ZERO1, "strategy=zero3 deepspeed.reduce_scatter=false mesh.shard=3"},
    {LLAMA, ZERO1, "strategy=zero3 deepspeed.zero_hpz_partition_size=2 mesh.shard=4"},
    {GPT2, ZERO1, "strategy=zero3 mesh.shard=3"},
};

START_TEST(a_plan_equals_an_unsharded_run_in_any_order)
{
  const int orders = quick() ? 1 : 8;
  const Plan *p = &plans[_i * quick_stride()];
  VerificationReport report = {0};
  g_autoptr(GError) error = NULL;
  gboolean ok = verification_run(p, &(Trial){.orders = orders}, &report, &error);
  ck_assert_msg(ok, "%s: %s", p->options, ok ? "" : error->message);
  verification_check_steps(p, &report);
  verification_report_clear(&report);
}
END_TEST

/* ---- mistakes ---- */

/* Which ops a mistake is about. */
typedef struct {
  ProgramOpKind kind;
  const char *name;   /* of a kernel or what it means, a collective's kind, a storage; NULL: any */
  int stream;         /* -1: any */
  const char *module; /* prefix; NULL: any */
  gboolean in_place;  /* it accumulates into what is there */
} Which;

struct _Mistake {
  const char *name, *plan, *options;
  Which which;
  enum {
    DROP,     /* the op is not issued */
    TWICE,    /* it is issued twice */
    EARLY,    /* it is issued right after the one that `other` is about */
    SOONER,   /* it is issued `number` ops sooner */
    MEANS,    /* its kernel or collective means `text` */
    SHIFT,    /* its operand `number` begins an element later */
    MOVE,     /* it is issued to stream `number` */
    EXCHANGE, /* its first two operands change places */
    STALE,    /* an event is recorded `number` ops sooner */
  } what;
  const char *text;
  int number;
  int only_rank; /* -1: all */
};

static const char *
op_name(const Program *program, const ProgramOp *op)
{
  switch ((ProgramOpKind) op->kind) {
  case PROGRAM_HOST_COMPUTE:
  case PROGRAM_LAUNCH:
  case PROGRAM_COPY:
    return kernel_text(program, op);
  case PROGRAM_COLLECTIVE:
    return program_collective_name(
        (CollectiveKind) g_array_index(program->collectives, Collective, op->a).kind);
  case PROGRAM_ALLOC:
  case PROGRAM_FREE:
    return program_text(program, g_array_index(program->storages, Storage, op->a).what);
  default:
    return "";
  }
}

/* The stream on which a wait's event was recorded last. */
static int
recorded_on(const OpList *list, guint wait)
{
  gint32 event = g_array_index(list->ops, ProgramOp, wait).a;
  for (guint i = wait; i > 0; i--) {
    const ProgramOp *op = &g_array_index(list->ops, ProgramOp, i - 1);
    if (op->kind == PROGRAM_EVENT_RECORD && op->a == event)
      return op->stream;
  }
  return -1;
}

/* A wait's name is the stream that it waits for. */
static gboolean
is_about(const Program *program, const OpList *list, guint i, const Which *w)
{
  const ProgramOp *op = &g_array_index(list->ops, ProgramOp, i);
  if (op->kind != w->kind || (w->stream >= 0 && op->stream != w->stream))
    return FALSE;
  if (w->module != NULL &&
      (op->module < 0 || !g_str_has_prefix(program_module_path(program, op->module), w->module)))
    return FALSE;
  if (w->in_place &&
      g_array_index(program->operands, Operand, op->first_operand + op->operands - 1).role !=
          ROLE_ACCUMULATE)
    return FALSE;
  if (w->name == NULL)
    return TRUE;
  if (op->kind == PROGRAM_STREAM_WAIT) {
    int stream = recorded_on(list, i);
    return stream >= 0 && g_str_equal(program_stream_name((StreamId) stream), w->name);
  }
  return g_str_has_prefix(op_name(program, op), w->name);
}

static void
shift(Program *program, const ProgramOp *op, int operand)
{
  Operand *o = &g_array_index(program->operands, Operand, op->first_operand + operand);
  Tensor moved = g_array_index(program->tensors, Tensor, o->tensor);
  Layout layout = g_array_index(program->layouts, Layout, moved.layout);
  layout.shape[0]--; /* it stays inside */
  g_array_append_val(program->layouts, layout);
  moved.layout = (gint32) program->layouts->len - 1;
  moved.offset += layout.stride[0];
  g_array_append_val(program->tensors, moved);
  o->tensor = (gint32) program->tensors->len - 1;
}

static void
exchange(Program *program, const ProgramOp *op)
{
  Operand *o = &g_array_index(program->operands, Operand, op->first_operand), first = o[0];
  o[0].tensor = o[1].tensor;
  o[1].tensor = first.tensor;
}

/* Moves an op to another place of its list. */
static void
move_op(OpList *list, guint from, guint to)
{
  ProgramOp op = g_array_index(list->ops, ProgramOp, from);
  g_array_remove_index(list->ops, from);
  g_array_insert_val(list->ops, to, op);
}

static void
apply(Program *program, OpList *list, guint i, const Mistake *m)
{
  ProgramOp *op = &g_array_index(list->ops, ProgramOp, i);
  switch (m->what) {
  case DROP:
    g_array_remove_index(list->ops, i);
    break;
  case TWICE: {
    ProgramOp again = *op;
    g_array_insert_val(list->ops, i, again);
    break;
  }
  case SOONER:
  case EARLY:
  case STALE:
    move_op(list, i, i > (guint) m->number ? i - (guint) m->number : 0);
    break;
  case MEANS:
    give_meaning(program, op, m->text);
    break;
  case SHIFT:
    shift(program, op, m->number);
    break;
  case MOVE:
    op->stream = (guint8) m->number;
    break;
  case EXCHANGE:
    exchange(program, op);
    break;
  }
}

/* One place in each step: the middle one of those it can be about; of waits all, since some wait
 * for what another has waited for. */
static int found;

static void
change(Program *program, int rank, gconstpointer how)
{
  const Mistake *m = how;
  if (m->only_rank >= 0 && m->only_rank != rank)
    return;
  for (guint l = 1; l < program->lists->len; l++) {
    OpList *list = g_ptr_array_index(program->lists, l);
    g_autoptr(GArray) places = g_array_new(FALSE, FALSE, sizeof(guint));
    for (guint i = 0; i < list->ops->len; i++)
      if (is_about(program, list, i, &m->which))
        g_array_append_val(places, i);
    if (places->len == 0)
      continue;
    found++;
    gboolean all = m->which.kind == PROGRAM_STREAM_WAIT || m->which.kind == PROGRAM_EVENT_SYNC;
    if (!all)
      apply(program, list, g_array_index(places, guint, places->len / 2), m);
    for (guint i = places->len; i > 0 && all; i--)
      apply(program, list, g_array_index(places, guint, i - 1), m);
  }
}

#define LAUNCHED(name)                                                                             \
  {                                                                                                \
    PROGRAM_LAUNCH, name, -1, NULL, FALSE                                                          \
  }
#define COLLECTED(name)                                                                            \
  {                                                                                                \
    PROGRAM_COLLECTIVE, name, -1, NULL, FALSE                                                      \
  }
#define COMPUTED(name)                                                                             \
  {                                                                                                \
    PROGRAM_HOST_COMPUTE, name, -1, NULL, FALSE                                                    \
  }
#define WAITS(waiter, other)                                                                       \
  {                                                                                                \
    PROGRAM_STREAM_WAIT, other, STREAM_##waiter, NULL, FALSE                                       \
  }
#define HSDP "mesh.replicate=2"
#define TWO "accumulation.steps=2 accumulation.sync_every_step=false"

static const Mistake mistakes[] = {
    {"a gather is not waited for", FSDP2, "", WAITS(COMPUTE, "all_gather"), DROP, .only_rank = -1},
    {"a gather begins before its input is copied", FSDP2, "", WAITS(ALL_GATHER, "copy_in"), DROP,
     .only_rank = -1},
    {"a reduction begins before its input is copied", FSDP2, "", WAITS(REDUCE_SCATTER, "compute"),
     DROP, .only_rank = -1},
    {"an all-reduce begins before the reduce-scatter ends", FSDP2, HSDP,
     WAITS(ALL_REDUCE, "reduce_scatter"), DROP, .only_rank = -1},
    {"a bucket is reduced before it is filled", DDP, "", WAITS(ALL_REDUCE, "compute"), DROP,
     .only_rank = -1},
    {"a bucket is used before it is reduced", DDP, "", WAITS(COMPUTE, "all_reduce"), DROP,
     .only_rank = -1},
    {"a gather is not issued by anybody", FSDP2, "", COLLECTED("all_gather"), DROP,
     .only_rank = -1},
    {"a rank leaves out a gather", FSDP2, "", COLLECTED("all_gather"), DROP, .only_rank = 1},
    {"a reduction is dropped", FSDP2, "", COLLECTED("reduce_scatter"), DROP, .only_rank = -1},
    {"a bucket's reduction is dropped", DDP, "", COLLECTED("all_reduce"), DROP, .only_rank = -1},
    {"replicas are not reduced",
     FSDP2,
     HSDP,
     {PROGRAM_COLLECTIVE, "all_reduce", STREAM_ALL_REDUCE, NULL, FALSE},
     DROP,
     .only_rank = -1},
    {"replicas are summed and not averaged",
     FSDP2,
     HSDP,
     {PROGRAM_COLLECTIVE, "all_reduce", STREAM_ALL_REDUCE, NULL, FALSE},
     MEANS,
     .text = NULL,
     .only_rank = -1},
    {"gradients are summed and not averaged", FSDP2, "", COLLECTED("reduce_scatter"), MEANS,
     .text = NULL, .only_rank = -1},
    {"a bucket is summed and not averaged",
     DDP,
     "",
     {PROGRAM_COLLECTIVE, "all_reduce", STREAM_ALL_REDUCE, NULL, FALSE},
     MEANS,
     .text = NULL,
     .only_rank = -1},
    {"a divisor is wrong", FSDP2, "", COLLECTED("reduce_scatter"), MEANS,
     .text = "premul factor=0.25", .only_rank = -1},
    {"a rank reduces what another does not", FSDP2, "", COLLECTED("reduce_scatter"), TWICE,
     .only_rank = 0},
    {"gradients are not copied into the reduction", FSDP2, "", LAUNCHED("chunk_cat"), DROP,
     .only_rank = -1},
    {"gathered parameters are not copied out", FSDP2, "", LAUNCHED("split_gathered"), DROP,
     .only_rank = -1},
    {"a shard is not copied into the gather", FSDP2, "", LAUNCHED("place_slice"), DROP,
     .only_rank = 1},
    {"a shard is put in another rank's place", FSDP2, "", LAUNCHED("place_slice"), MEANS,
     .text = "place_slice ranks=2 stride=2", .only_rank = 1},
    {"parameters are split for another number of ranks", FSDP2, "", LAUNCHED("split_gathered"),
     MEANS, .text = "split_gathered ranks=1", .only_rank = -1},
    {"gradients are cut for another number of ranks", FSDP2, "mesh.shard=4", LAUNCHED("chunk_cat"),
     MEANS, .text = "chunk_cat ranks=2", .only_rank = -1},
    {"accumulation forgets a micro-batch",
     FSDP2,
     TWO,
     {PROGRAM_LAUNCH, "add", -1, "layers.0", TRUE},
     DROP,
     .only_rank = -1},
    {"accumulation adds a micro-batch twice",
     DDP,
     TWO,
     {PROGRAM_LAUNCH, "add", -1, "layers.0.feed_forward.w2", TRUE},
     TWICE,
     .only_rank = -1},
    {"the optimizer runs twice", FSDP2, "", LAUNCHED("adam"), TWICE, .only_rank = 1},
    {"the optimizer does not run", FSDP2, "", LAUNCHED("adam"), DROP, .only_rank = 1},
    {"the optimizer reads a gradient beside its own", FSDP2, "", LAUNCHED("adam"), SHIFT,
     .number = 0, .only_rank = -1},
    {"the optimizer takes the gradient for the value", DDP, "", LAUNCHED("adam"), EXCHANGE,
     .only_rank = 0},
    {"a replica has another learning rate", DDP, "", LAUNCHED("adam"), MEANS,
     .text = "adam lr=0.002 beta1=0.9 beta2=0.999 eps=1e-08 weight_decay=0.01", .only_rank = 1},
    {"gradients are clipped twice", FSDP2, "", LAUNCHED("foreach_mul"), TWICE, .only_rank = -1},
    {"gradients are not clipped", FSDP2, "", LAUNCHED("foreach_mul"), DROP, .only_rank = 1},
    {"a rank clips by the norm of its own shards",
     FSDP2,
     "",
     {PROGRAM_COLLECTIVE, "all_reduce", STREAM_COMPUTE, NULL, FALSE},
     DROP,
     .only_rank = -1},
    {"parameters are freed before they are used",
     FSDP2,
     "",
     {PROGRAM_FREE, "layers.0.feed_forward.w2.weight", -1, NULL, FALSE},
     SOONER,
     .number = 400,
     .only_rank = -1},
    {"a reduction's input is freed while it runs", FSDP2, "", WAITS(COMPUTE, "reduce_scatter"),
     DROP, .only_rank = -1},
    {"a kernel runs on a stream that waits for nothing",
     FSDP2,
     "",
     {PROGRAM_LAUNCH, "mm", -1, "layers.1", FALSE},
     MOVE,
     .number = STREAM_COPY_IN,
     .only_rank = -1},
    {"the event of a gather is recorded before it",
     FSDP2,
     "",
     {PROGRAM_EVENT_RECORD, NULL, STREAM_ALL_GATHER, NULL, FALSE},
     STALE,
     .number = 1,
     .only_rank = -1},
    {"a copy-in overtakes the optimizer", FSDP2, "", WAITS(COPY_IN, "compute"), DROP,
     .only_rank = -1},
    {"recomputation is left out",
     FSDP2,
     "activation_checkpointing.policy=full",
     {PROGRAM_LAUNCH, "silu_backward", -1, NULL, FALSE},
     DROP,
     .only_rank = 0},
    {"a head's gradient is of the other factor", FSDP2, "", LAUNCHED("mm_grad_second"), EXCHANGE,
     .only_rank = -1},
    {"a flat parameter is used before it is gathered", FSDP1, "", WAITS(COMPUTE, "all_gather"),
     DROP, .only_rank = -1},
    {"a flat gradient is not reduced", FSDP1, "", COLLECTED("reduce_scatter"), DROP,
     .only_rank = -1},
    {"a flat gradient is summed and not averaged", FSDP1, "", COLLECTED("reduce_scatter"), MEANS,
     .text = NULL, .only_rank = -1},
    {"a flat parameter's part is updated twice", FSDP1, "", LAUNCHED("adam"), TWICE,
     .only_rank = 1},
    {"a bucket of gradients is not divided", ZERO1, "", LAUNCHED("scale_by"), DROP,
     .only_rank = -1},
    {"partitions are not gathered after the step", ZERO1, "", COLLECTED("all_gather"), DROP,
     .only_rank = -1},
    {"a partition is not written back",
     ZERO1,
     "",
     {PROGRAM_LAUNCH, "copy", -1, NULL, FALSE},
     DROP,
     .only_rank = 1},
    {"a shard is read at another parameter's place", ZERO1, "strategy=zero3",
     COLLECTED("all_gather"), SHIFT, .number = 0, .only_rank = -1},
    {"gathered parts are taken from another place", ZERO1,
     "strategy=zero3 deepspeed.stage3_param_persistence_threshold=0", LAUNCHED("gathered_parts"),
     MEANS, .text = "gathered_parts ranks=2 part=20 first=0 each=10", .only_rank = -1},
    {"a reduction overtakes what fills its bucket", ZERO1,
     "strategy=zero2 deepspeed.overlap_comm=true", WAITS(REDUCE_SCATTER, "compute"), DROP,
     .only_rank = -1},
    {"a flat parameter is updated beside its padding", FSDP1, "fsdp.use_orig_params=false",
     LAUNCHED("adam"), SHIFT, .number = 1, .only_rank = 1},
    {"a flat gradient is used before it is reduced", FSDP1, "", WAITS(COMPUTE, "reduce_scatter"),
     DROP, .only_rank = -1},
    {"gradients are not reduced by the engine", ZERO0, "", COLLECTED("all_reduce"), DROP,
     .only_rank = -1},
    {"gradients are not averaged by the engine", ZERO0, "", LAUNCHED("scale_by factor=0.5"), DROP,
     .only_rank = -1},
    {"the engine clips by another number than the norm", ZERO0, "", COMPUTED("number_root_of"),
     DROP, .only_rank = 1},
    {"a clipped copy is not written back to the model",
     ZERO0,
     "",
     {PROGRAM_LAUNCH, "copy", -1, NULL, FALSE},
     DROP,
     .only_rank = -1},
    {"a bucket is copied back to another place", INTERNEVO, "", LAUNCHED("copy"), SHIFT,
     .number = 0, .only_rank = -1},
    {"an owner does not send what it updated", INTERNEVO, "", COLLECTED("broadcast"), DROP,
     .only_rank = -1},
    {"owners send before they update", INTERNEVO, "", WAITS(ALL_REDUCE, "compute"), DROP,
     .only_rank = -1},
    {"gradients of all are summed and not averaged",
     INTERNEVO,
     "",
     {PROGRAM_COLLECTIVE, "all_reduce", STREAM_ALL_REDUCE, NULL, FALSE},
     MEANS,
     .text = NULL,
     .only_rank = -1},
    {"a rank that does not own a parameter updates it", DDP, "ddp.zero_redundancy_optimizer=true",
     LAUNCHED("adam"), TWICE, .only_rank = 1},
    {"an owner's parameters are not sent", DDP, "ddp.zero_redundancy_optimizer=true",
     COLLECTED("broadcast"), DROP, .only_rank = -1},
    {"parameters are used before they are received", DDP, "ddp.zero_redundancy_optimizer=true",
     WAITS(COMPUTE, "all_reduce"), DROP, .only_rank = -1},
    {"the host updates twice", FSDP2, "fsdp.cpu_offload=true", COMPUTED("adam"), TWICE,
     .only_rank = 1},
    {"the host does not update", FSDP2, "fsdp.cpu_offload=true", COMPUTED("adam"), DROP,
     .only_rank = 0},
    {"hosts clip by their own norms",
     FSDP2,
     "fsdp.cpu_offload=true",
     {PROGRAM_HOST_REDUCE, NULL, -1, NULL, FALSE},
     DROP,
     .only_rank = -1},
    {"the host reads gradients that have not arrived",
     FSDP2,
     "fsdp.cpu_offload=true",
     {PROGRAM_EVENT_SYNC, NULL, -1, NULL, FALSE},
     DROP,
     .only_rank = -1},
    {"a gradient does not go to the host",
     ZERO1,
     "strategy=zero2 deepspeed.offload_optimizer={\"device\":\"cpu\"}",
     {PROGRAM_COPY, "to_host", -1, NULL, FALSE},
     DROP,
     .only_rank = -1},
    {"the host does not clip", ZERO1, "deepspeed.offload_optimizer={\"device\":\"cpu\"}",
     COMPUTED("scale_by_number"), DROP, .only_rank = -1},
    {"weights do not come back from the host",
     ZERO1,
     "deepspeed.offload_optimizer={\"device\":\"cpu\"}",
     {PROGRAM_COPY, "to_device", -1, NULL, FALSE},
     DROP,
     .only_rank = 1},
    {"the host forgets what another micro-batch left",
     ZERO1,
     "strategy=zero3 deepspeed.offload_optimizer={\"device\":\"cpu\"} accumulation.steps=2",
     {PROGRAM_LAUNCH, "add", -1, "layers.0", TRUE},
     DROP,
     .only_rank = -1},
    {"a reduction for an owner goes to another", ZERO1,
     "deepspeed.use_multi_rank_bucket_allreduce=false", COLLECTED("reduce"), MEANS,
     .text = "sum root=0", .only_rank = -1},
    {"an adapter's gradient is not reduced", FSDP2,
     "lora={\"rank\":2,\"targets\":[\"*.wq\",\"*.w2\"]}", COLLECTED("reduce_scatter"), DROP,
     .only_rank = -1},
    {"a loss is not divided by the micro-batches", DDP, TWO, LAUNCHED("div_scalar"), MEANS,
     .text = "div_scalar value=1", .only_rank = -1},
};

/* Those of order show in one of the first orders, in which one stream, host or rank is late or
 * early: with two ranks there are at most 18. */
START_TEST(a_mistake_is_found)
{
  enum { ORDERS = 18 };
  const Mistake *m = &mistakes[_i * quick_stride()];
  VerificationReport report = {0};
  g_autoptr(GError) error = NULL;
  found = 0;
  gboolean ok =
      verification_run(&(Plan){LLAMA, m->plan, m->options},
                       &(Trial){.orders = ORDERS, .change = change, .how = m}, &report, &error);
  ck_assert_msg(found > 0, "%s: there is no place for it", m->name);
  ck_assert_msg(!ok || report.fault != NULL, "%s: not found", m->name);
  if (!ok)
    ck_assert_msg(strstr(error->message, "rank ") != NULL, "%s: %s", m->name, error->message);
  verification_report_clear(&report);
}
END_TEST

Suite *
test_suite(void)
{
  Suite *suite = suite_create("verification");
  TCase *right = tcase_create("plans"), *wrong = tcase_create("mistakes");
  tcase_set_timeout(right, 120);
  tcase_set_timeout(wrong, 120);
  tcase_add_loop_test(right, a_plan_equals_an_unsharded_run_in_any_order, 0,
                      (int) G_N_ELEMENTS(plans) / quick_stride());
  tcase_add_loop_test(wrong, a_mistake_is_found, 0, (int) G_N_ELEMENTS(mistakes) / quick_stride());
  suite_add_tcase(suite, right);
  suite_add_tcase(suite, wrong);
  return suite;
}
