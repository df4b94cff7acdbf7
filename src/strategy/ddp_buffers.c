/* ddp_buffers.c - buffers of one dtype are joined to buckets, broadcast, and copied back
 * (torch/csrc/distributed/c10d/comm.cpp, broadcast_coalesced). */
#include "strategy/ddp_buffers.h"

enum { IN_FLIGHT = 2, BUCKET_MIB = 250 };

/* Buffers that are sent together. */
typedef struct {
  DType dtype;
  gint64 bytes;
  GArray *members; /* int: buffers */
  StorageId flat;  /* the only member's own, or the buffers one after the other */
  gint32 sent;     /* event */
} Bucket;

static void
bucket_clear(gpointer data)
{
  g_array_unref(((Bucket *) data)->members);
}

static const Buffer *
buffer_at(const StrategyContext *x, int i)
{
  return &g_array_index(x->network->buffers, Buffer, (guint) i);
}

/* The bucket that is still open for the dtype; a full one is closed
 * (compute_bucket_assignment_by_size of reducer.cpp). */
static Bucket *
open_bucket(GArray *buckets, DType dtype)
{
  for (guint i = buckets->len; i > 0; i--) {
    Bucket *b = &g_array_index(buckets, Bucket, i - 1);
    if (b->dtype == dtype && b->bytes < (gint64) BUCKET_MIB << 20)
      return b;
  }
  Bucket new = {.dtype = dtype, .members = g_array_new(FALSE, FALSE, sizeof(int))};
  g_array_append_val(buckets, new);
  return &g_array_index(buckets, Bucket, buckets->len - 1);
}

static GArray *
make_buckets(const StrategyContext *x)
{
  GArray *buckets = g_array_new(FALSE, FALSE, sizeof(Bucket));
  g_array_set_clear_func(buckets, bucket_clear);
  for (int i = 0; i < (int) x->network->buffers->len; i++) {
    const Buffer *buffer = buffer_at(x, i);
    if (buffer->unregistered)
      continue;
    Bucket *b = open_bucket(buckets, buffer->dtype);
    b->bytes += buffer->bytes;
    g_array_append_val(b->members, i);
  }
  return buckets;
}

/* Copies the members into the flat tensor, or back. */
static void
copy(StrategyContext *x, const Bucket *b, gboolean back)
{
  for (guint i = 0; i < b->members->len; i++)
    program_builder_operand(
        x->builder,
        live_storage_tensor(x->live, x->buffers[g_array_index(b->members, int, i)], b->dtype),
        back ? ROLE_WRITE : ROLE_READ);
  program_builder_operand(x->builder, live_storage_tensor(x->live, b->flat, b->dtype),
                          back ? ROLE_READ : ROLE_WRITE);
  strategy_launch(x, STREAM_COMPUTE, back ? "copy" : "cat", 2.0 * (double) b->bytes);
}

static void
send(StrategyContext *x, Bucket *b, gint32 communicator)
{
  gint32 filled = program_builder_event(x->builder);
  StoragePurpose purpose = {CATEGORY_TEMPORARY, -1, program_builder_name(x->builder, "buffers")};
  b->flat = x->buffers[g_array_index(b->members, int, 0)];
  if (b->members->len > 1) {
    b->flat = live_storage_alloc(x->live, b->bytes, STREAM_COMPUTE, purpose);
    copy(x, b, FALSE);
  }
  b->sent = program_builder_event(x->builder);
  program_builder_record(x->builder, STREAM_COMPUTE, filled);
  program_builder_wait(x->builder, STREAM_ALL_REDUCE, filled);
  program_builder_host_work(x->builder, HOST_WORK_COLLECTIVE_CALL, 1);
  program_builder_operand(x->builder, live_storage_tensor(x->live, b->flat, b->dtype),
                          x->global_rank == 0 ? ROLE_READ : ROLE_WRITE);
  program_builder_collective(x->builder, STREAM_ALL_REDUCE,
                             &(Collective){.kind = COLLECTIVE_BROADCAST,
                                           .dtype = (guint8) b->dtype,
                                           .communicator = communicator,
                                           .name = purpose.what,
                                           .bytes = b->bytes});
  program_builder_record(x->builder, STREAM_ALL_REDUCE, b->sent);
}

static void
finish(StrategyContext *x, Bucket *b)
{
  program_builder_wait(x->builder, STREAM_COMPUTE, b->sent);
  if (b->members->len == 1)
    return;
  copy(x, b, TRUE);
  live_storage_drop(x->live, b->flat);
}

void
ddp_buffers_broadcast(StrategyContext *x, gint32 communicator)
{
  g_autoptr(GArray) buckets = make_buckets(x);
  for (guint i = 0; i < buckets->len + IN_FLIGHT; i++) {
    if (i >= IN_FLIGHT && i - IN_FLIGHT < buckets->len)
      finish(x, &g_array_index(buckets, Bucket, i - IN_FLIGHT));
    if (i < buckets->len)
      send(x, &g_array_index(buckets, Bucket, i), communicator);
  }
}

gint64
ddp_buffers_elements(const Network *network)
{
  gint64 elements = 0;
  for (guint i = 0; i < network->buffers->len; i++) {
    const Buffer *buffer = &g_array_index(network->buffers, Buffer, i);
    if (!buffer->unregistered)
      elements += buffer->bytes / dtype_size(buffer->dtype);
  }
  return elements;
}
