/* numeric_order.c - who goes on first: orders in which one stream, all hosts or one rank is delayed
 * until nothing else can go on, or runs ahead of all else, and random ones. */
#include "numeric/numeric_order.h"

#include "numeric/numeric_random.h"

enum { CHANGES_ONE_IN = 48 };

/* An order that delays somebody, or lets him run ahead. */
typedef struct {
  enum { PART, RANK } of;
  int which; /* a part of all ranks, or a rank */
  gboolean early;
} Adversary;

/* Does any rank ever give something to this stream? */
static gboolean
is_used(const NumericConfig *config, int stream)
{
  for (int rank = 0; rank < config->ranks; rank++)
    for (guint l = 0; l < config->programs[rank]->lists->len; l++) {
      const GArray *ops = ((const OpList *) config->programs[rank]->lists->pdata[l])->ops;
      for (guint i = 0; i < ops->len; i++) {
        const ProgramOp *op = &g_array_index(ops, ProgramOp, i);
        gboolean works = op->kind == PROGRAM_LAUNCH || op->kind == PROGRAM_COPY ||
                         op->kind == PROGRAM_COLLECTIVE;
        if (works && op->stream == stream)
          return TRUE;
      }
    }
  return FALSE;
}

static void
add(GArray *adversaries, Adversary a)
{
  g_array_append_val(adversaries, a);
}

/* Whatever only one missing wait lets go wrong shows when the one who is waited for is late, or the
 * one who waits early. */
static GArray *
adversaries_of(const NumericConfig *config)
{
  GArray *all = g_array_new(FALSE, FALSE, sizeof(Adversary));
  for (int early = 0; early < 2; early++) {
    for (int part = 0; part < NUMERIC_PARTS; part++)
      if (part == NUMERIC_HOST || is_used(config, part))
        add(all, (Adversary){PART, part, early});
    for (int rank = 0; rank < config->ranks && config->ranks > 1; rank++)
      add(all, (Adversary){RANK, rank, early});
  }
  return all;
}

guint64
numeric_adversaries(const NumericConfig *config)
{
  g_autoptr(GArray) all = adversaries_of(config);
  return all->len;
}

/* Hosts run ahead of streams; what the adversary is about comes last, or first. */
static double
priority_of(const Adversary *a, int rank, int part)
{
  enum { LAST, STREAMS, HOSTS, FIRST };
  if (a->of == PART ? a->which == part : a->which == rank)
    return a->early ? FIRST : LAST;
  return part == NUMERIC_HOST ? HOSTS : STREAMS;
}

/* Puts the actor at a place of the sorted ones where it belongs. */
static void
settle(NumericOrder *order, int place)
{
  int *sorted = order->sorted, actor = sorted[place];
  const double *priority = order->priority;
  for (; place > 0 && priority[sorted[place - 1]] < priority[actor]; place--)
    sorted[place] = sorted[place - 1];
  for (; place + 1 < order->actors && priority[sorted[place + 1]] > priority[actor]; place++)
    sorted[place] = sorted[place + 1];
  sorted[place] = actor;
}

void
numeric_order_init(NumericOrder *order, const NumericConfig *config)
{
  g_autoptr(GArray) all = adversaries_of(config);
  int n = config->ranks * NUMERIC_PARTS;
  *order = (NumericOrder){
      .priority = g_new(double, MAX(n, 1)), .sorted = g_new(int, MAX(n, 1)), .actors = n};
  order->is_random = config->order > all->len;
  order->key = numeric_key(config->order - all->len, "order");
  for (int i = 0; i < n; i++)
    order->priority[i] = order->is_random
                             ? numeric_uniform(order->key, order->counter++)
                             : priority_of(&g_array_index(all, Adversary, config->order - 1),
                                           i / NUMERIC_PARTS, i % NUMERIC_PARTS);
  for (int i = 0; i < n; i++)
    order->sorted[i] = i;
  for (int i = 1; i < n; i++) /* those behind are as if they were not there */
    settle(&(NumericOrder){.priority = order->priority, .sorted = order->sorted, .actors = i + 1},
           i);
}

void
numeric_order_clear(NumericOrder *order)
{
  g_clear_pointer(&order->priority, g_free);
  g_clear_pointer(&order->sorted, g_free);
}

/* In random orders the actor gets another priority now and then.  So one runs far ahead of the
 * rest, until it is overtaken (Burckhardt and others, A randomized scheduler with probabilistic
 * guarantees of finding bugs, ASPLOS 2010). */
void
numeric_order_moved(NumericOrder *order, int place)
{
  if (!order->is_random || numeric_choice(order->key, order->counter++, CHANGES_ONE_IN) != 0)
    return;
  order->priority[order->sorted[place]] = numeric_uniform(order->key, order->counter++);
  settle(order, place);
}
