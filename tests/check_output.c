/* check_output.c - files that appear whole or not at all; tables of aligned text. */
#include "base/output_file.h"
#include "base/text_table.h"
#include "base/units.h"
#include "tap_main.h"
#include <glib/gstdio.h>
#include <sys/stat.h>
#include <unistd.h>

static guint
count_files(const char *folder)
{
  g_autoptr(GDir) dir = g_dir_open(folder, 0, NULL);
  guint count = 0;
  while (g_dir_read_name(dir))
    count++;
  return count;
}

static void
assert_contents(const char *path, const char *expected)
{
  g_autofree char *text = NULL;
  ck_assert(g_file_get_contents(path, &text, NULL, NULL));
  ck_assert_str_eq(text, expected);
}

START_TEST(a_file_appears_when_it_is_committed_and_replaces_the_old_one)
{
  char *folder = test_folder_new();
  g_autofree char *path = g_build_filename(folder, "out.txt", NULL);
  ck_assert(output_file_write(path, "old", 3, NULL));
  g_chmod(path, 0640);
  OutputFile *file = output_file_open(path, NULL);
  fputs("new text", output_file_stream(file));
  assert_contents(path, "old");
  ck_assert(output_file_commit(file, NULL));
  assert_contents(path, "new text");
  ck_assert_uint_eq(count_files(folder), 1);
  struct stat status;
  ck_assert_int_eq(stat(path, &status), 0);
  ck_assert_int_eq(status.st_mode & 0777, 0640);
  test_folder_remove(folder);
}
END_TEST

START_TEST(a_new_file_has_the_permissions_of_the_umask)
{
  char *folder = test_folder_new();
  g_autofree char *path = g_build_filename(folder, "out.txt", NULL);
  umask(027);
  ck_assert(output_file_write(path, "", 0, NULL));
  struct stat status;
  ck_assert_int_eq(stat(path, &status), 0);
  ck_assert_int_eq(status.st_mode & 0777, 0640);
  test_folder_remove(folder);
}
END_TEST

START_TEST(a_discarded_file_leaves_nothing_and_the_old_one_untouched)
{
  char *folder = test_folder_new();
  g_autofree char *path = g_build_filename(folder, "out.txt", NULL);
  {
    g_autoptr(OutputFile) file = output_file_open(path, NULL);
    fputs("half", output_file_stream(file));
    ck_assert_uint_eq(count_files(folder), 1);
  }
  ck_assert_uint_eq(count_files(folder), 0);
  ck_assert(output_file_write(path, "old", 3, NULL));
  output_file_discard(output_file_open(path, NULL));
  assert_contents(path, "old");
  ck_assert_uint_eq(count_files(folder), 1);
  output_file_discard(NULL);
  test_folder_remove(folder);
}
END_TEST

START_TEST(a_target_that_cannot_be_written_is_an_output_error)
{
  char *folder = test_folder_new();
  g_autofree char *path = g_build_filename(folder, "missing", "out.txt", NULL);
  g_autofree char *message = g_strdup_printf("%s: cannot be written: No such file", path);
  g_autoptr(GError) error = NULL, is_folder = NULL;
  ck_assert(!output_file_write(path, "x", 1, &error));
  ck_assert(test_error_says(error, message));
  ck_assert_int_eq(error->code, HIGHWATER_ERROR_OUTPUT);
  ck_assert(!output_file_write(folder, "x", 1, &is_folder));
  ck_assert(test_error_says(is_folder, "Is a directory"));
  ck_assert_uint_eq(count_files(folder), 0);
  test_folder_remove(folder);
}
END_TEST

START_TEST(a_full_disk_is_an_output_error)
{
  struct stat status;
  if (stat("/dev/full", &status) != 0 || !S_ISCHR(status.st_mode) ||
      access("/dev/full", W_OK) != 0) {
    test_note("no device /dev/full here: not tried");
    return;
  }
  g_autoptr(GError) error = NULL;
  ck_assert(!output_file_write("/dev/full", "x", 1, &error));
  ck_assert(test_error_says(error, "/dev/full: cannot be written: No space left"));
  g_autofree char *large = g_strnfill(1 << 20, 'x'); /* fails before the last flush */
  g_autoptr(GError) again = NULL;
  ck_assert(!output_file_write("/dev/full", large, 1 << 20, &again));
  ck_assert(test_error_says(again, "/dev/full: cannot be written: "));
  ck_assert(g_file_test("/dev/full", G_FILE_TEST_EXISTS));
}
END_TEST

START_TEST(a_device_is_written_and_not_replaced)
{
  ck_assert(output_file_write("/dev/null", "x", 1, NULL));
  struct stat status;
  ck_assert(stat("/dev/null", &status) == 0 && S_ISCHR(status.st_mode));
}
END_TEST

START_TEST(columns_are_aligned_two_spaces_apart_without_trailing_spaces)
{
  g_autoptr(TextTable) table = text_table_new("lrl");
  static const char *const cells[] = {"total", "1234", NULL};
  text_table_row(table, "name", "n", "note", NULL);
  text_table_row(table, "a", "12", "", NULL);
  text_table_row(table, "", "", "x", NULL);
  text_table_row(table, "", "", "", NULL);
  text_table_row_array(table, cells);
  g_autoptr(GString) out = g_string_new("before\n");
  text_table_print(table, 2, out);
  ck_assert_str_eq(out->str, "before\n"
                             "  name      n  note\n"
                             "  a        12\n"
                             "               x\n"
                             "\n"
                             "  total  1234\n");
}
END_TEST

START_TEST(columns_are_as_wide_as_their_characters)
{
  g_autoptr(TextTable) table = text_table_new("ll");
  text_table_row(table, "\xc3\xa9t\xc3\xa9", "x", NULL); /* three characters in five bytes */
  text_table_row(table, "abcd", "y", NULL);
  g_autoptr(GString) out = g_string_new(NULL);
  text_table_print(table, 0, out);
  ck_assert_str_eq(out->str, "\xc3\xa9t\xc3\xa9   x\nabcd  y\n");
}
END_TEST

START_TEST(a_table_without_rows_prints_nothing)
{
  g_autoptr(TextTable) table = text_table_new("r");
  g_autoptr(GString) out = g_string_new(NULL);
  text_table_print(table, 4, out);
  ck_assert_str_eq(out->str, "");
}
END_TEST

Suite *
test_suite(void)
{
  Suite *suite = suite_create("output");
  TCase *files = tcase_create("files"), *tables = tcase_create("tables");
  suite_add_tcase(suite, files);
  suite_add_tcase(suite, tables);
  tcase_add_test(files, a_file_appears_when_it_is_committed_and_replaces_the_old_one);
  tcase_add_test(files, a_new_file_has_the_permissions_of_the_umask);
  tcase_add_test(files, a_discarded_file_leaves_nothing_and_the_old_one_untouched);
  tcase_add_test(files, a_target_that_cannot_be_written_is_an_output_error);
  tcase_add_test(files, a_full_disk_is_an_output_error);
  tcase_add_test(files, a_device_is_written_and_not_replaced);
  tcase_add_test(tables, columns_are_aligned_two_spaces_apart_without_trailing_spaces);
  tcase_add_test(tables, columns_are_as_wide_as_their_characters);
  tcase_add_test(tables, a_table_without_rows_prints_nothing);
  return suite;
}
