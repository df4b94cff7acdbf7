/* check_nccl_tests.c - tables that nccl-tests prints: every layout that versions and launchers make
 * of a row, several tables in a file, what is refused and where; then the reference data, if it is
 * there: every row is read, fits and defaults are as close as doc/validation.md says. */
#include "base/units.h"
#include "calibrate/calibration.h"
#include "import/nccl_tests_table.h"
#include "tap_main.h"
#include <math.h>
#include <string.h>

static const NcclTestsHints no_hints = {0, 0};

static GPtrArray *
parse(const char *name, const char *text)
{
  g_autoptr(GError) error = NULL;
  GPtrArray *tables = nccl_tests_tables_parse(name, text, strlen(text), no_hints, &error);
  ck_assert_msg(tables != NULL, "%s", error ? error->message : "");
  return tables;
}

static const NcclTestsTable *
table_at(const GPtrArray *tables, guint i)
{
  ck_assert_uint_lt(i, tables->len);
  return g_ptr_array_index(tables, i);
}

static NcclTestsRow
row_at(const NcclTestsTable *table, guint i)
{
  ck_assert_uint_lt(i, table->rows->len);
  return g_array_index(table->rows, NcclTestsRow, i);
}

/* ---- rows */

/* One row each: 65536 bytes in 40 us out of place, 32 us in place.  65536 B / 40 us are 1.64 GB/s,
 * on four ranks an all-reduce's bus bandwidth 2.46; 2.05 and 3.07 in place. */
static const struct {
  const char *what, *text;
  double time_us;
} layouts[] = {
    {"today", "  65536  16384  float  sum  -1  40.00  1.64  2.46  0  32.00  2.05  3.07  0\n", 32},
    {"not checked", "65536 16384 float sum -1 40.00 1.64 2.46 N/A 32.00 2.05 3.07 N/A\n", 32},
    {"no root, errors as numbers",
     "65536 16384 float sum 40.00 1.64 2.46 0e+00 32.00 2.05 3.07 0e+00\n", 32},
    {"no root, no errors", "65536 16384 float sum 40.00 1.64 2.46 32.00 2.05 3.07\n", 32},
    {"no errors", "65536 16384 float sum -1 40.00 1.64 2.46 32.00 2.05 3.07\n", 32},
    {"out of place only", "65536 16384 float sum -1 40.00 1.64 2.46 0\n", 40},
    {"neither errors nor in place", "65536 16384 float sum -1 40.00 1.64 2.46\n", 40},
    {"no root either", "65536 16384 float sum 40.00 1.64 2.46\n", 40},
    {"whole microseconds", "65536 16384 float sum -1 40 1.64 2.46 0 32 2.05 3.07 0\n", 32},
    {"whole microseconds, no root", "65536 16384 float sum 40 1.64 2.46 0 32 2.05 3.07 0\n", 32},
    {"further columns",
     "65536 16384 float sum -1 40.00 1.64 2.46 0 32.00 2.05 3.07 0 12:30:01 31.5 33.9\n", 32},
    {"a time stamp after one measurement", "65536 16384 float sum -1 40.00 1.64 2.46 0 12:30:01\n",
     40},
    {"srun's labels", "3: 65536 16384 float sum -1 40.00 1.64 2.46 0 32.00 2.05 3.07 0\n", 32},
    {"labels in brackets", "[0] 65536 16384 float sum -1 40.00 1.64 2.46 0 32.00 2.05 3.07 0\n",
     32},
    {"a worker's prefix",
     "(head, rank=0, pid=77) 65536 16384 float sum -1 40.00 1.64 2.46 0 32.00 2.05 3.07 0\n", 32},
    {"mpirun's tags, also within the row",
     "[1,0]<stdout>:   65536 16384 float[1,0]<stdout>: sum -1 40.00 1.64 2.46 0[1,0]<stdout>:   "
     "32.00 2.05 3.07 0\n",
     32},
    {"carriage returns", "65536 16384 float sum -1 40.00 1.64 2.46 0 32.00 2.05 3.07 0\r\n", 32},
    {"no line's end", "65536 16384 float sum -1 40.00 1.64 2.46 0 32.00 2.05 3.07 0", 32},
    {"half precision", "65536 32768 half sum -1 40.00 1.64 2.46 0 32.00 2.05 3.07 0\n", 32},
};

START_TEST(every_layout_of_a_row_is_read)
{
  g_autofree char *text = g_strconcat("# Using devices\n", layouts[_i].text, NULL);
  g_autoptr(GPtrArray) tables = parse("x.txt", text);
  const NcclTestsTable *table = table_at(tables, 0);
  test_note("%s", layouts[_i].what);
  ck_assert_uint_eq(tables->len, 1);
  ck_assert_uint_eq(table->rows->len, 1);
  ck_assert_int_eq(row_at(table, 0).bytes, 65536);
  ck_assert_double_eq(row_at(table, 0).time_us, layouts[_i].time_us);
  ck_assert_str_eq(table->collective, "all_reduce");
  ck_assert_int_eq(table->ranks, 4); /* 2.46 / 1.64 = 2 (4 - 1) / 4 */
  ck_assert_int_eq(table->ranks_source, RANKS_FROM_BANDWIDTHS);
}
END_TEST

/* ---- identity */

static const struct {
  const char *name, *text, *collective;
  int ranks, nodes;
  RanksSource source;
} identities[] = {
    /* Bytes are count times ranks. */
    {"x.txt", "65536 2048 float none -1 40.00 1.64 1.43 0 40.00 1.64 1.43 0\n", "all_gather", 8, 0,
     RANKS_FROM_COUNT},
    {"x.txt", "65536 2048 float sum -1 40.00 1.64 1.43 0 40.00 1.64 1.43 0\n", "reduce_scatter", 8,
     0, RANKS_FROM_COUNT},
    /* In place an alltoall is not checked. */
    {"x.txt", "65536 2048 float none -1 40.00 1.64 1.43 0 40.00 1.64 1.43 N/A\n", "alltoall", 8, 0,
     RANKS_FROM_COUNT},
    /* Before June 2020: (n-1)/n of the bandwidth, twice, and no redop. */
    {"x.txt", "65536 8192 float 40.00 0.82 0.82 0e+00 40.00 0.82 0.82 0e+00\n", "all_gather", 2, 0,
     RANKS_FROM_COUNT},
    {"run_2x4.txt", "65536 16384 float none 0 40.00 1.64 1.64 0 40.00 1.64 1.64 0\n", "broadcast",
     8, 2, RANKS_FROM_NAME},
    {"run_1x2_x.txt", "65536 16384 float sum 0 40.00 1.64 1.64 0 40.00 1.64 1.64 0\n", "reduce", 2,
     1, RANKS_FROM_NAME},
    {"run_1x8.txt", "65536 16384 float sum -1 40.00 1.64 1.64 0 40.00 1.64 1.64 N/A\n", "sendrecv",
     8, 1, RANKS_FROM_NAME},
    /* The name cannot be right: 1.64 / 1.64 = 2 (2 - 1) / 2. */
    {"run_4x8.txt", "65536 16384 float sum -1 40.00 1.64 1.64 0 40.00 1.64 1.64 0\n", "all_reduce",
     2, 0, RANKS_FROM_BANDWIDTHS},
    {"x.txt",
     "# nThread 1 nGpus 8 minBytes 8\n"
     "67108864 16777216 float sum -1 400.0 167.77 293.60 0 400.0 167.77 293.60 0\n",
     "all_reduce", 8, 0, RANKS_FROM_NAME},
    {"x.txt",
     "# Collective test starting: sendrecv_perf\n# nThread 1 nGpus 2 minBytes 8\n"
     "65536 16384 float sum -1 40.00 1.64 1.64 0 40.00 1.64 1.64 0\n",
     "sendrecv", 2, 0, RANKS_FROM_NAME},
    {"x.txt",
     "$ mpirun -n 3 ./build/alltoall_perf -b 8\n"
     "48 4 float none -1 4.00 0.01 0.01 0 4.00 0.01 0.01 0\n",
     "alltoall", 3, 0, RANKS_FROM_COUNT},
    {"x.txt",
     "#  Rank  0 Group  0 Pid 11 on   left device  0 [0x0f] GPU A\n"
     "#  Rank  1 Group  0 Pid 12 on   left device  1 [0x10] GPU A\n"
     "#  Rank  2 Group  0 Pid 13 on  right device  0 [0x0f] GPU A\n"
     "#  Rank  3 Group  0 Pid 14 on  right device  1 [0x10] GPU A\n"
     "NCCL version 2.20.5+cuda12.4\n"
     "65536 16384 float sum -1 40.00 1.64 2.46 0 32.00 2.05 3.07 0\n",
     "all_reduce", 4, 2, RANKS_FROM_DEVICES},
    /* Lines left out: eight GPUs a node, by the last one. */
    {"x.txt",
     "#   Rank  0 Pid 11 on left device  0 [0x0f] GPU A\n"
     "#   Rank 31 Pid 12 on right device  7 [0x10] GPU A\n"
     "65536 512 float none -1 40.00 1.64 1.59 0 32.00 2.05 1.98 0\n",
     "all_gather", 32, 4, RANKS_FROM_DEVICES},
};

START_TEST(collective_and_ranks_follow_from_the_table)
{
  g_autoptr(GPtrArray) tables = parse(identities[_i].name, identities[_i].text);
  const NcclTestsTable *table = table_at(tables, 0);
  ck_assert_str_eq(table->collective, identities[_i].collective);
  ck_assert_int_eq(table->ranks, identities[_i].ranks);
  ck_assert_int_eq(table->nodes, identities[_i].nodes);
  ck_assert_int_eq(table->ranks_source, identities[_i].source);
}
END_TEST

/* 2.46 / 1.64 are four ranks, 5.00 / 2.62 more; the last row is right. */
START_TEST(one_wrong_bandwidth_does_not_hide_the_ranks)
{
  g_autoptr(GPtrArray) tables =
      parse("x.txt", "65536 16384 float sum -1 40.00 1.64 2.46 0\n"
                     "131072 32768 float sum -1 50.00 2.62 5.00 0\n"
                     "67108864 16777216 float sum -1 400.0 167.77 251.66 0\n");
  ck_assert_int_eq(table_at(tables, 0)->ranks, 4);
  ck_assert_uint_eq(table_at(tables, 0)->rows->len, 3);
}
END_TEST

START_TEST(the_caller_may_know_better)
{
  const char *text = "65536 16384 float none 0 40.00 1.64 1.64 0 40.00 1.64 1.64 0\n";
  g_autoptr(GPtrArray) tables =
      nccl_tests_tables_parse("x.txt", text, strlen(text), (NcclTestsHints){24, 3}, NULL);
  ck_assert_int_eq(table_at(tables, 0)->ranks, 24);
  ck_assert_int_eq(table_at(tables, 0)->nodes, 3);
  ck_assert_int_eq(table_at(tables, 0)->ranks_source, RANKS_FROM_CALLER);
}
END_TEST

START_TEST(devices_and_version_are_kept)
{
  g_autoptr(GPtrArray) tables = parse("x.txt", identities[11].text);
  ck_assert_str_eq(table_at(tables, 0)->gpu, "GPU A");
  ck_assert_str_eq(table_at(tables, 0)->nccl, "2.20.5");
}
END_TEST

/* ---- files */

START_TEST(log_lines_do_not_disturb)
{
  g_autoptr(GPtrArray) tables =
      parse("x.txt", "host:1:1 [0] NCCL INFO Channel 00/24 : 0 1 2 3\n"
                     "65536 2048 float none -1 40.00 1.64 1.43 0 40.00 1.64 1.43 0\n"
                     "host:1:1 [0] NCCL INFO comm 0x5 rank 3 nranks 8 float sum\n"
                     "131072 4096 float none -1 50.00 2.62 2.29 0 50.00 2.62 2.29 0\n"
                     "\n# Out of bounds values : 0 OK\n");
  ck_assert_uint_eq(tables->len, 1);
  ck_assert_uint_eq(table_at(tables, 0)->rows->len, 2);
  ck_assert_uint_eq(table_at(tables, 0)->rejected->len, 0);
  ck_assert_uint_eq(row_at(table_at(tables, 0), 1).line, 4);
}
END_TEST

START_TEST(rows_that_cannot_be_used_are_rejected_one_by_one)
{
  g_autoptr(GPtrArray) tables =
      parse("x.txt", "0 0 float none -1 0.30 0.00 0.00 0 0.30 0.00 0.00 0\n"
                     "65536 2048 float none -1 40.00 1.64 1.43 0 40.00 1.64 1.43 0\n"
                     "131072 4096 float none -1 50.00\n"
                     "131072 4096 float none -1 5000.00 2.62 2.29 0 50.00 2.62 2.29 0\n"
                     "131072 4096 float none -1 50.00 2.62 2.29 0 50.00 2.62 2.29 0\n");
  const NcclTestsTable *table = table_at(tables, 0);
  const guint lines[] = {1, 3, 4};
  ck_assert_uint_eq(table->rows->len, 2);
  ck_assert_uint_eq(table->rejected->len, G_N_ELEMENTS(lines));
  for (guint i = 0; i < G_N_ELEMENTS(lines); i++)
    ck_assert_uint_eq(g_array_index(table->rejected, NcclTestsRejected, i).line, lines[i]);
}
END_TEST

START_TEST(a_file_may_hold_several_tables)
{
  g_autoptr(GPtrArray) tables =
      parse("x.txt", "# Collective test starting: all_gather_perf\n"
                     "#  Rank  0 Group  0 Pid 1 on a device  0 [0x0f] GPU A\n"
                     "#  Rank  1 Group  0 Pid 2 on a device  1 [0x10] GPU A\n"
                     "65536 8192 float none -1 40.00 1.64 0.82 0 40.00 1.64 0.82 0\n"
                     "131072 16384 float none -1 50.00 2.62 1.31 0 50.00 2.62 1.31 0\n"
                     "# Collective test starting: all_reduce_perf\n"
                     "#  Rank  0 Group  0 Pid 1 on a device  0 [0x0f] GPU B\n"
                     "#  Rank  1 Group  0 Pid 2 on b device  0 [0x0f] GPU B\n"
                     "65536 16384 float sum -1 40.00 1.64 1.64 0 40.00 1.64 1.64 0\n"
                     /* the same again, without a header */
                     "65536 16384 float sum -1 41.00 1.60 1.60 0 41.00 1.60 1.60 0\n"
                     "32768 8192 float sum -1 30.00 1.09 1.09 0 30.00 1.09 1.09 0\n");
  ck_assert_uint_eq(tables->len, 3);
  ck_assert_str_eq(table_at(tables, 0)->collective, "all_gather");
  ck_assert_int_eq(table_at(tables, 0)->nodes, 1);
  ck_assert_str_eq(table_at(tables, 0)->gpu, "GPU A");
  ck_assert_str_eq(table_at(tables, 1)->collective, "all_reduce");
  ck_assert_int_eq(table_at(tables, 1)->nodes, 2);
  ck_assert_str_eq(table_at(tables, 1)->gpu, "GPU B");
  ck_assert_uint_eq(table_at(tables, 1)->rows->len, 2);
  ck_assert_uint_eq(table_at(tables, 2)->rows->len, 1);
  ck_assert_uint_eq(table_at(tables, 2)->line, 11);
}
END_TEST

static const struct {
  const char *text, *message;
} refused[] = {
    {"", "x.txt: line 1: no nccl-tests table"},
    {"Dear reader,\n\nthis is no table.\n", "x.txt: line 3: no nccl-tests table"},
    {"#\n# size count type redop root time algbw busbw #wrong\n# (B)\n",
     "x.txt: line 2: no row follows"},
    {"#\n0 0 float none -1 0.30 0.00 0.00 0 0.30 0.00 0.00 0\n",
     "x.txt: line 2: no usable row of an nccl-tests table: no bytes"},
    {"65536 16384 float sum -1 40.00 9.64 9.46 0\n",
     "x.txt: line 1: no usable row of an nccl-tests table: bandwidth is not size over time"},
    {"65536 16384 float sum\n", "x.txt: line 1: no usable row of an nccl-tests table: cut short"},
    {"#  Rank  0 Group  0 Pid 1 on a device  0 [0x0f] GPU\n\n"
     "65536 16384 float sum 0 4.00 16.38 16.38 0 0.20 327.68 327.68 0\n",
     "x.txt: line 3: a table of one rank"},
    {"65536 16384 float none 0 40.00 1.64 1.64 0 40.00 1.64 1.64 0\n",
     "x.txt: line 1: the number of ranks cannot be told"},
    /* Neither all-gather nor broadcast: a root, and bytes that are count times ranks. */
    {"65536 2048 float none 3 40.00 1.64 1.43 0 40.00 1.64 1.43 0\n",
     "x.txt: line 1: columns of no collective"},
};

START_TEST(what_is_no_table_is_refused_with_its_line)
{
  g_autoptr(GError) error = NULL;
  const char *text = refused[_i].text;
  ck_assert_ptr_null(nccl_tests_tables_parse("x.txt", text, strlen(text), no_hints, &error));
  ck_assert(test_error_says(error, refused[_i].message));
}
END_TEST

START_TEST(a_file_that_is_not_there_is_an_error)
{
  g_autoptr(GError) error = NULL;
  ck_assert_ptr_null(nccl_tests_tables_load("/nowhere/x.txt", no_hints, &error));
  ck_assert(test_error_says(error, "/nowhere/x.txt"));
}
END_TEST

/* ---- reference data */

#define REFERENCE "reference/nccl-tests"

/* The cluster on which a table was measured: a preset, or a file's text.  GPUs that have no preset
 * are stood in for by their links.  The first that begins the name counts. */
static const struct {
  const char *begins, *contains, *cluster;
} machines[] = {
    {"a100_", "polaris_tcp",
     "{\"device\": \"a100-sxm-40gb\", \"gpus_per_node\": 4, \"intra_node\": "
     "{\"fabric\": \"nvlink\"}, \"inter_node\": {\"fabric\": \"tcp\", "
     "\"nics\": 2, \"gbit_per_nic\": 200}, \"nccl\": "
     "{\"inter_efficiency\": 0.18}}"},
    {"a100_", "default_tcp",
     "{\"device\": \"a100-sxm-40gb\", \"gpus_per_node\": 4, \"intra_node\": "
     "{\"fabric\": \"nvlink\"}, \"inter_node\": {\"fabric\": \"tcp\", "
     "\"nics\": 2, \"gbit_per_nic\": 200}, \"nccl\": "
     "{\"inter_efficiency\": 0.18}}"},
    {"a100_", "polaris", "polaris"},
    {"a100_", "oci_roce", "oci-a100"},
    {"a100_", "sophia", "a100-40gb-8"},
    {"a100_1x", "", "a100-80gb-8"},
    {"a100pcie_1x2", "",
     "{\"device\": \"a100-pcie-40gb\", \"gpus_per_node\": 2, \"intra_node\": "
     "{\"fabric\": \"pcie\"}}"},
    {"a100pcie_2x1", "_gdr",
     "{\"device\": \"a100-pcie-40gb\", \"gpus_per_node\": 1, "
     "\"intra_node\": {\"fabric\": \"pcie\"}, \"inter_node\": {\"fabric\": "
     "\"infiniband\", \"nics\": 1, \"gbit_per_nic\": 200}}"},
    {"b200_", "", "gcp-a4"},
    {"gb300_", "",
     "{\"device\": \"b200-sxm-180gb\", \"gpus_per_node\": 4, \"inter_node\": "
     "{\"fabric\": \"roce\", \"nics\": 4, \"gbit_per_nic\": 800}}"},
    {"gh200_", "", "alps"},
    {"h100_1x4", "", "h100-4"},
    {"h100_2x4", "", "h100-4"},
    {"raw_snellius", "", "h100-4"},
    {"h100_", "a3high", "gcp-a3-high"},
    {"h100_", "a3mega", "gcp-a3-mega"},
    {"h100_", "_p5_", "aws-p5"},
    {"h100_", "", "h100-8"},
    {"h200_", "gcp", "gcp-a3-ultra"},
    {"h200_", "", "h200-8"},
    {"h20_", "", "h100-8"},
    {"issue44_", "",
     "{\"device\": \"a100-sxm-40gb\", \"gpus_per_node\": 2, \"intra_node\": "
     "{\"fabric\": \"nvlink\"}, \"nccl\": {\"intra_busbw_gb_per_s\": 22}}"},
    {"l40s_", "",
     "{\"device\": \"l40s-48gb\", \"gpus_per_node\": 2, \"intra_node\": "
     "{\"fabric\": \"pcie\"}, \"inter_node\": {\"fabric\": \"roce\", \"nics\": 1, "
     "\"gbit_per_nic\": 200}, \"nccl\": {\"intra_busbw_gb_per_s\": 10}}"},
    {"rtx2080ti_1x2", "",
     "{\"device\": \"a100-sxm-40gb\", \"gpus_per_node\": 2, \"intra_node\": "
     "{\"fabric\": \"pcie\"}, \"nccl\": {\"intra_busbw_gb_per_s\": 3.95, "
     "\"one_way_fraction\": 2.8}}"},
    {"v100_1x", "", "v100-8"},
    {"v100_", "",
     "{\"device\": \"v100-sxm2-32gb\", \"gpus_per_node\": 1, \"intra_node\": "
     "{\"fabric\": \"nvlink\"}, \"inter_node\": {\"fabric\": \"tcp\", \"nics\": 1, "
     "\"gbit_per_nic\": 100}}"},
};

/* NULL: two ranks of one GPU over loopback, racks of which little is known, GPUDirect switched off.
 */
static ClusterSpec *
machine_of(const char *name)
{
  for (guint i = 0; i < G_N_ELEMENTS(machines); i++) {
    const char *cluster = machines[i].cluster;
    if (!g_str_has_prefix(name, machines[i].begins) || !strstr(name, machines[i].contains) ||
        strstr(name, "nogdr"))
      continue;
    return cluster[0] == '{' ? cluster_spec_parse("machine", cluster, strlen(cluster), NULL)
                             : cluster_spec_load(cluster, NULL);
  }
  return NULL;
}

/* What all tables together say. */
typedef struct {
  guint tables, refused, rows, sizes;
  GArray *fits, *holdouts, *defaults, *large; /* medians of tables */
  guint close;                                /* fits with a median below 5 % */
} Scores;

/* Lines with a size above 0, a count and a type, counted in another way than the parser's. */
static guint
sized_lines(const char *text)
{
  g_autoptr(GRegex) row = g_regex_new(
      "(^|[\\s:>])[1-9][0-9]*\\s+[0-9]+\\s+(float|half|bfloat16|double|u?int8|u?int32|u?int64)\\s",
      G_REGEX_MULTILINE, 0, NULL);
  g_autoptr(GMatchInfo) match = NULL;
  guint count = 0;
  for (gboolean more = g_regex_match(row, text, 0, &match); more;
       more = g_match_info_next(match, NULL))
    count++;
  return count;
}

static CalibratedCollective *
calibrate(const NcclTestsTable *table)
{
  guint n = table->rows->len;
  g_autofree FitSample *samples = g_new(FitSample, n);
  for (guint i = 0; i < n; i++)
    samples[i] = (FitSample){row_at(table, i).bytes, row_at(table, i).time_us};
  const MeasuredCollective about = {.source = table->file,
                                    .collective = table->collective,
                                    .ranks = table->ranks,
                                    .nodes = MAX(1, table->nodes)};
  return calibrated_collective_new(&about, samples, n);
}

static void
score_table(Scores *scores, const NcclTestsTable *table, const ClusterSpec *machine)
{
  g_autoptr(CalibratedCollective) collective = calibrate(table);
  scores->tables++;
  scores->rows += table->rows->len;
  scores->close += collective->errors.median < 0.05;
  g_array_append_val(scores->fits, collective->errors.median);
  if (!isnan(collective->holdout_median))
    g_array_append_val(scores->holdouts, collective->holdout_median);
  if (!machine)
    return;
  calibrated_collective_compare(collective, machine);
  g_array_append_val(scores->defaults, collective->default_errors.median);
  if (!isnan(collective->default_errors.large_median))
    g_array_append_val(scores->large, collective->default_errors.large_median);
}

/* The text beside the table says how many ranks there were. */
static void
check_ranks(const char *path, const GPtrArray *tables)
{
  g_autofree char *stem = g_strndup(path, strlen(path) - strlen(".txt"));
  g_autofree char *about = g_strconcat(stem, ".json", NULL);
  g_autoptr(JsonDocument) document = json_document_load(about, NULL);
  ck_assert_ptr_nonnull(document);
  const cJSON *root = json_document_root(document);
  const char *collective = cJSON_GetObjectItem(root, "collective")->valuestring;
  int ranks = cJSON_GetObjectItem(root, "nranks")->valueint;
  if (tables->len != 1) /* several runs back to back: the text is of one of them */
    return;
  ck_assert_msg(g_str_equal(table_at(tables, 0)->collective, collective), "%s", path);
  ck_assert_msg(table_at(tables, 0)->ranks == ranks, "%s", path);
}

static void
score_file(Scores *scores, const char *folder, const char *name)
{
  g_autoptr(GError) error = NULL;
  g_autofree char *path = g_build_filename(folder, name, NULL), *text = NULL;
  ck_assert(g_file_get_contents(path, &text, NULL, NULL));
  g_autoptr(GPtrArray) tables = nccl_tests_tables_load(path, no_hints, &error);
  if (!tables) {
    ck_assert(test_error_says(error, "a table of one rank"));
    scores->refused++;
    return;
  }
  g_autoptr(ClusterSpec) machine = machine_of(name);
  for (guint i = 0; i < tables->len; i++)
    score_table(scores, table_at(tables, i), machine);
  check_ranks(path, tables);
  scores->sizes += sized_lines(text);
}

static double
median(GArray *values)
{
  return fit_percentile((double *) (gpointer) values->data, values->len, 0.5);
}

static Scores
score_all(const char *folder)
{
  Scores scores = {.fits = g_array_new(FALSE, FALSE, sizeof(double)),
                   .holdouts = g_array_new(FALSE, FALSE, sizeof(double)),
                   .defaults = g_array_new(FALSE, FALSE, sizeof(double)),
                   .large = g_array_new(FALSE, FALSE, sizeof(double))};
  GDir *dir = g_dir_open(folder, 0, NULL);
  ck_assert_ptr_nonnull(dir);
  for (const char *name = g_dir_read_name(dir); name; name = g_dir_read_name(dir))
    if (g_str_has_suffix(name, ".txt"))
      score_file(&scores, folder, name);
  g_dir_close(dir);
  return scores;
}

START_TEST(published_tables_are_read_fitted_and_predicted)
{
  g_autofree char *folder = test_reference_path(REFERENCE);
  if (!folder) {
    test_note("the reference data is not there: published nccl-tests tables are left out");
    return;
  }
  Scores scores = score_all(folder);
  double fits = median(scores.fits), holdouts = median(scores.holdouts);
  double defaults = median(scores.defaults), large = median(scores.large);
  test_note(
      "%u tables, %u refused, %u rows; fit: median %.1f %%, below 5 %% for %.0f %%; rows left "
      "out %.1f %%; defaults (%u tables) %.1f %%, from 16 MiB up %.1f %%",
      scores.tables, scores.refused, scores.rows, 100 * fits, 100.0 * scores.close / scores.tables,
      100 * holdouts, scores.defaults->len, 100 * defaults, 100 * large);
  ck_assert_uint_ge(scores.tables, 80);
  ck_assert_uint_eq(scores.refused, 1);
  ck_assert_uint_eq(scores.rows, scores.sizes);
  ck_assert_double_ge(scores.close, 0.75 * scores.tables);
  ck_assert_double_le(holdouts, 0.06);
  ck_assert_double_le(defaults, 0.25);
  ck_assert_double_le(large, 0.12);
  g_array_unref(scores.fits);
  g_array_unref(scores.holdouts);
  g_array_unref(scores.defaults);
  g_array_unref(scores.large);
}
END_TEST

Suite *
test_suite(void)
{
  Suite *suite = suite_create("nccl_tests");
  TCase *tcase = tcase_create("nccl_tests");

  suite_add_tcase(suite, tcase);
  tcase_add_loop_test(tcase, every_layout_of_a_row_is_read, 0, G_N_ELEMENTS(layouts));
  tcase_add_loop_test(tcase, collective_and_ranks_follow_from_the_table, 0,
                      G_N_ELEMENTS(identities));
  tcase_add_test(tcase, one_wrong_bandwidth_does_not_hide_the_ranks);
  tcase_add_test(tcase, the_caller_may_know_better);
  tcase_add_test(tcase, devices_and_version_are_kept);
  tcase_add_test(tcase, log_lines_do_not_disturb);
  tcase_add_test(tcase, rows_that_cannot_be_used_are_rejected_one_by_one);
  tcase_add_test(tcase, a_file_may_hold_several_tables);
  tcase_add_loop_test(tcase, what_is_no_table_is_refused_with_its_line, 0, G_N_ELEMENTS(refused));
  tcase_add_test(tcase, a_file_that_is_not_there_is_an_error);
  tcase_add_test(tcase, published_tables_are_read_fitted_and_predicted);
  return suite;
}
