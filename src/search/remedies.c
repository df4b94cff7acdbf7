/* remedies.c - tries every change that applies, and the best of them together. */
#include "search/remedies.h"

#include <string.h>

#include "search/remedy_kinds.h"

/* So many of the best changes are tried together, and at most so many at once. */
enum { TOGETHER_CANDIDATES = 5, TOGETHER_MOST = 3 };

guint
remedy_kind_count(void)
{
  guint n = 0;
  while (remedy_kinds[n].name != NULL)
    n++;
  return n;
}

const char *
remedy_kind_name(guint i)
{
  return remedy_kinds[i].name;
}

const char *
remedy_kind_summary(guint i)
{
  return remedy_kinds[i].summary;
}

void
remedy_free(Remedy *remedy)
{
  if (remedy == NULL)
    return;
  g_strfreev(remedy->assignments);
  outcome_clear(&remedy->outcome);
  g_free(remedy);
}

static void
free_remedy(gpointer remedy)
{
  remedy_free(remedy);
}

/* ---- proposals ---- */

static void
add_remedy(GPtrArray *remedies, const RemedyKind *kind, char **assignments)
{
  Remedy *remedy = g_new0(Remedy, 1);
  remedy->name = kind != NULL ? kind->name : NULL;
  remedy->summary = kind != NULL ? kind->summary : NULL;
  remedy->assignments = assignments;
  g_ptr_array_add(remedies, remedy);
}

static GPtrArray *
propose_all(const RemedyBase *base)
{
  const RemedyPlan plan = {base->scenario->plan, base->scenario->network, base->info};
  GPtrArray *remedies = g_ptr_array_new_with_free_func(free_remedy);
  for (const RemedyKind *kind = remedy_kinds; kind->name != NULL; kind++) {
    g_autoptr(GPtrArray) proposals = g_ptr_array_new();
    kind->propose(&plan, proposals);
    for (guint i = 0; i < proposals->len; i++)
      add_remedy(remedies, kind, g_ptr_array_index(proposals, i));
  }
  return remedies;
}

/* ---- trials ---- */

/* Runs the remedies that are chosen, and calls took with what came out. */
static void
run_trials(const RunRequest *request, GPtrArray *remedies, gboolean (*chosen)(const Remedy *remedy),
           void (*took)(Remedy *remedy, Outcome *outcome), int workers)
{
  g_autofree Trial *trials = g_new0(Trial, remedies->len + 1);
  g_autofree Remedy **of = g_new0(Remedy *, remedies->len + 1);
  guint count = 0;
  for (guint i = 0; i < remedies->len; i++) {
    Remedy *remedy = g_ptr_array_index(remedies, i);
    if (!chosen(remedy))
      continue;
    of[count] = remedy;
    trials[count++].assignments = remedy->assignments;
  }
  trials_run(request, trials, count, workers, NULL, NULL);
  for (guint i = 0; i < count; i++)
    took(of[i], &trials[i].outcome);
}

static gboolean
is_any(const Remedy *remedy)
{
  return remedy != NULL;
}

static void
take_outcome(Remedy *remedy, Outcome *outcome)
{
  remedy->outcome = *outcome;
  remedy->needs_allocated = outcome->peak_allocated;
  remedy->needs_reserved = outcome->peak_reserved;
}

/* What it would need is not known where memory ran out, or nearly did. */
static gboolean
is_pressed(const Remedy *remedy)
{
  return remedy->outcome.refusal == NULL && remedy->outcome.verdict != VERDICT_FITS;
}

static void
take_needs(Remedy *remedy, Outcome *outcome)
{
  remedy->needs_allocated = outcome->peak_allocated;
  remedy->needs_reserved = outcome->peak_reserved;
  outcome_clear(outcome);
}

static void
drop_refused(GPtrArray *remedies)
{
  for (guint i = remedies->len; i > 0; i--)
    if (((Remedy *) g_ptr_array_index(remedies, i - 1))->outcome.refusal != NULL)
      g_ptr_array_remove_index(remedies, i - 1);
}

static gboolean
does_fit(Verdict verdict)
{
  return verdict != VERDICT_DOES_NOT_FIT;
}

static void
try_all(const RemedyBase *base, GPtrArray *remedies, int workers)
{
  run_trials(base->request, remedies, is_any, take_outcome, workers);
  drop_refused(remedies);
  RunRequest endless = *base->request;
  endless.without_limit = TRUE;
  run_trials(&endless, remedies, is_pressed, take_needs, workers);
  for (guint i = 0; i < remedies->len; i++) {
    Remedy *remedy = g_ptr_array_index(remedies, i);
    remedy->helps = (does_fit(remedy->outcome.verdict) && !does_fit(base->verdict)) ||
                    remedy->needs_allocated < base->needs_allocated ||
                    remedy->needs_reserved < base->needs_reserved;
  }
}

/* ---- together ---- */

static gsize
key_length(const char *assignment)
{
  return strcspn(assignment, "=");
}

/* Do two changes assign one key, or one a section of the other's? */
static gboolean
are_at_odds(const Remedy *a, const Remedy *b)
{
  for (char **x = a->assignments; *x != NULL; x++)
    for (char **y = b->assignments; *y != NULL; y++) {
      gsize length = MIN(key_length(*x), key_length(*y));
      if (strncmp(*x, *y, length) == 0 && strchr(".=", (*x)[length]) && strchr(".=", (*y)[length]))
        return TRUE;
    }
  return FALSE;
}

static int
compare_needs(gconstpointer a, gconstpointer b)
{
  const Remedy *x = *(Remedy *const *) a, *y = *(Remedy *const *) b;
  if (x->needs_reserved != y->needs_reserved)
    return x->needs_reserved < y->needs_reserved ? -1 : 1;
  return x->needs_allocated < y->needs_allocated   ? -1
         : x->needs_allocated > y->needs_allocated ? 1
                                                   : 0;
}

/* The best of each kind that helps, at most TOGETHER_CANDIDATES; borrowed. */
static GPtrArray *
best_of_kinds(const GPtrArray *remedies)
{
  g_autoptr(GPtrArray) sorted = g_ptr_array_new();
  for (guint i = 0; i < remedies->len; i++)
    g_ptr_array_add(sorted, g_ptr_array_index(remedies, i));
  g_ptr_array_sort(sorted, compare_needs);
  GPtrArray *best = g_ptr_array_new();
  for (guint i = 0; i < sorted->len && best->len < TOGETHER_CANDIDATES; i++) {
    Remedy *remedy = g_ptr_array_index(sorted, i);
    gboolean is_first = remedy->helps;
    for (guint k = 0; k < best->len && is_first; k++)
      is_first = ((Remedy *) g_ptr_array_index(best, k))->name != remedy->name;
    if (is_first)
      g_ptr_array_add(best, remedy);
  }
  return best;
}

/* Those of the set (a bit each), after each other; NULL when two are at odds. */
static char **
join(const GPtrArray *best, guint set)
{
  g_autoptr(GPtrArray) members = g_ptr_array_new();
  GPtrArray *all = g_ptr_array_new_with_free_func(g_free);
  for (guint i = 0; i < best->len; i++) {
    Remedy *remedy = g_ptr_array_index(best, i);
    if ((set >> i & 1) == 0)
      continue;
    for (guint k = 0; k < members->len; k++)
      if (are_at_odds(g_ptr_array_index(members, k), remedy)) {
        g_ptr_array_unref(all);
        return NULL;
      }
    g_ptr_array_add(members, remedy);
    for (char **assignment = remedy->assignments; *assignment != NULL; assignment++)
      g_ptr_array_add(all, g_strdup(*assignment));
  }
  g_ptr_array_add(all, NULL);
  g_ptr_array_set_free_func(all, NULL);
  return (char **) (gpointer) g_ptr_array_free(all, FALSE);
}

static gboolean
any_fits(const GPtrArray *remedies)
{
  for (guint i = 0; i < remedies->len; i++)
    if (does_fit(((Remedy *) g_ptr_array_index(remedies, i))->outcome.verdict))
      return TRUE;
  return FALSE;
}

/* Twos; where none of them fits, threes. */
static void
try_together(const RemedyBase *base, GPtrArray *remedies, int workers)
{
  g_autoptr(GPtrArray) best = best_of_kinds(remedies);
  for (int size = 2; size <= TOGETHER_MOST && !any_fits(remedies); size++) {
    GPtrArray *together = g_ptr_array_new_with_free_func(free_remedy);
    for (guint set = 0; set < 1u << best->len; set++) {
      char **assignments = __builtin_popcount(set) == size ? join(best, set) : NULL;
      if (assignments != NULL)
        add_remedy(together, NULL, assignments);
    }
    try_all(base, together, workers);
    g_ptr_array_extend_and_steal(remedies, together);
  }
}

/* ---- order ---- */

static double
time_per_token(const Remedy *remedy)
{
  return (double) remedy->outcome.time.step / (double) MAX(remedy->outcome.tokens_per_step, 1);
}

static int
class_of(const Remedy *remedy)
{
  return !remedy->helps ? 2 : does_fit(remedy->outcome.verdict) ? 0 : 1;
}

static int
compare_remedies(gconstpointer a, gconstpointer b)
{
  const Remedy *x = *(Remedy *const *) a, *y = *(Remedy *const *) b;
  if (class_of(x) != class_of(y))
    return class_of(x) - class_of(y);
  if (class_of(x) == 0 && time_per_token(x) != time_per_token(y))
    return time_per_token(x) < time_per_token(y) ? -1 : 1;
  return compare_needs(a, b);
}

GPtrArray *
remedies_try(const RemedyBase *base, int workers)
{
  GPtrArray *remedies = propose_all(base);
  try_all(base, remedies, workers);
  if (!does_fit(base->verdict))
    try_together(base, remedies, workers);
  g_ptr_array_sort(remedies, compare_remedies); /* a stable sort */
  return remedies;
}
