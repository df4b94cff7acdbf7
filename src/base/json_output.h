/* json_output.h - JSON for programs: what cJSON's own printer does not do exactly. */
#ifndef HIGHWATER_BASE_JSON_OUTPUT_H
#define HIGHWATER_BASE_JSON_OUTPUT_H

#include <cjson/cJSON.h>
#include <glib.h>

/* Adds a whole number with all its digits (cJSON's numbers are doubles of 15). */
void json_add_int(cJSON *object, const char *key, gint64 value);
/* Adds a string, or null. */
void json_add_text(cJSON *object, const char *key, const char *text);
/* The text of a tree, which it frees; ends with a newline.  Caller frees with g_free. */
char *json_finish(cJSON *root);

#endif
