/* state_image.h - the numbers of a model's state as ranks hold them: what a checkpoint is made of,
 * and what each rank reads of one.
 *
 * Which rank has which elements says a StateLayout, and the way from one to another range_map(): a
 * mistake there puts other numbers, or none, where the model's are. */
#ifndef HIGHWATER_SIMULATE_STATE_IMAGE_H
#define HIGHWATER_SIMULATE_STATE_IMAGE_H

#include "strategy/range_map.h"

/* What the state consists of, for each element. */
typedef enum { IMAGE_VALUE, IMAGE_FIRST, IMAGE_SECOND, IMAGE_KINDS } ImageKind;

/* A range that a rank holds.  NaN: nobody has said what is there. */
typedef struct {
  StateRange range;
  double *values[IMAGE_KINDS];
  int written; /* the step that wrote it last; 0: none did */
} StatePart;

typedef struct {
  const StateLayout *layout; /* borrowed */
  GPtrArray *parts;          /* by global rank: GArray of StatePart, in the layout's order */
  int updates;               /* the optimizer's count of steps, which is state too */
} StateImage;

/* Of so many global ranks, nothing known yet; rank r holds what the layout's rank r % layout->ranks
 * does. */
StateImage *state_image_new(const StateLayout *layout, int ranks);
StateImage *state_image_copy(const StateImage *image);
void state_image_free(StateImage *image);
G_DEFINE_AUTOPTR_CLEANUP_FUNC(StateImage, state_image_free)

/* The part of a rank in which an element is; NULL: it does not hold that. */
StatePart *state_image_part(const StateImage *image, int rank, int parameter, gint64 element);
/* Elements of a range that the rank holds; elsewhere nothing happens.  step: the one that wrote
 * them. */
void state_image_write(StateImage *image, int rank, StateRange range, ImageKind kind,
                       const double *from, int step);

/* How a checkpoint is read. */
typedef struct {
  int lost; /* a global rank whose part is not there, others may have it too; -1: none */
  /* Changes what a rank reads (StateRead), for tests of what is found; NULL: nothing. */
  void (*change)(GArray *reads, int rank, gconstpointer how);
  gconstpointer how;
} StateReading;

/* What each of so many ranks of another layout, borrowed, gets of an image; of replicas the one
 * whose part was written last is read.  What nobody has is NaN. */
StateImage *state_image_read(const StateImage *from, const StateLayout *layout, int ranks,
                             const StateReading *reading);

#endif
