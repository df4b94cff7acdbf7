/* json_scan.h - strict syntax check of JSON text, with line numbers. */
#ifndef HIGHWATER_BASE_JSON_SCAN_H
#define HIGHWATER_BASE_JSON_SCAN_H

#include <glib.h>

/* Deepest nesting of objects and arrays. */
#define JSON_MAX_DEPTH 64

/* Checks that text is one JSON value (RFC 8259) with nothing behind it, in UTF-8, without NUL
 * characters and nested at most JSON_MAX_DEPTH deep.  What passes, cJSON reads without surprises:
 * it is lenient about numbers, control characters and the end of the text, and knows no lines.
 * FALSE and "NAME: line L: ..." otherwise. key_lines (a GArray of guint, or NULL) gets the line of
 * every key, in the order of the text. */
gboolean json_scan(const char *name, const char *text, gsize length, GArray *key_lines,
                   GError **error);

#endif
