/* vary.h - what a sweep varies: keys with the values that each takes, and the product of them. */
#ifndef HIGHWATER_SEARCH_VARY_H
#define HIGHWATER_SEARCH_VARY_H

#include <glib.h>

/* Most variants that a sweep has. */
#define VARY_MOST 100000

/* One key. */
typedef struct {
  char *key;
  GPtrArray *values; /* char *: each as --set takes it */
  GPtrArray *words;  /* char *: each as a word of labels and tables, different from each other */
} VaryAxis;

typedef struct {
  GPtrArray *axes; /* VaryAxis * */
  guint count;     /* variants: the product of how many values each key has */
} Vary;

/* Reads "KEY=V1,V2,...", one text a key.  A comma inside of [], {} or "" separates nothing.  A
 * value A..B stands for all whole numbers from A to B, A..B*F for A, A*F, A*F*F ..., A..B+S for A,
 * A+S ..., none beyond B.  NULL and error ("--vary TEXT: ...") when one is malformed, a key or one
 * of its values is given twice, or there are more than VARY_MOST variants. */
Vary *vary_parse(char *const *texts, GError **error);
void vary_free(Vary *vary);
G_DEFINE_AUTOPTR_CLEANUP_FUNC(Vary, vary_free)

/* The value of an axis in a variant: the last key changes fastest. Borrowed. */
const char *vary_value(const Vary *vary, guint variant, guint axis);
/* The variant's values, joined by commas: what folders and tables call it.  No spaces, no slashes,
 * no leading dot; variants have different ones.  Caller frees. */
char *vary_label(const Vary *vary, guint variant);
/* The value of an axis as a word: without spaces, commas, slashes, quotes, leading dots.  Borrowed.
 */
const char *vary_word(const Vary *vary, guint variant, guint axis);

#endif
