/* check_program_fold.c - the builder, and its folding of a step that repeats the one before.
 *
 * A folded Program must do what the unfolded one does.  Both are played here on blocks of memory:
 * each alloc makes a new block, carries rename blocks, and what every op does to which blocks is
 * written down.  Five steps of either must read the same. */
#include "program/program.h"
#include "program/program_builder.h"
#include "tap_main.h"

#define STEPS 5

/* What a script keeps from step to step. */
typedef struct {
  ProgramBuilder *builder;
  int step; /* from 1; 0: construction */
  gint32 kernel, module;
  gint32 kept[STEPS + 1]; /* storages or events, -1: none */
} Script;

static gint32
storage(const Script *script, gint64 bytes, Category category, const char *what)
{
  Storage row = {.bytes = bytes,
                 .category = (guint8) category,
                 .stream = STREAM_COMPUTE,
                 .module = script->module,
                 .what = program_builder_name(script->builder, what)};

  return program_builder_storage(script->builder, &row);
}

static gint32
allocate(const Script *script, const char *what)
{
  gint32 id = storage(script, 64, CATEGORY_ACTIVATION, what);

  program_builder_alloc(script->builder, id);
  return id;
}

static void
touch(const Script *script, gint32 id, Role role)
{
  gint32 tensor = program_builder_flat_tensor(script->builder, id, 4, 8, DTYPE_FP32);

  program_builder_operand(script->builder, tensor, role);
  program_builder_launch(script->builder, STREAM_COMPUTE, script->kernel);
}

/* ---- Scripts: what is done at construction (step 0) and in each step. */

/* A gradient is freed at the start of the step after the one that made it, by name alone; a
 * parameter is read; another is never touched. */
static void
gradient(Script *script)
{
  if (script->step == 0) {
    script->kept[0] = allocate(script, "weight");
    touch(script, script->kept[0], ROLE_WRITE);
    script->kept[2] = allocate(script, "untouched");
    return;
  }
  if (script->kept[1] >= 0)
    program_builder_release(script->builder, script->kept[1]);
  touch(script, script->kept[0], ROLE_ACCUMULATE);
  script->kept[1] = allocate(script, "gradient");
  touch(script, script->kept[1], ROLE_WRITE);
}

/* Optimizer state appears in the first step and is used ever after. */
static void
optimizer_state(Script *script)
{
  gint32 temporary;

  if (script->step == 0)
    return;
  if (script->step == 1) {
    script->kept[0] = allocate(script, "exp_avg");
    touch(script, script->kept[0], ROLE_WRITE);
  }
  temporary = allocate(script, "update");
  touch(script, temporary, ROLE_WRITE);
  touch(script, script->kept[0], ROLE_ACCUMULATE);
  program_builder_release(script->builder, temporary);
}

/* Two buffers change roles in each step. */
static void
two_buffers(Script *script)
{
  if (script->step == 0) {
    for (int i = 0; i < 2; i++) {
      script->kept[i] = allocate(script, "buffer");
      touch(script, script->kept[i], ROLE_WRITE);
    }
    return;
  }
  touch(script, script->kept[script->step % 2], ROLE_READ);
  touch(script, script->kept[1 - script->step % 2], ROLE_WRITE);
}

/* A ring of three: the step takes over the oldest as its newest. */
static void
three_buffers(Script *script)
{
  if (script->step == 0) {
    for (int i = 0; i < 3; i++)
      script->kept[i] = allocate(script, "buffer");
    return;
  }
  for (int i = 0; i < 3; i++)
    touch(script, script->kept[(script->step + i) % 3], i == 0 ? ROLE_WRITE : ROLE_ACCUMULATE);
}

/* Results handed on twice: made in one step, moved on (used) in the next, freed in the one after.
 */
static void
handed_on(Script *script)
{
  if (script->step == 0) {
    for (int i = 0; i < 2; i++) {
      script->kept[i] = allocate(script, "result");
      touch(script, script->kept[i], ROLE_WRITE);
    }
    return;
  }
  program_builder_release(script->builder, script->kept[1]);
  touch(script, script->kept[0], ROLE_READ);
  script->kept[1] = script->kept[0];
  script->kept[0] = allocate(script, "result");
  touch(script, script->kept[0], ROLE_WRITE);
}

/* One storage is resized to zero and back in each step: its name stays. */
static void
resized(Script *script)
{
  if (script->step == 0) {
    script->kept[0] = storage(script, 64, CATEGORY_UNSHARDED_PARAMETER, "unsharded");
    return;
  }
  program_builder_alloc(script->builder, script->kept[0]);
  touch(script, script->kept[0], ROLE_WRITE);
  program_builder_release(script->builder, script->kept[0]);
}

/* Streams are ordered by new events each time. */
static void
new_events(Script *script)
{
  gint32 event;

  if (script->step == 0)
    return;
  event = program_builder_event(script->builder);
  program_builder_record(script->builder, STREAM_COMPUTE, event);
  program_builder_wait(script->builder, STREAM_ALL_GATHER, event);
  program_builder_push(script->builder, RANGE_PHASE, "forward", 0);
  program_builder_host_work(script->builder, HOST_WORK_HOOK, 2);
  program_builder_pop(script->builder);
}

/* The host waits for what the step before recorded. */
static void
late_event(Script *script)
{
  gint32 event = program_builder_event(script->builder);

  if (script->step > 0)
    program_builder_event_sync(script->builder, script->kept[0]);
  program_builder_record(script->builder, STREAM_COMPUTE, event);
  script->kept[0] = event;
}

/* One event for all, recorded once. */
static void
old_event(Script *script)
{
  if (script->step == 0) {
    script->kept[0] = program_builder_event(script->builder);
    program_builder_record(script->builder, STREAM_COMPUTE, script->kept[0]);
    return;
  }
  program_builder_wait(script->builder, STREAM_COPY_IN, script->kept[0]);
}

static void
collectives(Script *script)
{
  Collective gather = {.kind = COLLECTIVE_ALL_GATHER, .name = -1, .bytes = 64};

  gather.communicator = program_builder_communicator(script->builder, "shard", 8, 1);
  if (script->step == 0)
    return;
  program_builder_collective(script->builder, STREAM_ALL_GATHER, &gather);
}

static void
nothing(Script *script)
{
  (void) script;
}

/* ---- Scripts that never repeat themselves, though each step has the same ops. */

static void
leak(Script *script)
{
  allocate(script, "leak");
}

static void
growing_kernel(Script *script)
{
  Kernel kernel = {.kind = KERNEL_MEMORY, .launches = 1, .bytes = script->step};

  kernel.name = program_builder_name(script->builder, "k");
  program_builder_launch(script->builder, STREAM_COMPUTE,
                         program_builder_kernel(script->builder, &kernel));
}

static void
growing_storage(Script *script)
{
  gint32 id = storage(script, 64 + script->step, CATEGORY_TEMPORARY, "t");

  program_builder_alloc(script->builder, id);
  program_builder_release(script->builder, id);
}

static void
other_name(Script *script)
{
  g_autofree char *what = g_strdup_printf("result %d", script->step);

  program_builder_release(script->builder, allocate(script, what));
}

static void
growing_view(Script *script)
{
  if (script->step == 0)
    script->kept[0] = storage(script, 64, CATEGORY_PARAMETER, "weight");
  if (script->step == 0)
    program_builder_alloc(script->builder, script->kept[0]);
  program_builder_operand(
      script->builder,
      program_builder_flat_tensor(script->builder, script->kept[0], script->step, 1, DTYPE_FP32),
      ROLE_READ);
  program_builder_launch(script->builder, STREAM_COMPUTE, script->kernel);
}

static void
other_role(Script *script)
{
  gint32 id = allocate(script, "t");

  touch(script, id, ROLE_WRITE);
  touch(script, id, script->step % 2 ? ROLE_READ : ROLE_ACCUMULATE);
  program_builder_release(script->builder, id);
}

static void
other_stream(Script *script)
{
  program_builder_stream_sync(script->builder,
                              script->step % 2 ? STREAM_COMPUTE : STREAM_ALL_GATHER);
}

static void
other_module(Script *script)
{
  g_autofree char *path = g_strdup_printf("layers.%d", script->step);

  program_builder_set_module(script->builder, program_builder_module(script->builder, path));
  program_builder_launch(script->builder, STREAM_COMPUTE, script->kernel);
}

static void
other_micro_batch(Script *script)
{
  program_builder_push(script->builder, RANGE_PHASE, "forward", script->step);
  program_builder_pop(script->builder);
}

/* One storage where the step before had two, and the reverse. */
static void
two_for_one(Script *script)
{
  gint32 one = allocate(script, "t"), other = allocate(script, "t");

  touch(script, one, ROLE_WRITE);
  touch(script, script->step % 2 ? one : other, ROLE_WRITE);
  program_builder_release(script->builder, one);
  program_builder_release(script->builder, other);
}

/* Freed two steps after its alloc, and untouched between: no name can be carried over the gap. */
static void
two_steps_late(Script *script)
{
  if (script->step == 0) {
    script->kept[0] = allocate(script, "result");
    script->kept[1] = allocate(script, "result");
    return;
  }
  program_builder_release(script->builder, script->kept[1]);
  script->kept[1] = script->kept[0];
  script->kept[0] = allocate(script, "result");
}

/* A stock that shrinks: each step frees one more of what the construction made. */
static void
shrinking_stock(Script *script)
{
  if (script->step > 0)
    program_builder_release(script->builder, script->kept[script->step]);
  for (int i = 0; script->step == 0 && i <= STEPS; i++)
    script->kept[i] = allocate(script, "stock");
}

/* Each step records one event; every other one waits for it, the rest for an old one. */
static void
two_events_for_one(Script *script)
{
  for (int i = 0; i < 2 && script->step == 0; i++) {
    script->kept[i] = program_builder_event(script->builder);
    program_builder_record(script->builder, STREAM_COMPUTE, script->kept[i]);
  }
  if (script->step == 0)
    return;
  program_builder_record(script->builder, STREAM_COMPUTE, script->kept[0]);
  program_builder_event_sync(script->builder, script->kept[script->step % 2]);
}

/* An event that is awaited two steps after its record. */
static void
two_steps_late_event(Script *script)
{
  gint32 event = program_builder_event(script->builder);

  if (script->step > 1)
    program_builder_event_sync(script->builder, script->kept[1]);
  program_builder_record(script->builder, STREAM_COMPUTE, event);
  script->kept[1] = script->kept[0];
  script->kept[0] = event;
}

/* ---- Building and playing. */

typedef struct {
  void (*run)(Script *script);
  int folds_at; /* the first step that repeats the one before; 0: never */
  int carries, event_carries;
} FoldCase;

static const FoldCase cases[] = {
    {gradient, 3, 1, 0},
    {optimizer_state, 3, 0, 0},
    {two_buffers, 2, 2, 0},
    {three_buffers, 2, 3, 0},
    {handed_on, 2, 2, 0},
    {resized, 2, 0, 0},
    {new_events, 2, 0, 0},
    {late_event, 2, 0, 1},
    {old_event, 2, 0, 0},
    {collectives, 2, 0, 0},
    {nothing, 2, 0, 0},
    {leak, 0, 0, 0},
    {growing_kernel, 0, 0, 0},
    {growing_storage, 0, 0, 0},
    {other_name, 0, 0, 0},
    {growing_view, 0, 0, 0},
    {other_role, 0, 0, 0},
    {other_stream, 0, 0, 0},
    {other_module, 0, 0, 0},
    {other_micro_batch, 0, 0, 0},
    {two_for_one, 0, 0, 0},
    {two_steps_late, 0, 0, 0},
    {two_steps_late_event, 0, 0, 0},
    {shrinking_stock, 0, 0, 0},
    {two_events_for_one, 0, 0, 0},
};

/* Builds STEPS steps; with folding, stops lowering at the first step that folds and asks for the
 * rest. */
static Program *
build(void (*run)(Script *script), gboolean fold, int *folded_at)
{
  Script script = {
      .builder = program_builder_new(), .module = -1, .kept = {-1, -1, -1, -1, -1, -1}};
  Kernel kernel = {.kind = KERNEL_MEMORY, .launches = 1};
  gboolean folded = FALSE;

  kernel.name = program_builder_name(script.builder, "touch");
  script.kernel = program_builder_kernel(script.builder, &kernel);
  *folded_at = 0;
  program_builder_begin_list(script.builder);
  run(&script);
  for (script.step = 1; script.step <= STEPS; script.step++) {
    if (!folded) {
      program_builder_begin_list(script.builder);
      run(&script);
      folded = fold && program_builder_fold_last_list(script.builder);
      if (folded)
        *folded_at = script.step;
    }
    program_builder_add_step(script.builder);
  }
  return program_builder_finish(script.builder);
}

typedef struct {
  const Program *program;
  int *block;  /* per storage: the block it names, 0: none */
  int *record; /* per event: which record of the run it holds */
  int blocks, records;
  GString *log;
} Player;

static void
play_carries(const GArray *carries, int *names)
{
  g_autofree int *moved = g_new(int, carries->len + 1);

  for (guint i = 0; i < carries->len; i++)
    moved[i] = names[g_array_index(carries, Carry, i).from];
  for (guint i = 0; i < carries->len; i++)
    names[g_array_index(carries, Carry, i).from] = 0;
  for (guint i = 0; i < carries->len; i++)
    names[g_array_index(carries, Carry, i).to] = moved[i];
}

static void
play_op(Player *player, const ProgramOp *op)
{
  const Program *program = player->program;
  ValueKind argument = program_op_form[op->kind].argument[0];

  if (op->kind == PROGRAM_ALLOC)
    player->block[op->a] = ++player->blocks;
  if (op->kind == PROGRAM_EVENT_RECORD)
    player->record[op->a] = ++player->records;
  g_string_append_printf(player->log, "%d %d %d:", op->kind, op->stream, op->module);
  if (argument == VALUE_STORAGE)
    g_string_append_printf(player->log, " block %d", player->block[op->a]);
  else if (argument == VALUE_EVENT)
    g_string_append_printf(player->log, " record %d", player->record[op->a]);
  else
    g_string_append_printf(player->log, " %d", op->a);
  for (int i = 0; i < op->operands; i++) {
    const Operand *operand = &g_array_index(program->operands, Operand, op->first_operand + i);
    gint32 id = g_array_index(program->tensors, Tensor, operand->tensor).storage;

    g_string_append_printf(player->log, " %d of block %d", operand->role, player->block[id]);
  }
  g_string_append_printf(player->log, " %d %d\n", op->b, op->c);
}

/* What every op of all steps does to which block; caller frees. */
static char *
play(const Program *program)
{
  g_autofree int *block = g_new0(int, program->storages->len + 1);
  g_autofree int *record = g_new0(int, program->events + 1);
  Player player = {program, block, record, 0, 0, g_string_new(NULL)};
  const OpList *previous = NULL;

  for (int step = -1; step < program->steps; step++) {
    const OpList *list =
        step < 0 ? g_ptr_array_index(program->lists, 0) : program_step(program, step);

    if (list == previous) {
      play_carries(list->carries, block);
      play_carries(list->event_carries, record);
    }
    for (guint i = 0; i < list->ops->len; i++)
      play_op(&player, &g_array_index(list->ops, ProgramOp, i));
    previous = list;
  }
  return g_string_free(player.log, FALSE);
}

START_TEST(a_folded_program_does_what_the_unfolded_one_does)
{
  const FoldCase *it = &cases[_i];
  int folded_at, unused;
  g_autoptr(Program) plain = build(it->run, FALSE, &unused);
  g_autoptr(Program) folded = build(it->run, TRUE, &folded_at);
  g_autofree char *expected = play(plain), *log = play(folded);

  ck_assert_int_eq(folded->steps, STEPS);
  ck_assert_str_eq(log, expected);
}
END_TEST

START_TEST(folding_finds_the_first_repetition_and_nothing_else)
{
  const FoldCase *it = &cases[_i];
  int folded_at;
  g_autoptr(Program) program = build(it->run, TRUE, &folded_at);
  const OpList *last = g_ptr_array_index(program->lists, program->lists->len - 1);

  ck_assert_int_eq(folded_at, it->folds_at);
  ck_assert_uint_eq(program->lists->len, it->folds_at == 0 ? STEPS + 1 : it->folds_at);
  ck_assert_uint_eq(last->carries->len, it->carries);
  ck_assert_uint_eq(last->event_carries->len, it->event_carries);
}
END_TEST

START_TEST(a_folded_program_passes_the_check_if_the_unfolded_one_does)
{
  const FoldCase *it = &cases[_i];
  int folded_at, unused;
  g_autoptr(Program) plain = build(it->run, FALSE, &unused);
  g_autoptr(Program) folded = build(it->run, TRUE, &folded_at);
  g_autoptr(GError) error = NULL;

  ck_assert_int_eq(program_check(folded, &error), program_check(plain, NULL));
}
END_TEST

START_TEST(rows_of_the_dropped_step_are_dropped)
{
  int folded_at, unused;
  g_autoptr(Program) folded = build(gradient, TRUE, &folded_at);
  g_autoptr(Program) plain = build(gradient, FALSE, &unused);
  const Carry *carry;

  /* weight, untouched, and the gradients of the first two steps; a view a launch. */
  ck_assert_uint_eq(folded->storages->len, 4);
  ck_assert_uint_eq(folded->tensors->len, 5);
  ck_assert_uint_eq(folded->operands->len, 5);
  ck_assert_uint_eq(plain->storages->len, 2 + STEPS);
  carry = &g_array_index(((OpList *) g_ptr_array_index(folded->lists, 2))->carries, Carry, 0);
  ck_assert_int_eq(carry->from, 3);
  ck_assert_int_eq(carry->to, 2);
}
END_TEST

START_TEST(the_first_step_is_never_folded_into_the_construction)
{
  ProgramBuilder *builder = program_builder_new();
  g_autoptr(Program) program = NULL;

  program_builder_begin_list(builder);
  program_builder_begin_list(builder);
  ck_assert(!program_builder_fold_last_list(builder));
  program_builder_add_step(builder);
  program = program_builder_finish(builder);
  ck_assert_uint_eq(program->lists->len, 2);
}
END_TEST

/* ---- Sharing. */

START_TEST(equal_rows_are_stored_once)
{
  ProgramBuilder *builder = program_builder_new();
  const Program *program = program_builder_program(builder);
  Layout square = {.dtype = DTYPE_BF16, .dims = 2, .shape = {4, 4}, .stride = {4, 1}};
  Layout turned = {.dtype = DTYPE_BF16, .dims = 2, .shape = {4, 4}, .stride = {1, 4}};
  Layout noisy = square;
  Kernel kernel = {.kind = KERNEL_GEMM, .launches = 1, .m = 4, .flops = 0.5};
  Kernel other = kernel;
  Storage row = {.bytes = 32, .module = -1, .what = -1};
  gint32 id = program_builder_storage(builder, &row);

  /* Beyond dims anything may stand. */
  noisy.shape[3] = 7;
  other.flops = 0.25;
  program_builder_tensor(builder, id, 0, &square);
  program_builder_tensor(builder, id, 0, &noisy);
  program_builder_tensor(builder, id, 0, &turned);
  ck_assert_uint_eq(program->layouts->len, 2);
  ck_assert_uint_eq(program->tensors->len, 3);
  ck_assert_int_eq(program_builder_kernel(builder, &kernel), 0);
  ck_assert_int_eq(program_builder_kernel(builder, &other), 1);
  ck_assert_int_eq(program_builder_kernel(builder, &kernel), 0);
  ck_assert_int_eq(program_builder_name(builder, "wq"), program_builder_name(builder, "wq"));
  ck_assert_int_ne(program_builder_name(builder, "wq"), program_builder_name(builder, "wk"));
  ck_assert_int_eq(program_builder_module(builder, "layers.0"), 0);
  ck_assert_int_eq(program_builder_communicator(builder, "shard", 8, 1),
                   program_builder_communicator(builder, "shard", 8, 1));
  ck_assert_int_ne(program_builder_communicator(builder, "shard", 8, 1),
                   program_builder_communicator(builder, "replicate", 2, 8));
  program_builder_free(builder);
}
END_TEST

START_TEST(operands_belong_to_the_next_op_and_modules_to_all_that_follow)
{
  ProgramBuilder *builder = program_builder_new();
  g_autoptr(Program) program = NULL;
  Storage row = {.bytes = 32, .module = -1, .what = -1};
  Kernel kernel = {
      .kind = KERNEL_MEMORY, .launches = 1, .name = program_builder_name(builder, "k")};
  gint32 id = program_builder_storage(builder, &row), tensor, k, module;
  const ProgramOp *op;

  program_builder_begin_list(builder);
  k = program_builder_kernel(builder, &kernel);
  tensor = program_builder_flat_tensor(builder, id, 0, 8, DTYPE_FP32);
  module = program_builder_module(builder, "layers.0");
  program_builder_alloc(builder, id);
  program_builder_operand(builder, tensor, ROLE_WRITE);
  program_builder_launch(builder, STREAM_COMPUTE, k);
  ck_assert_int_eq(program_builder_set_module(builder, module), -1);
  program_builder_operand(builder, tensor, ROLE_READ);
  program_builder_operand(builder, tensor, ROLE_ACCUMULATE);
  program_builder_copy(builder, STREAM_COPY_IN, k);
  ck_assert_int_eq(program_builder_set_module(builder, -1), module);
  program = program_builder_finish(builder);

  op = &g_array_index(((OpList *) g_ptr_array_index(program->lists, 0))->ops, ProgramOp, 1);
  ck_assert_int_eq(op[0].operands, 1);
  ck_assert_int_eq(op[0].module, -1);
  ck_assert_int_eq(op[1].kind, PROGRAM_COPY);
  ck_assert_int_eq(op[1].operands, 2);
  ck_assert_int_eq(op[1].first_operand, 1);
  ck_assert_int_eq(op[1].module, module);
  ck_assert_int_eq(g_array_index(program->operands, Operand, 2).role, ROLE_ACCUMULATE);
}
END_TEST

Suite *
test_suite(void)
{
  Suite *suite = suite_create("program_fold");
  TCase *tcase = tcase_create("fold");
  int count = G_N_ELEMENTS(cases);

  tcase_add_loop_test(tcase, a_folded_program_does_what_the_unfolded_one_does, 0, count);
  tcase_add_loop_test(tcase, folding_finds_the_first_repetition_and_nothing_else, 0, count);
  tcase_add_loop_test(tcase, a_folded_program_passes_the_check_if_the_unfolded_one_does, 0, count);
  tcase_add_test(tcase, rows_of_the_dropped_step_are_dropped);
  tcase_add_test(tcase, the_first_step_is_never_folded_into_the_construction);
  tcase_add_test(tcase, equal_rows_are_stored_once);
  tcase_add_test(tcase, operands_belong_to_the_next_op_and_modules_to_all_that_follow);
  suite_add_tcase(suite, tcase);
  return suite;
}
