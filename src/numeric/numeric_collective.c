/* numeric_collective.c - gathers and reductions over the members of a communicator. */
#include "numeric/numeric_collective.h"

#include <string.h>

#include "program/meaning.h"

int
numeric_place_in(const Communicator *c, int rank)
{
  return rank / c->stride % c->ranks;
}

int
numeric_rank_at(const Communicator *c, int rank, int place)
{
  return rank + (place - numeric_place_in(c, rank)) * c->stride;
}

/* ---- operands ---- */

/* The i-th operand of a member with this role; NULL: there is none. */
static NumericTensor *
with_role(const CollectiveMember *m, Role role, int i)
{
  for (int k = 0; k < m->operands; k++)
    if (m->operand[k].role == role && i-- == 0)
      return &m->operand[k];
  return NULL;
}

/* What goes in and what comes out, of the i-th tensor: one in place, or two. */
typedef struct {
  const NumericTensor *in;
  NumericTensor *out;
} Pair;

static gboolean
pair_of(const CollectiveMember *m, int i, Pair *pair)
{
  NumericTensor *in_place = with_role(m, ROLE_ACCUMULATE, i);
  *pair = (Pair){in_place, in_place};
  if (in_place != NULL)
    return TRUE;
  *pair = (Pair){with_role(m, ROLE_READ, i), with_role(m, ROLE_WRITE, i)};
  return pair->in != NULL && pair->out != NULL;
}

/* ---- reductions ---- */

typedef struct {
  double factor;   /* of the sum */
  gboolean rounds; /* each addition rounds to the operands' dtype */
} Reduction;

/* As a ring adds up in the communicated dtype: a part of the elements for each member, which begins
 * with the next member's and ends with its own; each number is multiplied first
 * (ncclDevPreMulSum). */
static void
ring_sum(const Pair *pairs, int n, gint64 elements, double factor, double *sum)
{
  gint64 part = MAX((elements + n - 1) / n, 1);
  DType dtype = pairs[0].in->dtype;
  for (gint64 k = 0; k < elements; k++)
    for (int i = 0; i < n; i++) {
      const double *x = pairs[(k / part + 1 + i) % n].in->data;
      double addend = numeric_round(x[k] * factor, dtype);
      sum[k] = i == 0 ? addend : numeric_round(sum[k] + addend, dtype);
    }
}

/* The first elements of all members' inputs, times a factor, added up. */
static double *
sum_of(const Pair *pairs, int n, gint64 elements, const Reduction *how)
{
  double *sum = g_new0(double, MAX(elements, 1));
  if (how->rounds) {
    ring_sum(pairs, n, elements, how->factor, sum);
    return sum;
  }
  for (int i = 0; i < n; i++)
    for (gint64 k = 0; k < elements; k++)
      sum[k] += pairs[i].in->data[k];
  for (gint64 k = 0; k < elements; k++)
    sum[k] *= how->factor;
  return sum;
}

static char *
all_reduce(Pair *pairs, int n, const Reduction *how)
{
  gint64 elements = pairs[0].in->elements;
  g_autofree double *sum = sum_of(pairs, n, elements, how);
  for (int i = 0; i < n; i++)
    memcpy(pairs[i].out->data, sum, sizeof(double) * (gsize) elements);
  return NULL;
}

/* One of them gets the sum; the others keep what they have. */
static char *
reduce(const CollectiveCall *call, Pair *pairs, int n)
{
  const Reduction plain = {.factor = 1, .rounds = call->rounds};
  double root;
  if (!meaning_number(call->program, call->collective->meaning, "root", &root) || root < 0 ||
      root >= n)
    return g_strdup("nobody has said who gets the sum");
  gint64 elements = pairs[0].in->elements;
  g_autofree double *sum = sum_of(pairs, n, elements, &plain);
  memcpy(pairs[(int) root].out->data, sum, sizeof(double) * (gsize) elements);
  return NULL;
}

/* In place, a member's part of the whole is its result, and the rest is nobody's. */
static char *
reduce_scatter(Pair *pairs, int n, const Reduction *how)
{
  gint64 part = pairs[0].in->elements / n;
  g_autofree double *sum = sum_of(pairs, n, part * n, how);
  for (int i = 0; i < n; i++) {
    gboolean in_place = pairs[i].in == pairs[i].out;
    if (!in_place && pairs[i].out->elements != part)
      return g_strdup("its result is not a member's part of what is reduced");
    memcpy(pairs[i].out->data + (in_place ? i * part : 0), sum + i * part,
           sizeof(double) * (gsize) part);
  }
  return NULL;
}

/* ---- gathers ---- */

static char *
all_gather(Pair *pairs, int n)
{
  gboolean in_place = pairs[0].in == pairs[0].out;
  gint64 part = in_place ? pairs[0].out->elements / n : pairs[0].in->elements;
  g_autofree double *all = g_new(double, MAX(part * n, 1));
  for (int i = 0; i < n; i++) {
    if (pairs[i].out->elements != part * n)
      return g_strdup("its result is not as large as all members' parts");
    memcpy(all + i * part, pairs[i].in->data + (in_place ? i * part : 0),
           sizeof(double) * (gsize) part);
  }
  for (int i = 0; i < n; i++)
    memcpy(pairs[i].out->data, all, sizeof(double) * (gsize) (part * n));
  return NULL;
}

/* The tensor's only operand of a member. */
static NumericTensor *
broadcast_operand(const CollectiveMember *m, int i)
{
  return i < m->operands ? &m->operand[i] : NULL;
}

/* The one who reads sends, the others write.  Where nobody says who sends all must bring the same.
 */
static char *
broadcast(const CollectiveMember *members, int n, int tensor)
{
  const NumericTensor *sent = NULL;
  for (int i = 0; i < n; i++) {
    const NumericTensor *t = broadcast_operand(&members[i], tensor);
    if (t == NULL)
      return g_strdup("members bring different numbers of tensors");
    if (t->role == ROLE_READ && sent != NULL)
      return g_strdup("two members send");
    if (t->role == ROLE_READ)
      sent = t;
  }
  for (int i = 0; i < n; i++) {
    NumericTensor *t = broadcast_operand(&members[i], tensor);
    const NumericTensor *from = sent != NULL ? sent : broadcast_operand(&members[0], tensor);
    gsize bytes = sizeof(double) * (gsize) t->elements;
    if (t->elements != from->elements)
      return g_strdup("what is sent is not as large as what is received");
    if (sent == NULL && memcmp(t->data, from->data, bytes) != 0)
      return g_strdup("members bring different tensors, and nobody has said who sends");
    if (t != from)
      memcpy(t->data, from->data, bytes);
  }
  return NULL;
}

static char *
broadcast_all(const CollectiveMember *members, int n)
{
  char *fault = members[0].operands == 0 ? g_strdup("it names no tensor that it works on") : NULL;
  for (int i = 0; i < members[0].operands && fault == NULL; i++)
    fault = broadcast(members, n, i);
  return fault;
}

/* ---- all ---- */

/* What a sum is multiplied by. */
static char *
factor_of(const Program *program, const Collective *c, int n, double *factor)
{
  *factor = 1;
  if (c->meaning == 0)
    return NULL;
  g_autofree char *formula = meaning_formula(program, c->meaning, 0);
  if (strcmp(formula, "avg") == 0)
    *factor = 1.0 / n;
  else if (strcmp(formula, "sum") == 0)
    return NULL;
  else if (strcmp(formula, "premul") != 0 || !meaning_number(program, c->meaning, "factor", factor))
    return g_strdup_printf("nobody has said how '%s' reduces", formula);
  return NULL;
}

static char *
run_pairs(const CollectiveCall *call, Pair *pairs, int n)
{
  const Collective *c = call->collective;
  Reduction how = {.rounds = call->rounds};
  char *fault = factor_of(call->program, c, n, &how.factor);
  if (fault != NULL)
    return fault;
  for (int i = 1; i < n; i++)
    if (pairs[i].in->elements != pairs[0].in->elements)
      return g_strdup_printf("members bring %" G_GINT64_FORMAT " and %" G_GINT64_FORMAT " elements",
                             pairs[0].in->elements, pairs[i].in->elements);
  switch ((CollectiveKind) c->kind) {
  case COLLECTIVE_ALL_REDUCE:
    return all_reduce(pairs, n, &how);
  case COLLECTIVE_REDUCE_SCATTER:
    return reduce_scatter(pairs, n, &how);
  case COLLECTIVE_ALL_GATHER:
    return all_gather(pairs, n);
  case COLLECTIVE_REDUCE:
    return reduce(call, pairs, n);
  default:
    return g_strdup_printf("%s is not yet executed on numbers",
                           program_collective_name((CollectiveKind) c->kind));
  }
}

char *
numeric_collective(const CollectiveCall *call, CollectiveMember *members, int n)
{
  const Collective *c = call->collective;
  if (c->kind == COLLECTIVE_BROADCAST)
    return broadcast_all(members, n);
  char *fault = NULL;
  g_autofree Pair *pairs = g_new(Pair, MAX(n, 1));
  int tensors = 0;
  while (fault == NULL && pair_of(&members[0], tensors, &pairs[0])) {
    for (int i = 1; i < n && fault == NULL; i++)
      if (!pair_of(&members[i], tensors, &pairs[i]))
        fault = g_strdup("members bring different numbers of tensors");
    if (fault == NULL)
      fault = run_pairs(call, pairs, n);
    tensors++;
  }
  if (fault == NULL && tensors == 0)
    fault = g_strdup("it names no tensor that it works on");
  return fault;
}
