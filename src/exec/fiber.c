/* fiber.c - fibers as user contexts of the C library. */
#include "exec/fiber.h"

#include <ucontext.h>

/* The deepest a host gets is a message being formatted, and sanitizers need several times what the
 * program does.  Pages that are never touched cost nothing. */
#define STACK_BYTES (256 * 1024)

struct _Fiber {
  ucontext_t inside, outside;
  void (*body)(gpointer user);
  gpointer user, stack;
  gboolean is_over;
};

/* makecontext() passes ints only: a pointer comes in two halves. */
static void
enter(unsigned int high, unsigned int low)
{
  Fiber *fiber = (Fiber *) (guintptr) ((guint64) high << 32 | low);
  fiber->body(fiber->user);
  fiber->is_over = TRUE;
}

Fiber *
fiber_new(void (*body)(gpointer user), gpointer user)
{
  Fiber *fiber = g_new0(Fiber, 1);
  guint64 address = (guintptr) fiber;
  fiber->body = body;
  fiber->user = user;
  fiber->stack = g_malloc(STACK_BYTES);
  int failed = getcontext(&fiber->inside);
  g_assert(failed == 0);
  fiber->inside.uc_stack.ss_sp = fiber->stack;
  fiber->inside.uc_stack.ss_size = STACK_BYTES;
  fiber->inside.uc_link = &fiber->outside;
  makecontext(&fiber->inside, (void (*)(void)) enter, 2, (unsigned int) (address >> 32),
              (unsigned int) address);
  return fiber;
}

void
fiber_free(Fiber *fiber)
{
  if (fiber == NULL)
    return;
  g_free(fiber->stack);
  g_free(fiber);
}

void
fiber_resume(Fiber *fiber)
{
  g_assert(!fiber->is_over);
  int failed = swapcontext(&fiber->outside, &fiber->inside);
  g_assert(failed == 0);
}

void
fiber_pause(Fiber *fiber)
{
  int failed = swapcontext(&fiber->inside, &fiber->outside);
  g_assert(failed == 0);
}

gboolean
fiber_is_over(const Fiber *fiber)
{
  return fiber->is_over;
}
