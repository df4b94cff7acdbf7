/* numeric_optimizers.c - updates of lists of tensors: each one's gradient is read, then its value
 * and states are written (torch/optim/adam.py, sgd.py). */
#include <math.h>

#include "numeric/numeric_kernel.h"

/* One tensor of the list. */
typedef struct {
  const NumericTensor *gradient;
  NumericTensor *value, *state[2];
} Updated;

/* The tensor whose operands begin at i; returns where the next one's do, 0 at the end. */
static int
next_updated(KernelCall *c, int i, Updated *u)
{
  *u = (Updated){0};
  if (i >= c->operands)
    return 0;
  u->gradient = &c->operand[i++];
  for (int k = 0; i < c->operands && c->operand[i].role != ROLE_READ; i++, k++) {
    if (k == 0)
      u->value = &c->operand[i];
    else if (k <= 2)
      u->state[k - 1] = &c->operand[i];
  }
  if (u->gradient->role == ROLE_READ && u->value != NULL && u->state[0] != NULL)
    return i;
  numeric_fail(c, "its operands are not gradient, value, states of each tensor");
  return 0;
}

/* Elements that all have: memory may be padded. */
static gint64
elements_of(const Updated *u)
{
  return MIN(u->gradient->elements, MIN(u->value->elements, u->state[0]->elements));
}

static void
run_adam(KernelCall *c)
{
  double lr = numeric_number(c, "lr"), b1 = numeric_number(c, "beta1"),
         b2 = numeric_number(c, "beta2"), eps = numeric_number(c, "eps"),
         decay = numeric_number(c, "weight_decay");
  double correct1 = 1 - pow(b1, c->place.update), correct2 = sqrt(1 - pow(b2, c->place.update));
  Updated u;
  for (int i = next_updated(c, 0, &u); i > 0; i = next_updated(c, i, &u)) {
    if (u.state[1] == NULL) {
      numeric_fail(c, "it has no second moment");
      return;
    }
    double *p = u.value->data, *m = u.state[0]->data, *v = u.state[1]->data;
    for (gint64 k = 0; k < elements_of(&u); k++) {
      double g = u.gradient->data[k];
      m[k] += (1 - b1) * (g - m[k]);
      v[k] = b2 * v[k] + (1 - b2) * g * g;
      if (c->place.update > 0) /* else it only makes its states */
        p[k] = p[k] * (1 - lr * decay) - lr / correct1 * m[k] / (sqrt(v[k]) / correct2 + eps);
    }
  }
}

/* The first step's buffer is the gradient; a buffer of zeros gives the same. */
static void
run_sgd(KernelCall *c)
{
  double lr = numeric_number(c, "lr"), momentum = numeric_number(c, "momentum");
  Updated u;
  for (int i = next_updated(c, 0, &u); i > 0; i = next_updated(c, i, &u))
    for (gint64 k = 0; k < elements_of(&u); k++) {
      double *buffer = u.state[0]->data;
      buffer[k] = momentum * buffer[k] + u.gradient->data[k];
      u.value->data[k] -= lr * buffer[k];
    }
}

/* One factor for all that is written. */
static void
run_foreach_mul(KernelCall *c)
{
  const NumericTensor *factor = numeric_read(c, 0);
  for (int i = 0; factor != NULL && i < c->operands; i++)
    for (gint64 k = 0; c->operand[i].role != ROLE_READ && k < c->operand[i].elements; k++)
      c->operand[i].data[k] *= factor->data[0];
}

/* The same where the factor is below one: what the host has read of it. */
static void
run_scale_by_at_most_1(KernelCall *c)
{
  const NumericTensor *factor = numeric_read(c, 0);
  if (factor != NULL && !(factor->data[0] >= 1))
    run_foreach_mul(c);
}

/* All that is written, times a number. */
static void
run_scale_by(KernelCall *c)
{
  double factor = numeric_number(c, "factor");
  for (int i = 0; i < c->operands; i++)
    for (gint64 k = 0; c->operand[i].role != ROLE_READ && k < c->operand[i].elements; k++)
      c->operand[i].data[k] *= factor;
}

const NumericKernel numeric_optimizers[] = {
    {.formula = "scale_by", .run = run_scale_by},
    {.formula = "scale_by_at_most_1", .run = run_scale_by_at_most_1},
    {.formula = "adam", .run = run_adam},
    {.formula = "sgd", .run = run_sgd},
    {.formula = "foreach_mul", .run = run_foreach_mul},
    {0},
};
