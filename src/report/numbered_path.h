/* numbered_path.h - module paths that differ in the number of their block alone, as one name. */
#ifndef HIGHWATER_REPORT_NUMBERED_PATH_H
#define HIGHWATER_REPORT_NUMBERED_PATH_H

#include <glib.h>

/* A path with its first number taken out: "layers.", 3, ".feed_forward". */
typedef struct {
  char *head, *tail; /* tail NULL: there is no number */
  int number;
} NumberedPath;

NumberedPath numbered_path(const char *path);
void numbered_path_clear(NumberedPath *path);
/* Appends it with "*" for the number. */
void numbered_path_append_masked(const NumberedPath *path, GString *out);

/* Paths that differ in their number alone. */
typedef struct {
  NumberedPath path; /* of the first */
  GArray *numbers;   /* int; NULL: none is in it */
} PathSet;

void path_set_add(PathSet *set, const NumberedPath *path);
void path_set_clear(PathSet *set);
/* Appends "layers.0-30,32.feed_forward"; sorts the numbers.  Of many ranges the middle ones are
 * left out.  Nothing of an empty set. */
void path_set_append(PathSet *set, GString *out);

#endif
