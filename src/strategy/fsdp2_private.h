/* fsdp2_private.h - what fsdp2.c (hooks) and fsdp2_group.c (gather, reshard, reduce) share. */
#ifndef HIGHWATER_STRATEGY_FSDP2_PRIVATE_H
#define HIGHWATER_STRATEGY_FSDP2_PRIVATE_H

#include "strategy/shard.h"
#include "strategy/strategy.h"

/* reshard_after_forward of a group. */
typedef enum { RESHARD_NO, RESHARD_YES, RESHARD_SLICE } ReshardAfterForward;

/* A parameter group while its Program is written (FSDPParamGroup). */
typedef struct {
  Unit *unit;
  int index;
  int count;                /* parameters */
  const int *parameter;     /* their indices */
  Shard *shard;             /* by parameter */
  gint64 shard_elements;    /* S: padded, of one rank */
  gint64 gathered_elements; /* U = N * S */
  gint64 reduced_elements;  /* those of parameters that require a gradient, of one rank */
  ReshardAfterForward reshard_after_forward;
  int slice_ranks; /* RESHARD_SLICE: size of the group that keeps one copy */
  GArray *forward_prefetch, *backward_prefetch; /* int: explicit lists of groups; NULL: implicit */

  StorageId gathered; /* all-gather output that waits to be copied out, or NO_STORAGE */
  gint32 gather_event;
  gboolean gather_pending;
  gboolean unsharded; /* full parameters are there */
  gboolean held;      /* by somebody else: not resharded until released */
  StorageId *full;    /* by parameter */
  StorageId *slice;   /* by parameter: this rank's part of a RESHARD_SLICE group */
  gboolean sliced;
  gint32 reshard_event;    /* recorded after slicing; -1: none pending */
  gboolean reduced;        /* post_backward has run in this backward */
  gboolean in_backward;    /* pre_backward has (TrainingState.PRE_BACKWARD) */
  gint32 reduce_event;     /* post_reduce_event, -1: none */
  gint32 all_reduce_event; /* HSDP, -1: none */
  StorageId all_reduce_input;
  StorageId partial;     /* reduced in earlier micro-batches, but not over the replicas */
  gint32 *on_host_event; /* by parameter: its gradient has come to the host; -1: none pending */
} Group;

/* What is reduced together: the group's parameters that have a gradient. */
typedef struct {
  int count;
  int *position;           /* in the group */
  StorageId *gradients;    /* unsharded */
  gint64 *gradient_offset; /* elements at which each begins */
  gboolean *is_wide;       /* it was accumulated: in the reduce dtype */
  gint64 shard_elements;
} Reduction;

/* State shared by all groups (FSDPCommContext). */
typedef struct {
  Group *groups;
  Shard *shards;        /* by parameter */
  int *group_of_module; /* by module: the group that it was given to, or -1 */
  int count;
  int ranks, replicas;
  DType stored, gathered, reduce;
  gint32 shard_communicator, replicate_communicator, slice_communicator;
  GArray *forward_order;     /* int: groups in order of post_forward */
  StorageId previous_gather; /* output whose copy-out the next gather waits for */
  gint32 previous_copy_event;
  StorageId reduce_input; /* of the group reduced last, kept until the next one */
  gint32 reduce_input_event;
  int forward_root; /* the group whose forward is under way from outside (iter_forward_root); -1 */
  gboolean keep_unsharded; /* set_reshard_after_backward(False) in this micro-batch */
  gboolean pins;           /* CPUOffloadPolicy.pin_memory, where it offloads */
} Fsdp2;

static inline Fsdp2 *
fsdp2_of(const StrategyContext *x)
{
  return x->state;
}

/* Which groups each group gathers ahead (fsdp2_prefetch.c). */
void fsdp2_set_prefetch(StrategyContext *x, Fsdp2 *f);

/* ---- fsdp2_accept.c, fsdp2_units.c, fsdp2_expected.c ---- */

/* Strategy.accept and Strategy.splits_tied. */
gboolean fsdp2_accept(const PlanSpec *plan, const Network *network, GError **error);
gboolean fsdp2_splits_tied(const PlanSpec *plan);
/* Units in the order of named_modules().  The root's comes first but takes what is left. */
void fsdp2_make_units(StrategyContext *x);
/* A group has its parameters in that order, module by module of those that were given. */
void fsdp2_order_parameters(StrategyContext *x);
/* Strategy.zero_stage and Strategy.expected. */
int fsdp2_zero_stage(StrategyContext *x);
ExpectedTotals fsdp2_expected(StrategyContext *x);

/* Issues the group's all-gather unless it is unsharded or one is pending. */
void group_unshard(StrategyContext *x, Group *g);
/* Waits for it and copies it out; in forward the output lives on until the next copy-out. */
void group_wait_for_unshard(StrategyContext *x, Group *g, gboolean forward);
/* A gather that nobody waited for, since a prefetch guessed wrong, is waited for and given up. */
void group_drop_gather(StrategyContext *x, Group *g);
/* Full parameters go. */
void group_reshard(StrategyContext *x, Group *g);
/* Full parameters go, this rank's part of the smaller group stays. */
void group_reshard_to_slice(StrategyContext *x, Group *g);
/* Reduces the group's gradients, or keeps them when this micro-batch does not synchronize. */
void group_post_backward(StrategyContext *x, Group *g);
/* The compute stream waits for what an earlier reduction of this group still has under way. */
void group_wait_for_post_backward(StrategyContext *x, Group *g);
/* The memory of a group. */
StorageId group_allocate(StrategyContext *x, const Group *g, gint64 bytes, StreamId stream,
                         Category category, const char *what);
/* An operand of what is issued next; NO_STORAGE is none. */
void group_operand(StrategyContext *x, StorageId storage, DType dtype, Role role);

/* ---- fsdp2_offload.c: what CPUOffloadPolicy changes ---- */

/* Where shards and their gradients are. */
Space offload_space(const StrategyContext *x);
/* The group's i-th shard on the device, in the dtype that is gathered: the caller's. */
StorageId offload_fetch(StrategyContext *x, const Group *g, int i, StreamId stream);
/* The reduced gradients, one after the other in `flat`, go to the host or are added to what is
 * there. */
void offload_store(StrategyContext *x, Group *g, const Reduction *r, StorageId flat,
                   StreamId stream);
/* The host waits for gradients that are still on their way. */
void offload_wait(StrategyContext *x, Group *g);

/* A wait for everything issued on another stream so far. */
void wait_stream(StrategyContext *x, StreamId waiter, StreamId other);

/* ---- fsdp2_state.c: state dicts ---- */

void fsdp2_begin_state(StrategyContext *x);
int fsdp2_state_ranks(const StrategyContext *x);
void fsdp2_state_ranges(const StrategyContext *x, StateLayout *layout);
StorageId fsdp2_full_tensor(StrategyContext *x, int parameter, StorageId local, DType dtype,
                            Category category);

/* ---- fsdp2_init.c ---- */

/* Says what a parameter's shard holds of it. */
void fsdp2_holds(StrategyContext *x, int parameter);

/* fully_shard of a model with parameters (the plan's initialize.from is full). */
void fsdp2_construct_from_full(StrategyContext *x);

#endif
