/* block_passes.h - when the host was at which block of the network, on its way forward and back. */
#ifndef HIGHWATER_REPORT_BLOCK_PASSES_H
#define HIGHWATER_REPORT_BLOCK_PASSES_H

#include "record/recording.h"

/* The host issued a block's kernels from start to end, with nothing else between. */
typedef struct {
  SimTime start, end;
  gint32 block; /* string id of the first module path that was seen of it */
  int length;   /* of that path, as far as it names the block: "layers.3" */
  gint32 phase; /* index into ranges */
} BlockPass;

/* BlockPass in order of their start, of kernels that a phase between two moments issued; none when
 * the recording does not say when its kernels were issued, or for which module.  Free with
 * g_array_unref. */
GArray *block_passes(const Recording *recording, SimTime from, SimTime to);

/* Length of a module path up to and with its first component that is a number: of the block that
 * the module is in.  All of it when it is in none. */
gsize block_path_length(const char *path);

#endif
