/* check_allocator_random.c - the caching allocator under random use: every invariant holds after
 * every call, no two live blocks overlap, the same calls give the same addresses.  What each rule
 * says is checked elsewhere. */
#include "allocator_fixture.h"
#include "memory/allocator_options.h"
#include "tap_main.h"

#define CALLS 10000
#define LIVE 120
#define STREAMS 4

static const char *const options[] = {
    "",
    "max_split_size_mb:20",
    "roundup_power2_divisions:[1:4,8:2,>:8]",
    "per_process_memory_fraction:0.7,garbage_collection_threshold:0.6",
    "per_process_memory_fraction:0.8,garbage_collection_threshold:0.5,max_split_size_mb:24",
    "expandable_segments:True",
    "expandable_segments:True,large_segment_size_mb:40",
    "expandable_segments:True,per_process_memory_fraction:0.7,max_split_size_mb:20",
};

typedef struct {
  Fixture *fixture;
  BlockHandle live[LIVE];
  guint32 state;
  guint64 addresses; /* a hash of all that were handed out */
  guint n_failures;
} Player;

static guint32
roll(Player *player, guint32 sides)
{
  player->state ^= player->state << 13;
  player->state ^= player->state >> 17;
  player->state ^= player->state << 5;
  return player->state % sides;
}

static gint64
random_bytes(Player *player)
{
  static const gint64 most[] = {2 * KIB, MIB, 10 * MIB, 40 * MIB};
  return 1 + roll(player, (guint32) most[roll(player, 4)]);
}

static void
allocate(Player *player, BlockHandle *slot)
{
  AllocatorFailure failure;
  gint64 bytes = random_bytes(player);
  *slot = caching_allocator_malloc(player->fixture->allocator, bytes, (int) roll(player, STREAMS),
                                   &failure);
  if (*slot == BLOCK_NONE) {
    player->n_failures++;
    ck_assert_int_eq(failure.requested_bytes, bytes);
    ck_assert_int_ge(failure.segment_bytes, bytes);
    return;
  }
  ck_assert_int_ge(caching_allocator_block_size(player->fixture->allocator, *slot), bytes);
  player->addresses =
      player->addresses * 31 + caching_allocator_address(player->fixture->allocator, *slot);
}

/* Events complete at random, not in order. */
static void
complete_some(Player *player)
{
  GArray *done = player->fixture->done;
  for (guint i = 0; i < 4 && done->len > 0; i++)
    fixture_complete(player->fixture, done->len - 1 - roll(player, MIN(done->len, 30)));
}

static void
call(Player *player)
{
  BlockHandle *slot = &player->live[roll(player, LIVE)];
  CachingAllocator *allocator = player->fixture->allocator;
  if (*slot == BLOCK_NONE) {
    allocate(player, slot);
  } else if (roll(player, 4) == 0) {
    caching_allocator_record_stream(allocator, *slot, (int) roll(player, STREAMS));
  } else {
    caching_allocator_release(allocator, *slot);
    *slot = BLOCK_NONE;
  }
  if (roll(player, 10) == 0)
    complete_some(player);
  if (roll(player, 400) == 0)
    caching_allocator_empty_cache(allocator);
  if (roll(player, 1000) == 0)
    caching_allocator_set_limit(allocator, (gint64) (300 + roll(player, 200)) * MIB);
}

typedef struct {
  guint64 end; /* of the block before */
  gint64 live;
} Overlap;

static void
check_overlap(const BlockInfo *info, gpointer user)
{
  Overlap *overlap = user;
  ck_assert_uint_ge(info->address, overlap->end);
  overlap->end = info->address + (guint64) info->bytes;
  overlap->live += info->state == BLOCK_ALLOCATED ? info->bytes : 0;
}

static Player
play(const char *text, guint32 seed)
{
  AllocatorConfig config = allocator_config_default();
  config.device_total_bytes = config.memory_limit = 500 * MIB;
  ck_assert(allocator_options_parse(&config, text, NULL));
  Player player = {.fixture = fixture_new(&config), .state = seed};
  for (int i = 0; i < LIVE; i++)
    player.live[i] = BLOCK_NONE;
  for (int i = 0; i < CALLS; i++) {
    call(&player);
    caching_allocator_check(player.fixture->allocator);
  }
  Overlap overlap = {0, 0};
  caching_allocator_visit(player.fixture->allocator, check_overlap, &overlap);
  const AllocatorStats *stats = caching_allocator_stats(player.fixture->allocator);
  ck_assert_int_eq(overlap.live, stats->allocated_bytes.current);
  return player;
}

/* With everything freed and the cache emptied the device has all its memory back. */
static void
finish(Player *player)
{
  CachingAllocator *allocator = player->fixture->allocator;
  for (int i = 0; i < LIVE; i++) {
    if (player->live[i] != BLOCK_NONE)
      caching_allocator_release(allocator, player->live[i]);
  }
  caching_allocator_empty_cache(allocator);
  caching_allocator_check(allocator);
  const AllocatorStats *stats = caching_allocator_stats(allocator);
  ck_assert_int_eq(stats->reserved_bytes.current, 0);
  ck_assert_int_eq(stats->active_bytes.current, 0);
  fixture_free(player->fixture);
}

START_TEST(every_invariant_holds_after_every_call)
{
  Player player = play(options[_i], 1 + (guint32) _i);
  /* The limit was reached, and retries helped. */
  const AllocatorStats *stats = caching_allocator_stats(player.fixture->allocator);
  ck_assert_int_eq(stats->num_ooms, player.n_failures);
  ck_assert_int_gt(stats->num_alloc_retries, stats->num_ooms);
  finish(&player);
}
END_TEST

START_TEST(the_same_calls_give_the_same_addresses)
{
  const char *text = options[_i * 5];
  Player first = play(text, 77), second = play(text, 77);
  ck_assert_uint_eq(first.addresses, second.addresses);
  ck_assert_str_eq(first.fixture->log->str, second.fixture->log->str);
  finish(&first);
  finish(&second);
}
END_TEST

Suite *
test_suite(void)
{
  Suite *suite = suite_create("allocator_random");
  TCase *tcase = tcase_create("allocator_random");
  tcase_set_timeout(tcase, 120);
  suite_add_tcase(suite, tcase);
  tcase_add_loop_test(tcase, every_invariant_holds_after_every_call, 0, G_N_ELEMENTS(options));
  tcase_add_loop_test(tcase, the_same_calls_give_the_same_addresses, 0, 2);
  return suite;
}
