/* check_program.c - each rule of program_check with Programs that keep it and Programs that break
 * it, written out by hand; agreement of two ranks' Programs.
 *
 * Does not pin where exactly in a message the op stands. */
#include "program/program.h"
#include "program_text.h"
#include "tap_main.h"

/* A Program of a construction and one step, and what program_check must say of it (NULL: nothing).
 */
typedef struct {
  const char *construction;
  const char *step;
  const char *refusal;
} Case;

static Program *
parse(const char *construction, const char *rest)
{
  g_autofree char *text = g_strconcat(PROGRAM_TABLES "list\n", construction, "list\n", rest, NULL);
  g_autoptr(GError) error = NULL;
  Program *program = program_parse("case", text, &error);

  if (program == NULL)
    ck_abort_msg("%s", error->message);
  return program;
}

static void
check_case(const Case *it)
{
  g_autofree char *rest = g_strconcat(it->step, "steps 1\n", NULL);
  g_autoptr(Program) program = parse(it->construction, rest);
  g_autoptr(GError) error = NULL;
  gboolean passes = program_check(program, &error);

  if (it->refusal == NULL && !passes)
    ck_abort_msg("refused: %s", error->message);
  if (it->refusal != NULL)
    ck_assert(!passes && test_error_says(error, it->refusal));
}

#define WEIGHT "alloc compute 0\n"
#define HIDDEN "alloc compute 1\n"
#define GATHERED "alloc all_gather 2\n"
#define WRITE_HIDDEN "launch compute 0 w1\n"

static const Case lifetimes[] = {
    {WEIGHT, HIDDEN "launch compute 0 @0 r0 w1\nfree compute 1\n", NULL},
    {WEIGHT, "launch compute 0 @0 r0 w1\n",
     "step 1, op 0 (launch mm on compute for layers.0): writes storage 1 (hidden), which is not "
     "allocated"},
    {WEIGHT, HIDDEN "free compute 1\nlaunch compute 0 w1\n", "writes storage 1 (hidden), which is"},
    {WEIGHT, HIDDEN WRITE_HIDDEN "free compute 1\ncopy compute 0 r1\n",
     "op 3 (copy mm on compute): reads storage 1 (hidden), which is not allocated"},
    {WEIGHT, WEIGHT, "step 1, op 0 (alloc on compute): allocates storage 0 (weight) again"},
    {WEIGHT, "free compute 0\n" WEIGHT, NULL},
    {WEIGHT, "free compute 0\nfree compute 0\n", "op 1 (free on compute): frees storage 0"},
    {"", "free compute 0\n", "frees storage 0 (weight), which is not allocated"},
    {WEIGHT, "record_stream all_gather 0\n", NULL},
    {"record_stream all_gather 0\n", "", "construction, op 0 (record_stream on all_gather)"},
    {"alloc all_gather 0\n", "", "which belongs to another stream"},
};

START_TEST(storages_are_used_and_freed_once_between_alloc_and_free)
{
  check_case(&lifetimes[_i]);
}
END_TEST

static const Case contents[] = {
    {WEIGHT, "launch compute 0 r0\n", NULL},
    {"alloc compute 3\n", "launch compute 0 r3 w3\n", NULL},
    /* Later ones do not come from outside, nor do activations. */
    {"", WEIGHT "launch compute 0 r0\n", "reads storage 0 (weight) before anything wrote it"},
    {HIDDEN, "launch compute 0 r1\n", "reads storage 1 (hidden) before anything wrote it"},
    {HIDDEN, "launch compute 0 a1\n", "reads storage 1 (hidden) before anything wrote it"},
    {HIDDEN, WRITE_HIDDEN "launch compute 0 a1\nlaunch compute 0 r1\n", NULL},
    {HIDDEN, "launch compute 0 w5\nlaunch compute 0 r5\n", NULL},
    {HIDDEN, "launch compute 0 w5\nlaunch compute 0 r6\n", "before anything wrote it"},
    /* An op lives on what was there before it, whatever the order of its operands. */
    {HIDDEN, "launch compute 0 w1 r1\n", "before anything wrote it"},
    {HIDDEN, "launch compute 0 w5\nlaunch compute 0 w1 r5\n", NULL},
    /* Memory allocated again has lost what it held. */
    {HIDDEN, WRITE_HIDDEN "free compute 1\n" HIDDEN "launch compute 0 r1\n",
     "before anything wrote it"},
    /* A view without elements reads nothing. */
    {HIDDEN, "launch compute 0 r8\n", NULL},
};

START_TEST(what_is_read_was_written_before)
{
  check_case(&contents[_i]);
}
END_TEST

#define GATHER_HIDDEN "collective all_gather 0 r1 w2\n"

static const Case orders[] = {
    /* One stream is an order. */
    {HIDDEN, WRITE_HIDDEN "launch compute 0 r1\n" WRITE_HIDDEN, NULL},
    /* Read after write on another stream: nothing, a wait, a wait for too early a record. */
    {HIDDEN GATHERED, WRITE_HIDDEN GATHER_HIDDEN,
     "op 1 (collective on all_gather): reads storage 1 (hidden) although nothing orders this after "
     "the last write of it on compute"},
    {HIDDEN GATHERED,
     WRITE_HIDDEN "event_record compute 0\nstream_wait all_gather 0\n" GATHER_HIDDEN, NULL},
    {HIDDEN GATHERED,
     "event_record compute 0\n" WRITE_HIDDEN "stream_wait all_gather 0\n" GATHER_HIDDEN,
     "reads storage 1 (hidden) although"},
    /* The wait counts from where it stands. */
    {HIDDEN GATHERED,
     WRITE_HIDDEN "event_record compute 0\n" GATHER_HIDDEN "stream_wait all_gather 0\n",
     "reads storage 1 (hidden) although"},
    /* A second record moves the event. */
    {HIDDEN GATHERED,
     "event_record compute 0\n" WRITE_HIDDEN
     "event_record compute 0\nstream_wait all_gather 0\n" GATHER_HIDDEN,
     NULL},
    /* Order goes through a third stream, and through the host. */
    {HIDDEN GATHERED,
     WRITE_HIDDEN "event_record compute 0\nstream_wait copy_in 0\n"
                  "event_record copy_in 1\nstream_wait all_gather 1\n" GATHER_HIDDEN,
     NULL},
    {HIDDEN GATHERED, WRITE_HIDDEN "event_record compute 0\nevent_sync 0\n" GATHER_HIDDEN, NULL},
    {HIDDEN GATHERED, WRITE_HIDDEN "stream_sync compute\n" GATHER_HIDDEN, NULL},
    {HIDDEN GATHERED, "stream_sync compute\n" WRITE_HIDDEN GATHER_HIDDEN, "reads storage 1"},
    {HIDDEN GATHERED, WRITE_HIDDEN "stream_sync all_gather\n" GATHER_HIDDEN, "reads storage 1"},
    /* What the host had seen is behind an event recorded later, even on an idle stream. */
    {HIDDEN GATHERED,
     WRITE_HIDDEN
     "stream_sync compute\nevent_record copy_in 0\nstream_wait all_gather 0\n" GATHER_HIDDEN,
     NULL},
    /* Work on the host stream is done when the next op is issued, and sees only what the host
       awaited. */
    {HIDDEN, "launch host 0 w1\nlaunch compute 0 r1\n", NULL},
    {HIDDEN, WRITE_HIDDEN "launch host 0 r1\n",
     "although nothing orders this after the last write"},
    {HIDDEN, WRITE_HIDDEN "stream_sync compute\nlaunch host 0 r1\n", NULL},
};

START_TEST(a_read_is_ordered_after_its_write)
{
  check_case(&orders[_i]);
}
END_TEST

#define GATHERED_HIDDEN                                                                            \
  WRITE_HIDDEN "event_record compute 0\nstream_wait all_gather 0\n" GATHER_HIDDEN

static const Case overwrites[] = {
    /* Write after read on another stream. */
    {HIDDEN GATHERED, GATHERED_HIDDEN WRITE_HIDDEN,
     "op 4 (launch mm on compute): writes storage 1 (hidden) although nothing orders this after "
     "the last read of it on all_gather"},
    {HIDDEN GATHERED,
     GATHERED_HIDDEN "event_record all_gather 1\nstream_wait compute 1\n" WRITE_HIDDEN, NULL},
    /* Reads of other streams do not order each other, nor does a later read hide an earlier one. */
    {HIDDEN GATHERED, GATHERED_HIDDEN "launch compute 0 r1\n", NULL},
    {HIDDEN GATHERED, GATHERED_HIDDEN "launch compute 0 r1\nlaunch compute 0 w1\n",
     "the last read of it on all_gather"},
    /* Write after write. */
    {HIDDEN, WRITE_HIDDEN "launch copy_in 0 w1\n", "the last write of it on compute"},
    {HIDDEN, WRITE_HIDDEN "stream_sync compute\nlaunch copy_in 0 w1\n", NULL},
    {HIDDEN, WRITE_HIDDEN "launch copy_in 0 a1\n", "the last write of it on compute"},
    /* Disjoint bytes are independent, overlapping ones are not. */
    {HIDDEN, "launch compute 0 w5\nlaunch copy_in 0 w6\n", NULL},
    {HIDDEN, "launch compute 0 w5\nlaunch copy_in 0 w7\n", "the last write of it on compute"},
    {HIDDEN, "launch compute 0 w5\nlaunch copy_in 0 w6\nlaunch compute 0 r1\n",
     "the last write of it on copy_in"},
    {HIDDEN, "launch copy_in 0 w6\nlaunch compute 0 w5\nlaunch compute 0 r5\nlaunch compute 0 r7\n",
     "op 3 (launch mm on compute): reads storage 1 (hidden) although nothing orders this after the "
     "last write of it on copy_in"},
    {HIDDEN, WRITE_HIDDEN "stream_sync compute\nlaunch copy_in 0 r5\nlaunch compute 0 w6\n", NULL},
    {HIDDEN, WRITE_HIDDEN "stream_sync compute\nlaunch copy_in 0 r5\nlaunch compute 0 w7\n",
     "the last read of it on copy_in"},
    /* In place. */
    {HIDDEN, WRITE_HIDDEN "launch compute 0 r1 w1\nlaunch compute 0 r5 w6\n", NULL},
    /* Memory allocated anew is another matter: its reuse is judged at execution. */
    {HIDDEN GATHERED, GATHERED_HIDDEN "free compute 1\n" HIDDEN WRITE_HIDDEN, NULL},
};

START_TEST(a_write_is_ordered_after_earlier_reads_and_writes)
{
  check_case(&overwrites[_i]);
}
END_TEST

static const Case events_and_ranges[] = {
    {"", "event_record compute 0\nstream_wait all_gather 0\nevent_sync 0\n", NULL},
    {"", "stream_wait all_gather 0\n", "waits for event 0, which was never recorded"},
    {"", "event_sync 3\n", "waits for event 3, which was never recorded"},
    {"event_record compute 2\n", "event_sync 2\n", NULL},
    {"", "range_push 0 phase 0\nrange_push 0 module -\nrange_pop\nrange_pop\n", NULL},
    {"", "range_push 0 phase 0\nrange_pop\nrange_pop\n", "op 2 (range_pop on host): ends a range"},
    {"", "range_push 0 phase 0\n", "step 1: 1 ranges are still open at its end"},
    {"range_push 0 phase 0\n", "range_pop\n", "construction: 1 ranges are still open"},
    {"empty_cache\nhost_work op_forward 3\n", "empty_cache\n", NULL},
};

START_TEST(waits_follow_records_and_ranges_are_closed)
{
  check_case(&events_and_ranges[_i]);
}
END_TEST

/* ---- Ids.  The parser refuses unknown ones itself, so they are put in afterwards. */

typedef struct {
  void (*spoil)(Program *program);
  const char *refusal;
} Spoiled;

static ProgramOp *
step_op(Program *program, guint i)
{
  OpList *list = g_ptr_array_index(program->lists, 1);

  return &g_array_index(list->ops, ProgramOp, i);
}

static void
spoil_nothing(Program *program)
{
  (void) program;
}

static void
spoil_kernel(Program *program)
{
  step_op(program, 0)->a = 1;
}

static void
spoil_module(Program *program)
{
  step_op(program, 0)->module = 1;
}

static void
spoil_operand(Program *program)
{
  g_array_index(program->operands, Operand, 0).tensor = 9;
}

static void
spoil_operand_count(Program *program)
{
  step_op(program, 0)->operands = 2;
}

static void
spoil_event(Program *program)
{
  step_op(program, 1)->a = 4;
}

static void
spoil_kind(Program *program)
{
  step_op(program, 0)->kind = PROGRAM_OP_COUNT;
}

static void
spoil_stream(Program *program)
{
  step_op(program, 0)->stream = STREAM_COUNT;
}

static void
spoil_tensor_storage(Program *program)
{
  g_array_index(program->tensors, Tensor, 3).storage = -1;
}

static void
spoil_tensor_offset(Program *program)
{
  g_array_index(program->tensors, Tensor, 6).offset = 3;
}

static void
spoil_tensor_overflow(Program *program)
{
  g_array_index(program->tensors, Tensor, 6).offset = G_MAXINT64 / 2;
}

static void
spoil_layout(Program *program)
{
  g_array_index(program->layouts, Layout, 1).dims = TENSOR_MAX_DIMS + 1;
}

static void
spoil_storage(Program *program)
{
  g_array_index(program->storages, Storage, 2).category = CATEGORY_COUNT;
}

static void
spoil_communicator(Program *program)
{
  g_array_index(program->communicators, Communicator, 0).ranks = 0;
}

static void
spoil_step(Program *program)
{
  g_array_index(program->step_list, int, 0) = 0;
}

static void
spoil_steps(Program *program)
{
  program->steps = 2;
}

static void
spoil_carry(Program *program)
{
  Carry carry = {0, 5};

  g_array_append_val(((OpList *) g_ptr_array_index(program->lists, 1))->carries, carry);
}

static const Spoiled spoiled[] = {
    {spoil_nothing, NULL},
    {spoil_kernel, "list 1, op 0 (launch): unknown id"},
    {spoil_module, "list 1, op 0 (launch): unknown id"},
    {spoil_operand, "list 1, op 0 (launch): unknown id"},
    {spoil_operand_count, "list 1, op 0 (launch): unknown id"},
    {spoil_event, "list 1, op 1 (event_record): unknown id"},
    {spoil_kind, "list 1, op 0 (unknown): unknown id"},
    {spoil_stream, "list 1, op 0 (launch): unknown id"},
    {spoil_tensor_storage, "tensor 3 has no valid storage"},
    {spoil_tensor_offset, "tensor 6 ends at byte 20 of storage 1 (hidden), which has 16"},
    {spoil_tensor_overflow, "tensor 6 ends beyond"},
    {spoil_layout, "layout 1 has no valid"},
    {spoil_storage, "storage 2 has no valid category"},
    {spoil_communicator, "communicator 0 has no valid ranks"},
    {spoil_step, "step 1 has no list"},
    {spoil_steps, "2 steps, but lists for 1"},
    {spoil_carry, "list 1: a carry has an unknown id"},
};

START_TEST(every_id_names_something)
{
  const Spoiled *it = &spoiled[_i];
  g_autoptr(Program) program =
      parse(WEIGHT, "launch compute 0 r0\nevent_record compute 0\nsteps 1\n");
  g_autoptr(GError) error = NULL;
  gboolean passes;

  it->spoil(program);
  passes = program_check(program, &error);
  ck_assert_int_eq(passes, it->refusal == NULL);
  if (it->refusal != NULL)
    ck_assert(test_error_says(error, it->refusal));
}
END_TEST

/* ---- Lists that run again. */

/* What follows the construction, whole. */
static const Case repetitions[] = {
    /* The step frees what the one before left, here under its own name. */
    {HIDDEN, "free compute 1\n" HIDDEN "steps 1 1 1 1\n", NULL},
    {"", HIDDEN "steps 1\n", NULL},
    {"", HIDDEN "steps 1 1\n", "step 2, op 0 (alloc on compute): allocates storage 1"},
    /* A carry renames: what is left as storage 1 is wanted as storage 3, both of 16 bytes. */
    {"alloc compute 3\n", "carry 1 3\nfree compute 3\n" HIDDEN "steps 1 1 1\n", NULL},
    {"alloc compute 3\n", "free compute 3\n" HIDDEN "steps 1 1\n",
     "step 2, op 0 (free on compute)"},
    {"alloc compute 3\n", "carry 0 3\nfree compute 3\n" HIDDEN "steps 1 1\n",
     "step 2: carries storage 0 (weight), which is not allocated"},
    {"alloc compute 3\n", "carry 1 3\n" HIDDEN "steps 1 1\n",
     "step 2: carries to storage 3 (state), which is allocated"},
    {HIDDEN, "carry 4 1\nfree compute 1\nalloc compute 4\nsteps 1 1\n", "which has another size"},
    /* Only the third run meets what the carries of the second left behind. */
    {"alloc compute 3\n" HIDDEN, "carry 1 3\nfree compute 3\nsteps 1 1\n", NULL},
    {"alloc compute 3\n" HIDDEN, "carry 1 3\nfree compute 3\nsteps 1 1 1\n",
     "step 3: carries storage 1 (hidden), which is not allocated"},
    /* Contents and their order go with the block. */
    {"alloc compute 3\n", "carry 1 3\nlaunch compute 0 r3\nfree compute 3\n" HIDDEN "steps 1 1\n",
     "step 2, op 0 (launch mm on compute): reads storage 3 (state) before anything wrote it"},
    {"alloc compute 3\n",
     "carry 1 3\nlaunch compute 0 r3\nfree compute 3\n" HIDDEN "launch copy_in 0 w1\nsteps 1 1\n",
     "step 2, op 0 (launch mm on compute): reads storage 3 (state) although nothing orders"},
    {"alloc compute 3\n",
     "carry 1 3\nlaunch compute 0 r3\nfree compute 3\n" HIDDEN WRITE_HIDDEN "steps 1 1 1\n", NULL},
    /* Two storages that change places. */
    {"alloc compute 0\nalloc compute 3\n",
     "carry 0 3\ncarry 3 0\nlaunch compute 0 r0 w3\nsteps 1 1 1\n", NULL},
    /* Events likewise: the wait of a step is for the record of the one before. */
    {"event_record compute 0\n" HIDDEN WRITE_HIDDEN,
     "carry_event 1 0\nevent_sync 0\nlaunch compute 0 w1\nevent_record compute 1\nsteps 1 1 1\n",
     NULL},
    {"event_record compute 0\n", "carry_event 2 0\nevent_sync 0\nsteps 1 1\n",
     "step 2: carries event 2, which was never recorded"},
    {"event_record compute 0\n" HIDDEN,
     "event_sync 0\nlaunch host 0 w1\n" WRITE_HIDDEN "event_record compute 1\nsteps 1 1\n",
     "step 2, op 1 (launch mm on host): writes storage 1"},
    {"event_record compute 0\n" HIDDEN,
     "carry_event 1 0\nevent_sync 0\nlaunch host 0 w1\n" WRITE_HIDDEN
     "event_record compute 1\nsteps 1 1 1\n",
     NULL},
};

START_TEST(a_list_runs_again_after_its_carries)
{
  const Case *it = &repetitions[_i];
  g_autoptr(Program) program = parse(it->construction, it->step);
  g_autoptr(GError) error = NULL;
  gboolean passes = program_check(program, &error);

  if (it->refusal == NULL && !passes)
    ck_abort_msg("refused: %s", error->message);
  if (it->refusal != NULL)
    ck_assert(!passes && test_error_says(error, it->refusal));
}
END_TEST

/* ---- Agreement of ranks: two collectives on "shard" and one on "replicate" to choose from. */

#define AGREEMENT_TABLES                                                                           \
  "highwater-program-1\nname 0 \"shard\"\nname 1 \"replicate\"\n"                                  \
  "communicator 0 name=0 ranks=8 stride=1\ncommunicator 1 name=1 ranks=2 stride=8\n"               \
  "collective 0 kind=all_gather dtype=bf16 communicator=0 name=- bytes=64\n"                       \
  "collective 1 kind=reduce_scatter dtype=fp32 communicator=0 name=- bytes=64\n"                   \
  "collective 2 kind=all_reduce dtype=fp32 communicator=1 name=- bytes=64\n"                       \
  "collective 3 kind=all_gather dtype=bf16 communicator=0 name=- bytes=32\n"                       \
  "collective 4 kind=all_gather dtype=fp32 communicator=0 name=- bytes=64\n"

typedef struct {
  const char *one, *other;
  const char *refusal;
} Ranks;

static const Ranks ranks[] = {
    {"list\nlist\ncollective all_gather 0\ncollective reduce_scatter 1\nsteps 1 1\n",
     "list\nlist\ncollective all_gather 0\ncollective reduce_scatter 1\nsteps 1 1\n", NULL},
    /* The stream is a rank's own affair, and so is the order of different communicators. */
    {"list\nlist\ncollective all_gather 0\ncollective all_reduce 2\nsteps 1\n",
     "list\nlist\ncollective all_reduce 2\ncollective compute 0\nsteps 1\n", NULL},
    /* So is how steps are stored. */
    {"list\nlist\ncollective all_gather 0\nsteps 1 1\n",
     "list\nlist\ncollective all_gather 0\nlist\ncollective all_gather 0\nsteps 1 2\n", NULL},
    {"list\nlist\ncollective all_gather 0\ncollective reduce_scatter 1\nsteps 1\n",
     "list\nlist\ncollective reduce_scatter 1\ncollective all_gather 0\nsteps 1\n",
     "communicator shard, step 1, collective 0: one rank issues all_gather of 64 bytes of bf16, "
     "another reduce_scatter of 64 bytes of fp32"},
    {"list\nlist\ncollective all_gather 0\nsteps 1\n",
     "list\nlist\ncollective all_gather 3\nsteps 1\n", "another all_gather of 32 bytes of bf16"},
    {"list\nlist\ncollective all_gather 0\nsteps 1\n",
     "list\nlist\ncollective all_gather 4\nsteps 1\n", "another all_gather of 64 bytes of fp32"},
    {"list\nlist\ncollective all_gather 0\nsteps 1\n", "list\nlist\nsteps 1\n", "another nothing"},
    {"list\nlist\nsteps 1\n", "list\nlist\ncollective all_gather 0\nsteps 1\n",
     "one rank issues nothing, another all_gather of 64 bytes of bf16"},
    {"list\ncollective all_gather 0\nlist\nsteps 1\n", "list\nlist\nsteps 1\n", "step 0"},
    {"list\nlist\nlist\ncollective all_gather 0\nsteps 1 2\n", "list\nlist\nsteps 1 1\n", "step 2"},
    {"list\nlist\nsteps 1\n", "list\nlist\nsteps 1 1\n", "one rank has 1 steps, another 2"},
};

START_TEST(ranks_meet_in_every_collective_of_a_communicator)
{
  const Ranks *it = &ranks[_i];
  g_autofree char *one_text = g_strconcat(AGREEMENT_TABLES, it->one, NULL);
  g_autofree char *other_text = g_strconcat(AGREEMENT_TABLES, it->other, NULL);
  g_autoptr(Program) one = program_parse("one", one_text, NULL);
  g_autoptr(Program) other = program_parse("other", other_text, NULL);
  g_autoptr(GError) error = NULL;
  gboolean agree;

  ck_assert(one != NULL && other != NULL);
  agree = program_check_agreement(one, other, &error);
  ck_assert_int_eq(agree, it->refusal == NULL);
  if (it->refusal != NULL)
    ck_assert(test_error_says(error, it->refusal));
}
END_TEST

#define ADD_TABLE(tcase, test, table) tcase_add_loop_test(tcase, test, 0, (int) G_N_ELEMENTS(table))

Suite *
test_suite(void)
{
  Suite *suite = suite_create("program");
  TCase *tcase = tcase_create("check");

  ADD_TABLE(tcase, storages_are_used_and_freed_once_between_alloc_and_free, lifetimes);
  ADD_TABLE(tcase, what_is_read_was_written_before, contents);
  ADD_TABLE(tcase, a_read_is_ordered_after_its_write, orders);
  ADD_TABLE(tcase, a_write_is_ordered_after_earlier_reads_and_writes, overwrites);
  ADD_TABLE(tcase, waits_follow_records_and_ranges_are_closed, events_and_ranges);
  ADD_TABLE(tcase, every_id_names_something, spoiled);
  ADD_TABLE(tcase, a_list_runs_again_after_its_carries, repetitions);
  ADD_TABLE(tcase, ranks_meet_in_every_collective_of_a_communicator, ranks);
  suite_add_tcase(suite, tcase);
  return suite;
}
