/* allocation_trace_internal.h - how the readers of the two formats build an AllocationTrace. */
#ifndef HIGHWATER_IMPORT_ALLOCATION_TRACE_INTERNAL_H
#define HIGHWATER_IMPORT_ALLOCATION_TRACE_INTERNAL_H

#include "import/allocation_trace.h"

#define TRACE_MAX_EVENTS (1 << 23)
#define TRACE_MAX_STREAMS 1024
/* One tensor or segment is never larger, and addresses end here too. */
#define TRACE_MAX_BYTES ((gint64) 1 << 50)

/* A trace under construction: streams are numbered as they come until trace_link(). */
typedef struct {
  AllocationTrace *trace;
  GHashTable *stream_numbers; /* gint64 * -> index + 1 */
  GHashTable *phase_numbers;  /* name -> index + 1 */
} TraceBuilder;

/* Number of the stream of that name; -1 when there are too many. */
gint32 trace_builder_stream(TraceBuilder *builder, guint64 name);
gint32 trace_builder_phase(TraceBuilder *builder, const char *name);

/* Makes a trace of what fill puts into it, and links it. */
AllocationTrace *allocation_trace_build(const char *name,
                                        gboolean (*fill)(TraceBuilder *, gpointer, GError **),
                                        gpointer data, GError **error);

/* Readers: the first byte has been looked at, not taken. */
gboolean allocation_trace_read_json(TraceBuilder *builder, ByteSource *source, GError **error);
gboolean allocation_trace_read_list(TraceBuilder *builder, ByteSource *source, GError **error);

/* Puts streams and segments in order and pairs allocations with frees.  FALSE and error when the
 * events cannot have happened. */
gboolean allocation_trace_link(AllocationTrace *trace, GError **error);

#endif
