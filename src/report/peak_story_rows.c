/* peak_story_rows.c - tensors that are alike in one row, which names all of them.
 *
 * Alike are those of one category that are called the same in modules which differ by the number of
 * their block, held by the same and freed at the same place but for such a number. */
#include "report/block_passes.h"
#include "report/numbered_path.h"
#include "report/peak_story_parts.h"
#include "report/summary.h"
#include <stdlib.h>
#include <string.h>

/* A row being filled. */
typedef struct {
  StoryRow row;
  const char *item;          /* "mul" */
  gboolean is_named_already; /* the item names its module */
  PathSet modules, freed_modules;
  const StoryTensor *first;
} Draft;

static void
draft_clear(gpointer data)
{
  Draft *draft = data;
  path_set_clear(&draft->modules);
  path_set_clear(&draft->freed_modules);
}

/* Tensors that are named after a parameter have its module in their name. */
static gboolean
is_named_after_parameter(const PeakStory *story, const StoryTensor *tensor)
{
  const char *what = report_text(story->recording, tensor->what, NULL);
  const char *path = report_text(story->recording, tensor->module, NULL);
  return what != NULL && path != NULL && g_str_has_prefix(what, path);
}

static const char *
item_of(const PeakStory *story, const StoryTensor *tensor)
{
  static const char *const of_parameters[CATEGORY_COUNT] = {
      [CATEGORY_OPTIMIZER_STATE] = "optimizer states",
      [CATEGORY_SHARDED_GRADIENT] = "gradients",
      [CATEGORY_UNSHARDED_GRADIENT] = "gradients",
  };
  if (!is_named_after_parameter(story, tensor))
    return report_text(story->recording, tensor->what, category_name(tensor->category));
  const char *item = of_parameters[tensor->category];
  return item != NULL ? item : "parameters";
}

static gboolean
names_module(const PeakStory *story, const StoryTensor *tensor, const char *item)
{
  const char *path = report_text(story->recording, tensor->module, NULL);
  return path != NULL && strstr(item, path) != NULL;
}

/* The module that stands in the name: for what belongs to parameters, its block. */
static NumberedPath
module_of(const PeakStory *story, const StoryTensor *tensor)
{
  const char *path = report_text(story->recording, tensor->module, "");
  if (!is_named_after_parameter(story, tensor))
    return numbered_path(path);
  g_autofree char *block = g_strndup(path, block_path_length(path));
  return numbered_path(block);
}

static NumberedPath
freed_module_of(const PeakStory *story, const StoryTensor *tensor)
{
  return numbered_path(tensor->death < 0 ? ""
                                         : report_text(story->recording, tensor->freed.module, ""));
}

/* Paths but for their number, and whether it has one. */
static void
append_key(GString *key, const NumberedPath *path)
{
  g_string_append_c(key, '|');
  numbered_path_append_masked(path, key);
}

static char *
key_of(const StoryTensor *tensor, const char *item, const NumberedPath *module,
       const NumberedPath *freed)
{
  const HostPlace *place = &tensor->freed;
  GString *key = g_string_new(NULL);
  g_string_printf(key, "%d|%s|%s|%d|%d.%d.%d.%d", tensor->category, item, tensor->holder,
                  tensor->death < 0, place->step, place->phase, place->micro_batch, place->hook);
  append_key(key, module);
  append_key(key, freed);
  return g_string_free(key, FALSE);
}

/* The draft of that key, made if there is none; takes the key. */
static guint
find_draft(GArray *drafts, GHashTable *positions, const Draft *like, char *key)
{
  gpointer found;
  if (g_hash_table_lookup_extended(positions, key, NULL, &found)) {
    g_free(key);
    return GPOINTER_TO_UINT(found);
  }
  g_hash_table_insert(positions, key, GUINT_TO_POINTER(drafts->len));
  g_array_append_vals(drafts, like, 1);
  return drafts->len - 1;
}

static void
add_tensor(const PeakStory *story, GArray *drafts, GHashTable *positions, StoryTensor *tensor)
{
  NumberedPath module = module_of(story, tensor), freed = freed_module_of(story, tensor);
  const char *item = item_of(story, tensor);
  const Draft like = {.item = item,
                      .is_named_already = names_module(story, tensor, item),
                      .row.category = tensor->category,
                      .row.holder = tensor->holder,
                      .first = tensor};
  tensor->row = find_draft(drafts, positions, &like, key_of(tensor, like.item, &module, &freed));
  Draft *draft = &g_array_index(drafts, Draft, tensor->row);
  draft->row.count++;
  draft->row.bytes += tensor->bytes;
  draft->row.new_bytes += tensor->is_new ? tensor->bytes : 0;
  path_set_add(&draft->modules, &module);
  path_set_add(&draft->freed_modules, &freed);
  numbered_path_clear(&module);
  numbered_path_clear(&freed);
}

static char *
name_of(Draft *draft)
{
  GString *name = g_string_new(draft->item);
  if (*draft->modules.path.head != '\0' && !draft->is_named_already) {
    g_string_append(name, " of ");
    path_set_append(&draft->modules, name);
  }
  return g_string_free(name, FALSE);
}

/* "backward of layers.0-3 in post_backward", or that it stays. */
static char *
until_of(const PeakStory *story, Draft *draft)
{
  const Recording *recording = story->recording;
  if (draft->first->death < 0)
    return g_strdup(recording->out_of_memory.happened ? "not known: memory runs out first"
                                                      : "end of the run");
  GString *module = g_string_new(NULL);
  path_set_append(&draft->freed_modules, module);
  GString *until = g_string_new(NULL);
  host_place_append_named(recording, &draft->first->freed, &story->place, module->str, until);
  g_string_free(module, TRUE);
  return g_string_free(until, FALSE);
}

/* Positions of rows in order of size. */
static int
compare_drafts(gconstpointer a, gconstpointer b, gpointer user)
{
  const Draft *drafts = user;
  guint i = *(const guint *) a, j = *(const guint *) b;
  gint64 x = drafts[i].row.bytes, y = drafts[j].row.bytes;
  return x != y ? (x > y ? -1 : 1) : i < j ? -1 : i > j;
}

static void
take_rows(PeakStory *story, GArray *drafts)
{
  g_autofree guint *order = g_new(guint, drafts->len + 1), *place = g_new(guint, drafts->len + 1);
  for (guint i = 0; i < drafts->len; i++)
    order[i] = i;
  g_qsort_with_data(order, (gint) drafts->len, sizeof *order, compare_drafts, drafts->data);
  for (guint i = 0; i < drafts->len; i++) {
    Draft *draft = &g_array_index(drafts, Draft, order[i]);
    StoryRow row = draft->row;
    row.name = name_of(draft);
    row.until = until_of(story, draft);
    place[order[i]] = i;
    g_array_append_val(story->rows, row);
  }
  for (guint i = 0; i < story->tensors->len; i++) {
    StoryTensor *tensor = &g_array_index(story->tensors, StoryTensor, i);
    tensor->row = place[tensor->row];
  }
}

void
peak_story_rows(PeakStory *story)
{
  g_autoptr(GArray) drafts = g_array_new(FALSE, TRUE, sizeof(Draft));
  g_array_set_clear_func(drafts, draft_clear);
  g_autoptr(GHashTable) positions = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, NULL);
  for (guint i = 0; i < story->tensors->len; i++)
    add_tensor(story, drafts, positions, &g_array_index(story->tensors, StoryTensor, i));
  take_rows(story, drafts);
}
