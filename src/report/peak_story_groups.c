/* peak_story_groups.c - gathered groups that are there together, each with what it is there for.
 *
 * A group computes where its modules allocate: activations, temporaries, gradients. */
#include "report/group_paths.h"
#include "report/peak_story_parts.h"
#include "report/summary.h"
#include <string.h>

const char *const gathered_role_names[GATHERED_ROLES] = {
    [GATHERED_IN_USE] = "in use",
    [GATHERED_AHEAD] = "gathered ahead",
    [GATHERED_BETWEEN] = "kept until its next use",
    [GATHERED_DONE] = "used, not freed yet",
    [GATHERED_RETAINED] = "retained by a reference",
    [GATHERED_IN_FLIGHT] = "gathered ahead, not copied out yet",
};

/* What is known of one group, or of the clones of one. */
typedef struct {
  gint64 parameters, buffers;
  guint birth;  /* of its oldest tensor */
  gint64 death; /* the last event that frees any */
  gboolean lives_on, computed, computes_again;
} Gathered;

gboolean
peak_story_is_clone(const PeakStory *story, const StoryTensor *tensor)
{
  const char *what = report_text(story->recording, tensor->what, "");
  return tensor->category == CATEGORY_UNSHARDED_PARAMETER && g_str_has_prefix(what, "clone of ");
}

static gboolean
is_computing(const MemoryEvent *event)
{
  return event->requested_bytes > 0 &&
         (event->category == CATEGORY_ACTIVATION || event->category == CATEGORY_TEMPORARY ||
          event->category == CATEGORY_UNSHARDED_GRADIENT);
}

/* The group that computed last. */
static gint32
computing_group(const PeakStory *story, GroupIndex *lookup)
{
  for (guint i = story->events; i > 0; i--) {
    const MemoryEvent *event = &g_array_index(story->recording->memory, MemoryEvent, i - 1);
    if (!is_computing(event))
      continue;
    gint32 group = group_index_of(lookup, event->module);
    if (group >= 0)
      return group;
  }
  return -1;
}

static void
add_tensor(Gathered *gathered, const StoryTensor *tensor)
{
  if (gathered->parameters + gathered->buffers == 0)
    *gathered = (Gathered){.birth = tensor->birth, .death = -1};
  gathered->birth = MIN(gathered->birth, tensor->birth);
  gathered->death = MAX(gathered->death, tensor->death);
  gathered->lives_on |= tensor->death < 0;
  if (tensor->category == CATEGORY_UNSHARDED_PARAMETER)
    gathered->parameters += tensor->bytes;
  else
    gathered->buffers += tensor->bytes;
}

/* groups: by position, clones after all others. */
static void
collect(const PeakStory *story, GroupIndex *lookup, Gathered *groups)
{
  guint n = story->info->groups->len;
  for (guint i = 0; i < story->tensors->len; i++) {
    const StoryTensor *tensor = &g_array_index(story->tensors, StoryTensor, i);
    gint32 group = group_index_of(lookup, tensor->module);
    if (group >= 0 && (tensor->category == CATEGORY_UNSHARDED_PARAMETER ||
                       tensor->category == CATEGORY_ALL_GATHER_BUFFER))
      add_tensor(&groups[(guint) group + (peak_story_is_clone(story, tensor) ? n : 0)], tensor);
  }
}

static void
find_uses(const PeakStory *story, GroupIndex *lookup, Gathered *groups)
{
  for (guint i = 0; i < story->recording->memory->len; i++) {
    const MemoryEvent *event = &g_array_index(story->recording->memory, MemoryEvent, i);
    gint32 position = is_computing(event) ? group_index_of(lookup, event->module) : -1;
    if (position < 0)
      continue;
    Gathered *group = &groups[position];
    if (i > group->birth && i < story->events)
      group->computed = TRUE;
    if (i >= story->events && (group->lives_on || (gint64) i < group->death))
      group->computes_again = TRUE;
  }
}

static const char *
retained_by(const RunInfo *info, const GroupInfo *group)
{
  for (guint i = 0; i < info->retained->len; i++) {
    const RetainedInfo *retained = &g_array_index(info->retained, RetainedInfo, i);
    const char *name = retained->group;
    gsize length = strlen(group->name);
    if (g_str_equal(name, group->name) ||
        (strncmp(name, group->name, length) == 0 && name[length] == '.'))
      return retained->held_by;
  }
  return NULL;
}

static GatheredRole
role_of(const Gathered *group, gboolean is_clone, gboolean in_use, const char *retained)
{
  if (is_clone)
    return GATHERED_RETAINED;
  if (in_use)
    return GATHERED_IN_USE;
  if (group->parameters == 0)
    return GATHERED_IN_FLIGHT;
  if (!group->computed)
    return GATHERED_AHEAD;
  if (group->computes_again)
    return GATHERED_BETWEEN;
  return retained != NULL ? GATHERED_RETAINED : GATHERED_DONE;
}

void
peak_story_groups(PeakStory *story)
{
  guint n = story->info->groups->len;
  if (n == 0)
    return;
  g_autoptr(GroupIndex) lookup = group_index_new(story->recording, story->info);
  g_autofree Gathered *groups = g_new0(Gathered, 2 * n);
  collect(story, lookup, groups);
  find_uses(story, lookup, groups);
  gint32 current = computing_group(story, lookup);
  for (guint i = 0; i < 2 * n; i++) {
    const Gathered *group = &groups[i];
    if (group->parameters + group->buffers == 0)
      continue;
    const GroupInfo *info = &g_array_index(story->info->groups, GroupInfo, i % n);
    const char *retained = retained_by(story->info, info);
    GatheredGroup gathered = {
        .info = info,
        .role = role_of(group, i >= n, (gint32) i == current && group->parameters > 0, retained),
        .parameter_bytes = group->parameters,
        .buffer_bytes = group->buffers,
        .death = group->lives_on ? -1 : group->death,
    };
    if (gathered.role == GATHERED_RETAINED)
      gathered.retained_by = retained;
    g_array_append_val(story->groups, gathered);
  }
}
