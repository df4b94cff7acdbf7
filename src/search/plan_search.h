/* plan_search.h - the fastest plan of a space that fits with headroom, and what its alternatives
 * lose.
 *
 * In stages.  Coarse: every sharding with every checkpointing, from the largest micro-batch down,
 * until one that fits is faster than the next smaller.  Around the best of these and around faster
 * ones that nearly fit the fine axes are tried one after the other; around the best of that with
 * each other, where that is not too much.  Plans run three steps on a device without a limit, which
 * says how much they need; where that is below the limit they run in the same way under it.  What
 * is chosen and what is shown beside it runs longer, and the chosen one under the limit. */
#ifndef HIGHWATER_SEARCH_PLAN_SEARCH_H
#define HIGHWATER_SEARCH_PLAN_SEARCH_H

#include "search/candidate.h"
#include "search/equivalence.h"
#include "search/headroom.h"
#include "search/plan_space.h"

/* A plan that was tried. */
typedef struct {
  PlanPoint point;
  Outcome outcome;      /* without a limit */
  gboolean is_left_out; /* it failed under the limit after all: why is in outcome.refusal */
} PlanTried;

/* The best plan that differs from the chosen one in this. */
typedef struct {
  PlanAxis axis;
  int choice;
  guint tried; /* index */
} PlanAlternative;

typedef struct {
  const PlanSpace *space;
  gint64 capacity;      /* of the allocator: its limit, bytes; G_MAXINT64: none */
  gint64 headroom;      /* of it that must stay free */
  GPtrArray *tried;     /* PlanTried *, in order */
  int chosen;           /* index, or -1: nothing fits */
  int closest;          /* without a chosen one: the index of that which needs least, or -1 */
  Outcome outcome;      /* of the chosen one, run as `run` does */
  gboolean is_steady;   /* a step more takes as long */
  GArray *alternatives; /* PlanAlternative, by axis */
  guint refused;        /* of the tried: the inputs do not go together */
  gint64 size;          /* plans in the space */
  gint64 smaller;       /* not tried: larger micro-batches fit, and smaller ones were slower */
  gint64
      combinations; /* not tried: fine choices of coarse ones that lost, or not with each other */
  EquivalenceReport equivalence; /* of the chosen one */
  gboolean has_equivalence;
} PlanSearch;

typedef struct {
  int workers; /* 0: as many as there are cores */
  int steps;   /* of the runs at the end, at least 3 */
  Headroom headroom;
  /* Called after each trial, in the caller's thread; may be NULL. */
  void (*progress)(guint done, guint planned, const char *stage, gpointer user);
  /* TRUE: no further trial is begun; may be NULL. */
  gboolean (*stops)(gpointer user);
  gpointer user;
} PlanSearchOptions;

/* What of the capacity is kept free when nothing is said. */
#define PLAN_HEADROOM_FRACTION 0.05

/* NULL: it was stopped, or (error) the inputs are bad. */
PlanSearch *plan_search_new(const PlanSpace *space, const PlanSearchOptions *options,
                            GError **error);
void plan_search_free(PlanSearch *search);
G_DEFINE_AUTOPTR_CLEANUP_FUNC(PlanSearch, plan_search_free)

const PlanTried *plan_search_tried(const PlanSearch *search, guint i);
/* Steps that differ by less than this are as long as each other: a thousandth is less than the
 * model can tell. */
#define PLAN_AS_FAST 1.001

/* Bytes that a plan lacks, with the headroom; 0 or less: it fits.  G_MAXINT64: not known. */
gint64 plan_search_lacks(const PlanSearch *search, const Outcome *outcome);

#endif
