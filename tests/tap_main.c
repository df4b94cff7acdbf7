/* tap_main.c - runs one suite and prints TAP. */
#include "tap_main.h"
#include "base/units.h"
#include <glib/gstdio.h>
#include <stdlib.h>
#include <string.h>

static const char *
source_folder(void)
{
  const char *folder = g_getenv("top_srcdir");
  return folder ? folder : SOURCE_DIR;
}

char *
test_source_path(const char *relative)
{
  return g_build_filename(source_folder(), relative, NULL);
}

char *
test_reference_path(const char *relative)
{
  const char *folder = g_getenv("HIGHWATER_SHARED");
  g_autofree char *path = folder
                              ? g_build_filename(folder, relative, NULL)
                              : g_build_filename(source_folder(), "..", "shared", relative, NULL);
  return g_file_test(path, G_FILE_TEST_EXISTS) ? g_steal_pointer(&path) : NULL;
}

char *
test_folder_new(void)
{
  char *folder = g_dir_make_tmp("highwater-test-XXXXXX", NULL);
  g_assert(folder != NULL);
  return folder;
}

static void
remove_tree(const char *folder)
{
  GDir *dir = g_dir_open(folder, 0, NULL);
  const char *name;
  while (dir && (name = g_dir_read_name(dir))) {
    g_autofree char *path = g_build_filename(folder, name, NULL);
    gboolean is_folder =
        g_file_test(path, G_FILE_TEST_IS_DIR) && !g_file_test(path, G_FILE_TEST_IS_SYMLINK);
    if (is_folder)
      remove_tree(path);
    else
      g_unlink(path);
  }
  if (dir)
    g_dir_close(dir);
  g_rmdir(folder);
}

void
test_folder_remove(char *folder)
{
  remove_tree(folder);
  g_free(folder);
}

void
test_note(const char *format, ...)
{
  va_list arguments;
  va_start(arguments, format);
  g_autofree char *text = g_strdup_vprintf(format, arguments);
  va_end(arguments);
  printf("# %s\n", text);
  fflush(stdout);
}

gboolean
test_error_says(const GError *error, const char *text)
{
  if (error && error->domain == HIGHWATER_ERROR && strstr(error->message, text))
    return TRUE;
  test_note("expected an error that says \"%s\", got \"%s\"", text,
            error ? error->message : "no error");
  return FALSE;
}

/* The exit status is 0 even if tests fail: the TAP lines say so, and the driver counts any other
 * status as one more error.  A crash is seen all the same, as a failed case or a missing plan. */
int
main(void)
{
  SRunner *runner = srunner_create(test_suite());
  srunner_set_tap(runner, "-");
  srunner_run_all(runner, CK_SILENT);
  srunner_free(runner);
  return EXIT_SUCCESS;
}
