/* sweep_leftovers.h - what a sweep that was killed left half written in its folder. */
#ifndef HIGHWATER_SEARCH_SWEEP_LEFTOVERS_H
#define HIGHWATER_SEARCH_SWEEP_LEFTOVERS_H

#include <glib.h>

/* Is the folder missing, empty, or one that a sweep was killed in before it could describe itself
 * there? */
gboolean sweep_leftovers_are_all(const char *path);
/* Removes files and folders that were to be renamed into place, in the folder and in its variants;
 * labels: names of the variants, a set.  What a sweep does not write stays.  Only whoever holds the
 * lock of the folder may call it. */
void sweep_leftovers_remove(const char *path, GHashTable *labels);

#endif
