/* check_exported_trace.c - what the Chrome trace of a simulated run shows: under FSDP2 each group's
 * parameters are gathered before its forward and its backward, and its gradients are reduced when
 * they are all there; under every strategy it opens without complaints, counters reach the report's
 * peaks, and flows lead across waits. */
#include <string.h>

#include "report/summary_json.h"
#include "tap_main.h"
#include "traced_run.h"

/* Tracks of the trace. */
enum { DEVICE = 0, COMPUTE = 7 };

static const TracedCase fsdp2_cases[] = {
    {.plan = "fsdp2", .steps = 2},
    {.plan = "fsdp2-no-reshard", .steps = 2},
    {.plan = "fsdp2", .set = {"activation_checkpointing.policy=none"}, .steps = 2},
    {.plan = "fsdp2", .set = {"fsdp.blocks_per_group=2"}, .steps = 2},
    {.plan = "fsdp2", .set = {"accumulation.steps=2"}, .steps = 2},
    {.plan = "hsdp", .steps = 2},
};

static const TracedCase all_cases[] = {
    {.plan = "fsdp2", .steps = 3},
    {.plan = "fsdp2", .set = {"accumulation.steps=3"}, .steps = 2},
    {.plan = "fsdp2", .set = {"phases.evaluate.every=1", "phases.save.every=2"}, .steps = 3},
    {.plan = "fsdp2", .set = {"allocator.expandable_segments=true"}, .steps = 2},
    {.plan = "fsdp2", .steps = 2, .memory_limit = 110 << 20},
    {.plan = "hsdp", .steps = 2},
    {.plan = "fsdp1", .steps = 2},
    {.plan = "ddp", .steps = 2},
    {.plan = "zero1", .steps = 2},
    {.plan = "zero3", .steps = 2},
    {.plan = "internevo", .steps = 2},
    {.plan = "lora", .steps = 2},
};

static const TracedEvent *
event_at(const TracedRun *run, guint i)
{
  return &g_array_index(run->events, TracedEvent, i);
}

static gboolean
is(const TracedEvent *event, char type, const char *category)
{
  return event->type == type && g_str_equal(event->category, category);
}

/* ---- which step, phase and group ---- */

typedef struct {
  const TracedEvent *event;
  SimTime launched; /* when the call that launched it was done */
  int step;         /* from 1; 0: before the first */
  const char *phase;
  const char *group; /* NULL: none */
} Work;

/* "layers.1" of "layers.1.attention": the group with the longest path that the module lies under.
 */
static const char *
group_of(const RunInfo *info, const char *module)
{
  const char *found = NULL;
  gsize longest = 0;
  for (guint i = 0; i < info->groups->len; i++) {
    const GroupInfo *group = &g_array_index(info->groups, GroupInfo, i);
    for (guint k = 0; k < group->modules->len; k++) {
      const char *path = g_ptr_array_index(group->modules, k);
      gsize length = strlen(path);
      gboolean under = length == 0 || (g_str_has_prefix(module, path) &&
                                       (module[length] == '\0' || module[length] == '.'));
      if (under && (found == NULL || length > longest)) {
        found = group->name;
        longest = length;
      }
    }
  }
  return found;
}

static SimTime
done_of(const TracedEvent *call)
{
  const cJSON *done = cJSON_GetObjectItemCaseSensitive(call->arguments, "done");
  return done != NULL ? (SimTime) (done->valuedouble * 1000 + 0.5) : call->end;
}

/* The host was there at that moment, at the end rather than at the beginning. */
static gboolean
holds(const TracedEvent *range, SimTime time)
{
  return range->start < time && time <= range->end;
}

static void
locate(const TracedRun *run, GHashTable *launches, Work *work)
{
  const TracedEvent *event = work->event;
  gint64 correlation = traced_number(event, "correlation");
  guint call = GPOINTER_TO_UINT(g_hash_table_lookup(launches, &correlation));
  ck_assert_uint_gt(call, 0);
  work->launched = done_of(event_at(run, call - 1));
  work->phase = traced_text(event, "phase");
  for (guint i = 0; i < run->events->len; i++) {
    const TracedEvent *range = event_at(run, i);
    if (!is(range, 'X', "user_annotation") || !holds(range, work->launched))
      continue;
    if (g_str_has_prefix(range->name, "ProfilerStep#"))
      work->step = atoi(range->name + strlen("ProfilerStep#"));
    else if (work->phase[0] == '\0')
      work->phase = traced_text(range, "phase");
  }
  work->group = group_of(run->run.info, traced_text(event, "module"));
}

/* What ran on the device and lies in a module, by end. */
static GArray *
works_of(const TracedRun *run)
{
  GArray *works = g_array_new(FALSE, FALSE, sizeof(Work));
  g_autoptr(GHashTable) launches = g_hash_table_new_full(g_int64_hash, g_int64_equal, g_free, NULL);
  for (guint i = 0; i < run->events->len; i++) {
    gint64 correlation = traced_number(event_at(run, i), "correlation");
    if (is(event_at(run, i), 'X', "cuda_runtime"))
      g_hash_table_insert(launches, g_memdup2(&correlation, sizeof correlation),
                          GUINT_TO_POINTER(i + 1));
  }
  for (guint i = 0; i < run->events->len; i++) {
    Work work = {.event = event_at(run, i)};
    if (!is(work.event, 'X', "kernel") || traced_text(work.event, "module")[0] == '\0')
      continue;
    locate(run, launches, &work);
    if (work.step > 0 && work.group != NULL)
      g_array_append_val(works, work);
  }
  return works;
}

static gboolean
is_collective(const Work *work, const char *name)
{
  return g_str_equal(traced_text(work->event, "Collective name"), name);
}

static gboolean
is_computing(const Work *work)
{
  return work->event->thread == COMPUTE && traced_text(work->event, "Collective name")[0] == '\0';
}

/* ---- gathers and reductions ---- */

/* The last gather of the work's group that began before it. */
static const TracedEvent *
gather_before(const GArray *works, const Work *work)
{
  const TracedEvent *last = NULL;
  for (guint i = 0; i < works->len; i++) {
    const Work *gather = &g_array_index(works, Work, i);
    if (is_collective(gather, "_allgather_base") && g_str_equal(gather->group, work->group) &&
        gather->event->start < work->event->start &&
        (last == NULL || gather->event->start > last->start))
      last = gather->event;
  }
  return last;
}

START_TEST(each_group_is_gathered_before_its_forward_and_its_backward)
{
  g_autoptr(TracedRun) run = traced_run_new(&fsdp2_cases[_i]);
  g_autoptr(GArray) works = works_of(run);
  guint forward = 0, backward = 0;
  for (guint i = 0; i < works->len; i++) {
    const Work *work = &g_array_index(works, Work, i);
    gboolean is_forward = g_str_equal(work->phase, "forward");
    gboolean is_backward = g_str_equal(work->phase, "backward");
    if (!is_computing(work) || (!is_forward && !is_backward))
      continue;
    const TracedEvent *gather = gather_before(works, work);
    ck_assert_msg(gather != NULL && gather->end <= work->event->start,
                  "%s of %s in %s begins before its parameters are there", work->event->name,
                  work->group, work->phase);
    forward += is_forward, backward += is_backward;
  }
  ck_assert_uint_gt(forward, 0);
  ck_assert_uint_gt(backward, forward); /* two gradients for each product */
}
END_TEST

/* Parameters that were resharded after forward are gathered twice in a micro-batch, others once. */
START_TEST(a_group_is_gathered_as_often_as_it_is_resharded)
{
  static const struct {
    TracedCase c;
    guint gathers; /* of the group "layers.1" in a step */
  } expected[] = {
      {{.plan = "fsdp2", .steps = 2}, 2},
      {{.plan = "fsdp2-no-reshard", .steps = 2}, 1},
      {{.plan = "fsdp2", .set = {"accumulation.steps=2"}, .steps = 2}, 4},
  };
  g_autoptr(TracedRun) run = traced_run_new(&expected[_i].c);
  g_autoptr(GArray) works = works_of(run);
  guint gathers = 0;
  for (guint i = 0; i < works->len; i++) {
    const Work *work = &g_array_index(works, Work, i);
    gathers += work->step == 2 && is_collective(work, "_allgather_base") &&
               g_str_equal(work->group, "layers.1");
  }
  ck_assert_uint_eq(gathers, expected[_i].gathers);
}
END_TEST

/* Backward work of the group, of that step, launched before or after the reduction: the last end;
 * 0: there is none.  Copies out of the next gather are on behalf of the module that was last, and
 * make no gradients. */
static SimTime
gradients_done(const GArray *works, const Work *reduction, gboolean before)
{
  SimTime done = 0;
  for (guint i = 0; i < works->len; i++) {
    const Work *work = &g_array_index(works, Work, i);
    if (is_computing(work) && !g_str_equal(work->event->name, "split_with_sizes_copy") &&
        work->step == reduction->step && g_str_equal(work->phase, "backward") &&
        g_str_equal(work->group, reduction->group) &&
        (work->launched <= reduction->launched) == before)
      done = MAX(done, work->event->end);
  }
  return done;
}

START_TEST(each_groups_gradients_are_reduced_when_they_are_there)
{
  const TracedCase *c = &fsdp2_cases[_i];
  g_autoptr(TracedRun) run = traced_run_new(c);
  g_autoptr(GArray) works = works_of(run);

  guint reductions = 0;
  for (guint i = 0; i < works->len; i++) {
    const Work *work = &g_array_index(works, Work, i);
    if (!is_collective(work, "_reduce_scatter_base"))
      continue;
    SimTime done = gradients_done(works, work, TRUE);
    ck_assert_msg(done > 0 && done <= work->event->start,
                  "gradients of %s are reduced before they are there", work->group);
    reductions++;
  }
  guint groups = run->run.info->groups->len;
  ck_assert_uint_gt(reductions, 0);
  ck_assert_uint_eq(reductions % (groups * (guint) c->steps), 0);
}
END_TEST

/* Behind a group's last reduction in a step nothing makes gradients of it. */
START_TEST(no_gradient_is_left_behind)
{
  const TracedCase *c = &fsdp2_cases[_i];
  g_autoptr(TracedRun) run = traced_run_new(c);
  g_autoptr(GArray) works = works_of(run);
  const GArray *groups = run->run.info->groups;
  for (guint k = 0; k < groups->len; k++) {
    const Work *last = NULL;
    for (guint i = 0; i < works->len; i++) {
      const Work *work = &g_array_index(works, Work, i);
      if (work->step == c->steps && is_collective(work, "_reduce_scatter_base") &&
          g_str_equal(work->group, g_array_index(groups, GroupInfo, k).name))
        last = work;
    }
    ck_assert_ptr_nonnull(last);
    ck_assert_int_eq(gradients_done(works, last, FALSE), 0);
  }
}
END_TEST

/* ---- memory ---- */

static gint64
counter_maximum(const TracedRun *run, const char *name, SimTime from)
{
  gint64 most = 0;
  for (guint i = 0; i < run->events->len; i++) {
    const TracedEvent *event = event_at(run, i);
    if (event->type == 'C' && g_str_equal(event->name, name) && event->start >= from)
      most = MAX(most, traced_number(event, "bytes"));
  }
  return most;
}

static gint64
reported(const cJSON *report, const char *key)
{
  const cJSON *memory = cJSON_GetObjectItemCaseSensitive(report, "memory");
  const cJSON *value = cJSON_GetObjectItemCaseSensitive(memory, key);
  ck_assert(cJSON_IsNumber(value));
  return (gint64) value->valuedouble;
}

START_TEST(counters_reach_the_reports_peaks_to_the_byte)
{
  g_autoptr(TracedRun) run = traced_run_new(&all_cases[_i]);
  g_autoptr(ReportModel) model = report_model_new(run->run.recording, run->run.info);
  g_autofree char *json = summary_json(model);
  cJSON *report = cJSON_Parse(json);
  SimTime first = g_array_index(run->run.recording->steps, StepRecord, 0).start;
  ck_assert_int_eq(counter_maximum(run, "allocated", first),
                   reported(report, "peak_allocated_bytes"));
  ck_assert_int_eq(counter_maximum(run, "reserved", 0), reported(report, "peak_reserved_bytes"));
  cJSON_Delete(report);
}
END_TEST

/* The profiler's own events say the same as the counters, and come back to what is left. */
START_TEST(memory_events_add_up)
{
  g_autoptr(TracedRun) run = traced_run_new(&all_cases[_i]);
  gint64 sum = 0;
  guint events = 0;
  for (guint i = 0; i < run->events->len; i++) {
    const TracedEvent *event = event_at(run, i);
    if (!is(event, 'i', "cpu_instant_event") || !g_str_equal(event->name, "[memory]"))
      continue;
    const cJSON *bytes = cJSON_GetObjectItemCaseSensitive(event->arguments, "Bytes");
    sum += (gint64) bytes->valuedouble;
    ck_assert_int_eq(traced_number(event, "Total Allocated"), sum);
    ck_assert_int_ge(traced_number(event, "Total Reserved"), sum);
    ck_assert_int_eq(traced_number(event, "Device Type"), 1);
    events++;
  }
  ck_assert_uint_eq(events, run->run.recording->memory->len);
}
END_TEST

/* ---- how it is drawn ---- */

START_TEST(perfetto_has_nothing_to_complain_of)
{
  g_autoptr(TracedRun) run = traced_run_new(&all_cases[_i]);
  const Recording *recording = run->run.recording;
  guint launched = 0;
  for (guint i = 0; i < recording->spans->len; i++) {
    const Span *span = &g_array_index(recording->spans, Span, i);
    launched += span->kind <= SPAN_COLLECTIVE && span->issued > 0;
  }
  ck_assert_uint_eq(traced_flows_between(run->events, "ac2g", NULL, NULL), launched);
}
END_TEST

/* With a slow network compute waits for parameters: what copies them out begins when they are
 * there, and a flow says so. */
START_TEST(flows_lead_from_a_gather_to_what_waited_for_it)
{
  g_autoptr(TracedRun) run = traced_run_new(&(TracedCase){.plan = "fsdp2", .steps = 2});
  guint waited = 0;
  for (guint i = 0; i < run->run.recording->waits->len; i++) {
    const Wait *wait = &g_array_index(run->run.recording->waits, Wait, i);
    const char *stream = g_ptr_array_index(run->run.recording->streams, wait->stream);
    const char *source = g_ptr_array_index(run->run.recording->streams, wait->source);
    waited += g_str_equal(stream, "compute") && g_str_equal(source, "all_gather");
  }
  ck_assert_uint_gt(waited, 0);
  ck_assert_uint_eq(
      traced_flows_between(run->events, "wait", "ncclDevKernel_AllGather", "split_with_sizes_copy"),
      waited);
  ck_assert_uint_gt(
      traced_flows_between(run->events, "wait", "chunk_cat", "ncclDevKernel_ReduceScatter"), 0);
}
END_TEST

/* ZeRO-3 synchronizes streams, FSDP1's rate limiter events. */
START_TEST(flows_lead_to_the_host_where_it_waited)
{
  static const struct {
    TracedCase c;
    const char *call, *wait;
  } expected[] = {
      {{.plan = "zero3", .steps = 2}, "cudaStreamSynchronize", "Stream Sync"},
      {{.plan = "fsdp1", .set = {"batch.micro_batch=16", "batch.sequence_length=4096"}, .steps = 3},
       "cudaEventSynchronize",
       "Event Sync"},
  };
  g_autoptr(TracedRun) run = traced_run_new(&expected[_i].c);
  guint calls = 0;
  for (guint i = 0; i < run->events->len; i++)
    calls += is(event_at(run, i), 'X', "cuda_runtime") &&
             g_str_equal(event_at(run, i)->name, expected[_i].call);
  ck_assert_uint_gt(calls, 0);
  ck_assert_uint_eq(traced_flows_between(run->events, "wait", NULL, expected[_i].wait), calls);
}
END_TEST

/* A wait of a stream lies between its works, and what it names was recorded before. */
START_TEST(a_waiting_stream_does_nothing)
{
  g_autoptr(TracedRun) run = traced_run_new(&(TracedCase){.plan = "fsdp2", .steps = 1});
  guint waits = 0;
  for (guint i = 0; i < run->events->len; i++) {
    const TracedEvent *wait = event_at(run, i);
    if (!is(wait, 'X', "cuda_sync") || wait->process != DEVICE)
      continue;
    waits++;
    gint64 record = traced_number(wait, "wait_on_cuda_event_record_corr_id");
    gboolean found = FALSE;
    ck_assert_int_ne(traced_number(wait, "wait_on_stream"), wait->thread);
    ck_assert_int_eq(traced_number(wait, "stream"), wait->thread);
    for (guint k = 0; k < run->events->len; k++) {
      const TracedEvent *other = event_at(run, k);
      if (is(other, 'X', "cuda_runtime") && traced_number(other, "correlation") == record) {
        ck_assert_str_eq(other->name, "cudaEventRecord");
        ck_assert_int_le(other->end, wait->end);
        found = TRUE;
      }
      if (is(other, 'X', "kernel") && other->thread == wait->thread)
        ck_assert(other->end <= wait->start || other->start >= wait->end);
    }
    ck_assert(found);
  }
  ck_assert_uint_eq(waits, run->run.recording->waits->len);
}
END_TEST

/* An all-gather over 8 ranks of n bf16 elements in all takes an eighth of them in. */
START_TEST(collectives_say_what_they_move)
{
  g_autoptr(TracedRun) run = traced_run_new(&(TracedCase){.plan = "fsdp2", .steps = 1});
  guint gathers = 0;
  for (guint i = 0; i < run->events->len; i++) {
    const TracedEvent *event = event_at(run, i);
    if (!is(event, 'X', "kernel") ||
        !g_str_equal(traced_text(event, "Collective name"), "_allgather_base"))
      continue;
    gathers++;
    ck_assert_int_eq(traced_number(event, "Group size"), 8);
    ck_assert_str_eq(traced_text(event, "dtype"), "BFloat16");
    ck_assert_int_eq(traced_number(event, "Out msg nelems") * 2, traced_number(event, "bytes"));
    ck_assert_int_eq(traced_number(event, "In msg nelems") * 8,
                     traced_number(event, "Out msg nelems"));
    ck_assert_str_eq(traced_text(event, "Process Group Ranks"), "[0, 1, 2, 3, 4, 5, 6, 7]");
  }
  ck_assert_uint_gt(gathers, 0);
}
END_TEST

Suite *
test_suite(void)
{
  Suite *suite = suite_create("exported trace");
  TCase *tests = tcase_create("trace");
  int fsdp2 = G_N_ELEMENTS(fsdp2_cases), all = G_N_ELEMENTS(all_cases);
  tcase_add_loop_test(tests, each_group_is_gathered_before_its_forward_and_its_backward, 0, fsdp2);
  tcase_add_loop_test(tests, a_group_is_gathered_as_often_as_it_is_resharded, 0, 3);
  tcase_add_loop_test(tests, each_groups_gradients_are_reduced_when_they_are_there, 0, fsdp2);
  tcase_add_loop_test(tests, no_gradient_is_left_behind, 0, fsdp2);
  tcase_add_loop_test(tests, counters_reach_the_reports_peaks_to_the_byte, 0, all);
  tcase_add_loop_test(tests, memory_events_add_up, 0, all);
  tcase_add_loop_test(tests, perfetto_has_nothing_to_complain_of, 0, all);
  tcase_add_test(tests, flows_lead_from_a_gather_to_what_waited_for_it);
  tcase_add_loop_test(tests, flows_lead_to_the_host_where_it_waited, 0, 2);
  tcase_add_test(tests, a_waiting_stream_does_nothing);
  tcase_add_test(tests, collectives_say_what_they_move);
  suite_add_tcase(suite, tests);
  return suite;
}
