/* byte_source.c - buffered reading, unpacking gzip on the way. */
#include "import/byte_source.h"
#include "base/units.h"
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>

#define BUFFER_BYTES (64 * 1024)

static gboolean
fail(ByteSource *source, const char *what)
{
  if (!source->error)
    g_set_error(&source->error, HIGHWATER_ERROR, HIGHWATER_ERROR_INPUT, "%s: %s", source->name,
                what);
  return FALSE;
}

ByteSource *
byte_source_open(const char *path, GError **error)
{
  gboolean standard_input = g_str_equal(path, "-");
  int descriptor = standard_input ? dup(STDIN_FILENO) : open(path, O_RDONLY | O_CLOEXEC);
  if (descriptor < 0) {
    g_set_error(error, HIGHWATER_ERROR, HIGHWATER_ERROR_INPUT, "%s: %s", path, g_strerror(errno));
    return NULL;
  }
  ByteSource *source = g_new0(ByteSource, 1);
  source->name = g_strdup(standard_input ? "standard input" : path);
  source->buffer = g_malloc(BUFFER_BYTES);
  source->limit = BYTE_SOURCE_LIMIT;
  /* zlib passes what is not gzip through as it is. */
  source->file = gzdopen(descriptor, "rb");
  gzbuffer(source->file, BUFFER_BYTES);
  return source;
}

ByteSource *
byte_source_from_memory(const char *name, const void *bytes, gsize length)
{
  ByteSource *source = g_new0(ByteSource, 1);
  source->name = g_strdup(name);
  source->at = bytes;
  source->end = source->at + length;
  source->offset = length;
  return source;
}

void
byte_source_free(ByteSource *source)
{
  if (!source)
    return;
  if (source->file)
    gzclose_r(source->file);
  g_clear_error(&source->error);
  g_free(source->buffer);
  g_free(source->name);
  g_free(source);
}

gboolean
byte_source_refill(ByteSource *source)
{
  if (!source->file || source->error)
    return FALSE;
  int read = gzread(source->file, source->buffer, BUFFER_BYTES);
  int status;
  const char *message = gzerror(source->file, &status);
  if (status == Z_ERRNO)
    return fail(source, g_strerror(errno));
  /* What was unpacked before the end comes first. */
  source->cut = status == Z_BUF_ERROR;
  if (source->cut && read <= 0)
    return fail(source, "truncated: the compressed data ends too early");
  if (status != Z_OK && !source->cut) {
    g_autofree char *text = g_strdup_printf("not valid gzip data (%s)", message);
    return fail(source, text);
  }
  if (read <= 0)
    return FALSE;
  source->at = source->buffer;
  source->end = source->buffer + read;
  source->offset += (guint64) read;
  if (source->offset > source->limit) {
    source->at = source->end;
    g_autofree char *text =
        g_strdup_printf("larger than %" G_GUINT64_FORMAT " MiB unpacked", source->limit >> 20);
    return fail(source, text);
  }
  return TRUE;
}
