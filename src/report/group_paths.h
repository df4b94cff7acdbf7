/* group_paths.h - which group a module, or what is named like it, belongs to. */
#ifndef HIGHWATER_REPORT_GROUP_PATHS_H
#define HIGHWATER_REPORT_GROUP_PATHS_H

#include "report/run_info.h"

/* Names of groups and paths of their modules; refers to the RunInfo's strings.  Free with
 * g_hash_table_unref. */
GHashTable *group_paths_new(const RunInfo *info);

/* Position of the group of that name, or of the longest module path that the name lies under; -1:
 * none. */
gint32 group_paths_find(GHashTable *paths, const char *name);

#endif
