/* stream.h - queues of work that run in the order of submission, one item at a time. */
#ifndef HIGHWATER_ENGINE_STREAM_H
#define HIGHWATER_ENGINE_STREAM_H

#include <glib.h>

#include "base/units.h"

typedef struct _Engine Engine;
typedef struct _Stream Stream;
typedef struct _SyncPoint SyncPoint;
typedef struct _Rendezvous Rendezvous;
typedef struct _SharedLink SharedLink;
typedef struct _RateGroup RateGroup;

typedef void (*EngineCallback)(gpointer user, guint64 tag);

/* What runs on a stream: first `duration`, then the transfer of `link_bytes`, each only if given.
 * `started` and `finished` (both may be NULL) are called with user and tag when the work begins and
 * ends; engine_now() is that time. */
typedef struct {
  SimTime duration;       /* at full rate, ns */
  RateGroup *group;       /* NULL: always at full rate */
  int rate_class;         /* which kind of work of the group it is */
  int party;              /* which party of the rendezvous, from 0 */
  Rendezvous *rendezvous; /* NULL: none.  Else begins and ends together with the other parties */
  SharedLink *link;       /* NULL: none.  Else `link_bytes` follow `duration`, their latency */
  double link_bytes;
  EngineCallback started, finished;
  gpointer user;
  guint64 tag;
} Work;

/* name is copied and appears in reports. */
Stream *stream_new(Engine *engine, const char *name);
const char *stream_name(const Stream *stream);

/* The three kinds of item.  None begins before its not_before, so whoever submits may run ahead of
 * the clock; a not_before in the past means now. */

/* Appends work; *work is copied. */
void stream_submit(Stream *stream, SimTime not_before, const Work *work);
/* Appends "fire point, now that everything before it on this stream is done". */
void stream_record(Stream *stream, SimTime not_before, SyncPoint *point);
/* Appends "go on only when point has fired". */
void stream_wait(Stream *stream, SimTime not_before, SyncPoint *point);

/* Whether everything submitted so far is done. */
gboolean stream_is_idle(const Stream *stream);

#endif
