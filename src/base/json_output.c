/* json_output.c - exact whole numbers, null for missing texts. */
#include "base/json_output.h"

void
json_add_int(cJSON *object, const char *key, gint64 value)
{
  char digits[24];
  g_snprintf(digits, sizeof digits, "%" G_GINT64_FORMAT, value);
  cJSON_AddRawToObject(object, key, digits);
}

void
json_add_known_int(cJSON *object, const char *key, gboolean known, gint64 value)
{
  if (known)
    json_add_int(object, key, value);
  else
    cJSON_AddNullToObject(object, key);
}

void
json_add_known_number(cJSON *object, const char *key, gboolean known, double value)
{
  if (known)
    cJSON_AddNumberToObject(object, key, value);
  else
    cJSON_AddNullToObject(object, key);
}

void
json_add_seconds(cJSON *object, const char *key, gboolean known, SimTime ns)
{
  json_add_known_number(object, key, known, (double) ns / 1e9);
}

void
json_add_text(cJSON *object, const char *key, const char *text)
{
  if (text != NULL)
    cJSON_AddStringToObject(object, key, text);
  else
    cJSON_AddNullToObject(object, key);
}

void
json_replace(cJSON *object, const char *key, cJSON *item)
{
  if (cJSON_GetObjectItemCaseSensitive(object, key) != NULL)
    cJSON_ReplaceItemInObjectCaseSensitive(object, key, item);
  else
    cJSON_AddItemToObject(object, key, item);
}

void
json_replace_text(cJSON *object, const char *key, const char *text)
{
  json_replace(object, key, cJSON_CreateString(text));
}

cJSON *
json_section(cJSON *object, const char *key)
{
  cJSON *section = cJSON_GetObjectItemCaseSensitive(object, key);
  if (cJSON_IsObject(section))
    return section;
  section = cJSON_CreateObject();
  json_replace(object, key, section);
  return section;
}

void
json_replace_path(cJSON *object, const char *path, cJSON *item)
{
  g_auto(GStrv) parts = g_strsplit(path, ".", -1);
  guint last = g_strv_length(parts) - 1;
  for (guint i = 0; i < last; i++)
    object = json_section(object, parts[i]);
  json_replace(object, parts[last], item);
}

char *
json_line(const cJSON *item)
{
  char *text = item != NULL ? cJSON_PrintUnformatted(item) : NULL;
  char *copy = g_strdup(text);
  cJSON_free(text);
  return copy;
}

char *
json_finish(cJSON *root)
{
  char *text = cJSON_Print(root);
  char *copy = g_strconcat(text, "\n", NULL);
  cJSON_free(text);
  cJSON_Delete(root);
  return copy;
}
