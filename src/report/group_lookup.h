/* group_lookup.h - to which group of parameters a module belongs. */
#ifndef HIGHWATER_REPORT_GROUP_LOOKUP_H
#define HIGHWATER_REPORT_GROUP_LOOKUP_H

#include "record/recording.h"
#include "report/run_info.h"

typedef struct _GroupLookup GroupLookup;

/* Borrows both. */
GroupLookup *group_lookup_new(const Recording *recording, const RunInfo *info);
void group_lookup_free(GroupLookup *lookup);
G_DEFINE_AUTOPTR_CLEANUP_FUNC(GroupLookup, group_lookup_free)

/* Position in info->groups of the group that is named so, or that has the longest module path which
 * the module (string id of the recording; -1: none) lies under; -1: it is in none. */
gint32 group_lookup_find(GroupLookup *lookup, gint32 module);

#endif
