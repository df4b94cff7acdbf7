/* shared_link.h - capacity that the transfers over it share max-min fairly.
 *
 * Every transfer gets an equal share, but none more than its limit; what the limited ones leave is
 * shared equally by the others.  Shares change when a transfer begins or ends or its limit changes;
 * what is left of it is carried over, so bytes are conserved. */
#ifndef HIGHWATER_ENGINE_SHARED_LINK_H
#define HIGHWATER_ENGINE_SHARED_LINK_H

#include <glib.h>

typedef struct _Engine Engine;
typedef struct _SharedLink SharedLink;

/* capacity: bytes per second, > 0.  flow_limit: the most that one transfer can take at full rate,
 * bytes per second; <= 0: the capacity.  name is copied. */
SharedLink *shared_link_new(Engine *engine, const char *name, double capacity, double flow_limit);
const char *shared_link_name(const SharedLink *link);

/* Bytes moved up to now, those of unfinished transfers included. */
double shared_link_bytes(const SharedLink *link);
/* Transfers that are under way. */
int shared_link_flows(const SharedLink *link);

#endif
