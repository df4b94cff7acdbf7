/* plan_space.h - the plans that are looked at for a network on so many GPUs: a table of axes, each
 * a key of the plan with the values that are worth trying.
 *
 * The ranks and the global batch are fixed, and so are keys that the caller's assignments give; the
 * base plan, where it is in the space, is one of its points. */
#ifndef HIGHWATER_SEARCH_PLAN_SPACE_H
#define HIGHWATER_SEARCH_PLAN_SPACE_H

#include "search/plan_document.h"
#include "simulate/run_simulation.h"

/* The axes.  Coarse ones decide most of memory and time, and are tried with each other first; fine
 * ones are tried around the best of that. */
typedef enum {
  AXIS_SHARDING,
  AXIS_CHECKPOINTING,
  AXIS_MICRO_BATCH,
  AXIS_RESHARD,
  AXIS_GROUPS,
  AXIS_FORWARD_PREFETCH,
  AXIS_BACKWARD_PREFETCH,
  AXIS_EMBEDDING,
  AXIS_HEAD,
  AXIS_SYNC,
  AXIS_BUCKET,
  AXIS_COUNT
} PlanAxis;

enum { AXIS_FIRST_FINE = AXIS_RESHARD };

/* A value of an axis. */
typedef struct {
  char *label;        /* "full", "1 x 8" */
  char **assignments; /* what says it; NULL-terminated */
} PlanChoice;

/* A plan: on each axis the index of its choice, or -1 where the axis does not apply. */
typedef struct {
  int at[AXIS_COUNT];
} PlanPoint;

/* A way to share the model, with the base plan rewritten for it. */
typedef struct {
  char *strategy;
  int shard, replicate;
  RunRequest request; /* its plan is owned, the rest borrowed; without assignments */
} PlanSharding;

typedef struct {
  int ranks;
  gint64 global_batch; /* sequences a step, of all ranks */
  int sequence_length;
  DType reduce;                   /* of the base plan: in which gradients are reduced */
  int blocks;                     /* of the network */
  GPtrArray *choices[AXIS_COUNT]; /* PlanChoice *; at least one each */
  gboolean fixed[AXIS_COUNT];     /* an assignment gives it */
  GArray *shardings;              /* PlanSharding, parallel to choices[AXIS_SHARDING] */
  PlanPoint base;                 /* of the base plan; its axes that do not apply have a choice,
                                     too; sharding -1: the base plan's is not in the space */
} PlanSpace;

/* ranks 0: as many as the base plan has; global_batch 0: as many sequences for each rank as there.
 * The request is borrowed, and outlives the space.  NULL and error when the inputs are bad, the
 * batch cannot be divided, or nothing is left to try. */
PlanSpace *plan_space_new(const RunRequest *base, int ranks, gint64 global_batch, GError **error);
void plan_space_free(PlanSpace *space);
G_DEFINE_AUTOPTR_CLEANUP_FUNC(PlanSpace, plan_space_free)

/* What an axis is called ("micro-batch"), and the key that it is said with. */
const char *plan_axis_name(PlanAxis axis);
const char *plan_axis_key(PlanAxis axis);

/* Does the axis mean anything for that sharding and micro-batch? */
gboolean plan_space_applies(const PlanSpace *space, const PlanPoint *point, PlanAxis axis);
/* -1 on axes that do not apply, the base plan's choice on those that do and have -1. */
PlanPoint plan_space_normal(const PlanSpace *space, PlanPoint point);
/* How many plans there are; SIZE_MAX-safe: at most G_MAXINT64. */
gint64 plan_space_size(const PlanSpace *space);
/* How many there are that share a point's coarse axes. */
gint64 plan_space_fine_size(const PlanSpace *space, const PlanPoint *point);
/* How many micro-batches a rank computes in a step of it. */
int plan_space_micro_batches(const PlanSpace *space, const PlanPoint *point);

/* What to run: the request, borrowed, and assignments for it, to be freed with g_free. */
const RunRequest *plan_space_request(const PlanSpace *space, const PlanPoint *point);
char **plan_space_assignments(const PlanSpace *space, const PlanPoint *point);
/* The choice's label on an axis; "-" where it does not apply. */
const char *plan_space_label(const PlanSpace *space, const PlanPoint *point, PlanAxis axis);
/* "fsdp2, 8 shards, checkpointing full, micro-batch 1 x 8, ...": what differs from the base plan on
 * fine axes, and all coarse ones.  Caller frees. */
char *plan_space_describe(const PlanSpace *space, const PlanPoint *point);
/* The plan as a file that `run --plan` takes.  Caller frees. */
char *plan_space_plan(const PlanSpace *space, const PlanPoint *point, const char *network);

#endif
