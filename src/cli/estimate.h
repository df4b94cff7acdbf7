/* estimate.h - model states of a network: by ZeRO's accounting, as each strategy keeps them, and by
 * DeepSpeed's estimators. */
#ifndef HIGHWATER_CLI_ESTIMATE_H
#define HIGHWATER_CLI_ESTIMATE_H

#include "base/category.h"
#include "report/state_estimate.h"

typedef struct {
  int ranks, gpus_per_node;
  gint64 parameters, largest_layer; /* instead of a network: parameters > 0; a layer of 0 is not
                                       known */
} EstimateRequest;

/* What a strategy keeps between steps with its defaults, and sends in one. */
typedef struct {
  const char *strategy;
  int stage;
  gint64 bytes[CATEGORY_COUNT];
  double sent; /* elements per parameter */
} StrategyStates;

typedef struct {
  char *model; /* NULL without a network */
  int ranks;
  EstimatedModel size;
  GArray *strategies; /* StrategyStates; empty without a network */
} Estimate;

/* network: a preset or a file, or NULL.  NULL and error when it is bad. */
Estimate *estimate_new(const EstimateRequest *request, const char *network, GError **error);
void estimate_free(Estimate *estimate);
G_DEFINE_AUTOPTR_CLEANUP_FUNC(Estimate, estimate_free)

void estimate_text(const Estimate *estimate, GString *out);
/* highwater-estimate-1. */
void estimate_json(const Estimate *estimate, GString *out);

#endif
