/* chrome_event.c - members of events as text; a trace is a million of them, so nothing here goes
 * through printf. */
#include "report/chrome_event.h"

#include <string.h>

#include "base/number_text.h"

#define append_literal(text, literal) g_string_append_len(text, literal, sizeof(literal) - 1)

static gboolean
is_plain(char c)
{
  return c != '"' && c != '\\' && (guchar) c >= 0x20;
}

void
chrome_event_quote(GString *text, const char *value)
{
  g_string_append_c(text, '"');
  while (*value != '\0') {
    gsize plain = 0;
    while (value[plain] != '\0' && is_plain(value[plain]))
      plain++;
    g_string_append_len(text, value, (gssize) plain);
    value += plain;
    if (*value == '\0')
      break;
    if (*value == '"' || *value == '\\') {
      g_string_append_c(text, '\\');
      g_string_append_c(text, *value);
    } else {
      g_string_append_printf(text, "\\u%04x", (guint) (guchar) *value);
    }
    value++;
  }
  g_string_append_c(text, '"');
}

/* "12.034" of 12034 nanoseconds. */
static void
append_us(GString *text, SimTime time)
{
  gint64 rest = time % 1000;
  char fraction[] = {'.', (char) ('0' + rest / 100), (char) ('0' + rest / 10 % 10),
                     (char) ('0' + rest % 10)};
  g_assert(time >= 0);
  number_text_append(text, time / 1000);
  g_string_append_len(text, fraction, sizeof fraction);
}

void
chrome_event_begin(ChromeEvents *out, const char *type, const char *category, const char *name,
                   int process, int thread)
{
  GString *text = out->text;
  if (out->follows)
    g_string_append_c(text, ',');
  out->follows = TRUE;
  append_literal(text, "\n{\"ph\":\"");
  g_string_append(text, type);
  if (category != NULL) {
    append_literal(text, "\",\"cat\":\"");
    g_string_append(text, category);
  }
  append_literal(text, "\",\"name\":");
  chrome_event_quote(text, name);
  append_literal(text, ",\"pid\":");
  number_text_append(text, process);
  append_literal(text, ",\"tid\":");
  number_text_append(text, thread);
}

void
chrome_event_time(ChromeEvents *out, SimTime time)
{
  append_literal(out->text, ",\"ts\":");
  append_us(out->text, time);
}

void
chrome_event_interval(ChromeEvents *out, SimTime start, SimTime end)
{
  chrome_event_time(out, start);
  append_literal(out->text, ",\"dur\":");
  append_us(out->text, end - start);
}

void
chrome_event_id(ChromeEvents *out, gint64 id)
{
  append_literal(out->text, ",\"id\":");
  number_text_append(out->text, id);
}

void
chrome_event_member(ChromeEvents *out, const char *key, const char *text)
{
  g_string_append_c(out->text, ',');
  chrome_event_quote(out->text, key);
  g_string_append_c(out->text, ':');
  chrome_event_quote(out->text, text);
}

void
chrome_event_end(ChromeEvents *out)
{
  if (out->arguments)
    g_string_append_c(out->text, '}');
  out->arguments = FALSE;
  g_string_append_c(out->text, '}');
}

static void
append_key(ChromeEvents *out, const char *key)
{
  if (out->arguments)
    g_string_append_c(out->text, ',');
  else
    append_literal(out->text, ",\"args\":{");
  out->arguments = TRUE;
  g_string_append_c(out->text, '"');
  g_string_append(out->text, key);
  append_literal(out->text, "\":");
}

void
chrome_event_number(ChromeEvents *out, const char *key, gint64 number)
{
  append_key(out, key);
  number_text_append(out->text, number);
}

void
chrome_event_text(ChromeEvents *out, const char *key, const char *text)
{
  append_key(out, key);
  chrome_event_quote(out->text, text);
}

void
chrome_event_us(ChromeEvents *out, const char *key, SimTime time)
{
  append_key(out, key);
  append_us(out->text, time);
}

static void
write_end(ChromeEvents *out, const char *type, const char *kind, gint64 id, ChromeEnd end)
{
  chrome_event_begin(out, type, kind, kind, end.process, end.thread);
  chrome_event_time(out, end.time);
  chrome_event_id(out, id);
  if (*type == 'f')
    chrome_event_member(out, "bp", "e");
  chrome_event_end(out);
}

void
chrome_event_flow(ChromeEvents *out, const char *kind, gint64 id, ChromeEnd from, ChromeEnd to)
{
  write_end(out, "s", kind, id, from);
  write_end(out, "f", kind, id, to);
}
