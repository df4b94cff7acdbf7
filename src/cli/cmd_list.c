/* cmd_list.c - highwater list: presets, families, strategies and algorithms of collectives, a line
 * each. */
#include "base/json_output.h"
#include "base/json_reader.h"
#include "base/nearest_name.h"
#include "base/text_table.h"
#include "base/units.h"
#include "cli/registry.h"
#include "collective/algorithm.h"
#include "network/family.h"
#include "spec/option.h"
#include "spec/preset.h"
#include "strategy/strategy.h"
#include <stdio.h>
#include <string.h>

/* No line is wider than a terminal. */
#define LINE_WIDTH 100

/* One line of the list, and the options below it. */
typedef struct {
  char *name;
  char *summary;
  const OptionSection *section; /* what may be set for it in a plan, or NULL */
} ListItem;

/* One kind of thing that can be listed.  collect adds its items in the order they are shown. */
typedef struct {
  const char *kind;
  const char *title;
  void (*collect)(const char *kind, GPtrArray *items);
} ListTable;

static void
item_free(gpointer data)
{
  ListItem *item = data;
  g_free(item->name);
  g_free(item->summary);
  g_free(item);
}

static void
add_item(GPtrArray *items, const char *name, const char *summary, const OptionSection *section)
{
  ListItem *item = g_new(ListItem, 1);
  *item = (ListItem){g_strdup(name), g_strdup(summary), section};
  g_ptr_array_add(items, item);
}

/* A preset's "_summary".  A broken file must not hide the others, so its error is its summary. */
static char *
preset_summary(const char *kind, const char *name)
{
  g_autoptr(GError) error = NULL;
  g_autofree char *path = preset_find(kind, name, &error);
  g_autoptr(JsonDocument) document = path ? json_document_load(path, &error) : NULL;
  if (!document)
    return g_strdup(error->message);
  const cJSON *summary = cJSON_GetObjectItemCaseSensitive(json_document_root(document), "_summary");
  return g_strdup(cJSON_IsString(summary) ? summary->valuestring : "");
}

static void
collect_presets(const char *kind, GPtrArray *items)
{
  g_auto(GStrv) names = preset_names(kind);
  for (guint i = 0; names[i]; i++) {
    g_autofree char *summary = preset_summary(kind, names[i]);
    add_item(items, names[i], summary, NULL);
  }
}

/* A Program's first comment. */
static void
collect_programs(const char *kind, GPtrArray *items)
{
  g_auto(GStrv) names = preset_names(kind);
  for (guint i = 0; names[i]; i++) {
    g_autofree char *path = preset_find(kind, names[i], NULL), *text = NULL;
    const char *comment = NULL;
    if (path != NULL && g_file_get_contents(path, &text, NULL, NULL))
      comment = strstr(text, "\n# ");
    g_autofree char *summary =
        comment != NULL ? g_strndup(comment + 3, strcspn(comment + 3, "\n")) : g_strdup("");
    add_item(items, names[i], summary, NULL);
  }
}

static void
collect_families(const char *kind, GPtrArray *items)
{
  (void) kind;
  for (const NetworkFamily *const *family = network_families(); *family; family++)
    add_item(items, (*family)->name, (*family)->summary, NULL);
}

static void
collect_strategies(const char *kind, GPtrArray *items)
{
  (void) kind;
  for (const Strategy *const *strategy = strategies(); *strategy; strategy++)
    add_item(items, (*strategy)->name, (*strategy)->summary, (*strategy)->section);
}

/* An algorithm with the protocols that it runs under. */
static void
collect_algorithms(const char *kind, GPtrArray *items)
{
  (void) kind;
  for (int i = 0; i < ALGORITHM_COUNT; i++) {
    g_autoptr(GString) summary = g_string_new(algorithms[i].summary);
    const char *before = ": ";
    for (int id = 0; id < LINE_COUNT; id++) {
      if ((int) line_algorithm((ProtocolLineId) id) != i)
        continue;
      g_string_append_printf(summary, "%s%s", before, line_protocol((ProtocolLineId) id));
      before = ", ";
    }
    add_item(items, algorithms[i].name, summary->str, NULL);
  }
}

static const ListTable tables[] = {
    {"network", "Networks (highwater run NETWORK)", collect_presets},
    {"program", "Programs (highwater run PROGRAM)", collect_programs},
    {"plan", "Plans (--plan)", collect_presets},
    {"cluster", "Clusters (--cluster)", collect_presets},
    {"device", "Devices (\"device\" of a cluster)", collect_presets},
    {"fabric", "Fabrics (\"intra_node\" and \"inter_node\" of a cluster)", collect_presets},
    {"family", "Families (\"model_type\" or \"family\" of a network)", collect_families},
    {"strategy", "Strategies (\"strategy\" of a plan)", collect_strategies},
    {"algorithm", "Algorithms of collectives, with their protocols (\"nccl\" of a cluster)",
     collect_algorithms},
};

static GPtrArray *
collect(const ListTable *table)
{
  GPtrArray *items = g_ptr_array_new_with_free_func(item_free);
  table->collect(table->kind, items);
  return items;
}

/* Words of a text, on as many lines as they need; the first is indented less. */
static void
append_wrapped(GString *out, const char *text, guint first, guint rest)
{
  g_auto(GStrv) words = g_strsplit(text, " ", -1);
  gsize column = 0;
  for (guint i = 0; words[i]; i++) {
    gsize length = strlen(words[i]);
    guint indent = i == 0 ? first : rest;
    gboolean fits = i > 0 && column + 1 + length <= LINE_WIDTH;
    if (fits)
      g_string_append_c(out, ' ');
    else
      g_string_append_printf(out, "%s%*s", i > 0 ? "\n" : "", (int) indent, "");
    g_string_append(out, words[i]);
    column = (fits ? column + 1 : indent) + length;
  }
  g_string_append_c(out, '\n');
}

/* What may be written for an option and its default; below, what it means. */
static void
print_options(const OptionSection *section, GString *out)
{
  const guint key = 6, text = 10;
  for (const OptionInfo *option = section->options; option->key; option++) {
    g_autofree char *allowed = option_allowed(option);
    g_autofree char *line = g_strdup_printf("%s.%s: %s (default %s)", section->name, option->key,
                                            allowed, option->fallback);
    append_wrapped(out, line, key, text);
    append_wrapped(out, option->summary, text, text);
  }
}

/* Strategies share sections: which is the first to have this one? */
static guint
first_with_section(const GPtrArray *items, const OptionSection *section)
{
  guint i = 0;
  while (((const ListItem *) g_ptr_array_index(items, i))->section != section)
    i++;
  return i;
}

static void
print_users(const GPtrArray *items, const OptionSection *section, GString *out)
{
  const char *comma = "";
  for (guint i = 0; i < items->len; i++) {
    const ListItem *item = g_ptr_array_index(items, i);
    if (item->section != section)
      continue;
    g_string_append_printf(out, "%s%s", comma, item->name);
    comma = ", ";
  }
  g_string_append_c(out, '\n');
}

/* One table over all items keeps the summaries in a column; with options below, each item is a
 * table of its own. */
static void
print_text(const ListTable *table, GString *out)
{
  g_autoptr(GPtrArray) items = collect(table);
  g_string_append_printf(out, "%s\n", table->title);
  g_autoptr(TextTable) rows = text_table_new("ll");
  for (guint i = 0; i < items->len; i++) {
    const ListItem *item = g_ptr_array_index(items, i);
    text_table_row(rows, item->name, item->summary, NULL);
  }
  text_table_print(rows, 2, out);
  for (guint i = 0; i < items->len; i++) {
    const ListItem *item = g_ptr_array_index(items, i);
    if (!item->section || first_with_section(items, item->section) != i)
      continue;
    g_string_append(out, "\n    options of ");
    print_users(items, item->section, out);
    print_options(item->section, out);
  }
}

static cJSON *
options_json(const OptionSection *section)
{
  cJSON *array = cJSON_CreateArray();
  for (const OptionInfo *option = section->options; option->key; option++) {
    g_autofree char *key = g_strdup_printf("%s.%s", section->name, option->key);
    g_autofree char *allowed = option_allowed(option);
    cJSON *object = cJSON_CreateObject();
    cJSON_AddStringToObject(object, "key", key);
    cJSON_AddStringToObject(object, "allowed", allowed);
    cJSON_AddItemToObject(object, "default", cJSON_Parse(option->fallback));
    cJSON_AddStringToObject(object, "summary", option->summary);
    cJSON_AddItemToArray(array, object);
  }
  return array;
}

static cJSON *
table_json(const ListTable *table)
{
  g_autoptr(GPtrArray) items = collect(table);
  cJSON *array = cJSON_CreateArray();
  for (guint i = 0; i < items->len; i++) {
    const ListItem *item = g_ptr_array_index(items, i);
    cJSON *object = cJSON_CreateObject();
    cJSON_AddStringToObject(object, "name", item->name);
    cJSON_AddStringToObject(object, "summary", item->summary);
    if (item->section)
      cJSON_AddItemToObject(object, "options", options_json(item->section));
    cJSON_AddItemToArray(array, object);
  }
  return array;
}

static gboolean
is_wanted(const ListTable *table, const char *kind)
{
  return !kind || g_str_equal(table->kind, kind);
}

static void
print_all_text(const char *kind)
{
  g_autoptr(GString) out = g_string_new(NULL);
  for (gsize i = 0; i < G_N_ELEMENTS(tables); i++) {
    if (!is_wanted(&tables[i], kind))
      continue;
    if (out->len > 0)
      g_string_append_c(out, '\n');
    print_text(&tables[i], out);
  }
  fputs(out->str, stdout);
}

static void
print_all_json(const char *kind)
{
  cJSON *root = cJSON_CreateObject();
  cJSON_AddStringToObject(root, "format", "highwater-list-1");
  for (gsize i = 0; i < G_N_ELEMENTS(tables); i++)
    if (is_wanted(&tables[i], kind))
      cJSON_AddItemToObject(root, tables[i].kind, table_json(&tables[i]));
  g_autofree char *text = json_finish(root);
  fputs(text, stdout);
}

static gboolean
check_kind(const char *kind, GError **error)
{
  const char *kinds[G_N_ELEMENTS(tables) + 1] = {NULL};
  for (gsize i = 0; i < G_N_ELEMENTS(tables); i++) {
    kinds[i] = tables[i].kind;
    if (is_wanted(&tables[i], kind))
      return TRUE;
  }
  g_autofree char *all = g_strjoinv(", ", (char **) (gpointer) kinds);
  const char *nearest = nearest_name(kind, kinds);
  g_set_error(error, HIGHWATER_ERROR, HIGHWATER_ERROR_USAGE,
              "list: no kind '%s'%s%s%s; kinds are %s", kind, nearest ? " (did you mean '" : "",
              nearest ? nearest : "", nearest ? "'?)" : "", all);
  return FALSE;
}

static int
cmd_list_run(int argc, char **argv, GError **error)
{
  gboolean json = FALSE;
  const GOptionEntry entries[] = {
      {"json", 0, 0, G_OPTION_ARG_NONE, &json, "Print JSON instead of text", NULL},
      {0},
  };
  g_auto(GStrv) positionals = NULL;
  if (!command_parse(&command_list, argc, argv, entries, 0, 1, &positionals, error))
    return EXIT_ANSWER_YES;
  const char *kind = positionals[0];
  if (!check_kind(kind, error) || !preset_check_models(error))
    return EXIT_BAD_INPUT;
  if (json)
    print_all_json(kind);
  else
    print_all_text(kind);
  return EXIT_ANSWER_YES;
}

const Command command_list = {
    .name = "list",
    .arguments = "[KIND] [--json]",
    .summary = "Presets of each kind, network families, strategies with their options",
    .run = cmd_list_run,
};
