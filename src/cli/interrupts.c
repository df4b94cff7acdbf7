/* interrupts.c - SIGINT and SIGTERM as something to ask for, while there is work to bring to an
 * end. */
#include "cli/interrupts.h"

#include <time.h>

static sigset_t
held_signals(void)
{
  sigset_t held;
  sigemptyset(&held);
  sigaddset(&held, SIGINT);
  sigaddset(&held, SIGTERM);
  return held;
}

void
interrupts_hold(Interrupts *interrupts)
{
  const sigset_t held = held_signals();
  interrupts->signal = 0;
  pthread_sigmask(SIG_BLOCK, &held, &interrupts->before);
}

gboolean
interrupts_came(Interrupts *interrupts)
{
  const sigset_t held = held_signals();
  const struct timespec none = {0, 0};
  if (interrupts->signal != 0)
    return TRUE;
  int signal = sigtimedwait(&held, NULL, &none);
  if (signal <= 0)
    return FALSE;
  interrupts->signal = signal;
  interrupts_release(interrupts);
  return TRUE;
}

void
interrupts_release(Interrupts *interrupts)
{
  pthread_sigmask(SIG_SETMASK, &interrupts->before, NULL);
}
