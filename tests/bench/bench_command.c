/* bench_command.c - whole processes: wall time (median of 15 after one to warm up) and peak
 * resident memory. */
#include "bench.h"
#include <fcntl.h>
#include <spawn.h>
#include <stdio.h>
#include <sys/resource.h>
#include <sys/wait.h>

#define RUNS 15

static const struct {
  const char *name;
  const char *arguments;
} cases[] = {
    {"run-llama-3-8b-8-ranks", "run llama-3-8b --plan fsdp2 --set mesh.shard=8 --steps 3 --json"},
    {"run-llama-3.1-405b-1024-ranks",
     "run llama-3.1-405b --plan fsdp2 --set mesh.shard=1024 --steps 3 --json"},
};

typedef struct {
  char **argv;
  int status;
  glong peak_kib; /* largest resident set of all runs */
} Process;

/* Starts the process with its output thrown away and waits for it. */
static void
run_process(gpointer data)
{
  Process *process = data;
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, 1, "/dev/null", O_WRONLY, 0);
  g_auto(GStrv) environment = g_get_environ();
  pid_t pid;
  process->status = posix_spawn(&pid, process->argv[0], &actions, NULL, process->argv, environment);
  posix_spawn_file_actions_destroy(&actions);
  if (process->status != 0)
    return;
  struct rusage usage;
  wait4(pid, &process->status, 0, &usage);
  process->peak_kib = MAX(process->peak_kib, usage.ru_maxrss);
}

/* 0 (it fits) and 1 (it does not) are answers. */
static gboolean
has_answered(const Process *process)
{
  return WIFEXITED(process->status) && WEXITSTATUS(process->status) <= 1;
}

int
main(void)
{
  const char *folder = g_getenv("top_builddir");
  g_autofree char *program = g_build_filename(folder ? folder : ".", "highwater", NULL);
  int failures = 0;
  for (guint i = 0; i < G_N_ELEMENTS(cases); i++) {
    g_autofree char *line = g_strdup_printf("%s %s", program, cases[i].arguments);
    g_auto(GStrv) argv = g_strsplit(line, " ", -1);
    Process process = {.argv = argv};
    run_process(&process);
    if (!has_answered(&process)) {
      printf("# %s: highwater %s failed\n", cases[i].name, cases[i].arguments);
      failures++;
      continue;
    }
    double seconds = bench_median_seconds(run_process, &process, RUNS);
    g_autofree char *memory = g_strconcat(cases[i].name, "-memory", NULL);
    bench_figure(cases[i].name, seconds * 1e3, "ms");
    bench_figure(memory, (double) process.peak_kib / 1024, "MiB");
  }
  return failures > 0;
}
