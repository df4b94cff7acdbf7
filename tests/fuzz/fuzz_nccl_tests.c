/* fuzz_nccl_tests.c - any bytes as an nccl-tests table, and a fit of what it is read as. */
#include "calibrate/calibration.h"
#include "fuzz.h"
#include "import/nccl_tests_table.h"

/* Fits of more rows take long and find nothing new. */
#define FITTED_MAX 12

static void
fit(const NcclTestsTable *table)
{
  FitSample samples[FITTED_MAX];
  guint n = MIN(table->rows->len, FITTED_MAX);
  for (guint i = 0; i < n; i++) {
    const NcclTestsRow *row = &g_array_index(table->rows, NcclTestsRow, i);
    g_assert(row->bytes > 0 && row->time_us > 0 && row->line > 0);
    samples[i] = (FitSample){row->bytes, row->time_us};
  }
  const MeasuredCollective about = {.source = table->file,
                                    .collective = table->collective,
                                    .ranks = table->ranks,
                                    .nodes = MAX(1, table->nodes)};
  g_autoptr(CalibratedCollective) collective = calibrated_collective_new(&about, samples, n);
  for (int i = 0; i < collective->fit.n_lines; i++) {
    g_assert(collective->fit.lines[i].alpha_us >= 0 && collective->fit.lines[i].slope > 0);
    g_assert(calibrated_line_busbw(collective, i) > 0);
  }
}

int
LLVMFuzzerTestOneInput(const guint8 *data, gsize size)
{
  g_autoptr(GError) error = NULL;
  GPtrArray *tables =
      nccl_tests_tables_parse("2x4.txt", (const char *) data, size, (NcclTestsHints){0, 0}, &error);
  g_assert((tables == NULL) == (error != NULL));
  if (!tables)
    return 0;
  g_assert(tables->len > 0);
  for (guint i = 0; i < tables->len; i++) {
    const NcclTestsTable *table = g_ptr_array_index(tables, i);
    g_assert(table->ranks > 1 && table->nodes >= 0 && table->nodes <= table->ranks);
    g_assert(table->rows->len > 0);
    fit(table);
  }
  g_ptr_array_unref(tables);
  return 0;
}
