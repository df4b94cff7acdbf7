/* run_info.h - what a report says that a Recording cannot know: the model, the plan, the machine,
 * the groups.
 *
 * Filled once by whoever runs the simulation, then only read.  Strings and arrays belong to the
 * RunInfo; a NULL string, a zero or an empty array means "not known" and the reports leave that
 * figure out (null in JSON). */
#ifndef HIGHWATER_REPORT_RUN_INFO_H
#define HIGHWATER_REPORT_RUN_INFO_H

#include <glib.h>

#include "report/failure.h"

/* Where a constant that times rest on comes from. */
typedef enum { ORIGIN_DEFAULT, ORIGIN_IMPORTED, ORIGIN_MEASURED } ConstantOrigin;

typedef struct {
  char *name; /* "device h100-sxm-80gb" */
  ConstantOrigin origin;
} ConstantSource;

/* Parameters that a strategy gathers and reduces together. */
typedef struct {
  char *name;         /* as collectives name it: "layers.3", "root" */
  GPtrArray *modules; /* char *: dotted paths of its modules; "" is the whole network, and the
                         longest path that a module lies under decides which group it belongs to */
  gint64 parameters;  /* elements, without padding */
  gint64 unsharded_bytes,
      shard_bytes; /* full parameters in the compute dtype; this rank's part as stored */
  int forward_prefetches, backward_prefetches; /* groups that it gathers ahead under a budget */
  gint64 forward_prefetched_bytes, backward_prefetched_bytes;
} GroupInfo;

/* Full parameters of a group that something keeps beyond their module. */
typedef struct {
  char *group;
  char *held_by; /* "a clone, until end_of_backward" */
  gint64 bytes;
} RetainedInfo;

/* What a phase beyond the steps moves. */
typedef struct {
  char *name; /* "evaluate" */
  gint64 communication_bytes, host_copy_bytes;
  gboolean has_state;   /* it writes or reads the state: */
  gint64 *source_bytes; /* of parameters, read from each rank that wrote them; NULL: not known */
  int sources;
  gint64 state_bytes;                /* this rank's part */
  gint64 rank_0_bytes, others_bytes; /* held by rank 0, and by each other one; -1: each its part */
} PhaseInfo;

typedef struct {
  char *name; /* as in the Recording: "shard" */
  int ranks;
  char *link; /* "NVSwitch", "InfiniBand over 16 nodes" */
  int stride; /* distance between the global ranks of neighbours; 0: not known */
} CommunicatorInfo;

/* How many ranks were simulated, when they are not all alike. */
typedef struct {
  int ranks;              /* 0: one stands for all, and nothing below is known */
  int simulated;          /* classes of ranks that are alike */
  int described_class;    /* ranks that the described one stands for, itself included */
  int slowest;            /* the rank that the others wait for */
  double slowest_compute; /* its kernels take so many times as long */
  gint64 waited;          /* ns a step that the described rank waits for others in collectives */
  gint64 step_of_equals;  /* ns: the last step if all ranks were equally fast; 0: they are */
  gint64 peak_reserved;   /* bytes, of all ranks and steps */
} RanksInfo;

/* What a step's collectives pay to begin. */
typedef struct {
  gint64 collectives; /* among several ranks */
  gint64 time;        /* ns: the sum of their latencies (alpha), which no number of bytes changes */
} StartupInfo;

/* Prefetching under a memory budget, beside the framework's own prefetching. */
typedef struct {
  gint64 budget;                 /* bytes; 0: none is given, and nothing below is known */
  gint64 most;                   /* of it that is used at some point */
  gint64 own_peak, own_reserved; /* peaks of allocated and reserved memory without it */
  gint64 own_step;               /* ns: the last step without it */
  int groups_without;            /* groups for whose successor there was no room */
} PrefetchInfo;

typedef struct {
  char *model;
  gint64 parameters, trainable_parameters;

  char *strategy, *checkpointing; /* "fsdp2"; "full", "every 2", "none" */
  const char *compile;            /* "none" or "per_block"; static */
  int shard, replicate;           /* mesh; ranks = shard * replicate */
  int micro_batch, sequence_length, accumulation_steps;
  int equivalent_zero_stage; /* 0..3; -1: no stage describes it */
  gboolean split_tied;       /* a weight that the model ties became two, since groups share none */
  double elements_sent;      /* by collectives, per trainable parameter and micro-batch, as ZeRO's
                                paper counts them: an all-reduce twice its elements, others once;
                                0: not known */

  gint64 pinned_bytes, pageable_bytes; /* of the host's memory that this rank keeps */

  char *device, *cluster; /* "h100-sxm-80gb", "h100-8" */
  int nodes;
  double peak_flops; /* of the device in the compute dtype, per second */

  gint64 tokens_per_step; /* of this rank, all micro-batches */
  double model_flops; /* of this rank's step: 6N + 12LAs a token (PaLM, arXiv 2204.02311, appendix
                         B), less the gradients that frozen parameters spare */
  double hardware_flops; /* the same with what checkpointing recomputes */

  GArray *groups;        /* GroupInfo, in forward order */
  GArray *retained;      /* RetainedInfo */
  gboolean initializes;  /* the plan says how the model is made: that is reported as a phase */
  GArray *phases;        /* PhaseInfo: phases beyond the steps, each name once */
  GArray *communicators; /* CommunicatorInfo */
  GArray *constants;     /* ConstantSource */
  GPtrArray *warnings;   /* char *: one line each */
  int repeated_steps;    /* asked for beyond those of the Recording, since they repeat the last */
  Failure *failure;      /* of a rank, which ended the run; NULL: none */

  RanksInfo ranks;
  StartupInfo startup; /* of the last step */
  PrefetchInfo prefetch;
  int rank;              /* the rank that the Recording describes */
  int rank_without_room; /* another rank that runs out of memory, or -1 */
} RunInfo;

/* Empty: no strings, no groups, rank 0, no other rank in trouble, equivalent_zero_stage -1. */
RunInfo *run_info_new(void);
void run_info_free(RunInfo *info);
G_DEFINE_AUTOPTR_CLEANUP_FUNC(RunInfo, run_info_free)

/* Append; strings are copied.  modules is NULL-terminated. */
GroupInfo *run_info_add_group(RunInfo *info, const char *name, const char *const *modules);
void run_info_add_retained(RunInfo *info, const char *group, const char *held_by, gint64 bytes);
PhaseInfo *run_info_add_phase(RunInfo *info, const char *name);
CommunicatorInfo *run_info_add_communicator(RunInfo *info, const char *name, int ranks,
                                            const char *link);
void run_info_add_constant(RunInfo *info, const char *name, ConstantOrigin origin);
void run_info_warn(RunInfo *info, const char *format, ...) G_GNUC_PRINTF(2, 3);

#endif
