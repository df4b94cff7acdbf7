/* summary.h - one run as figures: everything that the text and the JSON report say, computed once.
 *
 * A pure function of a Recording and a RunInfo.  Times are nanoseconds, sizes bytes; moments count
 * from the start of the recording.  The model borrows strings and arrays from both, which must
 * outlive it. */
#ifndef HIGHWATER_REPORT_SUMMARY_H
#define HIGHWATER_REPORT_SUMMARY_H

#include <glib.h>

#include "record/recording.h"
#include "report/critical_path.h"
#include "report/run_info.h"

/* How many tensors "largest" names. */
#define SUMMARY_LARGEST 10

typedef enum { VERDICT_FITS, VERDICT_FITS_WITH_RETRIES, VERDICT_DOES_NOT_FIT } Verdict;
typedef enum { BOUND_COMPUTE, BOUND_COMMUNICATION, BOUND_RANKS, BOUND_HOST } Bound;

typedef struct {
  const char *name; /* zero_grad, forward, backward, clip, optimizer */
  int micro_batch;  /* from 0 */
  SimTime start, end;
  gint64 peak_allocated, peak_reserved, end_allocated;
} PhaseSummary;

typedef struct {
  int index;         /* from 1 */
  gboolean complete; /* FALSE: memory ran out in it */
  SimTime start;     /* when its time begins to count: at the end of its predecessor */
  SimTime duration;
  gint64 peak_allocated, peak_reserved, allocator_retries;
  GArray *phases; /* PhaseSummary */
} StepSummary;

/* A phase beyond the steps: load, evaluate, save. */
typedef struct {
  const char *name;
  int after_step;          /* 0: the construction */
  gboolean complete;       /* FALSE: memory ran out in it */
  SimTime start, duration; /* until all that it issued is done */
  gint64 start_allocated, peak_allocated, peak_reserved, end_allocated;
  const PhaseInfo *info; /* NULL: not known */
} BeyondSummary;

/* Bytes at the peak under one module path, cut after its first number: "model.layers.3", "lm_head".
 */
typedef struct {
  char *module; /* "" when the memory belongs to no module */
  gint64 bytes;
} ModuleBytes;

/* The step's time is compute + exposed + rank_wait + host_bound: moments when the compute stream is
 * busy; when it is not and a collective runs; when neither, and one waits for other ranks; and the
 * rest. */
typedef struct {
  gboolean known;    /* FALSE: no step was completed; the rest is 0 */
  gboolean is_split; /* FALSE: the recording has no spans of the step; compute and so on are 0 */
  SimTime step, compute, communication; /* communication: at least one collective runs */
  SimTime exposed, rank_wait, host_bound;
  SimTime contention; /* of the step: what spans on its critical path took longer than alone */
  SimTime compute_contention; /* of compute: the same of all kernels on the compute stream */
  SimTime rate_limited;       /* the compute stream is idle since a rate limiter held the host up */
  SimTime allocator;   /* the compute stream is idle while the host is in cudaMalloc or cudaFree */
  double tokens_per_s; /* of this rank; 0: not known */
  double mfu, hfu;     /* fractions; 0: not known */
  Bound bound;         /* by the largest of the four shares */
} TimeSummary;

/* Copies between the device and the host's memory. */
typedef struct {
  gint64 count, bytes;
  SimTime time; /* sum of their durations */
} CopySummary;

typedef struct {
  const char *communicator, *collective;
  const CommunicatorInfo *info; /* NULL: not known */
  gint64 count, bytes;          /* bytes: of all of them together, each as nccl-tests counts it */
  SimTime time,
      exposed;        /* time: sum of their durations; exposed: while the compute stream is idle */
  SimTime contention; /* of time: what kernels and other collectives beside them added */
} CommunicationSummary;

/* A group's way through the first micro-batch's forward or backward. */
typedef struct {
  SimTime compute;   /* of its modules' kernels on the compute stream, recomputation included */
  gboolean gathered; /* FALSE: its parameters were there already; the rest is 0 */
  SimTime gather;    /* duration of its all-gather */
  SimTime begun;     /* when it began */
  SimTime needed;    /* when the compute stream had done everything before it */
  SimTime ready;     /* when the gather was done; the stream waited if this is later */
  SimTime window;    /* from when it began until it was needed: what of it that is can hide */
} GroupPass;

typedef struct {
  const GroupInfo *info;
  int all_gathers, reduce_scatters; /* in the step */
  GroupPass forward, backward;
} GroupSummary;

typedef struct {
  const Recording *recording;
  const RunInfo *info;

  gboolean is_simulated; /* FALSE: nothing is known but the recording, which was measured */
  gboolean has_memory;   /* FALSE: the recording is of time alone; sizes are 0 */
  Verdict verdict;
  gint64 allocator_retries; /* of all steps */
  gint64 peak_allocated, peak_reserved, headroom;
  GArray *modules_at_peak; /* ModuleBytes, largest first */

  GArray *beyond; /* BeyondSummary */
  GArray *steps;  /* StepSummary; the last may be incomplete */
  int last_step;  /* position in steps of the last complete one, or -1: time, communication,
                     copies and groups are of it */
  TimeSummary time;
  GArray
      *communication; /* CommunicationSummary, by communicator and collective as they first ran */
  CriticalPath *path; /* of the last complete step; NULL: not known */
  CopySummary copies;
  GArray *groups;      /* GroupSummary, parallel to info->groups */
  GPtrArray *warnings; /* char * */
} ReportModel;

ReportModel *report_model_new(const Recording *recording, const RunInfo *info);
/* The same with that step (its index) in the place of the last complete one; without any when it is
 * not complete. */
ReportModel *report_model_of_step(const Recording *recording, const RunInfo *info, int step);
void report_model_free(ReportModel *model);
G_DEFINE_AUTOPTR_CLEANUP_FUNC(ReportModel, report_model_free)

/* "fits", "fits_with_retries", "does_not_fit"; "compute", "communication", "ranks", "host". */
const char *report_verdict_name(Verdict verdict);
const char *report_bound_name(Bound bound);

/* The last complete step, or NULL. */
const StepSummary *report_model_last_step(const ReportModel *model);

/* Whether it says where the host was at the peak; a measured recording need not. */
gboolean report_model_knows_place(const ReportModel *model);

/* Appends where the host was: "step 2, backward of layers.3", "construction"; "outside of steps" in
 * a recording that has neither steps nor a construction. */
void report_append_place(const Recording *recording, int step, gint32 phase, gint32 module,
                         GString *out);

/* Out of memory in one line: where, what asked for how much, how much there was.  NULL when it did
 * not happen.  Caller frees. */
char *report_model_out_of_memory(const ReportModel *model);

/* Text of a string id of the recording; `otherwise` (may be NULL) when there is none. */
const char *report_text(const Recording *recording, gint32 id, const char *otherwise);

#endif
