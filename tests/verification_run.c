/* verification_run.c - small plans of every strategy, and their verification. */
#include "verification_run.h"

#include <string.h>

#include "tap_main.h"

static InputText
text_of(const char *name, const char *json)
{
  InputText text = {.name = g_strdup(name), .text = g_strdelimit(g_strdup(json), "'", '"')};
  text.length = strlen(text.text);
  return text;
}

gboolean
verification_run(const Plan *plan, const Trial *trial, VerificationReport *report, GError **error)
{
  g_autofree char *models = test_source_path("models");
  g_setenv("HIGHWATER_MODELS", models, FALSE);
  g_auto(GStrv) set = plan->options[0] != '\0' ? g_strsplit(plan->options, " ", -1) : NULL;
  VerificationRequest request = {.inputs = {.network = text_of("network", plan->network),
                                            .plan = text_of("plan", plan->plan),
                                            .assignments = set},
                                 .steps = 3,
                                 .seed = 1,
                                 .orders = trial->orders,
                                 .skipped = trial->skipped,
                                 .tolerance = 1e-9,
                                 .change = trial->change,
                                 .how = trial->how};
  gboolean ok = input_text_read("cluster", "h100-8", &request.inputs.cluster, error) &&
                verify(&request, report, error);
  input_text_clear(&request.inputs.network);
  input_text_clear(&request.inputs.plan);
  input_text_clear(&request.inputs.cluster);
  return ok;
}
