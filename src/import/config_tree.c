/* config_tree.c - a training configuration as a tree, whatever language it is written in. */
#include "import/config_tree.h"

#include <math.h>
#include <string.h>

#include "base/json_document.h"
#include "base/json_scan.h"
#include "base/units.h"

#define BYTE_ORDER_MARK "\xef\xbb\xbf"

gboolean
config_tree_fail(const ConfigTree *tree, guint line, GError **error, const char *format, ...)
{
  va_list arguments;
  va_start(arguments, format);
  g_autofree char *message = g_strdup_vprintf(format, arguments);
  va_end(arguments);
  /* Parsers' own messages may have more than one line. */
  g_strdelimit(message, "\r\n\t", ' ');
  g_set_error(error, HIGHWATER_ERROR, HIGHWATER_ERROR_INPUT, "%s: line %u: %s", tree->name, line,
              message);
  return FALSE;
}

/* ---- scalars ---- */

/* Digits, signs, one point, an exponent; underscores between digits as in YAML 1.1 and TOML. */
static gboolean
is_number(const char *text)
{
  const char *s = text + (*text == '+' || *text == '-');
  gboolean digits = FALSE;
  for (; g_ascii_isdigit(*s) || (*s == '_' && digits); s++)
    digits = TRUE;
  if (*s == '.')
    for (s++; g_ascii_isdigit(*s) || (*s == '_' && digits); s++)
      digits = TRUE;
  if (digits && (*s == 'e' || *s == 'E')) {
    s += 1 + (s[1] == '+' || s[1] == '-');
    if (!g_ascii_isdigit(*s))
      return FALSE;
    while (g_ascii_isdigit(*s))
      s++;
  }
  return digits && *s == '\0';
}

static gboolean
is_one_of(const char *text, const char *const *words)
{
  for (; *words != NULL; words++)
    if (g_ascii_strcasecmp(text, *words) == 0)
      return TRUE;
  return FALSE;
}

cJSON *
config_tree_scalar(const char *text)
{
  if (is_one_of(text, (const char *const[]){"null", "~", "", NULL}))
    return cJSON_CreateNull();
  if (is_one_of(text, (const char *const[]){"true", "yes", "on", NULL}))
    return cJSON_CreateTrue();
  if (is_one_of(text, (const char *const[]){"false", "no", "off", NULL}))
    return cJSON_CreateFalse();
  if (!is_number(text))
    return cJSON_CreateString(text);
  g_auto(GStrv) parts = g_strsplit(text, "_", -1);
  g_autofree char *digits = g_strjoinv("", parts);
  double number = g_ascii_strtod(digits, NULL);
  return isfinite(number) ? cJSON_CreateNumber(number) : cJSON_CreateString(text);
}

/* ---- languages ---- */

/* The first line that is neither empty nor a comment; its end in *end. */
static const char *
first_line(const char *text, const char *stop, const char **end)
{
  if (stop - text >= 3 && memcmp(text, BYTE_ORDER_MARK, 3) == 0)
    text += 3;
  for (;;) {
    while (text < stop && g_ascii_isspace(*text))
      text++;
    for (*end = text; *end < stop && **end != '\n';)
      (*end)++;
    if (text == stop || *text != '#' || *end == stop)
      return text;
    text = *end;
  }
}

ConfigLanguage
config_tree_language(const char *text, gsize length)
{
  const char *end, *stop = text + length, *line = first_line(text, stop, &end), *begin = line;
  if (line == stop || *line == '{' || *line == '#')
    return CONFIG_JSON;
  if (*line == '[')
    return CONFIG_TOML;
  for (; line < end && *line != ':' && *line != '='; line++)
    if (*line == '#')
      break;
  if (line < end && *line == '=')
    return CONFIG_TOML;
  return line < end && *line == ':'                         ? CONFIG_YAML
         : begin < stop && (*begin == '-' || *begin == '%') ? CONFIG_YAML
                                                            : CONFIG_JSON;
}

/* Lines of keys stand in the order of the text, which is that of the tree. */
static void
note_lines(ConfigTree *tree, const cJSON *item, const GArray *lines, guint *next)
{
  for (const cJSON *child = item->child; child != NULL; child = child->next) {
    if (child->string != NULL && *next < lines->len)
      g_hash_table_insert(tree->lines, (gpointer) (gsize) child,
                          GUINT_TO_POINTER(g_array_index(lines, guint, (*next)++)));
    note_lines(tree, child, lines, next);
  }
}

static gboolean
read_json(ConfigTree *tree, const char *text, gsize length, GError **error)
{
  g_autoptr(JsonDocument) document = json_document_parse(tree->name, text, length, error);
  if (document == NULL)
    return FALSE;
  g_autoptr(GArray) lines = g_array_new(FALSE, FALSE, sizeof(guint));
  json_scan(tree->name, text, length, lines, NULL);
  tree->root = cJSON_Duplicate(json_document_root(document), TRUE);
  guint next = 0;
  note_lines(tree, tree->root, lines, &next);
  return TRUE;
}

static gboolean (*const readers[])(ConfigTree *, const char *, gsize, GError **) = {
    [CONFIG_JSON] = read_json,
    [CONFIG_YAML] = config_tree_read_yaml,
    [CONFIG_TOML] = config_tree_read_toml,
};

ConfigTree *
config_tree_parse(const char *name, const char *text, gsize length, GError **error)
{
  g_autoptr(ConfigTree) tree = g_new0(ConfigTree, 1);
  tree->name = g_strdup(name);
  tree->lines = g_hash_table_new(NULL, NULL);
  text = text != NULL ? text : "";
  tree->language = config_tree_language(text, length);
  if (length > JSON_MAX_BYTES) {
    g_set_error(error, HIGHWATER_ERROR, HIGHWATER_ERROR_INPUT, "%s: larger than 64 MiB", name);
    return NULL;
  }
  if (!readers[tree->language](tree, text, length, error))
    return NULL;
  return g_steal_pointer(&tree);
}

void
config_tree_free(ConfigTree *tree)
{
  if (tree == NULL)
    return;
  cJSON_Delete(tree->root);
  g_hash_table_unref(tree->lines);
  g_free(tree->name);
  g_free(tree);
}

guint
config_tree_line(const ConfigTree *tree, const cJSON *item)
{
  return GPOINTER_TO_UINT(g_hash_table_lookup(tree->lines, item));
}
