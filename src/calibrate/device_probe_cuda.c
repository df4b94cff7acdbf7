/* device_probe_cuda.c - the GPUs of this process as a probe: CUDA events around cuBLAS, copies, our
 * own kernels and NCCL.  All GPUs do the same at the same time; the slowest counts.
 *
 * Built into a shared object of its own, which uses GLib and nothing else of the program. */
#include <cublas_v2.h>
#include <cuda_runtime_api.h>
#include <string.h>
#include <time.h>

#include "base/units.h"
#include "calibrate/cuda_gpu.h"

typedef struct {
  DeviceProbe probe;
  CudaGpu *gpus;
  int count;        /* of this process */
  int first, ranks; /* in the job */
  int *stop;        /* page-locked: ends the traffic kernels */
} CudaProbe;

/* ---- iterations ---- */

/* Enqueues one iteration of an experiment on every GPU. */
typedef gboolean (*Enqueue)(CudaProbe *probe, const Experiment *e, GError **error);

static gboolean
enqueue_gemm(CudaProbe *probe, const Experiment *e, GError **error)
{
  for (int i = 0; i < probe->count; i++)
    if (!cuda_gpu_multiply(&probe->gpus[i], e, error))
      return FALSE;
  return TRUE;
}

static gboolean
enqueue_memory(CudaProbe *probe, const Experiment *e, GError **error)
{
  gsize half = (gsize) e->bytes / 2 & ~(gsize) 15;
  for (int i = 0; i < probe->count; i++) {
    CudaGpu *gpu = &probe->gpus[i];
    if (!cuda_gpu_choose(gpu, error) ||
        !cuda_done(probe_kernel_add(gpu->buffer[BUFFER_TARGET].bytes,
                                    gpu->buffer[BUFFER_SOURCE].bytes, half, gpu->stream),
                   "add", error))
      return FALSE;
  }
  return TRUE;
}

static gboolean
enqueue_copy(CudaProbe *probe, const Experiment *e, GError **error)
{
  gboolean out = e->kind == EXPERIMENT_COPY_TO_HOST;
  for (int i = 0; i < probe->count; i++) {
    CudaGpu *gpu = &probe->gpus[i];
    void *device = gpu->buffer[BUFFER_SOURCE].bytes, *host = gpu->pinned.bytes;
    if (!cuda_gpu_choose(gpu, error) ||
        !cuda_done(cudaMemcpyAsync(out ? host : device, out ? device : host, (gsize) e->bytes,
                                   out ? cudaMemcpyDeviceToHost : cudaMemcpyHostToDevice,
                                   gpu->stream),
                   "cudaMemcpyAsync", error))
      return FALSE;
  }
  return TRUE;
}

/* Host times of launches, and device times of them, are taken over so many. */
enum { LAUNCHES = 200 };

static gboolean
enqueue_launches(CudaProbe *probe, const Experiment *e G_GNUC_UNUSED, GError **error)
{
  for (int i = 0; i < probe->count; i++) {
    if (!cuda_gpu_choose(&probe->gpus[i], error))
      return FALSE;
    for (int k = 0; k < LAUNCHES; k++)
      if (!cuda_done(probe_kernel_empty(probe->gpus[i].stream), "empty", error))
        return FALSE;
  }
  return TRUE;
}

static gboolean
call_all(CudaProbe *probe, const CollectiveCall *call, gboolean second, GError **error)
{
  CudaCollective all = {probe->gpus, probe->count, probe->first, probe->ranks, second};
  return cuda_collective_run(&all, call, error);
}

static gboolean
enqueue_collective(CudaProbe *probe, const Experiment *e, GError **error)
{
  return call_all(probe, &e->call, FALSE, error);
}

static const Enqueue enqueue[EXPERIMENT_KIND_COUNT] = {
    [EXPERIMENT_GEMM] = enqueue_gemm,         [EXPERIMENT_MEMORY] = enqueue_memory,
    [EXPERIMENT_KERNEL] = enqueue_launches,   [EXPERIMENT_COPY_TO_DEVICE] = enqueue_copy,
    [EXPERIMENT_COPY_TO_HOST] = enqueue_copy, [EXPERIMENT_COLLECTIVE] = enqueue_collective,
};

static gboolean
synchronize(CudaProbe *probe, GError **error)
{
  for (int i = 0; i < probe->count; i++)
    if (!cuda_gpu_choose(&probe->gpus[i], error) ||
        !cuda_done(cudaDeviceSynchronize(), "cudaDeviceSynchronize", error))
      return FALSE;
  return TRUE;
}

static gboolean
prepare(CudaProbe *probe, const Experiment *e, int count, GError **error)
{
  for (int i = 0; i < probe->count; i++)
    if (!cuda_gpu_prepare(&probe->gpus[i], e, count, error))
      return FALSE;
  return synchronize(probe, error);
}

/* ---- all ranks together ---- */

/* The largest of what the job's processes say. */
static gboolean
agree(CudaProbe *probe, int *value, GError **error)
{
  CudaCollective all = {probe->gpus, probe->count, probe->first, probe->ranks, FALSE};
  return cuda_collective_largest(&all, value, error);
}

/* Where one of the job's processes cannot, none begins: the others would wait for it for ever. */
static gboolean
prepare_together(CudaProbe *probe, const Experiment *e, int count, GError **error)
{
  gboolean together = e->kind == EXPERIMENT_COLLECTIVE || e->beside == BESIDE_COLLECTIVE;
  gboolean ready = prepare(probe, e, count, error);
  int failed = !ready;
  if (!together || probe->gpus[0].world == NULL)
    return ready;
  if (!agree(probe, &failed, ready ? error : NULL))
    return FALSE;
  if (ready && failed)
    g_set_error(error, HIGHWATER_ERROR_CUDA, 0, "another process of the job is not ready");
  return !failed;
}

/* ---- what runs beside ---- */

static gboolean
start_traffic(CudaProbe *probe, const Experiment *e, GError **error)
{
  *probe->stop = 0;
  for (int i = 0; i < probe->count; i++) {
    CudaGpu *gpu = &probe->gpus[i];
    const CudaBuffer *buffer = &gpu->buffer[BUFFER_TRAFFIC];
    gsize half = buffer->size / 2;
    /* Some ten seconds, should nobody stop it. */
    if (!cuda_gpu_choose(gpu, error) ||
        !cuda_done(probe_kernel_traffic(buffer->bytes, (char *) buffer->bytes + half, half,
                                        e->blocks, probe->stop, 20000000000LL, gpu->second),
                   "traffic", error))
      return FALSE;
  }
  return TRUE;
}

/* The other collective starts with the iteration, as often as it takes to outlast it. */
static gboolean
start_second(CudaProbe *probe, const Experiment *e, int repeats, GError **error)
{
  for (int i = 0; i < probe->count; i++)
    if (!cuda_gpu_let_second_follow(&probe->gpus[i], error))
      return FALSE;
  for (int k = 0; k < repeats; k++)
    if (!call_all(probe, &e->second, TRUE, error))
      return FALSE;
  return TRUE;
}

/* ---- series ---- */

static gboolean
mark(CudaProbe *probe, int iteration, gboolean end, GError **error)
{
  for (int i = 0; i < probe->count; i++)
    if (!cuda_gpu_mark(&probe->gpus[i], iteration, end, error))
      return FALSE;
  return TRUE;
}

static gboolean
cool(CudaProbe *probe, const Experiment *e, GError **error)
{
  for (int i = 0; e->cold && i < probe->count; i++)
    if (!cuda_gpu_overwrite_cache(&probe->gpus[i], error))
      return FALSE;
  return TRUE;
}

static gboolean
run_iteration(CudaProbe *probe, const Experiment *e, int iteration, int repeats, GError **error)
{
  return cool(probe, e, error) && (repeats == 0 || start_second(probe, e, repeats, error)) &&
         (iteration < 0 || mark(probe, iteration, FALSE, error)) &&
         enqueue[e->kind](probe, e, error) &&
         (iteration < 0 || mark(probe, iteration, TRUE, error));
}

static gboolean
read_series(CudaProbe *probe, int count, double *ns, GError **error)
{
  for (int k = 0; k < count; k++) {
    ns[k] = 0;
    for (int i = 0; i < probe->count; i++) {
      double one;
      if (!cuda_gpu_read(&probe->gpus[i], k, &one, error))
        return FALSE;
      ns[k] = MAX(ns[k], one);
    }
  }
  return TRUE;
}

/* Runs warmup + count iterations; with traffic, beside it. */
static gboolean
run_series(CudaProbe *probe, const Experiment *e, int warmup, int count, int repeats, double *ns,
           GError **error)
{
  if (e->beside == BESIDE_TRAFFIC && !start_traffic(probe, e, error))
    return FALSE;
  gboolean done = TRUE;
  for (int k = -warmup; k < count && done; k++)
    done = run_iteration(probe, e, MAX(k, -1), repeats, error);
  for (int i = 0; i < probe->count && done; i++)
    done = cuda_gpu_wait(&probe->gpus[i], count - 1, error);
  *probe->stop = 1;
  return synchronize(probe, done ? error : NULL) && done && read_series(probe, count, ns, error);
}

/* How often the second collective fits into an iteration, and once more: as the rank says that
 * needs most, since all have to call it equally often. */
static gboolean
count_repeats(CudaProbe *probe, const Experiment *e, int *repeats, GError **error)
{
  Experiment alone = *e, other = {.kind = EXPERIMENT_COLLECTIVE, .call = e->second};
  alone.beside = BESIDE_NOTHING;
  double mine, theirs;
  if (!prepare_together(probe, &other, 1, error) ||
      !run_series(probe, &alone, 2, 1, 0, &mine, error) ||
      !run_series(probe, &other, 2, 1, 0, &theirs, error))
    return FALSE;
  *repeats = (int) CLAMP(2 * mine / MAX(theirs, 1000) + 1, 1, 64);
  return agree(probe, repeats, error);
}

/* ---- host times ---- */

static double
now_ns(void)
{
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double) now.tv_sec * 1e9 + (double) now.tv_nsec;
}

static gboolean
time_launches(CudaProbe *probe, const Experiment *e, double *ns, GError **error)
{
  if (!synchronize(probe, error))
    return FALSE;
  double began = now_ns();
  if (!enqueue_launches(probe, e, error))
    return FALSE;
  *ns = (now_ns() - began) / LAUNCHES / probe->count;
  return synchronize(probe, error);
}

/* One cudaMalloc and its cudaFree on the first GPU. */
static gboolean
time_allocation(CudaProbe *probe, const Experiment *e, double *ns, GError **error)
{
  void *memory = NULL;
  if (!cuda_gpu_choose(&probe->gpus[0], error))
    return FALSE;
  double began = now_ns();
  if (!cuda_done(cudaMalloc(&memory, (gsize) e->bytes), "cudaMalloc", error))
    return FALSE;
  double allocated = now_ns();
  if (!cuda_done(cudaFree(memory), "cudaFree", error))
    return FALSE;
  *ns = e->kind == EXPERIMENT_CUDA_MALLOC ? allocated - began : now_ns() - allocated;
  return TRUE;
}

static gboolean
time_on_host(CudaProbe *probe, const Experiment *e, int warmup, int count, double *ns,
             GError **error)
{
  for (int k = -warmup; k < count; k++) {
    double *place = &ns[MAX(k, 0)];
    if (!(e->kind == EXPERIMENT_LAUNCH ? time_launches(probe, e, place, error)
                                       : time_allocation(probe, e, place, error)))
      return FALSE;
  }
  return TRUE;
}

/* ---- the probe ---- */

static gboolean
take(CudaProbe *probe, const Experiment *e, int warmup, int count, double *ns, GError **error)
{
  if (enqueue[e->kind] == NULL)
    return time_on_host(probe, e, warmup, count, ns, error);
  int repeats = 0;
  if (!prepare_together(probe, e, count, error) ||
      (e->beside == BESIDE_COLLECTIVE && !count_repeats(probe, e, &repeats, error)))
    return FALSE;
  if (!run_series(probe, e, warmup, count, repeats, ns, error))
    return FALSE;
  for (int k = 0; e->kind == EXPERIMENT_KERNEL && k < count; k++)
    ns[k] /= LAUNCHES;
  return TRUE;
}

static gboolean
sample(DeviceProbe *base, const Experiment *e, int warmup, int count, GArray *samples,
       GError **error)
{
  g_autofree double *ns = g_new0(double, count);
  if (!take((CudaProbe *) base, e, warmup, count, ns, error))
    return FALSE;
  g_array_append_vals(samples, ns, (guint) count);
  return TRUE;
}

static void
describe(DeviceProbe *base, ProbeFacts *facts)
{
  CudaProbe *probe = (CudaProbe *) base;
  *facts = (ProbeFacts){.ranks = probe->ranks, .ranks_of_node = probe->count};
  cuda_gpu_describe(&probe->gpus[0], facts);
  if (probe->gpus[0].world != NULL)
    cuda_collective_version(facts->nccl);
}

static char *
output_of(const char *command)
{
  char *text = NULL;
  return g_spawn_command_line_sync(command, &text, NULL, NULL, NULL) ? text : NULL;
}

static char *
conditions(DeviceProbe *base G_GNUC_UNUSED)
{
  g_autofree char *clocks =
      output_of("nvidia-smi --format=csv --query-gpu=index,name,driver_version,clocks.sm,"
                "clocks.mem,power.draw,power.limit,temperature.gpu");
  g_autofree char *links = output_of("nvidia-smi topo -m");
  if (clocks == NULL)
    return NULL;
  return g_strconcat(clocks, links, NULL);
}

static void
close_probe(DeviceProbe *base)
{
  CudaProbe *probe = (CudaProbe *) base;
  for (int i = 0; i < probe->count; i++)
    cuda_gpu_close(&probe->gpus[i]);
  if (probe->stop != NULL)
    cudaFreeHost(probe->stop);
  g_free(probe->gpus);
  g_free(probe);
}

static const DeviceProbeClass cuda_class = {describe, sample, conditions, close_probe};

/* ---- the module ---- */

static gboolean
count_gpus(const ProcessPlace *place, int *gpus, GError **error)
{
  int there = 0;
  if (!cuda_done(cudaGetDeviceCount(&there), "no GPU: cudaGetDeviceCount", error))
    return FALSE;
  if (place->local_size > 1 && place->local_rank >= there) {
    g_set_error(error, HIGHWATER_ERROR_CUDA, 0,
                "process %d of %d on this node has no GPU: there are %d", place->local_rank,
                place->local_size, there);
    return FALSE;
  }
  *gpus = place->local_size > 1 ? 1 : there;
  return TRUE;
}

static gboolean
open_gpus(CudaProbe *probe, const ProcessPlace *place, const char *id, GError **error)
{
  int device = place->local_size > 1 ? place->local_rank : 0;
  for (int i = 0; i < probe->count; i++)
    if (!cuda_gpu_open(&probe->gpus[i], device + i, error))
      return FALSE;
  if (!cuda_done(cudaHostAlloc((void **) &probe->stop, sizeof(int), cudaHostAllocPortable),
                 "cudaHostAlloc", error))
    return FALSE;
  CudaCollective all = {probe->gpus, probe->count, probe->first, probe->ranks, FALSE};
  return id == NULL || cuda_collective_connect(&all, id, error);
}

static DeviceProbe *
open_probe(const ProcessPlace *place, int first, int ranks, const char id[DEVICE_PROBE_ID_BYTES],
           GError **error)
{
  CudaProbe *probe = g_new0(CudaProbe, 1);
  probe->probe.class = &cuda_class;
  probe->first = first;
  probe->ranks = ranks;
  if (count_gpus(place, &probe->count, error)) {
    probe->gpus = g_new0(CudaGpu, probe->count);
    if (open_gpus(probe, place, id, error))
      return &probe->probe;
  }
  close_probe(&probe->probe);
  return NULL;
}

extern const DeviceProbeModule device_probe_module;
const DeviceProbeModule device_probe_module = {cuda_collective_make_id, count_gpus, open_probe};
