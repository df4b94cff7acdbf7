/* peak_story_text.c - a PeakStory as tables. */
#include "report/numbered_path.h"
#include "report/peak_story_print.h"
#include "report/summary_text_parts.h"
#include <stdlib.h>
#include <string.h>

/* Rows below this share of the moment's bytes are not named one by one. */
static const double small_share = 0.01;

/* What is being written. */
typedef struct {
  const PeakStory *story;
  const TextStyle *style;
  const TextUnit *unit;
  GString *out;
} Page;

static gboolean
is_small(const Page *page, gint64 bytes)
{
  return !page->style->verbose && (double) bytes < small_share * (double) page->story->allocated;
}

static char *
size_or_nothing(const Page *page, gint64 bytes)
{
  return bytes > 0 ? text_unit_format(page->unit, bytes) : NULL;
}

/* ---- who is alive ---- */

static void
add_row(const Page *page, TextTable *table, const StoryRow *row)
{
  char *name = row->count > 1 ? g_strdup_printf("    %d x %s", row->count, row->name)
                              : g_strdup_printf("    %s", row->name);
  TEXT_ROW(table, name, text_unit_format(page->unit, row->bytes),
           size_or_nothing(page, row->new_bytes), g_strdup(row->holder), g_strdup(row->until));
}

/* A category's rows after its sum; those that are small together. */
static void
add_category(const Page *page, TextTable *table, int category)
{
  const PeakStory *story = page->story;
  gint64 new_bytes = 0, rest = 0, rest_new = 0;
  int others = 0;
  for (guint i = 0; i < story->rows->len; i++) {
    const StoryRow *row = &g_array_index(story->rows, StoryRow, i);
    new_bytes += row->category == category ? row->new_bytes : 0;
  }
  TEXT_ROW(table, g_strdup_printf("  %s", text_category_labels[category]),
           text_unit_format(page->unit, story->categories[category]),
           size_or_nothing(page, new_bytes), NULL, NULL);
  for (guint i = 0; i < story->rows->len; i++) {
    const StoryRow *row = &g_array_index(story->rows, StoryRow, i);
    if (row->category != category)
      continue;
    if (is_small(page, row->bytes)) {
      others += row->count;
      rest += row->bytes;
      rest_new += row->new_bytes;
    } else {
      add_row(page, table, row);
    }
  }
  if (others > 0)
    TEXT_ROW(table, g_strdup_printf("    %d x smaller ones", others),
             text_unit_format(page->unit, rest), size_or_nothing(page, rest_new), NULL, NULL);
}

/* Categories in order of size. */
static void
order_categories(const PeakStory *story, int order[CATEGORY_COUNT])
{
  for (int i = 0; i < CATEGORY_COUNT; i++) {
    int at = i;
    for (; at > 0 && story->categories[order[at - 1]] < story->categories[i]; at--)
      order[at] = order[at - 1];
    order[at] = i;
  }
}

static void
print_alive(const Page *page, const char *when)
{
  int order[CATEGORY_COUNT];
  order_categories(page->story, order);
  g_autoptr(TextTable) table = text_table_new("lrrll");
  TEXT_ROW(table, g_strdup_printf("Alive %s", when), g_strdup(page->unit->name), g_strdup("new"),
           g_strdup("held by"), g_strdup("until"));
  for (int i = 0; i < CATEGORY_COUNT && page->story->categories[order[i]] > 0; i++)
    add_category(page, table, order[i]);
  text_table_print(table, 0, page->out);
}

/* ---- what came last ---- */

static void
print_spike(const Page *page)
{
  const PeakStory *story = page->story;
  if (story->high_event < 0) {
    g_string_append(page->out, "Memory has only risen until then.\n");
    return;
  }
  HostPlace high = host_place_at(story->places, (guint) story->high_event);
  g_autofree char *level = format_bytes(story->high), *valley = format_bytes(story->valley);
  g_autofree char *came = format_bytes(story->came), *went = format_bytes(story->went);
  g_string_append_printf(page->out, "The high before it was %s in ", level);
  host_place_append(story->recording, &high, NULL, page->out);
  g_string_append_printf(page->out,
                         "; then memory was down to %s.\nSince that high %s went and %s "
                         "came (new).\n",
                         valley, went, came);
}

/* ---- groups ---- */

/* Groups that are there for the same and differ in their number alone. */
typedef struct {
  const GatheredGroup *first;
  PathSet names, freed_modules;
  gint64 parameters, buffers;
} GroupLine;

static void
group_line_clear(gpointer data)
{
  path_set_clear(&((GroupLine *) data)->names);
  path_set_clear(&((GroupLine *) data)->freed_modules);
}

static gboolean
are_freed_alike(const PeakStory *story, const GatheredGroup *a, const GatheredGroup *b)
{
  if (a->death < 0 || b->death < 0)
    return a->death < 0 && b->death < 0;
  HostPlace x = host_place_at(story->places, (guint) a->death);
  HostPlace y = host_place_at(story->places, (guint) b->death);
  return x.step == y.step && x.phase == y.phase && x.micro_batch == y.micro_batch &&
         x.hook == y.hook && (x.module < 0) == (y.module < 0);
}

/* The line before, when the group goes into it, else a new one. */
static GroupLine *
line_for(const PeakStory *story, GArray *lines, const GatheredGroup *group,
         const NumberedPath *name)
{
  GroupLine *last = lines->len > 0 ? &g_array_index(lines, GroupLine, lines->len - 1) : NULL;
  if (last != NULL && last->first->role == group->role && group->retained_by == NULL &&
      last->names.path.tail != NULL && name->tail != NULL &&
      g_str_equal(last->names.path.head, name->head) &&
      g_str_equal(last->names.path.tail, name->tail) && are_freed_alike(story, last->first, group))
    return last;
  GroupLine line = {.first = group};
  g_array_append_val(lines, line);
  return &g_array_index(lines, GroupLine, lines->len - 1);
}

static GArray *
lines_of_groups(const PeakStory *story)
{
  GArray *lines = g_array_new(FALSE, TRUE, sizeof(GroupLine));
  g_array_set_clear_func(lines, group_line_clear);
  for (guint i = 0; i < story->groups->len; i++) {
    const GatheredGroup *group = &g_array_index(story->groups, GatheredGroup, i);
    NumberedPath name = numbered_path(group->info->name);
    GroupLine *line = line_for(story, lines, group, &name);
    path_set_add(&line->names, &name);
    line->parameters += group->parameter_bytes;
    line->buffers += group->buffer_bytes;
    if (group->death >= 0) {
      HostPlace place = host_place_at(story->places, (guint) group->death);
      NumberedPath module = numbered_path(report_text(story->recording, place.module, ""));
      path_set_add(&line->freed_modules, &module);
      numbered_path_clear(&module);
    }
    numbered_path_clear(&name);
  }
  return lines;
}

static char *
group_until(const PeakStory *story, GroupLine *line)
{
  if (line->first->death < 0)
    return g_strdup(story->recording->out_of_memory.happened ? NULL : "end of the run");
  HostPlace place = host_place_at(story->places, (guint) line->first->death);
  GString *module = g_string_new(NULL), *until = g_string_new(NULL);
  path_set_append(&line->freed_modules, module);
  host_place_append_named(story->recording, &place, &story->place, module->str, until);
  g_string_free(module, TRUE);
  return g_string_free(until, FALSE);
}

static char *
group_reason(const GatheredGroup *group)
{
  const char *role = gathered_role_names[group->role];
  return group->retained_by != NULL ? g_strdup_printf("%s: %s", role, group->retained_by)
                                    : g_strdup(role);
}

static void
print_groups(const Page *page)
{
  g_autoptr(GArray) lines = lines_of_groups(page->story);
  if (lines->len == 0)
    return;
  g_autoptr(TextTable) table = text_table_new("lrrll");
  TEXT_ROW(table, g_strdup("Gathered groups"), g_strdup("parameters"), g_strdup("buffers"),
           g_strdup("why"), g_strdup("until"));
  for (guint i = 0; i < lines->len; i++) {
    GroupLine *line = &g_array_index(lines, GroupLine, i);
    GString *name = g_string_new("  ");
    path_set_append(&line->names, name);
    TEXT_ROW(table, g_string_free(name, FALSE), size_or_nothing(page, line->parameters),
             size_or_nothing(page, line->buffers), group_reason(line->first),
             group_until(page->story, line));
  }
  g_string_append_c(page->out, '\n');
  text_table_print(table, 0, page->out);
}

static void
print_reserved(const Page *page)
{
  const PeakStory *story = page->story;
  g_autofree char *reserved = format_bytes(story->reserved);
  g_string_append_printf(page->out, "\nReserved then: %s.  ", reserved);
  gsize before = page->out->len;
  text_cached(story->recording, story->cached, "then", page->out);
  if (page->out->len > before)
    return;
  g_autofree char *idle = format_bytes(story->reserved - story->allocated);
  g_string_append_printf(page->out, "Reserved but not allocated then: %s\n", idle);
}

void
peak_story_text(const PeakStory *story, const char *when, const TextStyle *style, GString *out)
{
  const Page page = {story, style, text_unit_for(story->allocated), out};
  print_alive(&page, when);
  g_string_append_c(out, '\n');
  print_spike(&page);
  print_groups(&page);
  print_reserved(&page);
}
