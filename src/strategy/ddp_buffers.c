/* ddp_buffers.c - buffers of one dtype are joined to buckets, broadcast, and copied back one by one
 * (torch/csrc/distributed/c10d/comm.cpp, broadcast_coalesced). */
#include "strategy/ddp_buffers.h"

#include "base/units.h"

#define BUCKET_BYTES (250 * MIB) /* broadcast_bucket_size */
#define IN_FLIGHT 2              /* max_in_flight */

/* A bucket on its way. */
typedef struct {
  StorageId flat; /* the only member's own, or the buffers one after the other */
  gint32 sent;    /* event */
} Flight;

static void
bucket_clear(gpointer data)
{
  g_array_unref(((BufferBucket *) data)->members);
}

/* The bucket of that dtype which is not full yet (compute_bucket_assignment_by_size of
 * reducer.cpp). */
static BufferBucket *
open_bucket(GArray *buckets, DType dtype)
{
  for (guint i = 0; i < buckets->len; i++) {
    BufferBucket *bucket = &g_array_index(buckets, BufferBucket, i);
    if (bucket->dtype == dtype && bucket->elements * dtype_size(dtype) < BUCKET_BYTES)
      return bucket;
  }
  BufferBucket empty = {.dtype = dtype, .members = g_array_new(FALSE, FALSE, sizeof(int))};
  g_array_append_val(buckets, empty);
  return &g_array_index(buckets, BufferBucket, buckets->len - 1);
}

GArray *
ddp_buffer_buckets(const Network *network)
{
  GArray *buckets = g_array_new(FALSE, FALSE, sizeof(BufferBucket));
  g_array_set_clear_func(buckets, bucket_clear);
  for (int i = 0; i < (int) network->buffers->len; i++) {
    const Buffer *buffer = &g_array_index(network->buffers, Buffer, (guint) i);
    if (buffer->attribute)
      continue;
    BufferBucket *bucket = open_bucket(buckets, buffer->dtype);
    bucket->elements += buffer->elements;
    g_array_append_val(bucket->members, i);
  }
  return buckets;
}

gint64
ddp_buffers_elements(const GArray *buckets)
{
  gint64 elements = 0;
  for (guint i = 0; i < buckets->len; i++)
    elements += g_array_index(buckets, BufferBucket, i).elements;
  return elements;
}

static void
member_operand(StrategyContext *x, const BufferBucket *bucket, guint i, Role role)
{
  int buffer = g_array_index(bucket->members, int, i);
  program_builder_operand(x->builder,
                          live_storage_tensor(x->live, x->buffers[buffer], bucket->dtype), role);
}

/* What lies flat; a buffer alone is sent as it is. */
static StorageId
flatten(StrategyContext *x, const BufferBucket *bucket)
{
  if (bucket->members->len == 1)
    return x->buffers[g_array_index(bucket->members, int, 0)];
  gint64 bytes = bucket->elements * dtype_size(bucket->dtype);
  StoragePurpose purpose = {CATEGORY_TEMPORARY, -1,
                            program_builder_name(x->builder, "flat buffers")};
  StorageId flat = live_storage_alloc(x->live, bytes, STREAM_COMPUTE, purpose);
  for (guint i = 0; i < bucket->members->len; i++)
    member_operand(x, bucket, i, ROLE_READ);
  program_builder_operand(x->builder, live_storage_tensor(x->live, flat, bucket->dtype),
                          ROLE_WRITE);
  strategy_launch(x, STREAM_COMPUTE, "cat", 2.0 * (double) bytes);
  return flat;
}

static Flight
send(StrategyContext *x, const BufferBucket *bucket, gint32 communicator)
{
  ProgramBuilder *b = x->builder;
  Flight flight = {.flat = flatten(x, bucket)};
  gint32 filled = program_builder_event(b);
  flight.sent = program_builder_event(b);
  program_builder_record(b, STREAM_COMPUTE, filled);
  program_builder_wait(b, STREAM_ALL_REDUCE, filled);
  program_builder_host_work(b, HOST_WORK_COLLECTIVE_CALL, 1);
  program_builder_operand(b, live_storage_tensor(x->live, flight.flat, bucket->dtype),
                          x->global_rank == 0 ? ROLE_READ : ROLE_WRITE);
  program_builder_collective(b, STREAM_ALL_REDUCE,
                             &(Collective){.kind = COLLECTIVE_BROADCAST,
                                           .dtype = (guint8) bucket->dtype,
                                           .communicator = communicator,
                                           .name = program_builder_name(b, "buffers"),
                                           .bytes = bucket->elements * dtype_size(bucket->dtype)});
  program_builder_record(b, STREAM_ALL_REDUCE, flight.sent);
  return flight;
}

/* Copied back into the buffers, one by one. */
static void
finish(StrategyContext *x, const BufferBucket *bucket, const Flight *flight)
{
  program_builder_wait(x->builder, STREAM_COMPUTE, flight->sent);
  if (bucket->members->len == 1)
    return;
  gint64 offset = 0;
  for (guint i = 0; i < bucket->members->len; i++) {
    int index = g_array_index(bucket->members, int, i);
    gint64 n = g_array_index(x->network->buffers, Buffer, (guint) index).elements;
    program_builder_operand(
        x->builder, program_builder_flat_tensor(x->builder, flight->flat, offset, n, bucket->dtype),
        ROLE_READ);
    member_operand(x, bucket, i, ROLE_WRITE);
    strategy_launch(x, STREAM_COMPUTE, "copy", 2.0 * (double) (n * dtype_size(bucket->dtype)));
    offset += n;
  }
  live_storage_drop(x->live, flight->flat);
}

void
ddp_buffers_broadcast(StrategyContext *x, const GArray *buckets, gint32 communicator)
{
  g_autofree Flight *flights = g_new(Flight, MAX(buckets->len, 1));
  guint done = 0;
  for (guint i = 0; i < buckets->len; i++) {
    flights[i] = send(x, &g_array_index(buckets, BufferBucket, i), communicator);
    for (; i + 1 - done >= IN_FLIGHT; done++)
      finish(x, &g_array_index(buckets, BufferBucket, done), &flights[done]);
  }
  for (; done < buckets->len; done++)
    finish(x, &g_array_index(buckets, BufferBucket, done), &flights[done]);
}
