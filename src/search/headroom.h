/* headroom.h - how much of the allocator's memory a plan is to leave free. */
#ifndef HIGHWATER_SEARCH_HEADROOM_H
#define HIGHWATER_SEARCH_HEADROOM_H

#include <glib.h>

/* A size, or a part of what there is. */
typedef struct {
  gint64 bytes; /* -1: the fraction */
  double fraction;
} Headroom;

/* Reads "10%" or "4GiB"; a NULL text leaves *headroom.  FALSE and error ("COMMAND: --headroom:
 * ...") when it is neither. */
gboolean headroom_read(const char *command, const char *text, Headroom *headroom, GError **error);

/* Bytes of a capacity (of the allocator; G_MAXINT64: none, and 0 then). */
gint64 headroom_of(const Headroom *headroom, gint64 capacity);

#endif
