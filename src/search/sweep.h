/* sweep.h - a sweep: one run with some of its keys varied, each variant an outcome, and what of it
 * is the same in all. */
#ifndef HIGHWATER_SEARCH_SWEEP_H
#define HIGHWATER_SEARCH_SWEEP_H

#include "search/headroom.h"
#include "search/trials.h"
#include "search/vary.h"

/* What is asked for; borrowed. */
typedef struct {
  const RunRequest *base;
  char *const *vary;          /* see vary_parse(); NULL-terminated */
  gboolean hold_global_batch; /* accumulation.steps of each variant follow from the base's tokens a
                                 step of all ranks */
  Headroom headroom;          /* that the fastest has to leave */
} SweepRequest;

/* A variant's schedule on numbers (sweep_verification.h). */
typedef enum { SWEEP_NOT_ASKED, SWEEP_EQUAL, SWEEP_DIFFERS, SWEEP_NOT_EXECUTED } SweepAnswer;

typedef struct {
  SweepAnswer answer;
  char *reason;   /* what differs, or why it was not executed; NULL: nothing */
  char *training; /* what it trains: variants that say the same come to the same losses */
  char *scaled;   /* what the network was made smaller to; NULL: nothing */
  char *json;     /* all of the answer */
  GArray *losses; /* double, by step; NULL: it was not executed */
} SweepVerification;

typedef struct {
  char *label;         /* see vary_label() */
  GPtrArray *owned;    /* char *: the assignments, NULL at the end */
  RunRequest request;  /* what is run; borrows from the base and the sweep's inputs */
  gint64 global_batch; /* tokens a step of all ranks; 0: the plan was refused */
  gboolean is_done;
  gboolean is_kept;   /* stands in results.jsonl */
  gboolean is_pareto; /* of those that fit none needs less memory without more time */
  Outcome outcome;
  SweepVerification verification;
} SweepVariant;

/* What a reader of the results wants to know to be the same. */
typedef struct {
  const char *name;
  char *text; /* NULL: variants differ in it, or none has it */
} SweepFact;

typedef struct {
  Vary *vary;
  GArray *variants;          /* SweepVariant, in order of the product */
  GArray *facts;             /* SweepFact */
  char *title;               /* "llama-3-8b, fsdp2, h100-8" */
  GArray *inputs;            /* InputText: networks and clusters that are varied */
  gint64 least_global_batch; /* over the variants: tokens a step */
  gint64 most_global_batch;
  Headroom headroom;
  gboolean is_verified; /* it was asked for what variants' verifications say */
  int fastest; /* position of the variant that fits and is fastest, or -1; see sweep_judge() */
} Sweep;

/* Reads the inputs and forms the variants.  Besides keys of the plan, "cluster", "network", "steps"
 * and "memory_limit" can be varied.  NULL and error when an input is wrong, a key is unknown, or
 * every variant is refused; a variant that is refused is not an error. */
Sweep *sweep_new(const SweepRequest *request, GError **error);
void sweep_free(Sweep *sweep);
G_DEFINE_AUTOPTR_CLEANUP_FUNC(Sweep, sweep_free)

SweepVariant *sweep_variant(const Sweep *sweep, guint i);

/* What variants are ordered by, nanoseconds: the step's time where all have one global batch, else
 * the time of 1024 tokens on a GPU.  NAN: no step was completed. */
double sweep_cost(const Sweep *sweep, const SweepVariant *variant);
/* Marks the Pareto front (reserved memory against that cost) and the fastest that fits with the
 * headroom, of those that are done. */
void sweep_judge(Sweep *sweep);

#endif
