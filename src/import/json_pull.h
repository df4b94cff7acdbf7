/* json_pull.h - reads JSON of any length value by value, keeping nothing.
 *
 * For large foreign files of a known shape.  The caller says what it expects next; the first thing
 * that is otherwise is the error, and every later call fails:
 *
 *   json_pull_object(pull);
 *   while (json_pull_key(pull, &key))
 *     if (g_str_equal(key, "size")) json_pull_int(pull, &size); else json_pull_skip(pull);
 *   if (!json_pull_ok(pull, error)) ... */
#ifndef HIGHWATER_IMPORT_JSON_PULL_H
#define HIGHWATER_IMPORT_JSON_PULL_H

#include "import/byte_source.h"

#define JSON_PULL_DEPTH 64

typedef struct {
  ByteSource *source; /* borrowed */
  GString *text;      /* the last string or number */
  guint depth;
  char closing[JSON_PULL_DEPTH]; /* ']' or '}' of each open array or object */
  gboolean fresh;                /* nothing read yet in the innermost one */
  gboolean lenient; /* also takes what foreign writers get wrong: inf and nan as values, strings
                       with backslashes, line ends or bytes that are not UTF-8; FALSE at first */
  GError *error;
} JsonPull;

void json_pull_init(JsonPull *pull, ByteSource *source);
void json_pull_clear(JsonPull *pull);

/* Enters an object or array. */
gboolean json_pull_object(JsonPull *pull);
gboolean json_pull_array(JsonPull *pull);
/* The next key of the innermost object; FALSE at its end, which is then left.  key is valid until
 * the next call. */
gboolean json_pull_key(JsonPull *pull, const char **key);
/* TRUE when the innermost array has another element; FALSE at its end, which is then left. */
gboolean json_pull_element(JsonPull *pull);

/* The first byte of what comes next ('"' for a string), not taken; -1 at the end or after an error.
 */
int json_pull_peek(JsonPull *pull);
/* A whole number within 64 bits. */
gboolean json_pull_int(JsonPull *pull, gint64 *value);
/* Any number, as it is written; borrowed until the next call. */
gboolean json_pull_number(JsonPull *pull, const char **text);
/* A string; borrowed until the next call. */
gboolean json_pull_string(JsonPull *pull, const char **value);
/* TRUE when null comes next, which is then taken. */
gboolean json_pull_null(JsonPull *pull);
/* Any value, unused. */
gboolean json_pull_skip(JsonPull *pull);
/* The end of the input. */
gboolean json_pull_end(JsonPull *pull);

/* Makes the caller's own finding the error, with the place; returns FALSE. */
gboolean json_pull_fail(JsonPull *pull, const char *format, ...) G_GNUC_PRINTF(2, 3);
/* FALSE and error when anything went wrong: "FILE: byte 1234: ...". */
gboolean json_pull_ok(JsonPull *pull, GError **error);

#endif
