/* json_reader.h - reads our JSON inputs with errors that name file, key and what is allowed.
 *
 * A JsonReader walks one JSON object.  Every typed getter takes the key and a default; the first
 * wrong value is remembered in the document (later getters return defaults), so callers read all
 * keys in a row and check once with json_reader_finish(), which also refuses keys that nobody asked
 * for, naming the nearest known one. Ownership: a reader borrows its document; strings returned are
 * borrowed from the document. */
#ifndef HIGHWATER_BASE_JSON_READER_H
#define HIGHWATER_BASE_JSON_READER_H

#include "base/nearest_name.h"
#include <cjson/cJSON.h>
#include <glib.h>

typedef struct _JsonDocument JsonDocument; /* a parsed file and its first error */
typedef struct _JsonReader JsonReader;     /* one object in it, with the path that leads there */

/* Parses a file ("-" is standard input), at most 64 MiB and 64 levels deep.  NULL and error when it
 * is missing, truncated, too large, has duplicate keys, or is not an object at top level: "FILE:
 * line L: ...". */
JsonDocument *json_document_load(const char *path, GError **error);
/* The same from memory; name is used in messages. */
JsonDocument *json_document_parse(const char *name, const char *text, gsize length, GError **error);
const char *json_document_name(const JsonDocument *doc);
/* The tree itself, borrowed; edits (--set) are allowed before reading starts. */
cJSON *json_document_root(JsonDocument *doc);
void json_document_free(JsonDocument *doc);
G_DEFINE_AUTOPTR_CLEANUP_FUNC(JsonDocument, json_document_free)

/* Reader of the top object.  Free with json_reader_free (readers of sections too). */
JsonReader *json_reader_new(JsonDocument *doc);
void json_reader_free(JsonReader *reader);
G_DEFINE_AUTOPTR_CLEANUP_FUNC(JsonReader, json_reader_free)

/* Reader of the object under key.  Absent or null: a reader of an empty object (every getter gives
 * its default). */
JsonReader *json_reader_section(JsonReader *reader, const char *key);
/* Number of elements of the array under key (0 when absent), and the reader of element i, which
 * must be an object. */
guint json_reader_array_length(JsonReader *reader, const char *key);
JsonReader *json_reader_element(JsonReader *reader, const char *key, guint i);
/* The raw value (NULL when absent), marking the key as known. */
const cJSON *json_reader_raw(JsonReader *reader, const char *key);

/* TRUE when the key is present and not null; marks it as known. */
gboolean json_reader_has(JsonReader *reader, const char *key);

/* Integer in [min, max].  Numbers must be whole and below 2^53 in magnitude; else an error.  A null
 * value is the default. */
gint64 json_reader_int(JsonReader *reader, const char *key, gint64 fallback, gint64 min,
                       gint64 max);
double json_reader_double(JsonReader *reader, const char *key, double fallback, double min,
                          double max);
gboolean json_reader_bool(JsonReader *reader, const char *key, gboolean fallback);
/* String; fallback may be NULL.  required variants report a missing key. */
const char *json_reader_string(JsonReader *reader, const char *key, const char *fallback);
/* Index of the string in the NULL-terminated list of allowed names; fallback is an index.  Unknown
 * names give an error that lists what is allowed. */
int json_reader_enum(JsonReader *reader, const char *key, const char *const *names, int fallback);
/* Size in bytes: a whole number, or a string for parse_size(). */
gint64 json_reader_size(JsonReader *reader, const char *key, gint64 fallback);
gint64 json_reader_required_int(JsonReader *reader, const char *key, gint64 min, gint64 max);
const char *json_reader_required_string(JsonReader *reader, const char *key);

/* Reports an error of the caller's own about a key of this object ("shard must divide ..."); the
 * first one stays. */
void json_reader_fail(JsonReader *reader, const char *key, const char *format, ...)
    G_GNUC_PRINTF(3, 4);

/* Lets unknown keys of this object pass (Hugging Face configs). */
void json_reader_allow_unknown(JsonReader *reader);

/* Ends reading of this object: unknown keys are an error.  Returns FALSE and sets error when
 * anything in the document went wrong so far: "FILE: key 'mesh.shard': 0 is not in 1..1048576".
 * error may be NULL for inner sections. */
gboolean json_reader_finish(JsonReader *reader, GError **error);

/* Applies "--set a.b.c=value" to a document before it is read: value is JSON if it parses as such,
 * else a string. Missing sections are created.  FALSE and error when the text is malformed or the
 * path runs through a non-object. */
gboolean json_document_set(JsonDocument *doc, const char *assignment, GError **error);

#endif
