/* sorted_times.h - where a moment falls among rows that are in order of a time. */
#ifndef HIGHWATER_BASE_SORTED_TIMES_H
#define HIGHWATER_BASE_SORTED_TIMES_H

#include <glib.h>

#include "base/units.h"

/* Position of the first row whose time (a SimTime at that offset, in bytes, of its struct) is at
 * least `time`; the number of rows when there is none.  order: guint positions in rows, and it is
 * these that are in order, searched and counted; NULL: the rows themselves. */
guint sorted_times_find(const GArray *rows, gsize offset, const GArray *order, SimTime time);

#endif
