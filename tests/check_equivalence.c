/* check_equivalence.c - gradients are reduced over all ranks once and updated by their owners:
 * every strategy does, and a Program in which that was broken is caught. */
#include "search/equivalence.h"
#include "simulation.h"
#include "tap_main.h"
#include <string.h>

#define SHORT "batch.sequence_length=64 "

/* The verdict on a plan with options, as text. */
static char *
verdict(const char *network, const char *plan, const char *options)
{
  g_autofree char *copy = g_strdup(options);
  g_auto(GStrv) set = g_strsplit(g_strchomp(copy), " ", -1);
  Simulation simulation = {.network = network, .plan = plan, .set = (const char *const *) set};
  g_autoptr(GError) error = NULL;
  g_autoptr(Scenario) scenario = simulation_read(&simulation, &error);
  EquivalenceReport report;
  if (scenario == NULL || !equivalence_check(scenario, 2, &report, &error))
    return g_strdup_printf("refused: %s", error->message);
  g_autoptr(GString) text = g_string_new(NULL);
  equivalence_print(&report, FALSE, text);
  equivalence_report_clear(&report);
  return g_string_free(g_steal_pointer(&text), FALSE);
}

/* ---- plans that are right ---- */

typedef struct {
  const char *network, *plan, *options;
  const char *says; /* beyond "equivalent" */
} Case;

static const Case right[] = {
    {"tiny", "ddp", SHORT, "39 parameters, each of 1 micro-batch, are reduced once over 8 ranks"},
    {"tiny", "ddp", SHORT "ddp.gradient_as_bucket_view=true", "8 to 8 of 8 ranks"},
    {"tiny", "ddp", SHORT "accumulation.steps=3", "each of 3 micro-batches"},
    {"tiny", "ddp", SHORT "accumulation.steps=3 ddp.gradient_as_bucket_view=true",
     "each of 3 micro-batches"},
    {"tiny", "ddp", SHORT "accumulation.steps=3 accumulation.sync_every_step=true",
     "each of 3 micro-batches"},
    {"tiny", "ddp", SHORT "ddp.zero_redundancy_optimizer=true", "1 to 1 of 8 ranks"},
    {"tiny", "ddp", SHORT "ddp.zero_redundancy_optimizer=true ddp.parameters_as_bucket_view=true",
     "1 to 1 of 8 ranks"},
    {"tiny", "ddp", SHORT "ddp.find_unused_parameters=true", "over 8 ranks"},
    {"tiny", "zero1", SHORT, "over 8 ranks"},
    {"tiny", "zero1", SHORT "accumulation.steps=2", "each of 2 micro-batches"},
    {"tiny", "zero1", SHORT "deepspeed.grad_accum_dtype=fp32", "over 8 ranks"},
    {"tiny", "zero1", SHORT "deepspeed.grad_accum_dtype=fp32 accumulation.steps=2",
     "each of 2 micro-batches"},
    {"tiny", "zero2", SHORT "accumulation.steps=2", "each of 2 micro-batches"},
    {"tiny", "zero2", SHORT "deepspeed.reduce_scatter=false", "over 8 ranks"},
    {"tiny", "zero2", SHORT "deepspeed.contiguous_gradients=false", "over 8 ranks"},
    {"tiny", "zero2", SHORT "deepspeed.use_multi_rank_bucket_allreduce=false", "over 8 ranks"},
    {"tiny", "zero2", SHORT "deepspeed.reduce_bucket_size=300000 deepspeed.overlap_comm=false",
     "over 8 ranks"},
    {"tiny", "zero2", SHORT "deepspeed.offload_optimizer.device=cpu",
     "names none of it: gradients were followed to there, updates were not"},
    {"tiny", "zero3", SHORT "accumulation.steps=2", "each of 2 micro-batches"},
    {"tiny", "zero3", SHORT "deepspeed.reduce_scatter=false", "over 8 ranks"},
    {"tiny", "zero3", SHORT "deepspeed.reduce_bucket_size=300000", "over 8 ranks"},
    {"tiny", "zero3", SHORT "deepspeed.offload_optimizer.device=cpu", "updates were not"},
    {"tiny", "{'strategy': 'zero0', 'mesh': {'shard': 4}, 'batch': {'sequence_length': 64}}", "",
     "over 4 ranks"},
    {"tiny", "{'strategy': 'none', 'batch': {'sequence_length': 64}}", "", "over 1 rank"},
    {"tiny", "fsdp1", SHORT "accumulation.steps=2", "each of 2 micro-batches"},
    {"tiny", "fsdp1", SHORT "fsdp.use_orig_params=false", "over 8 ranks"},
    {"tiny", "fsdp1", SHORT "mesh.shard=7", "over 7 ranks"},
    {"tiny", "fsdp1", SHORT "fsdp.cpu_offload=true", "updates were not"},
    {"tiny", "fsdp1-hybrid", SHORT, "over 16 ranks"},
    {"gpt2", "fsdp1", SHORT, "over 8 ranks"},
    {"tiny", "fsdp2", SHORT, "8 to 8 of 8 ranks"},
    {"tiny", "fsdp2", SHORT "mesh.shard=7", "7 to 7 of 7 ranks"},
    {"tiny", "fsdp2", SHORT "fsdp.blocks_per_group=3", "8 to 8 of 8 ranks"},
    {"tiny", "fsdp2", SHORT "accumulation.steps=3", "each of 3 micro-batches"},
    {"tiny", "fsdp2", SHORT "accumulation.steps=3 accumulation.sync_every_step=false",
     "each of 3 micro-batches"},
    {"tiny", "fsdp2", SHORT "fsdp.cpu_offload=true", "updates were not"},
    {"tiny", "fsdp2", SHORT "optimizer.name=none", "only reductions were followed"},
    {"tiny", "fsdp2", SHORT "optimizer.name=sgd optimizer.implementation=foreach",
     "8 to 8 of 8 ranks"},
    {"tiny", "fsdp2", SHORT "optimizer.implementation=foreach", "8 to 8 of 8 ranks"},
    {"tiny", "fsdp2", SHORT "optimizer.implementation=forloop", "8 to 8 of 8 ranks"},
    {"tiny", "fsdp2", SHORT "compile=per_block", "8 to 8 of 8 ranks"},
    {"tiny", "hsdp", SHORT "accumulation.steps=4 accumulation.all_reduce_every=2",
     "each of 4 micro-batches"},
    {"gpt2", "fsdp2", SHORT, "over 8 ranks"},
    {"tiny", "internevo", SHORT, "1 to 1 of 8 ranks"},
    {"tiny", "internevo", SHORT "mesh.shard=4 mesh.replicate=2", "over 8 ranks"},
    {"tiny", "lora", SHORT, "39 parameters are frozen"},
};

START_TEST(a_plan_reduces_every_gradient_once_and_updates_every_element_once)
{
  const Case *c = &right[_i];
  g_autofree char *text = verdict(c->network, c->plan, c->options);
  ck_assert_msg(g_str_has_prefix(text, "equivalent: ") && strstr(text, c->says) != NULL,
                "%s %s %s: %s", c->network, c->plan, c->options, text);
}
END_TEST

/* ---- Programs that are broken ---- */

typedef struct {
  Program *program;
  OpList *list;
} Step;

static ProgramOp *
op_at(const Step *s, guint i)
{
  return &g_array_index(s->list->ops, ProgramOp, i);
}

static const char *
called(const Step *s, const ProgramOp *op)
{
  if (op->kind == PROGRAM_LAUNCH || op->kind == PROGRAM_COPY)
    return program_text(s->program, g_array_index(s->program->kernels, Kernel, op->a).name);
  if (op->kind == PROGRAM_COLLECTIVE)
    return program_collective_name(
        (CollectiveKind) g_array_index(s->program->collectives, Collective, op->a).kind);
  return "";
}

/* The last op of that name: by then backward has come to the embedding. */
static guint
last(const Step *s, const char *name)
{
  for (guint i = s->list->ops->len; i > 0; i--)
    if (g_str_equal(called(s, op_at(s, i - 1)), name))
      return i - 1;
  ck_abort_msg("no %s", name);
}

static void
drop(const Step *s, const char *name)
{
  g_array_remove_index(s->list->ops, last(s, name));
}

static void
repeat(const Step *s, const char *name)
{
  guint i = last(s, name);
  ProgramOp again = *op_at(s, i);
  g_array_insert_val(s->list->ops, i, again);
}

static void
drop_first_operands(const Step *s, const char *name, int count)
{
  ProgramOp *op = op_at(s, last(s, name));
  op->first_operand += count;
  op->operands = (guint16) (op->operands - count);
}

static void
redirect(const Step *s, const char *name, const char *communicator)
{
  ProgramOp *op = op_at(s, last(s, name));
  Collective other = g_array_index(s->program->collectives, Collective, op->a);
  for (guint i = 0; i < s->program->communicators->len; i++)
    if (g_str_equal(program_text(s->program,
                                 g_array_index(s->program->communicators, Communicator, i).name),
                    communicator))
      other.communicator = (gint32) i;
  op->a = (gint32) s->program->collectives->len;
  g_array_append_val(s->program->collectives, other);
}

static void
overwrite(const Step *s, const char *name)
{
  ProgramOp *op = op_at(s, last(s, name));
  g_array_index(s->program->operands, Operand, op->first_operand + op->operands - 1).role =
      ROLE_WRITE;
}

typedef enum { DROP, REPEAT, REDIRECT, OVERWRITE, DROP_OPERANDS } Harm;

typedef struct {
  const char *plan, *options;
  Harm harm;
  const char *op; /* the last one of that name is harmed */
  const char *to; /* REDIRECT: communicator */
  int operands;   /* DROP_OPERANDS: how many */
  const char *violation;
} Broken;

/* The last gradient is the embedding's; the optimizer's list begins with it. */
static const Broken broken[] = {
    {"fsdp2", SHORT, DROP, "reduce_scatter", NULL, 0,
     "rank 0: what updates tok_embeddings.weight lacks its gradient of micro-batch 0"},
    {"fsdp2", SHORT, REPEAT, "reduce_scatter", NULL, 0,
     "rank 0 sends the gradient of tok_embeddings.weight, micro-batch 0, 2 times through shard"},
    {"hsdp", SHORT, DROP, "reduce_scatter", NULL, 0, "lacks its gradient of micro-batch 0"},
    {"hsdp", SHORT, REDIRECT, "reduce_scatter", "replicate", 0,
     "rank 0 reduces the gradient of tok_embeddings.weight, micro-batch 0, 2 times: all_reduce "
     "over replicate (2) again"},
    {"hsdp", SHORT "optimizer.clip_grad_norm=null", DROP, "all_reduce", NULL, 0,
     "rank 0: the gradient of tok_embeddings.weight, micro-batch 0, goes through reduce_scatter "
     "over shard (8), not over all 16 ranks"},
    {"hsdp", SHORT "optimizer.clip_grad_norm=null", REPEAT, "all_reduce", NULL, 0,
     "2 times: reduce_scatter over shard (8), all_reduce over replicate (2) again"},
    {"hsdp", SHORT "optimizer.clip_grad_norm=null", REDIRECT, "all_reduce", "shard", 0,
     "2 times: all_reduce over shard (8) again"},
    {"fsdp2", SHORT, DROP_OPERANDS, "adam", NULL, 4,
     "rank 0 does not update its 32768 elements of tok_embeddings.weight"},
    {"fsdp2", SHORT, DROP_OPERANDS, "adam", NULL, 1,
     "rank 0: what updates tok_embeddings.weight lacks its gradient of micro-batch 0"},
    {"fsdp2", SHORT, REPEAT, "adam", NULL, 0,
     "rank 0 updates tok_embeddings.weight more than once"},
    {"fsdp2", SHORT, DROP_OPERANDS, "chunk_cat", NULL, 1,
     "rank 0: what updates tok_embeddings.weight lacks its gradient of micro-batch 0"},
    {"fsdp2", SHORT "accumulation.steps=2 accumulation.sync_every_step=false", OVERWRITE, "add",
     NULL, 0, "rank 0: what updates tok_embeddings.weight lacks its gradient of micro-batch 0"},
    {"fsdp2", SHORT "accumulation.steps=2 accumulation.sync_every_step=false", REPEAT, "add", NULL,
     0, "rank 0 adds the gradient of tok_embeddings.weight, micro-batch 1, 2 times"},
    {"fsdp1", SHORT, DROP, "reduce_scatter", NULL, 0,
     "rank 0: what updates tok_embeddings.weight lacks its gradient of micro-batch 0"},
    {"fsdp1", SHORT, DROP_OPERANDS, "adam", NULL, 4,
     "rank 0 does not update its 65568 elements of tok_embeddings.weight"},
    {"ddp", SHORT, DROP, "all_reduce", NULL, 0, "goes through nothing, not over all 8 ranks"},
    {"ddp", SHORT, REPEAT, "all_reduce", NULL, 0, "2 times: all_reduce over replicate (8) again"},
    {"ddp", SHORT, DROP_OPERANDS, "adam", NULL, 4,
     "tok_embeddings.weight: 0 elements are updated in a replica group, of 262144"},
    {"zero2", SHORT "deepspeed.use_multi_rank_bucket_allreduce=false", DROP, "reduce", NULL, 0,
     "goes through nothing, not over all 8 ranks"},
    {"zero2", SHORT, DROP, "adam", NULL, 0,
     "rank 0 does not update its 262144 elements of "
     "tok_embeddings.weight"},
    {"zero3", SHORT, DROP, "reduce_scatter", NULL, 0, "goes through nothing, not over all 8 ranks"},
    {"internevo", SHORT "optimizer.clip_grad_norm=null", DROP, "all_reduce", NULL, 0,
     "goes through nothing, not over all 8 ranks"},
};

static void
harm(const Broken *b, const Step *s)
{
  switch (b->harm) {
  case DROP:
    drop(s, b->op);
    break;
  case REPEAT:
    repeat(s, b->op);
    break;
  case REDIRECT:
    redirect(s, b->op, b->to);
    break;
  case OVERWRITE:
    overwrite(s, b->op);
    break;
  case DROP_OPERANDS:
    drop_first_operands(s, b->op, b->operands);
    break;
  }
}

/* The violation found with rank 0's Program as it is lowered, harmed (NULL: not), for all ranks. */
static char *
violation(const char *plan, const char *options, const Broken *b)
{
  g_autofree char *copy = g_strdup(options);
  g_autoptr(Simulated) lowered = simulation_lower_options("tiny", plan, g_strchomp(copy), 0, 2);
  Program *program = lowered->lowered->program;
  Step step = {program, (OpList *) (gsize) program_step(program, 1)};
  const PlanSpec *p = lowered->scenario->plan;
  if (b != NULL)
    harm(b, &step);
  RankProgram rank = {0, p->shard > 1 ? 1 : p->replicate, program};
  EquivalenceReport report;
  equivalence_follow(lowered->scenario, &rank, 1, 2, &report);
  char *found = g_strdup(report.violation);
  equivalence_report_clear(&report);
  return found;
}

START_TEST(a_harmed_step_is_caught_and_named)
{
  const Broken *b = &broken[_i];
  g_autofree char *before = violation(b->plan, b->options, NULL);
  g_autofree char *after = violation(b->plan, b->options, b);
  ck_assert_msg(before == NULL || g_str_equal(b->plan, "internevo"), "%s", before);
  ck_assert_msg(after != NULL && strstr(after, b->violation) != NULL, "%s, %s: %s", b->plan, b->op,
                after);
}
END_TEST

/* 1024 rows over 7 ranks: 147 each, but 142 for the last one.  If the first rank's work is taken
 * for the last one's too, it updates 5 rows of 256 that it does not hold. */
START_TEST(a_rank_that_updates_more_than_it_holds_is_caught)
{
  g_autoptr(Simulated) lowered =
      simulation_lower_options("tiny", "fsdp2", SHORT "mesh.shard=7", 0, 2);
  RankProgram ranks[] = {{0, 7, lowered->lowered->program}};
  EquivalenceReport report;
  equivalence_follow(lowered->scenario, ranks, 1, 2, &report);
  ck_assert_str_eq(report.violation, "tok_embeddings.weight: 263424 elements are updated in a "
                                     "replica group, of 262144");
  equivalence_report_clear(&report);
}
END_TEST

/* ---- two variants ---- */

static EquivalenceReport
checked(const char *options)
{
  g_auto(GStrv) set = g_strsplit(options, " ", -1);
  Simulation simulation = {"tiny", "fsdp2", (const char *const *) set, 0};
  g_autoptr(Scenario) scenario = simulation_read(&simulation, NULL);
  EquivalenceReport report;
  ck_assert(scenario != NULL && equivalence_check(scenario, 2, &report, NULL));
  return report;
}

static char *
difference(const char *first, const char *second)
{
  EquivalenceReport a = checked(first), b = checked(second);
  char *why = equivalence_difference(&a, &b);
  equivalence_report_clear(&a);
  equivalence_report_clear(&b);
  return why;
}

START_TEST(variants_are_equivalent_when_ranks_parameters_and_sequences_are_the_same)
{
  static const struct {
    const char *first, *second, *why;
  } cases[] = {
      {"fsdp.blocks_per_group=1", "fsdp.blocks_per_group=4", NULL},
      {"mesh.shard=8", "mesh.shard=4 mesh.replicate=2", NULL},
      {"batch.micro_batch=4", "batch.micro_batch=2 accumulation.steps=2", NULL},
      {"batch.micro_batch=4", "batch.micro_batch=2",
       "a gradient is the mean over 32 sequences against 16"},
      {"mesh.shard=8", "mesh.shard=4", "8 ranks against 4"},
      {"mesh.shard=8", "trainable=[\"layers.*\"]",
       "tok_embeddings.weight is trained by all ranks together in one of them only"},
  };
  for (guint i = 0; i < G_N_ELEMENTS(cases); i++) {
    g_autofree char *why = difference(cases[i].first, cases[i].second);
    ck_assert_pstr_eq(why, cases[i].why);
  }
}
END_TEST

Suite *
test_suite(void)
{
  Suite *suite = suite_create("equivalence");
  TCase *plans = tcase_create("plans");
  tcase_add_loop_test(plans, a_plan_reduces_every_gradient_once_and_updates_every_element_once, 0,
                      G_N_ELEMENTS(right));
  suite_add_tcase(suite, plans);
  TCase *harmed = tcase_create("harm");
  tcase_add_loop_test(harmed, a_harmed_step_is_caught_and_named, 0, G_N_ELEMENTS(broken));
  tcase_add_test(harmed, a_rank_that_updates_more_than_it_holds_is_caught);
  suite_add_tcase(suite, harmed);
  TCase *variants = tcase_create("variants");
  tcase_add_test(variants,
                 variants_are_equivalent_when_ranks_parameters_and_sequences_are_the_same);
  suite_add_tcase(suite, variants);
  return suite;
}
