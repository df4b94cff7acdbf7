/* program_run.c - runs highwater itself, for tests of what it prints and writes. */
#include "program_run.h"
#include "tap_main.h"
#include <sys/wait.h>

Outcome
program_run(const char *folder, const char *const *arguments)
{
  const char *build = g_getenv("top_builddir");
  g_autoptr(GPtrArray) argv = g_ptr_array_new_with_free_func(g_free);
  g_ptr_array_add(argv, g_build_filename(build ? build : ".", "highwater", NULL));
  for (; *arguments; arguments++)
    g_ptr_array_add(argv, g_strdup(*arguments));
  g_ptr_array_add(argv, NULL);
  Outcome outcome = {0};
  int wait_status;
  ck_assert(g_spawn_sync(folder, (char **) argv->pdata, NULL, 0, NULL, NULL, &outcome.out,
                         &outcome.err, &wait_status, NULL));
  ck_assert(WIFEXITED(wait_status));
  outcome.status = WEXITSTATUS(wait_status);
  return outcome;
}

void
outcome_clear(Outcome *outcome)
{
  g_free(outcome->out);
  g_free(outcome->err);
}

gboolean
program_has_gnuplot(void)
{
  g_autofree char *found = g_find_program_in_path(GNUPLOT);
  if (!found)
    test_note("no gnuplot here: figures are not drawn");
  return found != NULL;
}
