/* span_log.h - turns the beginnings and ends of a rank's work into Spans. */
#ifndef HIGHWATER_EXEC_SPAN_LOG_H
#define HIGHWATER_EXEC_SPAN_LOG_H

#include "engine/engine.h"
#include "exec/labels.h"
#include "exec/rank_speed.h"
#include "exec/timing.h"
#include "program/program.h"
#include "record/recorder.h"

/* Where a rank meets the others of a communicator. */
typedef struct {
  Rendezvous *rendezvous;
  int party;
} Seat;

/* A stream's wait for a point of another, as issued. */
typedef struct {
  SyncPoint *point;
  SimTime issued, recorded; /* as Wait has them */
  guint8 stream, source;
  gint16 step;
  guint works; /* that were issued on the stream before */
} SpanWait;

typedef struct {
  const Program *program;
  const Timing *timing;
  const Labels *labels;
  Engine *engine;
  Recording *recording;
  Recorder *recorder;
  const RankSpeed *speed;
  const Seat *seats;             /* in each communicator of the Program */
  const ProgramOp **step_ops;    /* of each step; 0: the construction */
  int step;                      /* being issued; 0: the construction */
  gboolean keeps;                /* whether its spans are wanted */
  SimTime started[STREAM_COUNT]; /* of what runs now */
  SimTime arrived[STREAM_COUNT]; /* if that is a collective */
  SimTime **issued;              /* of each step whose spans are wanted: by op, when */
  GArray *phases;                /* PhaseMark: where the host's phase changed, in order of issue */
  GArray *host;                  /* Span: the host's, by end */
  gboolean keeps_waits;          /* they are wanted too: spans are kept from the beginning */
  guint works[STREAM_COUNT];     /* issued on each stream */
  GArray *waits;                 /* SpanWait, in order of issue */
  GArray *host_waits;            /* Wait: the host's, by end */
} SpanLog;

/* program, timing, labels, engine, recording, recorder, speed and seats are set already; the rest
 * is filled in.
 */
void span_log_init(SpanLog *log);
void span_log_clear(SpanLog *log);

/* The ops that follow belong to this step. */
void span_log_begin(SpanLog *log, int step, gboolean keeps);

/* Has the engine report work, which executes op (one of the step's list) and is issued now, if the
 * step's spans are wanted. */
void span_log_observe(SpanLog *log, SimTime now, const ProgramOp *op, Work *work);

/* The host was held up in what (a CUDA call) from start to end; nothing if that is no time. */
void span_log_host(SpanLog *log, SpanKind kind, const char *what, SimTime start, SimTime end);

/* A stream is told to wait; its step and works are filled in. */
void span_log_wait(SpanLog *log, const SpanWait *wait);
/* The host has waited for a stream; the step is filled in.  Nothing if it took no time. */
void span_log_host_wait(SpanLog *log, const Wait *wait);

/* All has run: the host's spans join those of the device in the Recording, and the waits that held
 * something up are found. */
void span_log_finish(SpanLog *log);

#endif
