/* wire.h - blocks of bytes between the processes of a job, over TCP. */
#ifndef HIGHWATER_CALIBRATE_WIRE_H
#define HIGHWATER_CALIBRATE_WIRE_H

#include <glib.h>

#include "calibrate/process_place.h"

/* Listens on the port, on all addresses; port 0 takes a free one.  Returns the socket, and the
 * port in *port; -1 and error when it cannot. */
int wire_listen(int *port, GError **error);
/* Waits for one caller.  -1 and error when none comes within so many seconds. */
int wire_accept(int listener, double patience_s, GError **error);
/* Calls the meeting point, again and again until it answers or the patience ends. */
int wire_connect(const MeetingPoint *point, double patience_s, GError **error);

/* All of the bytes, or FALSE and error. */
gboolean wire_send(int socket, gconstpointer bytes, gsize length, GError **error);
gboolean wire_receive(int socket, gpointer bytes, gsize length, GError **error);

#endif
