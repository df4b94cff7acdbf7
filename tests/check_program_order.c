/* check_program_order.c - program_check's judgement of order against the definition, on random
 * Programs: a graph of all ops, its paths, and every pair of accesses to a common byte. */
#include "program/program.h"
#include "program/program_builder.h"
#include "tap_main.h"

#define OPS 40
#define EVENTS 3
#define STREAMS 3 /* compute, copy_in and the host */
#define STORAGES 2
#define ELEMENTS 6 /* one byte each */

static const StreamId streams[STREAMS] = {STREAM_COMPUTE, STREAM_COPY_IN, STREAM_HOST};

/* What one op of the random program does. */
typedef struct {
  ProgramOpKind kind;
  int stream; /* index in streams */
  int event;
  int storage, begin, end; /* of launches: what is touched */
  Role role;
} Op;

static void
random_op(GRand *rand, Op *op)
{
  static const ProgramOpKind kinds[] = {
      PROGRAM_LAUNCH,       PROGRAM_LAUNCH,      PROGRAM_LAUNCH,     PROGRAM_LAUNCH,
      PROGRAM_EVENT_RECORD, PROGRAM_STREAM_WAIT, PROGRAM_EVENT_SYNC, PROGRAM_STREAM_SYNC,
  };

  op->kind = kinds[g_rand_int_range(rand, 0, G_N_ELEMENTS(kinds))];
  op->stream = g_rand_int_range(rand, 0, op->kind == PROGRAM_LAUNCH ? STREAMS : STREAMS - 1);
  op->event = g_rand_int_range(rand, 0, EVENTS);
  op->storage = g_rand_int_range(rand, 0, STORAGES);
  op->begin = g_rand_int_range(rand, 0, ELEMENTS);
  op->end = g_rand_int_range(rand, op->begin + 1, ELEMENTS + 1);
  op->role = (Role) g_rand_int_range(rand, 0, ROLE_COUNT);
}

static void
emit(ProgramBuilder *builder, const Op *op, gint32 kernel)
{
  switch (op->kind) {
  case PROGRAM_LAUNCH:
    program_builder_operand(builder,
                            program_builder_flat_tensor(builder, op->storage, op->begin,
                                                        op->end - op->begin, DTYPE_UINT8),
                            op->role);
    program_builder_launch(builder, streams[op->stream], kernel);
    break;
  case PROGRAM_EVENT_RECORD:
    program_builder_record(builder, streams[op->stream], op->event);
    break;
  case PROGRAM_STREAM_WAIT:
    program_builder_wait(builder, streams[op->stream], op->event);
    break;
  case PROGRAM_EVENT_SYNC:
    program_builder_event_sync(builder, op->event);
    break;
  default:
    program_builder_stream_sync(builder, streams[op->stream]);
  }
}

/* The storages are parameters, so that only order can be wrong. */
static Program *
build(const Op *ops)
{
  ProgramBuilder *builder = program_builder_new();
  Kernel kernel = {
      .kind = KERNEL_MEMORY, .launches = 1, .name = program_builder_name(builder, "k")};
  Storage storage = {.bytes = ELEMENTS, .category = CATEGORY_PARAMETER, .module = -1, .what = -1};

  program_builder_begin_list(builder);
  for (int i = 0; i < STORAGES; i++)
    program_builder_alloc(builder, program_builder_storage(builder, &storage));
  for (int i = 0; i < EVENTS; i++)
    program_builder_record(builder, STREAM_COMPUTE, program_builder_event(builder));
  program_builder_begin_list(builder);
  for (int i = 0; i < OPS; i++)
    emit(builder, &ops[i], program_builder_kernel(builder, &kernel));
  program_builder_add_step(builder);
  return program_builder_finish(builder);
}

/* Whether the op occupies its stream; the host's syncs occupy the host. */
static int
stream_of(const Op *op)
{
  return op->kind == PROGRAM_EVENT_SYNC || op->kind == PROGRAM_STREAM_SYNC ? STREAMS - 1
                                                                           : op->stream;
}

/* before[i][j]: a path leads from op i to op j (i < j).  Edges: the stream's own order; host work
 * and syncs to everything issued later; a record to waits for it, up to the next record; the work
 * of a stream to a sync with it. */
static gboolean
edge(const Op *ops, int from, int to, const int *record_of)
{
  const Op *a = &ops[from], *b = &ops[to];
  gboolean waits = b->kind == PROGRAM_STREAM_WAIT || b->kind == PROGRAM_EVENT_SYNC;

  return stream_of(a) == stream_of(b) || stream_of(a) == STREAMS - 1 ||
         (waits && record_of[to] == from) ||
         (b->kind == PROGRAM_STREAM_SYNC && stream_of(a) == b->stream);
}

static void
find_paths(const Op *ops, gboolean before[OPS][OPS])
{
  int last[EVENTS] = {-1, -1, -1}, record_of[OPS];

  for (int i = 0; i < OPS; i++) {
    record_of[i] = last[ops[i].event];
    if (ops[i].kind == PROGRAM_EVENT_RECORD)
      last[ops[i].event] = i;
  }
  for (int j = 0; j < OPS; j++)
    for (int i = j - 1; i >= 0; i--) {
      before[i][j] = edge(ops, i, j, record_of);
      for (int k = i + 1; k < j && !before[i][j]; k++)
        before[i][j] = before[i][k] && before[k][j];
    }
}

static gboolean
conflict(const Op *a, const Op *b)
{
  return a->kind == PROGRAM_LAUNCH && b->kind == PROGRAM_LAUNCH && a->storage == b->storage &&
         MAX(a->begin, b->begin) < MIN(a->end, b->end) &&
         (a->role != ROLE_READ || b->role != ROLE_READ);
}

/* The first op that touches bytes before it is ordered after an earlier conflicting access; OPS:
 * none. */
static int
first_race(const Op *ops)
{
  static gboolean before[OPS][OPS];

  find_paths(ops, before);
  for (int j = 0; j < OPS; j++)
    for (int i = 0; i < j; i++)
      if (conflict(&ops[i], &ops[j]) && !before[i][j])
        return j;
  return OPS;
}

START_TEST(the_first_race_is_that_of_the_definition)
{
  GRand *rand = g_rand_new_with_seed((guint32) _i);
  int raced = 0;

  for (int round = 0; round < 400; round++) {
    Op ops[OPS];
    g_autoptr(Program) program = NULL;
    g_autoptr(GError) error = NULL;
    int race;

    for (int i = 0; i < OPS; i++)
      random_op(rand, &ops[i]);
    /* Half of the programs are cured op by op until late, so that long legal ones are seen too. */
    while (round % 2 == 0 && (race = first_race(ops)) < OPS - 4)
      ops[race] =
          (Op){.kind = PROGRAM_STREAM_SYNC, .stream = g_rand_int_range(rand, 0, STREAMS - 1)};
    race = first_race(ops);
    program = build(ops);
    if (race == OPS) {
      ck_assert_msg(program_check(program, &error), "round %d: %s", round, error->message);
    } else {
      g_autofree char *where = g_strdup_printf("step 1, op %d (", race);

      ck_assert_msg(!program_check(program, &error), "round %d: no race seen at %d", round, race);
      ck_assert(test_error_says(error, where));
      raced++;
    }
  }
  ck_assert_int_gt(raced, 20);
  ck_assert_int_lt(raced, 400);
  g_rand_free(rand);
}
END_TEST

Suite *
test_suite(void)
{
  Suite *suite = suite_create("program_order");
  TCase *tcase = tcase_create("order");

  tcase_add_loop_test(tcase, the_first_race_is_that_of_the_definition, 0, 4);
  suite_add_tcase(suite, tcase);
  return suite;
}
