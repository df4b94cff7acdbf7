/* program_totals.h - sums over a Program: what stays alive, what is sent. */
#ifndef HIGHWATER_PROGRAM_PROGRAM_TOTALS_H
#define HIGHWATER_PROGRAM_PROGRAM_TOTALS_H

#include "program/program.h"

/* Bytes on the device, as requested, that are alive after the construction and all steps, by
 * category. */
void program_bytes_alive(const Program *program, gint64 bytes[CATEGORY_COUNT]);
/* The same in the host's memory, page-locked and pageable. */
void program_host_bytes_alive(const Program *program, gint64 *pinned, gint64 *pageable);
/* Bytes of a category, in all spaces together, after the construction and `steps` steps. */
gint64 program_category_bytes(const Program *program, int steps, Category category);
/* Elements that the collectives of a step's list send among several ranks, as ZeRO's paper counts
 * them (arXiv 1910.02054, section 7): an all-reduce is a reduce-scatter and an all-gather, each of
 * which moves what it reduces or gathers once. */
double program_elements_sent(const Program *program, const OpList *list);

/* Bytes that a phase beyond the step moves: collectives as nccl-tests counts them, copies between
 * device and host. */
typedef struct {
  gint64 communicated, copied;
} ProgramBeyond;

/* Sums over the first range of this name of kind RANGE_BEYOND in the list; FALSE when there is
 * none. */
gboolean program_beyond_bytes(const Program *program, const OpList *list, const char *name,
                              ProgramBeyond *bytes);

#endif
