/* program_scan.c - words and values of the Program's text form.
 *
 * The text may come from anywhere: every number is checked for overflow and every id against the
 * table it indexes, at the line where it stands. */
#include <math.h>
#include <string.h>

#include "base/units.h"
#include "program/program_scan.h"

gboolean
program_scan_fail(const Scanner *scanner, const char *format, ...)
{
  va_list arguments;
  g_autofree char *what = NULL;

  va_start(arguments, format);
  what = g_strdup_vprintf(format, arguments);
  va_end(arguments);
  g_set_error(scanner->error, HIGHWATER_ERROR, HIGHWATER_ERROR_INPUT, "%s: line %d: %s",
              scanner->name, scanner->line, what);
  return FALSE;
}

gboolean
program_token_is(Token token, const char *text)
{
  return strlen(text) == token.length && memcmp(token.start, text, token.length) == 0;
}

static void
skip_blanks(Scanner *scanner)
{
  while (scanner->cursor < scanner->end && (*scanner->cursor == ' ' || *scanner->cursor == '\t'))
    scanner->cursor++;
}

Token
program_scan_token(Scanner *scanner)
{
  Token token;

  skip_blanks(scanner);
  token.start = scanner->cursor;
  while (scanner->cursor < scanner->end && *scanner->cursor != ' ' && *scanner->cursor != '\t')
    scanner->cursor++;
  token.length = (gsize) (scanner->cursor - token.start);
  return token;
}

gboolean
program_scan_at_end(Scanner *scanner)
{
  skip_blanks(scanner);
  return scanner->cursor == scanner->end;
}

gboolean
program_scan_end(Scanner *scanner)
{
  Token rest = program_scan_token(scanner);

  return rest.length == 0 || program_scan_fail(scanner, "unexpected '%.*s'", TOKEN_ARGUMENTS(rest));
}

gboolean
program_token_integer(Token token, gint64 *value)
{
  *value = 0;
  for (gsize i = 0; i < token.length; i++) {
    if (!g_ascii_isdigit(token.start[i]) || __builtin_mul_overflow(*value, 10, value) ||
        __builtin_add_overflow(*value, token.start[i] - '0', value))
      return FALSE;
  }
  return token.length > 0;
}

/* The index of an enumerated kind's name, or -1. */
static gint64
enum_value(const Scanner *scanner, ValueKind kind, Token token)
{
  gint64 minimum, maximum;

  program_value_range(scanner->program, kind, &minimum, &maximum);
  for (gint64 i = minimum; i <= maximum; i++)
    if (program_token_is(token, program_value_name(kind, i)))
      return i;
  return -1;
}

static gboolean
parse_enum(Scanner *scanner, ValueKind kind, Token token, gint64 *value)
{
  g_autoptr(GString) allowed = NULL;
  gint64 minimum, maximum;

  *value = enum_value(scanner, kind, token);
  if (*value >= 0)
    return TRUE;
  allowed = g_string_new(NULL);
  program_value_range(scanner->program, kind, &minimum, &maximum);
  for (gint64 i = minimum; i <= maximum; i++)
    g_string_append_printf(allowed, "%s%s", i > minimum ? ", " : "", program_value_name(kind, i));
  return program_scan_fail(scanner, "'%.*s' is no %s; allowed: %s", TOKEN_ARGUMENTS(token),
                           program_value_kind_name(kind), allowed->str);
}

gboolean
program_scan_value(Scanner *scanner, ValueKind kind, Token token, gint64 *value)
{
  gint64 minimum, maximum;

  if (program_value_name(kind, 0) != NULL)
    return parse_enum(scanner, kind, token, value);
  program_value_range(scanner->program, kind, &minimum, &maximum);
  if (minimum == -1 && program_token_is(token, "-")) {
    *value = -1;
    return TRUE;
  }
  if (!program_token_integer(token, value))
    return program_scan_fail(scanner, "'%.*s' is no %s", TOKEN_ARGUMENTS(token),
                             program_value_kind_name(kind));
  if (*value > maximum && maximum < 0)
    return program_scan_fail(scanner, "%s %.*s: no %s is declared before this line",
                             program_value_kind_name(kind), TOKEN_ARGUMENTS(token),
                             program_value_kind_name(kind));
  if (*value < minimum || *value > maximum)
    return program_scan_fail(scanner, "%s %.*s is not in %" G_GINT64_FORMAT "..%" G_GINT64_FORMAT,
                             program_value_kind_name(kind), TOKEN_ARGUMENTS(token), MAX(minimum, 0),
                             maximum);
  return TRUE;
}

gboolean
program_scan_id(Scanner *scanner, ValueKind kind, gint32 *id)
{
  gint64 value;

  if (!program_scan_value(scanner, kind, program_scan_token(scanner), &value))
    return FALSE;
  *id = (gint32) value;
  return TRUE;
}

gboolean
program_scan_real(Scanner *scanner, Token token, double *value)
{
  char *end;

  if (token.length == 0 || !g_ascii_isdigit(token.start[0]))
    return program_scan_fail(scanner, "'%.*s' is no number", TOKEN_ARGUMENTS(token));
  *value = g_ascii_strtod(token.start, &end);
  if (end != token.start + token.length || !isfinite(*value))
    return program_scan_fail(scanner, "'%.*s' is no number", TOKEN_ARGUMENTS(token));
  return TRUE;
}

gboolean
program_scan_due_id(Scanner *scanner, const char *keyword, guint due)
{
  Token token = program_scan_token(scanner);
  gint64 id;

  return (program_token_integer(token, &id) && id == due) ||
         program_scan_fail(scanner, "%s '%.*s' where %s %u is due", keyword, TOKEN_ARGUMENTS(token),
                           keyword, due);
}

gboolean
program_scan_key(Scanner *scanner, const char *key, Token *value)
{
  Token token = program_scan_token(scanner);
  gsize length = strlen(key);

  if (token.length <= length || memcmp(token.start, key, length) != 0 || token.start[length] != '=')
    return program_scan_fail(scanner, "'%.*s' where '%s=' is due", TOKEN_ARGUMENTS(token), key);
  *value = (Token){token.start + length + 1, token.length - length - 1};
  return TRUE;
}

/* One character of a quoted text, or -1 where it is malformed. */
static int
next_character(Scanner *scanner)
{
  const char *at = scanner->cursor;
  int left = (int) MIN(scanner->end - at, 4);

  if (*at != '\\') {
    scanner->cursor += 1;
    return (guchar) *at < ' ' || *at == 0x7f ? -1 : (guchar) *at;
  }
  if (left >= 2 && (at[1] == '"' || at[1] == '\\')) {
    scanner->cursor += 2;
    return at[1];
  }
  if (left >= 4 && at[1] == 'x' && g_ascii_isxdigit(at[2]) && g_ascii_isxdigit(at[3])) {
    int value = g_ascii_xdigit_value(at[2]) * 16 + g_ascii_xdigit_value(at[3]);

    scanner->cursor += 4;
    return value == 0 ? -1 : value;
  }
  return -1;
}

gboolean
program_scan_text(Scanner *scanner, GPtrArray *texts)
{
  g_autoptr(GString) text = g_string_new(NULL);

  skip_blanks(scanner);
  if (scanner->cursor == scanner->end || *scanner->cursor != '"')
    return program_scan_fail(scanner, "a text in quotes is due");
  scanner->cursor++;
  while (scanner->cursor < scanner->end && *scanner->cursor != '"') {
    int character = next_character(scanner);

    if (character < 0)
      return program_scan_fail(scanner, "bad character or escape in the text");
    g_string_append_c(text, (char) character);
  }
  if (scanner->cursor == scanner->end)
    return program_scan_fail(scanner, "the text has no closing quote");
  scanner->cursor++;
  g_ptr_array_add(texts, g_string_free(g_steal_pointer(&text), FALSE));
  return program_scan_end(scanner);
}
