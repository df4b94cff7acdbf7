/* config_file.c - follows the name of a DeepSpeed configuration in another one. */
#include "import/config_file.h"

#include "base/json_document.h"

/* Caller frees. */
static char *
find_file(const ConfigReader *r, const char *name)
{
  if (g_path_is_absolute(name) || g_file_test(name, G_FILE_TEST_EXISTS))
    return g_strdup(name);
  g_autofree char *folder = g_path_get_dirname(r->tree->name);
  return g_build_filename(folder, name, NULL);
}

static void
read_tree(ConfigReader *r, const ConfigTree *tree, const DeepSpeedOutside *outside)
{
  ConfigReader inner = {.tree = tree, .root = tree->root, .prefix = "", .result = r->result};
  config_read_deepspeed(&inner, outside);
}

void
config_read_file(ConfigReader *r, const char *key, const DeepSpeedOutside *outside)
{
  const char *name = config_text(r, key, "");
  if (config_failed(r))
    return;
  if (!r->result->settings->reads_files) {
    config_fail(r, key, "names another file, which is not read here");
    return;
  }
  g_autofree char *path = find_file(r, name);
  gsize length;
  g_autoptr(GError) error = NULL;
  g_autofree char *text = json_text_load(path, &length, &error);
  g_autoptr(ConfigTree) tree = text != NULL ? config_tree_parse(path, text, length, &error) : NULL;
  if (tree == NULL) {
    config_fail(r, key, "%s", error->message);
    return;
  }
  config_note(r, CONFIG_USED, key, "its keys follow");
  read_tree(r, tree, outside);
}
