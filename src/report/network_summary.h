/* network_summary.h - what a network consists of and costs, before anything is simulated: modules,
 * parameters, FLOPs, activation memory of a block, groups of a plan. */
#ifndef HIGHWATER_REPORT_NETWORK_SUMMARY_H
#define HIGHWATER_REPORT_NETWORK_SUMMARY_H

#include "lower/lower.h"
#include "network/family.h"
#include "network/network_flops.h"

enum { SUMMARY_POLICIES = CHECKPOINT_SELECTIVE_OP + 1 };

/* One line of the table of modules: a module, or the same module of a run of blocks that are alike.
 */
typedef struct {
  char *path;            /* "layers.0-31.attention.wq"; "" is the network itself */
  int module;            /* the first of those it stands for */
  int count;             /* how many modules it stands for */
  gint64 parameters;     /* of all of them, with what lies below */
  gint64 own_parameters; /* theirs without what lies below: these add up to the network's */
} ModuleLine;

/* Blocks in a row that are alike and keep the same between forward and backward. */
typedef struct {
  char *path; /* "layers.0-31" */
  int first, count;
  gint64 parameters;                         /* of one of them */
  gint64 activation_bytes[SUMMARY_POLICIES]; /* of one of them, under each CheckpointPolicy */
} BlockLine;

typedef struct {
  const NetworkSpec *spec; /* borrowed, as are network and plan */
  const Network *network;
  const PlanSpec *plan;
  gint64 parameters, trainable_parameters;
  GArray *modules;                           /* ModuleLine, in the order of named_modules() */
  GArray *blocks;                            /* BlockLine */
  gint64 activation_bytes[SUMMARY_POLICIES]; /* of the block that keeps most, by policy */
  gint64 planned_bytes;         /* of all blocks together, each under its own policy of the plan */
  NetworkFlops flops_per_token; /* of the kernels: network_flops.h */
  double model_flops_per_token; /* of the convention, forward and backward */
  Lowered *lowered;             /* a step of the plan: its units are the groups */
} NetworkSummary;

typedef struct {
  NetworkSpec *spec; /* the network is built from it again for each checkpointing policy */
  const Network *network;
  const PlanSpec *plan;
  const DeviceProfile *device;
  const Strategy *strategy;
} NetworkSummaryInput;

/* Lowers a step under each checkpointing policy (blocks that every_n and fraction leave out are as
 * under none) and reads from it what a block keeps, as block_activations.h says.  NULL and error
 * where the strategy cannot honour the plan. */
NetworkSummary *network_summary_new(const NetworkSummaryInput *input, GError **error);
void network_summary_free(NetworkSummary *summary);
G_DEFINE_AUTOPTR_CLEANUP_FUNC(NetworkSummary, network_summary_free)

/* The table of modules (ModuleLine): modules of blocks in a row that are alike share a line. */
GArray *module_lines(const Network *network);
/* Bytes of a group as gathered beyond its parameters: what makes it divide by the ranks. */
gint64 unit_padding_bytes(const NetworkSummary *summary, const Unit *unit);
/* Are two blocks the same modules with the same parameters? */
gboolean blocks_are_alike(const Network *network, int a, int b);
/* "layers.0-31" for 32 blocks from the first; caller frees. */
char *block_run_path(const Network *network, int first, int count);

/* For people; ascii: no character beyond ASCII. */
void network_summary_text(const NetworkSummary *summary, gboolean ascii, GString *out);
/* As JSON; caller frees. */
char *network_summary_json(const NetworkSummary *summary);

#endif
