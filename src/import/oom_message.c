/* oom_message.c - finds the message in a text and each of its figures by the words around it.
 *
 * c10/cuda/CUDACachingAllocator.cpp of versions 1.0 to 2.11 (malloc, format_size). */
#include "import/oom_message.h"

#include <math.h>
#include <string.h>

#include "base/units.h"

/* A message is shorter; what follows it in a log is none of it. */
enum { MESSAGE_MAX = 2000 };

/* ---- a figure ---- */

static const struct {
  const char *name;
  gint64 bytes;
} units[] = {{"bytes", 1}, {"B", 1}, {"KiB", KIB}, {"MiB", MIB}, {"GiB", GIB}, {"TiB", GIB * 1024}};

/* A figure as it stands in the text. */
typedef struct {
  const char *begin, *end; /* of the number and its unit */
  OomFigure figure;        /* not known: it cannot be a size */
} Found;

/* "98.00" is a digit in hundredths: returns 0.01.  *end comes after the number; 0: there is none.
 */
static double
scan_number(const char *at, double *number, const char **end)
{
  gsize whole = strspn(at, "0123456789");
  if (whole == 0)
    return 0;
  gsize length = whole, decimals = 0;
  if (at[whole] == '.') {
    decimals = strspn(at + whole + 1, "0123456789");
    length += decimals > 0 ? decimals + 1 : 0;
  }
  g_autofree char *digits = g_strndup(at, length);
  *number = g_ascii_strtod(digits, NULL);
  *end = at + length;
  return pow(10, -(double) MIN(decimals, 18));
}

/* The whole bytes that are written so; with more digits than bytes have, the nearest. */
static OomFigure
figure_of(double number, double last_digit, gint64 unit)
{
  double bytes = number * (double) unit, half = unit == 1 ? 0 : last_digit * (double) unit / 2;
  if (bytes + half >= 0x1p62)
    return (OomFigure){.known = FALSE};
  double low = ceil(MAX(bytes - half, 0)), high = floor(bytes + half), nearest = round(bytes);
  return (OomFigure){TRUE, (gint64) MIN(low, nearest), (gint64) MAX(high, nearest)};
}

/* A number, a space, a unit. */
static gboolean
scan_figure(const char *at, Found *found)
{
  double number = 0;
  const char *end;
  double last_digit = scan_number(at, &number, &end);
  if (last_digit == 0 || *end != ' ')
    return FALSE;
  for (guint i = 0; i < G_N_ELEMENTS(units); i++) {
    gsize length = strlen(units[i].name);
    if (strncmp(end + 1, units[i].name, length) != 0 || g_ascii_isalpha(end[1 + length]))
      continue;
    *found = (Found){at, end + 1 + length, figure_of(number, last_digit, units[i].bytes)};
    return TRUE;
  }
  return FALSE;
}

/* ---- what it says ---- */

/* Words directly before and after a figure; NULL: any.  The first row that agrees counts. */
static const struct {
  const char *before, *after;
  gsize figure; /* offset in OomMessage */
} phrases[] = {
#define FIGURE(member) G_STRUCT_OFFSET(OomMessage, member)
    {"ried to allocate ", NULL, FIGURE(tried)},
    {"total capacity of ", NULL, FIGURE(capacity)},
    {"total capacty of ", NULL, FIGURE(capacity)}, /* 2.0 and 2.1 */
    {NULL, " total capacity", FIGURE(capacity)},
    {NULL, " is free", FIGURE(free)},
    {NULL, " free", FIGURE(free)},
    {NULL, " allowed", FIGURE(allowed)},
    {NULL, " allocated in private pools", FIGURE(private_pools)},
    {NULL, " is allocated by PyTorch", FIGURE(allocated)},
    {NULL, " already allocated", FIGURE(allocated)},
    {NULL, " is reserved by PyTorch but unallocated", FIGURE(idle)},
    {NULL, " reserved in total by PyTorch", FIGURE(reserved)},
    {NULL, " cached", FIGURE(idle)}, /* before 1.4 */
    {"this process has ", " memory in use", FIGURE(this_process)},
    /* Ours: "... asks for 1 GiB, a segment of 1 GiB; 3 MiB of 40 GiB left, 38 GiB allocated". */
    {"a segment of ", NULL, FIGURE(tried)},
    {NULL, " left", FIGURE(allowed)},
    {"; ", " of ", FIGURE(free)},
    {NULL, " allocated", FIGURE(allocated)},
#undef FIGURE
};

static gboolean
comes_before(const char *text, const char *at, const char *words)
{
  gsize length = strlen(words);
  return (gsize) (at - text) >= length && strncmp(at - length, words, length) == 0;
}

/* "Process 1234 has 1.20 GiB memory in use": its number, or -1. */
static gint64
process_before(const char *text, const char *at)
{
  if (!comes_before(text, at, " has "))
    return -1;
  const char *digit = at - strlen(" has ");
  while (digit > text && g_ascii_isdigit(digit[-1]))
    digit--;
  if (!comes_before(text, digit, "Process ") || !g_ascii_isdigit(*digit))
    return -1;
  return (gint64) MIN(g_ascii_strtoull(digit, NULL, 10), G_MAXINT64);
}

static void
take_figure(OomMessage *message, const Found *found)
{
  const char *text = message->text;
  gint64 process = process_before(text, found->begin);
  if (process >= 0 && found->figure.known) {
    OomProcess other = {process, found->figure};
    g_array_append_val(message->processes, other);
  }
  if (process >= 0)
    return;
  for (guint i = 0; i < G_N_ELEMENTS(phrases); i++) {
    OomFigure *figure = G_STRUCT_MEMBER_P(message, phrases[i].figure);
    if ((phrases[i].before != NULL && !comes_before(text, found->begin, phrases[i].before)) ||
        (phrases[i].after != NULL && !g_str_has_prefix(found->end, phrases[i].after)))
      continue;
    if (!figure->known)
      *figure = found->figure;
    return;
  }
}

/* TRUE when this begins another message: it has the same figures again. */
static gboolean
is_another(const OomMessage *message, const Found *found)
{
  return message->tried.known && (comes_before(message->text, found->begin, "ried to allocate ") ||
                                  comes_before(message->text, found->begin, "a segment of "));
}

static void
take_figures(OomMessage *message)
{
  Found found;
  for (const char *at = message->text; *at != '\0'; at++) {
    if (!g_ascii_isdigit(*at))
      continue;
    if (!scan_figure(at, &found)) {
      at += strspn(at, "0123456789.") - 1;
      continue;
    }
    if (is_another(message, &found))
      return;
    take_figure(message, &found);
    at = found.end - 1;
  }
}

static int
gpu_of(const char *text)
{
  const char *found = strstr(text, "GPU ");
  if (found == NULL || !g_ascii_isdigit(found[4]))
    return -1;
  return (int) MIN(g_ascii_strtoull(found + 4, NULL, 10), G_MAXINT);
}

/* Reserved is allocated and idle together. */
static void
complete(OomMessage *message)
{
  const OomFigure *allocated = &message->allocated;
  OomFigure *idle = &message->idle, *reserved = &message->reserved;
  if (!allocated->known || idle->known == reserved->known)
    return;
  if (idle->known)
    *reserved = (OomFigure){TRUE, allocated->low + idle->low, allocated->high + idle->high};
  else
    *idle = (OomFigure){TRUE, MAX(reserved->low - allocated->high, 0),
                        MAX(reserved->high - allocated->low, 0)};
}

/* ---- where it is ---- */

/* Terminals and logs break lines: any white space is one space, and other bytes are ASCII. */
static char *
one_line(const char *text, gsize length)
{
  GString *line = g_string_sized_new(length);
  for (gsize i = 0; i < length; i++) {
    char c = g_ascii_isspace(text[i]) ? ' ' : g_ascii_isprint(text[i]) ? text[i] : '?';
    if (c != ' ' || (line->len > 0 && line->str[line->len - 1] != ' '))
      g_string_append_c(line, c);
  }
  return g_string_free(line, FALSE);
}

/* Where the message begins in the text; NULL: there is none. */
static const char *
find_message(const char *line)
{
  static const char *const beginnings[] = {"Tried to allocate ", "tried to allocate ",
                                           " asks for "};
  const char *first = NULL;
  for (guint i = 0; i < G_N_ELEMENTS(beginnings); i++) {
    const char *found = strstr(line, beginnings[i]);
    if (found != NULL && (first == NULL || found < first))
      first = found;
  }
  return first;
}

/* What stands before " asks for ", from the place on: "step 1, forward of layers.4: mul". */
static char *
named_before(const char *line, const char *found)
{
  static const char *const beginnings[] = {"step ", "construction"};
  g_autofree char *before = g_strndup(line, (gsize) (found - line));
  for (guint i = 0; i < G_N_ELEMENTS(beginnings) && g_str_has_prefix(found, " asks for "); i++) {
    const char *begin = g_strrstr(before, beginnings[i]);
    if (begin != NULL)
      return g_strdup(begin);
  }
  return NULL;
}

static OomMessage *
refuse(OomMessage *message, const char *why, GError **error)
{
  g_set_error(error, HIGHWATER_ERROR, HIGHWATER_ERROR_INPUT, "--message: %s", why);
  oom_message_free(message);
  return NULL;
}

OomMessage *
oom_message_parse(const char *text, gsize length, GError **error)
{
  g_autofree char *line = one_line(text, length);
  OomMessage *message = g_new0(OomMessage, 1);
  message->gpu = -1;
  message->processes = g_array_new(FALSE, FALSE, sizeof(OomProcess));
  const char *found = find_message(line);
  if (found == NULL)
    return refuse(message, "no 'Tried to allocate ...' is in it", error);
  message->text = g_strchomp(g_strndup(found + (*found == ' '), MESSAGE_MAX));
  take_figures(message);
  if (strstr(message->text, "ried to allocate more than 1EB") != NULL && !message->tried.known)
    return refuse(message, "more than 1 EB was asked for: a size went wrong before", error);
  if (!message->tried.known || message->tried.high == 0)
    return refuse(message, "it does not say how much was asked for, as in '98.00 MiB'", error);
  message->gpu = gpu_of(message->text);
  message->named = named_before(line, found);
  complete(message);
  return message;
}

void
oom_message_free(OomMessage *message)
{
  if (message == NULL)
    return;
  g_free(message->text);
  g_free(message->named);
  g_array_unref(message->processes);
  g_free(message);
}
