/* rank_set.h - sets of global ranks, kept as runs: "0-2, 4-6". */
#ifndef HIGHWATER_PROGRAM_RANK_SET_H
#define HIGHWATER_PROGRAM_RANK_SET_H

#include <glib.h>

/* Ranks first, first + 1, ... last. */
typedef struct {
  int first, last;
} RankRun;

typedef struct {
  GArray *runs; /* RankRun, ascending, with gaps between; NULL: the empty set */
} RankSet;

/* Adds a rank above all that are in it. */
void rank_set_append(RankSet *set, int rank);
/* Adds ranks above all that are in it, not next to them. */
void rank_set_append_run(RankSet *set, RankRun run);
void rank_set_clear(RankSet *set);
gint64 rank_set_size(const RankSet *set);
gboolean rank_set_contains(const RankSet *set, int rank);
/* "rank 3", "ranks 0-2, 4", "ranks 0, 8, 16, 24, ... (1024 ranks)"; "no rank".  Caller frees. */
char *rank_set_text(const RankSet *set);

#endif
