/* verification_run.h - small plans of every strategy, and their verification. */
#ifndef HIGHWATER_TESTS_VERIFICATION_RUN_H
#define HIGHWATER_TESTS_VERIFICATION_RUN_H

#include "simulate/verification.h"

/* Parameters of odd sizes: 19 rows of the vocabulary, 20 of the feed-forward. */
#define LLAMA                                                                                      \
  "{'model_type': 'llama', 'hidden_size': 16, 'intermediate_size': 20, 'num_hidden_layers': 2,"    \
  " 'num_attention_heads': 2, 'num_key_value_heads': 1, 'head_dim': 8, 'vocab_size': 19,"          \
  " 'implementation': 'torchtitan'}"
#define TIED                                                                                       \
  "{'model_type': 'llama', 'hidden_size': 16, 'intermediate_size': 20, 'num_hidden_layers': 2,"    \
  " 'num_attention_heads': 2, 'num_key_value_heads': 1, 'head_dim': 8, 'vocab_size': 19,"          \
  " 'tie_word_embeddings': true, 'implementation': 'torchtitan'}"
#define GPT2                                                                                       \
  "{'model_type': 'gpt2', 'n_embd': 16, 'n_layer': 2, 'n_head': 2, 'vocab_size': 19,"              \
  " 'n_positions': 16, 'implementation': 'torchtitan'}"
/* With transformers' dropout of a tenth after embeddings, probabilities, attention and
 * feed-forward.
 */
#define DROPS                                                                                      \
  "{'model_type': 'gpt2', 'n_embd': 16, 'n_layer': 2, 'n_head': 2, 'vocab_size': 19,"              \
  " 'n_positions': 16}"

#define BATCH                                                                                      \
  "'batch': {'micro_batch': 2, 'sequence_length': 4}, 'optimizer': {'clip_grad_norm': 1}"
#define MIXED ", 'precision': {'parameters': 'fp32', 'compute': 'bf16', 'reduce': 'fp32'}}"
#define HALF ", 'precision': {'parameters': 'bf16'}}"
#define DDP "{'strategy': 'ddp', 'mesh': {'replicate': 2}, " BATCH "}"
#define FSDP2 "{'strategy': 'fsdp2', 'mesh': {'shard': 2}, " BATCH MIXED
#define FSDP1 "{'strategy': 'fsdp1', 'mesh': {'shard': 2}, " BATCH MIXED
#define ZERO0 "{'strategy': 'zero0', 'mesh': {'shard': 2}, " BATCH HALF
#define ZERO1 "{'strategy': 'zero1', 'mesh': {'shard': 2}, " BATCH HALF
#define ZERO2 "{'strategy': 'zero2', 'mesh': {'shard': 2}, " BATCH HALF
#define ZERO3 "{'strategy': 'zero3', 'mesh': {'shard': 2}, " BATCH HALF
#define INTERNEVO "{'strategy': 'internevo', 'mesh': {'shard': 2}, " BATCH HALF

/* A network and a plan, in which ' stands for ", and assignments with blanks between them. */
typedef struct {
  const char *network, *plan, *options;
} Plan;

/* What is asked for besides: orders to try, after some that are left out; and a change of every
 * rank's Program. */
typedef struct {
  int orders, skipped;
  void (*change)(Program *program, int rank, gconstpointer how);
  gconstpointer how;
} Trial;

/* Verifies three steps.  FALSE and error as verify(); the caller clears the report. */
gboolean verification_run(const Plan *plan, const Trial *trial, VerificationReport *report,
                          GError **error);
/* Fails the test unless it found nothing, and losses and norms are those of a network that has
 * learned nothing. */
void verification_check_steps(const Plan *plan, const VerificationReport *report);

#endif
