/* peak_story.h - why memory is as high as it is at a moment: who is alive, what holds it and until
 * when, what came last, which gathered groups are there together.
 *
 * A pure function of a Recording and a RunInfo, which it borrows.  Sizes are bytes, rounded as the
 * allocator hands them out, so they add up to what is allocated. */
#ifndef HIGHWATER_REPORT_PEAK_STORY_H
#define HIGHWATER_REPORT_PEAK_STORY_H

#include "report/host_places.h"
#include "report/run_info.h"

/* A tensor that is alive. */
typedef struct {
  guint birth;  /* the memory event that allocates it */
  gint64 death; /* the one that frees it; -1: none does in this recording */
  gint64 bytes;
  guint8 category;
  gint32 module, what;   /* string ids */
  gboolean is_new;       /* it came since the previous high */
  const char *holder;    /* static: "saved for backward" */
  HostPlace made, freed; /* freed: only if death >= 0 */
  guint row;             /* index into rows */
} StoryTensor;

/* Tensors that are alike but for the number of their block. */
typedef struct {
  char *name; /* "mul of layers.0-30.feed_forward"; never empty */
  guint8 category;
  int count;
  gint64 bytes, new_bytes; /* new_bytes: of those that are new */
  const char *holder;
  char *until; /* "backward of layers.0-30", "end of the run" */
} StoryRow;

/* What a group's gathered parameters are there for. */
typedef enum {
  GATHERED_IN_USE,    /* its modules compute now */
  GATHERED_AHEAD,     /* none has computed yet: prefetched */
  GATHERED_BETWEEN,   /* they have, and will again: it is not resharded in between */
  GATHERED_DONE,      /* they have, and will not again: it waits to be freed */
  GATHERED_RETAINED,  /* something else refers to it */
  GATHERED_IN_FLIGHT, /* only the all-gather's own buffers: its result is not copied out yet */
  GATHERED_ROLES
} GatheredRole;
/* "in use", "gathered ahead", ... */
extern const char *const gathered_role_names[GATHERED_ROLES];

typedef struct {
  const GroupInfo *info;
  GatheredRole role;
  gint64 parameter_bytes;  /* unsharded parameters */
  gint64 buffer_bytes;     /* of its all-gather */
  const char *retained_by; /* NULL: nothing keeps it */
  gint64 death;            /* the last event that frees any of it; -1: none */
} GatheredGroup;

typedef struct {
  const Recording *recording;
  const Recording *levels; /* has the sizes: the same, or one that memory ran out in */
  const RunInfo *info;
  HostPlaces *places;
  guint events;    /* it is told after so many memory events */
  HostPlace place; /* where the host is then */
  gint64 allocated, reserved;
  gint64 categories[CATEGORY_COUNT]; /* add up to allocated */
  GArray *tensors;                   /* StoryTensor, largest first; they add up to allocated */
  GArray *rows;                      /* StoryRow, largest first */
  gint64 high_event;   /* the memory event of the previous high, -1: memory has only risen */
  gint64 high, valley; /* allocated there, and the least between it and this moment */
  gint64 came, went;   /* since then: allocated - high is came - went */
  GArray *groups;      /* GatheredGroup, in the order of info->groups */
  GArray *cached; /* gint64 per stream: bytes reserved and not allocated; empty when the recording
                     does not tell */
} PeakStory;

/* Memory events that led to the peak: the last of them is the highest.  0: it has no events. */
guint peak_story_peak_events(const Recording *recording);

/* The story after the first `events` memory events (> 0). */
PeakStory *peak_story_new(const Recording *recording, const RunInfo *info, guint events);
/* The story of the moment when memory ran out in `ended`, which has memory events.  recording: a
 * run that begins with the same allocations and goes on, which says until when they live. */
PeakStory *peak_story_new_failure(const Recording *recording, const RunInfo *info,
                                  const Recording *ended);
void peak_story_free(PeakStory *story);
G_DEFINE_AUTOPTR_CLEANUP_FUNC(PeakStory, peak_story_free)

#endif
