/* config_toml_events.h - what the TOML library finds in a text, told to C. */
#ifndef HIGHWATER_IMPORT_CONFIG_TOML_EVENTS_H
#define HIGHWATER_IMPORT_CONFIG_TOML_EVENTS_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Called in the order of the tree.  key is NULL for elements of arrays and for the top table;
 * strings are borrowed for the call.  begin and end enclose tables and arrays. */
typedef struct {
  void (*begin)(void *data, const char *key, unsigned line, int is_array);
  void (*end)(void *data);
  void (*string)(void *data, const char *key, unsigned line, const char *value);
  void (*number)(void *data, const char *key, unsigned line, double value);
  void (*boolean)(void *data, const char *key, unsigned line, int value);
  void (*error)(void *data, unsigned line, const char *message);
} ConfigTomlEvents;

/* Parses a text.  After an error nothing else is told.  Dates and times are told as strings. */
void config_toml_parse(const char *text, size_t length, const ConfigTomlEvents *events, void *data);

#ifdef __cplusplus
}
#endif

#endif
