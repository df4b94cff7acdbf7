/* numeric_attention.c - softmaxes, and attention with its probabilities computed whole: queries
 * [batch, heads, length, head dim], fewer key heads shared by neighbouring query heads, causal
 * unless a bias is given. */
#include <math.h>
#include <string.h>

#include "numeric/numeric_kernel.h"
#include "numeric/numeric_random.h"

/* ---- softmax over the last dimension ---- */

/* Of elements [first, end) of a row; the rest becomes zero. */
static void
softmax_row(const double *x, double *y, gint64 first, gint64 end, gint64 width)
{
  double most = -INFINITY, sum = 0;
  for (gint64 i = first; i < end; i++)
    most = MAX(most, x[i]);
  for (gint64 i = 0; i < width; i++)
    sum += y[i] = i >= first && i < end ? exp(x[i] - most) : 0;
  for (gint64 i = first; i < end; i++)
    y[i] /= sum;
}

static void
softmax(KernelCall *c, gboolean causal)
{
  const NumericTensor *x = numeric_read(c, 0);
  NumericTensor *y = numeric_written(c, 0);
  if (!numeric_same_size(c, x, y))
    return;
  gint64 width = numeric_width(x), rows = x->dims > 1 ? x->shape[x->dims - 2] : 1;
  gint64 window = (gint64) numeric_number_or(c, "window", 0);
  for (gint64 i = 0; i < x->elements / width; i++) {
    gint64 end = causal ? i % rows + 1 : width;
    softmax_row(x->data + i * width, y->data + i * width,
                causal && window > 0 ? MAX(end - window, 0) : 0, end, width);
  }
}

static void
run_softmax(KernelCall *c)
{
  softmax(c, FALSE);
}

static void
run_causal_softmax(KernelCall *c)
{
  softmax(c, TRUE);
}

/* Reads scores and a bias that broadcasts to them.  A row of nothing but -inf becomes zeros. */
static void
run_masked_softmax(KernelCall *c)
{
  const NumericTensor *x = numeric_read(c, 0);
  NumericTensor *y = numeric_written(c, 0);
  if (!numeric_same_size(c, x, y))
    return;
  g_autofree double *bias = numeric_broadcast(c, numeric_read(c, 1), x);
  gint64 width = numeric_width(x);
  for (gint64 row = 0; bias != NULL && row < x->elements; row += width) {
    gboolean any = FALSE;
    for (gint64 i = row; i < row + width; i++) {
      bias[i] += x->data[i];
      any |= bias[i] != -INFINITY;
    }
    if (any)
      softmax_row(bias + row, y->data + row, 0, width, width);
    else
      memset(y->data + row, 0, sizeof(double) * (gsize) width);
  }
}

/* Reads the gradient and the result. */
static void
run_softmax_backward(KernelCall *c)
{
  const NumericTensor *g = numeric_read(c, 0), *y = numeric_read(c, 1);
  NumericTensor *d = numeric_written(c, 0);
  if (!numeric_same_size(c, g, d) || !numeric_same_size(c, y, d))
    return;
  gint64 width = numeric_width(y);
  for (gint64 row = 0; row < y->elements; row += width) {
    double dot = 0;
    for (gint64 i = 0; i < width; i++)
      dot += g->data[row + i] * y->data[row + i];
    for (gint64 i = 0; i < width; i++)
      d->data[row + i] = y->data[row + i] * (g->data[row + i] - dot);
  }
}

/* ---- attention ---- */

typedef struct {
  const NumericTensor *q, *k, *v, *bias;
  gint64 batch, heads, kv_heads, length, head_dim;
  gint64 window; /* a query sees so many keys at most; 0: all before it */
  double scale;
  double dropout;     /* of probabilities */
  guint64 key;        /* of what is kept */
  gint64 first_batch; /* the operands' first sample, among all of the step's */
} Attention;

/* first: the operand (among those read) that the queries are. */
static gboolean
read_attention(KernelCall *c, int first, gboolean biased, Attention *a)
{
  *a = (Attention){.q = numeric_read(c, first),
                   .k = numeric_read(c, first + 1),
                   .v = numeric_read(c, first + 2),
                   .bias = biased ? numeric_read(c, first + 3) : NULL};
  if (a->q == NULL || a->k == NULL || a->v == NULL)
    return FALSE;
  if (a->q->dims != 4 || a->k->dims != 4 || a->k->shape[1] == 0 ||
      a->q->shape[1] % a->k->shape[1] != 0 || a->k->elements != a->v->elements) {
    numeric_fail(c, "its operands are not [batch, heads, length, head dim]");
    return FALSE;
  }
  a->batch = a->q->shape[0];
  a->heads = a->q->shape[1];
  a->kv_heads = a->k->shape[1];
  a->length = a->q->shape[2];
  a->head_dim = a->q->shape[3];
  a->window = (gint64) numeric_number_or(c, "window", 0);
  a->scale = numeric_number_or(c, "scale", 1 / sqrt((double) a->head_dim));
  a->dropout = numeric_number_or(c, "dropout", 0);
  a->key = numeric_dropout_key(&c->place);
  a->first_batch = c->place.sample * a->batch / MAX(c->place.samples, 1);
  return TRUE;
}

/* Where a head's rows begin. */
static const double *
rows_of(const NumericTensor *t, gint64 batch, gint64 head, gint64 heads)
{
  gint64 rows = t->shape[2] * t->shape[3];
  return t->data + (batch * t->shape[1] + head * t->shape[1] / heads) * rows;
}

/* A query's row of the bias, which may be one for all heads; NULL: there is none. */
static const double *
bias_of(const Attention *a, gint64 batch, gint64 head, gint64 query)
{
  const NumericTensor *bias = a->bias;
  if (bias == NULL)
    return NULL;
  gint64 heads = bias->dims > 3 ? bias->shape[bias->dims - 3] : 1;
  return bias->data + ((batch * heads + head % heads) * a->length + query) * numeric_width(bias);
}

/* Probabilities of one query; returns the logarithm of the sum of exponentials. */
static double
probabilities(const Attention *a, gint64 batch, gint64 head, gint64 query, double *p)
{
  const double *q = rows_of(a->q, batch, head, a->heads) + query * a->head_dim;
  const double *k = rows_of(a->k, batch, head, a->heads);
  const double *bias = bias_of(a, batch, head, query);
  gint64 n = bias != NULL ? a->length : query + 1;
  gint64 first = a->window > 0 ? MAX(query + 1 - a->window, 0) : 0;
  double most = -INFINITY, sum = 0;
  for (gint64 i = first; i < n; i++) {
    p[i] = 0;
    for (gint64 d = 0; d < a->head_dim; d++)
      p[i] += q[d] * k[i * a->head_dim + d];
    p[i] *= a->scale;
    if (bias != NULL)
      p[i] += bias[i];
    most = MAX(most, p[i]);
  }
  for (gint64 i = first; i < n; i++)
    sum += p[i] = exp(p[i] - most);
  for (gint64 i = 0; i < a->length; i++)
    p[i] = i >= first && i < n ? p[i] / sum : 0;
  return most + log(sum);
}

/* What a probability of a query is multiplied by: the same whoever computes it. */
static double
kept(const Attention *a, gint64 row, gint64 key)
{
  gint64 rows = a->heads * a->length;
  guint64 counter = (guint64) ((a->first_batch * rows + row) * a->length + key);
  if (a->dropout == 0)
    return 1;
  return numeric_uniform(a->key, counter) >= a->dropout ? 1 / (1 - a->dropout) : 0;
}

static void
forward(KernelCall *c, gboolean biased)
{
  Attention a;
  NumericTensor *out = numeric_written(c, 0);
  if (!read_attention(c, 0, biased, &a) || !numeric_same_size(c, a.q, out))
    return;
  for (int i = 0, written = 0; i < c->operands; i++) /* logsumexp; a generator's state */
    if (c->operand[i].role != ROLE_READ && written++ > 0)
      memset(c->operand[i].data, 0, sizeof(double) * (gsize) c->operand[i].elements);
  g_autofree double *p = g_new(double, MAX(a.length, 1));
  for (gint64 row = 0; row < a.batch * a.heads * a.length; row++) {
    gint64 batch = row / (a.heads * a.length), head = row / a.length % a.heads;
    probabilities(&a, batch, head, row % a.length, p);
    const double *v = rows_of(a.v, batch, head, a.heads);
    for (gint64 d = 0; d < a.head_dim; d++) {
      double sum = 0;
      for (gint64 i = 0; i < a.length; i++)
        sum += kept(&a, row, i) * p[i] * v[i * a.head_dim + d];
      out->data[row * a.head_dim + d] = sum;
    }
  }
}

/* One query's part of the gradients. */
static void
add_gradients(const Attention *a, gint64 row, const double *g, double *p, double *const d[3])
{
  gint64 batch = row / (a->heads * a->length), head = row / a->length % a->heads;
  const double *q = a->q->data + row * a->head_dim;
  const double *k = rows_of(a->k, batch, head, a->heads), *v = rows_of(a->v, batch, head, a->heads);
  double *dk = d[1] + (k - a->k->data), *dv = d[2] + (v - a->v->data),
         *dq = d[0] + row * a->head_dim;
  double dot = 0;
  g_autofree double *dp = g_new(double, MAX(a->length, 1));
  probabilities(a, batch, head, row % a->length, p);
  for (gint64 i = 0; i < a->length; i++) {
    double factor = kept(a, row, i);
    dp[i] = 0;
    for (gint64 e = 0; e < a->head_dim; e++) {
      dp[i] += factor * g[e] * v[i * a->head_dim + e];
      dv[i * a->head_dim + e] += factor * p[i] * g[e];
    }
    dot += p[i] * dp[i];
  }
  for (gint64 i = 0; i < a->length; i++) {
    double ds = p[i] * (dp[i] - dot) * a->scale;
    for (gint64 e = 0; e < a->head_dim; e++) {
      dq[e] += ds * k[i * a->head_dim + e];
      dk[i * a->head_dim + e] += ds * q[e];
    }
  }
}

/* Reads g, q, k, v (bias), output, logsumexp; writes the gradients that are wanted, in order. */
static void
backward(KernelCall *c, gboolean biased)
{
  Attention a;
  const NumericTensor *g = numeric_read(c, 0);
  if (!read_attention(c, 1, biased, &a) || !numeric_same_size(c, g, a.q))
    return;
  const NumericTensor *of[3] = {a.q, a.k, a.v};
  g_autofree double *all = g_new0(double, a.q->elements + 2 * a.k->elements);
  double *const d[3] = {all, all + a.q->elements, all + a.q->elements + a.k->elements};
  g_autofree double *p = g_new(double, MAX(a.length, 1));
  for (gint64 row = 0; row < a.batch * a.heads * a.length; row++)
    add_gradients(&a, row, g->data + row * a.head_dim, p, d);
  int wanted = (int) numeric_number_or(c, "wanted", 7);
  for (int i = 0, written = 0; i < 3; i++) {
    NumericTensor *to = wanted >> i & 1 ? numeric_written(c, written++) : NULL;
    if (to != NULL && numeric_same_size(c, of[i], to))
      memcpy(to->data, d[i], sizeof(double) * (gsize) to->elements);
  }
}

static void
run_flash(KernelCall *c)
{
  forward(c, FALSE);
}

static void
run_flash_backward(KernelCall *c)
{
  backward(c, FALSE);
}

static void
run_efficient(KernelCall *c)
{
  forward(c, numeric_reads(c) > 3);
}

static void
run_efficient_backward(KernelCall *c)
{
  backward(c, numeric_reads(c) > 6);
}

const NumericKernel numeric_attention[] = {
    {.formula = "softmax", .run = run_softmax},
    {.formula = "safe_softmax", .run = run_softmax},
    {.formula = "causal_softmax", .run = run_causal_softmax},
    {.formula = "masked_softmax", .run = run_masked_softmax},
    {.formula = "softmax_backward", .run = run_softmax_backward},
    {.formula = "flash_attention", .run = run_flash},
    {.formula = "flash_attention_backward", .run = run_flash_backward},
    {.formula = "efficient_attention", .run = run_efficient},
    {.formula = "efficient_attention_backward", .run = run_efficient_backward},
    {0},
};
