/* check_pickle.c - Python's pickles: what is written is what Python would read, what Python wrote
 * is read, and nothing else is.  The bytes that Python wrote were made by CPython 3.11's
 * pickle.dumps; opcodes are those of pickletools. */
#include "base/pickle_writer.h"
#include "base/units.h"
#include "import/pickle_reader.h"
#include "tap_main.h"
#include <string.h>

static Pickle *
read_bytes(const void *bytes, gsize length, GError **error)
{
  g_autoptr(ByteSource) source = byte_source_from_memory("F", bytes, length);
  return pickle_read(source, error);
}

static Pickle *
read_all(const void *bytes, gsize length)
{
  g_autoptr(GError) error = NULL;
  Pickle *pickle = read_bytes(bytes, length, &error);
  ck_assert_msg(pickle != NULL, "%s", error ? error->message : "");
  return pickle;
}

static gint64
number_of(const PickleValue *value)
{
  ck_assert(value != NULL);
  ck_assert_int_eq(value->kind, PICKLE_INT);
  return value->number;
}

static const char *
text_of(const PickleValue *value)
{
  ck_assert(value != NULL);
  ck_assert_int_eq(value->kind, PICKLE_STRING);
  return value->text;
}

/* ---- reading what Python wrote ---- */

/* {'a': [1, 2.5, None, True, False, 'x'], 't': (1, 2), 'n': -1, 'b': 2**40, 'm': -2**40, 'e': [],
 *  'u': 'é'} */
#define BODY_2                                                                                     \
  "\200\002}q\000(X\001\000\000\000aq\001]q\002(K\001G@\004\000\000\000\000\000\000N\210\211X\001" \
  "\000\000\000xq\003eX\001\000\000\000tq\004K\001K\002\206q\005X\001\000\000\000nq\006J\377\377"  \
  "\377\377X\001\000\000\000bq\007\212\006\000\000\000\000\000\001X\001\000\000\000mq\010\212\006" \
  "\000\000\000\000\000\377X\001\000\000\000eq\t]q\nX\001\000\000\000uq\013X\002\000\000\000\303"  \
  "\251q\014u."
#define BODY_4                                                                                     \
  "\200\004\225Y\000\000\000\000\000\000\000}\224(\214\001a\224]\224(K\001G@\004\000\000\000\000"  \
  "\000\000N\210\211\214\001x\224e\214\001t\224K\001K\002\206\224\214\001n\224J\377\377\377\377"   \
  "\214\001b\224\212\006\000\000\000\000\000\001\214\001m\224\212\006\000\000\000\000\000\377\214" \
  "\001e\224]\224\214\001u\224\214\002\303\251\224u."

static void
assert_is_body(const Pickle *pickle)
{
  const PickleValue *root = &pickle->root, *list = pickle_get(root, "a");
  ck_assert_uint_eq(pickle_length(list), 6);
  ck_assert_int_eq(number_of(pickle_item(list, 0)), 1);
  ck_assert_int_eq(pickle_item(list, 1)->kind, PICKLE_DOUBLE);
  ck_assert_double_eq(pickle_item(list, 1)->real, 2.5);
  ck_assert_int_eq(pickle_item(list, 2)->kind, PICKLE_NONE);
  ck_assert_int_eq(pickle_item(list, 3)->kind, PICKLE_BOOL);
  ck_assert_int_eq(pickle_item(list, 3)->number, 1);
  ck_assert_int_eq(pickle_item(list, 4)->number, 0);
  ck_assert_str_eq(text_of(pickle_item(list, 5)), "x");
  ck_assert_int_eq(pickle_get(root, "t")->kind, PICKLE_TUPLE);
  ck_assert_int_eq(number_of(pickle_item(pickle_get(root, "t"), 1)), 2);
  ck_assert_int_eq(number_of(pickle_get(root, "n")), -1);
  ck_assert_int_eq(number_of(pickle_get(root, "b")), (gint64) 1 << 40);
  ck_assert_int_eq(number_of(pickle_get(root, "m")), -((gint64) 1 << 40));
  ck_assert_uint_eq(pickle_length(pickle_get(root, "e")), 0);
  ck_assert_str_eq(text_of(pickle_get(root, "u")), "\303\251");
  ck_assert(pickle_get(root, "z") == NULL);
}

START_TEST(what_python_wrote_in_protocol_2_is_read)
{
  g_autoptr(Pickle) pickle = read_all(BODY_2, sizeof BODY_2 - 1);
  assert_is_body(pickle);
}
END_TEST

START_TEST(what_python_wrote_in_protocol_4_is_read)
{
  g_autoptr(Pickle) pickle = read_all(BODY_4, sizeof BODY_4 - 1);
  assert_is_body(pickle);
}
END_TEST

START_TEST(of_equal_keys_the_last_one_counts)
{
  static const char bytes[] = "}(\214\001aK\001\214\001aK\002u.";
  g_autoptr(Pickle) pickle = read_all(bytes, sizeof bytes - 1);
  ck_assert_int_eq(number_of(pickle_get(&pickle->root, "a")), 2);
}
END_TEST

START_TEST(a_list_may_contain_itself)
{
  static const char bytes[] = "]q\000h\000a."; /* l = []; l.append(l) */
  g_autoptr(Pickle) pickle = read_all(bytes, sizeof bytes - 1);
  const PickleValue *list = &pickle->root;
  for (int i = 0; i < 1000; i++) {
    ck_assert_uint_eq(pickle_length(list), 1);
    list = pickle_item(list, 0);
  }
}
END_TEST

START_TEST(the_largest_and_smallest_numbers_are_read)
{
  static const char bytes[] = "(\212\010\377\377\377\377\377\377\377\177"
                              "\212\010\000\000\000\000\000\000\000\200"
                              "\212\000l.";
  g_autoptr(Pickle) pickle = read_all(bytes, sizeof bytes - 1);
  ck_assert(number_of(pickle_item(&pickle->root, 0)) == G_MAXINT64);
  ck_assert(number_of(pickle_item(&pickle->root, 1)) == G_MININT64);
  ck_assert_int_eq(number_of(pickle_item(&pickle->root, 2)), 0);
}
END_TEST

/* ---- refusing ---- */

static const struct {
  const char *bytes;
  gsize length;
  const char *message;
} refused[] = {
#define REFUSED(bytes, message)                                                                    \
  {                                                                                                \
    bytes, sizeof bytes - 1, message                                                               \
  }
    /* os.system('true') in protocols 0 and 4 */
    REFUSED("\200\002cos\nsystem\n(X\004\000\000\000truetR.",
            "F: byte 2: opcode GLOBAL is refused"),
    REFUSED("\200\004\214\002os\214\006system\223\214\004true\205R.",
            "byte 14: opcode STACK_GLOBAL is refused"),
    REFUSED("(ios\nsystem\n.", "byte 1: opcode INST is refused"),
    REFUSED("]K\001R.", "byte 3: opcode REDUCE is refused"),
    REFUSED("}}b.", "byte 2: opcode BUILD is refused"),
    REFUSED("N\201.", "byte 1: opcode NEWOBJ is refused"),
    REFUSED("Pname\n.", "byte 0: opcode PERSID is refused"),
    REFUSED("N\202\001.", "byte 1: opcode EXT1 is refused"),
    REFUSED("\217.", "byte 0: opcode EMPTY_SET is refused"),
    REFUSED("B\001\000\000\000x.", "byte 0: opcode BINBYTES is refused"),
    REFUSED("\377", "byte 0: 0xff is no opcode"),
    REFUSED("", "byte 0: the file ends without STOP"),
    REFUSED("]", "byte 1: the file ends without STOP"),
    REFUSED(".", "byte 0: takes a value that is not there"),
    REFUSED("N(.", "byte 2: takes a value that is not there"),
    REFUSED("e", "byte 0: a mark is missing"),
    REFUSED("N(K\001e.", "byte 4: adds to what is no list"),
    REFUSED("(K\001e.", "byte 3: adds to what is no list"),
    REFUSED("}(K\001u.", "byte 4: a key has no value"),
    REFUSED("]K\001K\002s.", "byte 5: adds to what is no dictionary"),
    REFUSED("h\001.", "byte 0: repeats value 1, which was not kept"),
    REFUSED("Nr\377\377\377\377.", "byte 1: keeps a value as number 4294967295"),
    REFUSED("\212\011\377\377\377\377\377\377\377\377\000.", "byte 0: a number beyond 64 bits"),
    REFUSED("\212\012\000\000\000\000\000\000\000\000\000\000.", "byte 0: a number of 10 bytes"),
    REFUSED("\200\006N.", "byte 0: protocol 6 is not in 0..5"),
    REFUSED("J\001\002", "byte 0: the file ends in the middle"),
    REFUSED("X\005\000\000\000abc", "byte 0: the file ends in a string"),
    REFUSED("X\377\377\377\177", "byte 0: a string of 2147483647 bytes"),
};

START_TEST(whatever_is_no_plain_value_is_refused_by_name_and_place)
{
  g_autoptr(GError) error = NULL;
  ck_assert(read_bytes(refused[_i].bytes, refused[_i].length, &error) == NULL);
  ck_assert(test_error_says(error, refused[_i].message));
}
END_TEST

/* Each turn doubles a list of itself: 2^40 values if they were copied without end. */
START_TEST(memory_is_bounded)
{
  g_autoptr(GByteArray) bytes = g_byte_array_new();
  g_byte_array_append(bytes, (const guint8 *) "N", 1);
  for (int i = 0; i < 40; i++)
    g_byte_array_append(bytes, (const guint8 *) "q\000(h\000h\000t", 8);
  g_byte_array_append(bytes, (const guint8 *) ".", 1);
  g_autoptr(Pickle) pickle = read_all(bytes->data, bytes->len);
  ck_assert_uint_eq(pickle_length(&pickle->root), 2);
  ck_assert_uint_lt(pickle->chunks->len, 3);
}
END_TEST

/* ---- writing ---- */

START_TEST(what_is_written_are_pythons_opcodes)
{
  static const char expected[] =
      "\200\004}(\214\001aq\000](K\001M\000\001J\377\377\377\377J\000\000\001"
      "\000\212\005\000\000\000\200\000eh\000G?\360\000\000\000\000\000\000"
      "\214\000N\210\211K\000K\001\206u.";
  PickleWriter writer = pickle_writer_begin();
  static const gint64 numbers[] = {1, 256, -1, 65536, (gint64) 1 << 31};
  pickle_begin_dict(&writer);
  pickle_write_string(&writer, "a");
  guint32 a = pickle_keep(&writer);
  pickle_begin_list(&writer);
  for (guint i = 0; i < G_N_ELEMENTS(numbers); i++) {
    pickle_next_item(&writer, i);
    pickle_write_int(&writer, numbers[i]);
  }
  pickle_end_list(&writer);
  pickle_repeat(&writer, a);
  pickle_write_double(&writer, 1);
  pickle_write_string(&writer, "");
  pickle_write_none(&writer);
  pickle_write_bool(&writer, TRUE);
  pickle_write_bool(&writer, FALSE);
  pickle_write_int(&writer, 0);
  pickle_write_int(&writer, 1);
  pickle_make_pair(&writer);
  pickle_end_dict(&writer);
  g_autoptr(GByteArray) bytes = pickle_writer_end(&writer);
  ck_assert_uint_eq(bytes->len, sizeof expected - 1);
  ck_assert_mem_eq(bytes->data, expected, bytes->len);
}
END_TEST

START_TEST(every_number_comes_back)
{
  PickleWriter writer = pickle_writer_begin();
  pickle_begin_list(&writer);
  guint n = 0;
  for (int bit = 0; bit < 63; bit++)
    for (gint64 delta = -1; delta <= 1; delta++) {
      pickle_next_item(&writer, n++);
      pickle_write_int(&writer, ((gint64) 1 << bit) + delta);
      pickle_next_item(&writer, n++);
      pickle_write_int(&writer, -((gint64) 1 << bit) + delta);
    }
  pickle_end_list(&writer);
  g_autoptr(GByteArray) bytes = pickle_writer_end(&writer);
  g_autoptr(Pickle) pickle = read_all(bytes->data, bytes->len);
  n = 0;
  for (int bit = 0; bit < 63; bit++)
    for (gint64 delta = -1; delta <= 1; delta++) {
      ck_assert(number_of(pickle_item(&pickle->root, n++)) == ((gint64) 1 << bit) + delta);
      ck_assert(number_of(pickle_item(&pickle->root, n++)) == -((gint64) 1 << bit) + delta);
    }
}
END_TEST

/* 'e' (APPENDS) after each thousand, as CPython writes. */
START_TEST(long_lists_are_written_in_batches)
{
  PickleWriter writer = pickle_writer_begin();
  pickle_begin_list(&writer);
  for (guint i = 0; i < 2500; i++) {
    pickle_next_item(&writer, i);
    pickle_write_none(&writer);
  }
  pickle_end_list(&writer);
  g_autoptr(GByteArray) bytes = pickle_writer_end(&writer);
  g_autofree char *text = g_strndup((const char *) bytes->data + 2, bytes->len - 2);
  g_autofree char *thousand = g_strnfill(1000, 'N');
  g_autofree char *rest = g_strnfill(500, 'N');
  g_autofree char *expected = g_strconcat("](", thousand, "e(", thousand, "e(", rest, "e.", NULL);
  ck_assert_str_eq(text, expected);
}
END_TEST

START_TEST(invalid_text_is_written_as_valid_utf8)
{
  PickleWriter writer = pickle_writer_begin();
  pickle_write_string(&writer, "a\377b");
  g_autoptr(GByteArray) bytes = pickle_writer_end(&writer);
  g_autoptr(Pickle) pickle = read_all(bytes->data, bytes->len);
  ck_assert(g_utf8_validate(text_of(&pickle->root), -1, NULL));
}
END_TEST

START_TEST(values_kept_under_large_numbers_are_repeated)
{
  PickleWriter writer = pickle_writer_begin();
  pickle_begin_list(&writer);
  for (guint i = 0; i < 600; i++) {
    pickle_next_item(&writer, i);
    pickle_write_int(&writer, i);
    ck_assert_uint_eq(pickle_keep(&writer), i);
  }
  pickle_next_item(&writer, 600);
  pickle_repeat(&writer, 7);
  pickle_next_item(&writer, 601);
  pickle_repeat(&writer, 599);
  pickle_end_list(&writer);
  g_autoptr(GByteArray) bytes = pickle_writer_end(&writer);
  g_autoptr(Pickle) pickle = read_all(bytes->data, bytes->len);
  ck_assert_int_eq(number_of(pickle_item(&pickle->root, 600)), 7);
  ck_assert_int_eq(number_of(pickle_item(&pickle->root, 601)), 599);
}
END_TEST

Suite *
test_suite(void)
{
  Suite *suite = suite_create("pickle");
  TCase *reading = tcase_create("read");
  tcase_add_test(reading, what_python_wrote_in_protocol_2_is_read);
  tcase_add_test(reading, what_python_wrote_in_protocol_4_is_read);
  tcase_add_test(reading, of_equal_keys_the_last_one_counts);
  tcase_add_test(reading, a_list_may_contain_itself);
  tcase_add_test(reading, the_largest_and_smallest_numbers_are_read);
  tcase_add_loop_test(reading, whatever_is_no_plain_value_is_refused_by_name_and_place, 0,
                      G_N_ELEMENTS(refused));
  tcase_add_test(reading, memory_is_bounded);
  suite_add_tcase(suite, reading);
  TCase *writing = tcase_create("write");
  tcase_add_test(writing, what_is_written_are_pythons_opcodes);
  tcase_add_test(writing, every_number_comes_back);
  tcase_add_test(writing, long_lists_are_written_in_batches);
  tcase_add_test(writing, invalid_text_is_written_as_valid_utf8);
  tcase_add_test(writing, values_kept_under_large_numbers_are_repeated);
  suite_add_tcase(suite, writing);
  return suite;
}
