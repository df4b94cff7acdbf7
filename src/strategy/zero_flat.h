/* zero_flat.h - the flat buffer of all parameters, cut into one partition per rank wherever that
 * falls (DeepSpeed's ZeRO stages 1 and 2). */
#ifndef HIGHWATER_STRATEGY_ZERO_FLAT_H
#define HIGHWATER_STRATEGY_ZERO_FLAT_H

#include "strategy/deepspeed.h"

/* Part of a parameter that one rank owns; elements. */
typedef struct {
  int rank;
  gint64 first; /* in the parameter */
  gint64 elements;
} FlatSlice;

typedef struct {
  int count;         /* trainable parameters */
  int *order;        /* their indices in the order of the buffer */
  gint64 *offset;    /* by parameter: elements into the buffer */
  gint64 *padding;   /* by position in the order: zeros that follow the parameter */
  gint64 elements;   /* parameters and the padding between them */
  gint64 padded;     /* the buffer: a multiple of 2 * ranks, so that NCCL's send buffers are
                        aligned to 4 bytes */
  gint64 partition;  /* of every rank */
  gint64 first, end; /* of this rank's partition, in the buffer */
  GArray *own;       /* int: parameters that reach into this rank's partition, in order */
  gint64 own_whole;  /* their elements, each counted whole */
  gint64 tail;       /* elements of this rank's partition beyond the last parameter */
  StorageId storage; /* the buffer */
} ZeroFlat;

/* Lays the buffer out; allocates nothing on the device. */
void zero_flat_init(ZeroFlat *flat, const DeepSpeed *d, const Network *network);
void zero_flat_clear(ZeroFlat *flat);
/* This rank's part of a parameter; elements 0: none. */
FlatSlice zero_flat_own_slice(const ZeroFlat *flat, const Network *network, int parameter,
                              int rank);
/* Slice i (from 0) of a parameter in order of ranks; FALSE past the last. */
gboolean zero_flat_slice(const ZeroFlat *flat, const Network *network, int parameter, int i,
                         FlatSlice *slice);
/* The first rank whose own parameters, each counted whole, are largest. */
int zero_flat_heaviest_rank(const ZeroFlat *flat, const Network *network);
/* Copies all parameters, which are storages of their own, into the new buffer and makes them views
 * of it.  through_host_if_tight: by way of the host when the device has no room for two copies
 * (stages 1 and 2; BF16_Optimizer does not look). */
void zero_flat_flatten(ZeroFlat *flat, StrategyContext *x, const DeepSpeed *d,
                       gboolean through_host_if_tight);
/* Gathers the partitions in place, after the optimizer has written this rank's. */
void zero_flat_gather(const ZeroFlat *flat, StrategyContext *x, const DeepSpeed *d);
/* Says what of the parameters a copy of this rank's partition holds. */
void zero_flat_partition_holds(const ZeroFlat *flat, StrategyContext *x, StorageId copy,
                               DType dtype);
/* This rank's partition of the buffer, as a tensor. */
gint32 zero_flat_partition_tensor(const ZeroFlat *flat, StrategyContext *x, const DeepSpeed *d);

#endif
