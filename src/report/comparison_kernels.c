/* comparison_kernels.c - what kernels take in a step of two runs, by name and by block. */
#include "report/block_passes.h"
#include "report/comparison_parts.h"

/* Names and their sums. */
typedef struct {
  GArray *rows;          /* KernelComparison */
  GHashTable *positions; /* name -> position + 1; the names are the rows' */
} Sums;

static void
add(Sums *sums, const char *name, int side, const Span *span)
{
  guint position = GPOINTER_TO_UINT(g_hash_table_lookup(sums->positions, name));
  if (position == 0) {
    KernelComparison row = {.name = g_strdup(name)};
    g_array_append_val(sums->rows, row);
    position = sums->rows->len;
    g_hash_table_insert(sums->positions, row.name, GUINT_TO_POINTER(position));
  }
  KernelComparison *row = &g_array_index(sums->rows, KernelComparison, position - 1);
  row->count[side]++;
  row->time[side] += span->end - span->start;
}

static SimTime
difference(const KernelComparison *row)
{
  return ABS(row->time[SIDE_B] - row->time[SIDE_A]);
}

static int
compare_rows(gconstpointer a, gconstpointer b)
{
  const KernelComparison *x = a, *y = b;
  if (difference(x) != difference(y))
    return difference(x) > difference(y) ? -1 : 1;
  return g_strcmp0(x->name, y->name);
}

/* Names of which none is on both sides say nothing. */
static void
finish(Sums *sums)
{
  gboolean in_common = FALSE;
  for (guint i = 0; i < sums->rows->len && !in_common; i++) {
    const KernelComparison *row = &g_array_index(sums->rows, KernelComparison, i);
    in_common = row->count[SIDE_A] > 0 && row->count[SIDE_B] > 0 && *row->name;
  }
  g_hash_table_unref(sums->positions);
  if (!in_common)
    g_array_set_size(sums->rows, 0);
  g_array_sort(sums->rows, compare_rows);
}

void
comparison_kernels(Comparison *c)
{
  Sums names = {c->kernels, g_hash_table_new(g_str_hash, g_str_equal)};
  Sums blocks = {c->modules, g_hash_table_new(g_str_hash, g_str_equal)};
  for (int side = 0; side < SIDES && c->has_spans; side++) {
    const Recording *recording = c->models[side]->recording;
    for (guint i = 0; i < recording->spans->len; i++) {
      const Span *span = &g_array_index(recording->spans, Span, i);
      if (span->kind != SPAN_KERNEL || !comparison_counts(c, side, span))
        continue;
      const char *module = report_text(recording, span->module, "");
      g_autofree char *block = g_strndup(module, block_path_length(module));
      add(&names, report_text(recording, span->name, ""), side, span);
      add(&blocks, block, side, span);
    }
  }
  finish(&names);
  finish(&blocks);
}
