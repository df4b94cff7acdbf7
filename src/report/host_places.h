/* host_places.h - where the host was at each memory event: phase, module, hook. */
#ifndef HIGHWATER_REPORT_HOST_PLACES_H
#define HIGHWATER_REPORT_HOST_PLACES_H

#include "record/recording.h"

/* String ids of the recording, -1: none. */
typedef struct {
  int step;           /* 0: the construction */
  gint32 phase;       /* "backward", "save" */
  gint32 micro_batch; /* of the phase; -1: none */
  gint32 module;      /* whose forward the host is in; in backward, whose node runs */
  gint32 hook;        /* "post_backward" */
  gboolean at_end;    /* no phase: that of the step are over */
} HostPlace;

typedef struct _HostPlaces HostPlaces;

/* By the order of events; where a recording does not say it, by times.  Borrows the recording. */
HostPlaces *host_places_new(const Recording *recording);
void host_places_free(HostPlaces *places);
G_DEFINE_AUTOPTR_CLEANUP_FUNC(HostPlaces, host_places_free)

/* Of memory event `event` (index into memory). */
HostPlace host_place_at(const HostPlaces *places, guint event);

/* Appends "step 2, backward of layers.3 in post_backward, micro-batch 1"; what is the same as in
 * `known` (may be NULL: nothing) is not said: its step, its phase and micro-batch. */
void host_place_append(const Recording *recording, const HostPlace *place, const HostPlace *known,
                       GString *out);

/* The same with other words for the module ("" for none). */
void host_place_append_named(const Recording *recording, const HostPlace *place,
                             const HostPlace *known, const char *module, GString *out);

#endif
