/* plan_format.h - one format that plans are exported in. */
#ifndef HIGHWATER_IMPORT_PLAN_FORMAT_H
#define HIGHWATER_IMPORT_PLAN_FORMAT_H

#include "import/config_tree.h"
#include "spec/plan_spec.h"

typedef struct {
  const char *name, *title;
  ConfigLanguage language;
  const char *const *strategies; /* that it can run */
  /* Keys, or sections, of the plan that the training script gives there, or its environment. */
  const char *const *script;
  /* Its configuration of the plan; values: see plan_values.h.  Caller frees. */
  cJSON *(*write)(const PlanSpec *spec, const cJSON *values);
} PlanFormat;

extern const PlanFormat plan_format_accelerate, plan_format_deepspeed, plan_format_torchtitan;

/* Values of the plan, by key; "" and FALSE where it has none. */
const char *plan_value_text(const cJSON *values, const char *key);
gboolean plan_value_true(const cJSON *values, const char *key);

#endif
