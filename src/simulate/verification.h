/* verification.h - a plan's Programs executed on numbers, beside an unsharded run over the same
 * global batch: are losses, gradients and parameters the same?
 *
 * Both start from the same parameters and see the same tokens, made of a seed, a name and a place
 * (numeric_random.h).  The reference is the same network under strategy none on one rank, which
 * accumulates over all micro-batches of all ranks. */
#ifndef HIGHWATER_SIMULATE_VERIFICATION_H
#define HIGHWATER_SIMULATE_VERIFICATION_H

#include "simulate/scenario.h"
#include "simulate/state_image.h"

#define RESTART_ANYWHERE (-1)

/* A plan's `failure` is executed too: see verified_failure.h. */
typedef struct {
  ScenarioInputs inputs;
  /* A second plan for the same network: compared with the first; or, with restart_after, what goes
   * on after so many steps of the first, from its state.  NULL: none. */
  const ScenarioInputs *other;
  int restart_after; /* 0: there is no restart; RESTART_ANYWHERE: half of the steps, or where a
                        failure of the first plan leaves a state */
  int steps;
  int scale;  /* sizes are divided by so much; 1: they are not */
  int layers; /* blocks that are kept at most, with a scale above 1; 0: as it says */
  guint64 seed;
  int skipped;      /* orders that are left out, of those beside that of issue */
  int orders;       /* others to try besides that of issue: numeric_adversaries() first */
  double tolerance; /* largest relative difference that counts as none */
  gboolean rounds;  /* arithmetic in the plan's dtypes, judged by what rounding explains; else in
                       fp64, judged by the tolerance */
  /* Changes a rank's Program before it is executed, for tests of what is found; NULL: none. */
  void (*change)(Program *program, int rank, gconstpointer how);
  /* The same for what a rank reads of a checkpoint (StateReading), and for what is saved. */
  void (*change_reads)(GArray *reads, int rank, gconstpointer how);
  void (*change_state)(StateImage *saved, gconstpointer how);
  gconstpointer how;
} VerificationRequest;

/* What was compared, of a parameter. */
typedef enum {
  COMPARED_GRADIENT,
  COMPARED_VALUE,
  COMPARED_FIRST,
  COMPARED_SECOND,
  COMPARED
} Compared;

/* Largest difference of a parameter's elements in a step, relative to its largest element in the
 * reference. */
typedef struct {
  double difference[COMPARED];
} ParameterDifference;

/* Gradients in the plan's dtypes beside the mean of what ranks compute alone in the same dtypes. */
typedef struct {
  double loss;       /* mean of the ranks alone */
  double difference; /* the largest, relative to the largest element of its tensor */
  double bound;      /* the largest that rounding explains, in the same way */
  double used;       /* the largest share of an element's own bound; more than 1 is a fault */
} RoundingDifference;

typedef struct {
  double loss, reference_loss;
  double norm, reference_norm; /* of all gradients, before they are clipped */
  RoundingDifference rounding; /* of reports that are `rounded` */
  ParameterDifference worst;   /* over all parameters */
} VerifiedStep;

/* Elements of a parameter that a rank updates. */
typedef struct {
  int rank; /* global */
  gint64 first, elements;
} VerifiedShard;

typedef struct {
  char *name;
  gint64 elements;
  int owners;                /* ranks that update elements of it */
  GArray *shards;            /* VerifiedShard, by rank */
  ParameterDifference worst; /* over all steps */
} VerifiedParameter;

/* What went on from a state. */
typedef struct {
  gboolean in_bits; /* under the same plan in its dtypes: equal to the run without interruption */
  int after;        /* so many steps */
  char *strategy;   /* NULL: nothing went on */
  int ranks, micro_batches;
  gint64 *peaks; /* by rank */
} VerifiedRestart;

/* Going on from something that a failure makes invalid. */
typedef struct {
  char *what;
  int step; /* the first of which the loss is another; 0: none is */
  double loss, right_loss;
  char *gradient; /* in the plan's dtypes: of which parameter it is the first that is more than
                     rounding from what it should be; NULL: none is, or was looked at */
  int gradient_step;
} VerifiedTrial;

typedef struct {
  gboolean happened;
  int rank, step;
  const char *phase; /* static */
  double fraction;
  int last_step; /* of the last consistent state */
  gboolean from_others;
  GArray *trials; /* VerifiedTrial */
} VerifiedFailure;

typedef struct _VerificationReport VerificationReport;

struct _VerificationReport {
  char *fault; /* the first thing that is not as it should be, a line; NULL: all is */
  int ranks, micro_batches, orders;
  gint64 samples; /* of a step, all ranks */
  char *network, *strategy;
  char *training; /* "8 samples of 64 tokens, adamw": plans that say the same train the same */
  char *scaled;   /* what was shrunk, a line; NULL: nothing */
  double tolerance;
  gboolean rounded;   /* in the plan's dtypes */
  GArray *steps;      /* VerifiedStep */
  GArray *parameters; /* VerifiedParameter */
  gint64 *peaks;      /* by rank: bytes allocated at most in the last step */
  VerifiedRestart restart;
  VerifiedFailure failure;
  VerificationReport *other; /* of the second plan; NULL: there is none, or it is the restart's */
  double loss_difference;    /* between both, the largest of all steps, relative */
};

/* FALSE and error: the inputs are wrong, or something in the Programs cannot be executed on
 * numbers.  A fault is an answer.  The caller clears the report. */
gboolean verify(const VerificationRequest *request, VerificationReport *report, GError **error);
/* How far apart two plans' losses of a step are, relative to the first; infinite: one is no number.
 */
double verification_losses_apart(double a, double b);
/* Is everything that was compared the same? */
gboolean verification_holds(const VerificationReport *report);
void verification_report_clear(VerificationReport *report);

void verification_text(const VerificationReport *report, gboolean details, GString *out);
void verification_json(const VerificationReport *report, GString *out);

#endif
