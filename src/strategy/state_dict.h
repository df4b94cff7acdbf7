/* state_dict.h - a state dict while it is made for a checkpoint, as
 * torch.distributed.checkpoint.state_dict makes it: sharded or gathered, on the device or in the
 * host's memory. */
#ifndef HIGHWATER_STRATEGY_STATE_DICT_H
#define HIGHWATER_STRATEGY_STATE_DICT_H

#include "strategy/strategy.h"

/* One of its tensors. */
typedef struct {
  StorageId storage; /* a reference to it goes to the state dict */
  gint64 bytes;      /* without padding */
  DType dtype;
  gint32 parameter; /* whose it is */
} StateTensor;

struct _StateDict {
  gboolean full;    /* every tensor whole */
  gboolean offload; /* copied to the host's memory */
  gboolean keeps;   /* this rank keeps what it gathers: with full and offload rank 0 alone */
  GArray *kept;     /* StateTensor, in order */
  gint64 bytes;     /* of all its tensors, without padding */
};

/* Tensor.copy_ between device and pageable memory, for which the host waits; bytes are what moves.
 */
void state_copy(StrategyContext *x, StorageId from, StorageId to, DType dtype, gint64 bytes);

/* Of a plan's save; for the rank with this number among all. */
StateDict *state_dict_new(gboolean full, gboolean offload, int global_rank);
/* The last reference to it goes: its tensors do, the last one first. */
void state_dict_free(StrategyContext *x, StateDict *dict);

/* Keeps the tensor, or lets it go where this rank keeps nothing; copies it to the host if that is
 * asked for, and waits for the copy (Tensor.to). */
void state_dict_add(StrategyContext *x, StateDict *dict, const StateTensor *tensor);

/* Copies what is on the device to the host, and lets it go when all is there
 * (_offload_state_dict_to_cpu). */
void state_dict_offload(StrategyContext *x, StateDict *dict);

/* What has been read into the host's memory is copied into the tensors, one after another. */
void state_dict_read(StrategyContext *x, StateDict *dict);

#endif
