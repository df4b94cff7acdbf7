/* quick.h - HIGHWATER_QUICK: where all tests have run in another configuration, some cases of the
 * long ones are enough. */
#ifndef HIGHWATER_TESTS_QUICK_H
#define HIGHWATER_TESTS_QUICK_H

#include <glib.h>

static inline gboolean
quick(void)
{
  const char *asked = g_getenv("HIGHWATER_QUICK");
  return asked != NULL && *asked != '\0';
}

/* Every so manieth case is run. */
static inline int
quick_stride(void)
{
  return quick() ? 6 : 1;
}

#endif
