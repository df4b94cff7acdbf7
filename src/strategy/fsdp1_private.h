/* fsdp1_private.h - what fsdp1.c (hooks), fsdp1_handle.c (flat parameters) and fsdp1_clip.c share.
 */
#ifndef HIGHWATER_STRATEGY_FSDP1_PRIVATE_H
#define HIGHWATER_STRATEGY_FSDP1_PRIVATE_H

#include "strategy/fsdp_options.h"
#include "strategy/strategy.h"

/* FSDP1's streams in the Program's terms (_runtime_utils.py, _init_streams): casts before a gather
 * run on _pre_unshard_stream, gathers on _unshard_stream, reductions on _post_backward_stream, sums
 * over replicas on _all_reduce_stream. */
#define STREAM_PRE_UNSHARD STREAM_COPY_IN
#define STREAM_UNSHARD STREAM_ALL_GATHER
#define STREAM_POST_BACKWARD STREAM_REDUCE_SCATTER

/* A piece of a flat parameter: one of the unit's parameters, or padding. */
typedef struct {
  int position; /* in the unit; -1: padding */
  gint64 elements;
} Piece;

/* A unit's flat parameter while a Program is written (FlatParamHandle). */
typedef struct {
  Unit *unit;
  int index;
  int count;            /* parameters */
  const int *parameter; /* their indices */
  gboolean is_root;
  gboolean requires_grad;    /* one of the parameters does, and so do the views of all */
  GArray *pieces;            /* Piece: in order, padding for alignment and for the ranks included */
  gint64 flat_elements;      /* of all pieces */
  gint64 unsharded_elements; /* padded to the ranks */
  gint64 shard_elements;     /* of one rank; all of them without sharding */
  int local_parameters;      /* of which this rank holds something */
  int local_trained;         /* those that train */

  StorageId shard;         /* what the optimizer updates */
  StorageId low_precision; /* the shard as it is gathered (_mp_shard, or what came from the host);
                              without sharding what is used */
  StorageId unsharded;     /* _full_param_padded; never there without sharding */
  StorageId gradient;      /* unsharded, as autograd leaves it; without sharding also reduced */
  DType gradient_dtype;
  StorageId incoming;         /* added to `gradient`, held by the engine until the hook returns */
  StorageId sharded_gradient; /* reduced */
  StorageId host_gradient;    /* CPUOffload: where it goes */
  gboolean has_gradients;     /* .grad of its parameters is set */

  /* as in FlatParamHandle, without the underscore */
  gboolean prefetched, needs_pre_forward_unshard, needs_pre_backward_unshard, ran_pre_backward_hook;
  gboolean ran_post_backward_hook;
  int pre_forward_index, post_forward_index; /* -1: none */
  gboolean held;                             /* by the plan's "retain" */
  gboolean owes_reshard;                     /* one came while it was held */
  gboolean stays; /* gathered before its state is saved, hence after it too */
} Handle;

typedef struct {
  Handle *handles; /* by unit; the root's is the first */
  int count;
  int ranks;    /* of the group that shards; without sharding still what layouts are padded for */
  int replicas; /* that sum their gradients */
  ShardingStrategy strategy; /* NO_SHARD for one rank */
  BackwardPrefetch backward_prefetch;
  gboolean uses_original; /* use_orig_params */
  gboolean forward_prefetch, limits;
  DType stored, gathered, reduce;
  gint32 shard_communicator, replicate_communicator;
  gboolean initialized;       /* lazily, in the first forward */
  GArray *free_events;        /* gint32: _FreeEventQueue */
  GArray *pre_forward_order;  /* int: handles, as the first iteration met them */
  GArray *post_forward_order; /* int: of this iteration */
  gboolean is_first_iteration;
  StorageId zero; /* clip_grad_norm_'s _zero_scalar */
} Fsdp1;

static inline Fsdp1 *
fsdp1_of(const StrategyContext *x)
{
  return x->state;
}

static inline gboolean
fsdp1_shards(const Fsdp1 *f)
{
  return f->strategy != NO_SHARD;
}

/* Does computation have another dtype than the optimizer? */
static inline gboolean
fsdp1_is_mixed(const Fsdp1 *f)
{
  return f->gathered != f->stored;
}

/* RESHARD_AFTER_FORWARD_HANDLE_STRATEGIES */
static inline gboolean
fsdp1_reshards_after_forward(const Fsdp1 *f)
{
  return f->strategy == FULL_SHARD || f->strategy == HYBRID_SHARD;
}

/* ---- fsdp1_accept.c ---- */

/* The strategy's accept. */
gboolean fsdp1_accept(const PlanSpec *plan, const Network *network, GError **error);

static inline gboolean
fsdp1_is_hybrid(ShardingStrategy strategy)
{
  return strategy == HYBRID_SHARD || strategy == HYBRID_SHARD_ZERO2;
}

/* Is checkpoint(FSDP(block)) around this block, which is then reentrant? */
gboolean fsdp1_is_reentrant(const PlanSpec *plan, int block);

/* ---- fsdp1_handle.c ---- */

StorageId handle_allocate(StrategyContext *x, const Handle *h, gint64 bytes, StreamId stream,
                          Category category, const char *what);
/* An operand of what is issued next; NO_STORAGE is none. */
void fsdp1_operand(StrategyContext *x, StorageId storage, DType dtype, Role role);
/* A kernel that writes one storage from another of as many elements. */
void fsdp1_launch_copy(StrategyContext *x, StreamId stream, StorageId from, DType from_dtype,
                       StorageId to, DType to_dtype);
/* A collective on the operands given before. */
void handle_collective(StrategyContext *x, const Handle *h, CollectiveKind kind,
                       gint32 communicator, StreamId stream, DType dtype, gint64 elements);

/* Lays the parameters out in a flat one and cuts it. */
void handle_init(StrategyContext *x, Handle *h, int unit);
void handle_clear(Handle *h);
/* Says what this rank's shard, or a copy of it, holds of the parameters. */
void handle_holds(StrategyContext *x, const Handle *h, StorageId shard);
/* Whole parameters become the rank's shard of a flat one. */
void handle_construct(StrategyContext *x, Handle *h);
/* init_flat_param_attributes: buffers that are made and emptied at once. */
void handle_lazy_init(StrategyContext *x, Handle *h);
/* Gathers the parameters unless they are there; in forward autograd sees new views of them. */
void handle_unshard(StrategyContext *x, Handle *h, gboolean forward);
/* Back to the shard; frees: the gathered parameters go, after what `current` has been given. */
void handle_reshard(StrategyContext *x, Handle *h, gboolean frees, StreamId current);
/* A wait for everything issued on another stream so far. */
void fsdp1_wait_stream(StrategyContext *x, StreamId waiter, StreamId other);

/* ---- fsdp1_gradient.c ---- */

/* The parameters' gradients, by position, become the unsharded one or are added to it. */
void handle_flatten(StrategyContext *x, Handle *h, const StorageId *gradients);
/* The post-backward hook but for prefetching: reduces the gradient, or keeps it. */
void handle_reduce(StrategyContext *x, Handle *h);
/* Drops what zero_grad() has left to FSDP. */
void handle_reset_gradient(StrategyContext *x, Handle *h);

/* ---- fsdp1_offload.c: what CPUOffload changes ---- */

/* The shard goes to the host, and the memory for its gradient is made there. */
void handle_construct_on_host(StrategyContext *x, Handle *h);
/* The shard comes to the device, in the dtype that is gathered. */
void handle_fetch(StrategyContext *x, Handle *h);
/* _use_sharded_views: the original parameters let go of what came from the host. */
void handle_forget_fetched(StrategyContext *x, Handle *h);
/* The reduced gradient goes to the host; it is let go of at the end of backward. */
void handle_offload_gradient(StrategyContext *x, Handle *h, StreamId stream);
/* clip_grad_norm_ of these parameters (int), which have a gradient here; zero: FSDP's scalar for
 * ranks without any. */
void fsdp1_clip_on_host(StrategyContext *x, const GArray *parameters, StorageId zero);

/* ---- fsdp1_clip.c ---- */

/* A parameter's part of the flat gradient, as an operand of what is issued next. */
void fsdp1_gradient_operand(StrategyContext *x, const ParameterState *p, Role role);
/* dist.all_reduce(total_norm, group=self.process_group): the compute stream waits. */
void fsdp1_all_reduce_norm(StrategyContext *x, StorageId norm);

/* FullyShardedDataParallel.clip_grad_norm_. */
gboolean fsdp1_clip(StrategyContext *x);

/* ---- fsdp1_state.c ---- */

/* The model's state dict. */
void fsdp1_save_model(StrategyContext *x, StateDict *dict);
/* A sharded state dict is read into and given back.  Returns the bytes that are read. */
gint64 fsdp1_load_model(StrategyContext *x);
void fsdp1_save_optimizer(StrategyContext *x, StateDict *dict, int moments,
                          const StorageId *const *states);
void fsdp1_load_full(StrategyContext *x, StateDict *dict);
/* Slices of flat parameters. */
gboolean fsdp1_state_is_whole(const StrategyContext *x);
int fsdp1_state_ranks(const StrategyContext *x);
void fsdp1_state_ranges(const StrategyContext *x, StateLayout *layout);

#endif
