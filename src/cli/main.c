/* main.c - finds the command, prints its error, gives its exit status. */
#include "base/nearest_name.h"
#include "base/text_table.h"
#include "base/units.h"
#include "cli/command.h"
#include "cli/registry.h"
#include <errno.h>
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
  g_autoptr(TextTable) table = text_table_new("ll");
  for (guint i = 0; commands[i]; i++)
    text_table_row(table, commands[i]->name, commands[i]->summary, NULL);
  g_autoptr(GString) list = g_string_new(NULL);
  text_table_print(table, 2, list);
  printf("Usage: highwater COMMAND [options]\n\n"
         "Simulates memory and communication of sharded training.\n\n"
         "Commands:\n%s\n"
         "highwater COMMAND --help shows a command's options, highwater --version the version.\n"
         "Exit status: 0 done, 1 the answer is no (it does not fit, no table in a file),\n"
         "2 wrong usage or bad input.\n",
         list->str);
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
  if (nearest)
    g_set_error(error, HIGHWATER_ERROR, HIGHWATER_ERROR_USAGE,
                "no command '%.60s'; did you mean '%s'?", name, nearest);
  else
    g_set_error(error, HIGHWATER_ERROR, HIGHWATER_ERROR_USAGE,
                "no command '%.60s'; see highwater --help", name);
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

/* One line whatever names and values the message quotes. */
static void
print_error(const char *message)
{
  g_autofree char *text = g_utf8_make_valid(message, -1);
  for (char *p = text; *p; p++)
    if (g_ascii_iscntrl(*p))
      *p = ' ';
  fprintf(stderr, "highwater: %s\n", text);
}

int
main(int argc, char **argv)
{
  /* The user's character set, but numbers that are the same everywhere. */
  setlocale(LC_CTYPE, "");
  setlocale(LC_NUMERIC, "C");

  g_autoptr(GError) error = NULL;
  int status = run_command(argc, argv, &error);
  if (error) {
    print_error(error->message);
    return EXIT_BAD_INPUT;
  }
  /* An answer that could not be written is none. */
  if (fflush(stdout) != 0 || ferror(stdout)) {
    fprintf(stderr, "highwater: standard output: cannot be written: %s\n", g_strerror(errno));
    return EXIT_BAD_INPUT;
  }
  return status;
}
