/* verification.h - a plan's Programs executed on numbers, beside an unsharded run over the same
 * global batch: are losses, gradients and parameters the same?
 *
 * Both start from the same parameters and see the same tokens, made of a seed, a name and a place
 * (numeric_random.h).  The reference is the same network under strategy none on one rank, which
 * accumulates over all micro-batches of all ranks. */
#ifndef HIGHWATER_SIMULATE_VERIFICATION_H
#define HIGHWATER_SIMULATE_VERIFICATION_H

#include "simulate/scenario.h"

typedef struct {
  ScenarioInputs inputs;
  int steps;
  int scale; /* sizes are divided by so much; 1: they are not */
  guint64 seed;
  int orders;       /* random orders to try besides that of issue */
  double tolerance; /* largest relative difference that counts as none */
  /* Changes a rank's Program before it is executed, for tests of what is found; NULL: none. */
  void (*change)(Program *program, int rank, gconstpointer how);
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

typedef struct {
  double loss, reference_loss;
  double norm, reference_norm; /* of all gradients, before they are clipped */
  ParameterDifference worst;   /* over all parameters */
} VerifiedStep;

typedef struct {
  const char *name; /* borrowed from the report's scenario */
  gint64 elements;
  int owners;                /* ranks that updated elements of it in the last step */
  ParameterDifference worst; /* over all steps */
} VerifiedParameter;

typedef struct {
  char *fault; /* the first thing that is not as it should be, a line; NULL: all is */
  int ranks, micro_batches, orders;
  gint64 samples; /* of a step, all ranks */
  char *network, *strategy;
  char *scaled; /* what was shrunk, a line; NULL: nothing */
  double tolerance;
  GArray *steps;      /* VerifiedStep */
  GArray *parameters; /* VerifiedParameter */
  gint64 *peaks;      /* by rank: bytes allocated at most in the last step */
  Scenario *scenario;
} VerificationReport;

/* FALSE and error: the inputs are wrong, or something in the Programs cannot be executed on
 * numbers.  A fault is an answer.  The caller clears the report. */
gboolean verify(const VerificationRequest *request, VerificationReport *report, GError **error);
void verification_report_clear(VerificationReport *report);

void verification_text(const VerificationReport *report, gboolean details, GString *out);
void verification_json(const VerificationReport *report, GString *out);

#endif
