/* nearest_name.h - what the user probably meant. */
#ifndef HIGHWATER_BASE_NEAREST_NAME_H
#define HIGHWATER_BASE_NEAREST_NAME_H

/* The name in the NULL-terminated list that is nearest to word (edit distance at most half of its
 * length, the first of equals), or NULL.  Borrowed from the list. */
const char *nearest_name(const char *word, const char *const *names);
/* The nearest name if word is hardly anything else: one edit away, two where it is longer. */
const char *misspelt_name(const char *word, const char *const *names);

#endif
