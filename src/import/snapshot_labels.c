/* snapshot_labels.c - what a list of frames says of an allocation: the innermost Python function,
 * and the innermost one that is the user's own. */
#include <stdio.h>
#include <string.h>

#include "import/snapshot_file_internal.h"
#include "record/snapshot_names.h"

/* Stacks are looked at up to here. */
#define MAX_FRAMES 1024

static const char *
frame_text(const PickleValue *frame, const char *key)
{
  const PickleValue *value = pickle_get(frame, key);
  return value && value->kind == PICKLE_STRING ? value->text : "";
}

static gboolean
frame_is(const PickleValue *frame, const char *name, const char *file)
{
  return g_str_equal(frame_text(frame, "name"), name) &&
         g_str_equal(frame_text(frame, "filename"), file);
}

/* ---- of simulated runs ---- */

static char *
text_or_null(const PickleValue *frame, const char *key)
{
  const char *text = frame_text(frame, key);
  return g_str_equal(text, SNAPSHOT_NOTHING) ? NULL : g_utf8_make_valid(text, -1);
}

static void
read_place(const PickleValue *frame, SnapshotLabel *label)
{
  const char *file = frame_text(frame, "filename");
  int step = 0;
  label->phase = text_or_null(frame, "name");
  label->micro_batch = (int) CLAMP(snapshot_int_or(frame, "line", 0) - 1, -1, G_MAXINT16);
  label->beyond = sscanf(file, SNAPSHOT_AFTER_STEP, &step) == 1;
  if (label->beyond || sscanf(file, SNAPSHOT_STEP, &step) == 1)
    label->step = CLAMP(step, 0, G_MAXINT16);
}

static SnapshotLabel
label_of_simulated(const PickleValue *frames, guint n)
{
  SnapshotLabel label = {.simulated = TRUE, .micro_batch = -1};
  if (n >= 2)
    read_place(pickle_item(frames, n - 2), &label);
  if (n >= 3) {
    label.what = text_or_null(pickle_item(frames, 0), "name");
    label.module = text_or_null(pickle_item(frames, 0), "filename");
  }
  return label;
}

/* ---- of measured ones ---- */

static gboolean
is_python(const char *file)
{
  return g_str_has_suffix(file, ".py");
}

/* Not of PyTorch, another package or Python itself. */
static gboolean
is_own(const char *file)
{
  static const char *const others[] = {"/torch/", "/site-packages/", "/dist-packages/",
                                       "/lib/python"};
  for (guint i = 0; i < G_N_ELEMENTS(others); i++)
    if (strstr(file, others[i]))
      return FALSE;
  return is_python(file);
}

/* "forward (linear.py:134)". */
static char *
describe_frame(const PickleValue *frame)
{
  g_autofree char *name = g_utf8_make_valid(frame_text(frame, "name"), -1);
  g_autofree char *path = g_utf8_make_valid(frame_text(frame, "filename"), -1);
  g_autofree char *file = g_path_get_basename(path);
  return g_strdup_printf("%s (%s:%" G_GINT64_FORMAT ")", name, file,
                         snapshot_int_or(frame, "line", 0));
}

static SnapshotLabel
label_of_measured(const PickleValue *frames, guint n)
{
  SnapshotLabel label = {.micro_batch = -1};
  for (guint i = 0; i < MIN(n, MAX_FRAMES) && !label.module; i++) {
    const PickleValue *frame = pickle_item(frames, i);
    const char *file = frame_text(frame, "filename");
    if (!label.what && is_python(file))
      label.what = describe_frame(frame);
    if (is_own(file))
      label.module = describe_frame(frame);
  }
  if (!label.what)
    label.what = describe_frame(pickle_item(frames, 0));
  return label;
}

gint32
snapshot_label(SnapshotReader *reader, const PickleValue *frames)
{
  guint n = pickle_length(frames);
  if (n == 0)
    return -1;
  gpointer known = g_hash_table_lookup(reader->known, frames->items);
  if (known)
    return GPOINTER_TO_INT(known) - 1;
  gboolean simulated =
      frame_is(pickle_item(frames, n - 1), SNAPSHOT_FRAME_NAME, SNAPSHOT_FRAME_FILE);
  SnapshotLabel label = simulated ? label_of_simulated(frames, n) : label_of_measured(frames, n);
  g_array_append_val(reader->file->labels, label);
  gint32 index = (gint32) reader->file->labels->len;
  g_hash_table_insert(reader->known, frames->items, GINT_TO_POINTER(index));
  return index - 1;
}
