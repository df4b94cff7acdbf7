/* rank_set.c - sets of global ranks as runs. */
#include "program/rank_set.h"

/* How many runs a text names before it gives up. */
#define RUNS_IN_TEXT 8

static const RankRun *
run_of(const RankSet *set, guint i)
{
  return &g_array_index(set->runs, RankRun, i);
}

static guint
count_runs(const RankSet *set)
{
  return set->runs != NULL ? set->runs->len : 0;
}

void
rank_set_append_run(RankSet *set, RankRun run)
{
  if (set->runs == NULL)
    set->runs = g_array_new(FALSE, FALSE, sizeof(RankRun));
  guint n = set->runs->len;
  g_assert(run.first <= run.last && (n == 0 || run.first > run_of(set, n - 1)->last + 1));
  g_array_append_val(set->runs, run);
}

void
rank_set_append(RankSet *set, int rank)
{
  guint n = count_runs(set);
  RankRun *last = n > 0 ? &g_array_index(set->runs, RankRun, n - 1) : NULL;
  g_assert(last == NULL || rank > last->last);
  if (last != NULL && rank == last->last + 1)
    last->last = rank;
  else
    rank_set_append_run(set, (RankRun){rank, rank});
}

void
rank_set_clear(RankSet *set)
{
  g_clear_pointer(&set->runs, g_array_unref);
}

gint64
rank_set_size(const RankSet *set)
{
  gint64 size = 0;
  for (guint i = 0; i < count_runs(set); i++)
    size += run_of(set, i)->last - run_of(set, i)->first + 1;
  return size;
}

gboolean
rank_set_contains(const RankSet *set, int rank)
{
  for (guint i = 0; i < count_runs(set); i++)
    if (rank >= run_of(set, i)->first && rank <= run_of(set, i)->last)
      return TRUE;
  return FALSE;
}

char *
rank_set_text(const RankSet *set)
{
  gint64 size = rank_set_size(set);
  if (size == 0)
    return g_strdup("no rank");
  GString *text = g_string_new(size == 1 ? "rank " : "ranks ");
  guint n = count_runs(set);
  for (guint i = 0; i < MIN(n, RUNS_IN_TEXT); i++) {
    const RankRun *run = run_of(set, i);
    g_string_append_printf(text, i > 0 ? ", %d" : "%d", run->first);
    if (run->last > run->first)
      g_string_append_printf(text, "-%d", run->last);
  }
  if (n > RUNS_IN_TEXT)
    g_string_append_printf(text, ", ... (%" G_GINT64_FORMAT " ranks)", size);
  return g_string_free(text, FALSE);
}
