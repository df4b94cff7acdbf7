/* preset.c - where shipped files are found. */
#include "spec/preset.h"

#include <string.h>

#include "base/nearest_name.h"
#include "base/units.h"

/* All are JSON but for Programs, which have a text form. */
static const char *const suffixes[] = {".json", ".program"};

static const char *
suffix_of(const char *kind)
{
  return suffixes[g_str_equal(kind, "program")];
}

/* The suffix that a name has, or NULL. */
static const char *
find_suffix(const char *name)
{
  for (guint i = 0; i < G_N_ELEMENTS(suffixes); i++)
    if (g_str_has_suffix(name, suffixes[i]))
      return suffixes[i];
  return NULL;
}

char *
preset_folder(const char *kind)
{
  const char *models = g_getenv("HIGHWATER_MODELS");
  if (models && *models)
    return g_build_filename(models, kind, NULL);
  g_autofree char *installed = g_build_filename(PKGDATADIR, kind, NULL);
  if (g_file_test(installed, G_FILE_TEST_IS_DIR))
    return g_steal_pointer(&installed);
  return g_build_filename(SOURCE_DIR, "models", kind, NULL);
}

static int
compare_names(gconstpointer a, gconstpointer b)
{
  return strcmp(*(const char *const *) a, *(const char *const *) b);
}

char **
preset_names(const char *kind)
{
  g_autoptr(GPtrArray) names = g_ptr_array_new();
  g_autofree char *folder = preset_folder(kind);
  GDir *dir = g_dir_open(folder, 0, NULL);
  if (dir) {
    const char *entry;
    while ((entry = g_dir_read_name(dir)))
      if (entry[0] != '.' && g_str_has_suffix(entry, suffix_of(kind)))
        g_ptr_array_add(names, preset_name_of(entry));
    g_dir_close(dir);
  }
  g_ptr_array_sort(names, compare_names);
  g_ptr_array_add(names, NULL);
  return (char **) g_ptr_array_free(g_steal_pointer(&names), FALSE);
}

gboolean
preset_exists(const char *kind, const char *name)
{
  g_auto(GStrv) names = preset_names(kind);
  return g_strv_contains((const char *const *) names, name);
}

gboolean
preset_check_models(GError **error)
{
  const char *models = g_getenv("HIGHWATER_MODELS");
  if (!models || !*models || g_file_test(models, G_FILE_TEST_IS_DIR))
    return TRUE;
  g_set_error(error, HIGHWATER_ERROR, HIGHWATER_ERROR_INPUT,
              "HIGHWATER_MODELS: %s: there is no such folder", models);
  return FALSE;
}

static gboolean
is_path(const char *text)
{
  return g_str_equal(text, "-") || strchr(text, '/') || find_suffix(text) != NULL;
}

char *
preset_find(const char *kind, const char *preset_or_path, GError **error)
{
  if (is_path(preset_or_path))
    return g_strdup(preset_or_path);

  g_autofree char *folder = preset_folder(kind);
  g_autofree char *file = g_strconcat(preset_or_path, suffix_of(kind), NULL);
  g_autofree char *path = g_build_filename(folder, file, NULL);
  if (*preset_or_path && g_file_test(path, G_FILE_TEST_IS_REGULAR))
    return g_steal_pointer(&path);
  if (g_file_test(preset_or_path, G_FILE_TEST_IS_REGULAR))
    return g_strdup(preset_or_path);

  if (!preset_check_models(error))
    return NULL;
  g_auto(GStrv) names = preset_names(kind);
  const char *nearest = nearest_name(preset_or_path, (const char *const *) names);
  g_autofree char *hint = nearest
                              ? g_strdup_printf("did you mean '%s'?", nearest)
                              : g_strdup_printf("presets are listed by 'highwater list %s'", kind);
  if (!*preset_or_path) {
    g_set_error(error, HIGHWATER_ERROR, HIGHWATER_ERROR_INPUT,
                "a %s is needed, not an empty name; presets are listed by 'highwater list %s'",
                kind, kind);
    return NULL;
  }
  g_set_error(error, HIGHWATER_ERROR, HIGHWATER_ERROR_INPUT,
              "%s: no such %s preset, and no file of that name; %s", preset_or_path, kind, hint);
  return NULL;
}

char *
preset_name_of(const char *path)
{
  if (g_str_equal(path, "-"))
    return g_strdup("stdin");
  g_autofree char *base = g_path_get_basename(path);
  const char *suffix = find_suffix(base);
  if (suffix != NULL && strlen(base) > strlen(suffix))
    base[strlen(base) - strlen(suffix)] = '\0';
  return g_steal_pointer(&base);
}
