/* timeline_labels.h - where the name of each category has most room in a stacked timeline. */
#ifndef HIGHWATER_REPORT_TIMELINE_LABELS_H
#define HIGHWATER_REPORT_TIMELINE_LABELS_H

#include "record/recording.h"

typedef struct {
  SimTime time;           /* middle of three sixteenths of the time shown */
  gint64 lowest, highest; /* over all of it the category's area reaches at least from one to the
                             other; lowest >= highest: it is nowhere there so long */
} TimelineLabel;

/* Fills one for each Category.  Only what lies between the moments is looked at; categories are
 * stacked in their order from the bottom. */
void timeline_labels(const Recording *recording, SimTime from, SimTime to,
                     TimelineLabel labels[CATEGORY_COUNT]);

#endif
