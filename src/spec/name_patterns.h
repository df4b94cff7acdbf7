/* name_patterns.h - lists of patterns that choose names: "layers.*.attention.*", "!*.bias". */
#ifndef HIGHWATER_SPEC_NAME_PATTERNS_H
#define HIGHWATER_SPEC_NAME_PATTERNS_H

#include "base/json_reader.h"
#include <glib.h>

/* In a pattern '*' stands for any characters (dots too), '?' for one, '[0-3]' for one of a set; a
 * leading '!' takes out again what earlier patterns chose.  The last pattern that matches a name
 * decides; what none matches is not chosen, unless the list begins with '!': then it is. */
typedef struct {
  GPtrArray *patterns; /* char *, at least one */
} NamePatterns;

#define NAME_PATTERNS_MOST 64
#define NAME_PATTERN_LONGEST 256

/* The array of strings under key; NULL when it is absent, or wrong (the reader has the error). */
NamePatterns *name_patterns_read(JsonReader *reader, const char *key);
void name_patterns_free(NamePatterns *patterns);
G_DEFINE_AUTOPTR_CLEANUP_FUNC(NamePatterns, name_patterns_free)

gboolean name_patterns_choose(const NamePatterns *patterns, const char *name);
/* Does one pattern (its '!' apart) match the name? */
gboolean name_pattern_matches(const char *pattern, const char *name);

#endif
