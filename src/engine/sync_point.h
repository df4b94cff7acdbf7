/* sync_point.h - marks in time that fire once, for which streams and callers wait.
 *
 * They are small (32 bytes) and made in masses, so a name is only put together when it is printed.
 */
#ifndef HIGHWATER_ENGINE_SYNC_POINT_H
#define HIGHWATER_ENGINE_SYNC_POINT_H

#include <glib.h>

#include "base/units.h"

typedef struct _Engine Engine;
typedef struct _SyncPoint SyncPoint;

/* Named "PREFIX NUMBER" in reports, or "PREFIX" when number < 0.  prefix is not copied: it must
 * outlive the engine. */
SyncPoint *sync_point_new(Engine *engine, const char *prefix, gint64 number);

gboolean sync_point_fired(const SyncPoint *point);
/* Time it fired; only when it has. */
SimTime sync_point_time(const SyncPoint *point);
/* Makes it unfired again, for a later record; nothing may be waiting for it. */
void sync_point_reset(SyncPoint *point);

#endif
