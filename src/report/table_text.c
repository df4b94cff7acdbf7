/* table_text.c - the cells of tables that gnuplot and other readers of columns take. */
#include "report/table_text.h"

#include "base/number_text.h"
#include <string.h>

static void
append_printable(GString *out, const char *text)
{
  for (; *text; text++)
    g_string_append_c(out, g_ascii_iscntrl(*text) ? ' ' : *text == '"' ? '\'' : *text);
}

void
table_begin(GString *out, const char *format, const char *title)
{
  g_string_append_printf(out, "# %s: ", format);
  for (; *title; title++)
    g_string_append_c(out, g_ascii_iscntrl(*title) ? ' ' : *title);
  g_string_append(out, "\n");
}

/* A block has rows unless its last line is still the comment with the names of its columns. */
static void
drop_empty_block(GString *out)
{
  char *last = out->len > 1 ? g_strrstr_len(out->str, (gssize) out->len - 1, "\n") : NULL;
  if (!last || last[1] != '#')
    return;
  char *begin = g_strrstr_len(out->str, last - out->str, "\n\n\n# ");
  if (begin)
    g_string_truncate(out, (gsize) (begin - out->str) + 1);
}

void
table_block(GString *out, const char *name, const char *columns)
{
  drop_empty_block(out);
  g_string_append_printf(out, "\n\n# %s\n# %s\n", name, columns);
}

void
table_end(GString *out)
{
  drop_empty_block(out);
}

void
table_number(GString *out, gint64 number)
{
  number_text_append(out, number);
}

void
table_time(GString *out, SimTime time)
{
  char digits[9];
  gint64 rest = time % 1000000000;
  for (int i = 8; i >= 0; i--, rest /= 10)
    digits[i] = (char) ('0' + rest % 10);
  table_number(out, time / 1000000000);
  g_string_append_c(out, '.');
  g_string_append_len(out, digits, sizeof digits);
}

void
table_word(GString *out, const char *text)
{
  if (!text || !*text) {
    g_string_append_c(out, '-');
    return;
  }
  gboolean blank = FALSE;
  for (const char *c = text; *c && !blank; c++)
    blank = *c == ' ' || *c == '#' || g_ascii_iscntrl(*c);
  if (blank)
    g_string_append_c(out, '"');
  append_printable(out, text);
  if (blank)
    g_string_append_c(out, '"');
}
