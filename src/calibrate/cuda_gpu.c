/* cuda_gpu.c - streams, buffers, events and cuBLAS of one GPU. */
#include "calibrate/cuda_gpu.h"

#include <string.h>

#include "spec/dtype.h"

gboolean
cuda_done(cudaError_t status, const char *what, GError **error)
{
  if (status == cudaSuccess)
    return TRUE;
  /* An error that a call returned is remembered, and would be blamed on the next launch. */
  cudaGetLastError();
  g_set_error(error, HIGHWATER_ERROR_CUDA, (int) status, "%s: %s", what,
              cudaGetErrorString(status));
  return FALSE;
}

static gboolean
blas_done(cublasStatus_t status, const char *what, GError **error)
{
  if (status == CUBLAS_STATUS_SUCCESS)
    return TRUE;
  g_set_error(error, HIGHWATER_ERROR_CUDA, (int) status, "%s: %s", what,
              cublasGetStatusString(status));
  return FALSE;
}

gboolean
cuda_gpu_choose(CudaGpu *gpu, GError **error)
{
  return cuda_done(cudaSetDevice(gpu->device), "cudaSetDevice", error);
}

/* ---- open, close ---- */

/* What is missing of the memory once there is a context, if nobody else is on the GPU. */
static gboolean
measure_context(CudaGpu *gpu, GError **error)
{
  size_t available, total;
  if (!cuda_done(cudaFree(NULL), "CUDA", error) ||
      !cuda_done(cudaMemGetInfo(&available, &total), "cudaMemGetInfo", error))
    return FALSE;
  gpu->context_bytes = (gint64) (total - available);
  return TRUE;
}

gboolean
cuda_gpu_open(CudaGpu *gpu, int device, GError **error)
{
  gpu->device = device;
  gpu->groups = g_array_new(FALSE, FALSE, sizeof(CudaGroup));
  int least, greatest;
  /* Traffic and collectives are on the stream that goes first, as PyTorch's NCCL streams may. */
  return cuda_gpu_choose(gpu, error) && measure_context(gpu, error) &&
         cuda_done(cudaDeviceGetStreamPriorityRange(&least, &greatest), "priorities", error) &&
         cuda_done(cudaStreamCreateWithPriority(&gpu->stream, cudaStreamNonBlocking, least),
                   "cudaStreamCreate", error) &&
         cuda_done(cudaStreamCreateWithPriority(&gpu->second, cudaStreamNonBlocking, greatest),
                   "cudaStreamCreate", error) &&
         cuda_done(cudaEventCreateWithFlags(&gpu->fork, cudaEventDisableTiming), "cudaEventCreate",
                   error) &&
         cuda_done(cudaMalloc((void **) &gpu->word, sizeof(int)), "cudaMalloc", error) &&
         blas_done(cublasCreate(&gpu->blas), "cublasCreate", error) &&
         blas_done(cublasSetStream(gpu->blas, gpu->stream), "cublasSetStream", error);
}

static void
free_events(CudaGpu *gpu)
{
  for (int i = 0; i < gpu->events; i++) {
    cudaEventDestroy(gpu->begin[i]);
    cudaEventDestroy(gpu->end[i]);
  }
  g_clear_pointer(&gpu->begin, g_free);
  g_clear_pointer(&gpu->end, g_free);
  gpu->events = 0;
}

void
cuda_gpu_close(CudaGpu *gpu)
{
  if (gpu->groups == NULL)
    return;
  cudaSetDevice(gpu->device);
  cudaDeviceSynchronize();
  cuda_collective_close(gpu);
  g_array_unref(gpu->groups);
  free_events(gpu);
  for (int i = 0; i < BUFFER_COUNT; i++)
    cudaFree(gpu->buffer[i].bytes);
  if (gpu->pinned.bytes != NULL)
    cudaFreeHost(gpu->pinned.bytes);
  cudaFree(gpu->word);
  if (gpu->blas != NULL)
    cublasDestroy(gpu->blas);
  if (gpu->fork != NULL)
    cudaEventDestroy(gpu->fork);
  if (gpu->second != NULL)
    cudaStreamDestroy(gpu->second);
  if (gpu->stream != NULL)
    cudaStreamDestroy(gpu->stream);
}

static int
attribute(const CudaGpu *gpu, enum cudaDeviceAttr what)
{
  int value = 0;
  return cudaDeviceGetAttribute(&value, what, gpu->device) == cudaSuccess ? value : 0;
}

static void
write_version(char text[PROBE_TEXT], int version)
{
  g_snprintf(text, PROBE_TEXT, "%d.%d", version / 1000, version % 1000 / 10);
}

void
cuda_gpu_describe(CudaGpu *gpu, ProbeFacts *facts)
{
  struct cudaDeviceProp properties;
  int version;
  if (cudaGetDeviceProperties(&properties, gpu->device) == cudaSuccess) {
    g_strlcpy(facts->device, properties.name, PROBE_TEXT);
    facts->memory_bytes = (gint64) properties.totalGlobalMem;
    facts->compute_capability = 10 * properties.major + properties.minor;
  }
  if (cudaDriverGetVersion(&version) == cudaSuccess)
    write_version(facts->driver, version);
  if (cudaRuntimeGetVersion(&version) == cudaSuccess)
    write_version(facts->runtime, version);
  facts->sms = attribute(gpu, cudaDevAttrMultiProcessorCount);
  facts->max_threads_per_sm = attribute(gpu, cudaDevAttrMaxThreadsPerMultiProcessor);
  facts->cache_bytes = attribute(gpu, cudaDevAttrL2CacheSize);
  facts->context_bytes = gpu->context_bytes;
}

/* ---- buffers ---- */

static gboolean
grow(CudaGpu *gpu, int which, gsize size, GError **error)
{
  CudaBuffer *buffer = &gpu->buffer[which];
  if (size <= buffer->size)
    return TRUE;
  cudaFree(buffer->bytes);
  *buffer = (CudaBuffer){0};
  /* Whole words for the filler. */
  size = (size + 255) & ~(gsize) 255;
  if (!cuda_done(cudaMalloc(&buffer->bytes, size), "cudaMalloc", error))
    return FALSE;
  buffer->size = size;
  return cuda_done(probe_kernel_fill(buffer->bytes, size, (guint32) which + 1, gpu->stream), "fill",
                   error);
}

static gboolean
grow_pinned(CudaGpu *gpu, gsize size, GError **error)
{
  if (size <= gpu->pinned.size)
    return TRUE;
  if (gpu->pinned.bytes != NULL)
    cudaFreeHost(gpu->pinned.bytes);
  gpu->pinned = (CudaBuffer){0};
  if (!cuda_done(cudaHostAlloc(&gpu->pinned.bytes, size, cudaHostAllocDefault), "cudaHostAlloc",
                 error))
    return FALSE;
  gpu->pinned.size = size;
  memset(gpu->pinned.bytes, 1, size);
  return TRUE;
}

static gboolean
make_events(CudaGpu *gpu, int count, GError **error)
{
  if (count <= gpu->events)
    return TRUE;
  gpu->begin = g_renew(cudaEvent_t, gpu->begin, count);
  gpu->end = g_renew(cudaEvent_t, gpu->end, count);
  for (; gpu->events < count; gpu->events++) {
    if (!cuda_done(cudaEventCreate(&gpu->begin[gpu->events]), "cudaEventCreate", error))
      return FALSE;
    if (!cuda_done(cudaEventCreate(&gpu->end[gpu->events]), "cudaEventCreate", error)) {
      cudaEventDestroy(gpu->begin[gpu->events]);
      return FALSE;
    }
  }
  return TRUE;
}

/* Element size of the types that products are measured in. */
static gsize
element_bytes(const Experiment *e)
{
  return e->dtype == DTYPE_FP32 ? 4 : 2;
}

/* Bytes of each buffer that the experiment's own work needs. */
static void
sizes_of(const Experiment *e, gsize sizes[BUFFER_COUNT])
{
  gsize bytes = (gsize) e->bytes, element = element_bytes(e);
  switch ((ExperimentKind) e->kind) {
  case EXPERIMENT_GEMM:
    sizes[BUFFER_SOURCE] = element * (gsize) (e->m * e->k);
    sizes[BUFFER_OTHER] = element * (gsize) (e->n * e->k);
    sizes[BUFFER_TARGET] = element * (gsize) (e->m * e->n);
    break;
  case EXPERIMENT_MEMORY:
    sizes[BUFFER_SOURCE] = sizes[BUFFER_TARGET] = bytes / 2;
    break;
  case EXPERIMENT_COPY_TO_DEVICE:
  case EXPERIMENT_COPY_TO_HOST:
    sizes[BUFFER_SOURCE] = bytes;
    break;
  case EXPERIMENT_COLLECTIVE:
    sizes[BUFFER_SOURCE] = sizes[BUFFER_TARGET] = (gsize) e->call.bytes;
    break;
  default:
    break;
  }
}

#define TRAFFIC_BYTES ((gsize) 1 << 30)
#define LEAST_CACHE_BYTES ((gsize) 256 << 20)

gboolean
cuda_gpu_prepare(CudaGpu *gpu, const Experiment *e, int iterations, GError **error)
{
  gsize sizes[BUFFER_COUNT] = {0};
  sizes_of(e, sizes);
  if (e->beside == BESIDE_COLLECTIVE)
    sizes[BUFFER_SECOND_SOURCE] = sizes[BUFFER_SECOND_TARGET] = (gsize) e->second.bytes;
  if (e->beside == BESIDE_TRAFFIC)
    sizes[BUFFER_TRAFFIC] = TRAFFIC_BYTES;
  if (e->cold)
    sizes[BUFFER_CACHE] =
        MAX(2 * (gsize) attribute(gpu, cudaDevAttrL2CacheSize), LEAST_CACHE_BYTES);
  if (!cuda_gpu_choose(gpu, error) || !make_events(gpu, iterations, error))
    return FALSE;
  for (int i = 0; i < BUFFER_COUNT; i++)
    if (!grow(gpu, i, sizes[i], error))
      return FALSE;
  gboolean copies = e->kind == EXPERIMENT_COPY_TO_DEVICE || e->kind == EXPERIMENT_COPY_TO_HOST;
  return !copies || grow_pinned(gpu, (gsize) e->bytes, error);
}

/* ---- work ---- */

/* Row-major C (m x n) = A (m x k) B (n x k)^T, which column-major cuBLAS sees as C^T = B A^T with
 * the first operand transposed: as torch.nn.functional.linear calls it. */
gboolean
cuda_gpu_multiply(CudaGpu *gpu, const Experiment *e, GError **error)
{
  const float one = 1, zero = 0;
  cudaDataType_t type = e->dtype == DTYPE_FP32   ? CUDA_R_32F
                        : e->dtype == DTYPE_FP16 ? CUDA_R_16F
                                                 : CUDA_R_16BF;
  int m = (int) e->m, n = (int) e->n, k = (int) e->k;
  return cuda_gpu_choose(gpu, error) &&
         blas_done(cublasGemmEx(gpu->blas, CUBLAS_OP_T, CUBLAS_OP_N, n, m, k, &one,
                                gpu->buffer[BUFFER_OTHER].bytes, type, k,
                                gpu->buffer[BUFFER_SOURCE].bytes, type, k, &zero,
                                gpu->buffer[BUFFER_TARGET].bytes, type, n, CUBLAS_COMPUTE_32F,
                                CUBLAS_GEMM_DEFAULT),
                   "cublasGemmEx", error);
}

gboolean
cuda_gpu_overwrite_cache(CudaGpu *gpu, GError **error)
{
  const CudaBuffer *cache = &gpu->buffer[BUFFER_CACHE];
  return cuda_gpu_choose(gpu, error) &&
         cuda_done(cudaMemsetAsync(cache->bytes, 0, cache->size, gpu->stream), "cudaMemsetAsync",
                   error);
}

gboolean
cuda_gpu_let_second_follow(CudaGpu *gpu, GError **error)
{
  return cuda_gpu_choose(gpu, error) &&
         cuda_done(cudaEventRecord(gpu->fork, gpu->stream), "cudaEventRecord", error) &&
         cuda_done(cudaStreamWaitEvent(gpu->second, gpu->fork, 0), "cudaStreamWaitEvent", error);
}

gboolean
cuda_gpu_mark(CudaGpu *gpu, int iteration, gboolean end, GError **error)
{
  cudaEvent_t event = end ? gpu->end[iteration] : gpu->begin[iteration];
  return cuda_gpu_choose(gpu, error) &&
         cuda_done(cudaEventRecord(event, gpu->stream), "cudaEventRecord", error);
}

gboolean
cuda_gpu_wait(CudaGpu *gpu, int iteration, GError **error)
{
  return cuda_done(cudaEventSynchronize(gpu->end[iteration]), "cudaEventSynchronize", error);
}

gboolean
cuda_gpu_read(CudaGpu *gpu, int iteration, double *ns, GError **error)
{
  float ms;
  if (!cuda_done(cudaEventElapsedTime(&ms, gpu->begin[iteration], gpu->end[iteration]),
                 "cudaEventElapsedTime", error))
    return FALSE;
  *ns = (double) ms * 1e6;
  return TRUE;
}
