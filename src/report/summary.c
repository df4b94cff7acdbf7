/* summary.c - the verdict, the peak, the steps and their phases: a ReportModel from a Recording. */
#include "report/summary.h"
#include "report/block_passes.h"
#include "report/summary_parts.h"
#include <string.h>

static void
step_clear(gpointer data)
{
  g_array_unref(((StepSummary *) data)->phases);
}

static void
module_clear(gpointer data)
{
  g_free(((ModuleBytes *) data)->module);
}

static GArray *
phases_of_step(const Recording *recording, int step)
{
  GArray *phases = g_array_new(FALSE, TRUE, sizeof(PhaseSummary));
  for (guint i = 0; i < recording->ranges->len; i++) {
    const Range *range = &g_array_index(recording->ranges, Range, i);
    if (range->kind != RECORDED_PHASE || range->step != step ||
        recording_is_beyond(recording, (gint32) i))
      continue;
    PhaseSummary phase = {
        .name = recording_text(recording, range->name),
        .micro_batch = range->micro_batch,
        .start = range->start,
        .end = range->end,
        .peak_allocated = range->peak_allocated,
        .peak_reserved = range->peak_reserved,
        .end_allocated = range->end_allocated,
    };
    g_array_append_val(phases, phase);
  }
  return phases;
}

static gboolean
is_complete(const ReportModel *model, const StepRecord *step)
{
  const Recording *recording = model->recording;
  const OutOfMemoryRecord *oom = &recording->out_of_memory;
  const Failure *failure = model->info->failure;
  for (guint i = 0; i < recording->beyond->len; i++) {
    gint32 range = g_array_index(recording->beyond, BeyondRecord, i).range;
    if (g_array_index(recording->ranges, Range, range).step == step->index)
      return TRUE; /* it was over by then */
  }
  return !recording->stuck && !(oom->happened && oom->step == step->index) &&
         !(failure != NULL && failure->spec.step <= step->index);
}

static const PhaseInfo *
find_phase_info(const RunInfo *info, const char *name)
{
  for (guint i = 0; i < info->phases->len; i++) {
    const PhaseInfo *phase = &g_array_index(info->phases, PhaseInfo, i);
    if (g_str_equal(phase->name, name))
      return phase;
  }
  return NULL;
}

/* Memory ran out, or the host waits for ever: in the last one, if it was there already. */
static gboolean
is_complete_beyond(const Recording *recording, guint i, const Range *range)
{
  const OutOfMemoryRecord *oom = &recording->out_of_memory;
  gboolean ends = (oom->happened && oom->step == range->step) || recording->stuck;
  return i + 1 < recording->beyond->len || !ends;
}

/* The construction as a phase, until the host goes on. */
static void
collect_initialization(ReportModel *model)
{
  const Recording *recording = model->recording;
  BeyondSummary initialize = {
      .name = "initialize",
      .complete = recording->construction_peak_reserved <= recording->capacity_bytes,
      .peak_allocated = recording->construction_peak_allocated,
      .peak_reserved = recording->construction_peak_reserved,
      .end_allocated = recording->construction_allocated,
  };
  if (recording->beyond->len > 0)
    initialize.duration = g_array_index(recording->beyond, BeyondRecord, 0).start;
  if (recording->steps->len > 0)
    initialize.duration = MIN(g_array_index(recording->steps, StepRecord, 0).start,
                              initialize.duration > 0 ? initialize.duration : G_MAXINT64);
  model->peak_reserved = MAX(model->peak_reserved, initialize.peak_reserved);
  g_array_append_val(model->beyond, initialize);
}

static void
collect_beyond(ReportModel *model)
{
  const Recording *recording = model->recording;
  if (model->info->initializes)
    collect_initialization(model);
  for (guint i = 0; i < recording->beyond->len; i++) {
    const BeyondRecord *record = &g_array_index(recording->beyond, BeyondRecord, i);
    const Range *range = &g_array_index(recording->ranges, Range, record->range);
    BeyondSummary beyond = {
        .name = recording_text(recording, range->name),
        .after_step = range->step,
        .complete = is_complete_beyond(recording, i, range),
        .start = record->start,
        .duration = record->end - record->start,
        .start_allocated = range->start_allocated,
        .peak_allocated = range->peak_allocated,
        .peak_reserved = range->peak_reserved,
        .end_allocated = range->end_allocated,
    };
    beyond.info = find_phase_info(model->info, beyond.name);
    model->peak_reserved = MAX(model->peak_reserved, beyond.peak_reserved);
    g_array_append_val(model->beyond, beyond);
  }
}

static void
collect_steps(ReportModel *model, int chosen)
{
  const Recording *recording = model->recording;
  for (guint i = 0; i < recording->steps->len; i++) {
    const StepRecord *record = &g_array_index(recording->steps, StepRecord, i);
    StepSummary step = {
        .index = record->index,
        .complete = is_complete(model, record),
        .start = record->end - recording_step_duration(recording, i),
        .duration = recording_step_duration(recording, i),
        .peak_allocated = record->peak_allocated,
        .peak_reserved = record->peak_reserved,
        .allocator_retries = record->allocator_retries,
        .phases = phases_of_step(recording, record->index),
    };
    if (step.complete && (chosen == 0 || chosen == step.index))
      model->last_step = (int) i;
    model->allocator_retries += step.allocator_retries;
    model->peak_reserved = MAX(model->peak_reserved, step.peak_reserved);
    g_array_append_val(model->steps, step);
  }
}

static int
compare_module_bytes(gconstpointer a, gconstpointer b)
{
  const ModuleBytes *x = a, *y = b;
  if (x->bytes != y->bytes)
    return x->bytes > y->bytes ? -1 : 1;
  return strcmp(x->module, y->module);
}

static void
sum_modules_at_peak(ReportModel *model)
{
  const GArray *live = model->recording->peak.live;
  g_autoptr(GHashTable) positions = g_hash_table_new(g_str_hash, g_str_equal);
  for (guint i = 0; live && i < live->len; i++) {
    const LiveTensor *tensor = &g_array_index(live, LiveTensor, i);
    const char *path = tensor->module < 0 ? "" : recording_text(model->recording, tensor->module);
    g_autofree char *block = g_strndup(path, block_path_length(path));
    gpointer found;
    if (g_hash_table_lookup_extended(positions, block, NULL, &found)) {
      g_array_index(model->modules_at_peak, ModuleBytes, GPOINTER_TO_UINT(found)).bytes +=
          tensor->bytes;
      continue;
    }
    ModuleBytes entry = {g_steal_pointer(&block), tensor->bytes};
    g_hash_table_insert(positions, entry.module, GUINT_TO_POINTER(model->modules_at_peak->len));
    g_array_append_val(model->modules_at_peak, entry);
  }
  g_array_sort(model->modules_at_peak, compare_module_bytes);
}

static Verdict
judge(const ReportModel *model)
{
  const Recording *recording = model->recording;
  if (recording->out_of_memory.happened || model->info->rank_without_room >= 0)
    return VERDICT_DOES_NOT_FIT;
  if (model->info->initializes && recording->construction_peak_reserved > recording->capacity_bytes)
    return VERDICT_DOES_NOT_FIT;
  return model->allocator_retries > 0 ? VERDICT_FITS_WITH_RETRIES : VERDICT_FITS;
}

static void
collect_warnings(ReportModel *model)
{
  const RunInfo *info = model->info;
  if (model->recording->stuck)
    g_ptr_array_add(model->warnings, g_strdup_printf("stuck: %s", model->recording->stuck));
  if (model->recording->out_of_memory.happened && model->recording->out_of_memory.step == 0 &&
      info->strategy != NULL && info->shard > 1)
    g_ptr_array_add(model->warnings,
                    g_strdup("memory runs out while the model is built: phases.initialize and"
                             " DeepSpeed's zero_init have other ways"));
  if (info->rank_without_room >= 0)
    g_ptr_array_add(model->warnings,
                    g_strdup_printf("rank %d runs out of memory; these figures are of rank %d",
                                    info->rank_without_room, info->rank));
  for (guint i = 0; i < info->retained->len; i++) {
    const RetainedInfo *retained = &g_array_index(info->retained, RetainedInfo, i);
    g_autofree char *bytes = format_bytes(retained->bytes);
    g_ptr_array_add(model->warnings,
                    g_strdup_printf("%s of full parameters of %s stay in memory: %s", bytes,
                                    retained->group, retained->held_by));
  }
  for (guint i = 0; i < info->warnings->len; i++)
    g_ptr_array_add(model->warnings, g_strdup(g_ptr_array_index(info->warnings, i)));
}

/* Of a recording without steps and without a construction: memory as it was measured. */
static gint64
highest_reserved(const Recording *recording)
{
  gint64 highest = recording->peak.reserved;
  for (guint i = 0; i < recording->memory->len; i++)
    highest = MAX(highest, g_array_index(recording->memory, MemoryEvent, i).reserved_after);
  return highest;
}

ReportModel *
report_model_new(const Recording *recording, const RunInfo *info)
{
  return report_model_of_step(recording, info, 0);
}

ReportModel *
report_model_of_step(const Recording *recording, const RunInfo *info, int step)
{
  ReportModel *model = g_new0(ReportModel, 1);
  model->recording = recording;
  model->info = info;
  model->last_step = -1;
  model->steps = g_array_new(FALSE, TRUE, sizeof(StepSummary));
  g_array_set_clear_func(model->steps, step_clear);
  model->beyond = g_array_new(FALSE, TRUE, sizeof(BeyondSummary));
  model->modules_at_peak = g_array_new(FALSE, TRUE, sizeof(ModuleBytes));
  g_array_set_clear_func(model->modules_at_peak, module_clear);
  model->communication = g_array_new(FALSE, TRUE, sizeof(CommunicationSummary));
  model->groups = g_array_new(FALSE, TRUE, sizeof(GroupSummary));
  model->warnings = g_ptr_array_new_with_free_func(g_free);

  model->peak_allocated = MAX(recording->peak.allocated, recording->construction_allocated);
  model->peak_reserved = recording->construction_reserved;
  model->is_simulated = info->model != NULL;
  model->has_memory = model->peak_allocated > 0 || recording->out_of_memory.happened;
  if (recording->steps->len == 0 && recording->construction_reserved == 0)
    model->peak_reserved = highest_reserved(recording);
  collect_steps(model, step);
  collect_beyond(model);
  model->headroom = recording->capacity_bytes - model->peak_reserved;
  model->verdict = judge(model);
  sum_modules_at_peak(model);
  summary_time(model);
  summary_groups(model);
  collect_warnings(model);
  return model;
}

void
report_model_free(ReportModel *model)
{
  if (!model)
    return;
  g_array_unref(model->steps);
  g_array_unref(model->beyond);
  g_array_unref(model->modules_at_peak);
  g_array_unref(model->communication);
  g_array_unref(model->groups);
  critical_path_free(model->path);
  g_ptr_array_unref(model->warnings);
  g_free(model);
}

const char *
report_verdict_name(Verdict verdict)
{
  static const char *const names[] = {
      [VERDICT_FITS] = "fits",
      [VERDICT_FITS_WITH_RETRIES] = "fits_with_retries",
      [VERDICT_DOES_NOT_FIT] = "does_not_fit",
  };
  return names[verdict];
}

const char *
report_bound_name(Bound bound)
{
  static const char *const names[] = {
      [BOUND_COMPUTE] = "compute",
      [BOUND_COMMUNICATION] = "communication",
      [BOUND_RANKS] = "ranks",
      [BOUND_HOST] = "host",
  };
  return names[bound];
}

const StepSummary *
report_model_last_step(const ReportModel *model)
{
  return model->last_step < 0 ? NULL
                              : &g_array_index(model->steps, StepSummary, (guint) model->last_step);
}

const char *
report_text(const Recording *recording, gint32 id, const char *otherwise)
{
  const char *text = id < 0 ? NULL : recording_text(recording, id);
  return text && *text ? text : otherwise;
}

/* A measured recording need not say in which phase anything happened. */
static gboolean
has_phases(const Recording *recording)
{
  for (guint i = 0; i < recording->ranges->len; i++)
    if (g_array_index(recording->ranges, Range, i).kind == RECORDED_PHASE)
      return TRUE;
  return FALSE;
}

gboolean
report_model_knows_place(const ReportModel *model)
{
  const PeakRecord *peak = &model->recording->peak;
  return model->has_memory && (model->is_simulated || peak->step > 0 || peak->phase >= 0);
}

void
report_append_place(const Recording *recording, int step, gint32 phase, gint32 module, GString *out)
{
  /* A measured run knows of none, nor of what lies outside of the allocator. */
  gboolean has_construction = recording->construction_allocated > 0 || recording->steps->len > 0 ||
                              recording->outside_allocator_bytes > 0;
  if (step > 0 && phase < 0 && !has_phases(recording))
    g_string_append_printf(out, "step %d", step);
  else if (step > 0)
    g_string_append_printf(out, "step %d, %s", step,
                           report_text(recording, phase, "between phases"));
  else
    g_string_append(
        out, report_text(recording, phase, has_construction ? "construction" : "outside of steps"));
  const char *path = report_text(recording, module, NULL);
  if (path)
    g_string_append_printf(out, " of %s", path);
}

char *
report_model_out_of_memory(const ReportModel *model)
{
  const Recording *recording = model->recording;
  const OutOfMemoryRecord *oom = &recording->out_of_memory;
  if (!oom->happened)
    return NULL;
  g_autofree char *requested = format_bytes(oom->requested_bytes);
  g_autofree char *segment = format_bytes(oom->segment_bytes);
  g_autofree char *room = format_bytes(MAX(oom->limit_bytes - oom->reserved_bytes, 0));
  g_autofree char *limit = format_bytes(oom->limit_bytes);
  g_autofree char *allocated = format_bytes(oom->allocated_bytes);
  GString *text = g_string_new(NULL);
  report_append_place(recording, oom->step, oom->phase, oom->module, text);
  g_string_append_printf(text, ": %s asks for %s, a segment of %s; %s of %s left, %s allocated",
                         report_text(recording, oom->what, "a tensor"), requested, segment, room,
                         limit, allocated);
  return g_string_free(text, FALSE);
}
