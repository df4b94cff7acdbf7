/* peak_story_parts.h - the parts of a PeakStory that have files of their own; only peak_story*.c
 * include this. */
#ifndef HIGHWATER_REPORT_PEAK_STORY_PARTS_H
#define HIGHWATER_REPORT_PEAK_STORY_PARTS_H

#include "report/peak_story.h"

/* Fills rows from tensors (peak_story_rows.c). */
void peak_story_rows(PeakStory *story);
/* Fills groups from tensors (peak_story_groups.c). */
void peak_story_groups(PeakStory *story);

/* Is it a copy that something made to keep full parameters beyond their time? */
gboolean peak_story_is_clone(const PeakStory *story, const StoryTensor *tensor);

#endif
