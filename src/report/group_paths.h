/* group_paths.h - which group a module, or what is named like it, belongs to. */
#ifndef HIGHWATER_REPORT_GROUP_PATHS_H
#define HIGHWATER_REPORT_GROUP_PATHS_H

#include "record/recording.h"
#include "report/run_info.h"

/* Names of groups and paths of their modules; refers to the RunInfo's strings.  Free with
 * g_hash_table_unref. */
GHashTable *group_paths_new(const RunInfo *info);

/* Position of the group of that name, or of the longest module path that the name lies under; -1:
 * none. */
gint32 group_paths_find(GHashTable *paths, const char *name);

/* The groups of a recording's strings, each looked up once. */
typedef struct _GroupIndex GroupIndex;

/* Refers to both. */
GroupIndex *group_index_new(const Recording *recording, const RunInfo *info);
/* The same of the module of a span, a string id; -1: of none. */
gint32 group_index_of(GroupIndex *index, gint32 module);
void group_index_free(GroupIndex *index);
G_DEFINE_AUTOPTR_CLEANUP_FUNC(GroupIndex, group_index_free)

#endif
