/* numeric_rank.h - one rank of a numeric run: its host, which issues, its streams and its memory.
 */
#ifndef HIGHWATER_NUMERIC_NUMERIC_RANK_H
#define HIGHWATER_NUMERIC_NUMERIC_RANK_H

#include "numeric/numeric_memory.h"
#include "numeric/numeric_run.h"
#include "numeric/numeric_stream.h"

/* A moment of a stream: so many of its tasks. */
typedef struct {
  int stream; /* -1: none */
  guint64 position;
} Moment;

typedef struct {
  const NumericConfig *config;
  const Program *program;
  int rank;
  NumericMemory *memory;
  NumericStream streams[STREAM_COUNT];
  Moment *events;      /* by event: its last record */
  guint64 *sequence;   /* by communicator: collectives issued */
  GArray *batch;       /* gint32: storages of the construction that batches come in */
  GHashTable *batches; /* how many of the step's have come, by name */
  const OpList *list;
  guint next; /* op of the list */
  int step;   /* of the Program; 0: construction */
  int micro_batch;
  double number[HOST_NUMBERS]; /* that the host has in hand (numeric_numbers.c) */
  gboolean in_backward;        /* the phase that the host is in */
  gint64 works[STREAM_COUNT];  /* that each stream has done since the first step */
  int interrupted;             /* ops that the interruption changed */
  Moment waits;                /* the host does, for this */
  const guint64 *clock;        /* of the run: how much has been done */
  char *first_unknown;         /* see NumericOutcome */
  guint64 unknown_at;
  gboolean drains; /* the host waits for all streams: the end of the construction */
  gboolean ended;
} NumericRank;

void numeric_rank_init(NumericRank *r, const NumericConfig *config, int rank);
void numeric_rank_clear(NumericRank *r);

/* The step of the training that the host is in; 0: construction. */
int numeric_rank_step(const NumericRank *r);
/* Can the host go on, or the stream?  A collective is asked about elsewhere: FALSE. */
gboolean numeric_rank_can_issue(const NumericRank *r);
gboolean numeric_rank_can_run(const NumericRank *r, int stream);
/* The stream's next task is done. */
void numeric_rank_pop(NumericRank *r, int stream);
/* Everything issued has run. */
gboolean numeric_rank_is_idle(const NumericRank *r);

/* The op that the host comes to next; NULL: the list is over. */
const ProgramOp *numeric_rank_next(const NumericRank *r);
/* The host issues one op, or goes on to the next step.  FALSE and error. */
gboolean numeric_rank_issue(NumericRank *r, GError **error);
/* The stream runs its next task, which is no collective.  FALSE and error. */
gboolean numeric_rank_run(NumericRank *r, int stream, GError **error);
/* Runs a kernel, or what the host computes, at once.  FALSE and error. */
gboolean numeric_rank_run_kernel(NumericRank *r, const NumericTask *task, GError **error);

/* A block that nothing has run on gets the first values of the parameters that it holds, and zeros
 * beside them; nothing for one that holds none. */
void numeric_rank_initialize(const NumericRank *r, NumericBlock *block);
/* A task's operands as they are now, and back: only those that are written. */
NumericTensor *numeric_rank_load(const NumericRank *r, const NumericTask *task);
void numeric_rank_store(const NumericRank *r, const NumericTask *task, NumericTensor *operands);
/* Frees what numeric_rank_load gave. */
void numeric_rank_unload(const NumericTask *task, NumericTensor *operands);
/* "mm = mm_grad_first of layers.0.wq", "reduce_scatter of layers.0"; caller frees. */
char *numeric_op_text(const Program *program, const ProgramOp *op);
/* Notes that a task has made a NaN from this operand (-1: from what the host has), unless an
 * earlier one has. */
void numeric_rank_note_unknown(NumericRank *r, const NumericTask *task, int from);
/* Does any element have no value? */
gboolean numeric_is_unknown(const double *data, gint64 elements);
/* "rank 1, step 2, layers.0.attention": puts where it was before an error's message. */
void numeric_rank_locate(const NumericRank *r, const NumericPlace *place, GError **error);

#endif
