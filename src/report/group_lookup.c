/* group_lookup.c - to which group of parameters a module belongs. */
#include "report/group_lookup.h"

#include "report/group_paths.h"

enum { GROUP_UNKNOWN = -2 };

struct _GroupLookup {
  const Recording *recording;
  GHashTable *positions;   /* name of a group, path of a module: position of the group */
  gint32 *group_of_string; /* by string id, looked up once each: position, NONE or UNKNOWN */
};

GroupLookup *
group_lookup_new(const Recording *recording, const RunInfo *info)
{
  GroupLookup *lookup = g_new(GroupLookup, 1);
  *lookup = (GroupLookup){recording, group_paths_new(info), g_new(gint32, recording->strings->len)};
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

gint32
group_lookup_find(GroupLookup *lookup, gint32 module)
{
  if (module < 0)
    return -1;
  gint32 *known = &lookup->group_of_string[module];
  if (*known == GROUP_UNKNOWN)
    *known = group_paths_find(lookup->positions, recording_text(lookup->recording, module));
  return *known;
}
