/* snapshot_file_internal.h - a snapshot on its way from the pickle's values to tables. */
#ifndef HIGHWATER_IMPORT_SNAPSHOT_FILE_INTERNAL_H
#define HIGHWATER_IMPORT_SNAPSHOT_FILE_INTERNAL_H

#include "import/pickle_reader.h"
#include "import/snapshot_file.h"

typedef struct {
  SnapshotFile *file;
  GHashTable *known; /* items of lists of frames -> index into labels + 1 */
  const char *list;  /* what is being read, for messages: list[index] */
  guint index;
  GError **error;
} SnapshotReader;

/* ---- snapshot_tables.c */
/* The history and the segments; FALSE and the error when they are not as they should be. */
gboolean snapshot_read_entries(SnapshotReader *reader, const PickleValue *trace);
gboolean snapshot_read_segments(SnapshotReader *reader, const PickleValue *list);
/* A whole number of a dictionary, or what stands for it. */
gint64 snapshot_int_or(const PickleValue *dict, const char *key, gint64 otherwise);
gboolean snapshot_is_true(const PickleValue *dict, const char *key);

/* ---- snapshot_settings.c */
/* What is not as it should be means nothing. */
void snapshot_read_settings(SnapshotFile *file, const PickleValue *dict);
void snapshot_read_annotations(SnapshotFile *file, const PickleValue *list);

/* ---- snapshot_labels.c */
/* What a list of frames says, as an index into labels; -1: nothing. */
gint32 snapshot_label(SnapshotReader *reader, const PickleValue *frames);

#endif
