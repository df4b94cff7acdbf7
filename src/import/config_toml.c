/* config_toml.c - TOML becomes a tree. */
#include <math.h>
#include <string.h>

#include "base/json_scan.h"
#include "import/config_toml_events.h"
#include "import/config_tree.h"

typedef struct {
  ConfigTree *tree;
  cJSON *open[JSON_MAX_DEPTH + 1]; /* tables and arrays that enclose what comes next */
  int depth;                       /* how many are open; may exceed what is kept */
  guint wrong_line;
  char *wrong;
} TomlReader;

static void
remember_error(TomlReader *r, guint line, const char *message)
{
  if (r->wrong == NULL) {
    r->wrong = g_strdup(message);
    r->wrong_line = line;
  }
}

/* Takes the item.  What lies too deep, or has a key that is there, is dropped. */
static void
put(TomlReader *r, const char *key, guint line, cJSON *item)
{
  if (r->depth == 0 || r->depth > JSON_MAX_DEPTH) {
    cJSON_Delete(item);
    return;
  }
  cJSON *parent = r->open[r->depth - 1];
  if (key != NULL)
    cJSON_AddItemToObject(parent, key, item);
  else
    cJSON_AddItemToArray(parent, item);
  g_hash_table_insert(r->tree->lines, item, GUINT_TO_POINTER(line));
}

static void
on_begin(void *data, const char *key, unsigned line, int is_array)
{
  TomlReader *r = data;
  if (r->depth >= JSON_MAX_DEPTH) {
    remember_error(r, line, "nested too deep");
    r->depth++;
    return;
  }
  cJSON *item = is_array ? cJSON_CreateArray() : cJSON_CreateObject();
  if (r->depth == 0)
    r->tree->root = item;
  else
    put(r, key, line, item);
  r->open[r->depth++] = item;
}

static void
on_end(void *data)
{
  ((TomlReader *) data)->depth--;
}

static void
on_string(void *data, const char *key, unsigned line, const char *value)
{
  put(data, key, line, cJSON_CreateString(value));
}

static void
on_number(void *data, const char *key, unsigned line, double value)
{
  if (!isfinite(value))
    remember_error(data, line, "inf and nan are no values of a training configuration");
  put(data, key, line, cJSON_CreateNumber(isfinite(value) ? value : 0));
}

static void
on_boolean(void *data, const char *key, unsigned line, int value)
{
  put(data, key, line, cJSON_CreateBool(value));
}

static void
on_error(void *data, unsigned line, const char *message)
{
  remember_error(data, line, message);
}

gboolean
config_tree_read_toml(ConfigTree *tree, const char *text, gsize length, GError **error)
{
  static const ConfigTomlEvents events = {on_begin,  on_end,     on_string,
                                          on_number, on_boolean, on_error};
  TomlReader reader = {.tree = tree};
  config_toml_parse(text, length, &events, &reader);
  g_autofree char *wrong = reader.wrong;
  return wrong == NULL || config_tree_fail(tree, reader.wrong_line, error, "%s", wrong);
}
