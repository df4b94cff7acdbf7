/* command.h - one subcommand: a value of this type in cmd_NAME.c, named in COMMANDS of
 * src/local.mk. */
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

/* Parses options with GOption: fills the entries' variables and leaves positionals in *positionals
 * (free with g_strfreev); checks that there are min to max of them (max -1: no limit).  "-" is a
 * positional; all after "--" are. Wrong options and counts are usage errors; --help prints and
 * returns FALSE with no error set. */
gboolean command_parse(const Command *command, int argc, char **argv, const GOptionEntry *entries,
                       int min, int max, char ***positionals, GError **error);

/* Reports that the command is used wrongly: "COMMAND: MESSAGE".  Always FALSE, for the caller to
 * return. */
gboolean command_refuse(const Command *command, GError **error, const char *format, ...)
    G_GNUC_PRINTF(3, 4);

#endif
