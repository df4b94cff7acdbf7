/* numeric_order.h - which of those that can go on does: an order of a numeric run. */
#ifndef HIGHWATER_NUMERIC_NUMERIC_ORDER_H
#define HIGHWATER_NUMERIC_NUMERIC_ORDER_H

#include "numeric/numeric_run.h"

/* Actors: a rank's streams, then its host; by rank. */
enum { NUMERIC_HOST = STREAM_COUNT, NUMERIC_PARTS = STREAM_COUNT + 1 };

typedef struct {
  double *priority; /* by actor: the highest of those that can go on does */
  int *sorted;      /* actors by falling priority */
  int actors;
  gboolean is_random;
  guint64 key, counter;
} NumericOrder;

/* config->order is not 0. */
void numeric_order_init(NumericOrder *order, const NumericConfig *config);
void numeric_order_clear(NumericOrder *order);
/* The actor at this place of the sorted ones has gone on. */
void numeric_order_moved(NumericOrder *order, int place);

#endif
