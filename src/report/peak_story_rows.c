/* peak_story_rows.c - tensors that are alike in one row, which names all of them.
 *
 * Alike are those of one category that are called the same in modules which differ by the number of
 * their block, held by the same and freed at the same place but for such a number. */
#include "report/block_passes.h"
#include "report/peak_story_parts.h"
#include "report/summary.h"
#include <stdlib.h>
#include <string.h>

/* A list of numbers names so many ranges, then the last one. */
enum { RANGES_MAX = 6 };

/* A path with its first number taken out: "layers.", 3, ".feed_forward". */
typedef struct {
  char *head, *tail; /* tail NULL: there is no number */
  int number;
} NumberedPath;

static NumberedPath
numbered_path(const char *path)
{
  gsize length = block_path_length(path), begin = length;
  while (begin > 0 && g_ascii_isdigit(path[begin - 1]))
    begin--;
  if (begin == length || (begin > 0 && path[begin - 1] != '.') || length - begin > 9)
    return (NumberedPath){.head = g_strdup(path)};
  return (NumberedPath){g_strndup(path, begin), g_strdup(path + length), atoi(path + begin)};
}

static void
numbered_path_clear(NumberedPath *path)
{
  g_free(path->head);
  g_free(path->tail);
}

/* Paths that differ in their number alone. */
typedef struct {
  NumberedPath path; /* of the first */
  GArray *numbers;   /* int */
} PathSet;

static int
compare_ints(gconstpointer a, gconstpointer b)
{
  return *(const int *) a - *(const int *) b;
}

/* "0-3,5": the numbers, sorted, each once. */
static void
append_numbers(GArray *numbers, GString *out)
{
  g_array_sort(numbers, compare_ints);
  guint ranges = 0;
  for (guint i = 0; i < numbers->len; ranges++) {
    int first = g_array_index(numbers, int, i), last = first;
    for (; i < numbers->len && g_array_index(numbers, int, i) <= last + 1; i++)
      last = g_array_index(numbers, int, i);
    if (ranges >= RANGES_MAX && i < numbers->len)
      continue;
    g_string_append(out, ranges == 0 ? "" : ranges > RANGES_MAX ? ",..." : ",");
    g_string_append_printf(out, ranges > RANGES_MAX ? ",%d" : "%d", first);
    if (last > first)
      g_string_append_printf(out, "-%d", last);
  }
}

static void
append_paths(const PathSet *paths, GString *out)
{
  g_string_append(out, paths->path.head);
  if (paths->path.tail == NULL)
    return;
  append_numbers(paths->numbers, out);
  g_string_append(out, paths->path.tail);
}

/* A row being filled. */
typedef struct {
  StoryRow row;
  const char *item; /* "mul" */
  PathSet modules, freed_modules;
  const StoryTensor *first;
} Draft;

static void
draft_clear(gpointer data)
{
  Draft *draft = data;
  numbered_path_clear(&draft->modules.path);
  numbered_path_clear(&draft->freed_modules.path);
  g_array_unref(draft->modules.numbers);
  g_array_unref(draft->freed_modules.numbers);
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

static char *
key_of(const StoryTensor *tensor, const char *item, const NumberedPath *module,
       const NumberedPath *freed)
{
  const HostPlace *place = &tensor->freed;
  return g_strdup_printf("%d|%s|%s*%s|%s|%d|%d.%d.%d.%d|%s*%s", tensor->category, item,
                         module->head, module->tail ? module->tail : "!", tensor->holder,
                         tensor->death < 0, place->step, place->phase, place->micro_batch,
                         place->hook, freed->head, freed->tail ? freed->tail : "!");
}

static void
add_number(PathSet *paths, const NumberedPath *path)
{
  if (path->tail != NULL)
    g_array_append_val(paths->numbers, path->number);
}

/* The draft of that key, made if there is none; takes the paths. */
static guint
find_draft(GArray *drafts, GHashTable *positions, const Draft *like, char *key)
{
  gpointer found;
  if (g_hash_table_lookup_extended(positions, key, NULL, &found)) {
    g_free(key);
    return GPOINTER_TO_UINT(found);
  }
  Draft draft = *like;
  draft.modules.numbers = g_array_new(FALSE, FALSE, sizeof(int));
  draft.freed_modules.numbers = g_array_new(FALSE, FALSE, sizeof(int));
  draft.modules.path.head = g_strdup(like->modules.path.head);
  draft.modules.path.tail = g_strdup(like->modules.path.tail);
  draft.freed_modules.path.head = g_strdup(like->freed_modules.path.head);
  draft.freed_modules.path.tail = g_strdup(like->freed_modules.path.tail);
  g_hash_table_insert(positions, key, GUINT_TO_POINTER(drafts->len));
  g_array_append_val(drafts, draft);
  return drafts->len - 1;
}

static void
add_tensor(const PeakStory *story, GArray *drafts, GHashTable *positions, StoryTensor *tensor)
{
  Draft like = {.item = item_of(story, tensor),
                .modules.path = module_of(story, tensor),
                .freed_modules.path = freed_module_of(story, tensor),
                .row.category = tensor->category,
                .row.holder = tensor->holder,
                .first = tensor};
  char *key = key_of(tensor, like.item, &like.modules.path, &like.freed_modules.path);
  tensor->row = find_draft(drafts, positions, &like, key);
  Draft *draft = &g_array_index(drafts, Draft, tensor->row);
  draft->row.count++;
  draft->row.bytes += tensor->bytes;
  draft->row.new_bytes += tensor->is_new ? tensor->bytes : 0;
  add_number(&draft->modules, &like.modules.path);
  add_number(&draft->freed_modules, &like.freed_modules.path);
  numbered_path_clear(&like.modules.path);
  numbered_path_clear(&like.freed_modules.path);
}

static char *
name_of(const Draft *draft)
{
  GString *name = g_string_new(draft->item);
  if (*draft->modules.path.head != '\0') {
    g_string_append(name, " of ");
    append_paths(&draft->modules, name);
  }
  return g_string_free(name, FALSE);
}

/* "backward of layers.0-3 in post_backward", or that it stays. */
static char *
until_of(const PeakStory *story, const Draft *draft)
{
  const Recording *recording = story->recording;
  if (draft->first->death < 0)
    return g_strdup(recording->out_of_memory.happened ? "not known: memory runs out first"
                                                      : "end of the run");
  GString *module = g_string_new(NULL);
  append_paths(&draft->freed_modules, module);
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
take_rows(PeakStory *story, const GArray *drafts)
{
  g_autofree guint *order = g_new(guint, drafts->len + 1), *place = g_new(guint, drafts->len + 1);
  for (guint i = 0; i < drafts->len; i++)
    order[i] = i;
  g_qsort_with_data(order, (gint) drafts->len, sizeof *order, compare_drafts, drafts->data);
  for (guint i = 0; i < drafts->len; i++) {
    const Draft *draft = &g_array_index(drafts, Draft, order[i]);
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
