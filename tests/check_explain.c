/* check_explain.c - why a peak is where it is: the tensors alive add up to it to the byte and are
 * freed where the recording frees them; what changes need is what runs with them say; the
 * allocation that a message means is the one that failed, of our own runs and of PyTorch's (2.11,
 * on a device of which the kernels do nothing).  Not pinned: how it is worded. */
#include "base/units.h"
#include "memory/caching_allocator.h"
#include "report/summary.h"
#include "scenario_fixture.h"
#include "search/explanation.h"
#include "search/oom_findings.h"
#include "search/oom_search.h"
#include "search/remedy_kinds.h"
#include "tap_main.h"
#include <string.h>

/* ---- runs ---- */

static const char network_format[] =
    "{\"model_type\":\"llama\",\"hidden_size\":1024,\"num_hidden_layers\":%d,"
    "\"num_attention_heads\":16,\"num_key_value_heads\":8,\"intermediate_size\":4096,"
    "\"vocab_size\":32000,\"tie_word_embeddings\":false,\"implementation\":{\"code\":"
    "\"torchtitan\",\"rms_norm\":\"fused\",\"rope\":\"complex\",\"attention\":\"flash\",\"loss\":"
    "\"fp32\"}}";

#define BATCH "\"batch\":{\"micro_batch\":2,\"sequence_length\":1024},"
#define MIXED "\"precision\":{\"parameters\":\"fp32\",\"compute\":\"bf16\",\"reduce\":\"fp32\"},"
#define FSDP2 "{\"strategy\":\"fsdp2\",\"mesh\":{\"shard\":8}," BATCH MIXED "\"fsdp\":{"

typedef struct {
  const char *name, *plan;
} Case;

static const Case cases[] = {
    {"fsdp2", FSDP2 "}}"},
    {"fsdp2, explicit prefetch", FSDP2
     "\"forward_prefetch\":2,\"backward_prefetch\":2,\"embedding\":\"own\",\"head\":\"own\"}}"},
    {"fsdp2, kept between forward and backward", FSDP2
     "\"reshard_after_forward\":false,\"blocks_per_group\":2},\"accumulation\":{\"steps\":2}}"},
    {"fsdp2, a clone", FSDP2 "},\"retain\":[{\"group\":\"layers.2\",\"until\":\"end_of_step\"}]}"},
    {"fsdp1", "{\"strategy\":\"fsdp1\",\"mesh\":{\"shard\":8}," BATCH MIXED
              "\"activation_checkpointing\":{\"policy\":\"full\"}}"},
    {"ddp", "{\"strategy\":\"ddp\",\"mesh\":{\"replicate\":8}," BATCH
            "\"precision\":{\"compute\":\"bf16\",\"autocast\":true}}"},
    {"zero1",
     "{\"strategy\":\"zero1\",\"mesh\":{\"shard\":8}," BATCH
     "\"precision\":{\"parameters\":\"bf16\"},\"accumulation\":{\"sync_every_step\":false}}"},
    {"zero2", "{\"strategy\":\"zero2\",\"mesh\":{\"shard\":8}," BATCH
              "\"precision\":{\"parameters\":\"bf16\"}}"},
    {"zero3", "{\"strategy\":\"zero3\",\"mesh\":{\"shard\":8}," BATCH
              "\"precision\":{\"parameters\":\"bf16\"}}"},
    {"one GPU", "{" BATCH "\"precision\":{\"parameters\":\"bf16\"},\"optimizer\":{"
                "\"implementation\":\"fused\"}}"},
};

G_DEFINE_AUTO_CLEANUP_CLEAR_FUNC(RunRequest, run_request_clear)
G_DEFINE_AUTO_CLEANUP_CLEAR_FUNC(RunResult, run_result_clear)

static RunRequest
request_of(const char *plan, int layers)
{
  g_autofree char *network = g_strdup_printf(network_format, layers);
  return (RunRequest){
      .inputs.network = fixture_text("net.json", network),
      .inputs.plan = fixture_text("plan.json", plan),
      .inputs.cluster = fixture_text("cluster.json", FIXTURE_CLUSTER),
      .steps = 3,
  };
}

static RunResult
simulate(const RunRequest *request)
{
  RunResult result = {0};
  g_autoptr(GError) error = NULL;
  ck_assert_msg(run_simulation(request, &result, &error), "%s", error ? error->message : "");
  return result;
}

static Explanation *
explain(const RunRequest *request, const RunResult *result, gboolean with_remedies)
{
  g_autoptr(GError) error = NULL;
  Explanation *explanation =
      explanation_new(result->recording, result->info, request, with_remedies, &error);
  ck_assert_msg(explanation != NULL, "%s", error ? error->message : "");
  return explanation;
}

/* ---- who is alive ---- */

static const MemoryEvent *
event_at(const Recording *recording, gint64 i)
{
  return &g_array_index(recording->memory, MemoryEvent, (guint) i);
}

static void
check_sums(const PeakStory *story)
{
  gint64 tensors = 0, rows = 0, categories = 0, fresh = 0;
  int count = 0;
  for (guint i = 0; i < story->tensors->len; i++) {
    const StoryTensor *tensor = &g_array_index(story->tensors, StoryTensor, i);
    tensors += tensor->bytes;
    ck_assert_uint_lt(tensor->row, story->rows->len);
  }
  for (guint i = 0; i < story->rows->len; i++) {
    const StoryRow *row = &g_array_index(story->rows, StoryRow, i);
    ck_assert(*row->name != '\0' && *row->holder != '\0' && *row->until != '\0');
    rows += row->bytes;
    fresh += row->new_bytes;
    count += row->count;
  }
  for (int i = 0; i < CATEGORY_COUNT; i++)
    categories += story->categories[i];
  ck_assert_int_eq(tensors, story->allocated);
  ck_assert_int_eq(rows, story->allocated);
  ck_assert_int_eq(categories, story->allocated);
  ck_assert_int_eq(count, (int) story->tensors->len);
  ck_assert_int_eq(fresh, story->came);
}

START_TEST(what_is_alive_adds_up_to_the_peak_to_the_byte)
{
  g_auto(RunRequest) request = request_of(cases[_i].plan, 4);
  g_auto(RunResult) result = simulate(&request);
  g_autoptr(Explanation) e = explain(&request, &result, FALSE);
  const PeakRecord *peak = &result.recording->peak;
  test_note("%s", cases[_i].name);
  ck_assert_int_eq(e->story->allocated, peak->allocated);
  ck_assert_int_eq(e->story->reserved, peak->reserved);
  ck_assert_mem_eq(e->story->categories, peak->categories, sizeof peak->categories);
  ck_assert_int_eq(e->story->place.step, peak->step);
  ck_assert_int_eq(e->story->place.phase, peak->phase);
  check_sums(e->story);
}
END_TEST

/* Whether a range of that name was open at an event, by the rows of the recording. */
static gboolean
is_in_range(const Recording *recording, gint64 event, RecordedRange kind, gint32 name)
{
  for (guint i = 0; i < recording->ranges->len; i++) {
    const Range *range = &g_array_index(recording->ranges, Range, i);
    const RangeEvents *events = &g_array_index(recording->range_events, RangeEvents, i);
    if (range->kind == kind && range->name == name && events->first <= event && event < events->end)
      return TRUE;
  }
  return FALSE;
}

START_TEST(tensors_are_freed_when_and_where_the_recording_frees_them)
{
  g_auto(RunRequest) request = request_of(cases[_i].plan, 4);
  g_auto(RunResult) result = simulate(&request);
  g_autoptr(Explanation) e = explain(&request, &result, FALSE);
  const Recording *r = result.recording;
  g_autofree gint64 *frees = g_new(gint64, r->memory->len + 1);
  memset(frees, -1, sizeof *frees * r->memory->len);
  for (guint i = 0; i < r->memory->len; i++)
    if (event_at(r, i)->requested_bytes < 0)
      frees[event_at(r, i)->allocation] = i;
  for (guint i = 0; i < e->story->tensors->len; i++) {
    const StoryTensor *t = &g_array_index(e->story->tensors, StoryTensor, i);
    ck_assert_uint_lt(t->birth, e->story->events);
    ck_assert_int_eq(t->death, frees[event_at(r, t->birth)->allocation]);
    ck_assert_int_eq(t->bytes, event_at(r, t->birth)->block_bytes);
    if (t->death < 0)
      continue;
    ck_assert_int_ge(t->death, e->story->events);
    ck_assert_int_eq(t->freed.step, event_at(r, t->death)->step);
    ck_assert(t->freed.phase < 0 || is_in_range(r, t->death, RECORDED_PHASE, t->freed.phase));
    ck_assert(t->freed.hook < 0 || is_in_range(r, t->death, RECORDED_HOOK, t->freed.hook));
  }
}
END_TEST

START_TEST(what_came_and_went_since_the_high_before_is_the_difference)
{
  g_auto(RunRequest) request = request_of(cases[_i].plan, 4);
  g_auto(RunResult) result = simulate(&request);
  g_autoptr(Explanation) e = explain(&request, &result, FALSE);
  const PeakStory *story = e->story;
  ck_assert_int_ge(story->high_event, 0);
  ck_assert_int_eq(story->high, event_at(result.recording, story->high_event)->allocated_after);
  ck_assert_int_eq(story->allocated - story->high, story->came - story->went);
  /* Memory was down by a hundredth in between. */
  ck_assert_int_le(story->valley, story->high - story->allocated / 100 + 1);
  gint64 least = story->allocated;
  for (gint64 i = story->high_event; i < story->events; i++)
    least = MIN(least, event_at(result.recording, i)->allocated_after);
  ck_assert_int_eq(story->valley, least);
}
END_TEST

START_TEST(cached_memory_by_stream_adds_up_to_what_is_reserved)
{
  g_auto(RunRequest) request = request_of(cases[_i].plan, 4);
  g_auto(RunResult) result = simulate(&request);
  g_autoptr(Explanation) e = explain(&request, &result, FALSE);
  gint64 sum = 0;
  ck_assert_uint_eq(e->story->cached->len, result.recording->streams->len);
  for (guint i = 0; i < e->story->cached->len; i++)
    sum += g_array_index(e->story->cached, gint64, i);
  ck_assert_int_eq(sum, e->story->reserved - e->story->allocated);
}
END_TEST

/* ---- gathered groups ---- */

/* How many groups are there for that. */
static int
count_roles(const PeakStory *story, GatheredRole role)
{
  int count = 0;
  for (guint i = 0; i < story->groups->len; i++)
    count += g_array_index(story->groups, GatheredGroup, i).role == role;
  return count;
}

/* The story of the first moment in step 2 that a tensor of that name is allocated at. */
static PeakStory *
story_at(const RunResult *result, const char *what, const char *module)
{
  const Recording *r = result->recording;
  for (guint i = 0; i < r->memory->len; i++) {
    const MemoryEvent *event = event_at(r, i);
    if (event->step == 2 && event->requested_bytes > 0 &&
        g_str_equal(report_text(r, event->what, ""), what) &&
        g_str_equal(report_text(r, event->module, ""), module))
      return peak_story_new(r, result->info, i + 1);
  }
  ck_abort_msg("no %s of %s", what, module);
}

static const GatheredGroup *
find_group(const PeakStory *story, const char *name, GatheredRole role)
{
  for (guint i = 0; i < story->groups->len; i++) {
    const GatheredGroup *group = &g_array_index(story->groups, GatheredGroup, i);
    if (g_str_equal(group->info->name, name) && group->role == role)
      return group;
  }
  return NULL;
}

/* A block's parameters: wq and wo of 1024 x 1024, wk and wv of 512 x 1024, three of 4096 x 1024 and
 * two norms, in bf16. */
#define BLOCK_BYTES (2 * ((gint64) 3 * 1024 * 1024 + 3 * 4096 * 1024 + 2 * 1024))

START_TEST(gathered_groups_are_told_apart_by_what_they_are_there_for)
{
  g_auto(RunRequest) request = request_of(cases[1].plan, 4);
  g_auto(RunResult) result = simulate(&request);
  /* While block 1 computes, two groups of blocks are on their way, as explicit prefetching asks. */
  g_autoptr(PeakStory) story = story_at(&result, "mul", "layers.1.feed_forward");
  const GatheredGroup *used = find_group(story, "layers.1", GATHERED_IN_USE);
  ck_assert_ptr_nonnull(used);
  ck_assert_int_eq(used->parameter_bytes, BLOCK_BYTES);
  ck_assert_ptr_nonnull(find_group(story, "layers.2", GATHERED_IN_FLIGHT));
  ck_assert_ptr_nonnull(find_group(story, "layers.3", GATHERED_IN_FLIGHT));
  ck_assert_int_eq(count_roles(story, GATHERED_IN_USE), 1);
}
END_TEST

START_TEST(a_group_that_is_not_resharded_is_kept_until_its_next_use)
{
  g_auto(RunRequest) request = request_of(cases[2].plan, 4);
  g_auto(RunResult) result = simulate(&request);
  g_autoptr(PeakStory) story = story_at(&result, "mul", "layers.3.feed_forward");
  const GatheredGroup *kept = find_group(story, "layers.0", GATHERED_BETWEEN);
  ck_assert_ptr_nonnull(kept);
  ck_assert_int_eq(kept->parameter_bytes, 2 * BLOCK_BYTES);
  ck_assert_ptr_nonnull(find_group(story, "layers.2", GATHERED_IN_USE));
}
END_TEST

START_TEST(a_retained_copy_is_a_group_of_its_own_that_names_its_holder)
{
  g_auto(RunRequest) request = request_of(cases[3].plan, 4);
  g_auto(RunResult) result = simulate(&request);
  g_autoptr(PeakStory) story = story_at(&result, "mul", "layers.3.feed_forward");
  const GatheredGroup *clone = find_group(story, "layers.2", GATHERED_RETAINED);
  ck_assert_ptr_nonnull(clone);
  ck_assert_int_eq(clone->parameter_bytes, BLOCK_BYTES);
  ck_assert_ptr_nonnull(strstr(clone->retained_by, "clone"));
}
END_TEST

/* ---- why it does not fit ---- */

/* A limit between what the construction has and what the plan needs, in parts of four. */
static gint64
limit_between(const RunRequest *request, int quarters)
{
  RunRequest endless = *request;
  endless.without_limit = TRUE;
  RunResult result = simulate(&endless);
  g_autoptr(ReportModel) model = report_model_new(result.recording, result.info);
  gint64 least = result.recording->construction_allocated;
  gint64 limit = least + (model->peak_allocated - least) / 4 * quarters;
  run_result_clear(&result);
  return limit;
}

START_TEST(where_memory_runs_out_the_story_is_of_that_moment)
{
  g_auto(RunRequest) request = request_of(cases[_i].plan, 4);
  request.memory_limit = limit_between(&request, 2);
  g_auto(RunResult) result = simulate(&request);
  const OutOfMemoryRecord *failure = &result.recording->out_of_memory;
  ck_assert(failure->happened);
  g_autoptr(Explanation) e = explain(&request, &result, FALSE);
  ck_assert(e->at_failure);
  ck_assert_int_eq(e->story->allocated, failure->allocated_bytes);
  ck_assert_int_eq(e->story->reserved, failure->reserved_bytes);
  check_sums(e->story);
  /* Without a limit it goes on, and says until when. */
  ck_assert(!e->endless.recording->out_of_memory.happened);
  ck_assert_int_gt(e->needs_reserved, request.memory_limit);
  guint freed_later = 0;
  for (guint i = 0; i < e->story->tensors->len; i++)
    freed_later += g_array_index(e->story->tensors, StoryTensor, i).death >= 0;
  ck_assert_uint_gt(freed_later, 0);
}
END_TEST

/* ---- changes ---- */

static const Case improvable[] = {
    {"everything kept", FSDP2 "\"forward_prefetch\":1,\"backward_prefetch\":1,"
                              "\"reshard_after_forward\":false,\"blocks_per_group\":2},"
                              "\"retain\":[{\"group\":\"layers.2\"}]}"},
    {"lists of groups",
     FSDP2 "\"groups\":[\"layers.*\",[\"norm\",\"output\"],\"tok_embeddings\"]}}"},
    {"ddp", "{\"strategy\":\"ddp\",\"mesh\":{\"replicate\":8}," BATCH
            "\"precision\":{\"compute\":\"bf16\",\"autocast\":true}}"},
    {"zero1",
     "{\"strategy\":\"zero1\",\"mesh\":{\"shard\":8}," BATCH
     "\"precision\":{\"parameters\":\"bf16\"},\"accumulation\":{\"sync_every_step\":false}}"},
};

/* The figures of a run with a remedy's assignments, and of one without a limit. */
static void
check_remedy(const RunRequest *base, const Remedy *remedy)
{
  RunRequest request = *base;
  request.inputs.assignments = remedy->assignments;
  RunResult result = simulate(&request);
  g_autoptr(ReportModel) model = report_model_new(result.recording, result.info);
  ck_assert_int_eq(remedy->outcome.verdict, model->verdict);
  ck_assert_int_eq(remedy->outcome.peak_allocated, model->peak_allocated);
  ck_assert_int_eq(remedy->outcome.peak_reserved, model->peak_reserved);
  ck_assert_int_eq(remedy->outcome.headroom, model->headroom);
  ck_assert_int_eq(remedy->outcome.time.step, model->time.step);
  request.without_limit = TRUE;
  RunResult endless = simulate(&request);
  g_autoptr(ReportModel) needs = report_model_new(endless.recording, endless.info);
  ck_assert_int_eq(remedy->needs_allocated, needs->peak_allocated);
  if (model->verdict != VERDICT_FITS)
    ck_assert_int_eq(remedy->needs_reserved, needs->peak_reserved);
  run_result_clear(&result);
  run_result_clear(&endless);
}

START_TEST(what_a_change_needs_is_what_a_run_with_it_says)
{
  g_auto(RunRequest) request = request_of(improvable[_i].plan, 4);
  request.memory_limit = limit_between(&request, 3);
  g_auto(RunResult) result = simulate(&request);
  g_autoptr(Explanation) e = explain(&request, &result, TRUE);
  ck_assert_int_eq(e->verdict, VERDICT_DOES_NOT_FIT);
  ck_assert_uint_gt(e->remedies->len, 3);
  for (guint i = 0; i < e->remedies->len; i++)
    check_remedy(&request, g_ptr_array_index(e->remedies, i));
}
END_TEST

START_TEST(changes_that_fit_come_first_the_fastest_first_then_by_what_they_need)
{
  g_auto(RunRequest) request = request_of(improvable[_i].plan, 4);
  request.memory_limit = limit_between(&request, 3);
  g_auto(RunResult) result = simulate(&request);
  g_autoptr(Explanation) e = explain(&request, &result, TRUE);
  for (guint i = 1; i < e->remedies->len; i++) {
    const Remedy *a = g_ptr_array_index(e->remedies, i - 1);
    const Remedy *b = g_ptr_array_index(e->remedies, i);
    gboolean a_fits = a->outcome.verdict != VERDICT_DOES_NOT_FIT;
    gboolean b_fits = b->outcome.verdict != VERDICT_DOES_NOT_FIT;
    ck_assert(a_fits || !b_fits);
    ck_assert(a->helps || !b->helps);
    if (a_fits && b_fits)
      ck_assert_int_le(a->outcome.time.step * b->outcome.tokens_per_step,
                       b->outcome.time.step * a->outcome.tokens_per_step);
    if (!a_fits && !b_fits && a->helps == b->helps)
      ck_assert_int_le(a->needs_reserved, b->needs_reserved);
  }
}
END_TEST

static const Remedy *
find_remedy(const Explanation *e, const char *assignment)
{
  for (guint i = 0; i < e->remedies->len; i++) {
    const Remedy *remedy = g_ptr_array_index(e->remedies, i);
    if (remedy->name != NULL && g_str_equal(remedy->assignments[0], assignment))
      return remedy;
  }
  return NULL;
}

START_TEST(each_kind_applies_only_to_plans_that_are_not_so_already)
{
  g_auto(RunRequest) request = request_of(improvable[0].plan, 4);
  RunResult result = simulate(&request);
  g_autoptr(Explanation) kept = explain(&request, &result, TRUE);
  static const char *const expected[] = {"fsdp.forward_prefetch=0",
                                         "fsdp.blocks_per_group=1",
                                         "fsdp.embedding=own",
                                         "fsdp.reshard_after_forward=true",
                                         "retain=null",
                                         "activation_checkpointing.policy=full",
                                         "batch.micro_batch=1",
                                         "allocator.expandable_segments=true",
                                         "optimizer.implementation=fused",
                                         "precision.compute=bf16",
                                         "fsdp.cpu_offload=true",
                                         "mesh.shard=16",
                                         "compile=per_block"};
  for (guint i = 0; i < G_N_ELEMENTS(expected); i++)
    ck_assert_msg(find_remedy(kept, expected[i]) != NULL, "%s", expected[i]);
  run_result_clear(&result);

  RunRequest plain = request_of(FSDP2 "\"embedding\":\"own\",\"head\":\"own\"},"
                                      "\"activation_checkpointing\":{\"policy\":\"full\"},"
                                      "\"optimizer\":{\"implementation\":\"fused\"}}",
                                4);
  RunResult fits = simulate(&plain);
  g_autoptr(Explanation) lean = explain(&plain, &fits, TRUE);
  static const char *const absent[] = {"fsdp.forward_prefetch=0",
                                       "fsdp.blocks_per_group=1",
                                       "fsdp.embedding=own",
                                       "retain=null",
                                       "activation_checkpointing.policy=full",
                                       "optimizer.implementation=fused"};
  for (guint i = 0; i < G_N_ELEMENTS(absent); i++)
    ck_assert_msg(find_remedy(lean, absent[i]) == NULL, "%s", absent[i]);
  run_result_clear(&fits);
  run_request_clear(&plain);
}
END_TEST

START_TEST(the_largest_group_is_split_into_two_that_hold_as_much)
{
  g_auto(RunRequest) request = request_of(FSDP2 "\"embedding\":\"root\"}}", 4);
  request.inputs.assignments = NULL;
  RunResult result = simulate(&request);
  g_autoptr(Scenario) scenario = scenario_new(&request.inputs, 0, NULL);
  /* The root's group, with both tables, is the largest: it cannot be split by lists of groups. */
  const RemedyPlan plan = {scenario->plan, scenario->network, result.info};
  g_autoptr(GPtrArray) none = g_ptr_array_new();
  remedy_split_largest(&plan, none);
  ck_assert_uint_eq(none->len, 0);
  run_result_clear(&result);

  /* Blocks of more parameters than the tables: 4 x 15.7 M in one block of blocks-family ops. */
  RunRequest own = request_of(FSDP2 "\"embedding\":\"own\",\"head\":\"own\"}}", 4);
  g_free(own.inputs.network.text);
  own.inputs.network.text =
      g_strdup("{\"family\":\"blocks\",\"hidden\":1024,\"vocabulary\":1000,\"blocks\":["
               "{\"repeat\":2,\"ops\":[{\"op\":\"linear\",\"name\":\"up\",\"out\":8192},"
               "{\"op\":\"linear\",\"name\":\"down\",\"out\":1024}]}]}");
  own.inputs.network.length = strlen(own.inputs.network.text);
  RunResult blocks = simulate(&own);
  g_autoptr(Explanation) e = explain(&own, &blocks, TRUE);
  const Remedy *split =
      find_remedy(e, "fsdp.groups=[\"embedding\",\"layers.*.up\",\"layers.*\",\"head\"]");
  ck_assert_ptr_nonnull(split);
  RunRequest changed = own;
  changed.inputs.assignments = split->assignments;
  RunResult after = simulate(&changed);
  gint64 before_sum = 0, after_sum = 0, largest = 0;
  for (guint i = 0; i < blocks.info->groups->len; i++)
    before_sum += g_array_index(blocks.info->groups, GroupInfo, i).parameters;
  for (guint i = 0; i < after.info->groups->len; i++) {
    const GroupInfo *group = &g_array_index(after.info->groups, GroupInfo, i);
    after_sum += group->parameters;
    largest = MAX(largest, group->parameters);
  }
  ck_assert_int_eq(after_sum, before_sum);
  ck_assert_int_eq(largest, (gint64) 8192 * 1024); /* half of a block */
  run_result_clear(&after);
  run_result_clear(&blocks);
  run_request_clear(&own);
}
END_TEST

START_TEST(where_no_single_change_is_enough_several_are_tried_together)
{
  g_auto(RunRequest) request = request_of(improvable[0].plan, 4);
  g_auto(RunResult) result = simulate(&request);
  g_autoptr(Explanation) alone = explain(&request, &result, TRUE);
  run_result_clear(&result);
  gint64 least = G_MAXINT64;
  for (guint i = 0; i < alone->remedies->len; i++) {
    const Remedy *remedy = g_ptr_array_index(alone->remedies, i);
    ck_assert(remedy->name != NULL); /* the plan fits: each alone */
    least = MIN(least, remedy->needs_allocated);
  }
  request.memory_limit = least - 8 * MIB;
  result = simulate(&request);
  g_autoptr(Explanation) e = explain(&request, &result, TRUE);
  const Remedy *best = g_ptr_array_index(e->remedies, 0);
  ck_assert_ptr_null(best->name);
  ck_assert_uint_ge(g_strv_length(best->assignments), 2);
  ck_assert_int_lt(best->needs_allocated, least);
}
END_TEST

/* ---- messages ---- */

/* c10::CachingAllocator's format_size. */
static char *
torch_size(gint64 bytes)
{
  if (bytes <= 1024)
    return g_strdup_printf("%" G_GINT64_FORMAT " bytes", bytes);
  if (bytes <= MIB)
    return g_strdup_printf("%.2f KiB", (double) bytes / 1024);
  if (bytes <= GIB)
    return g_strdup_printf("%.2f MiB", (double) bytes / MIB);
  return g_strdup_printf("%.2f GiB", (double) bytes / GIB);
}

/* What PyTorch would say of that failure. */
static char *
torch_message(const OutOfMemoryRecord *record)
{
  g_autofree char *tried = torch_size(record->segment_bytes);
  g_autofree char *capacity = torch_size(record->limit_bytes);
  g_autofree char *left = torch_size(record->limit_bytes - record->reserved_bytes);
  g_autofree char *allocated = torch_size(record->allocated_bytes);
  g_autofree char *idle = torch_size(record->reserved_bytes - record->allocated_bytes);
  return g_strdup_printf(
      "CUDA out of memory. Tried to allocate %s. GPU 0 has a total capacity of %s of which %s is "
      "free. Of the allocated memory %s is allocated by PyTorch, and %s is reserved by PyTorch but "
      "unallocated.",
      tried, capacity, left, allocated, idle);
}

static OomSearch *
search(const RunRequest *request, const char *text, OomMessage **message)
{
  g_autoptr(GError) error = NULL;
  *message = oom_message_parse(text, strlen(text), &error);
  ck_assert_msg(*message != NULL, "%s", error ? error->message : "");
  OomSearch *found = oom_search_new(request, *message, &error);
  ck_assert_msg(found != NULL, "%s", error ? error->message : "");
  return found;
}

/* The first candidate is the allocation at which the recording ends. */
static void
check_names_the_failure(const RunRequest *request, const RunResult *result, const char *text)
{
  g_autoptr(OomMessage) message = NULL;
  RunRequest anywhere = *request;
  anywhere.memory_limit = 0; /* what the message says is all that is known */
  g_autoptr(OomSearch) found = search(&anywhere, text, &message);
  const OutOfMemoryRecord *failure = &result->recording->out_of_memory;
  ck_assert_msg(found->candidates->len > 0, "%s", text);
  const OomCandidate *first = &g_array_index(found->candidates, OomCandidate, 0);
  ck_assert_msg(first->event == result->recording->memory->len, "%s: event %u of %u", text,
                first->event, result->recording->memory->len);
  ck_assert_int_eq(first->requested_bytes, failure->requested_bytes);
  ck_assert_int_eq(first->segment_bytes, failure->segment_bytes);
  ck_assert_int_eq(first->place.step, failure->step);
  ck_assert_str_eq(report_text(found->run.recording, first->what, ""),
                   report_text(result->recording, failure->what, ""));
}

START_TEST(the_message_of_our_own_failure_names_the_allocation_that_failed)
{
  g_auto(RunRequest) request = request_of(cases[_i].plan, 4);
  test_note("%s", cases[_i].name);
  for (int quarters = 1; quarters <= 3; quarters++) {
    request.memory_limit = limit_between(&request, quarters);
    RunResult result = simulate(&request);
    ck_assert(result.recording->out_of_memory.happened);
    g_autoptr(ReportModel) model = report_model_new(result.recording, result.info);
    g_autofree char *ours = report_model_out_of_memory(model);
    g_autofree char *theirs = torch_message(&result.recording->out_of_memory);
    check_names_the_failure(&request, &result, ours);
    check_names_the_failure(&request, &result, theirs);
    run_result_clear(&result);
  }
}
END_TEST

/* What PyTorch said, and what its own trace of the allocator has as the allocation that failed. */
typedef struct {
  int layers;
  const char *plan;
  const char *tried, *capacity, *left, *allocated, *idle;
  gint64 bytes;
  const char *what, *phase;
  int step;
} Observed;

#define PLAIN_BATCH "\"batch\":{\"micro_batch\":1,\"sequence_length\":1024},"
#define FUSED "\"optimizer\":{\"implementation\":\"fused\"},"

static const Observed observed[] = {
    {2,
     "{\"strategy\":\"fsdp2\",\"mesh\":{\"shard\":8}," PLAIN_BATCH MIXED FUSED
     "\"accumulation\":{\"steps\":1,\"sync_every_step\":false},\"fsdp\":{\"reshard_after_forward\":"
     "true}}",
     "32.00 MiB", "350.00 MiB", "24.00 MiB", "304.02 MiB", "21.98 MiB", 31461376,
     "all-gather output", "forward", 1},
    {2,
     "{\"strategy\":\"fsdp2\",\"mesh\":{\"shard\":8}," PLAIN_BATCH MIXED FUSED
     "\"accumulation\":{\"steps\":1,\"sync_every_step\":false},\"fsdp\":{\"reshard_after_forward\":"
     "true}}",
     "64.00 MiB", "420.00 MiB", "44.00 MiB", "330.42 MiB", "45.58 MiB", 65536000, "linear",
     "forward", 1},
    {2,
     "{\"strategy\":\"fsdp2\",\"mesh\":{\"shard\":8}," PLAIN_BATCH MIXED FUSED
     "\"accumulation\":{\"steps\":1,\"sync_every_step\":false},\"fsdp\":{\"reshard_after_forward\":"
     "true}}",
     "32.00 MiB", "600.00 MiB", "4.00 MiB", "456.42 MiB", "139.58 MiB", 33554432,
     "cuBLAS workspace", "backward", 1},
    {2,
     "{\"strategy\":\"fsdp2\",\"mesh\":{\"shard\":8}," PLAIN_BATCH MIXED FUSED
     "\"accumulation\":{\"steps\":1,\"sync_every_step\":false},\"fsdp\":{\"reshard_after_forward\":"
     "true}}",
     "64.00 MiB", "700.00 MiB", "60.00 MiB", "455.31 MiB", "184.69 MiB", 65536000, "linear",
     "forward", 2},
    {4,
     "{\"strategy\":\"ddp\",\"mesh\":{\"replicate\":8}," PLAIN_BATCH
     "\"precision\":{\"compute\":\"bf16\",\"autocast\":true},\"activation_checkpointing\":{"
     "\"policy\":\"full\"}}",
     "64.00 MiB", "1.27 GiB", "50.00 MiB", "1.19 GiB", "27.16 MiB", 65536000, "linear", "forward",
     1},
    {4,
     "{\"strategy\":\"ddp\",\"mesh\":{\"replicate\":8}," PLAIN_BATCH
     "\"precision\":{\"compute\":\"bf16\",\"autocast\":true},\"activation_checkpointing\":{"
     "\"policy\":\"full\"}}",
     "126.00 MiB", "1.76 GiB", "54.00 MiB", "1.63 GiB", "81.63 MiB", 131072000,
     "tok_embeddings.weight", "optimizer", 1},
    {4,
     "{\"strategy\":\"ddp\",\"mesh\":{\"replicate\":8}," PLAIN_BATCH
     "\"precision\":{\"compute\":\"bf16\",\"autocast\":true},\"activation_checkpointing\":{"
     "\"policy\":\"full\"}}",
     "126.00 MiB", "2.25 GiB", "24.00 MiB", "2.22 GiB", "5.06 MiB", 131072000, "output.weight",
     "optimizer", 1},
    {4,
     "{\"strategy\":\"fsdp1\",\"mesh\":{\"shard\":8}," PLAIN_BATCH MIXED FUSED
     "\"accumulation\":{\"steps\":1,\"sync_every_step\":false},\"fsdp\":{}}",
     "20.00 MiB", "450.00 MiB", "8.00 MiB", "428.55 MiB", "13.45 MiB", 8388608, "mul", "forward",
     1},
    {4,
     "{\"strategy\":\"fsdp1\",\"mesh\":{\"shard\":8}," PLAIN_BATCH MIXED FUSED
     "\"accumulation\":{\"steps\":1,\"sync_every_step\":false},\"fsdp\":{}}",
     "126.00 MiB", "600.00 MiB", "106.00 MiB", "473.05 MiB", "20.95 MiB", 131072000, "to_copy",
     "forward", 1},
    {6,
     "{\"strategy\":\"fsdp2\",\"mesh\":{\"shard\":8}," PLAIN_BATCH MIXED FUSED
     "\"accumulation\":{\"steps\":2,\"sync_every_step\":false},\"fsdp\":{\"reshard_after_forward\":"
     "false,\"forward_prefetch\":1,\"backward_prefetch\":1}}",
     "20.00 MiB", "700.00 MiB", "2.00 MiB", "590.60 MiB", "107.40 MiB", 8388608, "mul", "forward",
     1},
    {6,
     "{\"strategy\":\"fsdp2\",\"mesh\":{\"shard\":8}," PLAIN_BATCH MIXED FUSED
     "\"accumulation\":{\"steps\":2,\"sync_every_step\":false},\"fsdp\":{\"reshard_after_forward\":"
     "false,\"forward_prefetch\":1,\"backward_prefetch\":1}}",
     "126.00 MiB", "900.00 MiB", "2.00 MiB", "883.24 MiB", "14.76 MiB", 131072000, "log_softmax",
     "forward", 1},
};

START_TEST(the_message_of_pytorch_names_the_allocation_that_failed_in_its_trace)
{
  const Observed *o = &observed[_i];
  g_auto(RunRequest) request = request_of(o->plan, o->layers);
  g_autofree char *text = g_strdup_printf(
      "CUDA out of memory. Tried to allocate %s. GPU 0 has a total capacity of %s of which %s is "
      "free. Of the allocated memory %s is allocated by PyTorch, and %s is reserved by PyTorch but "
      "unallocated.",
      o->tried, o->capacity, o->left, o->allocated, o->idle);
  g_autoptr(OomMessage) message = NULL;
  g_autoptr(OomSearch) found = search(&request, text, &message);
  ck_assert_uint_gt(found->candidates->len, 1);
  const OomCandidate *first = &g_array_index(found->candidates, OomCandidate, 0);
  const Recording *recording = found->run.recording;
  ck_assert_int_eq(first->requested_bytes, o->bytes);
  ck_assert_str_eq(report_text(recording, first->what, ""), o->what);
  ck_assert_str_eq(report_text(recording, first->place.phase, ""), o->phase);
  ck_assert_int_eq(first->place.step, o->step);
}
END_TEST

/* Requests that become a segment: up to 1 MiB one of 2 MiB, below 10 MiB one of 20 MiB, else the
 * next multiple of 2 MiB. */
START_TEST(requests_are_rounded_as_the_allocator_asks_cuda_for_segments)
{
  static const struct {
    const char *tried, *requests;
  } sizes[] = {
      {"2.00 MiB", "at most 1 MiB"},
      {"20.00 MiB",
       "more than 1 MiB and less than 10 MiB, or more than 18.0 MiB and at most 20.0 MiB"},
      {"98.00 MiB", "more than 96.0 MiB and at most 98.0 MiB"},
      {"7.00 MiB", NULL},
      {"4.00 MiB", NULL},
  };
  for (guint i = 0; i < G_N_ELEMENTS(sizes); i++) {
    g_autofree char *text = g_strdup_printf("Tried to allocate %s", sizes[i].tried);
    g_autoptr(OomMessage) message = oom_message_parse(text, strlen(text), NULL);
    g_autofree char *requests = oom_requests(&message->tried);
    ck_assert_pstr_eq(requests, sizes[i].requests);
  }
}
END_TEST

static const struct {
  const char *text;
  const char *finds, *finds_not;
} reasons[] = {
    {"Tried to allocate 98.00 MiB. GPU 0 has a total capacity of 79.10 GiB of which 60.19 MiB is "
     "free. Of the allocated memory 75.99 GiB is allocated by PyTorch, and 1.09 GiB is reserved by "
     "PyTorch but unallocated.",
     "fragmented", "near_limit"},
    {"Tried to allocate 98.00 MiB. GPU 0 has a total capacity of 79.10 GiB of which 60.19 MiB is "
     "free. Of the allocated memory 77.99 GiB is allocated by PyTorch, and 9.00 MiB is reserved by "
     "PyTorch but unallocated.",
     "near_limit", "fragmented"},
    {"Tried to allocate 98.00 MiB. GPU 0 has a total capacity of 79.10 GiB of which 60.19 MiB is "
     "free. Process 12 has 40.00 GiB memory in use. Including non-PyTorch memory, this process has "
     "39.00 GiB memory in use. Of the allocated memory 37.00 GiB is allocated by PyTorch, and 9.00 "
     "MiB is reserved by PyTorch but unallocated.",
     "other_processes", "process_limit"},
    {"Tried to allocate 98.00 MiB. GPU 0 has a total capacity of 79.10 GiB of which 30.00 GiB is "
     "free. 40.00 GiB allowed; Of the allocated memory 39.95 GiB is allocated by PyTorch, and 9.00 "
     "MiB is reserved by PyTorch but unallocated.",
     "process_limit", "other_processes"},
    {"Tried to allocate 98.00 MiB. GPU 0 has a total capacity of 79.10 GiB of which 60.00 MiB is "
     "free. Including non-PyTorch memory, this process has 79.00 GiB memory in use. Of the "
     "allocated "
     "memory 70.00 GiB is allocated by PyTorch, and 9.00 MiB is reserved by PyTorch but "
     "unallocated.",
     "outside_pytorch", "unlisted"},
    {"Tried to allocate 98.00 MiB. GPU 0 has a total capacity of 79.10 GiB of which 60.00 MiB is "
     "free. Including non-PyTorch memory, this process has 50.00 GiB memory in use. Of the "
     "allocated "
     "memory 49.00 GiB is allocated by PyTorch, and 9.00 MiB is reserved by PyTorch but "
     "unallocated.",
     "unlisted", "other_processes"},
};

START_TEST(the_message_tells_reasons_apart)
{
  g_auto(RunRequest) request = request_of(cases[0].plan, 2);
  g_autoptr(OomMessage) message = NULL;
  g_autoptr(OomSearch) found = search(&request, reasons[_i].text, &message);
  g_autoptr(GArray) findings = oom_findings(message, found);
  gboolean finds = FALSE;
  for (guint i = 0; i < findings->len; i++) {
    const OomFinding *finding = &g_array_index(findings, OomFinding, i);
    finds |= g_str_equal(finding->name, reasons[_i].finds);
    ck_assert_str_ne(finding->name, reasons[_i].finds_not);
  }
  ck_assert(finds);
}
END_TEST

/* ---- the suite ---- */

Suite *
test_suite(void)
{
  Suite *suite = suite_create(__FILE__);
  TCase *story = tcase_create("story"), *changes = tcase_create("changes"),
        *messages = tcase_create("messages");
  tcase_add_loop_test(story, what_is_alive_adds_up_to_the_peak_to_the_byte, 0, G_N_ELEMENTS(cases));
  tcase_add_loop_test(story, tensors_are_freed_when_and_where_the_recording_frees_them, 0,
                      G_N_ELEMENTS(cases));
  tcase_add_loop_test(story, what_came_and_went_since_the_high_before_is_the_difference, 0,
                      G_N_ELEMENTS(cases));
  tcase_add_loop_test(story, cached_memory_by_stream_adds_up_to_what_is_reserved, 0,
                      G_N_ELEMENTS(cases));
  tcase_add_test(story, gathered_groups_are_told_apart_by_what_they_are_there_for);
  tcase_add_test(story, a_group_that_is_not_resharded_is_kept_until_its_next_use);
  tcase_add_test(story, a_retained_copy_is_a_group_of_its_own_that_names_its_holder);
  tcase_add_loop_test(story, where_memory_runs_out_the_story_is_of_that_moment, 0,
                      G_N_ELEMENTS(cases));
  tcase_add_loop_test(changes, what_a_change_needs_is_what_a_run_with_it_says, 0,
                      G_N_ELEMENTS(improvable));
  tcase_add_loop_test(changes, changes_that_fit_come_first_the_fastest_first_then_by_what_they_need,
                      0, G_N_ELEMENTS(improvable));
  tcase_add_test(changes, each_kind_applies_only_to_plans_that_are_not_so_already);
  tcase_add_test(changes, the_largest_group_is_split_into_two_that_hold_as_much);
  tcase_add_test(changes, where_no_single_change_is_enough_several_are_tried_together);
  tcase_add_loop_test(messages, the_message_of_our_own_failure_names_the_allocation_that_failed, 0,
                      G_N_ELEMENTS(cases));
  tcase_add_loop_test(messages,
                      the_message_of_pytorch_names_the_allocation_that_failed_in_its_trace, 0,
                      G_N_ELEMENTS(observed));
  tcase_add_test(messages, requests_are_rounded_as_the_allocator_asks_cuda_for_segments);
  tcase_add_loop_test(messages, the_message_tells_reasons_apart, 0, G_N_ELEMENTS(reasons));
  suite_add_tcase(suite, story);
  suite_add_tcase(suite, changes);
  suite_add_tcase(suite, messages);
  return suite;
}
