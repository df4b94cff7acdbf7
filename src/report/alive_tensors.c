/* alive_tensors.c - tensors that are alive at a moment, the same tensors of all blocks together. */
#include "report/alive_tensors.h"

#include "report/block_passes.h"
#include "report/numbered_path.h"
#include <string.h>

static void
free_tensors(gpointer data)
{
  AliveTensors *tensors = data;
  g_free(tensors->name);
  g_free(tensors);
}

/* Appends a path with "*" for the number of its block. */
static void
append_masked(GString *out, const char *path)
{
  NumberedPath numbered = numbered_path(path);
  numbered_path_append_masked(&numbered, out);
  numbered_path_clear(&numbered);
}

/* Do all tensors of a block count as one? */
static gboolean
is_state(Category category)
{
  return category == CATEGORY_PARAMETER || category == CATEGORY_OPTIMIZER_STATE ||
         category == CATEGORY_SHARDED_GRADIENT || category == CATEGORY_UNSHARDED_PARAMETER ||
         category == CATEGORY_UNSHARDED_GRADIENT;
}

/* The block of states; of others module and what, unless what says the module.  Caller frees. */
static char *
name_of(const Recording *recording, const LiveTensor *tensor)
{
  const char *module = tensor->module < 0 ? "" : recording_text(recording, tensor->module);
  const char *what = tensor->what < 0 ? "" : recording_text(recording, tensor->what);
  GString *name = g_string_new(NULL);
  if (*module && is_state(tensor->category)) {
    g_autofree char *block = g_strndup(module, block_path_length(module));
    append_masked(name, block);
    return g_string_free(name, FALSE);
  }
  if (*module && !g_str_has_prefix(what, module)) {
    append_masked(name, module);
    g_string_append_c(name, ' ');
  }
  append_masked(name, what);
  return g_strchomp(g_string_free(name, FALSE));
}

static int
by_bytes(gconstpointer a, gconstpointer b)
{
  const AliveTensors *x = *(const AliveTensors *const *) a, *y = *(const AliveTensors *const *) b;
  if (x->bytes != y->bytes)
    return x->bytes > y->bytes ? -1 : 1;
  return x->category != y->category ? x->category - y->category : strcmp(x->name, y->name);
}

GPtrArray *
alive_tensors(const Recording *recording, const GArray *live)
{
  GPtrArray *all = g_ptr_array_new_with_free_func(free_tensors);
  g_autoptr(GHashTable) known = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, NULL);
  for (guint i = 0; live && i < live->len; i++) {
    const LiveTensor *tensor = &g_array_index(live, LiveTensor, i);
    g_autofree char *name = name_of(recording, tensor);
    char *key = g_strdup_printf("%d %s", tensor->category, name);
    AliveTensors *found = g_hash_table_lookup(known, key);
    if (found) {
      g_free(key);
    } else {
      found = g_new0(AliveTensors, 1);
      found->name = g_steal_pointer(&name);
      found->category = tensor->category;
      g_ptr_array_add(all, found);
      g_hash_table_insert(known, key, found);
    }
    found->count++;
    found->bytes += tensor->bytes;
  }
  g_ptr_array_sort(all, by_bytes);
  return all;
}
