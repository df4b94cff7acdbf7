/* rank_classes.c - refines a colouring of ranks until those of a colour meet the same colours. */
#include "exec/rank_classes.h"

#include "program/program.h"
#include <stdlib.h>
#include <string.h>

/* Numbers given to rows of ints, in order of appearance. */
typedef struct {
  GHashTable *numbers; /* GBytes * -> number + 1 */
  int n;
} RowNumbers;

static RowNumbers
row_numbers_new(void)
{
  return (RowNumbers){.numbers = g_hash_table_new_full(g_bytes_hash, g_bytes_equal,
                                                       (GDestroyNotify) g_bytes_unref, NULL)};
}

static int
row_number(RowNumbers *rows, const int *row, guint length)
{
  g_autoptr(GBytes) key = g_bytes_new(row, length * sizeof(int));
  int known = GPOINTER_TO_INT(g_hash_table_lookup(rows->numbers, key));
  if (known > 0)
    return known - 1;
  g_hash_table_insert(rows->numbers, g_steal_pointer(&key), GINT_TO_POINTER(++rows->n));
  return rows->n - 1;
}

/* ---- groups of a communicator ---- */

static int
group_of(const Communicator *c, int rank)
{
  int span = c->ranks * c->stride;
  return rank / span * c->stride + rank % c->stride;
}

static int
member(const Communicator *c, int group, int i)
{
  int span = c->ranks * c->stride;
  return group / c->stride * span + group % c->stride + i * c->stride;
}

static int
compare_ints(const void *a, const void *b)
{
  int x = *(const int *) a, y = *(const int *) b;
  return (x > y) - (x < y);
}

/* The colours in a group, sorted, each once; returns how many. */
static guint
colours_of_group(const Communicator *c, int group, int ranks, const int *colours, int *out)
{
  guint n = 0, distinct = 0;
  for (int i = 0; i < c->ranks; i++) {
    int rank = member(c, group, i);
    if (rank < ranks && (n == 0 || out[n - 1] != colours[rank]))
      out[n++] = colours[rank];
  }
  qsort(out, n, sizeof(int), compare_ints);
  for (guint i = 0; i < n; i++)
    if (distinct == 0 || out[distinct - 1] != out[i])
      out[distinct++] = out[i];
  return distinct;
}

/* ---- refinement ---- */

/* Of each rank: its colour, then the number of what it meets in each communicator. */
static void
describe_ranks(int ranks, const int *colours, const GArray *communicators, int *rows)
{
  guint width = communicators->len + 1;
  g_autofree int *met = g_new(int, ranks);
  for (int r = 0; r < ranks; r++)
    rows[(guint) r * width] = colours[r];
  for (guint k = 0; k < communicators->len; k++) {
    const Communicator *c = &g_array_index(communicators, Communicator, k);
    RowNumbers sets = row_numbers_new();
    int groups = group_of(c, ranks - 1) / c->stride * c->stride + c->stride;
    for (int g = 0; g < groups; g++) {
      guint n = colours_of_group(c, g, ranks, colours, met);
      int number = row_number(&sets, met, n);
      for (int i = 0; i < c->ranks && member(c, g, i) < ranks; i++)
        rows[(guint) member(c, g, i) * width + k + 1] = number;
    }
    g_hash_table_unref(sets.numbers);
  }
}

/* One round; returns how many colours there are then. */
static int
refine(int ranks, int *colours, const GArray *communicators, int *rows)
{
  guint width = communicators->len + 1;
  RowNumbers classes = row_numbers_new();
  describe_ranks(ranks, colours, communicators, rows);
  for (int r = 0; r < ranks; r++)
    colours[r] = row_number(&classes, rows + (guint) r * width, width);
  g_hash_table_unref(classes.numbers);
  return classes.n;
}

static int
settle(int ranks, int *colours, const GArray *communicators)
{
  g_autofree int *rows = g_new(int, (gsize) ranks *(communicators->len + 1));
  int before = 0, now = refine(ranks, colours, communicators, rows);
  while (now > before) {
    before = now;
    now = refine(ranks, colours, communicators, rows);
  }
  return now;
}

/* ---- who meets where ---- */

static void
seat_classes(RankClasses *classes, const GArray *communicators)
{
  g_autofree int *met = g_new(int, classes->ranks);
  for (guint k = 0; k < communicators->len; k++) {
    const Communicator *c = &g_array_index(communicators, Communicator, k);
    RowNumbers sets = row_numbers_new();
    int first_meeting = (int) classes->meetings->len;
    int seen = -1, n = 0, meeting = 0; /* neighbours are mostly of one group */
    for (int i = 0; i < classes->n; i++) {
      int group = group_of(c, classes->first[i]);
      if (group != seen) {
        n = (int) colours_of_group(c, group, classes->ranks, classes->class_of, met);
        meeting = first_meeting + row_number(&sets, met, (guint) n);
        seen = group;
      }
      const int *place = bsearch(&i, met, (gsize) n, sizeof(int), compare_ints);
      if (meeting == (int) classes->meetings->len)
        g_array_append_val(classes->meetings, n);
      classes->seats[i * classes->communicators + (int) k] =
          (ClassSeat){meeting, (int) (place - met)};
    }
    g_hash_table_unref(sets.numbers);
  }
}

RankClasses *
rank_classes_new(int ranks, const int *colours, const GArray *communicators)
{
  RankClasses *classes = g_new0(RankClasses, 1);
  classes->ranks = ranks;
  classes->class_of = g_memdup2(colours, sizeof(int) * (gsize) ranks);
  classes->n = settle(ranks, classes->class_of, communicators);
  classes->first = g_new(int, classes->n);
  classes->count = g_new0(int, classes->n);
  for (int r = ranks - 1; r >= 0; r--) {
    classes->first[classes->class_of[r]] = r;
    classes->count[classes->class_of[r]]++;
  }
  classes->communicators = (int) communicators->len;
  classes->seats = g_new(ClassSeat, (gsize) classes->n * communicators->len);
  classes->meetings = g_array_new(FALSE, FALSE, sizeof(int));
  seat_classes(classes, communicators);
  return classes;
}

void
rank_classes_free(RankClasses *classes)
{
  if (classes == NULL)
    return;
  g_free(classes->class_of);
  g_free(classes->first);
  g_free(classes->count);
  g_free(classes->seats);
  g_array_unref(classes->meetings);
  g_free(classes);
}
