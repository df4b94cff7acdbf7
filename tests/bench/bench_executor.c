/* bench_executor.c - ops a second of the executor on a made-up program with the mix of a training
 * step: memory and host work in nearly every op, kernels, a few collectives, events and ranges. */
#include "bench.h"
#include "exec/executor.h"
#include "program/program_builder.h"

#define LAYERS 64
#define OPS_PER_LAYER 70
#define KEPT_PER_LAYER 20 /* activations that live until the backward of their layer */
#define STEPS 3

typedef struct {
  Program *program;
  ExecutorConfig config;
} Case;

static gint32
new_storage(ProgramBuilder *b, gint64 bytes, Category category)
{
  Storage s = {.bytes = bytes,
               .space = SPACE_DEVICE,
               .category = (guint8) category,
               .stream = STREAM_COMPUTE,
               .module = -1,
               .what = program_builder_name(b, "x")};
  return program_builder_storage(b, &s);
}

static void
add_kernel(ProgramBuilder *b, StreamId stream, int kind)
{
  Kernel k = {.kind = KERNEL_MEMORY,
              .dtype = DTYPE_BF16,
              .name = program_builder_name(b, "kernel"),
              .launches = 1,
              .bytes = 1e6 * (1 + kind)};
  program_builder_launch(b, stream, program_builder_kernel(b, &k));
}

/* An op of eager code: host work, an output, a kernel; sometimes a temporary. */
static gint32
add_op(ProgramBuilder *b, int i)
{
  static const gint64 sizes[] = {4096, 300000, 3 * MIB, 32 * MIB};
  gint32 output = new_storage(b, sizes[i % 4], CATEGORY_ACTIVATION);
  program_builder_host_work(b, HOST_WORK_OP_FORWARD, 1);
  program_builder_alloc(b, output);
  add_kernel(b, STREAM_COMPUTE, i % 8);
  if (i % 5 == 0) {
    gint32 temporary = new_storage(b, sizes[(i + 1) % 4], CATEGORY_TEMPORARY);
    program_builder_alloc(b, temporary);
    add_kernel(b, STREAM_COMPUTE, 1);
    program_builder_release(b, temporary);
  }
  return output;
}

/* An unsharded group: gathered on a stream of its own, used when it is there. */
static void
add_gather(ProgramBuilder *b)
{
  Collective c = {.kind = COLLECTIVE_ALL_GATHER,
                  .dtype = DTYPE_BF16,
                  .communicator = program_builder_communicator(b, "shard", 8, 1),
                  .name = -1,
                  .bytes = 64 * MIB};
  gint32 gathered = program_builder_event(b);
  program_builder_host_work(b, HOST_WORK_HOOK, 1);
  program_builder_collective(b, STREAM_ALL_GATHER, &c);
  program_builder_record(b, STREAM_ALL_GATHER, gathered);
  program_builder_wait(b, STREAM_COMPUTE, gathered);
}

static void
add_step(ProgramBuilder *b)
{
  g_autoptr(GArray) kept = g_array_new(FALSE, FALSE, sizeof(gint32));
  program_builder_push(b, RANGE_PHASE, "forward", 0);
  for (int layer = 0; layer < LAYERS; layer++) {
    program_builder_push(b, RANGE_MODULE, "layer", -1);
    add_gather(b);
    for (int i = 0; i < OPS_PER_LAYER; i++) {
      gint32 output = add_op(b, i);
      if (i < KEPT_PER_LAYER)
        g_array_append_val(kept, output);
      else
        program_builder_release(b, output);
    }
    program_builder_pop(b);
  }
  program_builder_pop(b);
  program_builder_push(b, RANGE_PHASE, "backward", 0);
  for (guint i = kept->len; i-- > 0;) {
    program_builder_release(b, add_op(b, (int) i));
    program_builder_release(b, g_array_index(kept, gint32, i));
  }
  program_builder_pop(b);
}

static Program *
make_program(void)
{
  ProgramBuilder *b = program_builder_new();
  program_builder_begin_list(b);
  program_builder_begin_list(b);
  add_step(b);
  for (int i = 0; i < STEPS; i++)
    program_builder_add_step(b);
  return program_builder_finish(b);
}

static void
run_case(gpointer data)
{
  const Case *c = data;
  recording_free(executor_run(c->program, &c->config));
}

static guint
count_ops(const Program *program)
{
  guint ops = 0;
  for (int i = 0; i < program->steps; i++)
    ops += program_step(program, i)->ops->len;
  return ops;
}

int
main(void)
{
  g_autoptr(GError) error = NULL;
  g_autoptr(ClusterSpec) cluster = cluster_spec_load("h100-8", &error);
  if (cluster == NULL)
    g_error("%s", error->message);
  g_autoptr(Program) program = make_program();
  Case c = {program, {.cluster = cluster, .allocator = allocator_config_default()}};
  guint ops = count_ops(program);
  bench_figure("executor", ops / bench_median_seconds(run_case, &c, 15) / 1e6, "Mops/s");
  c.config.keep_spans = TRUE;
  bench_figure("executor-spans", ops / bench_median_seconds(run_case, &c, 15) / 1e6, "Mops/s");
  return 0;
}
