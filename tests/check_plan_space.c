/* check_plan_space.c - what plans are looked at, how a plan is rewritten for another strategy, and
 * that the search finds what trying everything finds. */
#include <string.h>

#include "base/units.h"
#include "search/plan_search.h"
#include "search/plan_text.h"
#include "tap_main.h"

/* ---- inputs ---- */

typedef struct {
  RunRequest request;
  char **set;
} Base;

/* plan: a preset, or JSON with ' for ".  options: "mesh.shard=4 ..."; "": none. */
static Base
base_of(const char *network, const char *plan, const char *options)
{
  g_autofree char *copy = g_strdup(options);
  Base base = {.set = g_strsplit(g_strchomp(copy), " ", -1)};
  base.request.steps = 3;
  ck_assert(input_text_read("network", network, &base.request.inputs.network, NULL));
  if (plan[0] == '{')
    base.request.inputs.plan = (InputText){
        g_strdup("plan.json"), g_strdelimit(g_strdup(plan), "'", '"'), strlen(plan), NULL};
  else
    ck_assert(input_text_read("plan", plan, &base.request.inputs.plan, NULL));
  ck_assert(input_text_read("cluster", "h100-8", &base.request.inputs.cluster, NULL));
  base.request.inputs.assignments = base.set;
  return base;
}

static void
base_clear(Base *base)
{
  run_request_clear(&base->request);
  g_strfreev(base->set);
}

static PlanSpace *
space_of(const Base *base, int ranks, gint64 global_batch)
{
  g_autoptr(GError) error = NULL;
  PlanSpace *space = plan_space_new(&base->request, ranks, global_batch, &error);
  if (space == NULL)
    ck_abort_msg("%s", error->message);
  return space;
}

/* "1 x 2; 2 x 1": labels of an axis.  Caller frees. */
static char *
labels(const PlanSpace *space, PlanAxis axis)
{
  GString *all = g_string_new(NULL);
  for (guint i = 0; i < space->choices[axis]->len; i++)
    g_string_append_printf(all, "%s%s", i > 0 ? "; " : "",
                           ((PlanChoice *) g_ptr_array_index(space->choices[axis], i))->label);
  return g_string_free(all, FALSE);
}

/* ---- the space ---- */

typedef struct {
  const char *plan, *options;
  int ranks;
  gint64 global_batch;
  PlanAxis axis;
  const char *labels;
} Axis;

static const Axis spaces[] = {
    {"fsdp2", "", 4, 0, AXIS_SHARDING,
     "fsdp2, 4 shards; fsdp2, 2 shards x 2 replicas; ddp, 4 replicas; zero1, 4 shards; zero2, 4 "
     "shards; zero3, 4 shards"},
    {"fsdp2", "", 1, 0, AXIS_SHARDING, "none, one rank"},
    {"fsdp1", "", 8, 0, AXIS_SHARDING,
     "fsdp1, 8 shards; fsdp2, 8 shards; fsdp2, 4 shards x 2 replicas; fsdp2, 2 shards x 4 "
     "replicas; ddp, 8 replicas; zero1, 8 shards; zero2, 8 shards; zero3, 8 shards"},
    /* what the caller says stays */
    {"fsdp2", "strategy=fsdp2", 4, 0, AXIS_SHARDING,
     "fsdp2, 4 shards; fsdp2, 2 shards x 2 replicas"},
    {"fsdp2", "mesh.shard=2 mesh.replicate=2", 4, 0, AXIS_SHARDING, "fsdp2, 2 shards x 2 replicas"},
    {"fsdp2", "fsdp.reshard_after_forward=false", 4, 0, AXIS_SHARDING,
     "fsdp2, 4 shards; fsdp2, 2 shards x 2 replicas"},
    {"fsdp2", "fsdp.reshard_after_forward=false", 4, 0, AXIS_RESHARD, "false"},
    {"fsdp2", "activation_checkpointing.policy=none", 4, 0, AXIS_CHECKPOINTING, "none"},
    {"fsdp2", "activation_checkpointing.policy=every_n activation_checkpointing.every=3", 4, 0,
     AXIS_CHECKPOINTING, "every 3"},
    {"fsdp2", "", 4, 0, AXIS_CHECKPOINTING, "none; selective_op; every-2; full"},
    /* pure bf16 has no master weights: engines which keep some train something else */
    {"fsdp2", "precision={\"parameters\":\"bf16\"}", 2, 0, AXIS_SHARDING,
     "fsdp2, 2 shards; ddp, 2 replicas"},
    /* two nodes: gathered parameters can stay within one */
    {"fsdp2", "", 16, 0, AXIS_RESHARD, "true; false; 8"},
    {"fsdp2", "", 8, 0, AXIS_RESHARD, "true; false"},
    /* what the base plan leaves to the library is one of them */
    {"zero3", "", 16, 0, AXIS_RESHARD, "true; false; default; 8"},
    /* tiny has four blocks */
    {"fsdp2", "", 8, 0, AXIS_GROUPS, "1; 2; 4"},
    {"fsdp2", "", 8, 0, AXIS_MICRO_BATCH, "1 x 1"},
    {"fsdp2", "", 8, 64, AXIS_MICRO_BATCH, "1 x 8; 2 x 4; 4 x 2; 8 x 1"},
    {"fsdp2", "", 4, 48, AXIS_MICRO_BATCH, "1 x 12; 2 x 6; 4 x 3; 12 x 1"},
    {"fsdp2", "batch.micro_batch=3", 4, 48, AXIS_MICRO_BATCH, "3 x 4"},
    {"fsdp2", "accumulation.steps=6", 4, 48, AXIS_MICRO_BATCH, "2 x 6"},
};

START_TEST(an_axis_has_what_is_worth_trying_and_keeps_what_the_caller_says)
{
  const Axis *a = &spaces[_i];
  Base base = base_of("tiny", a->plan, a->options);
  g_autoptr(PlanSpace) space = space_of(&base, a->ranks, a->global_batch);
  g_autofree char *found = labels(space, a->axis);
  ck_assert_str_eq(found, a->labels);
  base_clear(&base);
}
END_TEST

START_TEST(a_batch_that_the_ranks_cannot_share_is_refused)
{
  Base base = base_of("tiny", "fsdp2", "");
  g_autoptr(GError) error = NULL;
  ck_assert_ptr_null(plan_space_new(&base.request, 8, 12, &error));
  ck_assert_str_eq(error->message,
                   "plan: --global-batch: 12 sequences are not a multiple of 8 ranks");
  base_clear(&base);
}
END_TEST

/* Axes of FSDP2 do not multiply plans of DDP, nor what several micro-batches reduce those of one.
 */
START_TEST(the_size_counts_only_axes_that_apply)
{
  Base base = base_of("tiny", "fsdp2", "activation_checkpointing.policy=none");
  g_autoptr(PlanSpace) space = space_of(&base, 2, 4);
  /* fsdp2: reshard 2, groups 3, prefetch 3 and 3, embedding 2, head 2; ddp: bucket 2; three stages
     of ZeRO.  Micro-batches 1 x 2, where reducing each is a choice, and 2 x 1. */
  gint64 fsdp2 = 2 * 3 * 3 * 3 * 2 * 2, ddp = 2;
  ck_assert_int_eq(plan_space_size(space), fsdp2 * 2 + fsdp2 + ddp * 2 + ddp + 3 + 3);
  base_clear(&base);
}
END_TEST

/* ---- documents ---- */

static const struct {
  const char *plan, *strategy;
  const char *precision; /* as JSON; NULL: it cannot */
} precisions[] = {
    {"{'strategy':'fsdp2','mesh':{'shard':2},'precision':{'compute':'bf16','reduce':'fp32'}}",
     "ddp", "{\"parameters\":\"fp32\",\"compute\":\"bf16\",\"autocast\":true}"},
    {"{'strategy':'fsdp2','mesh':{'shard':2},'precision':{'compute':'bf16','reduce':'fp32'}}",
     "zero3", "{\"parameters\":\"bf16\"}"},
    {"{'strategy':'zero2','mesh':{'shard':2},'precision':{'parameters':'fp16'}}", "fsdp2",
     "{\"parameters\":\"fp32\",\"compute\":\"fp16\",\"grad_scaler\":true,\"reduce\":\"fp32\"}"},
    {"{'strategy':'ddp','mesh':{'replicate':2},'precision':{'compute':'fp16','autocast':true,"
     "'grad_scaler':true}}",
     "fsdp2",
     "{\"parameters\":\"fp32\",\"compute\":\"fp16\",\"grad_scaler\":true,\"reduce\":\"fp32\"}"},
    {"{'strategy':'ddp','mesh':{'replicate':2},'precision':{'compute':'bf16','autocast':true}}",
     "fsdp2", "{\"parameters\":\"fp32\",\"compute\":\"bf16\",\"reduce\":\"fp32\"}"},
    {"{'strategy':'fsdp2','mesh':{'shard':2},'precision':{'parameters':'bf16'}}", "ddp",
     "{\"parameters\":\"bf16\"}"},
    {"{'strategy':'fsdp2','mesh':{'shard':2},'precision':{'parameters':'bf16'}}", "zero1", NULL},
    {"{'strategy':'fsdp2','mesh':{'shard':2}}", "zero1", "{\"parameters\":\"fp32\"}"},
};

START_TEST(mixed_precision_is_said_in_the_strategys_own_way)
{
  Base base = base_of("tiny", precisions[_i].plan, "");
  g_autoptr(Scenario) scenario = scenario_new(&base.request.inputs, 0, NULL);
  ck_assert_ptr_nonnull(scenario);
  gboolean replicas = g_str_equal(precisions[_i].strategy, "ddp");
  const PlanMesh mesh = {precisions[_i].strategy, replicas ? 1 : 2, replicas ? 2 : 1};
  g_autofree char *text =
      plan_document_for(&base.request.inputs.plan, base.set, scenario->plan, &mesh);
  g_autofree char *precision = text != NULL ? plan_document_value(text, "precision") : NULL;
  ck_assert_pstr_eq(precision, precisions[_i].precision);
  base_clear(&base);
}
END_TEST

START_TEST(a_short_plan_leaves_defaults_and_remarks_out)
{
  char root[] = "fsdp.embedding=root", micro_batch[] = "batch.micro_batch=2";
  char *assignments[] = {root, micro_batch, NULL};
  g_autofree char *text = plan_document_short(
      "{\"_source\":\"x\",\"strategy\":\"fsdp2\",\"mesh\":{\"shard\":4,\"replicate\":1},"
      "\"activation_checkpointing\":{\"policy\":\"none\"},"
      "\"fsdp\":{\"blocks_per_group\":1,\"head\":\"own\",\"forward_prefetch\":0}}",
      assignments, "what");
  cJSON *plan = cJSON_Parse(text);
  char *compact = cJSON_PrintUnformatted(plan);
  ck_assert_str_eq(compact, "{\"_summary\":\"what\",\"strategy\":\"fsdp2\",\"mesh\":{\"shard\":4},"
                            "\"fsdp\":{\"head\":\"own\"},\"batch\":{\"micro_batch\":2}}");
  cJSON_free(compact);
  cJSON_Delete(plan);
}
END_TEST

/* ---- the search ---- */

/* A space small enough to try all of: 2 shardings x 4 checkpointings x 2 micro-batches x 2 ways to
 * reshard x 3 sizes of groups. */
#define SMALL                                                                                      \
  "strategy=fsdp2 batch.sequence_length=256 fsdp.embedding=own fsdp.head=own "                     \
  "fsdp.forward_prefetch=0 fsdp.backward_prefetch=0 accumulation.sync_every_step=true"

static PlanSearch *
search_of(const PlanSpace *space, gint64 headroom)
{
  const PlanSearchOptions options = {.steps = 3, .headroom = {headroom, PLAN_HEADROOM_FRACTION}};
  g_autoptr(GError) error = NULL;
  PlanSearch *search = plan_search_new(space, &options, &error);
  if (search == NULL)
    ck_abort_msg("%s", error->message);
  return search;
}

/* The next point in an order of all; FALSE behind the last. */
static gboolean
next_point(const PlanSpace *space, PlanPoint *point)
{
  for (int axis = 0; axis < AXIS_COUNT; axis++) {
    if (++point->at[axis] < (int) space->choices[axis]->len)
      return TRUE;
    point->at[axis] = 0;
  }
  return FALSE;
}

/* Only an axis that does not apply tells it from an earlier point. */
static gboolean
is_repeated(const PlanPoint *point, const PlanPoint *normal)
{
  for (int axis = 0; axis < AXIS_COUNT; axis++)
    if (normal->at[axis] < 0 && point->at[axis] > 0)
      return TRUE;
  return FALSE;
}

/* The shortest step of all plans that fit with the headroom, each run under the limit. */
static SimTime
brute_force(const Base *base, const PlanSpace *space, gint64 headroom, guint *fitting)
{
  SimTime best = SIM_TIME_MAX;
  PlanPoint point = {{0}};
  *fitting = 0;
  do {
    PlanPoint normal = plan_space_normal(space, point);
    if (is_repeated(&point, &normal))
      continue;
    RunRequest request = *plan_space_request(space, &normal);
    g_autofree char **assignments = plan_space_assignments(space, &normal);
    Outcome outcome;
    request.steps = 3;
    request.memory_limit = base->request.memory_limit;
    candidate_try(&request, assignments, &outcome, NULL);
    if (outcome.refusal == NULL && outcome.verdict == VERDICT_FITS &&
        outcome.headroom >= headroom) {
      best = MIN(best, outcome.time.step);
      ++*fitting;
    }
    outcome_clear(&outcome);
  } while (next_point(space, &point));
  return best;
}

START_TEST(the_search_is_as_good_as_trying_everything)
{
  static const gint64 limits[] = {0, 160 * MIB, 150 * MIB, 144 * MIB};
  Base base = base_of("tiny", "fsdp2", SMALL);
  gint64 headroom = 8 * MIB;
  guint fitting;
  base.request.memory_limit = limits[_i];
  g_autoptr(PlanSpace) space = space_of(&base, 4, 8);
  g_autoptr(PlanSearch) search = search_of(space, headroom);
  SimTime best = brute_force(&base, space, headroom, &fitting);
  ck_assert_uint_gt(fitting, 0);
  ck_assert_int_ge(search->chosen, 0);
  ck_assert_int_le(search->outcome.time.step, (SimTime) ((double) best * PLAN_AS_FAST));
  ck_assert_int_ge(search->outcome.headroom, headroom);
  ck_assert_int_eq(search->outcome.verdict, VERDICT_FITS);
  ck_assert_ptr_null(search->equivalence.violation);
  base_clear(&base);
}
END_TEST

START_TEST(plans_that_were_not_tried_are_counted)
{
  Base base = base_of("tiny", "fsdp2", "batch.sequence_length=256");
  g_autoptr(PlanSpace) space = space_of(&base, 4, 16);
  g_autoptr(PlanSearch) search = search_of(space, -1);
  ck_assert_int_eq(search->tried->len + search->smaller + search->hopeless + search->combinations,
                   search->size);
  ck_assert_int_lt(search->tried->len, search->size);
  ck_assert_int_eq(search->headroom, (gint64) ((double) search->capacity * PLAN_HEADROOM_FRACTION));
  base_clear(&base);
}
END_TEST

/* Replicas of shards need a communicator more, whose buffers the allocator cannot have. */
START_TEST(every_sharding_has_its_own_limit)
{
  Base base = base_of("tiny", "fsdp2", "strategy=fsdp2 batch.sequence_length=256");
  g_autoptr(PlanSpace) space = space_of(&base, 4, 0);
  g_autoptr(PlanSearch) search = search_of(space, -1);
  gint64 limit[2] = {0, 0};
  for (int i = 0; i < 2; i++) {
    PlanPoint point = space->base;
    point.at[AXIS_SHARDING] = i;
    point = plan_space_normal(space, point);
    g_autofree char **assignments = plan_space_assignments(space, &point);
    Outcome outcome;
    candidate_try(plan_space_request(space, &point), assignments, &outcome, NULL);
    limit[i] = outcome.capacity;
    outcome_clear(&outcome);
  }
  ck_assert_int_lt(limit[1], limit[0]);
  for (guint i = 0; i < search->tried->len; i++) {
    const PlanTried *tried = plan_search_tried(search, i);
    ck_assert_int_eq(plan_search_capacity(search, tried), limit[tried->point.at[AXIS_SHARDING]]);
  }
  base_clear(&base);
}
END_TEST

/* The state of tiny alone, in fp32 on two ranks: 3.67 M parameters x 16 bytes / 2 = 28 MiB. */
START_TEST(where_nothing_fits_the_closest_says_what_it_lacks)
{
  Base base = base_of("tiny", "fsdp2", "batch.sequence_length=256");
  base.request.memory_limit = 24 * MIB;
  g_autoptr(PlanSpace) space = space_of(&base, 2, 0);
  g_autoptr(PlanSearch) search = search_of(space, 2 * MIB);
  ck_assert_int_eq(search->chosen, -1);
  ck_assert_int_ge(search->closest, 0);
  const PlanTried *closest = plan_search_tried(search, (guint) search->closest);
  gint64 least = closest->outcome.peak_reserved;
  ck_assert_int_eq(plan_search_lacks(search, closest), least + 2 * MIB - 24 * MIB);
  for (guint i = 0; i < search->tried->len; i++)
    if (plan_search_tried(search, i)->outcome.refusal == NULL)
      ck_assert_int_ge(plan_search_tried(search, i)->outcome.peak_reserved, least);
  base_clear(&base);
}
END_TEST

/* Full checkpointing computes the forward of each block twice. */
START_TEST(an_alternative_that_recomputes_says_so)
{
  Base base = base_of("llama-3.2-1b", "fsdp2",
                      "strategy=fsdp2 mesh.shard=8 mesh.replicate=1 fsdp.blocks_per_group=1 "
                      "fsdp.reshard_after_forward=true fsdp.forward_prefetch=0 "
                      "fsdp.backward_prefetch=0 fsdp.embedding=own fsdp.head=own");
  g_autoptr(PlanSpace) space = space_of(&base, 8, 0);
  g_autoptr(PlanSearch) search = search_of(space, -1);
  const PlanPoint *chosen = &plan_search_tried(search, (guint) search->chosen)->point;
  gboolean found = FALSE;
  ck_assert_str_eq(plan_space_label(space, chosen, AXIS_CHECKPOINTING), "none");
  for (guint i = 0; i < search->alternatives->len; i++) {
    const PlanAlternative *a = &g_array_index(search->alternatives, PlanAlternative, i);
    const PlanTried *other = plan_search_tried(search, a->tried);
    if (!g_str_equal(plan_space_label(space, &other->point, AXIS_CHECKPOINTING), "full"))
      continue;
    g_autofree char *why = plan_alternative_reason(search, a);
    g_autofree char *rest = plan_alternative_rest(search, a);
    found = TRUE;
    ck_assert_msg(strstr(why, "more computation (recomputation)") != NULL, "%s", why);
    ck_assert_str_eq(rest, "");
    ck_assert_int_gt(other->outcome.time.step, search->outcome.time.step);
    ck_assert_int_lt(other->outcome.peak_reserved, search->outcome.peak_reserved);
  }
  ck_assert(found);
  base_clear(&base);
}
END_TEST

/* FSDP1 makes the whole model on the device and shards it afterwards: 8.03 B x 4 bytes are 29.9
 * GiB. Between what its steps need and that, nothing fits. */
START_TEST(a_model_has_to_fit_while_it_is_made)
{
  Base base = base_of("llama-3-8b", "fsdp1",
                      "strategy=fsdp1 fsdp.blocks_per_group=1 batch.sequence_length=512 "
                      "activation_checkpointing.policy=full");
  g_autoptr(PlanSpace) space = space_of(&base, 8, 0);
  g_autoptr(PlanSearch) search = search_of(space, 0);
  const PlanTried *tried = plan_search_tried(search, 0);
  ck_assert_int_eq(search->size, 1);
  gint64 steps = tried->outcome.peak_reserved, needs = plan_search_needs(tried);
  ck_assert_int_gt(needs, G_GINT64_CONSTANT(8030261248) * 4);
  ck_assert_int_gt(needs, steps);
  base.request.memory_limit = (steps + needs) / 2;
  g_autoptr(PlanSpace) small = space_of(&base, 8, 0);
  g_autoptr(PlanSearch) none = search_of(small, 0);
  ck_assert_int_eq(none->chosen, -1);
  base_clear(&base);
}
END_TEST

static gboolean
stop_at_once(gpointer user)
{
  (void) user;
  return TRUE;
}

START_TEST(a_search_can_be_stopped)
{
  Base base = base_of("tiny", "fsdp2", "");
  g_autoptr(PlanSpace) space = space_of(&base, 4, 0);
  const PlanSearchOptions options = {.steps = 3, .headroom = {0, 0}, .stops = stop_at_once};
  g_autoptr(GError) error = NULL;
  ck_assert_ptr_null(plan_search_new(space, &options, &error));
  ck_assert_ptr_null(error);
  base_clear(&base);
}
END_TEST

Suite *
test_suite(void)
{
  Suite *suite = suite_create("plan space");
  TCase *space = tcase_create("space");
  tcase_add_loop_test(space, an_axis_has_what_is_worth_trying_and_keeps_what_the_caller_says, 0,
                      G_N_ELEMENTS(spaces));
  tcase_add_test(space, a_batch_that_the_ranks_cannot_share_is_refused);
  tcase_add_test(space, the_size_counts_only_axes_that_apply);
  suite_add_tcase(suite, space);
  TCase *documents = tcase_create("documents");
  tcase_add_loop_test(documents, mixed_precision_is_said_in_the_strategys_own_way, 0,
                      G_N_ELEMENTS(precisions));
  tcase_add_test(documents, a_short_plan_leaves_defaults_and_remarks_out);
  suite_add_tcase(suite, documents);
  TCase *search = tcase_create("search");
  tcase_add_loop_test(search, the_search_is_as_good_as_trying_everything, 0, 4);
  tcase_add_test(search, plans_that_were_not_tried_are_counted);
  tcase_add_test(search, every_sharding_has_its_own_limit);
  tcase_add_test(search, where_nothing_fits_the_closest_says_what_it_lacks);
  tcase_add_test(search, an_alternative_that_recomputes_says_so);
  tcase_add_test(search, a_model_has_to_fit_while_it_is_made);
  tcase_add_test(search, a_search_can_be_stopped);
  tcase_set_timeout(search, 60);
  suite_add_tcase(suite, search);
  return suite;
}
