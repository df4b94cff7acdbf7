/* output_file.c - writes beside the target, then renames. */
#include "base/output_file.h"
#include "base/units.h"
#include <errno.h>
#include <fcntl.h>
#include <glib/gstdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

struct _OutputFile {
  char *path;
  char *temporary; /* NULL: written directly */
  char *target;    /* what the temporary becomes: the path, or the file that it links to */
  FILE *stream;
  int reason; /* errno of the first write that failed, if known */
};

const char *
output_file_name(const char *path)
{
  return g_str_equal(path, "-") ? "standard output" : *path == '\0' ? "an empty name" : path;
}

static gboolean
fail(const char *path, int reason, GError **error)
{
  g_set_error(error, HIGHWATER_ERROR, HIGHWATER_ERROR_OUTPUT, "%s: cannot be written: %s",
              output_file_name(path), g_strerror(reason));
  return FALSE;
}

/* Pipes, terminals and /dev/null cannot be replaced by a rename; the reader at the other end must
 * get the bytes. */
static gboolean
is_written_directly(const char *path)
{
  struct stat status;
  return g_str_equal(path, "-") || (stat(path, &status) == 0 && !S_ISREG(status.st_mode));
}

char *
output_file_target(const char *path)
{
  g_autofree char *target = g_strdup(path);
  if (g_file_test(path, G_FILE_TEST_IS_SYMLINK)) {
    char *resolved = realpath(path, NULL);
    if (resolved) {
      g_free(target);
      target = g_strdup(resolved);
      free(resolved);
    }
  }
  return g_steal_pointer(&target);
}

/* The permissions of a new file, which mkstemp() does not give: those of the file replaced, else of
 * the umask. */
static mode_t
permissions_for(const char *path)
{
  struct stat status;
  if (stat(path, &status) == 0)
    return status.st_mode & 0777;
  mode_t mask = umask(0);
  umask(mask);
  return 0666 & ~mask;
}

static FILE *
open_temporary(const char *path, char *temporary)
{
  int fd = g_mkstemp(temporary);
  if (fd < 0)
    return NULL;
  FILE *stream = fchmod(fd, permissions_for(path)) == 0 ? fdopen(fd, "w") : NULL;
  if (!stream) {
    int reason = errno;
    close(fd);
    g_unlink(temporary);
    errno = reason;
  }
  return stream;
}

OutputFile *
output_file_open(const char *path, GError **error)
{
  g_autofree char *temporary = NULL;
  g_autofree char *target = output_file_target(path);
  FILE *stream;
  if (g_str_equal(path, "-")) {
    stream = stdout;
  } else if (is_written_directly(path)) {
    stream = fopen(path, "w");
  } else {
    temporary = g_strconcat(target, ".XXXXXX", NULL);
    stream = open_temporary(path, temporary);
  }
  if (!stream) {
    fail(path, errno, error);
    return NULL;
  }
  OutputFile *file = g_new0(OutputFile, 1);
  file->path = g_strdup(path);
  file->temporary = g_steal_pointer(&temporary);
  file->target = g_steal_pointer(&target);
  file->stream = stream;
  return file;
}

FILE *
output_file_stream(OutputFile *file)
{
  return file->stream;
}

static void
output_file_free(OutputFile *file)
{
  g_free(file->temporary);
  g_free(file->target);
  g_free(file->path);
  g_free(file);
}

/* Flushes and closes (standard output stays open); FALSE and errno when a write failed, now or
 * before. */
static gboolean
close_stream(OutputFile *file)
{
  errno = 0;
  gboolean ok = fflush(file->stream) == 0 && !ferror(file->stream);
  int reason = errno ? errno : file->reason;
  if (file->stream != stdout && fclose(file->stream) != 0 && ok) {
    ok = FALSE;
    reason = errno;
  }
  file->stream = NULL;
  errno = reason ? reason : EIO;
  return ok;
}

gboolean
output_file_commit(OutputFile *file, GError **error)
{
  gboolean ok = close_stream(file);
  if (ok && file->temporary)
    ok = g_rename(file->temporary, file->target) == 0;
  if (!ok) {
    fail(file->path, errno, error);
    if (file->temporary)
      g_unlink(file->temporary);
  }
  output_file_free(file);
  return ok;
}

void
output_file_discard(OutputFile *file)
{
  if (!file)
    return;
  close_stream(file);
  if (file->temporary)
    g_unlink(file->temporary);
  output_file_free(file);
}

gboolean
output_file_write(const char *path, const char *text, gsize length, GError **error)
{
  OutputFile *file = output_file_open(path, error);
  if (!file)
    return FALSE;
  errno = 0;
  if (fwrite(text, 1, length, file->stream) != length)
    file->reason = errno;
  return output_file_commit(file, error);
}
