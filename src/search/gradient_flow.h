/* gradient_flow.h - follows gradients through one step of a Program: from the kernels of backward
 * that make them, through copies, sums and collectives, to the optimizer's writes.
 *
 * Memory is followed by byte ranges.  A kernel that reads several ranges and writes one of as many
 * elements puts them in a row; where sizes do not tell, what it writes may hold all that it reads.
 * Storages that a Program names after a parameter hold that parameter's gradient alone. */
#ifndef HIGHWATER_SEARCH_GRADIENT_FLOW_H
#define HIGHWATER_SEARCH_GRADIENT_FLOW_H

#include "network/network.h"
#include "program/program.h"
#include "search/gradient_sets.h"

/* The optimizer writes memory of parameters. */
typedef struct {
  gint32 parameter; /* whose memory, or whose optimizer state, it is; -1: a buffer of several */
  gint32 state;     /* of which parameter the state beside it is named, or -1 */
  gint32 storage;
  gint64 begin, end;       /* bytes of it */
  gint64 elements;         /* that are updated */
  const GradientSet *from; /* of which gradients; NULL: of none */
  gboolean again;          /* these bytes were updated in this step before */
} GradientUpdate;

typedef struct {
  GradientSets *sets;
  GArray *updates;                                      /* GradientUpdate, in order */
  const GradientSet *scattered[GRADIENT_COMMUNICATORS]; /* by communicator: what its collectives
                                    reduced into other memory, added up; twice is once too often */
  const GradientSet *on_host; /* gradients in the host's memory when the optimizer begins */
  const GradientSet *left;    /* gradients in memory for them when the step ends */
  const GradientSet *made;    /* every gradient that backward was seen to make */
  gboolean optimizer_on_host; /* the optimizer works there: its writes name no memory */
} GradientFlow;

/* Follows a step's list. */
GradientFlow *gradient_flow_new(const Network *network, const Program *program, const OpList *list);
void gradient_flow_free(GradientFlow *flow);
G_DEFINE_AUTOPTR_CLEANUP_FUNC(GradientFlow, gradient_flow_free)

#endif
