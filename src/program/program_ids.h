/* program_ids.h - whether every id and enum of a Program names something. */
#ifndef HIGHWATER_PROGRAM_PROGRAM_IDS_H
#define HIGHWATER_PROGRAM_PROGRAM_IDS_H

#include "program/program.h"

/* Checks every member of every table row and every argument and operand of every op against its
 * range, and that tensors lie within their storages.  What passes can be walked without further
 * care.  FALSE and error naming row or op. */
gboolean program_check_ids(const Program *program, GError **error);

#endif
