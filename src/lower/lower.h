/* lower.h - from a network and a plan to the Program of one rank. */
#ifndef HIGHWATER_LOWER_LOWER_H
#define HIGHWATER_LOWER_LOWER_H

#include "strategy/range_map.h"
#include "strategy/strategy.h"

typedef struct {
  const Network *network;
  const PlanSpec *plan;
  const DeviceProfile *device;
  const Strategy *strategy;
  int rank;            /* global; its place in the shard group is rank % shard */
  int steps;           /* how many to lower, >= 1 */
  gint64 memory_limit; /* bytes that frameworks see as the device's; 0: the device's own */
  const Network
      *evaluation; /* the network built for lower_evaluation_shape(); NULL: nothing is evaluated */
} LowerInput;

/* What a phase beyond the steps writes to storage, or reads from there. */
#define LOWERED_SOURCES 64
typedef struct {
  const char *name;                  /* "save": static */
  gint64 state_bytes;                /* this rank's part */
  gint64 rank_0_bytes, others_bytes; /* held by rank 0, and by each other one; -1: each its part */
  int sources; /* ranks that wrote what a load reads; 0: not known, or one file has all */
  gint64 source_bytes[LOWERED_SOURCES]; /* of the parameters, by the first of them */
} LoweredPhase;

/* What a Program does not say about itself. */
typedef struct {
  Program *program;
  GPtrArray
      *units; /* Unit *: groups with members, bytes and counts of collectives in the last step */
  ExpectedTotals expected;
  gboolean has_expected;
  int zero_stage; /* equivalent ZeRO stage */
  StateSpread spread;
  gboolean keeps_gradients; /* zero_grad frees nothing */
  GArray *phases;           /* LoweredPhase: of each name the last one, as they first came */
} Lowered;

/* Writes the Program.  Errors: a plan that the strategy or this version cannot honour. */
Lowered *lower(const LowerInput *input, GError **error);
void lowered_free(Lowered *lowered);
G_DEFINE_AUTOPTR_CLEANUP_FUNC(Lowered, lowered_free)

/* Which rank of the shard group holds which elements of the state under a plan.  NULL and error
 * when the strategy refuses the plan. */
StateLayout *lower_state_layout(const LowerInput *input, GError **error);

/* Dtypes of the forward pass under a plan. */
NetworkPrecision lower_precision(const PlanSpec *plan);
/* The shape that a network must be built for. */
NetworkShape lower_shape(const PlanSpec *plan, const DeviceProfile *device);
/* Compiles the blocks of a network for the plan, if it says so. */
void lower_compile(const PlanSpec *plan, Network *network);
/* The same for the plan's evaluation. */
NetworkShape lower_evaluation_shape(const PlanSpec *plan, const DeviceProfile *device);

#endif
