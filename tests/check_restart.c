/* check_restart.c - training goes on from a checkpoint, under the same plan or another, as if
 * nothing had happened; and does not where a range of the state takes a wrong way. */
#include <string.h>

#include "quick.h"
#include "restart_run.h"
#include "tap_main.h"

/* ---- restarts ---- */

static const struct {
  Side from, to;
  const char *all;
} restarts[] = {
    {{FSDP2, THREE}, {FSDP2, THREE}, ""},
    {{FSDP2, THREE}, {FSDP2, FOUR}, ""},
    {{FSDP2, FOUR}, {FSDP2, THREE}, ""},
    {{FSDP2, SIX}, {FSDP2, "accumulation.steps=12"}, ""},
    {{FSDP2, TWO}, {FSDP2, TWO " fsdp.blocks_per_group=2"}, ""},
    {{FSDP2, HSDP}, {FSDP2, FOUR}, ""},
    {{FSDP2, THREE}, {FSDP2, HSDP}, ""},
    {{FSDP2, THREE}, {FSDP1, TWO}, ""},
    {{FSDP1, THREE}, {FSDP1, FOUR}, ""},
    {{FSDP1, FOUR}, {FSDP2, TWO}, ""},
    {{FSDP1, TWO}, {ZERO3, THREE}, ""},
    {{FSDP2, THREE}, {DDP, REPLICAS}, ""},
    {{DDP, REPLICAS}, {FSDP2, FOUR}, ""},
    {{NONE, ONE}, {FSDP1, THREE}, ""},
    {{ZERO1, FOUR}, {NONE, ONE}, ""},
    {{DDP, REPLICAS " ddp.zero_redundancy_optimizer=true"}, {FSDP2, THREE}, ""},
    {{FSDP2, TWO}, {DDP, REPLICAS " ddp.zero_redundancy_optimizer=true"}, ""},
    {{FSDP2, THREE}, {FSDP1, TWO " fsdp.use_orig_params=false"}, ""},
    {{ZERO3, THREE}, {FSDP2, TWO " fsdp.cpu_offload=true"}, ""},
    {{ZERO1, THREE}, {ZERO1, FOUR}, ""},
    {{ZERO1, TWO}, {ZERO2, THREE " deepspeed.round_robin_gradients=true"}, ""},
    {{ZERO2, THREE}, {ZERO3, FOUR}, ""},
    {{ZERO3, THREE}, {ZERO1, TWO}, ""},
    {{ZERO3, FOUR}, {ZERO3, THREE " deepspeed.sub_group_size=600"}, ""},
    {{ZERO1, FOUR}, {ZERO1, THREE}, "trainable=[\"!*norm*\"]"},
    {{ZERO1, FOUR}, {FSDP2, THREE}, "trainable=[\"!*norm*\"]"},
    {{ZERO3, THREE}, {FSDP2, FOUR}, ""},
    {{FSDP2, SIX}, {ZERO2, TWO}, ""},
    {{FSDP2, "mesh.shard=8"}, {FSDP2, "mesh.shard=4 accumulation.steps=2"}, ""},
    {{FSDP1, "accumulation.steps=8"}, {ZERO3, "mesh.shard=8"}, ""},
    {{ZERO1, "mesh.shard=8"}, {DDP, "mesh.replicate=8"}, ""},
    {{FSDP2, THREE}, {ZERO1, TWO}, "optimizer.name=sgd"},
    {{ZERO3, TWO}, {FSDP1, THREE}, "optimizer.name=adam"},
    {{FSDP2, THREE}, {DDP, REPLICAS}, "trainable=[\"*.attention.*\"]"},
    {{FSDP2, THREE}, {FSDP2, TWO}, "optimizer.implementation=foreach"},
};

START_TEST(a_restarted_run_equals_one_that_went_on)
{
  int i = _i * quick_stride();
  const Asked asked = {.all = restarts[i].all, .steps = 4, .restart_after = 2};
  VerificationReport report = {0};
  g_autoptr(GError) error = NULL;
  gboolean ok = restart_run(&restarts[i].from, &restarts[i].to, &asked, &report, &error);
  ck_assert_msg(ok, "%d: %s", i, ok ? "" : error->message);
  ck_assert_msg(verification_holds(&report), "%d: %s", i, report.fault);
  verification_report_clear(&report);
}
END_TEST

/* ---- in the plans' dtypes ---- */

#define BF16 "{'strategy': 'fsdp2', " BATCH ", 'precision': {'parameters': 'bf16'}}"
#define PAIR "mesh.replicate=2 accumulation.steps=6"
#define SHARDED_OPTIMIZER REPLICAS " ddp.zero_redundancy_optimizer=true"

/* in_bits: the same plan goes on, and a new process adds up in the same order.  DDP does not: it
 * has rebuilt its buckets after the first backward, and a ring of three begins elsewhere for
 * another place in a bucket; of two numbers there is one sum. */
static const struct {
  Side from, to;
  const char *all;
  gboolean in_bits;
} rounded[] = {
    {{FSDP2, THREE}, {FSDP2, THREE}, "", TRUE},
    {{BF16, TWO}, {BF16, TWO}, "", TRUE},
    {{ZERO1, FOUR}, {ZERO1, FOUR}, "", TRUE},
    {{ZERO3, THREE}, {ZERO3, THREE}, "", TRUE},
    {{FSDP1, FOUR}, {FSDP1, FOUR}, "", TRUE},
    {{DDP, SHARDED_OPTIMIZER}, {DDP, SHARDED_OPTIMIZER}, "", FALSE},
    {{DDP, PAIR}, {DDP, PAIR}, "", TRUE},
    {{FSDP2, THREE}, {FSDP2, FOUR}, "", FALSE},
    {{FSDP2, TWO}, {FSDP2, TWO " fsdp.blocks_per_group=2"}, "", FALSE},
    {{BF16, HSDP}, {FSDP1, THREE}, "", FALSE},
    {{FSDP1, FOUR}, {BF16, SIX}, "", FALSE},
    {{ZERO1, FOUR}, {ZERO3, THREE}, "", FALSE},
    {{ZERO2, THREE}, {DDP, REPLICAS}, "", FALSE},
    {{DDP, REPLICAS}, {ZERO2, TWO}, "", FALSE},
    {{NONE, ONE}, {FSDP2, THREE}, "optimizer.name=sgd", FALSE},
    {{ZERO1, FOUR}, {FSDP2, THREE}, "trainable=[\"!*norm*\"]", FALSE},
};

START_TEST(in_the_plans_dtypes_rounding_explains_all_that_a_restart_changes)
{
  int i = _i * quick_stride();
  const Asked asked = {.all = rounded[i].all, .steps = 3, .restart_after = 1, .rounds = TRUE};
  VerificationReport report = {0};
  g_autoptr(GError) error = NULL;
  gboolean ok = restart_run(&rounded[i].from, &rounded[i].to, &asked, &report, &error);
  ck_assert_msg(ok, "%d: %s", i, ok ? "" : error->message);
  ck_assert_msg(verification_holds(&report), "%d: %s", i, report.fault);
  ck_assert_int_eq(report.restart.in_bits, rounded[i].in_bits);
  for (guint k = 0; k < report.steps->len; k++) {
    const VerifiedStep *s = &g_array_index(report.steps, VerifiedStep, k);
    ck_assert_double_eq_tol(s->loss, s->rounding.loss, 1e-9);
    ck_assert_double_gt(s->rounding.bound, 0);
  }
  verification_report_clear(&report);
}
END_TEST

/* ---- two plans ---- */

static const struct {
  Side a, b;
} pairs[] = {
    {{FSDP2, THREE}, {FSDP2, THREE " fsdp.blocks_per_group=2"}},
    {{FSDP2, FOUR}, {DDP, REPLICAS}},
    {{ZERO2, TWO}, {FSDP1, THREE}},
    {{ZERO3, THREE}, {NONE, ONE}},
};

START_TEST(losses_of_plans_with_one_global_batch_are_equal)
{
  const Asked asked = {.all = "", .steps = 3};
  VerificationReport report = {0};
  g_autoptr(GError) error = NULL;
  gboolean ok = restart_run(&pairs[_i].a, &pairs[_i].b, &asked, &report, &error);
  ck_assert_msg(ok, "%s", ok ? "" : error->message);
  ck_assert_msg(verification_holds(&report), "%s",
                report.fault != NULL ? report.fault : report.other->fault);
  ck_assert_ptr_nonnull(report.other);
  ck_assert_int_eq(report.other->steps->len, 3);
  for (guint i = 0; i < report.steps->len; i++) {
    double a = g_array_index(report.steps, VerifiedStep, i).loss;
    double b = g_array_index(report.other->steps, VerifiedStep, i).loss;
    ck_assert_double_eq_tol(a, b, 1e-11);
    ck_assert_double_gt(a, 1);
  }
  ck_assert_double_lt(report.loss_difference, 1e-12);
  verification_report_clear(&report);
}
END_TEST

static const struct {
  Side a, b;
  const char *message;
} strangers[] = {
    {{FSDP2, THREE}, {FSDP2, TWO " accumulation.steps=4"}, "samples in a step of all ranks: 12 in"},
    {{FSDP2, THREE}, {FSDP2, THREE " batch.sequence_length=8"}, "batch.sequence_length): 4 in"},
    {{FSDP2, THREE}, {FSDP2, THREE " optimizer.name=sgd"}, "optimizer.name: adamw in"},
    {{FSDP2, THREE},
     {FSDP2, THREE " optimizer.clip_grad_norm=2"},
     "optimizer.clip_grad_norm: 1 in"},
    {{FSDP2, THREE},
     {FSDP2, THREE " trainable=[\"*.attention.*\"]"},
     "only A (plan) trains tok_embeddings.weight"},
};

START_TEST(plans_that_train_something_else_are_not_compared)
{
  for (int restart_after = 0; restart_after <= 1; restart_after++) {
    const Asked asked = {.all = "", .steps = 2, .restart_after = restart_after};
    VerificationReport report = {0};
    g_autoptr(GError) error = NULL;
    ck_assert(!restart_run(&strangers[_i].a, &strangers[_i].b, &asked, &report, &error));
    ck_assert(test_error_says(error, "the plans do not train the same"));
    ck_assert(test_error_says(error, strangers[_i].message));
    verification_report_clear(&report);
  }
}
END_TEST

/* ---- mistakes in what is read ---- */

typedef struct {
  const char *name;
  void (*reads)(GArray *reads, guint i);
  void (*state)(StateImage *saved);
} Mistake;

static StateRead *
read_at(GArray *reads, guint i)
{
  return &g_array_index(reads, StateRead, i);
}

static void
drop(GArray *reads, guint i)
{
  g_array_remove_index(reads, i);
}

static void
read_twice(GArray *reads, guint i)
{
  StateRead again = *read_at(reads, i);
  g_array_insert_val(reads, i, again);
}

static void
begin_an_element_later(GArray *reads, guint i)
{
  read_at(reads, i)->range.first++;
}

static void
begin_an_element_sooner(GArray *reads, guint i)
{
  read_at(reads, i)->range.first--;
}

static void
read_one_less(GArray *reads, guint i)
{
  read_at(reads, i)->range.elements--;
}

static void
read_one_more(GArray *reads, guint i)
{
  read_at(reads, i)->range.elements++;
}

static void
read_from_another_rank(GArray *reads, guint i)
{
  read_at(reads, i)->source = (read_at(reads, i)->source + 1) % 3;
}

static void
exchange_owners(GArray *reads, guint i)
{
  int first = read_at(reads, i)->source;
  guint k = i;
  while (read_at(reads, k)->source == first)
    k = (k + 1) % reads->len;
  read_at(reads, i)->source = read_at(reads, k)->source;
  read_at(reads, k)->source = first;
}

static void
exchange_ranges(GArray *reads, guint i)
{
  StateRead first = *read_at(reads, i), *second = read_at(reads, i - 1);
  *read_at(reads, i) = *second;
  *second = first;
}

static void
read_another_parameter(GArray *reads, guint i)
{
  read_at(reads, i)->range.parameter = read_at(reads, 0)->range.parameter;
}

/* ---- and in what is saved ---- */

static void
set_kind(StateImage *saved, int rank, int every, ImageKind kind)
{
  const GArray *parts = g_ptr_array_index(saved->parts, (guint) rank);
  for (guint i = 0; i < parts->len; i += (guint) every) {
    const StatePart *part = &g_array_index(parts, StatePart, i);
    for (gint64 k = 0; k < part->range.elements; k++)
      part->values[kind][k] = 0;
  }
}

static void
forget_first_states(StateImage *saved)
{
  for (int rank = 0; rank < (int) saved->parts->len; rank++)
    set_kind(saved, rank, 1, IMAGE_FIRST);
}

static void
forget_second_states_of_a_rank(StateImage *saved)
{
  set_kind(saved, 1, 1, IMAGE_SECOND);
}

static void
forget_some_first_states_of_a_rank(StateImage *saved)
{
  set_kind(saved, 2, 3, IMAGE_FIRST);
}

static void
forget_values_of_a_rank(StateImage *saved)
{
  set_kind(saved, 1, 1, IMAGE_VALUE);
}

static void
forget_the_count_of_steps(StateImage *saved)
{
  saved->updates = 0;
}

static void
count_a_step_too_many(StateImage *saved)
{
  saved->updates++;
}

static void
exchange_states(StateImage *saved)
{
  GArray *parts = g_ptr_array_index(saved->parts, 0);
  for (guint i = 0; i < parts->len; i++) {
    StatePart *part = &g_array_index(parts, StatePart, i);
    double *first = part->values[IMAGE_FIRST];
    part->values[IMAGE_FIRST] = part->values[IMAGE_SECOND];
    part->values[IMAGE_SECOND] = first;
  }
}

static const Mistake mistakes[] = {
    {.name = "a range is not read", .reads = drop},
    {.name = "a range is read twice", .reads = read_twice},
    {.name = "a range begins an element later", .reads = begin_an_element_later},
    {.name = "a range begins an element sooner", .reads = begin_an_element_sooner},
    {.name = "a range lacks its last element", .reads = read_one_less},
    {.name = "a range has an element of the next", .reads = read_one_more},
    {.name = "a range is another rank's", .reads = read_from_another_rank},
    {.name = "owners of two ranges are exchanged", .reads = exchange_owners},
    {.name = "two ranges change places", .reads = exchange_ranges},
    {.name = "a range is of another parameter", .reads = read_another_parameter},
    {.name = "first moments are not saved", .state = forget_first_states},
    {.name = "a rank's second moments are not saved", .state = forget_second_states_of_a_rank},
    {.name = "some of a rank's first moments are not saved",
     .state = forget_some_first_states_of_a_rank},
    {.name = "a rank's parameters are not saved", .state = forget_values_of_a_rank},
    {.name = "the optimizer counts from one again", .state = forget_the_count_of_steps},
    {.name = "the optimizer counts a step too many", .state = count_a_step_too_many},
    {.name = "moments are exchanged", .state = exchange_states},
};

static int changed;

/* In one place of one rank: a range in the middle. */
static void
change_reads(GArray *reads, int rank, gconstpointer how)
{
  const Mistake *m = how;
  if (m->reads == NULL || rank != 1)
    return;
  changed++;
  m->reads(reads, reads->len / 2);
}

static void
change_state(StateImage *saved, gconstpointer how)
{
  const Mistake *m = how;
  if (m->state == NULL)
    return;
  changed++;
  m->state(saved);
}

static const struct {
  Side from, to;
} ways[] = {
    {{FSDP2, THREE}, {FSDP2, FOUR}},
    {{ZERO1, THREE}, {ZERO2, FOUR}},
    {{ZERO3, THREE}, {FSDP1, TWO}},
};

static void
check_mistake(const Mistake *m, guint i, gboolean rounds, const char *says)
{
  const Asked asked = {.all = "",
                       .steps = rounds ? 2 : 3,
                       .restart_after = rounds ? 1 : 2,
                       .rounds = rounds,
                       .change_reads = change_reads,
                       .change_state = change_state,
                       .how = m};
  VerificationReport report = {0};
  g_autoptr(GError) error = NULL;
  changed = 0;
  gboolean ok = restart_run(&ways[i].from, &ways[i].to, &asked, &report, &error);
  ck_assert_msg(ok, "%s, way %u: %s", m->name, i, ok ? "" : error->message);
  ck_assert_msg(changed > 0, "%s: there is no place for it", m->name);
  ck_assert_msg(!verification_holds(&report), "%s, way %u: not found", m->name, i);
  ck_assert_msg(strstr(report.fault, says) != NULL, "%s, way %u: %s", m->name, i, report.fault);
  verification_report_clear(&report);
}

START_TEST(a_mistake_in_a_checkpoint_is_found)
{
  const Mistake *m = &mistakes[_i * quick_stride()];
  for (guint i = (guint) _i % 3; i < G_N_ELEMENTS(ways); i += 2)
    check_mistake(m, i, FALSE, "step 3");
}
END_TEST

/* Where it is read already: another number is not a matter of rounding. */
START_TEST(a_mistake_in_a_checkpoint_is_more_than_rounding)
{
  check_mistake(&mistakes[_i * quick_stride()], (guint) _i % 3, TRUE, "goes on");
}
END_TEST

Suite *
test_suite(void)
{
  Suite *suite = suite_create("restart");
  TCase *right = tcase_create("restarts");
  tcase_set_timeout(right, 120);
  tcase_add_loop_test(right, a_restarted_run_equals_one_that_went_on, 0,
                      (int) G_N_ELEMENTS(restarts) / quick_stride());
  tcase_add_loop_test(right, losses_of_plans_with_one_global_batch_are_equal, 0,
                      G_N_ELEMENTS(pairs));
  tcase_add_loop_test(right, plans_that_train_something_else_are_not_compared, 0,
                      G_N_ELEMENTS(strangers));
  tcase_add_loop_test(right, a_mistake_in_a_checkpoint_is_found, 0,
                      (int) G_N_ELEMENTS(mistakes) / quick_stride());
  tcase_add_loop_test(right, in_the_plans_dtypes_rounding_explains_all_that_a_restart_changes, 0,
                      (int) G_N_ELEMENTS(rounded) / quick_stride());
  tcase_add_loop_test(right, a_mistake_in_a_checkpoint_is_more_than_rounding, 0,
                      (int) G_N_ELEMENTS(mistakes) / quick_stride());
  suite_add_tcase(suite, right);
  return suite;
}
