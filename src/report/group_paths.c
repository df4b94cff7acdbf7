/* group_paths.c - which group a module, or what is named like it, belongs to. */
#include "report/group_paths.h"
#include <string.h>

/* Modules first: a group that is named like a module of another keeps its name. */
GHashTable *
group_paths_new(const RunInfo *info)
{
  GHashTable *positions = g_hash_table_new(g_str_hash, g_str_equal);
  for (guint i = 0; i < info->groups->len; i++) {
    const GPtrArray *modules = g_array_index(info->groups, GroupInfo, i).modules;
    for (guint j = 0; j < modules->len; j++)
      g_hash_table_insert(positions, g_ptr_array_index(modules, j), GUINT_TO_POINTER(i));
  }
  for (guint i = 0; i < info->groups->len; i++)
    g_hash_table_insert(positions, g_array_index(info->groups, GroupInfo, i).name,
                        GUINT_TO_POINTER(i));
  return positions;
}

gint32
group_paths_find(GHashTable *paths, const char *name)
{
  g_autofree char *path = g_strdup(name);
  for (;;) {
    gpointer found;
    if (g_hash_table_lookup_extended(paths, path, NULL, &found))
      return (gint32) GPOINTER_TO_UINT(found);
    if (*path == '\0')
      return -1;
    char *dot = strrchr(path, '.');
    *(dot ? dot : path) = '\0';
  }
}

/* ---- by string ---- */

enum { GROUP_UNKNOWN = -2 };

struct _GroupIndex {
  const Recording *recording;
  GHashTable *paths;
  gint32 *groups; /* by string id: position, -1 or UNKNOWN */
};

GroupIndex *
group_index_new(const Recording *recording, const RunInfo *info)
{
  GroupIndex *index = g_new0(GroupIndex, 1);
  index->recording = recording;
  index->paths = group_paths_new(info);
  index->groups = g_new(gint32, recording->strings->len + 1);
  for (guint i = 0; i < recording->strings->len; i++)
    index->groups[i] = GROUP_UNKNOWN;
  return index;
}

gint32
group_index_of(GroupIndex *index, gint32 module)
{
  if (module < 0)
    return -1;
  gint32 *known = &index->groups[module];
  if (*known == GROUP_UNKNOWN)
    *known = group_paths_find(index->paths, recording_text(index->recording, module));
  return *known;
}

void
group_index_free(GroupIndex *index)
{
  g_hash_table_unref(index->paths);
  g_free(index->groups);
  g_free(index);
}
