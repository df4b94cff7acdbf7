/* plan_export.h - a plan as a configuration of accelerate, DeepSpeed or torchtitan. */
#ifndef HIGHWATER_IMPORT_PLAN_EXPORT_H
#define HIGHWATER_IMPORT_PLAN_EXPORT_H

#include <cjson/cJSON.h>
#include <glib.h>

#include "spec/plan_spec.h"

typedef struct {
  char *text;   /* the file */
  char *script; /* "batch.micro_batch = 1, ...": what the training script has to say; "" */
} PlanExport;

/* The formats there are, NULL-terminated. */
const char *const *plan_export_formats(void);
/* Writes a plan.  What the format cannot say, but changes memory or time, is an error that names
 * the keys: the written file, read again, has to give the same plan.  strategies: the plan's.
 * Caller frees with plan_export_free. */
PlanExport *plan_export(const char *format, const PlanSpec *spec, const cJSON *document,
                        const PlanStrategy *strategies, GError **error);
void plan_export_free(PlanExport *export);
G_DEFINE_AUTOPTR_CLEANUP_FUNC(PlanExport, plan_export_free)

#endif
