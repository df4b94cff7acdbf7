/* lifetimes.h - one module's or group's memory and work, lane by lane: what lifetimes_table prints.
 */
#ifndef HIGHWATER_REPORT_LIFETIMES_H
#define HIGHWATER_REPORT_LIFETIMES_H

#include "report/run_tables.h"
#include "report/stream_clock.h"

typedef enum { LANE_MEMORY, LANE_COLLECTIVE, LANE_KERNELS } LaneKind;

typedef struct {
  const char *name; /* of a category, or of a collective; "kernels" */
  LaneKind kind;
  Category category; /* of memory */
} LaneInfo;

enum { LANES = 12 };
/* In the order in which a gathered module comes through them. */
extern const LaneInfo lane_infos[LANES];

/* A change of a lane's memory. */
typedef struct {
  SimTime host, time; /* on the streams */
  gint64 bytes;
} Change;

/* From none of a lane's memory to none of it again. */
typedef struct {
  SimTime host_start, host_end, start, end;
  gint64 bytes; /* the most */
} Held;

/* A span, or a row of kernels. */
typedef struct {
  SimTime start, end, issued;
  gint32 phase; /* index into ranges; -1: not known */
  gint64 bytes;
  guint count;
} Work;

typedef struct {
  GArray *changes; /* Change */
  GArray *held;    /* Held */
  GArray *works;   /* Work */
  gint64 most;
} Lane;

/* When something of the module happens in one phase. */
typedef struct {
  SimTime start, end;
  gint32 phase; /* index into ranges; -1: phases are not known */
} Window;

typedef struct {
  const Recording *recording;
  guint8 *belongs;   /* by string id: is it the module's? */
  GPtrArray *clocks; /* StreamClock, one a stream */
  StreamClock *compute;
  int compute_stream; /* -1: none of that name */
  int step;           /* 0: all */
  SimTime from, to;
  Lane lanes[LANES];
} Lifetimes;

/* Of what view->module names; without a part in the view, of the last complete step. */
Lifetimes *lifetimes_new(const Recording *recording, const RunInfo *info, const TableView *view);
void lifetimes_free(Lifetimes *lifetimes);
G_DEFINE_AUTOPTR_CLEANUP_FUNC(Lifetimes, lifetimes_free)

/* Rows that a lane has; 0: it is not there. */
guint lifetimes_rows(const Lane *lane);

/* Window, by start; of a step of several micro-batches there are as many forwards and backwards.
 * Free with g_array_unref. */
GArray *lifetimes_windows(const Lifetimes *lifetimes);

#endif
