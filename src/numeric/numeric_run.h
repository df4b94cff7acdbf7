/* numeric_run.h - executes the Programs of all ranks on numbers: the other interpreter, beside the
 * timed one (exec/).
 *
 * Hosts issue; streams run what they were given, one op after the other, as far as waits and
 * collectives let them.  In the order of issue everything runs as soon as it is issued; in others
 * any actor whose turn it may be goes on, for a while before others, so that only what the Program
 * itself orders is in order.  What is in new memory is NaN. */
#ifndef HIGHWATER_NUMERIC_NUMERIC_RUN_H
#define HIGHWATER_NUMERIC_NUMERIC_RUN_H

#include "memory/caching_allocator.h"
#include "numeric/numeric_kernel.h"

typedef struct _NumericRun NumericRun;

/* Elements of a parameter that an optimizer's kernel has updated (ParameterPart). */
typedef struct {
  int rank, step, count; /* count: of the optimizer's steps, this one included */
  const char *parameter;
  gint64 first, elements; /* of the parameter; as many of gradient, value and states */
  const double *gradient; /* as the optimizer read it */
  double *value;          /* as it left it; writable before the update alone */
  double *state[2];       /* NULL: none; likewise */
  const char *written_by; /* the op that wrote the gradient last: "reduce_scatter of layers.0" */
} NumericUpdate;

/* Memory of a parameter that the construction left and nothing has written (ParameterPart). */
typedef struct {
  int rank;
  const char *parameter;
  gint64 first, elements; /* of it */
  int stride;             /* slots from one element to the next */
  double *slots;
} NumericFilling;

typedef struct {
  gpointer user;
  /* Gives such memory its first values: when it is looked at first, or when the construction is
   * over. */
  void (*initialize)(gpointer user, const NumericFilling *filling);
  /* Fills the n-th of the storages of a name (from 0) that the construction left: a batch. */
  void (*batch)(gpointer user, int rank, int step, const char *name, int n, gint64 bytes,
                double *slots);
  /* A micro-batch's loss, as backward starts from it. */
  void (*loss)(gpointer user, int rank, int step, double loss);
  /* The norm of all gradients, where clipping takes it. */
  void (*norm)(gpointer user, int rank, int step, double norm);
  void (*updated)(gpointer user, const NumericUpdate *update);
  /* Before the first step's update, which makes the states: they can be given what they are to be.
   * NULL: they are as the Program makes them. */
  void (*updating)(gpointer user, const NumericUpdate *update);
} NumericHooks;

/* What happens in the middle of a step, and to what: device work is counted by stream, as kernels,
 * copies and collectives since the first step. */
typedef enum {
  NUMERIC_RANK_STOPS, /* a rank's streams do no more than that; the run ends when nobody can go on
                       */
  NUMERIC_GRADIENTS_STAY, /* gradients of parameters that were made by then are there when they are
                             made again: they count twice */
  NUMERIC_REDUCTIONS_LOST /* reductions of backward that were not done by then never are, and
                             everybody goes on as if they were */
} NumericInterruptionKind;

typedef struct {
  NumericInterruptionKind kind;
  int rank, step; /* which stops; in which the rest happens */
  gint64 done[STREAM_COUNT];
} NumericInterruption;

typedef struct {
  int ranks;
  const Program *const *programs; /* by global rank; borrowed */
  AllocatorConfig allocator;
  NumericHooks hooks;
  gboolean rounds;       /* to the dtypes of the views */
  guint64 seed;          /* of what is random in kernels */
  guint64 order;         /* 0: that of issue; else one that delays somebody, or a random one */
  gint64 micro_batch;    /* samples */
  int micro_batches;     /* a step, of a rank */
  gint64 samples_before; /* of the step, before the first rank's */
  int steps;             /* to execute, at most; 0: all that the Programs have */
  int steps_before;      /* of the training, before the Programs' first */
  int updates_before;    /* the same as the optimizer counts them */
  const NumericInterruption *interruption; /* borrowed; NULL: none */
} NumericConfig;

/* How many orders there are, from 1 on, that delay a stream, all hosts or a rank until nothing else
 * can go on, or let it run ahead; those after them are random.  Of the configuration only the
 * Programs count. */
guint64 numeric_adversaries(const NumericConfig *config);

/* What became of a run. */
typedef struct {
  gint64 *peaks;   /* by rank, of the last step: bytes allocated at most, as the allocator counts */
  int interrupted; /* ops that an interruption changed */
  char *first_unknown; /* the first op that made a NaN, from what, where: a line; NULL: none did */
} NumericOutcome;

/* Executes the construction and all steps.  FALSE and error: an op cannot be executed, or nobody
 * can go on.  The caller clears the outcome either way. */
gboolean numeric_run(const NumericConfig *config, NumericOutcome *outcome, GError **error);
void numeric_outcome_clear(NumericOutcome *outcome);

#endif
