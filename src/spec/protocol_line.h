/* protocol_line.h - the constants of one algorithm of NCCL under one protocol: start-up, step and
 * share of the bandwidth, on one kind of link. */
#ifndef HIGHWATER_SPEC_PROTOCOL_LINE_H
#define HIGHWATER_SPEC_PROTOCOL_LINE_H

#include <glib.h>

#include "base/json_reader.h"

/* Key in files.  The ring with Simple is the one that the others are compared with; its constants
 * are the cluster's own. */
#define PROTOCOL_LINES(X)                                                                          \
  X(RING_LL, "ring_ll")                                                                            \
  X(RING_LL128, "ring_ll128")                                                                      \
  X(RING_SIMPLE, "ring_simple")                                                                    \
  X(TREE_LL, "tree_ll")                                                                            \
  X(TREE_LL128, "tree_ll128")                                                                      \
  X(TREE_SIMPLE, "tree_simple")                                                                    \
  X(NVLS, "nvls")                                                                                  \
  X(NVLS_TREE, "nvls_tree")                                                                        \
  X(PAT, "pat")                                                                                    \
  X(P2P, "p2p")

typedef enum {
#define X(name, key) LINE_##name,
  PROTOCOL_LINES(X)
#undef X
      LINE_COUNT
} ProtocolLineId;

/* Keys, NULL-terminated, in the order of the enum. */
extern const char *const protocol_line_keys[];

/* Of a link inside a node, or of the network. */
typedef struct {
  gboolean present;
  double base_ns;     /* of any collective that uses the link */
  double hop_ns;      /* of each step over it */
  double bandwidth;   /* fraction of the link's bus bandwidth; 0 counts as all of it */
  double busbw_max;   /* bytes per second of bus bandwidth, whatever the link; 0: no limit */
  double pipeline_ns; /* k a of a pipeline of k steps that take a each, see collective.h */
} ProtocolLine;

/* Reads the object `key` of the reader, which has an object for each line it speaks of: a new line
 * of lines[] where there was none (its keys base_us, hop_us and bandwidth are required), else what
 * it changes. */
void protocol_lines_read(JsonReader *reader, const char *key, ProtocolLine lines[LINE_COUNT]);

#endif
