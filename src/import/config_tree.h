/* config_tree.h - a training configuration as a tree, whatever language it is written in. */
#ifndef HIGHWATER_IMPORT_CONFIG_TREE_H
#define HIGHWATER_IMPORT_CONFIG_TREE_H

#include <cjson/cJSON.h>
#include <glib.h>

typedef enum { CONFIG_JSON, CONFIG_YAML, CONFIG_TOML } ConfigLanguage;

typedef struct {
  char *name;        /* what messages call the file */
  cJSON *root;       /* an object */
  GHashTable *lines; /* cJSON * -> line, of keys */
  ConfigLanguage language;
} ConfigTree;

/* What the text is written in, by its first significant line. */
ConfigLanguage config_tree_language(const char *text, gsize length);
/* Parses JSON, YAML or TOML.  NULL and error "NAME: line L: ..." when it is malformed, is not an
 * object at top level, has a key twice, or uses what training configurations do not: several YAML
 * documents, anchors, aliases, tags. */
ConfigTree *config_tree_parse(const char *name, const char *text, gsize length, GError **error);
void config_tree_free(ConfigTree *tree);
G_DEFINE_AUTOPTR_CLEANUP_FUNC(ConfigTree, config_tree_free)

/* Line of an item's key, 0 when it is not known. */
guint config_tree_line(const ConfigTree *tree, const cJSON *item);

/* ---- for the parsers ---- */

/* A scalar as YAML and the frameworks' own readers take it: a number ("5e8", "1_000"), true, false,
 * null, or a string.  Caller owns it. */
cJSON *config_tree_scalar(const char *text);
gboolean config_tree_read_yaml(ConfigTree *tree, const char *text, gsize length, GError **error);
gboolean config_tree_read_toml(ConfigTree *tree, const char *text, gsize length, GError **error);
/* Sets the error "NAME: line L: MESSAGE"; always FALSE. */
gboolean config_tree_fail(const ConfigTree *tree, guint line, GError **error, const char *format,
                          ...) G_GNUC_PRINTF(4, 5);

#endif
