/* byte_source.h - bytes of an input one after another: a file, gzip or plain, or memory. */
#ifndef HIGHWATER_IMPORT_BYTE_SOURCE_H
#define HIGHWATER_IMPORT_BYTE_SOURCE_H

#include <glib.h>

/* Inputs are read up to this size, unpacked, unless the reader sets another limit: one that keeps
 * only a small part of what it reads. */
#define BYTE_SOURCE_LIMIT ((guint64) 256 << 20)

typedef struct {
  const guint8 *at, *end; /* what is buffered */
  guint64 offset;         /* bytes of the input before at the end of the buffer */
  struct gzFile_s *file;  /* NULL: memory */
  guint8 *buffer;
  guint64 limit;
  gboolean cut; /* compressed data ends too early */
  char *name;
  GError *error;
} ByteSource;

/* "-" is standard input.  NULL and error when it cannot be opened. */
ByteSource *byte_source_open(const char *path, GError **error);
/* Bytes that stay valid as long as the source; name is used in messages. */
ByteSource *byte_source_from_memory(const char *name, const void *bytes, gsize length);
void byte_source_free(ByteSource *source);
G_DEFINE_AUTOPTR_CLEANUP_FUNC(ByteSource, byte_source_free)

/* Fills the buffer anew; FALSE at the end and at an error (which is then in source->error). */
gboolean byte_source_refill(ByteSource *source);

/* The next byte without taking it; -1 at the end or an error. */
static inline int
byte_source_peek(ByteSource *source)
{
  if (source->at == source->end && !byte_source_refill(source))
    return -1;
  return *source->at;
}

/* Takes the next byte; -1 at the end or an error. */
static inline int
byte_source_next(ByteSource *source)
{
  int byte = byte_source_peek(source);
  if (byte >= 0)
    source->at++;
  return byte;
}

/* Bytes taken so far. */
static inline guint64
byte_source_position(const ByteSource *source)
{
  return source->offset - (guint64) (source->end - source->at);
}

#endif
