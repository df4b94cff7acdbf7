/* check_internevo.c - InternEvo's ZeRO-1: who owns which parameter, when gradients are reduced and
 * let go, and one broadcast for each owner.
 *
 * Expectations follow internlm/solver/optimizer/hybrid_zero_optim.py. */
#include <string.h>

#include "simulation.h"
#include "tap_main.h"

/* Per block, with biases: 60 x 100 and 100 elements, then 100 x 60 and 60. */
static const char two[] =
    "{'family': 'blocks', 'hidden': 60, 'embedding': false, 'head': false, 'loss': 'sum',"
    " 'blocks': [{'repeat': 2, 'ops': [{'op': 'linear', 'out': 100, 'bias': true},"
    " {'op': 'linear', 'out': 60, 'bias': true}]}]}";
enum { TENSORS = 8, WEIGHT = 6000, ALL = 4 * WEIGHT + 2 * (100 + 60), BF16 = 2 };

#define PLAN(shard, more)                                                                          \
  "{'strategy': 'internevo', 'mesh': {'shard': " shard ", 'replicate': 2}, "                       \
  "'batch': {'micro_batch': 1, 'sequence_length': 32}, 'precision': {'parameters': 'bf16'}, "      \
  "'accumulation': {'steps': 2}, 'optimizer': {'implementation': 'fused'}" more "}"

enum { STEPS = 3 };

static Simulated *
lower_plan(const char *plan, int rank)
{
  return simulation_lower(&(Simulation){two, plan, NULL, rank}, STEPS);
}

/* "48640 320 ...": bytes of the step's collectives of a kind, in order.  Caller frees. */
static char *
collectives_text(const Simulated *s, CollectiveKind kind)
{
  const Program *program = s->lowered->program;
  const GArray *ops = program_step(program, 1)->ops;
  GString *text = g_string_new(NULL);
  for (guint i = 0; i < ops->len; i++) {
    const ProgramOp *op = &g_array_index(ops, ProgramOp, i);
    if (op->kind != PROGRAM_COLLECTIVE)
      continue;
    const Collective *c = &g_array_index(program->collectives, Collective, op->a);
    if (c->kind == kind)
      g_string_append_printf(text, "%" G_GINT64_FORMAT " ", c->bytes);
  }
  return g_string_free(text, FALSE);
}

/* The four matrices go to ranks 0, 1, 2 and 0: the first of those that have least, after the third
 * rank got one.  Then both vectors of 100 go to 1 and 2, and those of 60 as well. */
START_TEST(each_owner_broadcasts_what_it_owns)
{
  g_autoptr(Simulated) s = lower_plan(PLAN("3", ""), 0);
  g_autofree char *text = collectives_text(s, COLLECTIVE_BROADCAST);
  ck_assert_str_eq(text, "24000 12320 12320 ");
}
END_TEST

/* Sixteen ranks, eight tensors: a rank without any sends nothing and has no state. */
START_TEST(owners_of_nothing_broadcast_nothing)
{
  g_autoptr(Simulated) s = lower_plan(PLAN("16", ""), 15);
  g_autofree char *text = collectives_text(s, COLLECTIVE_BROADCAST);
  ck_assert_str_eq(text, "12000 12000 12000 12000 200 200 120 120 ");
  ck_assert_int_eq(simulated_bytes_alive(s, STEPS, CATEGORY_OPTIMIZER_STATE), 0);
}
END_TEST

/* Parameters on every rank in bf16; fp32 weights, two moments and a counter of what a rank owns. */
START_TEST(state_is_of_what_a_rank_owns)
{
  static const int owned[] = {2 * WEIGHT, WEIGHT + 160, WEIGHT + 160};
  for (int rank = 0; rank < 3; rank++) {
    g_autoptr(Simulated) s = lower_plan(PLAN("3", ""), rank);
    ck_assert_int_eq(simulated_bytes_alive(s, STEPS, CATEGORY_PARAMETER), ALL * BF16);
    ck_assert_int_eq(simulated_bytes_alive(s, STEPS, CATEGORY_OPTIMIZER_STATE),
                     12 * owned[rank] + 4);
  }
}
END_TEST

/* Over all six ranks, once for both micro-batches: in one bucket, or in pieces that close before
 * what would not fit.  Backward comes to the last layer first; each layer's bias is ready before
 * its weight. */
START_TEST(gradients_are_reduced_in_the_last_micro_batch_in_buckets)
{
  g_autoptr(Simulated) whole = lower_plan(PLAN("3", ""), 0);
  g_autoptr(Simulated) pieces =
      lower_plan(PLAN("3", ", 'internevo': {'reduce_bucket_size': 6100}"), 0);
  g_autofree char *one = collectives_text(whole, COLLECTIVE_ALL_REDUCE);
  g_autofree char *many = collectives_text(pieces, COLLECTIVE_ALL_REDUCE);
  g_autofree char *expected = g_strdup_printf("%d ", ALL * BF16);
  ck_assert_str_eq(one, expected);
  CollectiveTotal total = simulated_collectives(pieces, 1, COLLECTIVE_ALL_REDUCE);
  ck_assert_int_eq(total.elements, ALL);
  g_auto(GStrv) sizes = g_strsplit(many, " ", -1);
  for (int i = 0; sizes[i][0] != '\0'; i++)
    ck_assert_int_le(atoi(sizes[i]), 6100 * BF16);
}
END_TEST

START_TEST(the_host_waits_for_a_reduction_before_the_next)
{
  g_autoptr(Simulated) s = lower_plan(PLAN("3", ", 'internevo': {'reduce_bucket_size': 1}"), 0);
  const GArray *ops = program_step(s->lowered->program, 1)->ops;
  int reductions = 0, running = 0;
  for (guint i = 0; i < ops->len; i++) {
    const ProgramOp *op = &g_array_index(ops, ProgramOp, i);
    if (op->kind == PROGRAM_STREAM_SYNC && op->stream == STREAM_ALL_REDUCE)
      running = 0;
    if (op->kind != PROGRAM_COLLECTIVE)
      continue;
    const Collective *c = &g_array_index(s->lowered->program->collectives, Collective, op->a);
    if (c->kind != COLLECTIVE_ALL_REDUCE)
      continue;
    ck_assert_int_eq(running, 0);
    running = 1;
    reductions++;
  }
  ck_assert_int_eq(reductions, TENSORS);
}
END_TEST

START_TEST(without_overlap_the_step_reduces)
{
  g_autoptr(Simulated) s = lower_plan(PLAN("3", ", 'internevo': {'overlap_sync_grad': false}"), 0);
  const Program *program = s->lowered->program;
  const GArray *ops = program_step(program, 1)->ops;
  gboolean in_step = FALSE;
  for (guint i = 0; i < ops->len; i++) {
    const ProgramOp *op = &g_array_index(ops, ProgramOp, i);
    if (op->kind == PROGRAM_RANGE_PUSH && op->b == RANGE_PHASE)
      in_step = strcmp(program_text(program, op->a), "optimizer") == 0;
    ck_assert(op->kind != PROGRAM_COLLECTIVE || in_step);
  }
}
END_TEST

Suite *
test_suite(void)
{
  Suite *suite = suite_create("internevo");
  TCase *owners = tcase_create("owners"), *gradients = tcase_create("gradients");
  tcase_add_test(owners, each_owner_broadcasts_what_it_owns);
  tcase_add_test(owners, owners_of_nothing_broadcast_nothing);
  tcase_add_test(owners, state_is_of_what_a_rank_owns);
  tcase_add_test(gradients, gradients_are_reduced_in_the_last_micro_batch_in_buckets);
  tcase_add_test(gradients, the_host_waits_for_a_reduction_before_the_next);
  tcase_add_test(gradients, without_overlap_the_step_reduces);
  suite_add_tcase(suite, owners);
  suite_add_tcase(suite, gradients);
  return suite;
}
