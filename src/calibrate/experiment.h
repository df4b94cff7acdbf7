/* experiment.h - one thing to measure on a device: a product of matrices, a copy, a collective ...,
 * alone or beside other work. */
#ifndef HIGHWATER_CALIBRATE_EXPERIMENT_H
#define HIGHWATER_CALIBRATE_EXPERIMENT_H

#include <glib.h>

#include "program/program.h"

#define EXPERIMENT_KINDS(X)                                                                        \
  X(GEMM, "gemm")                     /* C = A B^T of m, n, k, as a linear layer's forward */      \
  X(MEMORY, "memory")                 /* an element-wise kernel that moves so many bytes */        \
  X(LAUNCH, "launch")                 /* host time of launching an empty kernel */                 \
  X(KERNEL, "kernel")                 /* device time between empty kernels of a full queue */      \
  X(COPY_TO_DEVICE, "copy_to_device") /* from page-locked memory */                                \
  X(COPY_TO_HOST, "copy_to_host")     /* to page-locked memory */                                  \
  X(CUDA_MALLOC, "cuda_malloc")       /* host time of cudaMalloc of so many bytes */               \
  X(CUDA_FREE, "cuda_free")           /* and of giving them back */                                \
  X(COLLECTIVE, "collective")         /* by every rank of the group */

typedef enum {
#define X(name, text) EXPERIMENT_##name,
  EXPERIMENT_KINDS(X)
#undef X
      EXPERIMENT_KIND_COUNT
} ExperimentKind;

/* Work on a second stream for as long as the first is measured. */
#define BESIDE_KINDS(X)                                                                            \
  X(NOTHING, "nothing")                                                                            \
  X(TRAFFIC, "traffic")       /* so many thread blocks that copy memory: as a collective does */   \
  X(COLLECTIVE, "collective") /* another one, on a communicator of its own */

typedef enum {
#define X(name, text) BESIDE_##name,
  BESIDE_KINDS(X)
#undef X
      BESIDE_KIND_COUNT
} BesideKind;

/* Ranks of a communicator: as many as `ranks`, `stride` apart, as in a Program.  All of the job's
 * ranks are in such groups, which run at the same time; what is left over takes no part. */
typedef struct {
  gint32 ranks, stride;
} RankGroup;

typedef struct {
  guint8 collective; /* CollectiveKind */
  gboolean in_place; /* all-gather and reduce-scatter: the shard lies in the full buffer */
  RankGroup group;
  gint64 bytes; /* the full gathered or reduced buffer */
} CollectiveCall;

/* Plain data: it is sent between processes as it is. */
typedef struct {
  guint8 kind;           /* ExperimentKind */
  guint8 dtype;          /* DType; GEMM */
  gboolean cold;         /* caches are overwritten between iterations */
  gint64 m, n, k;        /* GEMM */
  gint64 batch;          /* so many of them at once; 0: one */
  gint64 bytes;          /* MEMORY: read and written together; copies, CUDA_MALLOC, CUDA_FREE */
  CollectiveCall call;   /* COLLECTIVE */
  guint8 beside;         /* BesideKind */
  gint32 blocks;         /* TRAFFIC: thread blocks of it */
  CollectiveCall second; /* BESIDE_COLLECTIVE */
} Experiment;

const char *experiment_kind_name(ExperimentKind kind);
/* What is measured, for people: "gemm bf16 8192 x 4096 x 4096", "all_gather of 64 MiB, 8 ranks".
 * Caller frees. */
char *experiment_text(const Experiment *experiment);
/* Bytes of device memory that it needs at once. */
gint64 experiment_device_bytes(const Experiment *experiment);

#endif
