/* nccl_tests_identity.c - which collective an nccl-tests table is of, and on how many ranks. */
#include "import/nccl_tests_internal.h"
#include <math.h>
#include <string.h>

#define RANKS_MAX (1 << 20)

/* A collective of nccl-tests. */
typedef struct {
  const char *name;
  const char *abbreviations[3]; /* in names of files */
  char redop;                   /* as in RawRow */
  gboolean rooted;
  gboolean split; /* count is of one rank's part: bytes are count times ranks */
  int passes;     /* bus bandwidth is passes (R-1)/R of the algorithm's; 0: it is the same */
} TestKind;

static const TestKind kinds[] = {
    {"all_reduce", {"allreduce", "ar"}, 's', FALSE, FALSE, 2},
    {"all_gather", {"allgather", "ag"}, 'n', FALSE, TRUE, 1},
    {"reduce_scatter", {"reducescatter", "rs"}, 's', FALSE, TRUE, 1},
    {"alltoall", {"all_to_all", "a2a"}, 'n', FALSE, TRUE, 1},
    {"broadcast", {"bcast"}, 'n', TRUE, FALSE, 0},
    {"reduce", {NULL}, 's', TRUE, FALSE, 0},
    {"sendrecv", {"send_recv"}, 'n', FALSE, FALSE, 0},
};

static const TestKind *
kind_of(const char *name)
{
  for (guint i = 0; name && i < G_N_ELEMENTS(kinds); i++)
    if (g_str_equal(name, kinds[i].name))
      return &kinds[i];
  return NULL;
}

double
nccl_tests_factor(const char *collective, int ranks)
{
  const TestKind *kind = kind_of(collective);
  g_assert(kind);
  return kind->passes > 0 ? kind->passes * (ranks - 1.0) / ranks : 1;
}

/* ---- names in texts */

/* Does the word stand in the text by itself?  "reduce" does not in "all_reduce_perf". */
static gboolean
has_word(const char *text, const char *word)
{
  gsize length = strlen(word);
  for (const char *p = strstr(text, word); p; p = strstr(p + 1, word)) {
    gboolean begins = p == text || !(g_ascii_isalnum(p[-1]) || p[-1] == '_');
    gboolean ends = !g_ascii_isalnum(p[length]) && p[length] != '_';
    if (begins && (ends || g_str_has_prefix(p + length, "_perf")))
      return TRUE;
  }
  return FALSE;
}

const char *
nccl_tests_collective_in(const char *text, int *count)
{
  const char *found = NULL;
  *count = 0;
  for (guint i = 0; i < G_N_ELEMENTS(kinds); i++) {
    g_autofree char *program = g_strconcat(kinds[i].name, "_perf", NULL);
    if (!has_word(text, kinds[i].name) || !strstr(text, program))
      continue;
    found = kinds[i].name;
    ++*count;
  }
  return found;
}

/* ---- what rows say */

/* Ranks that the counts of the rows tell, if bytes are count times ranks; 0: they do not. */
static int
ranks_by_count(const GArray *rows)
{
  const RawRow *last = &g_array_index(rows, RawRow, rows->len - 1);
  gint64 one = last->count * last->element_bytes;
  if (one <= 0 || last->bytes % one != 0)
    return 0;
  gint64 ranks = last->bytes / one;
  return ranks <= RANKS_MAX ? (int) ranks : 0;
}

/* Range of bus bandwidth over algorithm bandwidth that the printed decimals leave. */
typedef struct {
  double low, high;
} Range;

static void
narrow(Range *range, const RawTiming *timing)
{
  const double half = 0.00501;
  if (timing->time_us <= 0 || timing->algbw < 0.1)
    return;
  range->low = MAX(range->low, (timing->busbw - half) / (timing->algbw + half));
  range->high = MIN(range->high, (timing->busbw + half) / (timing->algbw - half));
}

/* By the rows from `first` on. */
static Range
ratio_from(const GArray *rows, guint first)
{
  Range range = {0, INFINITY};
  for (guint i = first; i < rows->len; i++) {
    const RawRow *row = &g_array_index(rows, RawRow, i);
    narrow(&range, &row->out_of_place);
    narrow(&range, &row->in_place);
  }
  return range;
}

/* Where rows contradict each other the last one, with the most digits, decides. */
static Range
bandwidth_ratio(const GArray *rows)
{
  Range all = ratio_from(rows, 0);
  return all.low <= all.high ? all : ratio_from(rows, rows->len - 1);
}

/* In-place sendrecv and alltoall are not checked. */
static gboolean
in_place_unchecked(const GArray *rows)
{
  const RawRow *row = &g_array_index(rows, RawRow, 0);
  return row->in_place.time_us > 0 && row->in_place.unchecked && !row->out_of_place.unchecked;
}

/* ---- the collective */

/* How well a kind fits the rows; below 0: not at all. */
static int
fits(const TestKind *kind, const TableHeader *header, const GArray *rows)
{
  const RawRow *row = &g_array_index(rows, RawRow, 0);
  int by_count = ranks_by_count(rows), score = 0;
  Range ratio = bandwidth_ratio(rows);
  gboolean exchange = g_str_equal(kind->name, "sendrecv") || g_str_equal(kind->name, "alltoall");
  /* Some versions print "sum" for sendrecv. */
  if (row->redop && row->redop != kind->redop && !g_str_equal(kind->name, "sendrecv"))
    return -1;
  if (row->root != ROOT_ABSENT && (row->root >= 0) != kind->rooted)
    return -1;
  if (by_count > 1 && !kind->split)
    return -1;
  if (by_count == 1 && kind->split)
    return -1;
  if (kind->passes == 2 && ratio.high < 1)
    return -1;
  if (kind->passes == 0 && (ratio.low > 1 || ratio.high < 1))
    return -1;
  score += 2 * (exchange == in_place_unchecked(rows));
  score += row->redop == kind->redop;
  score += 8 * (header->mentioned && g_str_equal(header->mentioned, kind->name));
  score += 4 * (header->name_collective && g_str_equal(header->name_collective, kind->name));
  score += 16 * (header->collective && g_str_equal(header->collective, kind->name));
  return score;
}

static const TestKind *
best_kind(const TableHeader *header, const GArray *rows)
{
  const TestKind *best = NULL;
  int most = -1;
  for (guint i = 0; i < G_N_ELEMENTS(kinds); i++) {
    int score = fits(&kinds[i], header, rows);
    if (score > most) {
      most = score;
      best = &kinds[i];
    }
  }
  return best;
}

/* ---- the ranks */

/* ratio = passes (R-1)/R; the pre-2020 layout, which prints one bandwidth twice, tells nothing. */
static gboolean
ranks_within(const TestKind *kind, Range ratio, int ranks)
{
  double factor = kind->passes * (ranks - 1.0) / ranks;
  return factor >= ratio.low && factor <= ratio.high;
}

static int
ranks_by_bandwidth(const TestKind *kind, Range ratio)
{
  double low = MAX(ratio.low / kind->passes, 0), high = MIN(ratio.high / kind->passes, 1);
  if (!(low > 0) || low > high)
    return 0;
  double least = 1 / (1 - low), most = high < 1 ? 1 / (1 - high) : INFINITY;
  if (!(least < RANKS_MAX) || most > 4 * least)
    return 0;
  /* Of several numbers the one that is divided by the largest power of two is the likeliest: whole
   * nodes of whole racks. */
  for (double step = RANKS_MAX; step >= 1; step /= 2) {
    double ranks = MAX(2, ceil(least / step) * step);
    if (ranks <= most)
      return (int) ranks;
  }
  return 0;
}

TableIdentity
nccl_tests_identify(const TableHeader *header, const GArray *rows, NcclTestsHints hints)
{
  const TestKind *kind = best_kind(header, rows);
  int by_count = ranks_by_count(rows), by_name = header->name_nodes * header->name_gpus;
  if (!kind)
    return (TableIdentity){0};
  TableIdentity identity = {.collective = kind->name};
  Range ratio = bandwidth_ratio(rows);
  gboolean telling = kind->passes > 0 && ratio.high < INFINITY;
  if (by_name > 1 && telling && !ranks_within(kind, ratio, by_name))
    by_name = 0;
  const struct {
    int ranks;
    RanksSource source;
  } answers[] = {
      {hints.ranks, RANKS_FROM_CALLER},
      {header->ranks, RANKS_FROM_DEVICES},
      {kind->split ? by_count : 0, RANKS_FROM_COUNT},
      {by_name, RANKS_FROM_NAME},
      {telling && header->gpus > 1 && ranks_within(kind, ratio, header->gpus) ? header->gpus : 0,
       RANKS_FROM_NAME},
      {telling ? ranks_by_bandwidth(kind, ratio) : 0, RANKS_FROM_BANDWIDTHS},
      {kind->passes == 0 ? header->gpus : 0, RANKS_FROM_NAME},
  };
  for (guint i = 0; i < G_N_ELEMENTS(answers) && identity.ranks == 0; i++) {
    identity.ranks = answers[i].ranks;
    identity.source = answers[i].source;
  }
  return identity;
}
