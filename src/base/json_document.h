/* json_document.h - a JSON file as a tree, with the first error met in reading it. */
#ifndef HIGHWATER_BASE_JSON_DOCUMENT_H
#define HIGHWATER_BASE_JSON_DOCUMENT_H

#include <cjson/cJSON.h>
#include <glib.h>

typedef struct _JsonDocument JsonDocument; /* a parsed file and its first error */

/* Largest file that is read. */
#define JSON_MAX_BYTES (64u << 20)

/* A file's text ("-" is standard input), at most one byte more than is parsed; NULL and error when
 * it cannot be read.  Caller frees. */
char *json_text_load(const char *path, gsize *length, GError **error);
/* What messages call it: the path, or "standard input". */
const char *json_text_name(const char *path);
/* Parses a file ("-" is standard input), at most 64 MiB and 64 levels deep.  NULL and error when it
 * is missing, truncated, too large, has duplicate keys, or is not an object at top level: "FILE:
 * line L: ...". */
JsonDocument *json_document_load(const char *path, GError **error);
/* The same from memory (NULL is empty text); name is used in messages. */
JsonDocument *json_document_parse(const char *name, const char *text, gsize length, GError **error);
const char *json_document_name(const JsonDocument *doc);
/* The tree itself, borrowed; edits (--set) are allowed before reading starts. */
cJSON *json_document_root(JsonDocument *doc);
void json_document_free(JsonDocument *doc);
G_DEFINE_AUTOPTR_CLEANUP_FUNC(JsonDocument, json_document_free)

/* Applies "--set a.b.c=value" to a document before it is read: value is JSON if it parses as such,
 * else a string, unless it begins like an object, array or string. Missing sections (and null ones)
 * are created.  FALSE and error when the text is malformed or the path runs through a non-object.
 */
gboolean json_document_set(JsonDocument *doc, const char *assignment, GError **error);

/* Remembers an error; the first one stays.  The name of the document is put in front. */
void json_document_fail(JsonDocument *doc, const char *format, ...) G_GNUC_PRINTF(2, 3);
/* The remembered error, or NULL; borrowed. */
const GError *json_document_error(const JsonDocument *doc);

#endif
