/* equivalence_text.c - what was found of gradients and updates, as text; two variants compared. */
#include "search/equivalence.h"

static const ParameterEvidence *
evidence(const EquivalenceReport *r, guint i)
{
  return &g_array_index(r->parameters, ParameterEvidence, i);
}

/* ---- two variants ---- */

/* The same parameters, trained or not, in any order that both have. */
static char *
parameters_differ(const EquivalenceReport *a, const EquivalenceReport *b)
{
  if (a->parameters->len != b->parameters->len)
    return g_strdup_printf("%u parameters against %u", a->parameters->len, b->parameters->len);
  for (guint i = 0; i < a->parameters->len; i++) {
    const ParameterEvidence *x = evidence(a, i), *y = evidence(b, i);
    if (!g_str_equal(x->name, y->name) || x->elements != y->elements)
      return g_strdup_printf("parameter %s against %s", x->name, y->name);
    if (x->trained != y->trained || x->apart != y->apart)
      return g_strdup_printf("%s is trained by all ranks together in one of them only", x->name);
  }
  return NULL;
}

char *
equivalence_difference(const EquivalenceReport *a, const EquivalenceReport *b)
{
  const EquivalenceReport *both[] = {a, b};
  for (int i = 0; i < 2; i++)
    if (both[i]->violation != NULL)
      return g_strdup(both[i]->violation);
  if (a->ranks != b->ranks)
    return g_strdup_printf("%d ranks against %d", a->ranks, b->ranks);
  if (a->sequences != b->sequences)
    return g_strdup_printf("a gradient is the mean over %" G_GINT64_FORMAT
                           " sequences against %" G_GINT64_FORMAT,
                           a->sequences, b->sequences);
  return parameters_differ(a, b);
}

/* ---- text ---- */

typedef struct {
  int trained, frozen, apart;
  int fewest, most; /* owners */
} Counts;

static Counts
count(const EquivalenceReport *r)
{
  Counts c = {.fewest = G_MAXINT};
  for (guint i = 0; i < r->parameters->len; i++) {
    const ParameterEvidence *e = evidence(r, i);
    c.trained += e->trained && !e->apart;
    c.frozen += !e->trained;
    c.apart += e->trained && e->apart;
    if (!e->trained)
      continue;
    c.fewest = MIN(c.fewest, e->owners);
    c.most = MAX(c.most, e->owners);
  }
  return c;
}

static void
print_details(const EquivalenceReport *r, GString *out)
{
  g_string_append(out,
                  "# parameter group elements reduced_over ways owners most least collectives\n");
  for (guint i = 0; i < r->parameters->len; i++) {
    const ParameterEvidence *e = evidence(r, i);
    g_string_append_printf(
        out, "%s %s %" G_GINT64_FORMAT " %d %d %d %" G_GINT64_FORMAT " %" G_GINT64_FORMAT " %s\n",
        e->name, e->group != NULL ? e->group : "-", e->elements, e->reduced_ranks, e->reductions,
        e->owners, e->most, e->least,
        !e->trained              ? "frozen"
        : e->collectives == NULL ? "none"
                                 : e->collectives);
  }
}

void
equivalence_print(const EquivalenceReport *r, gboolean details, GString *out)
{
  Counts c = count(r);
  if (r->violation != NULL)
    g_string_append_printf(out, "not equivalent: %s\n", r->violation);
  else
    g_string_append_printf(out,
                           "equivalent: in step %d the gradients of %d parameters, each of %d "
                           "micro-batch%s, are reduced once over %d rank%s\n",
                           r->step, c.trained, r->micro_batches, r->micro_batches == 1 ? "" : "es",
                           r->ranks, r->ranks == 1 ? "" : "s");
  if (r->violation == NULL && r->not_followed == NULL)
    g_string_append_printf(out, "  every element is updated once by %s%d to %d of %d ranks\n",
                           "its owner: a parameter has ", c.fewest, c.most, r->owners);
  if (c.apart > 0)
    g_string_append_printf(out, "  %d parameters are kept apart: no rank reduces their gradients\n",
                           c.apart);
  if (c.frozen > 0)
    g_string_append_printf(out, "  %d parameters are frozen: nothing is done to them\n", c.frozen);
  if (r->not_followed != NULL)
    g_string_append_printf(out, "  not followed: %s\n", r->not_followed);
  if (r->followed < r->owners)
    g_string_append_printf(out,
                           "  followed: %d of %d ranks; the others hold what the layout says\n",
                           r->followed, r->owners);
  if (details)
    print_details(r, out);
}
