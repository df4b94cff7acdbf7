/* check_rounding.c - plans executed in their own dtypes: what rounding explains is all that differs
 * from the ranks alone, and a mistake is still more than that.  How numbers are rounded is pinned
 * by check_numeric. */
#include <string.h>

#include "op_meaning.h"
#include "quick.h"
#include "simulate/verification.h"
#include "simulation.h"
#include "tap_main.h"

#define LLAMA                                                                                      \
  "{'model_type': 'llama', 'hidden_size': 16, 'intermediate_size': 20, 'num_hidden_layers': 2,"    \
  " 'num_attention_heads': 2, 'num_key_value_heads': 1, 'head_dim': 8, 'vocab_size': 19}"
#define BATCH "'batch': {'micro_batch': 1, 'sequence_length': 8}"
#define CLIPS ", 'optimizer': {'clip_grad_norm': 1}"
#define FSDP2(precision) "{'strategy': 'fsdp2', " BATCH CLIPS ", 'precision': {" precision "}}"
#define FSDP1(precision) "{'strategy': 'fsdp1', " BATCH CLIPS ", 'precision': {" precision "}}"
#define DDP(precision) "{'strategy': 'ddp', " BATCH CLIPS ", 'precision': {" precision "}}"
#define ZERO(stage, precision)                                                                     \
  "{'strategy': 'zero" stage "', " BATCH CLIPS ", 'precision': {" precision "}}"
#define MIXED "'parameters': 'fp32', 'compute': 'bf16', 'reduce': 'fp32'"
#define NARROW "'parameters': 'fp32', 'compute': 'bf16', 'reduce': 'bf16'"
#define BF16 "'parameters': 'bf16'"
#define FP32 "'parameters': 'fp32'"

typedef struct {
  const char *plan, *options;
  double roundoff; /* of what gradients are added up in: 2^-24 of fp32, 2^-8 of bf16 */
} Plan;

static const Plan plans[] = {
    {FSDP2(MIXED), "mesh.shard=2", 0x1p-24},
    {FSDP2(MIXED), "mesh.shard=3", 0x1p-24},
    {FSDP2(MIXED), "mesh.shard=2 mesh.replicate=2", 0x1p-24},
    {FSDP2(MIXED), "mesh.shard=2 accumulation.steps=2", 0x1p-24},
    {FSDP2(MIXED), "mesh.shard=2 accumulation.steps=3 accumulation.sync_every_step=false", 0x1p-24},
    {FSDP2(NARROW), "mesh.shard=4", 0x1p-8},
    {FSDP2(FP32), "mesh.shard=8", 0x1p-24},
    {FSDP2(BF16), "mesh.shard=2", 0x1p-8},
    {FSDP1(MIXED), "mesh.shard=2 fsdp.cpu_offload=true", 0x1p-24}, /* ranks alone do not */
    {DDP(FP32), "mesh.replicate=3", 0x1p-24},
    {DDP(FP32), "mesh.replicate=2 precision.compute=bf16 precision.autocast=true", 0x1p-24},
    {DDP(FP32), "mesh.replicate=4 accumulation.steps=2", 0x1p-24},
    {ZERO("1", BF16), "mesh.shard=3", 0x1p-8},
    {ZERO("1", FP32), "mesh.shard=2", 0x1p-24},
    {ZERO("2", BF16), "mesh.shard=2 accumulation.steps=2", 0x1p-8},
    {ZERO("3", BF16), "mesh.shard=2 activation_checkpointing.policy=full", 0x1p-8},
    {ZERO("3", FP32), "mesh.shard=3", 0x1p-24},
    {ZERO("3", FP32), "mesh.shard=3 deepspeed.grad_accum_dtype=bf16", 0x1p-8},
};

static gboolean
run(const Plan *p, void (*change)(Program *, int, gconstpointer), gconstpointer how,
    VerificationReport *report, GError **error)
{
  VerificationRequest request = {.steps = 2,
                                 .seed = 1,
                                 .orders = 1,
                                 .tolerance = 1e-9,
                                 .rounds = TRUE,
                                 .change = change,
                                 .how = how};
  gboolean ok = simulation_inputs(LLAMA, p->plan, p->options, &request.inputs, error) &&
                verify(&request, report, error);
  simulation_inputs_clear(&request.inputs);
  return ok;
}

/* Ranks begin each step with the plan's state, so that they compute its very losses.  Differences
 * are there, since something is rounded: at least a hundredth of a unit of some largest element. */
START_TEST(rounding_explains_what_differs_from_the_ranks_alone)
{
  const Plan *p = &plans[_i];
  VerificationReport report = {0};
  g_autoptr(GError) error = NULL;
  gboolean ok = run(p, NULL, NULL, &report, &error);
  ck_assert_msg(ok, "%s: %s", p->options, ok ? "" : error->message);
  ck_assert_msg(report.fault == NULL, "%s: %s", p->options, report.fault);
  for (guint i = 0; i < report.steps->len; i++) {
    const VerifiedStep *s = &g_array_index(report.steps, VerifiedStep, i);
    ck_assert_double_eq_tol(s->loss, s->rounding.loss, 1e-9);
    ck_assert_double_gt(s->rounding.difference, 0.01 * p->roundoff);
    ck_assert_double_lt(s->rounding.difference, s->rounding.bound);
    ck_assert_double_lt(s->rounding.bound, 200 * p->roundoff);
    ck_assert_double_gt(s->rounding.used, 0);
    ck_assert_double_lt(s->rounding.used, 1);
    ck_assert_double_gt(s->worst.difference[COMPARED_GRADIENT], 0);
  }
  verification_report_clear(&report);
}
END_TEST

/* Gradients of a loss times 65536 that are larger than one: fp16 ends at 65504. */
START_TEST(what_overflows_on_ranks_alone_is_no_mistake_of_the_schedule)
{
  const Plan p = {ZERO("1", "'parameters': 'fp16'"), "mesh.shard=2 batch.sequence_length=2", 0};
  VerificationReport report = {0};
  g_autoptr(GError) error = NULL;
  ck_assert(!run(&p, NULL, NULL, &report, &error));
  ck_assert(test_error_says(error, "of step 1 overflows on ranks alone, so nothing can equal it"));
  verification_report_clear(&report);
}
END_TEST

/* ---- mistakes ---- */

typedef struct {
  const char *name;
  Plan plan;
  ProgramOpKind kind; /* of the op that it is about */
  const char *about;  /* a collective's kind, or how a kernel's meaning begins */
  gboolean drops;     /* it is not issued; else its meaning becomes the next */
  const char *means;  /* NULL: nothing, so that a sum is not divided */
} Mistake;

#define TWO_MIXED                                                                                  \
  {                                                                                                \
    FSDP2(MIXED), "mesh.shard=2", 0                                                                \
  }
#define FOUR_NARROW                                                                                \
  {                                                                                                \
    FSDP2(NARROW), "mesh.shard=4", 0                                                               \
  }

static const Mistake mistakes[] = {
    {"gradients are summed and not averaged", TWO_MIXED, PROGRAM_COLLECTIVE, "reduce_scatter",
     FALSE, NULL},
    {"gradients are summed and not averaged, in bf16", FOUR_NARROW, PROGRAM_COLLECTIVE,
     "reduce_scatter", FALSE, NULL},
    {"a divisor is wrong", FOUR_NARROW, PROGRAM_COLLECTIVE, "reduce_scatter", FALSE,
     "premul factor=0.3"},
    {"a reduction is dropped", TWO_MIXED, PROGRAM_COLLECTIVE, "reduce_scatter", TRUE, NULL},
    {"a bucket's reduction is dropped",
     {DDP(FP32), "mesh.replicate=2", 0},
     PROGRAM_COLLECTIVE,
     "all_reduce",
     TRUE,
     NULL},
    {"a bucket of gradients is not divided",
     {ZERO("1", BF16), "mesh.shard=2", 0},
     PROGRAM_LAUNCH,
     "scale_by",
     TRUE,
     NULL},
    {"gradients are not clipped", TWO_MIXED, PROGRAM_LAUNCH, "foreach_mul", TRUE, NULL},
    {"parameters are split for another number of ranks", FOUR_NARROW, PROGRAM_LAUNCH,
     "split_gathered", FALSE, "split_gathered ranks=2"},
};

static gboolean
is_about(const Program *program, const ProgramOp *op, const Mistake *m)
{
  if (op->kind != m->kind)
    return FALSE;
  if (op->kind == PROGRAM_COLLECTIVE) {
    const Collective *c = &g_array_index(program->collectives, Collective, op->a);
    return strcmp(program_collective_name((CollectiveKind) c->kind), m->about) == 0 &&
           op->stream != STREAM_COMPUTE; /* that of clipping */
  }
  return g_str_has_prefix(kernel_text(program, op), m->about);
}

/* The first place in each step, on all ranks. */
static void
change(Program *program, int rank, gconstpointer how)
{
  const Mistake *m = how;
  (void) rank;
  for (guint l = 1; l < program->lists->len; l++) {
    OpList *list = g_ptr_array_index(program->lists, l);
    guint i = 0;
    while (i < list->ops->len && !is_about(program, &g_array_index(list->ops, ProgramOp, i), m))
      i++;
    ck_assert_msg(i < list->ops->len, "%s: there is no place for it", m->name);
    if (m->drops)
      g_array_remove_index(list->ops, i);
    else
      give_meaning(program, &g_array_index(list->ops, ProgramOp, i), m->means);
  }
}

START_TEST(a_mistake_is_more_than_rounding)
{
  const Mistake *m = &mistakes[_i];
  VerificationReport report = {0};
  g_autoptr(GError) error = NULL;
  gboolean ok = run(&m->plan, change, m, &report, &error);
  ck_assert_msg(!ok || report.fault != NULL, "%s: not found", m->name);
  verification_report_clear(&report);
}
END_TEST

static int
some(int all)
{
  return quick() ? MIN(all, 3) : all;
}

Suite *
test_suite(void)
{
  Suite *suite = suite_create("rounding");
  TCase *tcase = tcase_create("plans");
  tcase_set_timeout(tcase, 60);
  tcase_add_loop_test(tcase, rounding_explains_what_differs_from_the_ranks_alone, 0,
                      some((int) G_N_ELEMENTS(plans)));
  tcase_add_loop_test(tcase, a_mistake_is_more_than_rounding, 0,
                      some((int) G_N_ELEMENTS(mistakes)));
  tcase_add_test(tcase, what_overflows_on_ranks_alone_is_no_mistake_of_the_schedule);
  suite_add_tcase(suite, tcase);
  return suite;
}
