/* check_contention.c - kernels beside collectives: what SMs and memory bandwidth taken away cost,
 * and that it holds only while both run.
 *
 * On the device of this test a kernel of n bytes takes n ns and a collective of 2n bytes over two
 * ranks n ns (bus factor 1/2); it has 8 SMs. */
#include "collective/collective.h"
#include "compute/kernel_slowdown.h"
#include "exec/executor.h"
#include "paper_machine.h"
#include "program/program_builder.h"
#include "tap_main.h"
#include <math.h>

static char machine_name[] = "paper";

static DeviceProfile device = {
    PAPER_DEVICE,
    .name = machine_name,
    .sms = 8,
    .peak_fp16_flops = 1e9,
};

/* Collectives take half of the memory's bandwidth at most, so a kernel bound by it is halved; they
 * themselves take a quarter longer. */
static ClusterSpec
cluster_with(gboolean enabled)
{
  return (ClusterSpec){
      PAPER_CLUSTER,
      .name = machine_name,
      .device = &device,
      .contention = {.enabled = enabled,
                     .intra_sms = 2,
                     .sm_factor = 1,
                     .memory_limit = 0.5,
                     .collective_slowdown = 1.25},
  };
}

static void
kernel(ProgramBuilder *b, int ns)
{
  Kernel k = {.kind = KERNEL_MEMORY,
              .dtype = DTYPE_FP32,
              .name = program_builder_name(b, "kernel"),
              .launches = 1,
              .bytes = ns};
  program_builder_launch(b, STREAM_COMPUTE, program_builder_kernel(b, &k));
}

static void
gather(ProgramBuilder *b, gint64 bytes)
{
  Collective c = {.kind = COLLECTIVE_ALL_GATHER,
                  .dtype = DTYPE_UINT8,
                  .communicator = program_builder_communicator(b, "shard", 2, 1),
                  .name = program_builder_name(b, "group"),
                  .bytes = bytes};
  program_builder_collective(b, STREAM_ALL_GATHER, &c);
}

static SimTime
gather_alone(const ClusterSpec *cluster, gint64 bytes)
{
  return collective_duration(cluster, COLLECTIVE_ALL_GATHER, group_shape(cluster, 2, 1), bytes);
}

/* One step: a gather of 1e6 bytes and a kernel of that many ns, both at 0. */
static Recording *
both(gboolean enabled, int kernel_ns)
{
  ClusterSpec cluster = cluster_with(enabled);
  ExecutorConfig config = {
      .cluster = &cluster, .allocator = allocator_config_default(), .keep_spans = TRUE};
  ProgramBuilder *b = program_builder_new();
  program_builder_begin_list(b);
  program_builder_begin_list(b);
  program_builder_add_step(b);
  gather(b, 1000000);
  if (kernel_ns > 0)
    kernel(b, kernel_ns);
  g_autoptr(Program) program = program_builder_finish(b);
  return executor_run(program, &config);
}

static const Span *
span_of(const Recording *r, SpanKind kind)
{
  for (guint i = 0; i < r->spans->len; i++)
    if (g_array_index(r->spans, Span, i).kind == kind)
      return &g_array_index(r->spans, Span, i);
  ck_abort_msg("no such span");
}

/* The gather alone takes g.  Beside the kernel it needs 1.25 g, in which the kernel, at half speed,
 * does 0.625 g; the rest runs at full speed. */
START_TEST(a_kernel_is_slower_only_while_a_collective_runs)
{
  ClusterSpec cluster = cluster_with(TRUE);
  double g = (double) gather_alone(&cluster, 1000000);
  int ns = (int) (2 * g);
  g_autoptr(Recording) r = both(TRUE, ns);
  const Span *collective = span_of(r, SPAN_COLLECTIVE), *work = span_of(r, SPAN_KERNEL);
  ck_assert_double_le(fabs((double) collective->end - 1.25 * g), 1);
  ck_assert_double_le(fabs((double) work->end - (1.25 * g + ns - 0.625 * g)), 2);
  ck_assert_int_eq(work->alone, ns);
  ck_assert_int_eq(collective->alone, (SimTime) g);
}
END_TEST

/* The kernel ends first: the gather did 0.8 of that time, and the rest at full speed. */
START_TEST(a_collective_is_slower_only_while_a_kernel_runs)
{
  ClusterSpec cluster = cluster_with(TRUE);
  double g = (double) gather_alone(&cluster, 1000000);
  g_autoptr(Recording) r = both(TRUE, 1000);
  ck_assert_int_eq(span_of(r, SPAN_KERNEL)->end, 2000);
  ck_assert_double_le(fabs((double) span_of(r, SPAN_COLLECTIVE)->end - (2000 + g - 2000 / 1.25)),
                      1);
}
END_TEST

START_TEST(alone_and_switched_off_nothing_is_slower)
{
  ClusterSpec cluster = cluster_with(TRUE);
  SimTime g = gather_alone(&cluster, 1000000);
  g_autoptr(Recording) alone = both(TRUE, 0);
  ck_assert_int_eq(span_of(alone, SPAN_COLLECTIVE)->end, g);
  g_autoptr(Recording) off = both(FALSE, 12345);
  ck_assert_int_eq(span_of(off, SPAN_COLLECTIVE)->end, g);
  ck_assert_int_eq(span_of(off, SPAN_KERNEL)->end, 12345);
}
END_TEST

/* 16 tiles on 8 SMs are 2 waves, on 6 they are 3; 18 tiles are 3 waves on either.  7 tiles fit in
 * one wave of 8, not of 6. */
START_TEST(a_matrix_product_loses_whole_waves)
{
  const KernelRivals rivals = {.sms = 2, .sm_factor = 100};
  const struct {
    double tiles, slowdown;
  } cases[] = {{16, 1.5}, {18, 1}, {7, 2}, {6, 1}};
  for (guint i = 0; i < G_N_ELEMENTS(cases); i++) {
    KernelParts parts = {.flops_ns = 1000, .tiles = cases[i].tiles};
    ck_assert_double_eq_tol(kernel_slowdown(&device, &parts, &rivals), cases[i].slowdown, 1e-9);
  }
}
END_TEST

/* Bound by FLOPs: 2 of 8 SMs gone are 2/6 more, times 1.5.  Bound by bytes: a quarter of the
 * bandwidth gone.  The floor and the gap are not stretched; what is hidden behind the longer of the
 * two is not seen. */
START_TEST(the_roofline_is_that_of_what_is_left)
{
  const KernelRivals rivals = {.sms = 2, .sm_factor = 1.5, .memory = 0.25};
  const struct {
    KernelParts parts;
    double slowdown;
  } cases[] = {
      {{.flops_ns = 1000, .bytes_ns = 10}, 1.5},
      {{.flops_ns = 10, .bytes_ns = 300}, 400.0 / 300},
      {{.flops_ns = 10, .bytes_ns = 10, .floor_ns = 100}, 1},
      {{.flops_ns = 100, .bytes_ns = 10, .gap_ns = 100}, 250.0 / 200},
      {{.flops_ns = 100, .bytes_ns = 180}, 240.0 / 180},
      {{.flops_ns = 0}, 1},
  };
  for (guint i = 0; i < G_N_ELEMENTS(cases); i++)
    ck_assert_double_eq_tol(kernel_slowdown(&device, &cases[i].parts, &rivals), cases[i].slowdown,
                            1e-9);
}
END_TEST

/* ---- links ---- */

/* A step that gathers at once in groups of two, inside a node, and over four ranks on two nodes. */
static Recording *
two_groups(const ClusterSpec *cluster, gint64 inner, gint64 outer)
{
  ExecutorConfig config = {
      .cluster = cluster, .allocator = allocator_config_default(), .keep_spans = TRUE};
  ProgramBuilder *b = program_builder_new();
  program_builder_begin_list(b);
  program_builder_begin_list(b);
  program_builder_add_step(b);
  const struct {
    const char *name;
    int ranks;
    StreamId stream;
    gint64 bytes;
  } gathers[] = {{"slice", 2, STREAM_ALL_GATHER, inner}, {"shard", 4, STREAM_COPY_IN, outer}};
  for (guint i = 0; i < G_N_ELEMENTS(gathers); i++) {
    if (gathers[i].bytes == 0)
      continue;
    Collective c = {.kind = COLLECTIVE_ALL_GATHER,
                    .dtype = DTYPE_UINT8,
                    .communicator =
                        program_builder_communicator(b, gathers[i].name, gathers[i].ranks, 1),
                    .name = program_builder_name(b, "group"),
                    .bytes = gathers[i].bytes};
    program_builder_collective(b, gathers[i].stream, &c);
  }
  g_autoptr(Program) program = program_builder_finish(b);
  return executor_run(program, &config);
}

static double
end_of(const Recording *r, StreamId stream)
{
  for (guint i = 0; i < r->spans->len; i++)
    if (g_array_index(r->spans, Span, i).stream == stream)
      return (double) g_array_index(r->spans, Span, i).end;
  ck_abort_msg("no such span");
}

/* Alone each takes a fraction of a GPU's links in the node, its bus bandwidth over theirs (1 byte a
 * ns).  Together they get half each, so far as each can use that; when the first is done the second
 * has all.  The network of the second case lets so little through that nothing is short. */
START_TEST(groups_in_and_between_nodes_share_the_links_in_the_node)
{
  static const double networks[] = {1e9, 1e7};
  for (guint i = 0; i < G_N_ELEMENTS(networks); i++) {
    ClusterSpec cluster = cluster_with(FALSE);
    cluster.gpus_per_node = cluster.nics = 2;
    cluster.nic_bandwidth = networks[i];
    const gint64 bytes = 100000000;
    g_autoptr(Recording) one = two_groups(&cluster, bytes, 0);
    g_autoptr(Recording) other = two_groups(&cluster, 0, bytes);
    g_autoptr(Recording) both = two_groups(&cluster, bytes, bytes);
    double a = end_of(one, STREAM_ALL_GATHER), b = end_of(other, STREAM_COPY_IN);
    double of_a = 0.5 * (double) bytes / a, of_b = 0.75 * (double) bytes / b;
    double rate_a = MIN(1, MAX(0.5, 1 - of_b) / of_a), rate_b = MIN(1, MAX(0.5, 1 - of_a) / of_b);
    double first = MIN(a / rate_a, b / rate_b);
    ck_assert_double_eq_tol(end_of(both, STREAM_ALL_GATHER), first + (a - first * rate_a), 2);
    ck_assert_double_eq_tol(end_of(both, STREAM_COPY_IN), first + (b - first * rate_b), 2);
    ck_assert(i == 0 ? rate_a < 1 && rate_b < 1 : rate_b == 1);
  }
}
END_TEST

Suite *
test_suite(void)
{
  Suite *suite = suite_create("contention");
  TCase *tcase = tcase_create("contention");

  suite_add_tcase(suite, tcase);
  tcase_add_test(tcase, a_kernel_is_slower_only_while_a_collective_runs);
  tcase_add_test(tcase, a_collective_is_slower_only_while_a_kernel_runs);
  tcase_add_test(tcase, alone_and_switched_off_nothing_is_slower);
  tcase_add_test(tcase, a_matrix_product_loses_whole_waves);
  tcase_add_test(tcase, the_roofline_is_that_of_what_is_left);
  tcase_add_test(tcase, groups_in_and_between_nodes_share_the_links_in_the_node);
  return suite;
}
