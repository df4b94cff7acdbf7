/* op_lookup.c - recipes of embedding look-ups and of the scans that go with index arithmetic. */
#include "base/units.h"
#include "network/cub.h"
#include "network/op_recipe.h"

void
shape_embedding(OpCase *c)
{
  const ValueInfo *table = &c->in[0], *indices = &c->in[1];
  c->outs = 1;
  c->out[0] = *indices;
  c->out[0].dtype = table->dtype;
  c->out[0].shape[c->out[0].dims++] = table->shape[1];
  value_set_contiguous(&c->out[0]);
}

/* indices.reshape(-1), indices.contiguous(): a copy of a broadcast row; 0: there is none. */
static int
contiguous_indices(OpCase *c)
{
  if (value_is_contiguous(&c->in[1]))
    return 0;
  return recipe_temp(c, value_bytes(&c->in[1]), "contiguous indices");
}

void
forward_embedding(OpCase *c)
{
  int indices = contiguous_indices(c);
  recipe_out(c, 0, "embedding");
  recipe_launch(c, "embedding", KERNEL_MEMORY, 0, "~i0 i1 >o0");
  if (indices != 0)
    recipe_release(c, indices);
}

/* A buffer that only one kernel needs. */
static void
scratch(OpCase *c, gint64 bytes, const char *what)
{
  recipe_release(c, recipe_temp(c, bytes, what));
}

/* Few indices (at most 3072): one kernel adds rows straight into the dense gradient. */
static void
dense_gradient(OpCase *c)
{
  recipe_grad(c, 0, ORDER_DENSE);
  recipe_launch(c, "embedding_dense_backward", KERNEL_MEMORY, 0, "g0 i1 >d0");
}

/* Few segments with many pieces each are summed by atomics, piece by piece, when a grid over
 * segments would leave the device idle (use_fused_kernel). */
static gboolean
sums_atomically(const OpCase *c, gint64 most_pieces, gint64 most_segments)
{
  enum { WARP = 32, MOST_THREADS = 1024, BLOCKS_PER_SM = 4, PIECES_PER_BLOCK = 4 };
  gint64 threads = round_up(c->in[0].shape[1], WARP);
  gint64 grid = ceil_div(most_segments * threads, MIN(threads, MOST_THREADS));
  return grid < (gint64) c->device.sms * BLOCKS_PER_SM && most_pieces > grid * PIECES_PER_BLOCK;
}

/* Sums of pieces in fp32.  Atomics add them up in fp32 too, in the gradient itself if it has that
 * dtype, and find their segments in a list. */
static void
sum_pieces(OpCase *c, gint64 most_pieces, gint64 most_segments)
{
  const ValueInfo *table = &c->in[0];
  gboolean atomics = sums_atomically(c, most_pieces, most_segments);
  int owners = atomics ? recipe_temp(c, 8 * most_pieces, "segments of pieces") : 0;
  gint64 rows = atomics ? table->shape[0] : most_pieces;
  gboolean own_sums = !atomics || table->dtype != DTYPE_FP32;
  int sums = own_sums ? recipe_temp(c, 4 * rows * table->shape[1], "partial sums") : 0;
  recipe_launch(c, "embedding_dense_backward", KERNEL_MEMORY, 0, "g0 i1 >d0");
  if (own_sums)
    recipe_release(c, sums);
  if (atomics)
    recipe_release(c, owners);
}

/* Many indices: they are sorted with their positions, equal ones form segments, segments are cut
 * into pieces of at most ten rows whose partial sums are fp32
 * (aten/src/ATen/native/cuda/EmbeddingBackwardKernel.cu). */
static void
sorted_gradient(OpCase *c)
{
  enum { ROWS_PER_PIECE = 10 };
  gint64 n = value_elements(&c->in[1]), vocabulary = c->in[0].shape[0];
  int sorted = recipe_temp(c, 8 * n, "sorted indices");
  int origin = recipe_temp(c, 8 * n, "original positions");
  int range = recipe_temp(c, 8 * n, "positions");
  scratch(c, cub_sort_pairs_bytes(n, 64), "sort workspace");
  recipe_release(c, range);
  recipe_grad(c, 0, ORDER_DENSE);
  int segments = recipe_temp(c, 8 * n, "segment offsets");
  int count = recipe_temp(c, 8, "segment count");
  int unique = recipe_temp(c, 8 * n, "unique indices");
  scratch(c, cub_unique_bytes(n), "unique workspace");
  recipe_release(c, unique);
  gint64 most_segments = MIN(n, vocabulary);
  int pieces = recipe_temp(c, 8 * most_segments, "pieces per segment");
  int piece_offsets = recipe_temp(c, 8 * most_segments, "piece offsets per segment");
  scratch(c, cub_scan_bytes(most_segments, 8), "scan workspace");
  int piece_count = recipe_temp(c, 8, "piece count");
  gint64 most_pieces = n / ROWS_PER_PIECE + most_segments;
  int starts = recipe_temp(c, 8 * most_pieces, "piece starts");
  sum_pieces(c, most_pieces, most_segments);
  const int held[] = {starts, piece_count, piece_offsets, pieces, count, segments, origin, sorted};
  for (guint i = 0; i < G_N_ELEMENTS(held); i++)
    recipe_release(c, held[i]);
}

void
backward_embedding(OpCase *c)
{
  enum { DENSE_LIMIT = 3072 };
  int indices = contiguous_indices(c);
  int gradient = recipe_contiguous_incoming(c, "contiguous gradient");
  if (value_elements(&c->in[1]) <= DENSE_LIMIT)
    dense_gradient(c);
  else
    sorted_gradient(c);
  recipe_release(c, gradient);
  if (indices != 0)
    recipe_release(c, indices);
}

/* torch.cumsum: flags are cast first; one row is scanned by cub, several by a kernel without
 * scratch. */
void
forward_cumsum(OpCase *c)
{
  gint64 elements = value_elements(&c->in[0]), length = c->in[0].shape[c->in[0].dims - 1];
  gboolean casts = c->in[0].dtype != c->out[0].dtype;
  recipe_out(c, 0, "cumsum");
  int cast = casts ? recipe_temp(c, value_bytes(&c->out[0]), "cast flags") : 0;
  if (elements == length)
    scratch(c, cub_scan_bytes(length, dtype_size((DType) c->out[0].dtype)), "scan workspace");
  recipe_launch(c, "cumsum", KERNEL_MEMORY, 0, "i0 >o0");
  if (casts)
    recipe_release(c, cast);
}
