/* numeric_collective.h - what a collective does to its members' operands. */
#ifndef HIGHWATER_NUMERIC_NUMERIC_COLLECTIVE_H
#define HIGHWATER_NUMERIC_NUMERIC_COLLECTIVE_H

#include "numeric/numeric_tensor.h"

/* One member's part, in the order of their places. */
typedef struct {
  NumericTensor *operand;
  int operands;
} CollectiveMember;

/* The place of a global rank in its group of a communicator, and the global rank of a place. */
int numeric_place_in(const Communicator *communicator, int rank);
int numeric_rank_at(const Communicator *communicator, int rank, int place);

typedef struct {
  const Program *program;
  const Collective *collective;
  gboolean rounds; /* reductions add up as a ring does, in their operands' dtype; else exactly */
} CollectiveCall;

/* Computes on what is loaded of all members.  NULL, or why it cannot: a line; caller frees. */
char *numeric_collective(const CollectiveCall *call, CollectiveMember *members, int n);

#endif
