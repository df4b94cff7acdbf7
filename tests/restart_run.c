/* restart_run.c - small plans that share a global batch, to be verified, restarted and failed. */
#include "restart_run.h"

#include "simulation.h"

/* Parameters of odd sizes: 19 rows of the vocabulary, 20 of the feed-forward. */
#define LLAMA                                                                                      \
  "{'model_type': 'llama', 'hidden_size': 16, 'intermediate_size': 20, 'num_hidden_layers': 2,"    \
  " 'num_attention_heads': 2, 'num_key_value_heads': 1, 'head_dim': 8, 'vocab_size': 19,"          \
  " 'implementation': 'torchtitan'}"

static gboolean
read_side(const Side *side, const Asked *asked, ScenarioInputs *in, GError **error)
{
  g_autofree char *all = g_strjoin(" ", side->options, asked->all, NULL);
  return simulation_inputs(LLAMA, side->plan, all, in, error);
}

gboolean
restart_run(const Side *a, const Side *b, const Asked *asked, VerificationReport *report,
            GError **error)
{
  ScenarioInputs other = {0};
  VerificationRequest request = {.other = b != NULL ? &other : NULL,
                                 .restart_after = asked->restart_after,
                                 .steps = asked->steps,
                                 .seed = 1,
                                 .tolerance = 1e-9,
                                 .rounds = asked->rounds,
                                 .change_reads = asked->change_reads,
                                 .change_state = asked->change_state,
                                 .how = asked->how};
  gboolean ok = read_side(a, asked, &request.inputs, error) &&
                (b == NULL || read_side(b, asked, &other, error)) &&
                verify(&request, report, error);
  simulation_inputs_clear(&request.inputs);
  simulation_inputs_clear(&other);
  return ok;
}
