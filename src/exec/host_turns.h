/* host_turns.h - lets the hosts of several ranks take turns, so that each sees the devices as they
 * are at its own time.
 *
 * A host runs ahead of the engine's clock until it wants to know something of its device.  The
 * clock moves only when every host has come that far, since a host that is behind may still issue
 * work. */
#ifndef HIGHWATER_EXEC_HOST_TURNS_H
#define HIGHWATER_EXEC_HOST_TURNS_H

#include "engine/engine.h"

typedef struct _HostTurns HostTurns;
typedef struct _HostTurn HostTurn;

HostTurns *host_turns_new(Engine *engine);
void host_turns_free(HostTurns *turns);
G_DEFINE_AUTOPTR_CLEANUP_FUNC(HostTurns, host_turns_free)

/* A host that will do body(user).  name is what the engine's reports call it. */
HostTurn *host_turns_add(HostTurns *turns, const char *name, void (*body)(gpointer user),
                         gpointer user);
/* Runs all hosts to their ends.  One that waits for what never comes is told so. */
void host_turns_run(HostTurns *turns);

/* From inside a host, whose time is now.  The devices are brought up to that time. */
void host_turn_look(HostTurn *turn, SimTime now);
/* Goes on when the point has fired.  FALSE when it never will. */
gboolean host_turn_wait(HostTurn *turn, SimTime now, SyncPoint *point);

#endif
