/* numeric_matmuls.c - matrix products, batched or not, and those of their gradients. */
#include <string.h>

#include "numeric/numeric_kernel.h"

/* out [batch, m, n] = a [batch, m, k] x b [batch, k, n], with either transposed as stored. */
typedef struct {
  gint64 batch, m, n, k;
  gboolean a_transposed, b_transposed;
} Product;

static gboolean
check_product(KernelCall *c, const Product *p, const NumericTensor *a, const NumericTensor *b,
              const NumericTensor *out)
{
  if (a->elements == p->batch * p->m * p->k && b->elements == p->batch * p->k * p->n &&
      out->elements == p->batch * p->m * p->n)
    return TRUE;
  numeric_fail(c, "the factors' shapes do not go together");
  return FALSE;
}

/* [k, n] from [n, k]. */
static double *
transposed(const double *y, gint64 k, gint64 n)
{
  double *t = g_new(double, MAX(k * n, 1));
  for (gint64 j = 0; j < n; j++)
    for (gint64 i = 0; i < k; i++)
      t[i * n + j] = y[j * k + i];
  return t;
}

/* z += factor y */
static void
add_multiple(double *restrict z, const double *restrict y, double factor, gint64 n)
{
  gint64 i = 0;
  for (; i + 4 <= n; i += 4) {
    z[i] += factor * y[i];
    z[i + 1] += factor * y[i + 1];
    z[i + 2] += factor * y[i + 2];
    z[i + 3] += factor * y[i + 3];
  }
  for (; i < n; i++)
    z[i] += factor * y[i];
}

static void
multiply(KernelCall *c, const Product *p, const NumericTensor *a, const NumericTensor *b,
         NumericTensor *out)
{
  if (!check_product(c, p, a, b, out))
    return;
  memset(out->data, 0, sizeof(double) * (gsize) out->elements);
  gint64 ai = p->a_transposed ? 1 : p->k, ak = p->a_transposed ? p->m : 1;
  for (gint64 s = 0; s < p->batch; s++) {
    const double *x = a->data + s * p->m * p->k, *given = b->data + s * p->k * p->n;
    g_autofree double *turned = p->b_transposed ? transposed(given, p->k, p->n) : NULL;
    const double *y = turned != NULL ? turned : given;
    for (gint64 i = 0; i < p->m; i++)
      for (gint64 k = 0; k < p->k; k++)
        add_multiple(out->data + (s * p->m + i) * p->n, y + k * p->n, x[i * ai + k * ak], p->n);
  }
}

/* How many matrices a factor is: all but the last two dimensions, if the other one has them too. */
static gint64
batch_of(const NumericTensor *a, const NumericTensor *b)
{
  gint64 batch = 1;
  for (int i = 0; i < a->dims - 2 && b->dims > 2; i++)
    batch *= a->shape[i];
  return batch;
}

static void
run_mm(KernelCall *c)
{
  const NumericTensor *a = numeric_read(c, 0), *b = numeric_read(c, 1);
  NumericTensor *out = numeric_written(c, 0);
  if (a == NULL || b == NULL || out == NULL)
    return;
  Product p = {.batch = batch_of(a, b), .k = numeric_width(a), .n = numeric_width(b)};
  p.m = a->elements / MAX(p.batch * p.k, 1);
  multiply(c, &p, a, b, out);
}

/* bias + a x b */
static void
run_addmm(KernelCall *c)
{
  const NumericTensor *bias = numeric_read(c, 0), *a = numeric_read(c, 1), *b = numeric_read(c, 2);
  NumericTensor *out = numeric_written(c, 0);
  if (a == NULL || b == NULL || out == NULL)
    return;
  Product p = {.batch = 1, .k = numeric_width(a), .n = numeric_width(b)};
  p.m = a->elements / MAX(p.k, 1);
  multiply(c, &p, a, b, out);
  g_autofree double *added = numeric_broadcast(c, bias, out);
  for (gint64 i = 0; added != NULL && i < out->elements; i++)
    out->data[i] += added[i];
}

/* The first factor's: g [m, n] x b^T, of b [k, n]. */
static void
run_grad_first(KernelCall *c)
{
  const NumericTensor *g = numeric_read(c, 0), *b = numeric_read(c, 1);
  NumericTensor *out = numeric_written(c, 0);
  if (g == NULL || b == NULL || out == NULL)
    return;
  Product p = {.batch = batch_of(g, b), .k = numeric_width(g), .b_transposed = TRUE};
  p.m = g->elements / MAX(p.batch * p.k, 1);
  p.n = b->elements / MAX(p.batch * p.k, 1);
  multiply(c, &p, g, b, out);
}

/* The second factor's: a^T x g, of a [m, k] and g [m, n]. */
static void
grad_second(KernelCall *c, const NumericTensor *a, const NumericTensor *g)
{
  NumericTensor *out = numeric_written(c, 0);
  if (g == NULL || a == NULL || out == NULL)
    return;
  Product p = {
      .batch = batch_of(g, a), .m = numeric_width(a), .n = numeric_width(g), .a_transposed = TRUE};
  gboolean batched = out->dims > 2;
  p.batch = batched ? p.batch : 1;
  p.k = a->elements / MAX(p.batch * p.m, 1);
  multiply(c, &p, a, g, out);
}

static void
run_grad_second(KernelCall *c)
{
  grad_second(c, numeric_read(c, 1), numeric_read(c, 0));
}

/* A linear layer's weight [n, k]: g^T x input. */
static void
run_grad_weight(KernelCall *c)
{
  grad_second(c, numeric_read(c, 0), numeric_read(c, 1));
}

const NumericKernel numeric_matmuls[] = {
    {.formula = "mm", .run = run_mm},
    {.formula = "bmm", .run = run_mm},
    {.formula = "addmm", .run = run_addmm},
    {.formula = "mm_grad_first", .run = run_grad_first},
    {.formula = "mm_grad_second", .run = run_grad_second},
    {.formula = "mm_grad_weight", .run = run_grad_weight},
    {0},
};
