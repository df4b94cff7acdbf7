/* nearest_name.c - edit distance between what was written and what is known. */
#include "base/nearest_name.h"
#include <glib.h>
#include <string.h>

/* Longer words are nobody's typing mistake, and the distance costs the product of the lengths. */
#define LONGEST_WORD 64

/* Levenshtein's distance with one row; transposed neighbours count 2.  Both at most LONGEST_WORD
 * long. */
static guint
edit_distance(const char *a, const char *b)
{
  guint row[LONGEST_WORD + 1];
  gsize length = strlen(b);
  for (gsize j = 0; j <= length; j++)
    row[j] = j;
  for (gsize i = 0; a[i]; i++) {
    guint diagonal = row[0];
    row[0] = i + 1;
    for (gsize j = 0; j < length; j++) {
      guint replaced = diagonal + (a[i] != b[j]);
      diagonal = row[j + 1];
      row[j + 1] = MIN(replaced, MIN(diagonal, row[j]) + 1);
    }
  }
  return row[length];
}

/* The nearest one at less than `least` edits. */
static const char *
nearest_below(const char *word, const char *const *names, guint least)
{
  if (strlen(word) > LONGEST_WORD)
    return NULL;
  const char *nearest = NULL;
  for (; *names; names++) {
    guint distance = strlen(*names) > LONGEST_WORD ? least : edit_distance(word, *names);
    if (distance < least) {
      least = distance;
      nearest = *names;
    }
  }
  return nearest;
}

const char *
nearest_name(const char *word, const char *const *names)
{
  return nearest_below(word, names, strlen(word) / 2 + 1);
}

const char *
misspelt_name(const char *word, const char *const *names)
{
  enum { SHORT_WORD = 6 };
  return nearest_below(word, names, strlen(word) < SHORT_WORD ? 2 : 3);
}
