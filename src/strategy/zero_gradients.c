/* zero_gradients.c - gradients of ZeRO stages 1 and 2: a hook per parameter, and the epilogue of
 * backward (deepspeed 0.19.8, runtime/zero/stage_1_and_2.py). */
#include "strategy/zero_gradients.h"

#include "strategy/zero_offload.h"
#include "strategy/zero_reduce.h"

/* ---- life ---- */

void
zero_gradients_init(Zero *z, const Network *network)
{
  z->apart = z->d.stage == 1 && z->d.accumulation != z->d.model;
  z->waiting = z->apart ? z->d.accumulation : z->d.model;
  z->waiting_size = dtype_size(z->waiting);
  z->gradient_offset = g_new0(gint64, network->parameters->len);
  z->listed = g_array_new(FALSE, FALSE, sizeof(int));
  z->stale = g_array_new(FALSE, FALSE, sizeof(int));
  z->kept = g_array_new(FALSE, FALSE, sizeof(GradientPiece));
  z->averaged = g_array_new(FALSE, FALSE, sizeof(GradientPiece));
  z->oversized = -1;
  z->owned = z->compact = z->global_norm = NO_STORAGE;
  z->host_parameters = z->host_staging = z->device_staging = NO_STORAGE;
  for (int i = 0; i < ZERO_BUCKETS; i++)
    z->bucket[i] = NO_STORAGE;
  z->master = (OptimizedTensor) OPTIMIZED_TENSOR_INIT;
}

void
zero_gradients_clear(Zero *z)
{
  g_free(z->gradient_offset);
  g_array_unref(z->listed);
  g_array_unref(z->stale);
  g_array_unref(z->kept);
  g_array_unref(z->averaged);
}

gboolean
zero_is_compact(const Zero *z)
{
  return z->d.accumulation == DTYPE_FP32 && z->d.model != DTYPE_FP32;
}

/* ---- small steps ---- */

void
zero_operand(StrategyContext *x, StorageId storage, gint64 offset, gint64 elements, DType dtype,
             Role role)
{
  if (storage == NO_STORAGE || elements == 0)
    return;
  program_builder_operand(
      x->builder, program_builder_flat_tensor(x->builder, storage, offset, elements, dtype), role);
}

void
zero_pieces_drop(StrategyContext *x, GArray *pieces)
{
  for (guint i = pieces->len; i > 0; i--) /* a Python list lets go from its end */
    live_storage_drop(x->live, g_array_index(pieces, GradientPiece, i - 1).storage);
  g_array_set_size(pieces, 0);
}

StorageId *
zero_gradient_slot(const StrategyContext *x, const Zero *z, int parameter)
{
  ParameterState *p = &x->parameters[parameter];
  return z->apart ? &p->accumulated : &p->gradient;
}

void
zero_forget_gradients(StrategyContext *x)
{
  Zero *z = zero_of(x);
  for (guint i = 0; i < x->network->parameters->len && z->apart; i++)
    zero_gradient_drop(x, z, (int) i);
}

static gint64
elements_of(const StrategyContext *x, int parameter)
{
  return network_parameter(x->network, parameter)->elements;
}

/* ---- the hook ---- */

/* setup_buckets: at the first gradient of a backward. */
static void
make_buckets(StrategyContext *x, Zero *z)
{
  if (z->ready)
    return;
  StoragePurpose purpose = {CATEGORY_REDUCE_SCATTER_BUFFER, -1,
                            program_builder_name(x->builder, "gradient bucket")};
  int buckets = !z->d.contiguous_gradients ? 0 : z->d.overlap_comm ? ZERO_BUCKETS : 1;
  for (int i = 0; i < buckets; i++)
    z->bucket[i] =
        live_storage_alloc(x->live, z->d.reduce_bucket * z->waiting_size, STREAM_COMPUTE, purpose);
  z->filling = 0;
  z->ready = TRUE;
}

/* The gradient moves into the bucket: what autograd made is freed. */
static void
copy_into_bucket(StrategyContext *x, Zero *z, int parameter)
{
  gint64 elements = elements_of(x, parameter);
  StorageId bucket = z->bucket[z->filling];
  zero_operand(x, *zero_gradient_slot(x, z, parameter), z->gradient_offset[parameter], elements,
               z->waiting, ROLE_READ);
  zero_operand(x, bucket, z->filled, elements, z->waiting, ROLE_WRITE);
  strategy_launch(x, STREAM_COMPUTE, "copy", 2.0 * (double) (elements * z->waiting_size));
  zero_gradient_becomes(x, z, parameter, bucket, z->filled);
}

/* Before a gradient leaves for the host from where autograd put it, it gets a storage of its own.
 */
static void
clone_gradient(StrategyContext *x, Zero *z, int parameter)
{
  gint64 elements = elements_of(x, parameter), bytes = elements * z->waiting_size;
  StorageId clone = live_storage_alloc(
      x->live, bytes, STREAM_COMPUTE, parameter_purpose(x, parameter, CATEGORY_UNSHARDED_GRADIENT));
  zero_operand(x, *zero_gradient_slot(x, z, parameter), z->gradient_offset[parameter], elements,
               z->waiting, ROLE_READ);
  zero_operand(x, clone, 0, elements, z->waiting, ROLE_WRITE);
  strategy_launch(x, STREAM_COMPUTE, "clone", 2.0 * (double) bytes);
  zero_gradient_becomes(x, z, parameter, clone, 0);
  live_storage_drop(x->live, clone);
}

/* reduce_independent_p_g_buckets_and_remove_grads. */
static void
add_to_bucket(StrategyContext *x, Zero *z, int parameter)
{
  gint64 elements = elements_of(x, parameter);
  if (elements == 0)
    return;
  if (z->filled + elements > z->d.reduce_bucket) {
    zero_reduce(x, z);
    if (z->d.contiguous_gradients && z->d.overlap_comm)
      z->filling = 1 - z->filling;
  }
  if (z->d.contiguous_gradients && elements > z->d.reduce_bucket) {
    z->oversized = parameter;
    if (zero_is_offloaded(z))
      clone_gradient(x, z, parameter);
  } else if (z->d.contiguous_gradients)
    copy_into_bucket(x, z, parameter);
  z->filled += elements;
  g_array_append_val(z->listed, parameter);
}

/* _fill_param_grad_accum_attribute: .grad is cast and becomes the sum, or is added to it. */
static void
move_apart(StrategyContext *x, Zero *z, int parameter)
{
  ParameterState *p = &x->parameters[parameter];
  gint64 elements = elements_of(x, parameter);
  StorageId cast = live_storage_alloc(x->live, elements * z->waiting_size, STREAM_COMPUTE,
                                      parameter_purpose(x, parameter, CATEGORY_UNSHARDED_GRADIENT));
  zero_operand(x, p->gradient, 0, elements, z->d.model, ROLE_READ);
  zero_operand(x, cast, 0, elements, z->waiting, ROLE_WRITE);
  strategy_launch(x, STREAM_COMPUTE, "to_copy",
                  (double) (elements * (z->waiting_size + z->d.element)));
  if (p->accumulated == NO_STORAGE) {
    p->accumulated = cast;
  } else {
    zero_operand(x, cast, 0, elements, z->waiting, ROLE_READ);
    zero_operand(x, p->accumulated, z->gradient_offset[parameter], elements, z->waiting,
                 ROLE_ACCUMULATE);
    strategy_launch(x, STREAM_COMPUTE, "add", 3.0 * (double) (elements * z->waiting_size));
    live_storage_drop(x->live, cast);
  }
  p->has_gradient = FALSE;
  live_storage_clear(x->live, &p->gradient);
}

void
zero_gradient_ready(StrategyContext *x, int parameter)
{
  Zero *z = zero_of(x);
  gboolean reduces_here = z->d.stage == 2 || z->d.overlap_comm;
  if (!reduces_here && !z->d.contiguous_gradients)
    return;
  program_builder_host_work(x->builder, HOST_WORK_HOOK, 1);
  make_buckets(x, z);
  if (z->apart)
    move_apart(x, z, parameter);
  if (reduces_here && (z->d.stage == 2 || x->last_micro_batch))
    add_to_bucket(x, z, parameter);
}

/* ---- the epilogue ---- */

/* Gradients of own parameters as they are after their reduction: a view of each.  One that the
 * graph did not reach is zeros. */
static GArray *
own_gradients(StrategyContext *x, Zero *z)
{
  GArray *pieces = g_array_new(FALSE, FALSE, sizeof(GradientPiece));
  for (guint i = 0; i < z->flat.own->len; i++) {
    int parameter = g_array_index(z->flat.own, int, i);
    const ParameterState *p = &x->parameters[parameter];
    GradientPiece piece = {p->gradient, z->gradient_offset[parameter], elements_of(x, parameter)};
    if (p->has_gradient) {
      live_storage_hold(x->live, piece.storage);
    } else {
      StoragePurpose purpose = parameter_purpose(x, parameter, CATEGORY_SHARDED_GRADIENT);
      piece = (GradientPiece){
          live_storage_alloc(x->live, piece.elements * z->d.element, STREAM_COMPUTE, purpose), 0,
          piece.elements};
      zero_operand(x, piece.storage, 0, piece.elements, z->d.model, ROLE_WRITE);
      strategy_launch(x, STREAM_COMPUTE, "zeros_like", (double) (piece.elements * z->d.element));
    }
    g_array_append_val(pieces, piece);
  }
  return pieces;
}

/* The first micro-batch's are remembered; later ones are added to them, and die with this. */
static GArray *
sum_up(StrategyContext *x, Zero *z)
{
  GArray *new = own_gradients(x, z);
  if (z->kept->len == 0) {
    g_array_append_vals(z->kept, new->data, new->len);
    g_array_set_size(new, 0);
    return new;
  }
  for (guint i = 0; i < new->len; i++) {
    const GradientPiece *sum = &g_array_index(z->kept, GradientPiece, i);
    const GradientPiece *piece = &g_array_index(new, GradientPiece, i);
    zero_operand(x, piece->storage, piece->offset, piece->elements, z->d.model, ROLE_READ);
    zero_operand(x, sum->storage, sum->offset, sum->elements, z->d.model, ROLE_ACCUMULATE);
    strategy_launch(x, STREAM_COMPUTE, "add", 3.0 * (double) (piece->elements * z->d.element));
  }
  return new;
}

/* The list goes first; the last gradient is still the loop's variable. */
static void
drop_added(StrategyContext *x, GArray *pieces)
{
  if (pieces->len == 0)
    return;
  StorageId last = g_array_index(pieces, GradientPiece, pieces->len - 1).storage;
  live_storage_hold(x->live, last);
  zero_pieces_drop(x, pieces);
  live_storage_drop(x->live, last);
}

/* Zeros for this rank's partition where no parameter is. */
static void
append_zeros(StrategyContext *x, Zero *z, gint64 elements)
{
  if (elements == 0)
    return;
  StoragePurpose purpose = {CATEGORY_SHARDED_GRADIENT, -1,
                            program_builder_name(x->builder, "padding")};
  GradientPiece zeros = {
      live_storage_alloc(x->live, elements * z->d.element, STREAM_COMPUTE, purpose), 0, elements};
  zero_operand(x, zeros.storage, 0, elements, z->d.model, ROLE_WRITE);
  strategy_launch(x, STREAM_COMPUTE, "zeros", (double) (elements * z->d.element));
  g_array_append_val(z->averaged, zeros);
}

/* get_flat_partition: this rank's slices of the summed gradients, in the order of the partition. */
static void
fill_averaged(StrategyContext *x, Zero *z)
{
  gint64 filled = 0;
  for (guint i = 0; i < z->kept->len; i++) {
    int parameter = g_array_index(z->flat.own, int, i);
    FlatSlice slice = zero_flat_own_slice(&z->flat, x->network, parameter, z->d.rank);
    gint64 begin = z->flat.offset[parameter] + slice.first - z->flat.first;
    append_zeros(x, z, begin - filled);
    GradientPiece piece = g_array_index(z->kept, GradientPiece, i);
    piece.offset += slice.first;
    piece.elements = slice.elements;
    live_storage_hold(x->live, piece.storage);
    g_array_append_val(z->averaged, piece);
    filled = begin + slice.elements;
  }
  append_zeros(x, z, z->flat.partition - filled);
  zero_pieces_drop(x, z->kept);
}

/* _release_ipg_buffers and _clear_param_grad_only. */
static void
release(StrategyContext *x, Zero *z)
{
  if (z->d.contiguous_gradients) {
    for (int i = 0; i < ZERO_BUCKETS; i++)
      live_storage_clear(x->live, &z->bucket[i]);
    live_storage_clear(x->live, &z->owned);
  }
  z->ready = FALSE;
  for (guint i = 0; i < x->network->parameters->len && !z->apart; i++)
    zero_gradient_drop(x, z, (int) i);
}

/* Stage 1 without overlap has left all gradients where autograd put them. */
static void
reduce_in_parameter_order(StrategyContext *x, Zero *z)
{
  for (guint i = 0; i < x->network->parameters->len; i++)
    if (*zero_gradient_slot(x, z, (int) i) != NO_STORAGE)
      add_to_bucket(x, z, (int) i);
}

void
zero_epilogue(StrategyContext *x)
{
  Zero *z = zero_of(x);
  if (z->d.stage == 1 && !x->last_micro_batch)
    return;
  program_builder_push(x->builder, RANGE_HOOK, "epilogue", 0);
  if (z->d.stage == 1 && !z->d.overlap_comm)
    reduce_in_parameter_order(x, z);
  zero_reduce(x, z);
  if (z->d.overlap_comm) {
    program_builder_stream_sync(x->builder, STREAM_COMPUTE);
    program_builder_stream_sync(x->builder, z->d.reduce_stream);
    zero_drop_stale(x, z);
  }
  if (zero_is_offloaded(z)) {
    release(x, z);
  } else if (zero_is_compact(z)) {
    if (x->last_micro_batch)
      zero_make_compact(x, z, STREAM_COMPUTE);
    release(x, z);
  } else {
    GArray *new = sum_up(x, z);
    if (x->last_micro_batch)
      fill_averaged(x, z);
    release(x, z);
    drop_added(x, new);
    g_array_unref(new);
  }
  program_builder_pop(x->builder);
}
