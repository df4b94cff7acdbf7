/* bench_command.c - whole processes: wall time (median of 15 after one to warm up), processor time
 * and peak resident memory, each against the limit that the project has set itself.
 *
 * Ends with 1, and says so, when a limit is exceeded: on a machine that others use too the wall
 * time can be, and the processor time tells whether it is the program. */
#include "bench.h"
#include <fcntl.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/wait.h>

#define RUNS 15

static const struct {
  const char *name;
  const char *arguments;
  double most_ms, most_mib; /* wall time, resident memory */
} cases[] = {
    {"run-llama-3-8b-8-ranks", "run llama-3-8b --plan fsdp2 --set mesh.shard=8 --steps 3 --json",
     20, 61 /* 64 MB */},
    {"run-llama-3.1-405b-1024-ranks",
     "run llama-3.1-405b --plan fsdp2 --set mesh.shard=1024 --steps 3 --json", 80, 61},
};

typedef struct {
  char **argv;
  int status;
  glong peak_kib;               /* largest resident set of all runs */
  double wall[RUNS], cpu[RUNS]; /* seconds */
} Process;

static double
seconds_of(struct timeval time)
{
  return (double) time.tv_sec + 1e-6 * (double) time.tv_usec;
}

/* Runs the process once with its output thrown away; FALSE when it has not answered: 0 (it fits)
 * and 1 (it does not) are answers. */
static gboolean
run_once(Process *process, double *wall, double *cpu)
{
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, 1, "/dev/null", O_WRONLY, 0);
  g_auto(GStrv) environment = g_get_environ();
  gint64 start = g_get_monotonic_time();
  pid_t pid;
  process->status = posix_spawn(&pid, process->argv[0], &actions, NULL, process->argv, environment);
  posix_spawn_file_actions_destroy(&actions);
  if (process->status != 0)
    return FALSE;
  struct rusage usage;
  wait4(pid, &process->status, 0, &usage);
  *wall = (double) (g_get_monotonic_time() - start) / G_USEC_PER_SEC;
  *cpu = seconds_of(usage.ru_utime) + seconds_of(usage.ru_stime);
  process->peak_kib = MAX(process->peak_kib, usage.ru_maxrss);
  return WIFEXITED(process->status) && WEXITSTATUS(process->status) <= 1;
}

static gboolean
run_all(Process *process)
{
  double ignored;
  gboolean answered = run_once(process, &ignored, &ignored);
  for (int i = 0; i < RUNS && answered; i++)
    answered = run_once(process, &process->wall[i], &process->cpu[i]);
  return answered;
}

/* Prints NAME-SUFFIX; FALSE when it is above the limit (0: none). */
static gboolean
figure(const char *name, const char *suffix, double value, const char *unit, double most)
{
  g_autofree char *full = g_strconcat(name, suffix, NULL);
  bench_figure(full, value, unit);
  if (most == 0 || value <= most)
    return TRUE;
  printf("# TOO MUCH: %s is %.4g %s, the limit is %.4g\n", full, value, unit, most);
  fflush(stdout);
  return FALSE;
}

static gboolean
measure(guint i, const char *program)
{
  g_autofree char *line = g_strdup_printf("%s %s", program, cases[i].arguments);
  g_auto(GStrv) argv = g_strsplit(line, " ", -1);
  Process process = {.argv = argv};
  if (!run_all(&process)) {
    printf("# %s: highwater %s failed\n", cases[i].name, cases[i].arguments);
    return FALSE;
  }
  double wall = bench_median(process.wall, RUNS), cpu = bench_median(process.cpu, RUNS);
  gboolean within = figure(cases[i].name, "", wall * 1e3, "ms", cases[i].most_ms);
  figure(cases[i].name, "-cpu", cpu * 1e3, "ms", 0);
  return figure(cases[i].name, "-memory", (double) process.peak_kib / 1024, "MiB",
                cases[i].most_mib) &&
         within;
}

int
main(void)
{
  const char *folder = g_getenv("top_builddir");
  g_autofree char *program = g_build_filename(folder ? folder : ".", "highwater", NULL);
  int failures = 0;
  for (guint i = 0; i < G_N_ELEMENTS(cases); i++)
    failures += !measure(i, program);
  return failures > 0 ? EXIT_FAILURE : EXIT_SUCCESS;
}
