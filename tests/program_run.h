/* program_run.h - runs highwater itself, for tests of what it prints and writes. */
#ifndef HIGHWATER_TESTS_PROGRAM_RUN_H
#define HIGHWATER_TESTS_PROGRAM_RUN_H

#include <glib.h>

/* What the program did. */
typedef struct {
  int status;
  char *out, *err;
} Outcome;

/* In the folder, with the arguments (NULL-terminated, the command first).  Free with
 * outcome_clear. */
Outcome program_run(const char *folder, const char *const *arguments);
void outcome_clear(Outcome *outcome);

/* Says with a note that figures are not drawn, if there is no gnuplot. */
gboolean program_has_gnuplot(void);

#endif
