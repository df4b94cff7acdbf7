/* labels.c - interns a Program's texts once, so that recording an op looks nothing up. */
#include "exec/labels.h"

static gint32 *
intern_all(const GPtrArray *texts, Recording *recording)
{
  gint32 *ids = g_new(gint32, texts->len);
  for (guint i = 0; i < texts->len; i++)
    ids[i] = recording_string(recording, g_ptr_array_index(texts, i));
  return ids;
}

void
labels_init(Labels *labels, const Program *program, Recording *recording)
{
  labels->names = intern_all(program->names, recording);
  labels->modules = intern_all(program->modules, recording);
}

void
labels_clear(Labels *labels)
{
  g_free(labels->names);
  g_free(labels->modules);
}
