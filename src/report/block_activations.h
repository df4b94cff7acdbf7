/* block_activations.h - what each block of a network keeps between its forward and its backward,
 * read from a lowered Program.
 *
 * The Program says when the simulated step allocates and frees, so nothing here is a formula.  At
 * the end of the first micro-batch's forward Python's references are gone; what is alive then is
 * kept for backward.  A block keeps
 *  - the storages allocated in its range that are alive at that moment, apart from those that later
 * launches of forward read: these are its output, which is the next block's input;
 *  - its input, if that is alive: the first storage of this forward that a launch in its range
 * reads and that it did not allocate itself. Only storages of category `activation` count, which
 * every saved tensor has; each counts once, at its requested size. */
#ifndef HIGHWATER_REPORT_BLOCK_ACTIVATIONS_H
#define HIGHWATER_REPORT_BLOCK_ACTIVATIONS_H

#include "network/network.h"
#include "program/program.h"

/* Bytes by block (gint64), of the Program's first step.  program was lowered from network.  Caller
 * frees. */
GArray *block_activations(const Program *program, const Network *network);

#endif
