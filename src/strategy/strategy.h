/* strategy.h - how parameters, gradients and optimizer state are spread over ranks: a table of
 * hooks on one shared walk.
 *
 * lower/ walks forward, backward and optimizer step once for all strategies; a strategy is hooks on
 * modules and gradients, as the real frameworks are.  Hooks fire per unit: a unit is what a
 * strategy gathers and reduces together (FSDP2's parameter group).  .setup maps modules to units;
 * without units the unit hooks never fire.  A NULL hook does nothing. */
#ifndef HIGHWATER_STRATEGY_STRATEGY_H
#define HIGHWATER_STRATEGY_STRATEGY_H

#include "network/network.h"
#include "program/live_storage.h"
#include "spec/device_profile.h"
#include "spec/option.h"
#include "spec/plan_spec.h"
#include "strategy/range_map.h"

/* A tensor as lowering holds it: a storage that it counts for, and how it may be used. */
typedef struct {
  StorageId storage;
  gint32 node;      /* autograd node that made it, or -1 */
  gint32 parameter; /* its memory is that parameter's, which nobody counts here; -1: none */
  guint8 output;    /* which output of that node */
  guint8 dtype;
  guint8 is_view;   /* its base keeps a second reference: never the target of an in-place sum (rule
                       L5) */
  guint8 is_packed; /* a copy: where its strides leave gaps, it has the same order and none */
  gint64 offset;    /* elements into the storage */
  gint64 stride[OP_DIMS]; /* of a gradient: memory order */
} TensorRef;

#define NO_TENSOR_INIT                                                                             \
  {                                                                                                \
    .storage = NO_STORAGE, .node = -1, .parameter = -1                                             \
  }
#define NO_TENSOR ((TensorRef) NO_TENSOR_INIT)

/* One parameter while a Program is written. */
typedef struct {
  StorageId sharded;   /* this rank's part (the whole parameter when it is not sharded) */
  StorageId unsharded; /* the full parameter that ops read now; NO_STORAGE when it is not there */
  StorageId gradient;  /* .grad as autograd leaves it, or the bucket it is a view of */
  gint64 gradient_offset;     /* elements into `gradient` at which the parameter's begins */
  gboolean has_gradient;      /* TRUE even for a gradient without elements */
  StorageId accumulated;      /* unsharded gradient in the reduce dtype, kept over micro-batches */
  StorageId sharded_gradient; /* what the optimizer reads; may be shared by parameters of a group */
  gint64 sharded_offset;      /* elements into it at which the parameter's begins */
  gint64
      local_elements;  /* this rank's elements, without padding: what optimizer state is made for */
  gint64 local_offset; /* elements into `sharded` at which they begin */
  gint64 offset;       /* elements into `unsharded` at which it begins */
  gint32 node;         /* its AccumulateGrad node in the current graph */
  gboolean ignored;    /* kept out of what the strategy shards: whole on every rank */
} ParameterState;

/* A unit's report entry and what the walk needs to know of it. */
typedef struct {
  char *name;                          /* "layers.3", "root" */
  GArray *parameters;                  /* int: indices */
  GArray *modules;                     /* int: the modules that were grouped */
  gint64 elements;                     /* unpadded */
  gint64 unsharded_bytes, shard_bytes; /* as gathered; of this rank, as stored */
  int all_gathers, reduce_scatters;    /* issued in the step being written */
  /* with a budget for prefetching: how many groups it gathers ahead, and what those take */
  int forward_prefetches, backward_prefetches;
  gint64 forward_prefetched_bytes, backward_prefetched_bytes;
  int made; /* the how manieth to be wrapped: its index, unless lists say otherwise */
} Unit;

typedef struct _StrategyContext StrategyContext;

struct _StrategyContext {
  const Network *network;
  const PlanSpec *plan;
  const DeviceProfile *device;
  int rank;            /* this rank's place in the shard group */
  int global_rank;     /* and among all */
  gint64 device_bytes; /* memory of the device, as a framework sees it */
  ProgramBuilder *builder;
  LiveStorages *live;
  ParameterState *parameters; /* by index */
  StorageId *buffers;         /* of Network.buffers, by index; NO_STORAGE until it is made */
  gint32 *parameter_names;    /* name ids, by index */
  GPtrArray *units;           /* Unit * */
  GArray *unit_begins;        /* int by module: unit whose forward hooks begin there, or -1 */
  GArray *unit_ends;          /* int by module */
  gboolean offloads;          /* FSDP: shards, gradients and optimizer are in the host's memory */
  gpointer state;             /* the strategy's own */
  /* Makes the autograd nodes through which the gradients of a unit's parameters, views of a flat
   * one, come to .flatten; they run on this stream.  The walk's. */
  void (*view_parameters)(StrategyContext *x, int unit, StreamId stream);
  gpointer walk;
  /* where the walk is */
  int step;        /* from 1 */
  int micro_batch; /* from 0 */
  gboolean last_micro_batch;
  gboolean synchronize;          /* gradients are reduced in this micro-batch */
  gboolean no_grad;              /* autograd records nothing */
  gboolean recomputing;          /* a checkpointed region runs again, inside backward */
  gboolean output_requires_grad; /* what the module gave back for which after_forward is called */
  gboolean evaluating;           /* the model is in eval() */
  GPtrArray *retained;           /* Retained *: groups that somebody else holds */
  double gradient_scale; /* by which the optimizer divides gradients in its kernel; 0: not */
  StorageId grad_norm;   /* what clip_grad_norm_ returned and the loop keeps, or NO_STORAGE */
};

/* What is held beyond its time: a unit's or a module's full parameters, a loss (retain.h). */
typedef struct {
  const RetainSpec *spec;
  int unit;       /* -1: no unit's */
  GArray *clones; /* StorageId: what is held */
} Retained;

/* Elements and bytes that a step should send and hold, in closed form: what conformance tests
 * compare with.  EXPECTED_UNKNOWN: there is no closed form under this plan. */
#define EXPECTED_UNKNOWN G_GINT64_CONSTANT(-1)

typedef struct {
  gint64 elements_gathered; /* sum over all-gathers of the gathered buffer's elements */
  gint64 elements_reduced;  /* sum over reduce-scatters of the reduced buffer's elements */
  gint64 elements_all_reduced;
  gint64 elements_broadcast;   /* by strategies of PyTorch */
  gint64 parameter_bytes;      /* persistent, per rank */
  gint64 host_parameter_bytes; /* the same in the host's memory, by strategies of PyTorch */
} ExpectedTotals;

/* Over how many neighbouring ranks a copy of the model's parameters, and one of the optimizer's
 * state, are spread: 1 when every rank has it whole, all when there is one copy.  Ranks r and r + n
 * hold the same part. */
typedef struct {
  int parameters, optimizer_state;
} StateSpread;

/* What a framework's engine does to the loss before it runs backward. */
typedef enum {
  LOSS_IS_THE_LOOPS,      /* nothing: the training loop divides it by the accumulation steps */
  LOSS_DIVIDED,           /* by the accumulation steps, even if there is one */
  LOSS_DIVIDED_AND_SCALED /* and multiplied by a loss scale */
} LossScaling;

/* Who looks for infinities in scaled gradients: each rank for itself; ShardedGradScaler, which asks
 * all ranks; an op on DTensors, which does. */
typedef enum {
  GRAD_SCALER_NONE,
  GRAD_SCALER_LOCAL,
  GRAD_SCALER_SHARDED,
  GRAD_SCALER_OF_DTENSORS
} GradScalerKind;

/* From the meta device; whole on the device; whole in the host's memory. */
enum { INITIALIZES_META = 1, INITIALIZES_ON_DEVICE = 2, INITIALIZES_ON_CPU = 4 };

/* state_dict.h */
typedef struct _StateDict StateDict;

typedef struct {
  const char *name;             /* "fsdp2" */
  const char *summary;          /* one line for `list` */
  const OptionSection *section; /* its section of the plan; NULL: none */
  /* How models can be made (the plan's initialize): INITIALIZES_ flags. */
  guint initializes;
  /* Refuses plans it cannot honour. */
  gboolean (*accept)(const PlanSpec *plan, const Network *network, GError **error);
  /* Sets up units and state; issues nothing. */
  void (*setup)(StrategyContext *x);
  /* Construction: allocates what is persistent, in the framework's order. */
  void (*construct)(StrategyContext *x);
  /* What wraps the finished model in a phase of its own, before the training loop makes anything
   * (deepspeed.initialize). */
  void (*initialize)(StrategyContext *x);
  /* What constructing the optimizer does besides, after `initialize`. */
  void (*construct_optimizer)(StrategyContext *x);
  void (*teardown)(StrategyContext *x);
  /* What is done to the loss; NULL: LOSS_IS_THE_LOOPS. */
  LossScaling (*loss)(const PlanSpec *plan);
  /* What else it changes in the code that the network runs; NULL: nothing. */
  void (*shape)(const PlanSpec *plan, NetworkShape *shape);

  void (*begin_step)(StrategyContext *x);
  void (*zero_grad)(
      StrategyContext *x); /* NULL: gradients die in the order of model.parameters() */
  void (*begin_forward)(StrategyContext *x);
  void (*before_forward)(StrategyContext *x, int unit);
  /* Returns a token that comes back with before_backward of the same call. */
  int (*after_forward)(StrategyContext *x, int unit);
  void (*end_forward)(StrategyContext *x); /* after the root module's own hooks */
  /* The gradient of the unit's input is there: called for units that want_input_gradient. */
  gboolean (*wants_input_gradient)(StrategyContext *x, int unit);
  void (*input_gradient)(StrategyContext *x, int unit);
  /* In a recomputation in place of before_forward and after_forward; the second one not if that
   * stops inside of the unit. */
  void (*before_recompute)(StrategyContext *x, int unit);
  void (*after_recompute)(StrategyContext *x, int unit);
  void (*begin_backward)(StrategyContext *x);
  void (*before_backward)(StrategyContext *x, int unit, int token);
  void (*gradient_ready)(StrategyContext *x, int parameter);
  /* After view_parameters: the gradients of a unit's parameters become one; gradients, by position
   * in the unit, are borrowed (NO_STORAGE: a parameter without one).  after_backward follows. */
  void (*flatten)(StrategyContext *x, int unit, const StorageId *gradients);
  void (*after_backward)(StrategyContext *x, int unit);
  void (*end_backward)(StrategyContext *x); /* the graph has run */
  void (*after_graph)(StrategyContext *x);  /* backward() has returned to the framework's engine */
  /* A whole optimizer step with its clipping; NULL: clip_grad_norm_ and optimizer.step() on every
   * parameter. */
  void (*optimizer_step)(StrategyContext *x);
  /* An optimizer.step() of its own, after clipping; FALSE (or NULL): every parameter is updated. */
  gboolean (*update)(StrategyContext *x);
  /* Hooks on every module's call, for frameworks that have them there; a recomputation runs the
   * forward ones again.  The module is an index, or network_wrapper() of a block.  Its backward
   * begins when a gradient reaches its output, and ends when those of all its inputs are there:
   * never, for one whose inputs want none.  All four or none. */
  void (*before_module)(StrategyContext *x, int module);
  /* Has this module such hooks?  NULL: all have. */
  gboolean (*hooks_module)(const StrategyContext *x, int module);
  void (*after_module)(StrategyContext *x, int module);
  void (*before_module_backward)(StrategyContext *x, int module);
  void (*after_module_backward)(StrategyContext *x, int module);
  /* Checkpoints.  saves_states: each parameter's shard and optimizer states are tensors of their
   * own, which the state dict takes as they are, or as full_tensor makes them. */
  gboolean saves_states;
  /* model.state_dict() of its own, without the optimizer's; or (saves_with_engine) the whole of
   * what this rank writes: with a sharded state the optimizer's too, with a full one the weights
   * alone. */
  void (*save_model)(StrategyContext *x, StateDict *dict);
  gboolean saves_with_engine;
  /* The optimizer's state dict beside a save_model: states[k][parameter] is the k-th state of this
   * rank's part of a parameter, or NO_STORAGE. */
  void (*save_optimizer)(StrategyContext *x, StateDict *dict, int moments,
                         const StorageId *const *states);
  /* Reads a sharded state of the model, each rank its rows of every parameter, and spreads it as
   * the strategy holds it; or (saves_with_engine) all that this rank wrote, the optimizer's part if
   * the plan says so.  Returns the bytes that this rank reads. */
  gint64 (*load_model)(StrategyContext *x);
  /* Spreads a whole state dict, which is on the device, over the model.  NULL: parameters are
   * tensors that each of its tensors can be copied into. */
  void (*load_full)(StrategyContext *x, StateDict *dict);
  /* Refuses what load_model cannot read; with saves_with_engine only. */
  gboolean (*accept_load)(const PlanSpec *plan, const Network *network, GError **error);
  void (*begin_state)(StrategyContext *x); /* before model.state_dict() */
  /* A tensor that is sharded as the parameter is, gathered: a new storage, or a reference to the
   * same one.  NULL: tensors are whole. */
  StorageId (*full_tensor)(StrategyContext *x, int parameter, StorageId local, DType dtype,
                           Category category);
  /* Is nothing sharded under this plan, so that a sharded state dict is whole on every rank?  NULL:
   * only without full_tensor. */
  gboolean (*state_is_whole)(const StrategyContext *x);
  /* How many ranks share the model's state, and what each of them holds: ranges are added to the
   * layout, which has so many ranks; without state_ranks one.  After setup. */
  int (*state_ranks)(const StrategyContext *x);
  void (*state_ranges)(const StrategyContext *x, StateLayout *layout);
  void (*release)(StrategyContext *x, int unit); /* a retained unit is let go */
  guint batch_tensors; /* tensors that the training loop makes for a micro-batch, if that is more
                          than the model takes */
  /* Does the plan put the two modules of a tied weight into different groups, so that each gets a
   * parameter of its own?  NULL: never. */
  gboolean (*splits_tied)(const PlanSpec *plan);
  /* A clip_grad_norm_ of its own; FALSE (or NULL): torch.nn.utils' is used. */
  gboolean (*clip)(StrategyContext *x);
  /* zero_grad frees nothing: the framework holds gradients too.  NULL: it does. */
  gboolean (*keeps_gradients)(const PlanSpec *plan);
  GradScalerKind grad_scaler; /* that accelerate makes for it */
  gboolean sharded_norms;     /* clip_grad_norm_ gathers the norms of sharded tensors */
  gboolean only_replicas;     /* its ranks are the mesh's replicas, and mesh.shard is 1 */
  /* Inputs of units are cast to the compute dtype in before_forward (cast_forward_inputs). */
  gboolean casts_inputs;
  /* Those of the model alone are, before its unit begins (cast_root_forward_inputs). */
  gboolean casts_root_inputs;
  /* Parameters are computed with in the compute dtype under autocast too: the strategy has cast
   * them before. */
  gboolean casts_parameters;
  gboolean marks_inputs; /* after_backward hangs on a node at the unit's inputs */
  /* checkpoint(FSDP(block)) is the reentrant one. */
  gboolean reentrant_outside;
  /* A gathered parameter is new memory put under it, not its own memory resized. */
  gboolean swaps_parameters;
  /* The ZeRO stage whose state this is, 0 to 3; NULL: 0. */
  int (*zero_stage)(StrategyContext *x);
  /* Where persistent state is; NULL: whole on every rank. */
  StateSpread (*spread)(const StrategyContext *x);
  ExpectedTotals (*expected)(StrategyContext *x); /* after setup */
  /* Where ranks differ by more than their rows of the parameters: the one that holds most, or -1 if
   * the plan makes all of them the same. */
  int (*heaviest_rank)(const PlanSpec *plan, const Network *network);
} Strategy;

/* Every strategy, in the order of src/local.mk, NULL-terminated. */
const Strategy *const *strategies(void);
/* By name; NULL when there is none. */
const Strategy *strategy_find(const char *name);
/* The table that plan_spec reads against, ended by a NULL name.  Caller frees. */
PlanStrategy *strategy_plan_table(void);

/* ---- what many strategies do ---- */

/* Adds a unit without modules; returns its index. */
int strategy_new_unit(StrategyContext *x, const char *name);
/* Puts modules `module` to `last_module` into a unit: its hooks begin and end at the first of them,
 * their parameters that no unit has yet belong to it.  owner: unit of each parameter, -1 for none;
 * kept up to date. */
void strategy_add_module(StrategyContext *x, int unit, int module, int last_module, int *owner);

/* Says that a storage of the construction holds elements of a parameter, from its own element
 * `offset` on (ParameterPart); nothing for NO_STORAGE or no elements. */
void strategy_holds(StrategyContext *x, StorageId storage, DType dtype, StateRange range,
                    gint64 offset);
/* Purpose of a parameter's memory. */
StoragePurpose parameter_purpose(const StrategyContext *x, int parameter, Category category);
/* Visits modules in the order of nn.Module._apply (children first): every parameter of a module,
 * its buffers (allocated here), then the module's end.  A module with a tied weight visits it
 * again.  end may be NULL. */
void strategy_visit_construction(StrategyContext *x, void (*parameter)(StrategyContext *, int),
                                 void (*end)(StrategyContext *, int module));
/* Is there a parameter that does not train? */
static inline gboolean
strategy_freezes(const Network *network)
{
  return network_trainable_tensors(network) < (int) network->parameters->len;
}
/* Does what the module gives back require a gradient: is there a parameter that does in it, or
 * defined (and so, used) before it? */
gboolean strategy_output_requires_grad(const Network *network, int module);
gboolean strategy_module_contains(const Network *network, int module, int other);
/* The same for a model that is made on the device: adapters come when all else is there. */
void strategy_visit_whole(StrategyContext *x, void (*parameter)(StrategyContext *, int),
                          void (*end)(StrategyContext *, int module));
/* Memory for a buffer of the network, in that dtype. */
StorageId strategy_make_buffer(StrategyContext *x, int index, DType dtype);
/* The whole model on every rank, parameter by parameter. */
void strategy_construct_whole(StrategyContext *x);
/* The whole model in pageable memory, and a parameter's way from there to the device. */
void strategy_construct_on_host(StrategyContext *x);
void strategy_move_to_device(StrategyContext *x, int parameter);
/* Adds a parameter's rows to the layout, as torch.chunk cuts them for its ranks. */
void strategy_add_rows(const Network *network, int parameter, StateLayout *layout);
/* Strategy.state_ranges where every rank has all. */
void strategy_state_whole(const StrategyContext *x, StateLayout *layout);
/* Refuses what needs sharded groups: for strategies that have none. */
gboolean strategy_accept_unsharded(const PlanSpec *plan, GError **error);
/* Keeps a unit's full parameters if the plan says so: clones are made here; TRUE: the unit must not
 * be resharded. */
gboolean strategy_retain(StrategyContext *x, int unit, int count, const StorageId *full);
/* clip_grad_norm_ returns this norm: the Trainer keeps it until it clips again.  Takes it. */
void strategy_return_norm(StrategyContext *x, StorageId norm);
/* Lets go of what was kept until this moment. */
void strategy_release_retained(StrategyContext *x, const Strategy *strategy, RetainUntil moment);
/* A kernel of this kind over these bytes, by name. */
void strategy_launch(StrategyContext *x, StreamId stream, const char *name, double bytes);
/* The same, with what it computes (meaning.h; borrowed, NULL: its name says it). */
void strategy_launch_as(StrategyContext *x, StreamId stream, const char *name, double bytes,
                        const char *meaning);
/* A new number in fp32 on the device that a kernel of that name makes of another (NO_STORAGE: of
 * none). */
StorageId strategy_scalar(StrategyContext *x, StorageId from, const char *what,
                          const char *meaning);
/* A copy of so many bytes between the device and the host; one that takes a part says so by its
 * meaning. */
void strategy_copy(StrategyContext *x, StreamId stream, const char *name, double bytes);
void strategy_copy_as(StrategyContext *x, StreamId stream, const char *name, double bytes,
                      const char *meaning);
/* The CPU reads and writes so many bytes. */
void strategy_work_on_host(StrategyContext *x, double bytes);
/* The host computes this on the operands given before, in its own memory; how long that takes is
 * said beside it. */
void strategy_compute_on_host(StrategyContext *x, const char *name, const char *meaning);
/* The optimizer on the host updates so many elements of fp32 and writes them once more in the
 * model's dtype: what the CPU reads and writes. */
void strategy_update_on_host(StrategyContext *x, gint64 elements);

#endif
