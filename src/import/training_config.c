/* training_config.c - recognizes a training configuration, has it read, and prints what became of
 * it. */
#include "import/config_reader.h"

#include <string.h>

#include "base/json_output.h"
#include "base/units.h"

/* Keys at the top of our own plans that no other kind has. */
static const char *const own_marks[] = {"strategy",  "mesh",    "batch",     "accumulation",
                                        "precision", "retain",  "trainable", "phases",
                                        "ranks",     "failure", "allocator", NULL};

static const ConfigKind *const kinds[] = {&config_kind_accelerate, &config_kind_torchtitan,
                                          &config_kind_deepspeed, &config_kind_arguments};

static gboolean
has_mark(const cJSON *root, const char *mark)
{
  g_auto(GStrv) parts = g_strsplit(mark, ".", 2);
  const cJSON *item = cJSON_GetObjectItemCaseSensitive(root, parts[0]);
  return parts[1] == NULL ? item != NULL : cJSON_IsObject(item) && has_mark(item, parts[1]);
}

static guint
count_marks(const cJSON *root, const char *const *marks)
{
  guint n = 0;
  for (; *marks != NULL; marks++)
    n += has_mark(root, *marks);
  return n;
}

/* The kind of which the file has the most marks; NULL where it has none, or is a plan. */
static const ConfigKind *
find_kind(const cJSON *root)
{
  const ConfigKind *found = NULL;
  guint most = 0;
  if (count_marks(root, own_marks) > 0)
    return NULL;
  for (guint i = 0; i < G_N_ELEMENTS(kinds); i++) {
    guint n = count_marks(root, kinds[i]->marks);
    if (n > most) {
      most = n;
      found = kinds[i];
    }
  }
  return found;
}

gboolean
training_config_is_foreign(const char *text, gsize length)
{
  if (config_tree_language(text, length) != CONFIG_JSON)
    return TRUE;
  g_autoptr(ConfigTree) tree = config_tree_parse("", text, length, NULL);
  return tree != NULL && find_kind(tree->root) != NULL;
}

/* ---- what an export leaves to the training script ---- */

/* The rest of the line that begins with the mark; NULL where none does.  Caller frees. */
static char *
find_script_comment(const char *text, gsize length)
{
  const char *stop = text + length;
  for (const char *line = text; line < stop;) {
    const char *end = memchr(line, '\n', (gsize) (stop - line));
    gsize n = (gsize) ((end != NULL ? end : stop) - line), mark = strlen(CONFIG_SCRIPT_COMMENT);
    if (n > mark && memcmp(line, CONFIG_SCRIPT_COMMENT, mark) == 0)
      return g_strndup(line + mark, n - mark);
    line += n + 1;
  }
  return NULL;
}

static void
take_script_part(TrainingConfig *config, const cJSON *part)
{
  for (const cJSON *item = part->child; item != NULL; item = item->next) {
    json_replace(config->plan, item->string, cJSON_Duplicate(item, TRUE));
    ConfigNote *note = g_new0(ConfigNote, 1);
    *note = (ConfigNote){.kind = CONFIG_USED,
                         .file = g_strdup(config->name),
                         .key = g_strconcat(CONFIG_SCRIPT_KEY ".", item->string, NULL),
                         .value = json_line(item),
                         .text = g_strdup("what highwater export left to the training script")};
    g_ptr_array_add(config->notes, note);
  }
}

static gboolean
read_script_part(TrainingConfig *config, ConfigTree *tree, const char *text, gsize length,
                 GError **error)
{
  cJSON *part = cJSON_DetachItemFromObjectCaseSensitive(tree->root, CONFIG_SCRIPT_KEY);
  g_autofree char *comment =
      tree->language != CONFIG_JSON ? find_script_comment(text, length) : NULL;
  if (comment != NULL && part == NULL)
    part = cJSON_Parse(comment);
  gboolean wrong = (comment != NULL && part == NULL) || (part != NULL && !cJSON_IsObject(part));
  if (wrong)
    g_set_error(error, HIGHWATER_ERROR, HIGHWATER_ERROR_INPUT, "%s: %s is not an object of JSON",
                tree->name, comment != NULL ? CONFIG_SCRIPT_COMMENT : CONFIG_SCRIPT_KEY);
  else if (part != NULL)
    take_script_part(config, part);
  cJSON_Delete(part);
  return !wrong;
}

/* ---- reading ---- */

static void
note_free(gpointer data)
{
  ConfigNote *note = data;
  g_free(note->file);
  g_free(note->key);
  g_free(note->value);
  g_free(note->text);
  g_free(note);
}

static gboolean
read_kind(TrainingConfig *config, const ConfigTree *tree, const ConfigKind *kind,
          const TrainingConfigSettings *settings, GError **error)
{
  ConfigResult result = {
      .plan = config->plan,
      .notes = config->notes,
      .origin = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, g_free),
      .settings = settings,
  };
  ConfigReader reader = {.tree = tree, .root = tree->root, .prefix = "", .result = &result};
  kind->read(&reader);
  g_hash_table_unref(result.origin);
  if (result.error == NULL)
    return TRUE;
  g_propagate_error(error, result.error);
  return FALSE;
}

/* Most configurations leave it to the script; the plan does then, too. */
static void
note_sequence_length(TrainingConfig *config)
{
  const cJSON *batch = cJSON_GetObjectItemCaseSensitive(config->plan, "batch");
  if (cJSON_GetObjectItemCaseSensitive(batch, "sequence_length") != NULL)
    return;
  ConfigNote *note = g_new0(ConfigNote, 1);
  *note = (ConfigNote){.kind = CONFIG_DEFAULTED,
                       .file = g_strdup(config->name),
                       .key = g_strdup("batch.sequence_length"),
                       .value = g_strdup("8192"),
                       .text = g_strdup("the training script says it; the plan's default")};
  g_ptr_array_add(config->notes, note);
}

TrainingConfig *
training_config_read(const char *name, const char *text, gsize length,
                     const TrainingConfigSettings *settings, GError **error)
{
  g_autoptr(ConfigTree) tree = config_tree_parse(name, text, length, error);
  if (tree == NULL)
    return NULL;
  g_autoptr(TrainingConfig) config = g_new0(TrainingConfig, 1);
  config->name = g_strdup(name);
  config->plan = cJSON_CreateObject();
  config->notes = g_ptr_array_new_with_free_func(note_free);
  const ConfigKind *kind = find_kind(tree->root);
  if (kind == NULL) {
    g_set_error(error, HIGHWATER_ERROR, HIGHWATER_ERROR_INPUT,
                "%s: no key of a DeepSpeed, accelerate, torchtitan or TrainingArguments "
                "configuration is in it",
                name);
    return NULL;
  }
  config->title = kind->title;
  if (!read_script_part(config, tree, text, length, error) ||
      !read_kind(config, tree, kind, settings, error))
    return NULL;
  note_sequence_length(config);
  return g_steal_pointer(&config);
}

void
training_config_free(TrainingConfig *config)
{
  if (config == NULL)
    return;
  cJSON_Delete(config->plan);
  g_ptr_array_unref(config->notes);
  g_free(config->name);
  g_free(config);
}

/* ---- what comes of it ---- */

/* In the order of the shipped plans; what else there is comes last. */
char *
training_config_plan(const TrainingConfig *config)
{
  static const char *const order[] = {"strategy",     "mesh",      "batch",
                                      "accumulation", "precision", "activation_checkpointing",
                                      "optimizer"};
  cJSON *rest = cJSON_Duplicate(config->plan, TRUE), *plan = cJSON_CreateObject();
  for (guint i = 0; i < G_N_ELEMENTS(order); i++) {
    cJSON *item = cJSON_DetachItemFromObjectCaseSensitive(rest, order[i]);
    if (item != NULL)
      cJSON_AddItemToObject(plan, order[i], item);
  }
  while (rest->child != NULL) {
    cJSON *item = cJSON_DetachItemViaPointer(rest, rest->child);
    g_autofree char *name = g_strdup(item->string);
    cJSON_AddItemToObject(plan, name, item);
  }
  cJSON_Delete(rest);
  return json_finish(plan);
}

static int
compare_notes(gconstpointer a, gconstpointer b)
{
  const ConfigNote *x = *(const ConfigNote *const *) a, *y = *(const ConfigNote *const *) b;
  return x->line != y->line ? (x->line < y->line ? -1 : 1) : strcmp(x->key, y->key);
}

static void
print_notes(const TrainingConfig *config, ConfigNoteKind kind, const char *title, GString *text)
{
  gboolean first = TRUE;
  for (guint i = 0; i < config->notes->len; i++) {
    const ConfigNote *note = g_ptr_array_index(config->notes, i);
    if (note->kind != kind)
      continue;
    if (first)
      g_string_append_printf(text, "  %s\n", title);
    first = FALSE;
    g_string_append_printf(text, "    %s", note->key);
    if (note->value[0] != '\0')
      g_string_append_printf(text, ": %s", note->value);
    if (note->line > 0 && g_str_equal(note->file, config->name))
      g_string_append_printf(text, " (line %u)", note->line);
    else if (note->line > 0)
      g_string_append_printf(text, " (%s, line %u)", note->file, note->line);
    g_string_append_printf(text, " - %s\n", note->text);
  }
}

char *
training_config_note(const TrainingConfig *config)
{
  g_autoptr(GString) text = g_string_new(NULL);
  g_ptr_array_sort(config->notes, compare_notes);
  g_string_append_printf(text, "%s: a configuration of %s\n", config->name, config->title);
  print_notes(config, CONFIG_USED, "used", text);
  print_notes(config, CONFIG_DEFAULTED, "defaulted (the file does not say)", text);
  print_notes(config, CONFIG_IGNORED, "ignored", text);
  return g_string_free(g_steal_pointer(&text), FALSE);
}
