/* json_scan.c - strict syntax check of JSON text, with line numbers. */
#include "base/json_scan.h"
#include "base/units.h"
#include <string.h>

/* cJSON copies a number into 64 bytes. */
#define LONGEST_NUMBER 63

typedef struct {
  const char *name;
  const char *p, *end;
  guint line, depth;
  GArray *key_lines;
  GError **error;
} Scan;

static gboolean scan_value(Scan *scan);

static gboolean
fail(Scan *scan, const char *what)
{
  g_set_error(scan->error, HIGHWATER_ERROR, HIGHWATER_ERROR_INPUT, "%s: line %u: %s", scan->name,
              scan->line, what);
  return FALSE;
}

/* The next character, or -1 at the end. */
static int
peek(const Scan *scan)
{
  return scan->p < scan->end ? (guchar) *scan->p : -1;
}

static void
skip_space(Scan *scan)
{
  for (; scan->p < scan->end && strchr(" \t\r\n", *scan->p) && *scan->p; scan->p++)
    if (*scan->p == '\n')
      scan->line++;
}

static gboolean
fail_expecting(Scan *scan, const char *expected)
{
  int c = peek(scan);
  g_autofree char *found = c < 0                ? g_strdup("the text ends")
                           : g_ascii_isprint(c) ? g_strdup_printf("'%c' stands", c)
                                                : g_strdup_printf("byte 0x%02x stands", (guint) c);
  g_autofree char *what = g_strdup_printf("%s where %s is expected", found, expected);
  return fail(scan, what);
}

/* A key or value must be text that C can hold, so an escaped NUL is refused here; cJSON would cut
 * the string there. */
static gboolean
scan_escape(Scan *scan)
{
  if (scan->p < scan->end && strchr("\"\\/bfnrt", *scan->p) && *scan->p) {
    scan->p++;
    return TRUE;
  }
  if (peek(scan) != 'u')
    return fail_expecting(scan, "one of \" \\ / b f n r t u after a backslash");
  scan->p++;
  gboolean zero = TRUE;
  for (int i = 0; i < 4; i++, scan->p++) {
    int c = peek(scan);
    if (c < 0 || !g_ascii_isxdigit(c))
      return fail_expecting(scan, "a hexadecimal digit");
    zero = zero && c == '0';
  }
  return zero ? fail(scan, "a string holds a NUL character") : TRUE;
}

static gboolean
scan_string(Scan *scan, const char *expected)
{
  if (peek(scan) != '"')
    return fail_expecting(scan, expected);
  scan->p++;
  while (peek(scan) != '"') {
    int c = peek(scan);
    if (c < 0)
      return fail(scan, "the text ends inside a string");
    if (c < 0x20)
      return fail(scan, c == '\n' ? "the line ends inside a string"
                                  : "a string holds a control character");
    scan->p++;
    if (c == '\\' && !scan_escape(scan))
      return FALSE;
  }
  scan->p++;
  return TRUE;
}

static gboolean
scan_digits(Scan *scan)
{
  const char *start = scan->p;
  while (scan->p < scan->end && g_ascii_isdigit(*scan->p))
    scan->p++;
  return scan->p > start ? TRUE : fail_expecting(scan, "a digit");
}

static gboolean
scan_number(Scan *scan)
{
  const char *start = scan->p;
  if (*scan->p == '-')
    scan->p++;
  if (peek(scan) == '0')
    scan->p++;
  else if (!scan_digits(scan))
    return FALSE;
  if (peek(scan) == '.') {
    scan->p++;
    if (!scan_digits(scan))
      return FALSE;
  }
  if (peek(scan) == 'e' || peek(scan) == 'E') {
    scan->p++;
    if (peek(scan) == '+' || peek(scan) == '-')
      scan->p++;
    if (!scan_digits(scan))
      return FALSE;
  }
  return scan->p - start <= LONGEST_NUMBER ? TRUE : fail(scan, "a number has too many digits");
}

static gboolean
scan_member(Scan *scan)
{
  if (!scan_string(scan, "a key in double quotes"))
    return FALSE;
  if (scan->key_lines)
    g_array_append_val(scan->key_lines, scan->line);
  skip_space(scan);
  if (peek(scan) != ':')
    return fail_expecting(scan, "':' after a key");
  scan->p++;
  return scan_value(scan);
}

/* An object or array, from its opening bracket to its closing one. */
static gboolean
scan_container(Scan *scan, gboolean (*scan_item)(Scan *scan), char close, const char *expected)
{
  if (++scan->depth > JSON_MAX_DEPTH)
    return fail(scan, "nested more than " G_STRINGIFY(JSON_MAX_DEPTH) " levels deep");
  scan->p++;
  skip_space(scan);
  if (peek(scan) != close) {
    for (;;) {
      skip_space(scan);
      if (!scan_item(scan))
        return FALSE;
      skip_space(scan);
      if (peek(scan) != ',')
        break;
      scan->p++;
    }
    if (peek(scan) != close)
      return fail_expecting(scan, expected);
  }
  scan->p++;
  scan->depth--;
  return TRUE;
}

static gboolean
scan_literal(Scan *scan)
{
  static const char *const literals[] = {"true", "false", "null"};
  for (guint i = 0; i < G_N_ELEMENTS(literals); i++) {
    gsize length = strlen(literals[i]);
    if ((gsize) (scan->end - scan->p) >= length && memcmp(scan->p, literals[i], length) == 0) {
      scan->p += length;
      return TRUE;
    }
  }
  return fail_expecting(scan, "a value");
}

static gboolean
scan_value(Scan *scan)
{
  skip_space(scan);
  int c = peek(scan);
  if (c == '{')
    return scan_container(scan, scan_member, '}', "',' or '}'");
  if (c == '[')
    return scan_container(scan, scan_value, ']', "',' or ']'");
  if (c == '"')
    return scan_string(scan, "a string");
  if (c == '-' || (c >= '0' && c <= '9'))
    return scan_number(scan);
  return scan_literal(scan);
}

gboolean
json_scan(const char *name, const char *text, gsize length, GArray *key_lines, GError **error)
{
  Scan scan = {.name = name,
               .p = text,
               .end = text + length,
               .line = 1,
               .key_lines = key_lines,
               .error = error};
  const char *bad = NULL;
  if (!g_utf8_validate_len(text, length, &bad)) {
    for (const char *p = text; p < bad; p++)
      scan.line += *p == '\n';
    return fail(&scan, "not UTF-8 text");
  }
  if (!scan_value(&scan))
    return FALSE;
  skip_space(&scan);
  return scan.p == scan.end ? TRUE : fail_expecting(&scan, "the end of the text");
}
