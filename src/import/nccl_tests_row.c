/* nccl_tests_row.c - one line of an nccl-tests table. */
#include "import/nccl_tests_internal.h"
#include <math.h>
#include <string.h>

/* Longer lines are no rows. */
#define ROW_LENGTH_MAX 4096
#define TOKENS_MAX 64

static const struct {
  const char *name;
  int bytes;
} types[] = {
    {"float", 4},    {"half", 2},     {"bfloat16", 2}, {"double", 8}, {"int8", 1},   {"uint8", 1},
    {"int32", 4},    {"uint32", 4},   {"int64", 8},    {"uint64", 8}, {"f8e4m3", 1}, {"f8e5m2", 1},
    {"fp8_e4m3", 1}, {"fp8_e5m2", 1}, {"fp16", 2},     {"char", 1},   {"int", 4},
};

static const char *const reductions[] = {"sum", "prod", "min", "max", "avg", "mulsum"};

typedef struct {
  char *text[TOKENS_MAX];
  int count;
} Tokens;

/* mpirun's tags "[1,0]<stdout>:" stand before lines, and in rows that were flushed in parts. */
static void
blank_tags(char *line)
{
  for (char *p = strchr(line, '['); p; p = strchr(p + 1, '[')) {
    char *end = p + 1;
    while (g_ascii_isdigit(*end) || *end == ',')
      end++;
    if (!g_str_has_prefix(end, "]<stdout>") && !g_str_has_prefix(end, "]<stderr>"))
      continue;
    end += strlen("]<stdout>");
    if (*end == ':')
      end++;
    memset(p, ' ', (gsize) (end - p));
  }
}

static void
split(char *line, Tokens *tokens)
{
  const char *space = " \t\r\v\f";
  tokens->count = 0;
  for (char *p = line + strspn(line, space); *p && tokens->count < TOKENS_MAX;) {
    tokens->text[tokens->count++] = p;
    p += strcspn(p, space);
    if (*p)
      *p++ = '\0';
    p += strspn(p, space);
  }
}

static gboolean
parse_whole(const char *text, gint64 *value)
{
  return g_ascii_string_to_signed(text, 10, -1, G_MAXINT64 / 1024, value, NULL);
}

static gboolean
parse_number(const char *text, double *value)
{
  char *end;
  *value = g_ascii_strtod(text, &end);
  return end != text && *end == '\0' && isfinite(*value);
}

static gboolean
is_absent(const char *text)
{
  return g_ascii_strcasecmp(text, "N/A") == 0;
}

/* Bytes of an element of the type; 0: no type. */
static int
type_bytes(const char *text)
{
  for (guint i = 0; i < G_N_ELEMENTS(types); i++)
    if (g_str_equal(text, types[i].name))
      return types[i].bytes;
  return 0;
}

/* A row's heart is "BYTES COUNT TYPE": index of the type, or -1. */
static int
find_type(const Tokens *tokens, RawRow *row)
{
  for (int i = 2; i < tokens->count; i++) {
    row->element_bytes = type_bytes(tokens->text[i]);
    if (row->element_bytes > 0 && parse_whole(tokens->text[i - 2], &row->bytes) &&
        parse_whole(tokens->text[i - 1], &row->count) && row->bytes >= 0 && row->count >= 0)
      return i;
  }
  return -1;
}

/* Where the columns after redop may be: with a root or not, with errors after each measurement or
 * not. */
typedef struct {
  int root, width;
} Layout;
static const Layout layouts[] = {{1, 4}, {0, 4}, {1, 3}, {0, 3}};

/* Does algbw agree with size and time?  Before June 2020 nccl-tests printed (n-1)/n of it for some
 * collectives, half for two ranks.  Bandwidths have two decimals, times four digits. */
static gboolean
agrees(double bytes, const RawTiming *timing)
{
  double rate = bytes / timing->time_us / 1e3;
  return timing->algbw <= 1.03 * rate + 0.011 && timing->algbw >= 0.48 * rate - 0.011;
}

static gboolean
read_timing(const Tokens *tokens, int at, int width, double bytes, RawTiming *timing)
{
  *timing = (RawTiming){0};
  if (at + width > tokens->count)
    return FALSE;
  if (is_absent(tokens->text[at]))
    return TRUE;
  timing->unchecked = width == 4 && is_absent(tokens->text[at + 3]);
  double errors;
  gboolean numbers = parse_number(tokens->text[at], &timing->time_us) &&
                     parse_number(tokens->text[at + 1], &timing->algbw) &&
                     parse_number(tokens->text[at + 2], &timing->busbw);
  gboolean checked = width < 4 || timing->unchecked || parse_number(tokens->text[at + 3], &errors);
  return numbers && checked && timing->time_us > 0 && agrees(bytes, timing);
}

static gboolean
read_layout(const Tokens *tokens, int at, const Layout *layout, gboolean both, RawRow *row)
{
  gint64 root = ROOT_ABSENT;
  double bytes = (double) row->bytes;
  if (layout->root && (at >= tokens->count || !parse_whole(tokens->text[at], &root)))
    return FALSE;
  at += layout->root;
  if (!read_timing(tokens, at, layout->width, bytes, &row->out_of_place) ||
      row->out_of_place.time_us <= 0)
    return FALSE;
  row->root = (int) CLAMP(root, ROOT_ABSENT, G_MAXINT);
  at += layout->width;
  if (both)
    return read_timing(tokens, at, layout->width, bytes, &row->in_place);
  /* Without in-place columns the row ends here, perhaps with a time stamp. */
  row->in_place = (RawTiming){0};
  return at + 2 >= tokens->count;
}

/* An error column may look like the next time, so rows with both measurements are tried first. */
static gboolean
read_columns(const Tokens *tokens, int at, RawRow *row)
{
  for (int both = 1; both >= 0; both--)
    for (guint i = 0; i < G_N_ELEMENTS(layouts); i++)
      if (read_layout(tokens, at, &layouts[i], both, row))
        return TRUE;
  return FALSE;
}

RowKind
nccl_tests_row_parse(const char *line, RawRow *row, const char **reason)
{
  if (strlen(line) > ROW_LENGTH_MAX)
    return ROW_NONE;
  g_autofree char *copy = g_strdup(line);
  Tokens tokens;
  blank_tags(copy);
  split(copy, &tokens);
  *row = (RawRow){.root = ROOT_ABSENT};
  int at = find_type(&tokens, row);
  if (at < 0)
    return ROW_NONE;
  at++;
  if (row->bytes == 0) {
    *reason = "no bytes";
    return ROW_BAD;
  }
  if (at < tokens.count && g_ascii_isalpha(tokens.text[at][0]) && !is_absent(tokens.text[at])) {
    row->redop = g_str_equal(tokens.text[at], "none") ? 'n' : 's';
    gboolean known = row->redop == 'n';
    for (guint i = 0; i < G_N_ELEMENTS(reductions); i++)
      known = known || g_str_equal(tokens.text[at], reductions[i]);
    if (!known)
      return ROW_NONE;
    at++;
  }
  if (read_columns(&tokens, at, row))
    return ROW_GOOD;
  *reason = at + 3 > tokens.count ? "cut short" : "bandwidth is not size over time";
  return ROW_BAD;
}
