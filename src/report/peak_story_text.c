/* peak_story_text.c - a PeakStory as tables. */
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

static char *
group_until(const PeakStory *story, const GatheredGroup *group)
{
  if (group->death < 0)
    return g_strdup(story->recording->out_of_memory.happened ? NULL : "end of the run");
  HostPlace place = host_place_at(story->places, (guint) group->death);
  GString *until = g_string_new(NULL);
  host_place_append(story->recording, &place, &story->place, until);
  return g_string_free(until, FALSE);
}

static void
print_groups(const Page *page)
{
  const GArray *groups = page->story->groups;
  if (groups->len == 0)
    return;
  g_autoptr(TextTable) table = text_table_new("lrrll");
  TEXT_ROW(table, g_strdup("Gathered groups"), g_strdup("parameters"), g_strdup("buffers"),
           g_strdup("why"), g_strdup("until"));
  for (guint i = 0; i < groups->len; i++) {
    const GatheredGroup *group = &g_array_index(groups, GatheredGroup, i);
    char *why =
        group->retained_by != NULL
            ? g_strdup_printf("%s: %s", gathered_role_names[group->role], group->retained_by)
            : g_strdup(gathered_role_names[group->role]);
    TEXT_ROW(table, g_strdup_printf("  %s", group->info->name),
             size_or_nothing(page, group->parameter_bytes),
             size_or_nothing(page, group->buffer_bytes), why, group_until(page->story, group));
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
