/* number_text.c - digits from the last to the first. */
#include "base/number_text.h"

const char *
number_text(char buffer[NUMBER_TEXT_SIZE], gint64 number, gsize *length)
{
  char *end = buffer + NUMBER_TEXT_SIZE, *start = end;
  guint64 rest = number < 0 ? -(guint64) number : (guint64) number;
  do
    *--start = (char) ('0' + rest % 10);
  while ((rest /= 10) > 0);
  if (number < 0)
    *--start = '-';
  *length = (gsize) (end - start);
  return start;
}

void
number_text_append(GString *out, gint64 number)
{
  char buffer[NUMBER_TEXT_SIZE];
  gsize length;
  const char *text = number_text(buffer, number, &length);
  g_string_append_len(out, text, (gssize) length);
}
