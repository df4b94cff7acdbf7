/* rank_classes.h - which ranks are alike in all that the simulation can tell, so that one stands
 * for all of its class, and where the classes meet. */
#ifndef HIGHWATER_EXEC_RANK_CLASSES_H
#define HIGHWATER_EXEC_RANK_CLASSES_H

#include <glib.h>

/* A meeting is a communicator's group as the classes see it: those that have a rank in it. */
typedef struct {
  int meeting; /* number, from 0 */
  int party;   /* the class's place in it, from 0 */
} ClassSeat;

typedef struct {
  int n;         /* classes */
  int ranks;     /* that they stand for */
  int *class_of; /* of each rank */
  int *first;    /* of each class, its lowest rank */
  int *count;    /* and how many it has */
  int communicators;
  ClassSeat *seats; /* of class c in communicator k: seats[c * communicators + k] */
  GArray *meetings; /* int: parties of each */
} RankClasses;

/* Divides the ranks 0..ranks-1.  Ranks of different colours (numbers >= 0, one each) are different;
 * ranks of one colour are too when classes that they meet differ, down to where that settles.
 * communicators: Communicator of a Program. */
RankClasses *rank_classes_new(int ranks, const int *colours, const GArray *communicators);
void rank_classes_free(RankClasses *classes);
G_DEFINE_AUTOPTR_CLEANUP_FUNC(RankClasses, rank_classes_free)

#endif
