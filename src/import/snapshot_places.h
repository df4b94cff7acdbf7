/* snapshot_places.h - steps and phases of a recording that is made of a snapshot. */
#ifndef HIGHWATER_IMPORT_SNAPSHOT_PLACES_H
#define HIGHWATER_IMPORT_SNAPSHOT_PLACES_H

#include "import/snapshot_file.h"
#include "record/recorder.h"

/* Where the host is.  Simulated runs say it with each entry, measured ones by annotations. */
typedef struct {
  const SnapshotFile *file;
  Recording *recording;
  Recorder *recorder;
  int step;
  guint annotation;    /* the next one */
  GArray *open;        /* gint32: names (string ids) of annotated ranges */
  SnapshotLabel place; /* of simulated runs: the last one; borrowed */
} SnapshotPlaces;

/* Does the file say when steps begin? */
gboolean snapshot_has_steps(const SnapshotFile *file);

void snapshot_places_begin(SnapshotPlaces *places, const SnapshotFile *file, Recorder *recorder,
                           Recording *recording);
/* Before an entry is recorded at its time. */
void snapshot_places_follow(SnapshotPlaces *places, const SnapshotEntry *entry, SimTime time);
/* The history ends; frees what is left. */
void snapshot_places_end(SnapshotPlaces *places, SimTime time);

#endif
