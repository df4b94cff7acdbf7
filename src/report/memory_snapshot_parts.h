/* memory_snapshot_parts.h - a snapshot on its way: shared by its history, its segments and its
 * frames. */
#ifndef HIGHWATER_REPORT_MEMORY_SNAPSHOT_PARTS_H
#define HIGHWATER_REPORT_MEMORY_SNAPSHOT_PARTS_H

#include "base/pickle_writer.h"
#include "record/snapshot_names.h"
#include "report/memory_snapshot.h"

/* Where the host is. */
typedef struct {
  gint32 phase; /* index into ranges, or -1 */
  gint32 step;  /* the last one that began; 0: none */
} SnapshotPlace;

typedef struct {
  PickleWriter out;
  const Recording *recording;
  GHashTable *texts;  /* static string or text of the recording -> number kept + 1 */
  GHashTable *frames; /* FrameKey -> number kept + 1 */
  GArray *phases;     /* gint32: phases in ranges, by start */
  guint begun;        /* so many of them have begun */
  guint done;         /* so many memory events have been written */
  guint *births;      /* of each allocation: its event */
  guint32 *birth_frames, *segment_frames; /* of each allocation and segment event: kept lists */
  guint8 *waits;                          /* of each allocation: its free waited */
  guint entries;
} Snapshot;

/* ---- memory_snapshot_frames.c */
void snapshot_begin(Snapshot *s, const Recording *recording);
/* Frees what is left; the caller takes the bytes. */
GByteArray *snapshot_end_document(Snapshot *s);
/* Writes a text that is written often and that stays as it is, where it is: a key, a string of the
 * recording. */
void snapshot_text(Snapshot *s, const char *text);
/* Where the host is at a time, not before that of the call before. */
SnapshotPlace snapshot_place(Snapshot *s, SimTime time);
/* Writes the list of frames and returns the number it is kept under; event (its module and what are
 * read) may be NULL. */
guint32 snapshot_frames(Snapshot *s, const MemoryEvent *event, SnapshotPlace place);
/* The last event's time. */
SimTime snapshot_end(const Snapshot *s);

static inline const MemoryEvent *
snapshot_birth(const Snapshot *s, gint32 allocation)
{
  return &g_array_index(s->recording->memory, MemoryEvent, s->births[allocation]);
}

static inline gboolean
snapshot_waits(const Snapshot *s, gint32 allocation)
{
  return s->waits[allocation];
}

/* ---- memory_snapshot_segments.c */
/* Writes the list of segments with their blocks at the end. */
void snapshot_add_segments(Snapshot *s);

#endif
