/* vary.c - what a sweep varies: keys with the values that each takes, and the product of them. */
#include "search/vary.h"

#include <string.h>

#include "base/units.h"

/* Longest label that is written as it is: names of files end at 255 bytes. */
#define LABEL_LENGTH 120

static void
axis_free(gpointer data)
{
  VaryAxis *axis = data;
  g_free(axis->key);
  g_ptr_array_unref(axis->values);
  g_ptr_array_unref(axis->words);
  g_free(axis);
}

void
vary_free(Vary *vary)
{
  if (vary == NULL)
    return;
  g_ptr_array_unref(vary->axes);
  g_free(vary);
}

static gboolean fail(GError **error, const char *text, const char *format, ...) G_GNUC_PRINTF(3, 4);

static gboolean
fail(GError **error, const char *text, const char *format, ...)
{
  va_list arguments;
  va_start(arguments, format);
  g_autofree char *what = g_strdup_vprintf(format, arguments);
  va_end(arguments);
  g_set_error(error, HIGHWATER_ERROR, HIGHWATER_ERROR_USAGE, "--vary %.80s: %s", text, what);
  return FALSE;
}

/* ---- words ---- */

static char *
word_of(const char *value)
{
  GString *word = g_string_new(NULL);
  for (const char *c = value; *c != '\0'; c++)
    if (g_ascii_isalnum(*c) || strchr("._+-", *c))
      g_string_append_c(word, *c);
    else if (*c != '"')
      g_string_append_c(word, *c == ',' || *c == ':' ? '+' : '_');
  if (word->len == 0 || word->str[0] == '.')
    g_string_prepend_c(word, '_');
  return g_string_free(word, FALSE);
}

/* A word that another value has got is told apart by its place. */
static void
add_words(VaryAxis *axis)
{
  g_autoptr(GHashTable) seen = g_hash_table_new(g_str_hash, g_str_equal);
  for (guint i = 0; i < axis->values->len; i++) {
    g_autofree char *word = word_of(g_ptr_array_index(axis->values, i));
    gboolean is_taken = g_hash_table_contains(seen, word);
    char *own = is_taken ? g_strdup_printf("%s~%u", word, i + 1) : g_strdup(word);
    g_ptr_array_add(axis->words, own);
    g_hash_table_add(seen, own);
  }
}

/* ---- ranges ---- */

/* FROM..TO, FROM..TO+STEP or FROM..TO*STEP. */
typedef struct {
  gint64 from, to, step;
  gboolean is_product;
} ValueRange;

/* The whole number that the text begins with; moves the text behind it. */
static gboolean
take_number(const char **text, gint64 *number)
{
  char *end;
  if (!g_ascii_isdigit(**text) && !(**text == '-' && g_ascii_isdigit((*text)[1])))
    return FALSE;
  *number = g_ascii_strtoll(*text, &end, 10);
  *text = end;
  return *number > -((gint64) 1 << 53) && *number < (gint64) 1 << 53;
}

static gboolean
read_range(const char *value, ValueRange *range)
{
  const char *rest = value;
  *range = (ValueRange){.step = 1};
  if (!take_number(&rest, &range->from) || !g_str_has_prefix(rest, ".."))
    return FALSE;
  rest += 2;
  if (!take_number(&rest, &range->to))
    return FALSE;
  if (*rest == '\0')
    return TRUE;
  range->is_product = *rest == '*';
  if (*rest != '*' && *rest != '+')
    return FALSE;
  rest++;
  return take_number(&rest, &range->step) && *rest == '\0';
}

static gboolean
add_range(VaryAxis *axis, const char *text, const ValueRange *range, GError **error)
{
  gboolean grows = range->is_product ? range->step > 1 && range->from > 0 : range->step > 0;
  if (!grows || range->from > range->to)
    return fail(error, text,
                "a range goes up, from a number A to a larger one B: A..B, A..B+STEP, "
                "A..B*FACTOR");
  for (gint64 n = range->from; n <= range->to;
       n = range->is_product ? n * range->step : n + range->step) {
    if (axis->values->len == VARY_MOST)
      return fail(error, text, "more than %d values", VARY_MOST);
    g_ptr_array_add(axis->values, g_strdup_printf("%" G_GINT64_FORMAT, n));
    if (range->is_product && n > range->to / range->step)
      break;
  }
  return TRUE;
}

/* ---- values ---- */

/* Length of the value that the text begins with: up to a comma outside of brackets and strings. */
static gsize
value_length(const char *text)
{
  int depth = 0;
  gboolean quoted = FALSE;
  gsize i = 0;
  for (; text[i] != '\0'; i++) {
    char c = text[i];
    if (quoted && c == '\\' && text[i + 1] != '\0')
      i++;
    else if (c == '"')
      quoted = !quoted;
    else if (!quoted && strchr("[{", c))
      depth++;
    else if (!quoted && strchr("]}", c))
      depth--;
    else if (!quoted && depth <= 0 && c == ',')
      break;
  }
  return i;
}

static gboolean
check_once(const VaryAxis *axis, const char *text, GError **error)
{
  g_autoptr(GHashTable) seen = g_hash_table_new(g_str_hash, g_str_equal);
  for (guint i = 0; i < axis->values->len; i++) {
    char *value = g_ptr_array_index(axis->values, i);
    if (!g_hash_table_add(seen, value))
      return fail(error, text, "the value %.60s is given twice", value);
  }
  return TRUE;
}

static gboolean
add_values(VaryAxis *axis, const char *text, const char *values, GError **error)
{
  for (const char *rest = values;; rest++) {
    gsize length = value_length(rest);
    g_autofree char *value = g_strstrip(g_strndup(rest, length));
    ValueRange range;
    if (*value == '\0')
      return fail(error, text, "a value is empty; KEY=VALUE,VALUE,... is expected");
    if (!read_range(value, &range))
      g_ptr_array_add(axis->values, g_steal_pointer(&value));
    else if (!add_range(axis, text, &range, error))
      return FALSE;
    rest += length;
    if (*rest == '\0')
      break;
  }
  add_words(axis);
  return check_once(axis, text, error);
}

/* Is one of the keys a section that holds the other? */
static gboolean
holds(const char *section, const char *key)
{
  return g_str_has_prefix(key, section) && key[strlen(section)] == '.';
}

static gboolean
check_key(const Vary *vary, const char *text, const char *key, GError **error)
{
  for (guint i = 0; i + 1 < vary->axes->len; i++) {
    const char *other = ((VaryAxis *) g_ptr_array_index(vary->axes, i))->key;
    if (g_str_equal(other, key))
      return fail(error, text, "the key %s is varied twice", key);
    if (holds(other, key) || holds(key, other))
      return fail(error, text, "%s is varied with %s, which it would overwrite or be part of", key,
                  other);
  }
  return TRUE;
}

static gboolean
add_axis(Vary *vary, const char *text, GError **error)
{
  const char *equals = strchr(text, '=');
  if (equals == NULL || equals == text || !g_utf8_validate(text, -1, NULL))
    return fail(error, text, "KEY=VALUE,VALUE,... is expected");
  VaryAxis *axis = g_new0(VaryAxis, 1);
  axis->key = g_strndup(text, equals - text);
  axis->values = g_ptr_array_new_with_free_func(g_free);
  axis->words = g_ptr_array_new_with_free_func(g_free);
  g_ptr_array_add(vary->axes, axis);
  return check_key(vary, text, axis->key, error) && add_values(axis, text, equals + 1, error);
}

Vary *
vary_parse(char *const *texts, GError **error)
{
  g_autoptr(Vary) vary = g_new0(Vary, 1);
  gint64 count = 1;
  vary->axes = g_ptr_array_new_with_free_func(axis_free);
  for (guint i = 0; texts != NULL && texts[i] != NULL; i++) {
    if (!add_axis(vary, texts[i], error))
      return NULL;
    if (!checked_multiply(count, ((VaryAxis *) g_ptr_array_index(vary->axes, i))->values->len,
                          &count))
      count = G_MAXINT64;
  }
  if (count > VARY_MOST) {
    g_set_error(error, HIGHWATER_ERROR, HIGHWATER_ERROR_USAGE,
                "--vary: %" G_GINT64_FORMAT " variants are more than %d", count, VARY_MOST);
    return NULL;
  }
  vary->count = (guint) count;
  return g_steal_pointer(&vary);
}

/* ---- variants ---- */

/* Which of its values an axis has in a variant. */
static guint
value_index(const Vary *vary, guint variant, guint axis)
{
  for (guint i = vary->axes->len; i > axis + 1; i--)
    variant /= ((VaryAxis *) g_ptr_array_index(vary->axes, i - 1))->values->len;
  return variant % ((VaryAxis *) g_ptr_array_index(vary->axes, axis))->values->len;
}

const char *
vary_value(const Vary *vary, guint variant, guint axis)
{
  const VaryAxis *varied = g_ptr_array_index(vary->axes, axis);
  return g_ptr_array_index(varied->values, value_index(vary, variant, axis));
}

const char *
vary_word(const Vary *vary, guint variant, guint axis)
{
  const VaryAxis *varied = g_ptr_array_index(vary->axes, axis);
  return g_ptr_array_index(varied->words, value_index(vary, variant, axis));
}

char *
vary_label(const Vary *vary, guint variant)
{
  GString *label = g_string_new(vary->axes->len > 0 ? NULL : "base");
  for (guint i = 0; i < vary->axes->len; i++)
    g_string_append_printf(label, "%s%s", i > 0 ? "," : "", vary_word(vary, variant, i));
  if (label->len > LABEL_LENGTH) {
    g_string_truncate(label, LABEL_LENGTH);
    g_string_append_printf(label, "~%u", variant + 1);
  }
  return g_string_free(label, FALSE);
}
