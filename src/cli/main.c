/* main.c - finds the command, prints its error, gives its exit status. */
#include "base/nearest_name.h"
#include "base/units.h"
#include "cli/command.h"
#include "cli/registry.h"
#include <locale.h>
#include <stdio.h>
#include <string.h>

static const Command *const commands[] = {
#define X(name) &command_##name,
    COMMAND_LIST(X)
#undef X
        NULL,
};

static void
print_help(void)
{
  printf("Usage: highwater COMMAND [options]\n\n"
         "Simulates memory and communication of sharded training.\n\nCommands:\n");
  for (guint i = 0; commands[i]; i++)
    printf("  %-10s %s\n", commands[i]->name, commands[i]->summary);
  printf("\nhighwater COMMAND --help shows a command's options.\n"
         "Exit status: 0 done, 1 the answer is no (does not fit, differs too much), 2 wrong usage "
         "or bad input.\n");
}

static const Command *
find_command(const char *name, GError **error)
{
  const char *names[G_N_ELEMENTS(commands)] = {NULL};
  for (guint i = 0; commands[i]; i++) {
    if (g_str_equal(commands[i]->name, name))
      return commands[i];
    names[i] = commands[i]->name;
  }
  const char *nearest = nearest_name(name, names);
  g_set_error(error, HIGHWATER_ERROR, HIGHWATER_ERROR_USAGE,
              "no command '%s'%s%s%s; see highwater --help", name,
              nearest ? "; did you mean '" : "", nearest ? nearest : "", nearest ? "'?" : "");
  return NULL;
}

static int
run_command(int argc, char **argv, GError **error)
{
  if (argc < 2) {
    g_set_error(error, HIGHWATER_ERROR, HIGHWATER_ERROR_USAGE,
                "no command given; see highwater --help");
    return EXIT_BAD_INPUT;
  }
  if (g_str_equal(argv[1], "--help") || g_str_equal(argv[1], "-h") ||
      g_str_equal(argv[1], "help")) {
    print_help();
    return EXIT_ANSWER_YES;
  }
  if (g_str_equal(argv[1], "--version")) {
    printf("highwater %s\n", PACKAGE_VERSION);
    return EXIT_ANSWER_YES;
  }
  const Command *command = find_command(argv[1], error);
  return command ? command->run(argc - 1, argv + 1, error) : EXIT_BAD_INPUT;
}

int
main(int argc, char **argv)
{
  /* Numbers are the same in every locale; only text output follows the user's character set. */
  setlocale(LC_CTYPE, "");
  setlocale(LC_NUMERIC, "C");

  g_autoptr(GError) error = NULL;
  int status = run_command(argc, argv, &error);
  if (error) {
    fprintf(stderr, "highwater: %s\n", error->message);
    return EXIT_BAD_INPUT;
  }
  /* A report that could not be written is no answer. */
  if (fflush(stdout) != 0 || ferror(stdout)) {
    fprintf(stderr, "highwater: standard output: cannot be written\n");
    return EXIT_BAD_INPUT;
  }
  return status;
}
