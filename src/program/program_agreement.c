/* program_agreement.c - whether two ranks would meet in every collective. */
#include "base/units.h"
#include "program/program_schema.h"

/* One communicator in both programs; b: its id in b, or -1. */
typedef struct {
  const Program *a, *b;
  gint32 id_a, id_b;
  GError **error;
} Pair;

/* The next collective of the communicator from op *at on; moves *at beyond it.  NULL at the end. */
static const Collective *
next_collective(const Program *program, const OpList *list, gint32 communicator, guint *at)
{
  while (*at < list->ops->len) {
    const ProgramOp *op = &g_array_index(list->ops, ProgramOp, (*at)++);

    if (op->kind == PROGRAM_COLLECTIVE) {
      const Collective *found = &g_array_index(program->collectives, Collective, op->a);

      if (found->communicator == communicator)
        return found;
    }
  }
  return NULL;
}

static char *
describe(const Collective *collective)
{
  if (collective == NULL)
    return g_strdup("nothing");
  return g_strdup_printf("%s of %" G_GINT64_FORMAT " bytes of %s",
                         program_value_name(VALUE_COLLECTIVE_KIND, collective->kind),
                         collective->bytes, program_value_name(VALUE_DTYPE, collective->dtype));
}

static gboolean
same_collective(const Collective *a, const Collective *b)
{
  return a != NULL && b != NULL && a->kind == b->kind && a->bytes == b->bytes &&
         a->dtype == b->dtype;
}

/* step 0 is the construction. */
static gboolean
lists_agree(const Pair *pair, int step, const OpList *list_a, const OpList *list_b)
{
  guint at_a = 0, at_b = 0;

  for (int count = 0;; count++) {
    const Collective *a = next_collective(pair->a, list_a, pair->id_a, &at_a);
    const Collective *b =
        pair->id_b < 0 ? NULL : next_collective(pair->b, list_b, pair->id_b, &at_b);

    if (a == NULL && b == NULL)
      return TRUE;
    if (!same_collective(a, b)) {
      const Communicator *communicator =
          &g_array_index(pair->a->communicators, Communicator, pair->id_a);
      g_autofree char *one = describe(a), *other = describe(b);

      g_set_error(
          pair->error, HIGHWATER_ERROR, HIGHWATER_ERROR_INPUT,
          "program: communicator %s, step %d, collective %d: one rank issues %s, another %s",
          program_text(pair->a, communicator->name), step, count, one, other);
      return FALSE;
    }
  }
}

/* Lists that were compared in the step before need no second look. */
static gboolean
steps_agree(const Pair *pair)
{
  const OpList *last_a = g_ptr_array_index(pair->a->lists, 0);
  const OpList *last_b = g_ptr_array_index(pair->b->lists, 0);

  if (!lists_agree(pair, 0, last_a, last_b))
    return FALSE;
  for (int step = 0; step < pair->a->steps; step++) {
    const OpList *list_a = program_step(pair->a, step), *list_b = program_step(pair->b, step);

    if (list_a == last_a && list_b == last_b)
      continue;
    if (!lists_agree(pair, step + 1, list_a, list_b))
      return FALSE;
    last_a = list_a;
    last_b = list_b;
  }
  return TRUE;
}

static gint32
find_communicator(const Program *program, const char *name, const Communicator *like)
{
  for (guint i = 0; i < program->communicators->len; i++) {
    const Communicator *known = &g_array_index(program->communicators, Communicator, i);

    if (known->ranks == like->ranks && known->stride == like->stride &&
        g_str_equal(program_text(program, known->name), name))
      return (gint32) i;
  }
  return -1;
}

/* Every communicator of a against the same one of b. */
static gboolean
communicators_agree(const Program *a, const Program *b, GError **error)
{
  for (guint i = 0; i < a->communicators->len; i++) {
    const Communicator *communicator = &g_array_index(a->communicators, Communicator, i);
    Pair pair = {a, b, (gint32) i, -1, error};

    pair.id_b = find_communicator(b, program_text(a, communicator->name), communicator);
    if (!steps_agree(&pair))
      return FALSE;
  }
  return TRUE;
}

gboolean
program_check_agreement(const Program *a, const Program *b, GError **error)
{
  g_return_val_if_fail(a->lists->len > 0 && b->lists->len > 0, FALSE);
  if (a->steps != b->steps) {
    g_set_error(error, HIGHWATER_ERROR, HIGHWATER_ERROR_INPUT,
                "program: one rank has %d steps, another %d", a->steps, b->steps);
    return FALSE;
  }
  return communicators_agree(a, b, error) && communicators_agree(b, a, error);
}
