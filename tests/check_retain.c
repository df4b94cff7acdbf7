/* check_retain.c - full parameters that somebody keeps beyond their module: memory is higher by
 * exactly theirs from the hook to the release, and by nothing before and after; the report says
 * whose they are.
 *
 * Two executions are compared event by event, with and without the plan's "retain". */
#include "base/units.h"
#include "report/summary_json.h"
#include "report/summary_text.h"
#include "simulate/run_facts.h"
#include "simulation.h"
#include "tap_main.h"
#include <cjson/cJSON.h>
#include <string.h>

#define STEPS 3
#define WITHOUT_LIMIT ((gint64) 1 << 60)

static const char network[] =
    "{'model_type': 'llama', 'hidden_size': 64, 'intermediate_size': 160, 'num_hidden_layers': 4,"
    " 'num_attention_heads': 4, 'num_key_value_heads': 2, 'vocab_size': 256,"
    " 'implementation': 'torchtitan'}";

/* A layer in bf16: q and o of 64 x 64, k and v of 32 x 64, three of 160 x 64, two norms of 64 that
 * the allocator rounds up to 512 bytes. */
#define LAYER_BYTES (2 * 8192 + 2 * 4096 + 3 * 20480 + 2 * 512)

#define PLAN                                                                                       \
  "{'strategy': 'fsdp2', 'mesh': {'shard': 8}, 'batch': {'micro_batch': 1, 'sequence_length': "    \
  "64}, 'precision': {'compute': 'bf16', 'reduce': 'fp32'}, 'retain': ["
static const char without[] = PLAN "]}";

static const struct {
  const char *plan;
  const char *as;
  const char *until;      /* the phase at whose end it is let go; NULL: at the step's end */
  const char *held_until; /* as the report says it */
} clones[] = {
    {PLAN "{'group': 'layers.1', 'as': 'clone', 'until': 'end_of_forward'}]}", "a clone", "forward",
     "end of forward"},
    {PLAN "{'group': 'layers.1', 'as': 'clone', 'until': 'end_of_backward'}]}", "a clone",
     "backward", "end of backward"},
    {PLAN "{'group': 'layers.1', 'as': 'clone', 'until': 'end_of_step'}]}", "a clone", NULL,
     "end of the step"},
};
static const char unsharded[] =
    PLAN "{'group': 'layers.1', 'as': 'unsharded', 'until': 'end_of_forward'}]}";

static Simulated *
execute(const char *plan)
{
  return simulation_execute(&(Simulation){network, plan, NULL, 0}, STEPS, WITHOUT_LIMIT);
}

/* ---- the comparison */

#define LAYER_PARAMETERS 9

/* A place in the events of a run. */
typedef struct _Walk Walk;
struct _Walk {
  const Recording *recording;
  gboolean (*special)(Walk *walk, const MemoryEvent *event);
  guint next;
  int step, frees; /* of the layer's full parameters in that step */
  gint64 bytes;    /* of the special events so far */
};

static gboolean
is_of_clone(Walk *w, const MemoryEvent *event)
{
  return g_str_has_prefix(recording_text(w->recording, event->what), "clone of ");
}

/* Freeing the layer after forward, which one run does later than the other; it is freed again in
 * backward. */
static gboolean
is_reshard_after_forward(Walk *w, const MemoryEvent *event)
{
  if (event->category != CATEGORY_UNSHARDED_PARAMETER || event->requested_bytes > 0 ||
      !g_str_has_prefix(recording_text(w->recording, event->module), "layers.1"))
    return FALSE;
  w->frees = event->step == w->step ? w->frees + 1 : 1;
  w->step = event->step;
  return w->frees <= LAYER_PARAMETERS;
}

/* The next event that is not special; NULL at the end. */
static const MemoryEvent *
walk(Walk *w)
{
  const GArray *memory = w->recording->memory;
  while (w->next < memory->len) {
    const MemoryEvent *event = &g_array_index(memory, MemoryEvent, w->next++);
    if (!w->special(w, event))
      return event;
    w->bytes += event->block_bytes;
  }
  return NULL;
}

/* What the comparison has seen. */
typedef struct {
  guint higher;         /* events at which memory was higher */
  guint times;          /* stretches of such events */
  gint64 peak;          /* of the run with it */
  gboolean peak_inside; /* that of the run without lies in such a stretch */
} Seen;

static void
assert_same_event(const Walk *a, const MemoryEvent *x, const Walk *b, const MemoryEvent *y)
{
  ck_assert_int_eq(x->block_bytes, y->block_bytes);
  ck_assert_int_eq(x->stream, y->stream);
  ck_assert_int_eq(x->category, y->category);
  ck_assert_str_eq(recording_text(a->recording, x->what), recording_text(b->recording, y->what));
}

/* Walks both runs: at every event that they have in common memory differs by 0 or by all of the
 * group. */
static Seen
compare(const Simulated *without_it, const Simulated *with_it,
        gboolean (*special)(Walk *, const MemoryEvent *))
{
  Walk a = {.recording = without_it->recording, .special = special};
  Walk b = {.recording = with_it->recording, .special = special};
  Seen seen = {0};
  gint64 before = 0, peak = 0;
  for (;;) {
    const MemoryEvent *x = walk(&a), *y = walk(&b);
    gint64 higher = b.bytes - a.bytes;
    ck_assert((x == NULL) == (y == NULL));
    if (x == NULL)
      break;
    assert_same_event(&a, x, &b, y);
    ck_assert(higher == 0 || higher == LAYER_BYTES);
    ck_assert_int_eq(y->allocated_after - x->allocated_after, higher);
    seen.higher += higher > 0;
    seen.times += higher > 0 && before == 0;
    seen.peak_inside = x->allocated_after > peak ? higher > 0 : seen.peak_inside;
    seen.peak = MAX(seen.peak, y->allocated_after);
    peak = MAX(peak, x->allocated_after);
    before = higher;
  }
  ck_assert_int_eq(b.bytes, a.bytes);
  ck_assert_int_eq(peak, a.recording->peak.allocated);
  ck_assert_int_eq(seen.peak, b.recording->peak.allocated);
  return seen;
}

/* ---- where it begins and ends */

/* What an op of a step has to do with the clones: +1 makes one, -1 frees one. */
static int
clone_op(const Program *program, const ProgramOp *op)
{
  if (op->kind != PROGRAM_ALLOC && op->kind != PROGRAM_FREE)
    return 0;
  const Storage *storage = &g_array_index(program->storages, Storage, op->a);
  if (!g_str_has_prefix(program_text(program, storage->what), "clone of "))
    return 0;
  return op->kind == PROGRAM_ALLOC ? 1 : -1;
}

static gboolean
frees_full_parameter(const Program *program, const ProgramOp *op)
{
  return op->kind == PROGRAM_FREE &&
         g_array_index(program->storages, Storage, op->a).category == CATEGORY_UNSHARDED_PARAMETER;
}

/* The ops from the i-th on free all clones, and then the phase or the step ends. */
static void
assert_released_at_the_end(const Program *program, const GArray *ops, guint i)
{
  for (int k = 0; k < LAYER_PARAMETERS; k++)
    ck_assert_int_eq(clone_op(program, &g_array_index(ops, ProgramOp, i + k)), -1);
  i += LAYER_PARAMETERS;
  if (i < ops->len)
    ck_assert_int_eq(g_array_index(ops, ProgramOp, i).kind, PROGRAM_RANGE_POP);
}

/* The clones are made right before the layer is resharded, and go at the very end of the phase. */
static void
assert_clone_is_held(const Program *program, int step, const char *until)
{
  const GArray *ops = program_step(program, step)->ops;
  const char *phase = "";
  int alive = 0, made = 0;
  for (guint i = 0; i < ops->len; i++) {
    const ProgramOp *op = &g_array_index(ops, ProgramOp, i);
    if (op->kind == PROGRAM_RANGE_PUSH && op->b == RANGE_PHASE)
      phase = program_text(program, op->a);
    int change = clone_op(program, op);
    if (change < 0 && alive == LAYER_PARAMETERS) {
      assert_released_at_the_end(program, ops, i);
      if (until != NULL)
        ck_assert_str_eq(phase, until);
      else
        ck_assert_uint_eq(i + LAYER_PARAMETERS, ops->len);
    }
    alive += change;
    made += change > 0;
    if (change > 0)
      ck_assert_str_eq(phase, "forward");
    if (change > 0 && made == LAYER_PARAMETERS) /* its copy, then the reshard */
      ck_assert(frees_full_parameter(program, &g_array_index(ops, ProgramOp, i + 2)));
  }
  ck_assert_int_eq(made, LAYER_PARAMETERS);
  ck_assert_int_eq(alive, 0);
}

START_TEST(a_clone_is_held_from_the_hook_to_its_release)
{
  g_autoptr(Simulated) s =
      simulation_lower(&(Simulation){network, clones[_i].plan, NULL, 0}, STEPS);
  for (int step = 0; step < STEPS; step++)
    assert_clone_is_held(s->lowered->program, step, clones[_i].until);
}
END_TEST

START_TEST(memory_is_higher_by_exactly_the_clone)
{
  g_autoptr(Simulated) a = execute(without), b = execute(clones[_i].plan);
  Seen seen = compare(a, b, is_of_clone);
  ck_assert_uint_eq(seen.times, STEPS);
  ck_assert_uint_gt(seen.higher, 100);
}
END_TEST

/* The peak of this network is in backward. */
START_TEST(the_peak_is_higher_if_it_lies_in_between)
{
  g_autoptr(Simulated) a = execute(without), b = execute(clones[_i].plan);
  Seen seen = compare(a, b, is_of_clone);
  const Recording *r = a->recording;
  ck_assert_str_eq(recording_text(r, r->peak.phase), "backward");
  gboolean inside = clones[_i].until == NULL || strcmp(clones[_i].until, "backward") == 0;
  ck_assert_int_eq(seen.peak_inside, inside);
  ck_assert_int_eq(b->recording->peak.allocated - a->recording->peak.allocated,
                   inside ? LAYER_BYTES : 0);
}
END_TEST

START_TEST(without_it_everything_is_as_before)
{
  g_autoptr(Simulated) a = execute(without), b = execute(clones[_i].plan);
  const StepRecord *steps_a = &g_array_index(a->recording->steps, StepRecord, 0);
  const StepRecord *steps_b = &g_array_index(b->recording->steps, StepRecord, 0);
  for (int i = 0; i < STEPS; i++)
    ck_assert_int_eq(steps_a[i].end_allocated, steps_b[i].end_allocated);
  ck_assert_int_eq(a->recording->at_rest_bytes, b->recording->at_rest_bytes);
  static const char never[] = "{'strategy': 'fsdp2', 'mesh': {'shard': 8}, 'batch': {'micro_batch':"
                              " 1, 'sequence_length': 64}, 'precision': {'compute': 'bf16',"
                              " 'reduce': 'fp32'}}";
  g_autoptr(Simulated) c = simulation_lower(&(Simulation){network, never, NULL, 0}, STEPS);
  g_autoptr(GString) first = g_string_new(NULL), second = g_string_new(NULL);
  program_print(a->lowered->program, first);
  program_print(c->lowered->program, second);
  ck_assert_str_eq(first->str, second->str);
}
END_TEST

START_TEST(an_unshard_without_its_reshard_holds_the_group_as_long)
{
  g_autoptr(Simulated) a = execute(without), b = execute(unsharded);
  Seen seen = compare(a, b, is_reshard_after_forward);
  ck_assert_uint_eq(seen.times, STEPS);
  ck_assert_uint_gt(seen.higher, 100);
}
END_TEST

/* ---- any group, any way */

static const char *const groups[] = {"root", "layers.0", "layers.3"};
static const char *const ways[] = {"clone", "unsharded"};
static const char *const moments[] = {"end_of_forward", "end_of_backward", "end_of_step"};
static const char *const kinds[][3] = {
    {"accumulation.steps=1"},
    {"accumulation.steps=2", "accumulation.sync_every_step=true"},
    {"accumulation.steps=2", "fsdp.reshard_after_forward=true"},
    {"fsdp.reshard_after_forward=2"},
    {"mesh.shard=1"},
};

/* The group's full parameters are gone after each step, and the checker has nothing to say. */
static void
assert_passes_and_ends(const char *plan, const char *const *set)
{
  g_autoptr(Simulated) s = simulation_lower(&(Simulation){network, plan, set, 0}, STEPS);
  g_autoptr(GError) error = NULL;
  gboolean passes = program_check(s->lowered->program, &error);
  ck_assert_msg(passes, "%s with %s: %s", plan, set[0], error ? error->message : "");
  for (int step = 1; step <= STEPS; step++)
    ck_assert_msg(simulated_bytes_alive(s, step, CATEGORY_UNSHARDED_PARAMETER) == 0,
                  "%s with %s: full parameters are left after step %d", plan, set[0], step);
}

START_TEST(any_group_may_be_retained_any_way)
{
  for (guint i = 0; i < G_N_ELEMENTS(ways) * G_N_ELEMENTS(moments); i++)
    for (guint k = 0; k < G_N_ELEMENTS(kinds); k++) {
      g_autofree char *plan =
          g_strdup_printf(PLAN "{'group': '%s', 'as': '%s', 'until': '%s'}]}", groups[_i],
                          ways[i % G_N_ELEMENTS(ways)], moments[i / G_N_ELEMENTS(ways)]);
      assert_passes_and_ends(plan, kinds[k]);
    }
}
END_TEST

/* ---- what the report says */

static ReportModel *
report(const Simulated *s, RunInfo **info)
{
  *info = run_facts(s->scenario, s->lowered, 0);
  return report_model_new(s->recording, *info);
}

START_TEST(the_report_names_the_group_and_its_holder)
{
  g_autoptr(Simulated) s = execute(clones[_i].plan);
  RunInfo *info;
  ReportModel *model = report(s, &info);
  g_autofree char *json = summary_json(model);
  cJSON *document = cJSON_Parse(json);
  const cJSON *list = cJSON_GetObjectItemCaseSensitive(document, "retained");
  ck_assert_int_eq(cJSON_GetArraySize(list), 1);
  const cJSON *held = cJSON_GetArrayItem(list, 0);
  const cJSON *holder = cJSON_GetObjectItemCaseSensitive(held, "held_by");
  ck_assert_str_eq(cJSON_GetObjectItemCaseSensitive(held, "group")->valuestring, "layers.1");
  ck_assert_ptr_nonnull(strstr(holder->valuestring, clones[_i].as));
  ck_assert_ptr_nonnull(strstr(holder->valuestring, clones[_i].held_until));
  ck_assert_double_eq(cJSON_GetObjectItemCaseSensitive(held, "bytes")->valuedouble,
                      LAYER_BYTES - 2 * (512 - 128)); /* as asked for */
  g_autoptr(GString) text = g_string_new(NULL);
  summary_text(model, &(TextStyle){.ascii = TRUE}, text);
  ck_assert_ptr_nonnull(strstr(text->str, "layers.1"));
  ck_assert_ptr_nonnull(strstr(text->str, holder->valuestring));
  cJSON_Delete(document);
  report_model_free(model);
  run_info_free(info);
}
END_TEST

START_TEST(without_it_the_report_is_silent)
{
  g_autoptr(Simulated) s = execute(without);
  RunInfo *info;
  ReportModel *model = report(s, &info);
  g_autofree char *json = summary_json(model);
  cJSON *document = cJSON_Parse(json);
  ck_assert_int_eq(cJSON_GetArraySize(cJSON_GetObjectItemCaseSensitive(document, "retained")), 0);
  g_autoptr(GString) text = g_string_new(NULL);
  summary_text(model, &(TextStyle){.ascii = TRUE}, text);
  ck_assert_ptr_null(strstr(text->str, "retain"));
  cJSON_Delete(document);
  report_model_free(model);
  run_info_free(info);
}
END_TEST

/* ---- what is refused */

START_TEST(a_group_that_is_not_there_is_refused_with_those_that_are)
{
  static const char plan[] = PLAN "{'group': 'layers.4', 'until': 'end_of_step'}]}";
  g_autoptr(GError) error = NULL;
  g_autoptr(Simulated) s = simulation_try(&(Simulation){network, plan, NULL, 0}, 1, &error);
  ck_assert_ptr_null(s);
  ck_assert(test_error_says(error, "there is no group 'layers.4'"));
  ck_assert(test_error_says(error, "root, layers.0, layers.1, layers.2, layers.3"));
}
END_TEST

START_TEST(a_strategy_without_groups_cannot_retain_one)
{
  static const char plan[] = "{'strategy': 'ddp', 'precision': {'compute': 'fp32'},"
                             " 'batch': {'sequence_length': 64}, 'retain': [{'group': 'root'}]}";
  g_autoptr(GError) error = NULL;
  g_autoptr(Simulated) s = simulation_try(&(Simulation){network, plan, NULL, 0}, 1, &error);
  ck_assert_ptr_null(s);
  ck_assert(test_error_says(error, "key 'retain'"));
}
END_TEST

Suite *
test_suite(void)
{
  Suite *suite = suite_create("retain");
  TCase *tests = tcase_create("retain");
  int n = G_N_ELEMENTS(clones);
  tcase_add_loop_test(tests, a_clone_is_held_from_the_hook_to_its_release, 0, n);
  tcase_add_loop_test(tests, memory_is_higher_by_exactly_the_clone, 0, n);
  tcase_add_loop_test(tests, the_peak_is_higher_if_it_lies_in_between, 0, n);
  tcase_add_loop_test(tests, without_it_everything_is_as_before, 0, n);
  tcase_add_test(tests, an_unshard_without_its_reshard_holds_the_group_as_long);
  tcase_add_loop_test(tests, any_group_may_be_retained_any_way, 0, G_N_ELEMENTS(groups));
  tcase_add_loop_test(tests, the_report_names_the_group_and_its_holder, 0, n);
  tcase_add_test(tests, without_it_the_report_is_silent);
  tcase_add_test(tests, a_group_that_is_not_there_is_refused_with_those_that_are);
  tcase_add_test(tests, a_strategy_without_groups_cannot_retain_one);
  suite_add_tcase(suite, tests);
  return suite;
}
