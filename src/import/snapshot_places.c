/* snapshot_places.c - opens and closes steps and ranges of a Recording as a snapshot tells them. */
#include "import/snapshot_places.h"

#include <stdio.h>

#include "record/snapshot_names.h"

/* Annotated ranges that lie in each other. */
#define MAX_OPEN 64

/* -1: none. */
static int
annotated_step(const SnapshotAnnotation *annotation)
{
  int number;
  return sscanf(annotation->name, SNAPSHOT_ANNOTATED_STEP, &number) == 1 ? number : -1;
}

gboolean
snapshot_has_steps(const SnapshotFile *file)
{
  for (guint i = 0; i < file->labels->len; i++)
    if (g_array_index(file->labels, SnapshotLabel, i).step > 0)
      return TRUE;
  for (guint i = 0; i < file->annotations->len; i++)
    if (annotated_step(&g_array_index(file->annotations, SnapshotAnnotation, i)) >= 0)
      return TRUE;
  return FALSE;
}

void
snapshot_places_begin(SnapshotPlaces *places, const SnapshotFile *file, Recorder *recorder,
                      Recording *recording)
{
  *places = (SnapshotPlaces){.file = file,
                             .recording = recording,
                             .recorder = recorder,
                             .open = g_array_new(FALSE, FALSE, sizeof(gint32)),
                             .place.micro_batch = -1};
}

static void
begin_step(SnapshotPlaces *places, SimTime time)
{
  g_array_set_size(places->open, 0);
  if (places->step == 0) {
    recorder_close_ranges(places->recorder, time);
    recorder_end_construction(places->recorder);
  } else {
    recorder_end_step(places->recorder, time);
  }
  recorder_begin_step(places->recorder, time);
  places->step++;
}

/* ---- simulated runs ---- */

static gboolean
same_place(const SnapshotLabel *a, const SnapshotLabel *b)
{
  return a->step == b->step && a->micro_batch == b->micro_batch && a->beyond == b->beyond &&
         g_strcmp0(a->phase, b->phase) == 0;
}

static void
follow_label(SnapshotPlaces *places, const SnapshotLabel *label, SimTime time)
{
  if (same_place(&places->place, label))
    return;
  gboolean goes_beyond = label->beyond && label->phase;
  recorder_close_ranges(places->recorder, time);
  while (places->step < label->step)
    begin_step(places, time);
  places->place = *label;
  if (!label->phase)
    return;
  const Range range = {.kind = RECORDED_PHASE,
                       .micro_batch = label->micro_batch,
                       .name = recording_string(places->recording, label->phase),
                       .module = -1};
  if (goes_beyond)
    recorder_begin_beyond(places->recorder, time, &range);
  else
    recorder_push(places->recorder, time, &range);
}

/* ---- measured ones ---- */

/* Of what programs and PyTorch's optimizers annotate, these are phases. */
static const struct {
  const char *prefix, *phase;
} phases[] = {
    {"Optimizer.step#", "optimizer"},
    {"Optimizer.zero_grad#", "zero_grad"},
    {"forward", "forward"},
    {"backward", "backward"},
    {"optimizer", "optimizer"},
    {"zero_grad", "zero_grad"},
    {"clip", "clip"},
};

static void
open_range(SnapshotPlaces *places, const char *name, SimTime time)
{
  Range range = {.kind = RECORDED_HOOK, .micro_batch = -1, .module = -1};
  if (places->open->len == MAX_OPEN)
    return;
  for (guint i = 0; i < G_N_ELEMENTS(phases); i++) {
    if (!g_str_has_prefix(name, phases[i].prefix))
      continue;
    range.kind = RECORDED_PHASE;
    name = phases[i].phase;
    break;
  }
  range.name = recording_string(places->recording, name);
  recorder_push(places->recorder, time, &range);
  gint32 opened = recording_string(places->recording, name);
  g_array_append_val(places->open, opened);
}

/* The innermost range is over: ends that come in another order come from other threads. */
static void
close_range(SnapshotPlaces *places, SimTime time)
{
  if (places->open->len == 0)
    return;
  recorder_pop(places->recorder, time);
  g_array_set_size(places->open, places->open->len - 1);
}

static void
follow_annotations(SnapshotPlaces *places, gint64 until_us, SimTime time)
{
  const GArray *annotations = places->file->annotations;
  for (; places->annotation < annotations->len; places->annotation++) {
    const SnapshotAnnotation *annotation =
        &g_array_index(annotations, SnapshotAnnotation, places->annotation);
    /* A range that ends in the microsecond of an entry is taken to hold it. */
    if (annotation->time_us + annotation->ends > until_us)
      break;
    if (annotated_step(annotation) >= 0) {
      if (!annotation->ends && places->step < G_MAXINT16)
        begin_step(places, time);
    } else if (annotation->ends) {
      close_range(places, time);
    } else {
      open_range(places, annotation->name, time);
    }
  }
}

void
snapshot_places_follow(SnapshotPlaces *places, const SnapshotEntry *entry, SimTime time)
{
  const SnapshotLabel *label =
      entry->label < 0 ? NULL : &g_array_index(places->file->labels, SnapshotLabel, entry->label);
  if (label && label->simulated)
    follow_label(places, label, time);
  else
    follow_annotations(places, entry->time_us, time);
}

/* A simulated step is over when the device has done all of it, which its annotation says. */
static void
end_steps(const SnapshotPlaces *places)
{
  for (guint i = 0; i < places->file->annotations->len; i++) {
    const SnapshotAnnotation *annotation =
        &g_array_index(places->file->annotations, SnapshotAnnotation, i);
    int step = annotated_step(annotation);
    StepRecord *record = step < 1 || step > places->step
                             ? NULL
                             : &g_array_index(places->recording->steps, StepRecord, step - 1);
    SimTime time = annotation->time_us * 1000;
    if (record && annotation->ends && time >= record->start)
      recorder_step_done(places->recorder, (guint) step - 1, time);
  }
}

void
snapshot_places_end(SnapshotPlaces *places, SimTime time)
{
  gboolean simulated = places->place.simulated;
  if (places->step > 0)
    recorder_end_step(places->recorder, time);
  else
    recorder_close_ranges(places->recorder, time);
  if (simulated && places->step > 0)
    end_steps(places);
  else if (simulated)
    recorder_end_construction(places->recorder);
  g_array_unref(places->open);
}
