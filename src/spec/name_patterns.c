/* name_patterns.c - reads and applies lists of patterns that choose names. */
#include "spec/name_patterns.h"

#include <string.h>

static void
read_pattern(JsonReader *reader, const char *key, const cJSON *element, GPtrArray *patterns)
{
  if (!cJSON_IsString(element)) {
    json_reader_fail(reader, key, "must be an array of strings, patterns of parameters' names");
    return;
  }
  const char *pattern = element->valuestring;
  gsize length = strlen(pattern);
  if (length == 0 || length > NAME_PATTERN_LONGEST || g_str_equal(pattern, "!"))
    json_reader_fail(reader, key, "a pattern has 1 to %d characters", NAME_PATTERN_LONGEST);
  else
    g_ptr_array_add(patterns, g_strdup(pattern));
}

NamePatterns *
name_patterns_read(JsonReader *reader, const char *key)
{
  if (!json_reader_has(reader, key))
    return NULL;
  const cJSON *array = json_reader_raw(reader, key);
  guint n = cJSON_IsArray(array) ? (guint) cJSON_GetArraySize(array) : 0;
  if (n == 0 || n > NAME_PATTERNS_MOST) {
    json_reader_fail(reader, key, "must be an array of 1 to %d patterns of parameters' names",
                     NAME_PATTERNS_MOST);
    return NULL;
  }
  NamePatterns *list = g_new0(NamePatterns, 1);
  list->patterns = g_ptr_array_new_with_free_func(g_free);
  const cJSON *element;
  cJSON_ArrayForEach(element, array) read_pattern(reader, key, element, list->patterns);
  if (list->patterns->len < n)
    g_clear_pointer(&list, name_patterns_free);
  return list;
}

void
name_patterns_free(NamePatterns *patterns)
{
  if (patterns == NULL)
    return;
  g_ptr_array_unref(patterns->patterns);
  g_free(patterns);
}

/* Is c one of the set that begins behind '['?  *end: behind its ']', or NULL when it has none. */
static gboolean
in_set(const char *set, char c, const char **end)
{
  gboolean inverted = *set == '!', found = FALSE;
  const char *p = set + (inverted ? 1 : 0);
  do {
    if (*p == '\0') {
      *end = NULL;
      return FALSE;
    }
    gboolean range = p[1] == '-' && p[2] != ']' && p[2] != '\0';
    found |= range ? p[0] <= c && c <= p[2] : *p == c;
    p += range ? 3 : 1;
  } while (*p != ']');
  *end = p + 1;
  return found != inverted;
}

/* Does the pattern's first element, which is no '*', match this character?  *next: behind it. */
static gboolean
matches_one(const char *pattern, char c, const char **next)
{
  const char *end = NULL;
  *next = pattern + 1;
  if (*pattern == '?')
    return TRUE;
  if (*pattern != '[')
    return *pattern == c;
  gboolean found = in_set(pattern + 1, c, &end);
  if (end == NULL) /* not closed: a bracket is meant */
    return c == '[';
  *next = end;
  return found;
}

/* Only the last '*' ever needs to take more, so the time is bounded by the product of the lengths.
 */
gboolean
name_pattern_matches(const char *pattern, const char *name)
{
  const char *star = NULL, *resume = NULL, *next;
  pattern += *pattern == '!';
  while (*name != '\0') {
    if (*pattern == '*') {
      star = ++pattern;
      resume = name;
    } else if (*pattern != '\0' && matches_one(pattern, *name, &next)) {
      pattern = next;
      name++;
    } else if (star != NULL) {
      pattern = star;
      name = ++resume;
    } else {
      return FALSE;
    }
  }
  while (*pattern == '*')
    pattern++;
  return *pattern == '\0';
}

gboolean
name_patterns_choose(const NamePatterns *list, const char *name)
{
  for (guint i = list->patterns->len; i > 0; i--) {
    const char *pattern = g_ptr_array_index(list->patterns, i - 1);
    if (name_pattern_matches(pattern, name))
      return *pattern != '!';
  }
  const char *first = g_ptr_array_index(list->patterns, 0);
  return *first == '!';
}
