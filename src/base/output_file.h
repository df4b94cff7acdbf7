/* output_file.h - outputs that appear whole or not at all: written beside the target, then renamed.
 */
#ifndef HIGHWATER_BASE_OUTPUT_FILE_H
#define HIGHWATER_BASE_OUTPUT_FILE_H

#include <glib.h>
#include <stdio.h>

typedef struct _OutputFile OutputFile;

/* Opens a temporary file beside path ("-" is standard output, written directly).  NULL and error
 * when it cannot. */
OutputFile *output_file_open(const char *path, GError **error);
/* The stream to write to; borrowed. */
FILE *output_file_stream(OutputFile *file);
/* Flushes, checks for write errors (a full disk), renames into place, frees.  On failure the
 * temporary file is removed and FALSE returned. */
gboolean output_file_commit(OutputFile *file, GError **error);
/* Removes the temporary file, frees.  NULL is allowed. */
void output_file_discard(OutputFile *file);
G_DEFINE_AUTOPTR_CLEANUP_FUNC(OutputFile, output_file_discard)

/* What errors call a path: standard output has none, and nothing is to be seen of an empty one. */
const char *output_file_name(const char *path);

/* The path that a rename must go to so that a symbolic link stays one: what it links to, or the
 * path itself.  Caller frees. */
char *output_file_target(const char *path);

/* Writes text whole to path in the same way. */
gboolean output_file_write(const char *path, const char *text, gsize length, GError **error);

#endif
