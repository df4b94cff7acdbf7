/* tap_main.h - what a test program consists of: one suite; main(), TAP output and paths come from
 * tap_main.c. */
#ifndef HIGHWATER_TESTS_TAP_MAIN_H
#define HIGHWATER_TESTS_TAP_MAIN_H

#include <check.h>
#include <glib.h>

/* Defined by each check_*.c: all its tests. */
Suite *test_suite(void);

/* A file of the source tree: test_source_path("tests/data/x.json").  Caller frees. */
char *test_source_path(const char *relative);
/* A file of the reference data, which does not come with the sources: under $HIGHWATER_SHARED, else
 * ../shared beside the source tree.  NULL when it is not there; then leave the test out and say so
 * with test_note().  Caller frees. */
char *test_reference_path(const char *relative);
/* A new empty folder to write in, and its removal with all it contains (frees the name). */
char *test_folder_new(void);
void test_folder_remove(char *folder);
/* Prints a TAP comment. */
void test_note(const char *format, ...) G_GNUC_PRINTF(1, 2);

/* TRUE when error is set with HIGHWATER_ERROR and its message contains text; prints the message if
 * not. */
gboolean test_error_says(const GError *error, const char *text);

#endif
