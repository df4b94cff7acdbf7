/* equivalence.h - is every parameter's gradient reduced over all ranks exactly once in a step, and
 * every element updated by its owner exactly once?
 *
 * Found by following bytes through the Programs of the ranks (gradient_flow.h), and by counting
 * whose elements they update.  Which rows of a parameter a rank's elements are is not in a Program:
 * that they are disjoint and complete is proven of the strategy's StateLayout where it has one, and
 * the counts of the Program are compared with it. */
#ifndef HIGHWATER_SEARCH_EQUIVALENCE_H
#define HIGHWATER_SEARCH_EQUIVALENCE_H

#include "program/program.h"
#include "simulate/scenario.h"

/* What became of one parameter in the step. */
typedef struct {
  const char *name; /* borrowed from the report */
  char *group;      /* of parameters that are gathered and reduced together; NULL: none */
  gint64 elements;
  gboolean trained;  /* FALSE: frozen, and nothing is done to it */
  gboolean apart;    /* the plan keeps it out of the sharding: nobody reduces its gradient */
  int reductions;    /* collectives that a micro-batch's gradient went through */
  int reduced_ranks; /* over how many ranks they sum; 1: none */
  char
      *collectives; /* "reduce_scatter over shard (8), all_reduce over replicate (2)"; NULL: none */
  int owners;       /* ranks of a replica group that update elements of it */
  gint64 most, least; /* elements that an owner updates */
} ParameterEvidence;

typedef struct {
  char *violation;    /* the first one, a line; NULL: there is none */
  char *not_followed; /* what the Programs do not carry, a line; NULL: all was followed */
  char *strategy;
  GPtrArray *names;   /* char *: of the parameters */
  GArray *parameters; /* ParameterEvidence, in the model's order */
  int step;           /* from 1 */
  int ranks;          /* all there are: what gradients are averaged over */
  int owners;         /* ranks that share one copy of the state */
  int followed;       /* of these, ranks whose Programs, or equal ones, were followed */
  int micro_batches;  /* a step; a rank's gradient is their sum */
  gint64 sequences;   /* a step, of all ranks: what the loss is averaged over */
} EquivalenceReport;

/* Checks one step (from 1; from 2 on it is steady).  FALSE and error when the plan cannot be
 * lowered; a violation is an answer.  The caller clears the report. */
gboolean equivalence_check(const Scenario *scenario, int step, EquivalenceReport *report,
                           GError **error);
void equivalence_report_clear(EquivalenceReport *report);

/* NULL when two variants train the same: neither violates anything, and they have the same
 * parameters, ranks and divisors.  Else why not, a line; caller frees. */
char *equivalence_difference(const EquivalenceReport *a, const EquivalenceReport *b);

/* The verdict, and what it rests on, as text: a few lines, and with details one for each parameter.
 */
void equivalence_print(const EquivalenceReport *report, gboolean details, GString *out);

/* A rank's Program, and the ranks of the shard group that are like it. */
typedef struct {
  int rank;
  int like; /* how many, itself included */
  const Program *program;
} RankProgram;

/* The check itself, on these Programs: count of them. */
void equivalence_follow(const Scenario *scenario, const RankProgram *ranks, int count, int step,
                        EquivalenceReport *report);

#endif
