/* headroom.c - how much of the allocator's memory a plan is to leave free. */
#include "search/headroom.h"

#include "base/units.h"

gboolean
headroom_read(const char *command, const char *text, Headroom *headroom, GError **error)
{
  if (text == NULL)
    return TRUE;
  char *end;
  double percent = g_ascii_strtod(text, &end);
  if (end != text && g_str_equal(end, "%")) {
    *headroom = (Headroom){-1, percent / 100};
    if (percent >= 0 && percent < 100)
      return TRUE;
    g_set_error(error, HIGHWATER_ERROR, HIGHWATER_ERROR_USAGE,
                "%s: --headroom: is from 0 to below 100 %%", command);
    return FALSE;
  }
  if (parse_size(text, &headroom->bytes, error))
    return TRUE;
  g_prefix_error(error,
                 "%s: --headroom: a part of the memory (10%%) or a size is needed: ", command);
  return FALSE;
}

gint64
headroom_of(const Headroom *headroom, gint64 capacity)
{
  if (headroom->bytes >= 0)
    return headroom->bytes;
  return capacity == G_MAXINT64 ? 0 : (gint64) ((double) capacity * headroom->fraction);
}
