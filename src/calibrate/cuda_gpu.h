/* cuda_gpu.h - one GPU of the CUDA probe: its streams, buffers, events, libraries. */
#ifndef HIGHWATER_CALIBRATE_CUDA_GPU_H
#define HIGHWATER_CALIBRATE_CUDA_GPU_H

#include <cublas_v2.h>
#include <cuda_runtime_api.h>

#include "calibrate/device_probe.h"
#include "calibrate/probe_kernels.h"

/* The module has no part of the program that it could take the quark from. */
#define HIGHWATER_ERROR_CUDA (g_quark_from_static_string("highwater-cuda"))

/* TRUE when it is cudaSuccess; else "WHAT: message". */
gboolean cuda_done(cudaError_t status, const char *what, GError **error);

enum {
  BUFFER_SOURCE, /* first operand, source, what is sent */
  BUFFER_TARGET, /* result, target, what is received */
  BUFFER_OTHER,  /* second operand */
  BUFFER_SECOND_SOURCE,
  BUFFER_SECOND_TARGET,
  BUFFER_TRAFFIC,
  BUFFER_CACHE, /* larger than the caches */
  BUFFER_COUNT
};

typedef struct {
  void *bytes;
  gsize size;
} CudaBuffer;

/* Communicators that were made: void * is ncclComm_t; NULL for a rank outside all groups. */
typedef struct {
  RankGroup group;
  gboolean second;
  void *communicator;
} CudaGroup;

typedef struct {
  int device;
  gint64 context_bytes;
  cudaStream_t stream, second;
  cublasHandle_t blas;
  CudaBuffer buffer[BUFFER_COUNT];
  CudaBuffer pinned;
  int *word; /* on the device, for cuda_collective_largest() */
  cudaEvent_t *begin, *end, fork;
  int events;
  void *world;    /* ncclComm_t, or NULL */
  GArray *groups; /* CudaGroup */
} CudaGpu;

/* A GPU is zeroed before it is opened, and may be closed whether or not that went well. */
gboolean cuda_gpu_open(CudaGpu *gpu, int device, GError **error);
void cuda_gpu_close(CudaGpu *gpu);
void cuda_gpu_describe(CudaGpu *gpu, ProbeFacts *facts);
/* Makes it the one that CUDA's calls are about. */
gboolean cuda_gpu_choose(CudaGpu *gpu, GError **error);
/* Buffers and events for the experiment. */
gboolean cuda_gpu_prepare(CudaGpu *gpu, const Experiment *e, int iterations, GError **error);

/* Enqueue, on the first stream: a matrix product; what fills the caches with something else. */
gboolean cuda_gpu_multiply(CudaGpu *gpu, const Experiment *e, GError **error);
gboolean cuda_gpu_overwrite_cache(CudaGpu *gpu, GError **error);
/* The second stream goes on when the first has got here. */
gboolean cuda_gpu_let_second_follow(CudaGpu *gpu, GError **error);
/* Begin or end of an iteration; wait for its end; its duration. */
gboolean cuda_gpu_mark(CudaGpu *gpu, int iteration, gboolean end, GError **error);
gboolean cuda_gpu_wait(CudaGpu *gpu, int iteration, GError **error);
gboolean cuda_gpu_read(CudaGpu *gpu, int iteration, double *ns, GError **error);

/* The GPUs of this process in a collective; `second`: on the second stream, with a communicator and
 * buffers of its own. */
typedef struct {
  CudaGpu *gpus;
  int count, first, ranks;
  gboolean second;
} CudaCollective;

gboolean cuda_collective_make_id(char id[DEVICE_PROBE_ID_BYTES], GError **error);
gboolean cuda_collective_connect(const CudaCollective *all, const char *id, GError **error);
gboolean cuda_collective_run(const CudaCollective *all, const CollectiveCall *call, GError **error);
/* Replaces *value by the largest that any process of the job gave; alone it stays. */
gboolean cuda_collective_largest(const CudaCollective *all, int *value, GError **error);
void cuda_collective_close(CudaGpu *gpu);
void cuda_collective_version(char text[PROBE_TEXT]);

#endif
