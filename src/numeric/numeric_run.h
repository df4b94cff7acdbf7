/* numeric_run.h - executes the Programs of all ranks on numbers: the other interpreter, beside the
 * timed one (exec/).
 *
 * Hosts issue; streams run what they were given, one op after the other, as far as waits and
 * collectives let them.  In the order of issue everything runs as soon as it is issued; in random
 * ones any actor whose turn it may be goes on, for a while before others, so that only what the
 * Program itself orders is in order.  What is in new memory is NaN. */
#ifndef HIGHWATER_NUMERIC_NUMERIC_RUN_H
#define HIGHWATER_NUMERIC_NUMERIC_RUN_H

#include "memory/caching_allocator.h"
#include "numeric/numeric_kernel.h"

typedef struct _NumericRun NumericRun;

/* Elements of a parameter that an optimizer's kernel has updated (ParameterPart). */
typedef struct {
  int rank, step;
  const char *parameter;
  gint64 first, elements; /* of the parameter; as many of gradient, value and states */
  const double *gradient; /* as the optimizer read it */
  const double *value;    /* as it left it */
  const double *state[2]; /* NULL: none */
  const char *written_by; /* the op that wrote the gradient last: "reduce_scatter of layers.0" */
} NumericUpdate;

typedef struct {
  gpointer user;
  /* Fills what the construction left of a parameter in memory that nothing has written
   * (ParameterPart): when it is looked at first, or when the construction is over.  Elements from
   * `first` on, of `size` slots each. */
  void (*initialize)(gpointer user, const char *parameter, gint64 first, gint64 elements, int size,
                     double *slots);
  /* Fills the n-th of the storages of a name (from 0) that the construction left: a batch. */
  void (*batch)(gpointer user, int rank, int step, const char *name, int n, gint64 bytes,
                double *slots);
  /* A micro-batch's loss, as backward starts from it. */
  void (*loss)(gpointer user, int rank, int step, double loss);
  /* The norm of all gradients, where clipping takes it. */
  void (*norm)(gpointer user, int rank, int step, double norm);
  void (*updated)(gpointer user, const NumericUpdate *update);
} NumericHooks;

typedef struct {
  int ranks;
  const Program *const *programs; /* by global rank; borrowed */
  AllocatorConfig allocator;
  NumericHooks hooks;
  gboolean rounds;    /* to the dtypes of the views */
  guint64 seed;       /* of what is random in kernels */
  guint64 order;      /* 0: that of issue; else a random one of this number */
  gint64 micro_batch; /* samples */
  int micro_batches;  /* a step, of a rank */
} NumericConfig;

/* Does any step update parameters by a kernel?  Optimizers in the host's memory name nothing that
 * they do. */
gboolean numeric_program_updates(const Program *program);

/* What became of a run. */
typedef struct {
  gint64 *peaks; /* by rank, of the last step: bytes allocated at most, as the allocator counts */
  char *first_unknown; /* the first op that made a NaN, from what, where: a line; NULL: none did */
} NumericOutcome;

/* Executes the construction and all steps.  FALSE and error: an op cannot be executed, or nobody
 * can go on.  The caller clears the outcome either way. */
gboolean numeric_run(const NumericConfig *config, NumericOutcome *outcome, GError **error);
void numeric_outcome_clear(NumericOutcome *outcome);

#endif
