/* restart_run.c - small plans that share a global batch, to be verified, restarted and failed. */
#include "restart_run.h"

#include <string.h>

#include "tap_main.h"

/* Parameters of odd sizes: 19 rows of the vocabulary, 20 of the feed-forward. */
#define LLAMA                                                                                      \
  "{'model_type': 'llama', 'hidden_size': 16, 'intermediate_size': 20, 'num_hidden_layers': 2,"    \
  " 'num_attention_heads': 2, 'num_key_value_heads': 1, 'head_dim': 8, 'vocab_size': 19,"          \
  " 'implementation': 'torchtitan'}"
static InputText
text_of(const char *name, const char *json)
{
  InputText text = {.name = g_strdup(name), .text = g_strdelimit(g_strdup(json), "'", '"')};
  text.length = strlen(text.text);
  return text;
}

/* Assignments, separated by blanks; one in braces may have some. */
static char **
split(char *options)
{
  int depth = 0;
  for (char *c = options; *c != '\0'; c++) {
    depth += (*c == '{') - (*c == '}');
    if (*c == ' ' && depth == 0)
      *c = '\n';
  }
  return g_strsplit(g_strstrip(options), "\n", -1);
}

static gboolean
read_side(const Side *side, const Asked *asked, ScenarioInputs *in, GError **error)
{
  g_autofree char *all = g_strjoin(" ", side->options, asked->all, NULL);
  *in = (ScenarioInputs){.network = text_of("network", LLAMA), .plan = text_of("plan", side->plan)};
  in->assignments = split(all);
  return input_text_read("cluster", "h100-8", &in->cluster, error);
}

static void
clear_side(ScenarioInputs *in)
{
  g_strfreev(in->assignments);
  input_text_clear(&in->network);
  input_text_clear(&in->plan);
  input_text_clear(&in->cluster);
}

gboolean
restart_run(const Side *a, const Side *b, const Asked *asked, VerificationReport *report,
            GError **error)
{
  g_autofree char *models = test_source_path("models");
  g_setenv("HIGHWATER_MODELS", models, FALSE);
  ScenarioInputs other = {0};
  VerificationRequest request = {.other = b != NULL ? &other : NULL,
                                 .restart_after = asked->restart_after,
                                 .steps = asked->steps,
                                 .seed = 1,
                                 .tolerance = 1e-9,
                                 .change_reads = asked->change_reads,
                                 .change_state = asked->change_state,
                                 .how = asked->how};
  gboolean ok = read_side(a, asked, &request.inputs, error) &&
                (b == NULL || read_side(b, asked, &other, error)) &&
                verify(&request, report, error);
  clear_side(&request.inputs);
  if (b != NULL)
    clear_side(&other);
  return ok;
}
