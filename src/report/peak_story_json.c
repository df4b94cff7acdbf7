/* peak_story_json.c - a PeakStory as JSON. */
#include "base/json_output.h"
#include "report/peak_story_print.h"

static void
add_place(cJSON *object, const char *key, const Recording *recording, const HostPlace *place)
{
  cJSON *at = cJSON_AddObjectToObject(object, key);
  json_add_int(at, "step", place->step);
  json_add_text(at, "phase", report_text(recording, place->phase, NULL));
  if (place->micro_batch >= 0)
    json_add_int(at, "micro_batch", place->micro_batch);
  else
    cJSON_AddNullToObject(at, "micro_batch");
  json_add_text(at, "module", report_text(recording, place->module, NULL));
  json_add_text(at, "hook", report_text(recording, place->hook, NULL));
}

static void
add_death(cJSON *object, const PeakStory *story, gint64 death)
{
  if (death < 0) {
    cJSON_AddNullToObject(object, "freed");
    return;
  }
  HostPlace place = host_place_at(story->places, (guint) death);
  add_place(object, "freed", story->recording, &place);
}

static void
add_event(cJSON *object, const char *key, gint64 event)
{
  if (event >= 0)
    json_add_int(object, key, event);
  else
    cJSON_AddNullToObject(object, key);
}

static void
add_rows(cJSON *object, const PeakStory *story)
{
  cJSON *rows = cJSON_AddArrayToObject(object, "alive");
  for (guint i = 0; i < story->rows->len; i++) {
    const StoryRow *row = &g_array_index(story->rows, StoryRow, i);
    cJSON *item = cJSON_CreateObject();
    json_add_text(item, "name", row->name);
    json_add_text(item, "category", category_name(row->category));
    json_add_int(item, "count", row->count);
    json_add_int(item, "bytes", row->bytes);
    json_add_int(item, "new_bytes", row->new_bytes);
    json_add_text(item, "held_by", row->holder);
    json_add_text(item, "until", row->until);
    cJSON_AddItemToArray(rows, item);
  }
}

static void
add_tensors(cJSON *object, const PeakStory *story)
{
  cJSON *tensors = cJSON_AddArrayToObject(object, "tensors");
  for (guint i = 0; i < story->tensors->len; i++) {
    const StoryTensor *tensor = &g_array_index(story->tensors, StoryTensor, i);
    cJSON *item = cJSON_CreateObject();
    json_add_text(item, "what", report_text(story->recording, tensor->what, NULL));
    json_add_text(item, "module", report_text(story->recording, tensor->module, NULL));
    json_add_text(item, "category", category_name(tensor->category));
    json_add_int(item, "bytes", tensor->bytes);
    cJSON_AddBoolToObject(item, "new", tensor->is_new);
    json_add_int(item, "alive_row", tensor->row);
    json_add_int(item, "made_by_event", tensor->birth);
    add_place(item, "made", story->recording, &tensor->made);
    add_event(item, "freed_by_event", tensor->death);
    add_death(item, story, tensor->death);
    cJSON_AddItemToArray(tensors, item);
  }
}

static void
add_high(cJSON *object, const PeakStory *story)
{
  if (story->high_event < 0) {
    cJSON_AddNullToObject(object, "high_before");
    return;
  }
  cJSON *high = cJSON_AddObjectToObject(object, "high_before");
  HostPlace place = host_place_at(story->places, (guint) story->high_event);
  json_add_int(high, "event", story->high_event);
  add_place(high, "place", story->recording, &place);
  json_add_int(high, "allocated_bytes", story->high);
  json_add_int(high, "valley_bytes", story->valley);
  json_add_int(high, "went_bytes", story->went);
  json_add_int(high, "came_bytes", story->came);
}

static void
add_groups(cJSON *object, const PeakStory *story)
{
  cJSON *groups = cJSON_AddArrayToObject(object, "gathered_groups");
  for (guint i = 0; i < story->groups->len; i++) {
    const GatheredGroup *group = &g_array_index(story->groups, GatheredGroup, i);
    cJSON *item = cJSON_CreateObject();
    json_add_text(item, "name", group->info->name);
    json_add_text(item, "why", gathered_role_names[group->role]);
    json_add_text(item, "retained_by", group->retained_by);
    json_add_int(item, "parameter_bytes", group->parameter_bytes);
    json_add_int(item, "buffer_bytes", group->buffer_bytes);
    add_death(item, story, group->death);
    cJSON_AddItemToArray(groups, item);
  }
}

static void
add_cached(cJSON *object, const PeakStory *story)
{
  if (story->cached->len == 0) {
    cJSON_AddNullToObject(object, "cached_by_stream");
    return;
  }
  cJSON *cached = cJSON_AddObjectToObject(object, "cached_by_stream");
  for (guint i = 0; i < story->cached->len; i++)
    json_add_int(cached, g_ptr_array_index(story->recording->streams, i),
                 g_array_index(story->cached, gint64, i));
}

cJSON *
peak_story_json(const PeakStory *story)
{
  cJSON *object = cJSON_CreateObject();
  add_place(object, "place", story->recording, &story->place);
  json_add_int(object, "events", story->events);
  json_add_int(object, "allocated_bytes", story->allocated);
  json_add_int(object, "reserved_bytes", story->reserved);
  json_add_int(object, "reserved_not_allocated_bytes", story->reserved - story->allocated);
  add_cached(object, story);
  cJSON *categories = cJSON_AddObjectToObject(object, "categories");
  for (int i = 0; i < CATEGORY_COUNT; i++)
    json_add_int(categories, category_name((Category) i), story->categories[i]);
  add_high(object, story);
  add_rows(object, story);
  add_groups(object, story);
  add_tensors(object, story);
  return object;
}
