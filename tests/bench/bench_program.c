/* bench_program.c - building, folding, checking, printing and parsing a Program of 10^5 ops a step.
 */
#include "bench.h"
#include "program/program.h"
#include "program/program_builder.h"

#define PARAMETERS 1000
#define CALLS 12500 /* of eight ops */
#define OPS_OF_STEP (CALLS * 8)

typedef struct {
  ProgramBuilder *builder;
  gint32 parameter[PARAMETERS];
  gint32 gradient[PARAMETERS]; /* of the step before, or -1 */
} Model;

static gint32
new_storage(const Model *model, Category category, const char *what)
{
  Storage row = {.bytes = 32 << 20, .category = (guint8) category, .module = -1};

  row.what = program_builder_name(model->builder, what);
  return program_builder_storage(model->builder, &row);
}

static void
operand(const Model *model, gint32 storage, Role role)
{
  static const Layout layout = {
      .dtype = DTYPE_BF16, .dims = 2, .shape = {4096, 4096}, .stride = {4096, 1}};

  program_builder_operand(model->builder,
                          program_builder_tensor(model->builder, storage, 0, &layout), role);
}

/* One module's call: a product of two parameters into a new storage. */
static void
build_call(Model *model, int call)
{
  ProgramBuilder *builder = model->builder;
  gint32 *gradient = &model->gradient[call % PARAMETERS];
  gboolean kept = call < PARAMETERS;
  gint32 result = new_storage(model, CATEGORY_ACTIVATION, "mm output");
  gint32 event = program_builder_event(builder);
  Kernel kernel = {
      .kind = KERNEL_GEMM, .launches = 1, .m = 4096, .n = 4096, .k = 128 * (1 + call % 32)};

  kernel.name = program_builder_name(builder, "mm");
  program_builder_push(builder, RANGE_MODULE, "forward", -1);
  program_builder_host_work(builder, HOST_WORK_OP_FORWARD, 1);
  program_builder_alloc(builder, result);
  operand(model, model->parameter[call % PARAMETERS], ROLE_READ);
  operand(model, model->parameter[(call + 7) % PARAMETERS], ROLE_READ);
  operand(model, result, ROLE_WRITE);
  program_builder_launch(builder, STREAM_COMPUTE, program_builder_kernel(builder, &kernel));
  program_builder_record(builder, STREAM_COMPUTE, event);
  program_builder_wait(builder, STREAM_ALL_GATHER, event);
  if (!kept || *gradient >= 0)
    program_builder_release(builder, kept ? *gradient : result);
  if (kept)
    *gradient = result;
  program_builder_pop(builder);
}

static void
build_model(Model *model)
{
  model->builder = program_builder_new();
  program_builder_begin_list(model->builder);
  for (int i = 0; i < PARAMETERS; i++) {
    model->parameter[i] = new_storage(model, CATEGORY_PARAMETER, "weight");
    model->gradient[i] = -1;
    program_builder_alloc(model->builder, model->parameter[i]);
  }
}

/* Two different steps and a third that folds. */
static void
build(gpointer data)
{
  Program **program = data;
  Model model;

  program_free(*program);
  build_model(&model);
  for (int step = 0; step < 3; step++) {
    program_builder_begin_list(model.builder);
    for (int call = 0; call < CALLS; call++)
      build_call(&model, call);
    g_assert(program_builder_fold_last_list(model.builder) == (step == 2));
    program_builder_add_step(model.builder);
  }
  *program = program_builder_finish(model.builder);
}

static void
check(gpointer data)
{
  g_assert(program_check(*(Program **) data, NULL));
}

typedef struct {
  Program *program;
  GString *text;
} Printed;

static void
print(gpointer data)
{
  Printed *printed = data;

  g_string_truncate(printed->text, 0);
  program_print(printed->program, printed->text);
}

static void
parse(gpointer data)
{
  const Printed *printed = data;
  g_autoptr(Program) program = program_parse("bench", printed->text->str, NULL);

  g_assert(program != NULL);
}

int
main(void)
{
  Program *program = NULL;
  Printed printed = {.text = g_string_new(NULL)};
  double seconds = bench_median_seconds(build, &program, 9);

  bench_figure("program-build", 3 * OPS_OF_STEP / seconds / 1e6, "Mops/s");
  seconds = bench_median_seconds(check, &program, 9);
  bench_figure("program-check", 3 * OPS_OF_STEP / seconds / 1e6, "Mops/s");
  printed.program = program;
  seconds = bench_median_seconds(print, &printed, 5);
  bench_figure("program-print", (double) printed.text->len / seconds / 1e6, "MB/s");
  seconds = bench_median_seconds(parse, &printed, 5);
  bench_figure("program-parse", (double) printed.text->len / seconds / 1e6, "MB/s");
  g_string_free(printed.text, TRUE);
  program_free(program);
  return 0;
}
