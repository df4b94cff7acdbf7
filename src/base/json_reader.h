/* json_reader.h - reads our JSON inputs with errors that name file, key and what is allowed.
 *
 * A JsonReader walks one JSON object.  Every typed getter takes the key and a default; the first
 * wrong value is remembered in the document (later getters return defaults), so callers read all
 * keys in a row and check once with json_reader_finish(), which also refuses keys that nobody asked
 * for, naming the nearest known one.  A null value counts as absent.
 * Ownership: a reader borrows its document; strings returned are borrowed from the document. */
#ifndef HIGHWATER_BASE_JSON_READER_H
#define HIGHWATER_BASE_JSON_READER_H

#include "base/json_document.h"
#include "base/nearest_name.h"
#include <glib.h>

typedef struct _JsonReader
    JsonReader; /* one object of a document, with the path that leads there */

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

/* Integer in [min, max].  Numbers must be whole and at most 2^53 in magnitude; else an error. */
gint64 json_reader_int(JsonReader *reader, const char *key, gint64 fallback, gint64 min,
                       gint64 max);
double json_reader_double(JsonReader *reader, const char *key, double fallback, double min,
                          double max);
gboolean json_reader_bool(JsonReader *reader, const char *key, gboolean fallback);
/* String; fallback may be NULL. */
const char *json_reader_string(JsonReader *reader, const char *key, const char *fallback);
/* Index of the string in the NULL-terminated list of allowed names; fallback is an index.  Unknown
 * names give an error that lists what is allowed. */
int json_reader_enum(JsonReader *reader, const char *key, const char *const *names, int fallback);
/* Size in bytes: a whole number, or a string for parse_size(). */
gint64 json_reader_size(JsonReader *reader, const char *key, gint64 fallback);
/* Size in [min, max]; a fallback outside is allowed. */
gint64 json_reader_size_between(JsonReader *reader, const char *key, gint64 fallback, gint64 min,
                                gint64 max);
/* TRUE when the key is present and not null, else an error. */
gboolean json_reader_require(JsonReader *reader, const char *key);
/* The same for keys that must be there; after an error they give min and "". */
gint64 json_reader_required_int(JsonReader *reader, const char *key, gint64 min, gint64 max);
const char *json_reader_required_string(JsonReader *reader, const char *key);

/* Reports an error of the caller's own about a key of this object ("shard must divide ..."); the
 * first one stays. */
void json_reader_fail(JsonReader *reader, const char *key, const char *format, ...)
    G_GNUC_PRINTF(3, 4);

/* Lets unknown keys of this object pass (Hugging Face configs). */
void json_reader_allow_unknown(JsonReader *reader);

/* Ends reading of this object: unknown keys are an error, except those that begin with an
 * underscore, which are comments.  Returns FALSE and sets error when
 * anything in the document went wrong so far: "FILE: key 'mesh.shard': 0 is not in 1..1048576".
 * error may be NULL for inner sections. */
gboolean json_reader_finish(JsonReader *reader, GError **error);

#endif
