/* report_fixture.h - a Recording of two steps, made by hand, whose reports can be worked out on
 * paper; the arithmetic is in report_fixture.c. */
#ifndef HIGHWATER_TESTS_REPORT_FIXTURE_H
#define HIGHWATER_TESTS_REPORT_FIXTURE_H

#include "record/recording.h"
#include "report/run_info.h"

/* Both to be freed by the caller. */
Recording *fixture_recording(void);
RunInfo *fixture_info(void);

/* Makes memory run out in step 2: a segment of 600 MiB is asked for while 100 are not reserved. */
void fixture_run_out_of_memory(Recording *recording);

#endif
