/* rate_group.h - work that runs slower or faster depending on what else runs. */
#ifndef HIGHWATER_ENGINE_RATE_GROUP_H
#define HIGHWATER_ENGINE_RATE_GROUP_H

#include <glib.h>

typedef struct _Engine Engine;
typedef struct _RateGroup RateGroup;

/* The fraction of full speed, > 0, at which works of rate_class run while running[c] works of each
 * class c do, `total` of all classes together.  Must depend on its arguments only: it is asked for
 * the works that run when an instant, after all its events, leaves other numbers of works running
 * than the one before. */
typedef double (*RateFunction)(gpointer user, int rate_class, const int *running, int total);

/* A group with rate classes 0..classes-1.  A work belongs to its group from its beginning to its
 * end; the rate scales its duration, and the most that its transfer can take of a link. */
RateGroup *rate_group_new(Engine *engine, int classes, RateFunction rate, gpointer user);

#endif
