/* category.c - names of the categories of memory. */
#include "base/category.h"
#include <glib.h>

static const char *const names[CATEGORY_COUNT] = {
#define X(name, text) [CATEGORY_##name] = text,
    MEMORY_CATEGORIES(X)
#undef X
};

const char *
category_name(Category category)
{
  g_assert((guint) category < CATEGORY_COUNT);
  return names[category];
}

int
category_from_name(const char *name)
{
  for (int i = 0; i < CATEGORY_COUNT; i++)
    if (g_str_equal(names[i], name))
      return i;
  return -1;
}
