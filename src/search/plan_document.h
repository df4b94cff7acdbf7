/* plan_document.h - a plan rewritten for another strategy and mesh, and as the few keys that say
 * it. */
#ifndef HIGHWATER_SEARCH_PLAN_DOCUMENT_H
#define HIGHWATER_SEARCH_PLAN_DOCUMENT_H

#include "simulate/scenario.h"

/* How the ranks share the model. */
typedef struct {
  const char *strategy; /* static, or borrowed from the plan */
  int shard, replicate;
} PlanMesh;

/* The plan's text with its assignments (NULL-terminated, may be NULL) for that strategy and mesh:
 * what only another strategy reads is left out, and mixed precision is said in the strategy's own
 * way.  plan: what the text reads as.  NULL: the strategy cannot train in this precision.  Caller
 * frees. */
char *plan_document_for(const InputText *text, char *const *assignments, const PlanSpec *plan,
                        const PlanMesh *mesh);

/* A plan's text with assignments, as a file for people: without keys that have their default.
 * summary: what its "_summary" says.  Caller frees. */
char *plan_document_short(const char *text, char *const *assignments, const char *summary);

/* What a key of the text says, as JSON; NULL: it is not there.  Caller frees. */
char *plan_document_value(const char *text, const char *key);

#endif
