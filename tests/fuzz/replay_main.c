/* replay_main.c - stands in for libFuzzer: gives each file named on the command line to the fuzz
 * target. */
#include "fuzz.h"
#include <stdio.h>
#include <stdlib.h>

int
main(int argc, char **argv)
{
  for (int i = 1; i < argc; i++) {
    g_autofree char *data = NULL;
    gsize size;
    g_autoptr(GError) error = NULL;
    if (!g_file_get_contents(argv[i], &data, &size, &error)) {
      fprintf(stderr, "%s\n", error->message);
      return EXIT_FAILURE;
    }
    /* Without the terminator GLib puts behind it, so that the address sanitizer sees reads beyond
     * the end. */
    g_autofree guint8 *exact = g_memdup2(data, size);
    LLVMFuzzerTestOneInput(exact, size);
  }
  return EXIT_SUCCESS;
}
