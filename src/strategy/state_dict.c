/* state_dict.c - what becomes of each tensor of a state dict
 * (torch/distributed/_state_dict_utils.py, _iterate_state_dict). */
#include "strategy/state_dict.h"

static gboolean
is_on_device(const StrategyContext *x, StorageId storage)
{
  return storage != NO_STORAGE && live_storage_space(x->live, storage) == SPACE_DEVICE;
}

void
state_copy(StrategyContext *x, StorageId from, StorageId to, DType dtype, gint64 bytes)
{
  program_builder_operand(x->builder, live_storage_tensor(x->live, from, dtype), ROLE_READ);
  program_builder_operand(x->builder, live_storage_tensor(x->live, to, dtype), ROLE_WRITE);
  strategy_copy(x, STREAM_COMPUTE, is_on_device(x, to) ? "copy to the device" : "copy to the host",
                (double) bytes);
  program_builder_stream_sync(x->builder, STREAM_COMPUTE);
}

StateDict *
state_dict_new(gboolean full, gboolean offload, int global_rank)
{
  StateDict *dict = g_new0(StateDict, 1);
  dict->full = full;
  dict->offload = offload;
  dict->keeps = !(full && offload) || global_rank == 0;
  dict->kept = g_array_new(FALSE, FALSE, sizeof(StateTensor));
  return dict;
}

void
state_dict_free(StrategyContext *x, StateDict *dict)
{
  for (guint i = dict->kept->len; i > 0; i--)
    live_storage_drop(x->live, g_array_index(dict->kept, StateTensor, i - 1).storage);
  g_array_unref(dict->kept);
  g_free(dict);
}

static StorageId
to_host(StrategyContext *x, const StateTensor *tensor)
{
  StoragePurpose purpose = parameter_purpose(x, tensor->parameter, CATEGORY_OTHER);
  gint64 bytes = tensor->bytes;
  StorageId copy = live_storage_alloc_in(x->live, SPACE_HOST, bytes, STREAM_COMPUTE, purpose);
  if (copy == NO_STORAGE)
    return copy;
  state_copy(x, tensor->storage, copy, tensor->dtype, bytes);
  return copy;
}

void
state_dict_add(StrategyContext *x, StateDict *dict, const StateTensor *tensor)
{
  StateTensor kept = *tensor;
  dict->bytes += tensor->bytes;
  if (dict->keeps && dict->offload && is_on_device(x, tensor->storage)) {
    kept.storage = to_host(x, tensor);
    live_storage_drop(x->live, tensor->storage);
  }
  if (dict->keeps)
    g_array_append_val(dict->kept, kept);
  else
    live_storage_drop(x->live, kept.storage);
}

void
state_dict_offload(StrategyContext *x, StateDict *dict)
{
  g_autofree StorageId *on_device = g_new(StorageId, MAX(dict->kept->len, 1));
  for (guint i = 0; i < dict->kept->len; i++) {
    StateTensor *tensor = &g_array_index(dict->kept, StateTensor, i);
    on_device[i] = NO_STORAGE;
    if (!is_on_device(x, tensor->storage))
      continue;
    on_device[i] = tensor->storage;
    tensor->storage = to_host(x, tensor);
  }
  for (guint i = 0; i < dict->kept->len; i++)
    live_storage_drop(x->live, on_device[i]);
}

void
state_dict_read(StrategyContext *x, StateDict *dict)
{
  for (guint i = 0; i < dict->kept->len; i++) {
    const StateTensor *tensor = &g_array_index(dict->kept, StateTensor, i);
    if (!is_on_device(x, tensor->storage))
      continue;
    StorageId host = live_storage_alloc_in(x->live, SPACE_HOST, tensor->bytes, STREAM_COMPUTE,
                                           parameter_purpose(x, tensor->parameter, CATEGORY_OTHER));
    state_copy(x, host, tensor->storage, tensor->dtype, tensor->bytes);
    live_storage_drop(x->live, host);
  }
}
