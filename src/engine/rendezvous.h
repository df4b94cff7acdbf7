/* rendezvous.h - work on several streams that begins when the last party arrives.
 *
 * Each party submits one Work with the rendezvous and its own party number.  All begin when the
 * last one's item has come to its turn.  At full rate each lasts as long as the longest of them;
 * parties may be slowed down differently, and all end with the slowest.  After that the rendezvous
 * can be used again by the same number of parties. */
#ifndef HIGHWATER_ENGINE_RENDEZVOUS_H
#define HIGHWATER_ENGINE_RENDEZVOUS_H

#include <glib.h>

#include "base/units.h"

typedef struct _Engine Engine;
typedef struct _Rendezvous Rendezvous;

/* For that many parties, at least 1.  Named "PREFIX NUMBER" in reports, or "PREFIX" when number <
 * 0. prefix is not copied: it must outlive the engine. */
Rendezvous *rendezvous_new(Engine *engine, const char *prefix, gint64 number, int parties);

/* When the party arrived last. */
SimTime rendezvous_arrived(const Rendezvous *rendezvous, int party);
/* How long a party has waited for others to arrive, all times together. */
SimTime rendezvous_waited(const Rendezvous *rendezvous, int party);

#endif
