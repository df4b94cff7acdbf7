/* config_yaml.c - YAML becomes a tree; libyaml parses it. */
#include <string.h>
#include <yaml.h>

#include "base/json_scan.h"
#include "import/config_tree.h"

typedef struct {
  yaml_parser_t parser;
  yaml_event_t event; /* the one in hand */
  ConfigTree *tree;
  GError **error;
} YamlReader;

static guint
line_of(const yaml_event_t *event)
{
  return (guint) event->start_mark.line + 1;
}

static gboolean
fail_parser(YamlReader *r)
{
  const yaml_parser_t *p = &r->parser;
  const char *problem = p->problem != NULL ? p->problem : "not YAML";
  gsize line = p->problem_mark.line;
  if (strstr(problem, "cannot start any token") != NULL)
    problem = "a tab or another character that no value begins with; YAML is indented with spaces";
  return config_tree_fail(r->tree, (guint) line + 1, r->error, "%s", problem);
}

/* What a training configuration does not need, and PyYAML's readers of them do not expect. */
static gboolean
refuse_features(YamlReader *r)
{
  const yaml_event_t *e = &r->event;
  gboolean anchored =
      e->type == YAML_ALIAS_EVENT ||
      (e->type == YAML_SCALAR_EVENT && e->data.scalar.anchor != NULL) ||
      (e->type == YAML_MAPPING_START_EVENT && e->data.mapping_start.anchor != NULL) ||
      (e->type == YAML_SEQUENCE_START_EVENT && e->data.sequence_start.anchor != NULL);
  if (anchored)
    return config_tree_fail(r->tree, line_of(e), r->error,
                            "anchors and aliases (&, *) are not supported: write the value out");
  gboolean tagged = (e->type == YAML_SCALAR_EVENT && e->data.scalar.tag != NULL) ||
                    (e->type == YAML_MAPPING_START_EVENT && e->data.mapping_start.tag != NULL) ||
                    (e->type == YAML_SEQUENCE_START_EVENT && e->data.sequence_start.tag != NULL);
  if (tagged)
    return config_tree_fail(r->tree, line_of(e), r->error, "tags (!) are not supported");
  return TRUE;
}

static gboolean
next_event(YamlReader *r)
{
  yaml_event_delete(&r->event);
  if (!yaml_parser_parse(&r->parser, &r->event)) {
    memset(&r->event, 0, sizeof r->event);
    return fail_parser(r);
  }
  return refuse_features(r);
}

static char *
scalar_text(const yaml_event_t *event)
{
  return g_strndup((const char *) event->data.scalar.value, event->data.scalar.length);
}

static cJSON *
scalar_value(const yaml_event_t *event)
{
  g_autofree char *text = scalar_text(event);
  return event->data.scalar.style == YAML_PLAIN_SCALAR_STYLE ? config_tree_scalar(text)
                                                             : cJSON_CreateString(text);
}

static cJSON *read_value(YamlReader *r, int depth);

static gboolean
read_pair(YamlReader *r, cJSON *object, GHashTable *seen, int depth)
{
  guint line = line_of(&r->event);
  if (r->event.type != YAML_SCALAR_EVENT)
    return config_tree_fail(r->tree, line, r->error, "a key must be a word");
  g_autofree char *key = scalar_text(&r->event);
  if (g_hash_table_contains(seen, key))
    return config_tree_fail(r->tree, line, r->error, "key '%.60s' stands twice in its object", key);
  if (!next_event(r))
    return FALSE;
  cJSON *value = read_value(r, depth + 1);
  if (value == NULL)
    return FALSE;
  cJSON_AddItemToObject(object, key, value);
  g_hash_table_add(seen, value->string);
  g_hash_table_insert(r->tree->lines, value, GUINT_TO_POINTER(line));
  return next_event(r);
}

static gboolean
read_items(YamlReader *r, cJSON *item, int depth)
{
  if (!next_event(r))
    return FALSE;
  if (cJSON_IsObject(item)) {
    g_autoptr(GHashTable) seen = g_hash_table_new(g_str_hash, g_str_equal);
    while (r->event.type != YAML_MAPPING_END_EVENT)
      if (!read_pair(r, item, seen, depth))
        return FALSE;
    return TRUE;
  }
  while (r->event.type != YAML_SEQUENCE_END_EVENT) {
    cJSON *element = read_value(r, depth + 1);
    if (element == NULL)
      return FALSE;
    cJSON_AddItemToArray(item, element);
    if (!next_event(r))
      return FALSE;
  }
  return TRUE;
}

/* The value that begins with the event in hand; its last event is in hand then. */
static cJSON *
read_value(YamlReader *r, int depth)
{
  if (depth > JSON_MAX_DEPTH) {
    config_tree_fail(r->tree, line_of(&r->event), r->error, "nested more than %d deep",
                     JSON_MAX_DEPTH);
    return NULL;
  }
  if (r->event.type == YAML_SCALAR_EVENT)
    return scalar_value(&r->event);
  cJSON *item =
      r->event.type == YAML_MAPPING_START_EVENT ? cJSON_CreateObject() : cJSON_CreateArray();
  if (read_items(r, item, depth))
    return item;
  cJSON_Delete(item);
  return NULL;
}

static gboolean
read_document(YamlReader *r)
{
  /* Stream start, document start, value, document end, stream end. */
  if (!next_event(r) || !next_event(r))
    return FALSE;
  if (r->event.type == YAML_STREAM_END_EVENT)
    return config_tree_fail(r->tree, 1, r->error, "the file is empty");
  if (!next_event(r))
    return FALSE;
  if (r->event.type != YAML_MAPPING_START_EVENT)
    return config_tree_fail(r->tree, line_of(&r->event), r->error,
                            "keys with values (key: value) are expected at the top");
  r->tree->root = read_value(r, 0);
  if (r->tree->root == NULL || !next_event(r) || !next_event(r))
    return FALSE;
  if (r->event.type != YAML_STREAM_END_EVENT)
    return config_tree_fail(r->tree, line_of(&r->event), r->error,
                            "a second document begins here: one is expected in a file");
  return TRUE;
}

gboolean
config_tree_read_yaml(ConfigTree *tree, const char *text, gsize length, GError **error)
{
  YamlReader reader = {.tree = tree, .error = error};
  yaml_parser_initialize(&reader.parser);
  yaml_parser_set_input_string(&reader.parser, (const unsigned char *) text, length);
  gboolean done = read_document(&reader);
  yaml_event_delete(&reader.event);
  yaml_parser_delete(&reader.parser);
  return done;
}
