/* sweep.c - the lists of sizes, shapes and pairs that are measured. */
#include "calibrate/sweep.h"

#include <string.h>

#include "base/units.h"

/* The largest collective, and how the sizes go there: one an octave.  Interpolating between sizes
 * two octaves apart already costs several percent. */
static const gint64 smallest_collective = KIB, largest_collective = GIB;

/* ---- one GPU ---- */

/* Products that most of a program's time goes to; the others follow from the same constants. */
enum { MOST_PRODUCTS = 32 };

static const gint64 usual_products[][3] = {
    {1024, 1024, 1024}, {2048, 2048, 2048},  {4096, 4096, 4096},  {8192, 4096, 4096},
    {8192, 8192, 8192}, {8192, 14336, 4096}, {8192, 4096, 14336}, {4096, 14336, 8192},
};

typedef struct {
  Experiment experiment;
  double flops; /* of all kernels that are like it */
} Product;

static int
by_flops(gconstpointer a, gconstpointer b)
{
  double x = ((const Product *) a)->flops, y = ((const Product *) b)->flops;
  return (x < y) - (x > y);
}

static void
count_product(GArray *products, const Kernel *kernel)
{
  for (guint i = 0; i < products->len; i++) {
    Product *known = &g_array_index(products, Product, i);
    const Experiment *e = &known->experiment;
    if (e->dtype == kernel->dtype && e->m == kernel->m && e->n == kernel->n && e->k == kernel->k) {
      known->flops += kernel->flops;
      return;
    }
  }
  Product product = {
      .experiment = {.kind = EXPERIMENT_GEMM,
                     .dtype = kernel->dtype,
                     .cold = TRUE,
                     .m = kernel->m,
                     .n = kernel->n,
                     .k = kernel->k},
      .flops = kernel->flops,
  };
  g_array_append_val(products, product);
}

/* The program's matrix products, those that take most of its operations first. */
static GArray *
products_of(const Program *program)
{
  GArray *products = g_array_new(FALSE, FALSE, sizeof(Product));
  for (guint i = 0; program != NULL && i < program->kernels->len; i++) {
    const Kernel *kernel = &g_array_index(program->kernels, Kernel, i);
    if (kernel->kind == KERNEL_GEMM && kernel->m > 0 && kernel->n > 0 && kernel->k > 0)
      count_product(products, kernel);
  }
  gboolean none = products->len == 0;
  for (guint i = 0; none && i < G_N_ELEMENTS(usual_products); i++) {
    const gint64 *shape = usual_products[i];
    Kernel kernel = {.dtype = DTYPE_BF16, .m = shape[0], .n = shape[1], .k = shape[2]};
    count_product(products, &kernel);
  }
  g_array_sort(products, by_flops);
  if (products->len > MOST_PRODUCTS)
    g_array_set_size(products, MOST_PRODUCTS);
  return products;
}

static void
add_sizes(GArray *list, ExperimentKind kind, gint64 first, gint64 last, int factor)
{
  for (gint64 bytes = first; bytes <= last; bytes *= factor) {
    Experiment e = {.kind = (guint8) kind, .bytes = bytes, .cold = kind == EXPERIMENT_MEMORY};
    g_array_append_val(list, e);
  }
}

/* Thread blocks that stand in for a collective's: NCCL's channels on one node and across nodes. */
static const gint32 traffic_blocks[] = {8, 16, 24, 32};

static void
add_beside_traffic(GArray *list, const Experiment *alone)
{
  for (guint i = 0; i < G_N_ELEMENTS(traffic_blocks); i++) {
    Experiment e = *alone;
    e.beside = BESIDE_TRAFFIC;
    e.blocks = traffic_blocks[i];
    g_array_append_val(list, e);
  }
}

static void
add_one_gpu(GArray *list, const GArray *products)
{
  Experiment launch = {.kind = EXPERIMENT_LAUNCH}, kernel = {.kind = EXPERIMENT_KERNEL};
  g_array_append_val(list, launch);
  g_array_append_val(list, kernel);
  for (guint i = 0; i < products->len; i++)
    g_array_append_val(list, g_array_index(products, Product, i).experiment);
  add_sizes(list, EXPERIMENT_MEMORY, 256 * KIB, GIB, 4);
  add_sizes(list, EXPERIMENT_COPY_TO_DEVICE, MIB, 256 * MIB, 4);
  add_sizes(list, EXPERIMENT_COPY_TO_HOST, MIB, 256 * MIB, 4);
  add_sizes(list, EXPERIMENT_CUDA_MALLOC, 2 * MIB, 512 * MIB, 16);
  add_sizes(list, EXPERIMENT_CUDA_FREE, 2 * MIB, 512 * MIB, 16);
  Experiment memory = {.kind = EXPERIMENT_MEMORY, .bytes = 256 * MIB, .cold = TRUE};
  add_beside_traffic(list, &memory);
  for (guint i = 0; i < MIN(products->len, 3); i++)
    add_beside_traffic(list, &g_array_index(products, Product, i).experiment);
}

/* ---- several ---- */

static gboolean
fits_job(const ProbeFacts *facts, RankGroup group)
{
  return group.ranks > 1 && group.ranks * group.stride <= facts->ranks &&
         facts->ranks % (group.ranks * group.stride) == 0;
}

static void
add_group(GArray *groups, RankGroup group)
{
  for (guint i = 0; i < groups->len; i++)
    if (memcmp(&g_array_index(groups, RankGroup, i), &group, sizeof(group)) == 0)
      return;
  g_array_append_val(groups, group);
}

/* The groups of the program that the job has room for, or that it has not. */
static GArray *
groups_of(const ProbeFacts *facts, const Program *program, gboolean fitting)
{
  GArray *groups = g_array_new(FALSE, FALSE, sizeof(RankGroup));
  for (guint i = 0; program != NULL && i < program->communicators->len; i++) {
    const Communicator *c = &g_array_index(program->communicators, Communicator, i);
    RankGroup group = {c->ranks, c->stride};
    if (group.ranks > 1 && fits_job(facts, group) == fitting)
      add_group(groups, group);
  }
  return groups;
}

GArray *
sweep_groups_left_out(const ProbeFacts *facts, const Program *program)
{
  return groups_of(facts, program, FALSE);
}

/* What FSDP and ZeRO send, as they place their buffers, and the other placement beside it. */
static const struct {
  CollectiveKind kind;
  gboolean in_place;
} collectives[] = {
    {COLLECTIVE_ALL_GATHER, TRUE},     {COLLECTIVE_REDUCE_SCATTER, FALSE},
    {COLLECTIVE_ALL_REDUCE, TRUE},     {COLLECTIVE_ALL_GATHER, FALSE},
    {COLLECTIVE_REDUCE_SCATTER, TRUE}, {COLLECTIVE_ALL_REDUCE, FALSE},
    {COLLECTIVE_BROADCAST, TRUE},
};

static Experiment
collective(CollectiveKind kind, gboolean in_place, RankGroup group, gint64 bytes)
{
  /* Whole shards of whole 16-byte words. */
  gint64 unit = 16 * (gint64) group.ranks;
  return (Experiment){.kind = EXPERIMENT_COLLECTIVE,
                      .call = {.collective = (guint8) kind,
                               .in_place = in_place,
                               .group = group,
                               .bytes = MAX(bytes / unit, 1) * unit}};
}

static void
add_collectives(GArray *list, RankGroup group)
{
  for (guint i = 0; i < G_N_ELEMENTS(collectives); i++)
    for (gint64 bytes = smallest_collective; bytes <= largest_collective; bytes *= 2) {
      Experiment e = collective(collectives[i].kind, collectives[i].in_place, group, bytes);
      g_array_append_val(list, e);
    }
}

static const gint64 overlap_bytes[] = {16 * MIB, 64 * MIB, 256 * MIB};

/* Products beside a collective, and it beside nothing else than they: both are slowed. */
static void
add_overlap(GArray *list, const GArray *products, RankGroup group)
{
  for (guint i = 0; i < MIN(products->len, 3); i++)
    for (guint k = 0; k < G_N_ELEMENTS(overlap_bytes); k++) {
      Experiment e = g_array_index(products, Product, i).experiment;
      e.beside = BESIDE_COLLECTIVE;
      e.second = collective(COLLECTIVE_ALL_GATHER, TRUE, group, overlap_bytes[k]).call;
      g_array_append_val(list, e);
    }
}

static void
add_concurrent(GArray *list, RankGroup first, RankGroup second)
{
  for (guint k = 0; k < G_N_ELEMENTS(overlap_bytes); k++) {
    Experiment e = collective(COLLECTIVE_ALL_GATHER, TRUE, first, overlap_bytes[k]);
    e.beside = BESIDE_COLLECTIVE;
    e.second = collective(COLLECTIVE_ALL_REDUCE, TRUE, second, overlap_bytes[k]).call;
    g_array_append_val(list, e);
  }
}

static void
add_groups(GArray *list, const GArray *groups, const GArray *products)
{
  for (guint i = 0; i < groups->len; i++) {
    RankGroup group = g_array_index(groups, RankGroup, i);
    add_collectives(list, group);
    add_overlap(list, products, group);
    for (guint k = 0; k < groups->len; k++)
      if (k != i)
        add_concurrent(list, group, g_array_index(groups, RankGroup, k));
  }
}

GArray *
sweep_experiments(const ProbeFacts *facts, const Program *program)
{
  GArray *list = g_array_new(FALSE, FALSE, sizeof(Experiment));
  g_autoptr(GArray) products = products_of(program);
  add_one_gpu(list, products);
  if (facts->ranks > 1 && facts->nccl[0] != '\0') {
    g_autoptr(GArray) groups = groups_of(facts, program, TRUE);
    add_group(groups, (RankGroup){facts->ranks, 1});
    add_groups(list, groups, products);
  }
  return list;
}
