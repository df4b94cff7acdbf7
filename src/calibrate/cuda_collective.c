/* cuda_collective.c - NCCL for the CUDA probe: communicators of groups, and collectives. */
#include <nccl.h>
#include <string.h>

#include "calibrate/cuda_gpu.h"

G_STATIC_ASSERT(sizeof(ncclUniqueId) == DEVICE_PROBE_ID_BYTES);

static gboolean
nccl_done(ncclResult_t status, const char *what, GError **error)
{
  if (status == ncclSuccess)
    return TRUE;
  g_set_error(error, HIGHWATER_ERROR_CUDA, (int) status, "%s: %s", what,
              ncclGetErrorString(status));
  return FALSE;
}

gboolean
cuda_collective_make_id(char id[DEVICE_PROBE_ID_BYTES], GError **error)
{
  return nccl_done(ncclGetUniqueId((ncclUniqueId *) (void *) id), "ncclGetUniqueId", error);
}

void
cuda_collective_version(char text[PROBE_TEXT])
{
  int version;
  if (ncclGetVersion(&version) == ncclSuccess)
    g_snprintf(text, PROBE_TEXT, "%d.%d.%d", version / 10000, version % 10000 / 100, version % 100);
}

/* Calls of one process for several GPUs go between these. */
static gboolean
begin(GError **error)
{
  return nccl_done(ncclGroupStart(), "ncclGroupStart", error);
}

static gboolean
end(gboolean went_well, GError **error)
{
  return nccl_done(ncclGroupEnd(), "ncclGroupEnd", went_well ? error : NULL) && went_well;
}

gboolean
cuda_collective_connect(const CudaCollective *all, const char *id, GError **error)
{
  ncclUniqueId unique;
  memcpy(&unique, id, sizeof(unique));
  if (!begin(error))
    return FALSE;
  gboolean done = TRUE;
  for (int i = 0; i < all->count && done; i++)
    done = cuda_gpu_choose(&all->gpus[i], error) &&
           nccl_done(ncclCommInitRank((ncclComm_t *) &all->gpus[i].world, all->ranks, unique,
                                      all->first + i),
                     "ncclCommInitRank", error);
  return end(done, error);
}

static gboolean
enqueue_largest(const CudaCollective *all, int value, GError **error)
{
  if (!begin(error))
    return FALSE;
  gboolean done = TRUE;
  for (int i = 0; i < all->count && done; i++) {
    CudaGpu *gpu = &all->gpus[i];
    done = cuda_gpu_choose(gpu, error) &&
           cuda_done(cudaMemcpy(gpu->word, &value, sizeof(value), cudaMemcpyHostToDevice),
                     "cudaMemcpy", error) &&
           nccl_done(
               ncclAllReduce(gpu->word, gpu->word, 1, ncclInt32, ncclMax, gpu->world, gpu->stream),
               "ncclAllReduce", error);
  }
  return end(done, error);
}

gboolean
cuda_collective_largest(const CudaCollective *all, int *value, GError **error)
{
  if (all->gpus[0].world == NULL)
    return TRUE;
  if (!enqueue_largest(all, *value, error))
    return FALSE;
  for (int i = 0; i < all->count; i++)
    if (!cuda_gpu_choose(&all->gpus[i], error) ||
        !cuda_done(cudaStreamSynchronize(all->gpus[i].stream), "cudaStreamSynchronize", error))
      return FALSE;
  return cuda_done(cudaMemcpy(value, all->gpus[0].word, sizeof(*value), cudaMemcpyDeviceToHost),
                   "cudaMemcpy", error);
}

/* ---- communicators of groups ---- */

static CudaGroup *
find_group(CudaGpu *gpu, RankGroup group, gboolean second)
{
  for (guint i = 0; i < gpu->groups->len; i++) {
    CudaGroup *known = &g_array_index(gpu->groups, CudaGroup, i);
    if (known->second == second && memcmp(&known->group, &group, sizeof(group)) == 0)
      return known;
  }
  return NULL;
}

/* Groups of `ranks`, `stride` apart, fill blocks of ranks * stride; what is left over is in none.
 */
static int
color_of(RankGroup group, int rank, int ranks)
{
  int block = group.ranks * group.stride;
  if (rank / block >= ranks / block)
    return NCCL_SPLIT_NOCOLOR;
  return rank / block * group.stride + rank % group.stride;
}

/* All ranks of the job split the world at the same time. */
static gboolean
make_groups(const CudaCollective *all, RankGroup group, GError **error)
{
  if (find_group(&all->gpus[0], group, all->second) != NULL)
    return TRUE;
  g_autofree ncclComm_t *made = g_new0(ncclComm_t, all->count);
  if (!begin(error))
    return FALSE;
  gboolean done = TRUE;
  for (int i = 0; i < all->count && done; i++) {
    int rank = all->first + i;
    done = cuda_gpu_choose(&all->gpus[i], error) &&
           nccl_done(ncclCommSplit(all->gpus[i].world, color_of(group, rank, all->ranks), rank,
                                   &made[i], NULL),
                     "ncclCommSplit", error);
  }
  if (!end(done, error))
    return FALSE;
  for (int i = 0; i < all->count; i++) {
    CudaGroup one = {group, all->second, made[i]};
    g_array_append_val(all->gpus[i].groups, one);
  }
  return TRUE;
}

void
cuda_collective_close(CudaGpu *gpu)
{
  for (guint i = 0; i < gpu->groups->len; i++) {
    CudaGroup *group = &g_array_index(gpu->groups, CudaGroup, i);
    if (group->communicator != NULL)
      ncclCommDestroy(group->communicator);
  }
  if (gpu->world != NULL)
    ncclCommDestroy(gpu->world);
}

/* ---- collectives ---- */

/* Everything in 16-bit words. */
typedef struct {
  char *source, *target;
  size_t count; /* of the full buffer */
  size_t shard;
  int rank;
  gboolean in_place;
  ncclComm_t communicator;
  cudaStream_t stream;
} Call;

static ncclResult_t
all_gather(const Call *c)
{
  const char *source = c->in_place ? c->target + (size_t) c->rank * c->shard * 2 : c->source;
  return ncclAllGather(source, c->target, c->shard, ncclBfloat16, c->communicator, c->stream);
}

static ncclResult_t
reduce_scatter(const Call *c)
{
  char *target = c->in_place ? c->source + (size_t) c->rank * c->shard * 2 : c->target;
  return ncclReduceScatter(c->source, target, c->shard, ncclBfloat16, ncclSum, c->communicator,
                           c->stream);
}

static ncclResult_t
all_reduce(const Call *c)
{
  return ncclAllReduce(c->in_place ? c->target : c->source, c->target, c->count, ncclBfloat16,
                       ncclSum, c->communicator, c->stream);
}

static ncclResult_t
broadcast(const Call *c)
{
  return ncclBroadcast(c->in_place ? c->target : c->source, c->target, c->count, ncclBfloat16, 0,
                       c->communicator, c->stream);
}

static ncclResult_t
reduce(const Call *c)
{
  return ncclReduce(c->in_place ? c->target : c->source, c->target, c->count, ncclBfloat16, ncclSum,
                    0, c->communicator, c->stream);
}

static ncclResult_t (*const calls[COLLECTIVE_KIND_COUNT])(const Call *) = {
    [COLLECTIVE_ALL_GATHER] = all_gather, [COLLECTIVE_REDUCE_SCATTER] = reduce_scatter,
    [COLLECTIVE_ALL_REDUCE] = all_reduce, [COLLECTIVE_BROADCAST] = broadcast,
    [COLLECTIVE_REDUCE] = reduce,
};

static gboolean
call_one(CudaGpu *gpu, const CollectiveCall *call, gboolean second, GError **error)
{
  ncclComm_t communicator = find_group(gpu, call->group, second)->communicator;
  if (communicator == NULL)
    return TRUE;
  Call c = {
      .source = gpu->buffer[second ? BUFFER_SECOND_SOURCE : BUFFER_SOURCE].bytes,
      .target = gpu->buffer[second ? BUFFER_SECOND_TARGET : BUFFER_TARGET].bytes,
      .count = (size_t) call->bytes / 2,
      .shard = (size_t) (call->bytes / call->group.ranks) / 2,
      .in_place = call->in_place,
      .communicator = communicator,
      .stream = second ? gpu->second : gpu->stream,
  };
  return cuda_gpu_choose(gpu, error) &&
         nccl_done(ncclCommUserRank(communicator, &c.rank), "ncclCommUserRank", error) &&
         nccl_done(calls[call->collective](&c), "collective", error);
}

gboolean
cuda_collective_run(const CudaCollective *all, const CollectiveCall *call, GError **error)
{
  if (all->gpus[0].world == NULL) {
    g_set_error(error, HIGHWATER_ERROR_CUDA, 0, "one GPU alone has nobody to talk to");
    return FALSE;
  }
  if (calls[call->collective] == NULL) {
    g_set_error(error, HIGHWATER_ERROR_CUDA, 0, "this collective is not measured");
    return FALSE;
  }
  if (!make_groups(all, call->group, error) || !begin(error))
    return FALSE;
  gboolean done = TRUE;
  for (int i = 0; i < all->count && done; i++)
    done = call_one(&all->gpus[i], call, all->second, error);
  return end(done, error);
}
