/* check_free_set.c - the ordered set behind the pools, and the driver's addresses, against the
 * plainest way to do the same. */
#include "base/units.h"
#include "memory/address_space.h"
#include "memory/free_set.h"
#include "tap_main.h"

static guint32
roll(guint32 *state)
{
  *state ^= *state << 13;
  *state ^= *state >> 17;
  *state ^= *state << 5;
  return *state;
}

static gint
compare_keys(gconstpointer a, gconstpointer b)
{
  const FreeKey *x = a, *y = b;
  if (x->bytes != y->bytes)
    return x->bytes < y->bytes ? -1 : 1;
  return (x->address > y->address) - (x->address < y->address);
}

/* Index of the first key of a sorted array that is not below key. */
static guint
plain_lower_bound(const GArray *keys, FreeKey key)
{
  guint i = 0;
  while (i < keys->len && compare_keys(&g_array_index(keys, FreeKey, i), &key) < 0)
    i++;
  return i;
}

static void
same_order(const FreeSet *set, const GArray *keys)
{
  FreePosition position;
  gboolean more = free_set_first(set, &position);
  for (guint i = 0; i < keys->len; i++, more = free_set_next(set, &position)) {
    FreeKey key = free_set_key(set, position);
    ck_assert(more && compare_keys(&key, &g_array_index(keys, FreeKey, i)) == 0);
    ck_assert_int_eq(free_set_block(set, position), (gint32) (key.address / 512));
  }
  ck_assert(!more);
  more = free_set_last(set, &position);
  for (guint i = keys->len; i-- > 0; more = free_set_previous(set, &position)) {
    FreeKey key = free_set_key(set, position);
    ck_assert(more && compare_keys(&key, &g_array_index(keys, FreeKey, i)) == 0);
  }
  ck_assert(!more);
}

/* Sizes over many powers of two, and a few that come again and again; addresses differ. */
static FreeKey
random_key(guint32 *state, guint32 serial)
{
  guint32 dice = roll(state);
  gint64 units = dice % 3 == 0 ? 1 + dice / 3 % 4 : (gint64) 1 << (dice / 3 % 40);
  units += dice % 5 == 0 ? roll(state) % 1000 : 0;
  return (FreeKey){units * 512, (guint64) serial * 512};
}

START_TEST(the_set_keeps_the_order_of_sizes_and_addresses)
{
  FreeSet set = {0};
  g_autoptr(GArray) keys = g_array_new(FALSE, FALSE, sizeof(FreeKey));
  guint32 state = 7;
  for (guint32 i = 1; i <= 4000; i++) {
    if (keys->len > 0 && roll(&state) % 5 < 2) {
      guint victim = roll(&state) % keys->len;
      free_set_remove(&set, g_array_index(keys, FreeKey, victim));
      g_array_remove_index(keys, victim);
    } else {
      FreeKey key = random_key(&state, i);
      guint at = plain_lower_bound(keys, key);
      free_set_insert(&set, key, (gint32) i);
      g_array_insert_val(keys, at, key);
    }
    FreeKey wanted = random_key(&state, roll(&state) % (i + 1));
    guint expected = plain_lower_bound(keys, wanted);
    FreePosition found;
    ck_assert_int_eq(free_set_lower_bound(&set, wanted, &found), expected < keys->len);
    if (expected < keys->len) {
      FreeKey key = free_set_key(&set, found);
      ck_assert(compare_keys(&key, &g_array_index(keys, FreeKey, expected)) == 0);
    }
    ck_assert_uint_eq(set.count, keys->len);
    if (i % 100 == 0)
      same_order(&set, keys);
  }
  while (keys->len > 0) {
    FreePosition first;
    ck_assert(free_set_first(&set, &first));
    free_set_remove_at(&set, first);
    g_array_remove_index(keys, 0);
  }
  same_order(&set, keys);
  free_set_clear(&set);
}
END_TEST

START_TEST(an_empty_set_has_no_first_and_no_last)
{
  FreeSet set = {0};
  FreePosition position;
  ck_assert(!free_set_first(&set, &position) && !free_set_last(&set, &position));
  ck_assert(!free_set_lower_bound(&set, (FreeKey){512, 0}, &position));
  free_set_insert(&set, (FreeKey){1024, 512}, 3);
  /* Smaller and equal keys find it, larger ones do not. */
  ck_assert(free_set_lower_bound(&set, (FreeKey){512, G_MAXUINT64}, &position));
  ck_assert(free_set_lower_bound(&set, (FreeKey){1024, 512}, &position));
  ck_assert(!free_set_lower_bound(&set, (FreeKey){1024, 513}, &position));
  ck_assert(!free_set_lower_bound(&set, (FreeKey){(gint64) 1 << 55, 0}, &position));
  free_set_clear(&set);
}
END_TEST

#define GRANULES 64

/* A space of 64 granules with a flag each, beside the real one. */
typedef struct {
  AddressSpace space;
  gboolean taken[GRANULES];
} Spaces;

static gboolean
is_free(const Spaces *spaces, guint begin, guint count)
{
  for (guint i = begin; i < begin + count; i++) {
    if (i >= GRANULES || spaces->taken[i])
      return FALSE;
  }
  return TRUE;
}

static void
mark(Spaces *spaces, guint begin, guint count, gboolean taken)
{
  for (guint i = begin; i < begin + count; i++)
    spaces->taken[i] = taken;
}

static void
take(Spaces *spaces, guint count, gboolean lowest)
{
  const guint64 base = 10 * (guint64) ADDRESS_GRANULE;
  /* One byte more than count - 1 granules needs count of them. */
  gint64 bytes = (count - 1) * ADDRESS_GRANULE + 1;
  guint64 address = 0;
  guint expected = GRANULES;
  for (guint i = 0; i < GRANULES; i++) {
    if (is_free(spaces, i, count) && (expected == GRANULES || !lowest))
      expected = i;
  }
  gboolean ok = lowest ? address_space_take_lowest(&spaces->space, bytes, &address)
                       : address_space_take_highest(&spaces->space, bytes, &address);
  ck_assert_int_eq(ok, expected < GRANULES);
  if (!ok)
    return;
  ck_assert_uint_eq(address, base + expected * (guint64) ADDRESS_GRANULE);
  mark(spaces, expected, count, TRUE);
}

START_TEST(addresses_are_first_fit_from_either_end)
{
  const guint64 base = 10 * (guint64) ADDRESS_GRANULE;
  Spaces spaces = {0};
  guint32 state = 3;
  address_space_init(&spaces.space, base, base + GRANULES * (guint64) ADDRESS_GRANULE);
  for (int i = 0; i < 5000; i++) {
    guint begin = roll(&state) % GRANULES, count = 1 + roll(&state) % 6;
    guint64 address = base + begin * (guint64) ADDRESS_GRANULE;
    gboolean was_free = is_free(&spaces, begin, count);
    switch (roll(&state) % 4) {
    case 0:
    case 1:
      take(&spaces, count, roll(&state) % 2);
      break;
    case 2:
      ck_assert_int_eq(address_space_claim(&spaces.space, address, count * ADDRESS_GRANULE),
                       was_free);
      if (was_free)
        mark(&spaces, begin, count, TRUE);
      break;
    default:
      if (spaces.taken[begin]) {
        address_space_release(&spaces.space, address, ADDRESS_GRANULE);
        mark(&spaces, begin, 1, FALSE);
      }
    }
  }
  address_space_clear(&spaces.space);
}
END_TEST

START_TEST(a_claim_off_the_granules_or_outside_is_refused)
{
  AddressSpace space;
  address_space_init(&space, 4 * (guint64) ADDRESS_GRANULE, 8 * (guint64) ADDRESS_GRANULE);
  ck_assert(!address_space_claim(&space, 4 * (guint64) ADDRESS_GRANULE + 512, 512));
  ck_assert(!address_space_claim(&space, 2 * (guint64) ADDRESS_GRANULE, 512));
  ck_assert(!address_space_claim(&space, 7 * (guint64) ADDRESS_GRANULE, 2 * ADDRESS_GRANULE));
  ck_assert(!address_space_claim(&space, 5 * (guint64) ADDRESS_GRANULE, (gint64) 1 << 56));
  ck_assert(address_space_claim(&space, 4 * (guint64) ADDRESS_GRANULE, 4 * ADDRESS_GRANULE));
  address_space_clear(&space);
}
END_TEST

Suite *
test_suite(void)
{
  Suite *suite = suite_create("free_set");
  TCase *tcase = tcase_create("free_set");
  suite_add_tcase(suite, tcase);
  tcase_add_test(tcase, the_set_keeps_the_order_of_sizes_and_addresses);
  tcase_add_test(tcase, an_empty_set_has_no_first_and_no_last);
  tcase_add_test(tcase, addresses_are_first_fit_from_either_end);
  tcase_add_test(tcase, a_claim_off_the_granules_or_outside_is_refused);
  return suite;
}
