/* numbered_path.c - module paths that differ in the number of their block alone, as one name. */
#include "report/numbered_path.h"

#include <stdlib.h>
#include <string.h>

#include "report/block_passes.h"

/* A list of numbers names so many ranges, then the last one. */
enum { RANGES_MAX = 6 };

/* Numbers of more digits are no number of a block. */
enum { DIGITS_MAX = 9 };

NumberedPath
numbered_path(const char *path)
{
  gsize length = block_path_length(path), begin = length;
  while (begin > 0 && g_ascii_isdigit(path[begin - 1]))
    begin--;
  if (begin == length || begin == 0 || path[begin - 1] != '.' || length - begin > DIGITS_MAX)
    return (NumberedPath){.head = g_strdup(path)};
  return (NumberedPath){g_strndup(path, begin), g_strdup(path + length), atoi(path + begin)};
}

void
numbered_path_clear(NumberedPath *path)
{
  g_clear_pointer(&path->head, g_free);
  g_clear_pointer(&path->tail, g_free);
}

void
numbered_path_append_masked(const NumberedPath *path, GString *out)
{
  g_string_append(out, path->head);
  if (path->tail != NULL)
    g_string_append_printf(out, "*%s", path->tail);
}

void
path_set_add(PathSet *set, const NumberedPath *path)
{
  if (set->numbers == NULL) {
    set->path = (NumberedPath){g_strdup(path->head), g_strdup(path->tail), path->number};
    set->numbers = g_array_new(FALSE, FALSE, sizeof(int));
  }
  g_array_append_val(set->numbers, path->number);
}

void
path_set_clear(PathSet *set)
{
  numbered_path_clear(&set->path);
  g_clear_pointer(&set->numbers, g_array_unref);
}

static int
compare_ints(gconstpointer a, gconstpointer b)
{
  return *(const int *) a - *(const int *) b;
}

/* The end of the range that begins at position *i; *i is then behind it. */
static int
take_range(const GArray *numbers, guint *i)
{
  int last = g_array_index(numbers, int, *i);
  for (; *i < numbers->len && g_array_index(numbers, int, *i) <= last + 1; (*i)++)
    last = g_array_index(numbers, int, *i);
  return last;
}

/* "0-3,5": each once. */
static void
append_numbers(GArray *numbers, GString *out)
{
  g_array_sort(numbers, compare_ints);
  guint ranges = 0;
  for (guint i = 0; i < numbers->len; ranges++) {
    int first = g_array_index(numbers, int, i), last = take_range(numbers, &i);
    if (ranges >= RANGES_MAX && i < numbers->len)
      continue;
    g_string_append(out, ranges == 0 ? "" : ranges > RANGES_MAX ? ",...," : ",");
    g_string_append_printf(out, last > first ? "%d-%d" : "%d", first, last);
  }
}

void
path_set_append(PathSet *set, GString *out)
{
  if (set->numbers == NULL)
    return;
  g_string_append(out, set->path.head);
  if (set->path.tail == NULL)
    return;
  append_numbers(set->numbers, out);
  g_string_append(out, set->path.tail);
}
