/* program_fold.h - recognises that two consecutive lists of a Program are the same step under other
 * names. */
#ifndef HIGHWATER_PROGRAM_PROGRAM_FOLD_H
#define HIGHWATER_PROGRAM_PROGRAM_FOLD_H

#include "program/program.h"

/* Lengths of the tables that grow with every step. */
typedef struct {
  guint storages, tensors, operands;
  int events;
} FoldMark;

FoldMark program_fold_mark(const Program *program);

/* Compares the last list with its predecessor.  When repeating the predecessor, with its carries,
 * does what the last list did, and can go on doing so for ever: drops the last list and every row
 * beyond mark (taken before the last list began), stores the carries in the predecessor and returns
 * TRUE.  Else the program is unchanged. alive: for each storage before mark, whether it was
 * allocated when the last list began. */
gboolean program_fold_last_list(Program *program, FoldMark mark, const guint8 *alive);

/* The same, but the last list stays, for others that follow it: its predecessor runs so many steps
 * more, which are added, and the last list's own step is to be added after them. */
gboolean program_fold_before_last_list(Program *program, FoldMark mark, const guint8 *alive,
                                       int times);

#endif
