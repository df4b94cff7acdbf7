/* command.h - one subcommand: a table entry in main.c, a function in cmd_NAME.c. */
#ifndef HIGHWATER_CLI_COMMAND_H
#define HIGHWATER_CLI_COMMAND_H

#include <glib.h>

/* Exit statuses. */
enum { EXIT_ANSWER_YES = 0, EXIT_ANSWER_NO = 1, EXIT_BAD_INPUT = 2 };

typedef struct {
  const char *name;
  const char *arguments; /* "NETWORK [--plan P] ..." */
  const char *summary;   /* one line */
  /* argv[0] is the command's name.  Returns the exit status; when *error is set main prints it as
   * "highwater: MESSAGE" and exits with EXIT_BAD_INPUT. */
  int (*run)(int argc, char **argv, GError **error);
} Command;

extern const Command command_run, command_lower, command_show, command_list, command_replay, command_plot;

/* Parses options with GOption: fills the entries' variables and leaves positionals in *positionals (free with
 * g_strfreev); checks that there are min to max of them.  Unknown options are usage errors; --help prints and returns
 * FALSE with no error set. */
gboolean command_parse(const Command *command, int argc, char **argv, const GOptionEntry *entries, int min, int max,
                       char ***positionals, GError **error);

#endif
