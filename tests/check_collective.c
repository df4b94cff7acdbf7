/* check_collective.c - for every kind of collective and many shapes of communicators: one rank is
 * free, time is monotone in bytes, no link is beaten, and what is sent is what a ring sends. */
#include "collective/collective.h"
#include "history.h"
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

/* Powers of two, and steps between and beside them where another protocol may take over. */
START_TEST(time_is_monotone_in_bytes)
{
  CollectiveKind kind = (CollectiveKind) _i;

  for (guint g = 0; g < G_N_ELEMENTS(groups); g++) {
    GroupShape shape = group_shape(&cluster, groups[g].ranks, groups[g].stride);
    SimTime before = 0;

    for (double bytes = 1; bytes < 1e12; bytes = ceil(bytes * 1.01)) {
      SimTime time = collective_duration(&cluster, kind, shape, (gint64) bytes);

      ck_assert_int_gt(time, 0);
      ck_assert_int_ge(time, before);
      before = time;
    }
  }
}
END_TEST

/* Inside a node a rank's own link carries what it sends.  Across nodes a node's NICs do, too: all
 * ranks of the group on a node use the NICs it may. */
static double
link_bandwidth(GroupShape shape)
{
  double nics = shape.nics_per_group * 50e9;

  return shape.nodes == 1 ? 400e9 : MIN(400e9, nics);
}

START_TEST(no_link_is_beaten)
{
  CollectiveKind kind = (CollectiveKind) _i;

  for (guint g = 0; g < G_N_ELEMENTS(groups); g++) {
    GroupShape shape = group_shape(&cluster, groups[g].ranks, groups[g].stride);

    for (gint64 bytes = 1; bytes < (gint64) 1 << 40; bytes *= 3) {
      double at_best = collective_bytes_sent(kind, shape.ranks, bytes) / link_bandwidth(shape);
      SimTime time = collective_duration(&cluster, kind, shape, bytes);

      ck_assert_double_ge((double) time, at_best * 1e9 - 0.5);
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
    ck_assert_double_eq_tol((double) collective_duration(&cluster, kind, shape, 0), cost.latency_ns,
                            0.5);
  }
}
END_TEST

/* A node more is a hop more, and no link gets faster. */
START_TEST(more_nodes_take_longer)
{
  CollectiveKind kind = (CollectiveKind) _i;

  for (gint64 bytes = 8; bytes < (gint64) 1 << 36; bytes *= 64) {
    SimTime before = 0;

    for (int nodes = 1; nodes <= 64; nodes *= 2) {
      GroupShape shape = group_shape(&cluster, 8 * nodes, 1);
      SimTime time = collective_duration(&cluster, kind, shape, bytes);

      ck_assert_int_gt(time, before);
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
  tcase_add_test(tcase, groups_with_one_rank_a_node_have_a_share_of_its_nics);
  return suite;
}
