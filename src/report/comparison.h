/* comparison.h - where two runs differ: peaks and times, category by category, the first allocation
 * and the first collective that are not the same, kernels by name and by module.
 *
 * A pure function of two ReportModels, which must outlive it: simulated or measured, in any
 * combination.  What one of them does not record is not compared.  B is compared with A:
 * differences are B less A, and relative to A. */
#ifndef HIGHWATER_REPORT_COMPARISON_H
#define HIGHWATER_REPORT_COMPARISON_H

#include "report/summary.h"

enum { SIDE_A, SIDE_B, SIDES };

typedef enum { FIGURE_BYTES, FIGURE_TIME, FIGURE_COUNT } FigureUnit;

/* One number of both.  Times and what is counted are of the step that is compared. */
typedef struct {
  const char *key; /* "peak_allocated"; static */
  FigureUnit unit; /* bytes, ns */
  gboolean known[SIDES];
  gint64 value[SIDES]; /* 0 where it is not known */
} FigureComparison;

#define COMPARISON_FIGURES 14

/* Of which steps the allocations are compared.  AUTO: ALL where both were simulated or both
 * measured and both begin with a construction, or neither has steps; else ONE. */
typedef enum {
  COMPARE_AUTO,
  COMPARE_ONE, /* the step whose times are compared */
  COMPARE_ALL, /* steps of the same index, the construction first */
} ComparedSteps;

/* How the events of one side come together again with the other's behind the first difference. */
typedef enum {
  MEMORY_SAME,
  MEMORY_CHANGED, /* so many events of one are so many others */
  MEMORY_ONLY_A,  /* one has so many events more */
  MEMORY_ONLY_B,
  MEMORY_APART, /* they do not, or not soon */
} MemoryVerdict;

/* Events of the allocator, in order: allocations and frees. */
typedef struct {
  gboolean known;     /* both have events of steps that correspond */
  gboolean all_steps; /* those of the same index stand for each other; FALSE: one of each */
  gboolean by_category, by_module;
  /* what both tell, so it must be the same as well as the size */
  int first[SIDES], last[SIDES]; /* steps that were compared; 0: the construction */
  guint events[SIDES];           /* in them */
  MemoryVerdict verdict;
  /* The first difference: in which step, how many events of it were the same before, the index into
   * Recording.memory, -1 when the step has no more events. */
  int step[SIDES];
  guint position;
  gint64 event[SIDES];
  guint count; /* of CHANGED and ONLY_*: events in a row */
  /* Allocations that have no partner of the same size (category, module) on the other side,
   * whatever the order. */
  guint unmatched[SIDES];
  gint64 unmatched_bytes[SIDES];
} MemoryComparison;

/* Collectives of one kind, by communicator where both call these alike. */
typedef struct {
  char *communicator; /* NULL: of all together */
  const char *kind;   /* "all_gather" */
  gint64 count[SIDES], bytes[SIDES];
  SimTime time[SIDES]; /* sum of durations */
} LaneComparison;

/* Two collectives that stand for each other, or one that has no other. */
typedef struct {
  int lane;           /* position in lanes; -1: there is none */
  guint position;     /* in the lane, from 0 */
  gint64 span[SIDES]; /* index into Recording.spans; -1: missing */
} CollectivePair;

/* What kernels of one name, or of one block of modules, take together. */
typedef struct {
  char *name;
  gint64 count[SIDES];
  SimTime time[SIDES];
} KernelComparison;

typedef struct {
  const ReportModel *models[SIDES];
  int step[SIDES]; /* index of the step whose times are compared; 0: a side has none */
  FigureComparison figures[COMPARISON_FIGURES];
  gboolean has_categories; /* both know more of the peak than its size */
  gint64 categories[SIDES][CATEGORY_COUNT];
  MemoryComparison memory;
  int step_differs;   /* position in both's steps of the first that is not the same in time
                         and peaks, where all correspond; -1: none */
  gboolean has_spans; /* both record what the device did in the step */
  GArray *lanes;      /* LaneComparison, in order of A's first ones, then B's */
  CollectivePair first_differs; /* in bytes, in the group that it serves, or missing */
  CollectivePair slowest;       /* whose durations differ most */
  GArray *kernels, *modules; /* KernelComparison, the largest difference in time first; empty where
                                names have nothing in common, or there are none */
  gboolean comparable;       /* there is something that both record */
  gboolean same;             /* all that both record is, to the byte and the nanosecond */
} Comparison;

/* The last complete steps of both are compared, or those that report_model_of_step() chose. */
Comparison *comparison_new(const ReportModel *a, const ReportModel *b, ComparedSteps steps);
void comparison_free(Comparison *comparison);
G_DEFINE_AUTOPTR_CLEANUP_FUNC(Comparison, comparison_free)

/* Key and unit of figure i of COMPARISON_FIGURES. */
const char *comparison_figure_key(int i, FigureUnit *unit);
/* The figure of that key, or NULL. */
const FigureComparison *comparison_figure(const Comparison *comparison, const char *key);
/* Whether both know it. */
gboolean figure_is_known(const FigureComparison *figure);
/* |B - A| / A; 0 when they are equal, infinite when A alone is 0. */
double figure_error(const FigureComparison *figure);

/* "all_gather" of "ncclDevKernel_AllGather_RING_LL(...)", "_allgather_base" and "all_gather"; the
 * name itself, which must outlive the result, when it is of no collective that is known. */
const char *comparison_collective_kind(const char *name);

#endif
