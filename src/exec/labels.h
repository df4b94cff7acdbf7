/* labels.h - a Program's names and modules as string ids of a Recording. */
#ifndef HIGHWATER_EXEC_LABELS_H
#define HIGHWATER_EXEC_LABELS_H

#include "program/program.h"
#include "record/recording.h"

typedef struct {
  gint32 *names, *modules; /* Program id -> string id */
} Labels;

void labels_init(Labels *labels, const Program *program, Recording *recording);
void labels_clear(Labels *labels);

/* -1 stays -1. */
static inline gint32
labels_name(const Labels *labels, gint32 name)
{
  return name < 0 ? -1 : labels->names[name];
}

static inline gint32
labels_module(const Labels *labels, gint32 module)
{
  return module < 0 ? -1 : labels->modules[module];
}

#endif
