/* small_network.h - networks of two layers whose parameters and peaks of memory were read off
 * transformers 5.24 on PyTorch's own caching allocator, and the comparison with them.
 *
 * They were trained under fully_shard on two ranks, with two sequences of 256 tokens, parameters in
 * fp32, bf16 computation, fused AdamW, and zero_grad after the step. */
#ifndef HIGHWATER_TESTS_SMALL_NETWORK_H
#define HIGHWATER_TESTS_SMALL_NETWORK_H

#include "simulation.h"

/* Peaks of a step, in bytes. */
typedef struct {
  gint64 allocated, reserved;
} Peaks;

typedef struct {
  const char *name, *config; /* fields of a config.json, in which ' stands for " */
  gboolean eager, checkpointed;
  gint64 parameters;
  Peaks steps[2];
} SmallNetwork;

/* The plan that they were trained with. */
extern const char small_network_plan[];

/* Fails the test unless the network has these parameters and its steps these peaks. */
void small_network_expect(const SmallNetwork *measured);
/* The same under a plan with these assignments, NULL-terminated. */
void small_network_expect_with(const SmallNetwork *measured, const char *const *set);
/* Fails the test unless the first steps had these peaks. */
void peaks_expect(const Simulated *s, const char *name, const Peaks *steps, guint n);
/* Fails the test unless the config is refused with this message. */
void small_network_refuse(const char *config, const char *says);

#endif
