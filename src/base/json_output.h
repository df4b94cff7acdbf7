/* json_output.h - JSON for programs: what cJSON's own printer does not do exactly. */
#ifndef HIGHWATER_BASE_JSON_OUTPUT_H
#define HIGHWATER_BASE_JSON_OUTPUT_H

#include <cjson/cJSON.h>
#include <glib.h>

#include "base/units.h"

/* Adds a whole number with all its digits (cJSON's numbers are doubles of 15). */
void json_add_int(cJSON *object, const char *key, gint64 value);
/* The same, or null when it is not known; of a number that may be broken; of nanoseconds, as
 * seconds. */
void json_add_known_int(cJSON *object, const char *key, gboolean known, gint64 value);
void json_add_known_number(cJSON *object, const char *key, gboolean known, double value);
void json_add_seconds(cJSON *object, const char *key, gboolean known, SimTime ns);
/* Adds a string, or null. */
void json_add_text(cJSON *object, const char *key, const char *text);
/* Puts an item, which it takes, under the key: in the place of what is there, else at the end. */
void json_replace(cJSON *object, const char *key, cJSON *item);
void json_replace_text(cJSON *object, const char *key, const char *text);
/* The same under "section.key", of as many sections as it says, which are made where they are not.
 */
void json_replace_path(cJSON *object, const char *path, cJSON *item);
/* The object under the key; made if there is none.  Borrowed. */
cJSON *json_section(cJSON *object, const char *key);
/* The text of an item on one line; NULL of NULL.  Caller frees with g_free. */
char *json_line(const cJSON *item);
/* The text of a tree, which it frees; ends with a newline.  Caller frees with g_free. */
char *json_finish(cJSON *root);

#endif
