/* gradient_sets.h - what a piece of memory holds of which parameters' gradients: from which
 * micro-batches, how often added, and over which communicators reduced.
 *
 * Values: a set never changes once it is made, so that many pieces of memory can share it. */
#ifndef HIGHWATER_SEARCH_GRADIENT_SETS_H
#define HIGHWATER_SEARCH_GRADIENT_SETS_H

#include <glib.h>

/* Communicators that are told apart; a Program has two or three. */
enum { GRADIENT_COMMUNICATORS = 8 };

/* One micro-batch's part of a parameter's gradient. */
typedef struct {
  gint32 micro_batch;                        /* from 0 */
  guint8 times;                              /* how often it was added: 1 is right */
  gboolean mixed;                            /* other parts of the parameter have another history */
  guint8 reductions[GRADIENT_COMMUNICATORS]; /* by communicator */
  guint8 kind[GRADIENT_COMMUNICATORS];       /* CollectiveKind of the last one */
} GradientShare;

/* All shares of one parameter; those of a micro-batch once, in order. */
typedef struct {
  gint32 parameter;
  const GArray *shares; /* GradientShare */
} GradientPart;

/* Parts in the order of their parameters. */
typedef struct {
  GArray *parts; /* GradientPart */
} GradientSet;

/* Where sets live. */
typedef struct _GradientSets GradientSets;

GradientSets *gradient_sets_new(void);
void gradient_sets_free(GradientSets *sets);
G_DEFINE_AUTOPTR_CLEANUP_FUNC(GradientSets, gradient_sets_free)

/* What backward has just made: one micro-batch's gradient of a parameter, not reduced. */
const GradientSet *gradient_sets_source(GradientSets *sets, gint32 parameter, int micro_batch);
/* Both beside each other.  A parameter of both whose histories differ is mixed.  Either may be
 * NULL: nothing. */
const GradientSet *gradient_sets_join(GradientSets *sets, const GradientSet *a,
                                      const GradientSet *b);
/* b added to a: a micro-batch that both have was added twice. */
const GradientSet *gradient_sets_add(GradientSets *sets, const GradientSet *a,
                                     const GradientSet *b);
/* Reduced once more over a communicator, by a collective of that kind. */
const GradientSet *gradient_sets_reduce(GradientSets *sets, const GradientSet *set,
                                        int communicator, int kind);
/* One parameter's part as a set; NULL: it has none. */
const GradientSet *gradient_sets_only(GradientSets *sets, const GradientSet *set, gint32 parameter);
/* A parameter's part of a set, or NULL; set may be NULL. */
const GradientPart *gradient_set_find(const GradientSet *set, gint32 parameter);

#endif
