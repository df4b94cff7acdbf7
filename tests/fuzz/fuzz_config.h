/* fuzz_config.h - any bytes for one of the parsers of training configurations: a tree, or one line
 * that says what is wrong. */
#ifndef HIGHWATER_TESTS_FUZZ_CONFIG_H
#define HIGHWATER_TESTS_FUZZ_CONFIG_H

#include "fuzz.h"
#include "import/config_tree.h"
#include <string.h>

static inline int
fuzz_config(gboolean (*read)(ConfigTree *, const char *, gsize, GError **), const guint8 *data,
            gsize size)
{
  g_autoptr(GError) error = NULL;
  g_autoptr(ConfigTree) tree = g_new0(ConfigTree, 1);
  tree->name = g_strdup("input");
  tree->lines = g_hash_table_new(NULL, NULL);
  gboolean is_read = read(tree, size > 0 ? (const char *) data : "", size, &error);
  g_assert(is_read == (error == NULL));
  g_assert(!is_read || cJSON_IsObject(tree->root));
  g_assert(is_read || strchr(error->message, '\n') == NULL);
  return 0;
}

#endif
