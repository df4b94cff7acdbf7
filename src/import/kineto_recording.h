/* kineto_recording.h - a trace of PyTorch's profiler as a Recording: what ran on one GPU and what
 * its host did. */
#ifndef HIGHWATER_IMPORT_KINETO_RECORDING_H
#define HIGHWATER_IMPORT_KINETO_RECORDING_H

#include "import/kineto_trace.h"
#include "record/recording.h"

/* A process group whose collectives are there. */
typedef struct {
  char *name;        /* as spans name it */
  int ranks, stride; /* 0: not known */
} KinetoGroup;

/* What the trace says beside. */
typedef struct {
  KinetoMachine machine;
  GArray *groups;   /* KinetoGroup, in order of appearance */
  GPtrArray *notes; /* char *: what was left out or taken for granted, a line each */
} KinetoAbout;

KinetoAbout *kineto_about_new(void);
void kineto_about_free(KinetoAbout *about);
G_DEFINE_AUTOPTR_CLEANUP_FUNC(KinetoAbout, kineto_about_free)

/* Kernels, copies and collectives become spans of their streams, launches say when they were issued
 * and what the host waited for; ProfilerStep ranges are steps (without any the trace is one), what
 * is before the first is the construction.  Ranges come from annotations and calls of modules;
 * forward and backward, where no annotation has these names, from where autograd ran.  Memory comes
 * from "[memory]" events of the device; what was there before is of category other.  device: number
 * of the GPU, -1 the one with most work.  NULL and error when it is no such trace ("FILE: byte
 * 1234: ...") or nothing ran in it. */
Recording *kineto_recording_load(const char *path, int device, KinetoAbout *about, GError **error);
Recording *kineto_recording_read(ByteSource *source, int device, KinetoAbout *about,
                                 GError **error);

#endif
