/* failure_story.c - why memory runs out: what was asked for, what there was of it and where. */
#include "base/json_output.h"
#include "report/peak_story_print.h"

FailureStory
failure_story(const Recording *recording)
{
  const OutOfMemoryRecord *record = &recording->out_of_memory;
  gint64 left = MAX(record->limit_bytes - record->reserved_bytes, 0);
  return (FailureStory){
      .record = record,
      .left = left,
      .short_by = record->segment_bytes - left,
      .idle = record->reserved_bytes - record->allocated_bytes,
  };
}

void
failure_story_text(const Recording *recording, GString *out)
{
  FailureStory story = failure_story(recording);
  const OutOfMemoryRecord *record = story.record;
  g_autofree char *requested = format_bytes(record->requested_bytes);
  g_autofree char *segment = format_bytes(record->segment_bytes);
  g_autofree char *short_by = format_bytes(story.short_by);
  g_autofree char *limit = format_bytes(record->limit_bytes);
  g_autofree char *allocated = format_bytes(record->allocated_bytes);
  g_autofree char *idle = format_bytes(story.idle), *left = format_bytes(story.left);
  g_string_append_printf(out, "It asks for %s", requested);
  if (record->segment_bytes != record->requested_bytes)
    g_string_append_printf(out, ", a segment of %s", segment);
  g_string_append_printf(out,
                         ".  Of %s for the allocator %s are allocated, %s reserved and not "
                         "allocated, %s left:\n%s (%" G_GINT64_FORMAT " bytes) too few.",
                         limit, allocated, idle, left, short_by, story.short_by);
  if (story.idle >= record->requested_bytes)
    g_string_append(out, "  What is not allocated would do in one piece: it is fragmented.");
  g_string_append_c(out, '\n');
  if (recording->outside_allocator_bytes == 0)
    return;
  g_autofree char *outside = format_bytes(recording->outside_allocator_bytes);
  g_string_append_printf(out,
                         "Outside of the allocator are %s: the CUDA context and NCCL's "
                         "buffers.\n",
                         outside);
}

cJSON *
failure_story_json(const Recording *recording)
{
  FailureStory story = failure_story(recording);
  const OutOfMemoryRecord *record = story.record;
  cJSON *object = cJSON_CreateObject();
  json_add_int(object, "step", record->step);
  json_add_text(object, "phase", report_text(recording, record->phase, NULL));
  json_add_text(object, "module", report_text(recording, record->module, NULL));
  json_add_text(object, "what", report_text(recording, record->what, NULL));
  json_add_int(object, "requested_bytes", record->requested_bytes);
  json_add_int(object, "segment_bytes", record->segment_bytes);
  json_add_int(object, "short_by_bytes", story.short_by);
  json_add_int(object, "left_bytes", story.left);
  json_add_int(object, "allocated_bytes", record->allocated_bytes);
  json_add_int(object, "reserved_not_allocated_bytes", story.idle);
  cJSON_AddBoolToObject(object, "fragmented", story.idle >= record->requested_bytes);
  json_add_int(object, "limit_bytes", record->limit_bytes);
  json_add_int(object, "outside_allocator_bytes", recording->outside_allocator_bytes);
  return object;
}
