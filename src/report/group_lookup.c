/* group_lookup.c - to which group of parameters a module belongs. */
#include "report/group_lookup.h"

#include <string.h>

enum { GROUP_UNKNOWN = -2, GROUP_NONE = -1 };

struct _GroupLookup {
  const Recording *recording;
  GHashTable *positions;   /* name of a group, path of a module: position of the group */
  gint32 *group_of_string; /* by string id, looked up once each: position, NONE or UNKNOWN */
};

/* Modules first: a group that is named like a module of another keeps its name. */
static GHashTable *
positions_of_groups(const RunInfo *info)
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

GroupLookup *
group_lookup_new(const Recording *recording, const RunInfo *info)
{
  GroupLookup *lookup = g_new(GroupLookup, 1);
  *lookup =
      (GroupLookup){recording, positions_of_groups(info), g_new(gint32, recording->strings->len)};
  for (guint i = 0; i < recording->strings->len; i++)
    lookup->group_of_string[i] = GROUP_UNKNOWN;
  return lookup;
}

void
group_lookup_free(GroupLookup *lookup)
{
  if (lookup == NULL)
    return;
  g_hash_table_unref(lookup->positions);
  g_free(lookup->group_of_string);
  g_free(lookup);
}

/* The group of that name, or of the longest module path that it lies under. */
static gint32
find_group(GHashTable *positions, const char *name)
{
  g_autofree char *path = g_strdup(name);
  for (;;) {
    gpointer found;
    if (g_hash_table_lookup_extended(positions, path, NULL, &found))
      return (gint32) GPOINTER_TO_UINT(found);
    if (*path == '\0')
      return GROUP_NONE;
    char *dot = strrchr(path, '.');
    *(dot ? dot : path) = '\0';
  }
}

gint32
group_lookup_find(GroupLookup *lookup, gint32 module)
{
  if (module < 0)
    return GROUP_NONE;
  gint32 *known = &lookup->group_of_string[module];
  if (*known == GROUP_UNKNOWN)
    *known = find_group(lookup->positions, recording_text(lookup->recording, module));
  return *known;
}
