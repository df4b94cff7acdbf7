/* zero3_private.h - what the files of ZeRO stage 3 share: a parameter's state, the trace of a
 * forward and backward, sub-groups.
 *
 *   zero3.c            hooks and options
 *   zero3_init.c       deepspeed.initialize, with or without zero.Init
 *   zero3_trace.c      which modules follow each other; what to fetch ahead and what to release
 *   zero3_fetch.c      fetching and releasing as the trace decides, and the limit on the host
 *   zero3_gather.c     all-gathers and their buffers
 *   zero3_gradients.c  the reduce bucket
 *   zero3_step.c       the optimizer's step, sub-group by sub-group
 *   zero3_offload.c    what is kept on the host instead
 *   zero3_leaf.c       modules that are fetched and reduced with all that is in them
 *   zero3_secondary.c  shards over a few ranks (hpZ)
 *   zero3_expected.c   what a step sends, in closed form
 *
 * Source: deepspeed 0.19.8, runtime/zero/{stage3,parameter_offload,partition_parameters,
 * partitioned_param_coordinator}.py, runtime/comm/coalesced_collectives.py. */
#ifndef HIGHWATER_STRATEGY_ZERO3_PRIVATE_H
#define HIGHWATER_STRATEGY_ZERO3_PRIVATE_H

#include "strategy/deepspeed.h"
#include "strategy/torch_optimizer.h"

typedef enum { PARAMETER_RELEASED, PARAMETER_IN_FLIGHT, PARAMETER_AVAILABLE } FetchState;

/* An all-gather of some parameters (AllGatherCoalescedHandle).  It is registered with each of them
 * until a module fetches that parameter. */
typedef struct {
  int count;
  int *parameter;     /* in order */
  gboolean secondary; /* from hpZ's shards */
  gboolean separate;  /* each has a buffer of its own, which becomes its data */
  gboolean views;     /* of one buffer, for good: fetched by all-reduce */
  StorageId *buffer;  /* one, or (separate) by parameter */
  gint32 done;        /* event: recorded behind the collective; -1: there was none */
  gboolean waited;
  int registered;
} Gather;

typedef struct {
  gint64 elements; /* ds_numel */
  gint64 shard;    /* of every rank, padded: ceil(elements / ranks) */
  gint64 owned;    /* of this rank's shard, without padding */
  gboolean trains; /* requires a gradient: it is in the flat buffers */
  gint64 first;    /* of its shard there */
  gboolean persistent;
  FetchState state;
  guint8 users;        /* modules that use it now: bit 0 its own, bit 1 one that is tied to it, bit
                          2 the one in whose backward it was fetched to recompute, then others
                          that are tied to it */
  int recomputed_for;  /* that one, or -1 */
  int fetched_for;     /* last step of the trace that it has been fetched for; -1: none */
  Gather *gather;      /* registered, or NULL */
  int group;           /* the sub-group that it belongs to */
  int unit;            /* the report's group that it belongs to */
  StorageId secondary; /* hpZ's shard, or NO_STORAGE */
  StorageId norm;      /* of its gradient, where the optimizer is on the host */
} Zero3Parameter;

/* ---- the trace ---- */

typedef enum { TRACE_INVALID, TRACE_RECORD, TRACE_COMPLETE } TraceMode;

/* A parameter is used by the module that is fetched at this step. */
typedef struct {
  int parameter, step;
} TracedUse;

typedef struct {
  TraceMode mode;
  GArray *modules;  /* int: as they were fetched in one forward and backward */
  GArray *uses;     /* TracedUse: parameters of these modules; filled when the trace is complete */
  guint next;       /* use that prefetching comes to next */
  int step;         /* modules fetched so far */
  gint64 available; /* elements that count as gathered */
  GHashTable *releases; /* (module, step) -> parameters to release there, a bit each: decided once
                           and never again */
} Trace;

/* A gradient that is in the bucket, or (a storage of the parameter's own) counts as if it were. */
typedef struct {
  int parameter;
  gint64 first; /* element of the bucket */
} Bucketed;

/* Consecutive parameters that one optimizer step treats together. */
typedef struct {
  int first, count;               /* of those that train */
  gint64 first_element, elements; /* in the flat buffers of shards */
  gboolean on_host;               /* master weights and optimizer state are */
  StorageId master;               /* fp32 */
  StorageId gradient; /* fp32, kept for good where the optimizer is offloaded; else NO_STORAGE */
  OptimizedTensor optimized;
} SubGroup;

typedef struct {
  DeepSpeed ds;
  gint32 secondary_communicator;
  StreamId stream; /* that fetched parameters are allocated and copied on */
  int count;
  Zero3Parameter *parameter;
  int *leaf;                   /* by module: the leaf module that it is or is in, or -1 */
  int *trained, trained_count; /* parameters that train, in order */
  gint64 frozen_elements;      /* sum of the other ones' shards, which have storages of their own */
  gint64 shard_elements;       /* sum over those that train */
  StorageId shards;            /* flat, in the order of parameters */
  StorageId gradients;         /* likewise */
  StorageId bucket;
  StorageId overflow; /* flag that lives as long as the optimizer */
  StorageId norm;     /* global, of the last step */
  SubGroup *group;
  int groups;
  Trace trace;
  GArray *entered;  /* int: modules whose backward has begun and not ended, in that order */
  GArray *bucketed; /* Bucketed: gradients that wait for the next reduction */
  gint64 bucketed_elements;
  GArray *fetch_events, *reduce_events; /* gint32: recorded, not yet waited for by the host */
  GArray *norms;           /* int: parameters whose gradients' norms are kept, in that order */
  gboolean shards_settled; /* gathers need not wait for what has written the shards: the host has,
                              when it gathered persistent parameters.  Without those DeepSpeed
                              leaves it to chance; here the stream waits */
  gboolean gathered; /* work has gone to `stream` that the compute stream has not waited for */
  gint64 gather_count, gathered_elements, reduced_elements; /* in the step being written */
} Zero3;

static inline Zero3 *
zero3_of(const StrategyContext *x)
{
  return x->state;
}

/* Own parameters of a module, tied ones included, of a leaf module all that are in it
 * (iter_params): how many, and the i-th. */
int zero3_module_parameters(const StrategyContext *x, int module);
int zero3_module_parameter(const StrategyContext *x, int module, int i);
/* The bit of `users` that stands for this module. */
guint8 zero3_user_bit(const StrategyContext *x, int module, int parameter);

/* ---- zero3_leaf.c ---- */

void leaf_init(StrategyContext *x);
/* Refuses a leaf module that trains and whose input requires no gradient. */
gboolean leaf_accept(const PlanSpec *plan, const Network *network, GError **error);
/* The leaf module that a parameter is in; -1: none. */
int leaf_of_parameter(const StrategyContext *x, int parameter);
/* Strategy.hooks_module: nothing in a leaf module has hooks. */
gboolean leaf_hooks_module(const StrategyContext *x, int module);
/* The backward of a leaf module is over: all its gradients are reduced, in order; nothing for
 * another module. */
void leaf_reduce(StrategyContext *x, int module);

/* ---- zero3_trace.c: bookkeeping, issues nothing ---- */

void trace_init(Trace *t);
void trace_clear(Trace *t);
/* A module is about to be fetched.  FALSE: a complete trace expected another one and is invalid
 * now. */
gboolean trace_enter(StrategyContext *x, int module);
/* Its own parameters leave the queue; then appends to `chosen` (int) what fits the prefetch bucket
 * and the limit on gathered parameters.  The step is over. */
void trace_prefetch(StrategyContext *x, int module, GArray *chosen);
/* Which of the module's parameters may go after it has run, a bit each. */
guint64 trace_releases(StrategyContext *x, int module);
/* A forward begins: what was recorded becomes the trace, or recording begins.  Fills the numbers of
 * integers that ranks compare with each other, up to three; returns how many of them. */
int trace_begin(StrategyContext *x, gint64 compared[3]);

/* ---- zero3_gather.c ---- */

/* Issues an all-gather of these parameters, which are released; takes nothing. */
void gather_issue(StrategyContext *x, GArray *parameters);
/* The parameter's gather is no longer registered with it; if it has not been waited for, `stream`
 * waits and what it gathered is copied out there. */
void gather_finish(StrategyContext *x, int parameter, StreamId stream);
/* The same at the end of everything, when nobody waits any more. */
void gather_forget(Zero3Parameter *p);
/* An available parameter's data goes, unless a module uses it. */
void gather_release(StrategyContext *x, int parameter);
/* All of them on the compute stream, each into memory of its own (param.all_gather). */
void gather_now(StrategyContext *x, const GArray *parameters);

/* ---- zero3_fetch.c ---- */

void fetch_module(StrategyContext *x, int module, gboolean forward);
void release_module(StrategyContext *x, int module, gboolean forward);
/* Modules whose backward has begun and will not end. */
void release_leftovers(StrategyContext *x);
/* Everything, before the optimizer's step. */
void release_all(StrategyContext *x);
/* reset_step, before the root's forward. */
void fetch_begin(StrategyContext *x);
/* The host waits for the oldest event if more than two are pending; then this one is. */
void limit_host(StrategyContext *x, GArray *events);
void limit_add(StrategyContext *x, GArray *events, StreamId stream);

/* ---- zero3_gradients.c ---- */

void gradients_add(StrategyContext *x, int parameter);
/* Reduces what is in the bucket. */
void gradients_flush(StrategyContext *x);
/* Ends a backward: the host waits until everything has been reduced. */
void gradients_finish(StrategyContext *x);

/* ---- zero3_init.c, zero3_step.c ---- */

void zero3_construct(StrategyContext *x);
void zero3_initialize(StrategyContext *x);
void zero3_optimizer_step(StrategyContext *x);
/* A sub-group's new weights, from fp32 to the shards. */
void step_store_weights(StrategyContext *x, const SubGroup *group);
/* Parameters that persist, after everything was released. */
void step_gather_persistent(StrategyContext *x);
ExpectedTotals zero3_expected(StrategyContext *x);

/* ---- zero3_offload.c ---- */

gboolean offload_is_optimizer(const Zero3 *z);
gboolean offload_is_parameters(const Zero3 *z);
/* Memory of the host. */
StorageId offload_allocate(StrategyContext *x, gboolean pinned, gint64 bytes, Category category,
                           const char *what);
/* A copy of a parameter's shard (or secondary one) on the device, allocated and made on this
 * stream; NO_STORAGE when shards are on the device anyway. */
StorageId offload_shard(StrategyContext *x, int parameter, gboolean secondary, StreamId stream);
/* It goes after `reader` has been given what reads it. */
void offload_drop_shard(StrategyContext *x, StorageId copy, StreamId reader);

/* What partition_grads' variables hold between parameters: the gradient on the device. */
typedef struct {
  StorageId gradient, added;
} HostGradients;

/* A reduced gradient, a tensor, goes to the host, in the last micro-batch to the optimizer too.
 * meaning: what the rank takes of it, or adds; NULL: all. */
void offload_gradient(StrategyContext *x, int parameter, gint32 reduced, const char *meaning,
                      HostGradients *locals);
void offload_check_overflow(StrategyContext *x);
/* The norm of a sub-group's gradients: the host reads it. */
void offload_group_norm(StrategyContext *x, const SubGroup *group);
/* What the host makes of the norms of all sub-groups: what gradients are multiplied by. */
void offload_clip(StrategyContext *x);
/* What that product means; caller frees. */
char *offload_unscaling(const Zero3 *z);
/* The optimizer's step on a sub-group that is there. */
void offload_update(StrategyContext *x, SubGroup *group);
void offload_forget_norms(StrategyContext *x);

/* ---- zero3_secondary.c ---- */

/* Elements of a parameter's secondary shard. */
gint64 secondary_elements(const Zero3 *z, int parameter);
/* Makes it out of the whole parameter, which is there, if it is wanted and not made yet. */
void secondary_keep(StrategyContext *x, int parameter);
/* All go: the optimizer has changed the weights. */
void secondary_forget(StrategyContext *x);

/* ---- small things ---- */

/* Where a parameter's shard is, and its first element there. */
StorageId zero3_shard_storage(const StrategyContext *x, int parameter, gint64 *first);
/* A parameter's shard or secondary shard, as an operand that is read. */
void zero3_shard(StrategyContext *x, int parameter, gboolean secondary);
gint64 zero3_shard_elements(const Zero3 *z, int parameter, gboolean secondary);

/* One stream waits for all that another has been given so far; nothing if they are the same. */
void zero3_wait_stream(StrategyContext *x, StreamId waiter, StreamId other);
void zero3_operand(StrategyContext *x, StorageId storage, DType dtype, Role role);
/* A part of a flat storage: elements from the first on. */
void zero3_part(StrategyContext *x, StorageId storage, gint64 first, gint64 elements, DType dtype,
                Role role);

#endif
