/* json_pull.c - a JSON reader driven by what is expected next. */
#include "import/json_pull.h"
#include "base/units.h"
#include <string.h>

void
json_pull_init(JsonPull *pull, ByteSource *source)
{
  *pull = (JsonPull){.source = source, .text = g_string_new(NULL)};
}

void
json_pull_clear(JsonPull *pull)
{
  g_string_free(pull->text, TRUE);
  g_clear_error(&pull->error);
}

gboolean
json_pull_fail(JsonPull *pull, const char *format, ...)
{
  if (pull->error)
    return FALSE;
  /* What the source has to say comes first: it explains a missing end. */
  if (pull->source->error) {
    pull->error = g_error_copy(pull->source->error);
    return FALSE;
  }
  va_list arguments;
  va_start(arguments, format);
  g_autofree char *text = g_strdup_vprintf(format, arguments);
  va_end(arguments);
  g_set_error(&pull->error, HIGHWATER_ERROR, HIGHWATER_ERROR_INPUT,
              "%s: byte %" G_GUINT64_FORMAT ": %s", pull->source->name,
              byte_source_position(pull->source), text);
  return FALSE;
}

gboolean
json_pull_ok(JsonPull *pull, GError **error)
{
  if (!pull->error)
    return TRUE;
  g_propagate_error(error, g_error_copy(pull->error));
  return FALSE;
}

static gboolean
unexpected(JsonPull *pull, int byte, const char *wanted)
{
  if (byte < 0)
    return json_pull_fail(pull, "the input ends where %s is expected", wanted);
  if (g_ascii_isprint((char) byte))
    return json_pull_fail(pull, "'%c' where %s is expected", byte, wanted);
  return json_pull_fail(pull, "byte 0x%02x where %s is expected", (guint) byte, wanted);
}

/* The next byte that is not white space, not taken; -1 at the end or after an error. */
static inline int
peek(JsonPull *pull)
{
  if (pull->error)
    return -1;
  int byte = byte_source_peek(pull->source);
  while (byte == ' ' || byte == '\n' || byte == '\t' || byte == '\r') {
    pull->source->at++;
    byte = byte_source_peek(pull->source);
  }
  return byte;
}

static gboolean
enter(JsonPull *pull, char opening, char closing, const char *name)
{
  int byte = peek(pull);
  if (byte != opening)
    return unexpected(pull, byte, name);
  if (pull->depth == JSON_PULL_DEPTH)
    return json_pull_fail(pull, "nested deeper than %d levels", JSON_PULL_DEPTH);
  byte_source_next(pull->source);
  pull->closing[pull->depth++] = closing;
  pull->fresh = TRUE;
  return TRUE;
}

gboolean
json_pull_object(JsonPull *pull)
{
  return enter(pull, '{', '}', "an object");
}

gboolean
json_pull_array(JsonPull *pull)
{
  return enter(pull, '[', ']', "an array");
}

/* TRUE when another member follows in the innermost object or array; else leaves it. */
static inline gboolean
another(JsonPull *pull)
{
  int byte = peek(pull);
  if (pull->depth == 0 || pull->error)
    return FALSE;
  char closing = pull->closing[pull->depth - 1];
  if (byte == closing) {
    byte_source_next(pull->source);
    pull->depth--;
    pull->fresh = FALSE;
    return FALSE;
  }
  if (!pull->fresh) {
    if (byte != ',')
      return unexpected(pull, byte, closing == ']' ? "',' or ']'" : "',' or '}'");
    byte_source_next(pull->source);
  }
  pull->fresh = FALSE;
  return TRUE;
}

gboolean
json_pull_element(JsonPull *pull)
{
  return another(pull);
}

static gboolean
read_hex(JsonPull *pull, gunichar *code)
{
  *code = 0;
  for (int i = 0; i < 4; i++) {
    int byte = byte_source_next(pull->source);
    int digit = byte < 0 ? -1 : g_ascii_xdigit_value((char) byte);
    if (digit < 0)
      return unexpected(pull, byte, "a hexadecimal digit");
    *code = *code * 16 + (gunichar) digit;
  }
  return TRUE;
}

/* \uXXXX, or a pair of them for characters beyond 16 bits. */
static gboolean
read_unicode_escape(JsonPull *pull)
{
  gunichar code, low;
  if (!read_hex(pull, &code))
    return FALSE;
  if (code >= 0xd800 && code < 0xdc00) {
    if (byte_source_next(pull->source) != '\\' || byte_source_next(pull->source) != 'u')
      return json_pull_fail(pull, "half of a surrogate pair in a string");
    if (!read_hex(pull, &low))
      return FALSE;
    if (low < 0xdc00 || low > 0xdfff)
      return json_pull_fail(pull, "half of a surrogate pair in a string");
    code = 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00);
  }
  if (code == 0 || (code >= 0xdc00 && code < 0xe000))
    return json_pull_fail(pull, "\\u%04x in a string", code);
  g_string_append_unichar(pull->text, code);
  return TRUE;
}

static gboolean
read_escape(JsonPull *pull)
{
  static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
  int byte = byte_source_next(pull->source);
  if (byte == 'u')
    return read_unicode_escape(pull);
  const char *found = byte > 0 ? strchr(from, byte) : NULL;
  if (found) {
    g_string_append_c(pull->text, to[found - from]);
    return TRUE;
  }
  if (!pull->lenient || byte < 0)
    return unexpected(pull, byte, "an escape sequence");
  g_string_append_c(pull->text, '\\');
  g_string_append_c(pull->text, (char) byte);
  return TRUE;
}

/* What is not UTF-8 in pull->text is replaced if that is allowed. */
static gboolean
check_utf8(JsonPull *pull)
{
  if (g_utf8_validate(pull->text->str, (gssize) pull->text->len, NULL))
    return TRUE;
  if (!pull->lenient)
    return json_pull_fail(pull, "a string that is not UTF-8");
  g_autofree char *valid = g_utf8_make_valid(pull->text->str, (gssize) pull->text->len);
  g_string_assign(pull->text, valid);
  return TRUE;
}

/* Reads a string into pull->text. */
static gboolean
read_string(JsonPull *pull, const char *wanted)
{
  int byte = peek(pull);
  if (byte != '"')
    return unexpected(pull, byte, wanted);
  byte_source_next(pull->source);
  g_string_truncate(pull->text, 0);
  gboolean plain = TRUE;
  while ((byte = byte_source_next(pull->source)) != '"') {
    if (byte < 0 || (byte < 0x20 && (!pull->lenient || byte == 0)))
      return unexpected(pull, byte, "the end of a string");
    plain = plain && byte < 0x80;
    if (byte == '\\') {
      if (!read_escape(pull))
        return FALSE;
    } else {
      g_string_append_c(pull->text, (char) byte);
    }
  }
  return plain || check_utf8(pull);
}

gboolean
json_pull_key(JsonPull *pull, const char **key)
{
  if (!another(pull) || !read_string(pull, "a key"))
    return FALSE;
  int byte = peek(pull);
  if (byte != ':')
    return unexpected(pull, byte, "':'");
  byte_source_next(pull->source);
  *key = pull->text->str;
  return TRUE;
}

gboolean
json_pull_string(JsonPull *pull, const char **value)
{
  if (!read_string(pull, "a string"))
    return FALSE;
  *value = pull->text->str;
  return TRUE;
}

gboolean
json_pull_int(JsonPull *pull, gint64 *value)
{
  int byte = peek(pull);
  gboolean negative = byte == '-';
  if (negative) {
    byte_source_next(pull->source);
    byte = byte_source_peek(pull->source);
  }
  if (byte < '0' || byte > '9')
    return unexpected(pull, byte, "a whole number");
  gboolean zero = byte == '0';
  gint64 number = 0;
  for (guint i = 0; byte >= '0' && byte <= '9'; i++, byte = byte_source_peek(pull->source)) {
    pull->source->at++;
    if (zero && i > 0)
      return json_pull_fail(pull, "a number that begins with 0");
    /* Counted downwards: the least number has no positive counterpart. */
    if (__builtin_mul_overflow(number, (gint64) 10, &number) ||
        __builtin_sub_overflow(number, (gint64) (byte - '0'), &number))
      return json_pull_fail(pull, "a number beyond 64 bits");
  }
  if (byte == '.' || byte == 'e' || byte == 'E')
    return unexpected(pull, byte, "the end of a whole number");
  if (!negative && number == G_MININT64)
    return json_pull_fail(pull, "a number beyond 64 bits");
  *value = negative ? number : -number;
  return TRUE;
}

static gboolean
read_literal(JsonPull *pull, const char *literal)
{
  for (; *literal; literal++) {
    int byte = byte_source_next(pull->source);
    if (byte != *literal)
      return unexpected(pull, byte, "a value");
  }
  return TRUE;
}

gboolean
json_pull_null(JsonPull *pull)
{
  return peek(pull) == 'n' && read_literal(pull, "null");
}

/* Takes the byte that was peeked into pull->text. */
static void
take(JsonPull *pull, int byte)
{
  pull->source->at++;
  g_string_append_c(pull->text, (char) byte);
}

static guint
take_digits(JsonPull *pull)
{
  guint count = 0;
  int byte = byte_source_peek(pull->source);
  for (; byte >= '0' && byte <= '9'; byte = byte_source_peek(pull->source)) {
    take(pull, byte);
    count++;
  }
  return count;
}

/* A value without quotes that is no number, behind a sign perhaps. */
static gboolean
read_word(JsonPull *pull)
{
  static const char *const words[] = {"null", "true", "false", "inf", "nan", "infinity"};
  g_string_truncate(pull->text, 0);
  for (int byte = byte_source_peek(pull->source); g_ascii_isalpha(byte) && pull->text->len < 16;
       byte = byte_source_peek(pull->source))
    take(pull, byte);
  for (guint i = 0; i < G_N_ELEMENTS(words); i++)
    if (g_ascii_strcasecmp(pull->text->str, words[i]) == 0)
      return TRUE;
  return unexpected(pull, byte_source_peek(pull->source), "a value");
}

/* Reads a number into pull->text. */
static gboolean
read_number(JsonPull *pull)
{
  g_string_truncate(pull->text, 0);
  if (byte_source_peek(pull->source) == '-')
    take(pull, '-');
  if (pull->lenient && g_ascii_isalpha(byte_source_peek(pull->source)))
    return read_word(pull);
  gboolean zero = byte_source_peek(pull->source) == '0';
  guint count = take_digits(pull);
  if (zero && count > 1)
    return json_pull_fail(pull, "a number that begins with 0");
  gboolean ok = count > 0;
  if (ok && byte_source_peek(pull->source) == '.') {
    take(pull, '.');
    ok = take_digits(pull) > 0;
  }
  int byte = byte_source_peek(pull->source);
  if (ok && (byte == 'e' || byte == 'E')) {
    take(pull, byte);
    byte = byte_source_peek(pull->source);
    if (byte == '+' || byte == '-')
      take(pull, byte);
    ok = take_digits(pull) > 0;
  }
  return ok || unexpected(pull, byte_source_peek(pull->source), "a digit");
}

gboolean
json_pull_number(JsonPull *pull, const char **text)
{
  int byte = peek(pull);
  if (byte != '-' && (byte < '0' || byte > '9'))
    return unexpected(pull, byte, "a number");
  if (!read_number(pull))
    return FALSE;
  *text = pull->text->str;
  return TRUE;
}

int
json_pull_peek(JsonPull *pull)
{
  return peek(pull);
}

/* One value without members of its own, or the beginning of one with. */
static gboolean
skip_one(JsonPull *pull)
{
  int byte = peek(pull);
  if (pull->lenient && g_ascii_isalpha(byte))
    return read_word(pull);
  switch (byte) {
  case '{':
    return json_pull_object(pull);
  case '[':
    return json_pull_array(pull);
  case '"':
    return read_string(pull, "a string");
  case 't':
    return read_literal(pull, "true");
  case 'f':
    return read_literal(pull, "false");
  case 'n':
    return read_literal(pull, "null");
  default:
    return byte == '-' || (byte >= '0' && byte <= '9') ? read_number(pull)
                                                       : unexpected(pull, byte, "a value");
  }
}

gboolean
json_pull_skip(JsonPull *pull)
{
  guint outside = pull->depth;
  gboolean ok = skip_one(pull);
  while (ok && pull->depth > outside) {
    const char *key;
    gboolean in_object = pull->closing[pull->depth - 1] == '}';
    gboolean more = in_object ? json_pull_key(pull, &key) : json_pull_element(pull);
    ok = !pull->error && (!more || skip_one(pull));
  }
  return ok;
}

gboolean
json_pull_end(JsonPull *pull)
{
  int byte = peek(pull);
  if (byte >= 0)
    return unexpected(pull, byte, "the end of the input");
  /* A file whose compressed data is damaged behind the last value is damaged all the same. */
  return pull->error || pull->source->error ? json_pull_fail(pull, " ") : TRUE;
}
