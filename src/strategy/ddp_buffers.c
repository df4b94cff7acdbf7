/* ddp_buffers.c - DDP's broadcast of the model's buffers (torch/csrc/distributed/c10d/comm.cpp,
 * broadcast_coalesced). */
#include "strategy/ddp_buffers.h"

#include "base/units.h"

#define BUCKET_BYTES (250 * MIB) /* broadcast_bucket_size */
#define IN_FLIGHT 2              /* max_in_flight */

/* The bucket of that dtype which is not full yet. */
static BufferBucket *
open_bucket(GArray *buckets, DType dtype)
{
  for (guint i = 0; i < buckets->len; i++) {
    BufferBucket *bucket = &g_array_index(buckets, BufferBucket, i);
    if (bucket->dtype == dtype && bucket->elements * dtype_size(dtype) < BUCKET_BYTES)
      return bucket;
  }
  BufferBucket empty = {.dtype = dtype};
  g_array_append_val(buckets, empty);
  return &g_array_index(buckets, BufferBucket, buckets->len - 1);
}

GArray *
ddp_buffer_buckets(const Network *network)
{
  GArray *buckets = g_array_new(FALSE, FALSE, sizeof(BufferBucket));
  for (guint i = 0; i < network->buffers->len; i++) {
    const Buffer *buffer = &g_array_index(network->buffers, Buffer, i);
    if (buffer->attribute)
      continue;
    BufferBucket *bucket = open_bucket(buckets, buffer->dtype);
    bucket->elements += buffer->elements;
    bucket->buffers++;
  }
  return buckets;
}

/* What lies flat; a buffer alone is sent as it is. */
static StorageId
flatten(StrategyContext *x, const BufferBucket *bucket)
{
  if (bucket->buffers == 1)
    return NO_STORAGE;
  gint64 bytes = bucket->elements * dtype_size(bucket->dtype);
  StoragePurpose purpose = {CATEGORY_TEMPORARY, -1,
                            program_builder_name(x->builder, "flat buffers")};
  StorageId flat = live_storage_alloc(x->live, bytes, STREAM_COMPUTE, purpose);
  program_builder_operand(x->builder, live_storage_tensor(x->live, flat, bucket->dtype),
                          ROLE_WRITE);
  strategy_launch(x, STREAM_COMPUTE, "flatten buffers", 2.0 * (double) bytes);
  return flat;
}

static gint32
send(StrategyContext *x, const BufferBucket *bucket, StorageId flat, gint32 communicator)
{
  ProgramBuilder *b = x->builder;
  gint32 filled = program_builder_event(b), sent = program_builder_event(b);
  program_builder_record(b, STREAM_COMPUTE, filled);
  program_builder_wait(b, STREAM_ALL_REDUCE, filled);
  program_builder_host_work(b, HOST_WORK_COLLECTIVE_CALL, 1);
  if (flat != NO_STORAGE)
    program_builder_operand(b, live_storage_tensor(x->live, flat, bucket->dtype),
                            x->global_rank == 0 ? ROLE_READ : ROLE_WRITE);
  program_builder_collective(b, STREAM_ALL_REDUCE,
                             &(Collective){.kind = COLLECTIVE_BROADCAST,
                                           .dtype = (guint8) bucket->dtype,
                                           .communicator = communicator,
                                           .name = program_builder_name(b, "buffers"),
                                           .bytes = bucket->elements * dtype_size(bucket->dtype)});
  program_builder_record(b, STREAM_ALL_REDUCE, sent);
  return sent;
}

/* Copied back into the buffers, one by one. */
static void
finish(StrategyContext *x, const BufferBucket *bucket, StorageId flat, gint32 sent)
{
  program_builder_wait(x->builder, STREAM_COMPUTE, sent);
  if (flat == NO_STORAGE)
    return;
  double bytes = (double) (bucket->elements * dtype_size(bucket->dtype)) / bucket->buffers;
  for (int i = 0; i < bucket->buffers; i++)
    strategy_launch(x, STREAM_COMPUTE, "copy", 2 * bytes);
  live_storage_drop(x->live, flat);
}

void
ddp_broadcast_buffers(StrategyContext *x, const GArray *buckets, gint32 communicator)
{
  g_autofree StorageId *flat = g_new(StorageId, MAX(buckets->len, 1));
  g_autofree gint32 *sent = g_new(gint32, MAX(buckets->len, 1));
  guint done = 0;
  for (guint i = 0; i < buckets->len; i++) {
    const BufferBucket *bucket = &g_array_index(buckets, BufferBucket, i);
    flat[i] = flatten(x, bucket);
    sent[i] = send(x, bucket, flat[i], communicator);
    for (; i + 1 - done >= IN_FLIGHT; done++)
      finish(x, &g_array_index(buckets, BufferBucket, done), flat[done], sent[done]);
  }
  for (; done < buckets->len; done++)
    finish(x, &g_array_index(buckets, BufferBucket, done), flat[done], sent[done]);
}
