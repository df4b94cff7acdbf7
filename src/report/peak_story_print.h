/* peak_story_print.h - a PeakStory for people and for programs, and why a run does not fit. */
#ifndef HIGHWATER_REPORT_PEAK_STORY_PRINT_H
#define HIGHWATER_REPORT_PEAK_STORY_PRINT_H

#include <cjson/cJSON.h>

#include "report/peak_story.h"
#include "report/summary_text.h"

/* Appends tables of who is alive, of what came last, and of gathered groups.  when: "at the peak".
 */
void peak_story_text(const PeakStory *story, const char *when, const TextStyle *style,
                     GString *out);
/* An object with all of it, the tensors one by one; the caller owns it. */
cJSON *peak_story_json(const PeakStory *story);

/* Why memory runs out. */
typedef struct {
  const OutOfMemoryRecord *record;
  gint64 left;     /* of the limit, not reserved */
  gint64 short_by; /* segment_bytes - left */
  gint64 idle;     /* reserved and not allocated */
} FailureStory;

/* Of a recording in which it did.  The texts add what is outside of the allocator's limit. */
FailureStory failure_story(const Recording *recording);
void failure_story_text(const Recording *recording, GString *out);
cJSON *failure_story_json(const Recording *recording);

#endif
