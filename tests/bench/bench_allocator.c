/* bench_allocator.c - operations a second of the caching allocator, in three patterns of use. */
#include "base/units.h"
#include "bench.h"
#include "memory/caching_allocator.h"
#include <time.h>

#define STEP_TENSORS 400
#define CHURN_LIVE 2000

/* xorshift: the same sequence everywhere. */
static guint32
next_random(guint32 *state)
{
  *state ^= *state << 13;
  *state ^= *state >> 17;
  *state ^= *state << 5;
  return *state;
}

/* A training step: activations are kept in forward, with a temporary for each, and freed in
 * reverse. */
static gint64
run_steps(CachingAllocator *allocator, gint64 steps)
{
  BlockHandle kept[STEP_TENSORS];
  for (gint64 step = 0; step < steps; step++) {
    for (int i = 0; i < STEP_TENSORS; i++) {
      BlockHandle temporary = caching_allocator_malloc(allocator, (1 + i % 7) * 3 * MIB, 0, NULL);
      kept[i] = caching_allocator_malloc(allocator, 512 + i % 11 * 700 * KIB, 0, NULL);
      caching_allocator_release(allocator, temporary);
    }
    for (int i = STEP_TENSORS; i-- > 0;)
      caching_allocator_release(allocator, kept[i]);
  }
  return steps * STEP_TENSORS * 4;
}

/* One block again and again: a tensor that an operator allocates and drops. */
static gint64
run_single(CachingAllocator *allocator, gint64 rounds)
{
  for (gint64 i = 0; i < rounds; i++)
    caching_allocator_release(allocator,
                              caching_allocator_malloc(allocator, 4 * KIB + i % 512, 0, NULL));
  return rounds * 2;
}

/* Random sizes and lifetimes on four streams: many free blocks of all sizes. */
static gint64
run_churn(CachingAllocator *allocator, gint64 rounds)
{
  static const gint64 scale[] = {512, 8 * KIB, 300 * KIB, 5 * MIB};
  g_autofree BlockHandle *live = g_new(BlockHandle, CHURN_LIVE);
  for (int i = 0; i < CHURN_LIVE; i++)
    live[i] = BLOCK_NONE;
  guint32 state = 1;
  for (gint64 i = 0; i < rounds; i++) {
    guint32 dice = next_random(&state);
    BlockHandle *block = &live[dice % CHURN_LIVE];
    if (*block != BLOCK_NONE)
      caching_allocator_release(allocator, *block);
    gint64 bytes = scale[dice >> 12 & 3] * (1 + (dice >> 14 & 15));
    *block = caching_allocator_malloc(allocator, bytes, (int) (dice >> 20 & 3), NULL);
  }
  for (int i = 0; i < CHURN_LIVE; i++) {
    if (live[i] != BLOCK_NONE)
      caching_allocator_release(allocator, live[i]);
  }
  return rounds * 2;
}

static const struct {
  const char *name[2]; /* classic, expandable */
  gint64 (*run)(CachingAllocator *allocator, gint64 rounds);
  gint64 rounds;
} patterns[] = {
    {{"allocator-single", "allocator-single-expandable"}, run_single, 4000000},
    {{"allocator-steps", "allocator-steps-expandable"}, run_steps, 5000},
    {{"allocator-churn", "allocator-churn-expandable"}, run_churn, 3000000},
};

/* Processor time of this process: other load on the machine does not count. */
static double
cpu_seconds(void)
{
  struct timespec now;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return (double) now.tv_sec + (double) now.tv_nsec / 1e9;
}

static void
measure(guint i, gboolean expandable)
{
  AllocatorConfig config = allocator_config_default();
  config.expandable_segments = expandable;
  g_autoptr(CachingAllocator) allocator = caching_allocator_new(&config, NULL);
  double start = cpu_seconds();
  gint64 operations = patterns[i].run(allocator, patterns[i].rounds);
  double seconds = cpu_seconds() - start;
  bench_figure(patterns[i].name[expandable], (double) operations / seconds / 1e6, "Mops/s");
}

int
main(void)
{
  for (guint i = 0; i < G_N_ELEMENTS(patterns); i++) {
    measure(i, FALSE);
    measure(i, TRUE);
  }
  return 0;
}
