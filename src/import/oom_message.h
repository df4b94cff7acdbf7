/* oom_message.h - what PyTorch says when memory runs out, in every wording since 1.0: its figures.
 *
 * The message rounds: a figure is an interval. */
#ifndef HIGHWATER_IMPORT_OOM_MESSAGE_H
#define HIGHWATER_IMPORT_OOM_MESSAGE_H

#include <glib.h>

/* Bytes, at least low and at most high: "98.00 MiB" is half of 0.01 MiB more or less. */
typedef struct {
  gboolean known;
  gint64 low, high;
} OomFigure;

/* Another process on the same GPU. */
typedef struct {
  gint64 id;
  OomFigure used;
} OomProcess;

typedef struct {
  char *text;  /* the message as it was found, in one line */
  int gpu;     /* -1: it does not say */
  char *named; /* this program's own line: what asked, and where, "step 1, forward of layers.4:
                  mul"; else NULL */

  OomFigure tried; /* what cudaMalloc was asked for: always known */
  OomFigure capacity, free;
  OomFigure allowed;      /* set_per_process_memory_fraction() */
  OomFigure this_process; /* all that it has, context and NCCL's buffers included */
  OomFigure allocated;    /* by tensors, those of private pools included */
  OomFigure private_pools;
  OomFigure idle;     /* reserved by PyTorch and not allocated */
  OomFigure reserved; /* by PyTorch: segments */
  GArray *processes;  /* OomProcess */
} OomMessage;

/* Finds the first message in a text: a message alone, a traceback, a log; this program's own line
 * about running out of memory is one too.  Of idle and reserved the one that is not said follows
 * from the other.  NULL and error when there is none, or one without figures ("more than 1EB"). */
OomMessage *oom_message_parse(const char *text, gsize length, GError **error);
void oom_message_free(OomMessage *message);
G_DEFINE_AUTOPTR_CLEANUP_FUNC(OomMessage, oom_message_free)

/* The middle of a figure. */
static inline gint64
oom_figure_bytes(const OomFigure *figure)
{
  return figure->low + (figure->high - figure->low) / 2;
}
/* How far bytes are from what the figure can be; 0: they can be it. */
static inline gint64
oom_figure_distance(const OomFigure *figure, gint64 bytes)
{
  return bytes < figure->low ? figure->low - bytes : MAX(bytes - figure->high, 0);
}

#endif
