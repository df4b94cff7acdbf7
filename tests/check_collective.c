/* check_collective.c - for every kind of collective, many shapes of communicators and every preset
 * of a cluster: one rank and no bytes are free, time is monotone in bytes, no link is beaten, what
 * is sent is what a ring sends; latencies, bandwidths and choices of algorithms by hand; measured
 * tables.  Comparison with measurements: check_nccl_tests.c. */
#include "collective/algorithm.h"
#include "history.h"
#include "spec/preset.h"
#include "tap_main.h"
#include <math.h>

/* 8 GPUs a node that reach 400 GB/s inside, and 8 NICs of 50 GB/s of which 90 % are reached. */
static const ClusterSpec cluster = {
    .gpus_per_node = 8,
    .nics = 8,
    .nic_bandwidth = 50e9,
    .intra_busbw = 400e9,
    .inter_efficiency = 0.9,
    .base_latency_ns = 8000,
    .intra_hop_ns = 3000,
    .inter_hop_ns = 15000,
};

static const struct {
  int ranks, stride;
} groups[] = {{2, 1}, {4, 1}, {8, 1},    {2, 4},  {16, 1}, {64, 1},
              {4, 4}, {2, 8}, {1024, 1}, {32, 8}, {3, 3},  {6, 1}};

/* ---- shapes ---- */

static const struct {
  int ranks, stride, nics; /* of a node */
  GroupShape shape;
} shapes[] = {
    {1, 1, 8, {1, 1, 1, 1}},
    {8, 1, 8, {8, 1, 8, 8}},
    {16, 1, 8, {16, 2, 8, 8}},
    {12, 1, 8, {12, 2, 8, 8}},
    /* Ranks 0, 8, 16, 24: one on each node, and seven other groups like it. */
    {4, 8, 8, {4, 4, 1, 1}},
    {4, 8, 4, {4, 4, 1, 0.5}},
    {4, 16, 8, {4, 4, 1, 1}},
    /* Ranks 0 and 4 of a node; 0, 4, 8, 12 on two. */
    {2, 4, 8, {2, 1, 2, 2}},
    {4, 4, 4, {4, 2, 2, 1}},
    /* Ranks 0, 3, 6 and 9. */
    {4, 3, 8, {4, 2, 3, 3}},
};

START_TEST(shapes_follow_from_the_distance_of_neighbours)
{
  ClusterSpec with_nics = cluster;
  const GroupShape *expected = &shapes[_i].shape;
  GroupShape shape;

  with_nics.nics = shapes[_i].nics;
  shape = group_shape(&with_nics, shapes[_i].ranks, shapes[_i].stride);
  ck_assert_int_eq(shape.ranks, expected->ranks);
  ck_assert_int_eq(shape.nodes, expected->nodes);
  ck_assert_int_eq(shape.ranks_per_node, expected->ranks_per_node);
  ck_assert_double_eq(shape.nics_per_group, expected->nics_per_group);
}
END_TEST

/* ---- volume ---- */

/* Chunks of 1/R of the buffer that each rank of a ring sends: in R-1 steps it passes on what it got
 * in the step before. */
static int
ring_chunks(CollectiveKind kind, int ranks)
{
  int chunks = 0;

  switch (kind) {
  case COLLECTIVE_BROADCAST: /* every rank passes on every chunk */
  case COLLECTIVE_REDUCE:    /* or a sum of it */
    for (int chunk = 0; chunk < ranks; chunk++)
      chunks++;
    break;
  case COLLECTIVE_SEND_RECV: /* all of them, to the next */
    chunks = ranks;
    break;
  case COLLECTIVE_ALL_REDUCE: /* first sums go around, then results */
    chunks = 2 * ring_chunks(COLLECTIVE_ALL_GATHER, ranks);
    break;
  default:
    for (int step = 1; step < ranks; step++)
      chunks++;
    break;
  }
  return ranks > 1 ? chunks : 0;
}

START_TEST(a_rank_sends_what_a_ring_sends)
{
  CollectiveKind kind = (CollectiveKind) _i;

  for (int ranks = 1; ranks <= 64; ranks++) {
    gint64 bytes = 1000 * (gint64) ranks; /* chunks of 1000 bytes */

    ck_assert_double_eq_tol(collective_bytes_sent(kind, ranks, bytes),
                            1000.0 * ring_chunks(kind, ranks), 1e-6);
  }
}
END_TEST

START_TEST(factors_are_those_of_nccl_tests)
{
  ck_assert_double_eq(collective_factor(COLLECTIVE_ALL_REDUCE, 2), 1);
  ck_assert_double_eq(collective_factor(COLLECTIVE_ALL_REDUCE, 8), 1.75);
  ck_assert_double_eq(collective_factor(COLLECTIVE_ALL_GATHER, 8), 0.875);
  ck_assert_double_eq(collective_factor(COLLECTIVE_REDUCE_SCATTER, 4), 0.75);
  ck_assert_double_eq(collective_factor(COLLECTIVE_BROADCAST, 8), 1);
  ck_assert_double_eq(collective_factor(COLLECTIVE_ALL_TO_ALL, 8), 0.875);
  ck_assert_double_eq(collective_factor(COLLECTIVE_SEND_RECV, 8), 1);
}
END_TEST

/* ---- time ---- */

START_TEST(one_rank_is_free)
{
  CollectiveKind kind = (CollectiveKind) _i;
  GroupShape alone = group_shape(&cluster, 1, 1);

  ck_assert_int_eq(collective_duration(&cluster, kind, alone, (gint64) 1 << 40), 0);
  ck_assert_double_eq(collective_cost(&cluster, kind, alone).latency_ns, 0);
  ck_assert_double_eq(collective_bytes_sent(kind, 1, 1000), 0);
  ck_assert_double_eq(collective_factor(kind, 1), 0);
}
END_TEST

START_TEST(no_bytes_are_free)
{
  CollectiveKind kind = (CollectiveKind) _i;

  for (guint g = 0; g < G_N_ELEMENTS(groups); g++) {
    GroupShape shape = group_shape(&cluster, groups[g].ranks, groups[g].stride);
    ck_assert_int_eq(collective_duration(&cluster, kind, shape, 0), 0);
    ck_assert_double_eq(collective_bytes_sent(kind, shape.ranks, 0), 0);
  }
}
END_TEST

/* Powers of two, and steps between and beside them where another protocol may take over. */
static void
assert_monotone(const ClusterSpec *spec, CollectiveKind kind, GroupShape shape)
{
  SimTime before = 0;

  for (double bytes = 1; bytes < 1e12; bytes = ceil(bytes * 1.03)) {
    SimTime time = collective_duration(spec, kind, shape, (gint64) bytes);

    ck_assert_int_gt(time, 0);
    ck_assert_int_ge(time, before);
    before = time;
  }
}

START_TEST(time_is_monotone_in_bytes)
{
  for (guint g = 0; g < G_N_ELEMENTS(groups); g++)
    assert_monotone(&cluster, (CollectiveKind) _i,
                    group_shape(&cluster, groups[g].ranks, groups[g].stride));
}
END_TEST

START_TEST(time_is_monotone_on_every_preset)
{
  g_auto(GStrv) names = preset_names("cluster");
  ck_assert_ptr_nonnull(names[0]);
  for (int i = 0; names[i]; i++) {
    g_autoptr(ClusterSpec) spec = cluster_spec_load(names[i], NULL);
    ck_assert_ptr_nonnull(spec);
    for (guint g = 0; g < G_N_ELEMENTS(groups); g++)
      for (int kind = 0; kind < COLLECTIVE_KIND_COUNT; kind++)
        assert_monotone(spec, (CollectiveKind) kind,
                        group_shape(spec, groups[g].ranks, groups[g].stride));
  }
}
END_TEST

/* Seconds in which what has to pass can pass.  Inside a node a rank's own link carries what a ring
 * sends.  Into every node come the shares of the ranks elsewhere (a sum of them, for a reduction),
 * over the NICs that the group may use there; an alltoall's rank has its part of them. */
static double
least_seconds(CollectiveKind kind, GroupShape shape, gint64 bytes)
{
  double nics = shape.nics_per_group * 50e9, size = (double) bytes;
  double elsewhere = (double) (shape.ranks - shape.ranks_per_node) / shape.ranks;

  if (shape.nodes == 1)
    return collective_bytes_sent(kind, shape.ranks, bytes) / 400e9;
  if (kind == COLLECTIVE_ALL_GATHER || kind == COLLECTIVE_REDUCE_SCATTER)
    return size * elsewhere / nics;
  if (kind == COLLECTIVE_ALL_TO_ALL)
    return size * elsewhere * shape.ranks_per_node / nics;
  return size / nics;
}

START_TEST(no_link_is_beaten)
{
  CollectiveKind kind = (CollectiveKind) _i;

  for (guint g = 0; g < G_N_ELEMENTS(groups); g++) {
    GroupShape shape = group_shape(&cluster, groups[g].ranks, groups[g].stride);

    for (gint64 bytes = 1; bytes < (gint64) 1 << 40; bytes *= 3) {
      double at_best = least_seconds(kind, shape, bytes);
      SimTime time = collective_duration(&cluster, kind, shape, bytes);

      ck_assert_double_ge((double) time, at_best * 1e9 - 0.5);
    }
  }
}
END_TEST

/* (R-1)/R S / B, of the bandwidth inside a node and of that between nodes, on every preset. */
START_TEST(a_ring_never_beats_its_links)
{
  g_auto(GStrv) names = preset_names("cluster");
  for (int i = 0; names[i]; i++) {
    g_autoptr(ClusterSpec) spec = cluster_spec_load(names[i], NULL);
    for (guint g = 0; g < G_N_ELEMENTS(groups); g++) {
      GroupShape shape = group_shape(spec, groups[g].ranks, groups[g].stride);
      double busbw = spec->intra_busbw;
      if (shape.nodes > 1)
        busbw = shape.nics_per_group * spec->nic_bandwidth;
      if (shape.nodes > 1 && shape.ranks_per_node > 1)
        busbw = MIN(busbw, spec->intra_busbw);
      for (gint64 bytes = 1; bytes < (gint64) 1 << 40; bytes *= 5) {
        double least = (double) (shape.ranks - 1) / shape.ranks * (double) bytes / busbw * 1e9;
        ck_assert_double_ge((double) collective_duration(spec, COLLECTIVE_ALL_GATHER, shape, bytes),
                            least - 0.5);
      }
    }
  }
}
END_TEST

START_TEST(large_messages_approach_the_bus_bandwidth)
{
  CollectiveKind kind = (CollectiveKind) _i;
  const gint64 bytes = (gint64) 1 << 42;

  for (guint g = 0; g < G_N_ELEMENTS(groups); g++) {
    GroupShape shape = group_shape(&cluster, groups[g].ranks, groups[g].stride);
    CollectiveCost cost = collective_cost(&cluster, kind, shape);
    double seconds = (double) collective_duration(&cluster, kind, shape, bytes) / 1e9;
    double busbw = collective_factor(kind, shape.ranks) * (double) bytes / seconds;

    ck_assert_double_le(busbw, cost.busbw);
    ck_assert_double_ge(busbw, cost.busbw * 0.99);
  }
}
END_TEST

START_TEST(small_messages_take_the_latency)
{
  CollectiveKind kind = (CollectiveKind) _i;

  for (guint g = 0; g < G_N_ELEMENTS(groups); g++) {
    GroupShape shape = group_shape(&cluster, groups[g].ranks, groups[g].stride);
    CollectiveCost cost = collective_cost(&cluster, kind, shape);

    ck_assert_double_gt(cost.latency_ns, 0);
    /* A byte is less than a nanosecond. */
    ck_assert_double_eq_tol((double) collective_duration(&cluster, kind, shape, 1), cost.latency_ns,
                            1);
  }
}
END_TEST

/* A node more is a hop more, and no link gets faster; a rank that sends to the next one sees one
 * hop, however many there are. */
START_TEST(more_nodes_take_longer)
{
  CollectiveKind kind = (CollectiveKind) _i;

  for (gint64 bytes = 8; bytes < (gint64) 1 << 36; bytes *= 64) {
    SimTime before = 0;

    for (int nodes = 1; nodes <= 64; nodes *= 2) {
      GroupShape shape = group_shape(&cluster, 8 * nodes, 1);
      SimTime time = collective_duration(&cluster, kind, shape, bytes);

      ck_assert(kind == COLLECTIVE_SEND_RECV ? time >= before : time > before);
      before = time;
    }
  }
}
END_TEST

/* Eight groups with a rank on each node share a node's NICs: each has an eighth of what one group
 * over all ranks has. */
START_TEST(groups_with_one_rank_a_node_have_a_share_of_its_nics)
{
  GroupShape outer = group_shape(&cluster, 4, 8), all = group_shape(&cluster, 32, 1);
  double outer_busbw = collective_cost(&cluster, COLLECTIVE_ALL_REDUCE, outer).busbw;
  double all_busbw = collective_cost(&cluster, COLLECTIVE_ALL_REDUCE, all).busbw;

  ck_assert_double_eq_tol(outer_busbw, 45e9, 1);
  ck_assert_double_eq_tol(all_busbw, 360e9, 1);
}
END_TEST

/* ---- lines by hand ---- */

/* 8 GPUs at 100 GB/s and as many NICs of 10 GB/s; steps of 1 and 10 us, a base of 5. */
static const ClusterSpec plain = {
    .gpus_per_node = 8,
    .nics = 8,
    .nic_bandwidth = 10e9,
    .intra_busbw = 100e9,
    .inter_efficiency = 1,
    .base_latency_ns = 5000,
    .intra_hop_ns = 1000,
    .inter_hop_ns = 10000,
    .intra_lines = {[LINE_TREE_SIMPLE] = {TRUE, 3000, 1000, 1, 0, 0}},
    .inter_lines = {[LINE_TREE_SIMPLE] = {TRUE, 0, 10000, 1, 0, 0}},
};

static double
alpha_us(ProtocolLineId id, CollectiveKind kind, int ranks)
{
  CollectiveLine line;
  ck_assert(collective_line(&plain, id, kind, group_shape(&plain, ranks, 1), &line));
  return line.alpha_ns / 1000;
}

/* A ring of R ranks on N nodes: R - N steps stay, N - 1 cross; an all-reduce goes around twice. */
START_TEST(latency_of_a_ring_is_linear_in_ranks)
{
  ck_assert_double_eq(alpha_us(LINE_RING_SIMPLE, COLLECTIVE_ALL_GATHER, 8), 5 + 7);
  ck_assert_double_eq(alpha_us(LINE_RING_SIMPLE, COLLECTIVE_ALL_GATHER, 16), 5 + 14 + 10);
  ck_assert_double_eq(alpha_us(LINE_RING_SIMPLE, COLLECTIVE_ALL_GATHER, 64), 5 + 56 + 70);
  ck_assert_double_eq(alpha_us(LINE_RING_SIMPLE, COLLECTIVE_ALL_GATHER, 1024), 5 + 896 + 1270);
  ck_assert_double_eq(alpha_us(LINE_RING_SIMPLE, COLLECTIVE_ALL_REDUCE, 64), 5 + 2 * (56 + 70));
}
END_TEST

/* Up and down: 7 steps in a node and log2 N between. */
START_TEST(latency_of_a_tree_is_logarithmic_in_nodes)
{
  ck_assert_double_eq(alpha_us(LINE_TREE_SIMPLE, COLLECTIVE_ALL_REDUCE, 16), 3 + 2 * (7 + 10));
  ck_assert_double_eq(alpha_us(LINE_TREE_SIMPLE, COLLECTIVE_ALL_REDUCE, 64), 3 + 2 * (7 + 30));
  ck_assert_double_eq(alpha_us(LINE_TREE_SIMPLE, COLLECTIVE_ALL_REDUCE, 1024), 3 + 2 * (7 + 70));
}
END_TEST

/* Each of two nodes sends the buffer to the other once, an inner node of a tree of many twice:
 * S / (8 x 10 GB/s), and 2 S. */
START_TEST(a_tree_of_two_nodes_crosses_once)
{
  CollectiveLine two, four;
  const double s = 1e9;
  GroupShape on_two = group_shape(&plain, 16, 1), on_four = group_shape(&plain, 32, 1);
  ck_assert(collective_line(&plain, LINE_TREE_SIMPLE, COLLECTIVE_ALL_REDUCE, on_two, &two));
  ck_assert(collective_line(&plain, LINE_TREE_SIMPLE, COLLECTIVE_ALL_REDUCE, on_four, &four));
  ck_assert_double_eq_tol(two.busbw, 100e9, 1); /* the node's own, below 150 */
  ck_assert_double_eq_tol(collective_factor(COLLECTIVE_ALL_REDUCE, 32) * s / four.busbw,
                          2 * s / 80e9, 1e-9);
}
END_TEST

/* Of S bytes a rank of 16 on two nodes sends half to the other node, over its own NIC, and 7/16 to
 * its neighbours meanwhile. */
START_TEST(an_alltoall_uses_links_and_nics_at_once)
{
  GroupShape shape = group_shape(&plain, 16, 1);
  double seconds = 8e9 / 10e9 + (5 + 7 * 1 + 8 * 10) * 1e-6;
  ck_assert_double_eq_tol(
      (double) collective_duration(&plain, COLLECTIVE_ALL_TO_ALL, shape, (gint64) 16e9) / 1e9,
      seconds, 1e-8);
}
END_TEST

/* Rank 7 sends to rank 8 of the next node. */
START_TEST(a_sendrecv_is_paced_by_the_rank_at_the_border)
{
  GroupShape one = group_shape(&plain, 8, 1), two = group_shape(&plain, 16, 1);
  ck_assert_int_eq(collective_duration(&plain, COLLECTIVE_SEND_RECV, one, 1000000000), 10006000);
  ck_assert_int_eq(collective_duration(&plain, COLLECTIVE_SEND_RECV, two, 1000000000), 100015000);
}
END_TEST

START_TEST(a_mesh_gives_two_of_four_gpus_a_third_of_the_links)
{
  ClusterSpec mesh = plain;
  mesh.intra_node = FABRIC_NVLINK;
  mesh.gpus_per_node = 4;
  ck_assert_double_eq_tol(
      collective_cost(&mesh, COLLECTIVE_ALL_GATHER, group_shape(&mesh, 2, 1)).busbw, 100e9 / 3, 1);
  ck_assert_double_eq_tol(
      collective_cost(&mesh, COLLECTIVE_ALL_GATHER, group_shape(&mesh, 4, 1)).busbw, 100e9, 1);
}
END_TEST

/* A pipeline of chunks: (k + S/c)(a + c/B) is least at c = sqrt(S a B / k). */
START_TEST(a_pipeline_costs_twice_a_root)
{
  const CollectiveLine line = {.alpha_ns = 0, .busbw = 1e9, .pipeline_ns = 8 * 500};
  const double k = 8, a = 500, bytes = 4e6, c = sqrt(bytes * a / k); /* B: a byte a ns */
  double best = (k + bytes / c) * (a + c) - k * a;
  ck_assert_double_eq_tol(collective_line_ns(&line, 1, 4000000), best, 1e-3);
}
END_TEST

/* ---- choices ---- */

static void
assert_best(const char *name, CollectiveKind kind, int ranks, gint64 bytes, ProtocolLineId line)
{
  g_autoptr(ClusterSpec) spec = cluster_spec_load(name, NULL);
  GroupShape shape = group_shape(spec, ranks, 1);
  ck_assert_str_eq(protocol_line_keys[collective_best_line(spec, kind, shape, bytes)],
                   protocol_line_keys[line]);
}

/* NCCL issue 309: 8 H100 reduce small messages with LL, from some MiB on with NVLS. */
START_TEST(h100_reduce_small_messages_by_ll_and_large_ones_in_the_switch)
{
  assert_best("h100-8", COLLECTIVE_ALL_REDUCE, 8, 1024, LINE_RING_LL);
  assert_best("h100-8", COLLECTIVE_ALL_REDUCE, 8, 256 * MIB, LINE_NVLS);
  assert_best("h100-8", COLLECTIVE_ALL_REDUCE, 16, 1024, LINE_TREE_LL);
  assert_best("h100-8", COLLECTIVE_ALL_REDUCE, 16, GIB, LINE_NVLS_TREE);
  assert_best("h100-8", COLLECTIVE_ALL_GATHER, 8, GIB, LINE_RING_SIMPLE);
}
END_TEST

START_TEST(a100_have_no_multicast)
{
  assert_best("a100-80gb-8", COLLECTIVE_ALL_REDUCE, 8, GIB, LINE_RING_SIMPLE);
  assert_best("a100-80gb-8", COLLECTIVE_ALL_REDUCE, 64, 1024, LINE_TREE_LL);
}
END_TEST

START_TEST(every_line_belongs_to_an_algorithm_of_its_name)
{
  for (int id = 0; id < LINE_COUNT; id++) {
    const char *name = algorithms[line_algorithm((ProtocolLineId) id)].name;
    ck_assert(g_str_has_prefix(protocol_line_keys[id], name));
    ck_assert_ptr_nonnull(line_protocol((ProtocolLineId) id));
  }
}
END_TEST

/* ---- measured tables ---- */

/* h100-8 with a table of all-gathers of 16 ranks on two nodes. */
static ClusterSpec *
with_table(const char *points)
{
  g_autofree char *text = g_strdup_printf(
      "{\"device\": \"h100-sxm-80gb\", \"gpus_per_node\": 8, \"nccl\": {\"tables\": "
      "[{\"collective\": \"all_gather\", \"ranks\": 16, \"nodes\": 2, \"points\": %s}]}}",
      points);
  g_autoptr(GError) error = NULL;
  ClusterSpec *spec = cluster_spec_parse("c.json", text, strlen(text), &error);
  ck_assert_msg(spec != NULL, "%s", error ? error->message : "");
  return spec;
}

START_TEST(a_measured_table_is_used_as_it_is)
{
  /* Between 1000 and 4000 bytes the time doubles; at 2000, half way in logarithms, it is up by a
   * root of two. */
  g_autoptr(ClusterSpec) spec = with_table("[[1000, 20], [4000, 40], [16000, 100]]");
  GroupShape shape = group_shape(spec, 16, 1);
  ck_assert_int_eq(collective_duration(spec, COLLECTIVE_ALL_GATHER, shape, 1), 20000);
  ck_assert_int_eq(collective_duration(spec, COLLECTIVE_ALL_GATHER, shape, 4000), 40000);
  ck_assert_int_eq(collective_duration(spec, COLLECTIVE_ALL_GATHER, shape, 2000),
                   (SimTime) (20000 * sqrt(2) + 0.5));
  /* Beyond: 60 us for 12000 bytes of the last two octaves. */
  ck_assert_int_eq(collective_duration(spec, COLLECTIVE_ALL_GATHER, shape, 28000), 160000);
  /* A reduce-scatter moves the same; an all-reduce does not, nor do 8 ranks. */
  ck_assert_int_eq(collective_duration(spec, COLLECTIVE_REDUCE_SCATTER, shape, 4000), 40000);
  ck_assert_int_ne(collective_duration(spec, COLLECTIVE_ALL_REDUCE, shape, 4000), 40000);
  ck_assert_int_lt(collective_duration(spec, COLLECTIVE_ALL_GATHER, group_shape(spec, 8, 1), 1),
                   20000);
  ck_assert_int_eq(collective_duration(spec, COLLECTIVE_ALL_GATHER, group_shape(spec, 1, 1), 1000),
                   0);
}
END_TEST

START_TEST(a_measured_table_never_falls)
{
  g_autoptr(ClusterSpec) spec =
      with_table("[[1000, 20], [2000, 15], [4000, 50], [8000, 30], [1000000, 1000]]");
  GroupShape shape = group_shape(spec, 16, 1);
  ck_assert_int_eq(collective_duration(spec, COLLECTIVE_ALL_GATHER, shape, 2000), 20000);
  ck_assert_int_eq(collective_duration(spec, COLLECTIVE_ALL_GATHER, shape, 8000), 50000);
  assert_monotone(spec, COLLECTIVE_ALL_GATHER, shape);
}
END_TEST

/* ---- what it takes to begin ---- */

START_TEST(a_ring_begins_with_a_base_and_a_hop_to_each_other_rank)
{
  static const gint64 sizes[] = {1, 4096, 1 << 20, 1 << 30};
  GroupShape eight = group_shape(&cluster, 8, 1);
  for (guint i = 0; i < G_N_ELEMENTS(sizes); i++) {
    /* 8 us, and 3 us for each of seven steps; an all-reduce goes around twice. */
    ck_assert_int_eq(collective_startup(&cluster, COLLECTIVE_ALL_GATHER, eight, sizes[i]), 29000);
    ck_assert_int_eq(collective_startup(&cluster, COLLECTIVE_REDUCE_SCATTER, eight, sizes[i]),
                     29000);
    ck_assert_int_eq(collective_startup(&cluster, COLLECTIVE_ALL_REDUCE, eight, sizes[i]), 50000);
  }
}
END_TEST

START_TEST(a_measured_collective_begins_as_its_smallest_message_takes)
{
  g_autoptr(ClusterSpec) spec = with_table("[[1000, 20], [4000, 40], [16000, 100]]");
  GroupShape shape = group_shape(spec, 16, 1);
  ck_assert_int_eq(collective_startup(spec, COLLECTIVE_ALL_GATHER, shape, 10), 20000);
  ck_assert_int_eq(collective_startup(spec, COLLECTIVE_ALL_GATHER, shape, 1 << 30), 20000);
}
END_TEST

START_TEST(to_begin_is_part_of_the_duration)
{
  CollectiveKind kind = (CollectiveKind) _i;
  g_autoptr(ClusterSpec) spec = cluster_spec_load("h100-8", NULL);
  for (guint g = 0; g < G_N_ELEMENTS(groups); g++) {
    GroupShape shape = group_shape(spec, groups[g].ranks, groups[g].stride);
    for (gint64 bytes = 1; bytes < (gint64) 1 << 36; bytes *= 8) {
      SimTime startup = collective_startup(spec, kind, shape, bytes);
      ck_assert_int_gt(startup, 0);
      ck_assert_int_le(startup, collective_duration(spec, kind, shape, bytes));
    }
  }
  GroupShape alone = group_shape(spec, 1, 1), eight = group_shape(spec, 8, 1);
  ck_assert_int_eq(collective_startup(spec, kind, alone, 1 << 20), 0);
  ck_assert_int_eq(collective_startup(spec, kind, eight, 0), 0);
}
END_TEST

Suite *
test_suite(void)
{
  Suite *suite = suite_create("collective");
  TCase *tcase = tcase_create("collective");

  suite_add_tcase(suite, tcase);
  tcase_add_loop_test(tcase, shapes_follow_from_the_distance_of_neighbours, 0,
                      G_N_ELEMENTS(shapes));
  tcase_add_loop_test(tcase, a_rank_sends_what_a_ring_sends, 0, COLLECTIVE_KIND_COUNT);
  tcase_add_test(tcase, factors_are_those_of_nccl_tests);
  tcase_add_loop_test(tcase, one_rank_is_free, 0, COLLECTIVE_KIND_COUNT);
  tcase_add_loop_test(tcase, time_is_monotone_in_bytes, 0, COLLECTIVE_KIND_COUNT);
  tcase_add_loop_test(tcase, no_link_is_beaten, 0, COLLECTIVE_KIND_COUNT);
  tcase_add_loop_test(tcase, large_messages_approach_the_bus_bandwidth, 0, COLLECTIVE_KIND_COUNT);
  tcase_add_loop_test(tcase, small_messages_take_the_latency, 0, COLLECTIVE_KIND_COUNT);
  tcase_add_loop_test(tcase, more_nodes_take_longer, 0, COLLECTIVE_KIND_COUNT);
  tcase_add_loop_test(tcase, no_bytes_are_free, 0, COLLECTIVE_KIND_COUNT);
  tcase_add_test(tcase, time_is_monotone_on_every_preset);
  tcase_add_test(tcase, a_ring_never_beats_its_links);
  tcase_add_test(tcase, latency_of_a_ring_is_linear_in_ranks);
  tcase_add_test(tcase, latency_of_a_tree_is_logarithmic_in_nodes);
  tcase_add_test(tcase, a_tree_of_two_nodes_crosses_once);
  tcase_add_test(tcase, an_alltoall_uses_links_and_nics_at_once);
  tcase_add_test(tcase, a_sendrecv_is_paced_by_the_rank_at_the_border);
  tcase_add_test(tcase, a_mesh_gives_two_of_four_gpus_a_third_of_the_links);
  tcase_add_test(tcase, a_pipeline_costs_twice_a_root);
  tcase_add_test(tcase, h100_reduce_small_messages_by_ll_and_large_ones_in_the_switch);
  tcase_add_test(tcase, a100_have_no_multicast);
  tcase_add_test(tcase, every_line_belongs_to_an_algorithm_of_its_name);
  tcase_add_test(tcase, a_measured_table_is_used_as_it_is);
  tcase_add_test(tcase, a_measured_table_never_falls);
  tcase_add_test(tcase, a_ring_begins_with_a_base_and_a_hop_to_each_other_rank);
  tcase_add_test(tcase, a_measured_collective_begins_as_its_smallest_message_takes);
  tcase_add_loop_test(tcase, to_begin_is_part_of_the_duration, 0, COLLECTIVE_KIND_COUNT);
  tcase_add_test(tcase, groups_with_one_rank_a_node_have_a_share_of_its_nics);
  return suite;
}
