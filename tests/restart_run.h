/* restart_run.h - small plans that share a global batch, to be verified, restarted and failed. */
#ifndef HIGHWATER_TESTS_RESTART_RUN_H
#define HIGHWATER_TESTS_RESTART_RUN_H

#include "simulate/verification.h"

#define BATCH                                                                                      \
  "'batch': {'micro_batch': 1, 'sequence_length': 4}, 'optimizer': {'clip_grad_norm': 1}"
#define MIXED ", 'precision': {'parameters': 'fp32', 'compute': 'bf16', 'reduce': 'fp32'}}"
#define NONE "{'strategy': 'none', " BATCH "}"
#define DDP "{'strategy': 'ddp', " BATCH "}"
#define FSDP2 "{'strategy': 'fsdp2', " BATCH MIXED
#define FSDP1 "{'strategy': 'fsdp1', " BATCH MIXED
#define ZERO1 "{'strategy': 'zero1', " BATCH ", 'precision': {'parameters': 'bf16'}}"
#define ZERO2 "{'strategy': 'zero2', " BATCH ", 'precision': {'parameters': 'bf16'}}"
#define ZERO3 "{'strategy': 'zero3', " BATCH ", 'precision': {'parameters': 'bf16'}}"

/* Twelve samples a step, over so many ranks. */
#define ONE "accumulation.steps=12"
#define TWO "mesh.shard=2 accumulation.steps=6"
#define THREE "mesh.shard=3 accumulation.steps=4"
#define FOUR "mesh.shard=4 accumulation.steps=3"
#define SIX "mesh.shard=6 accumulation.steps=2"
#define REPLICAS "mesh.replicate=3 accumulation.steps=4"
#define HSDP "mesh.shard=2 mesh.replicate=3 accumulation.steps=2"

typedef struct {
  const char *plan, *options;
} Side;

/* What is asked for besides the plans. */
typedef struct {
  const char *all; /* options of both */
  int steps, restart_after;
  gboolean rounds; /* in the plans' dtypes */
  void (*change_reads)(GArray *reads, int rank, gconstpointer how);
  void (*change_state)(StateImage *saved, gconstpointer how);
  gconstpointer how;
} Asked;

/* Verifies a plan of a llama with parameters of odd sizes, and another one (NULL: none).  FALSE and
 * error as verify(); the caller clears the report. */
gboolean restart_run(const Side *a, const Side *b, const Asked *asked, VerificationReport *report,
                     GError **error);

#endif
