/* chrome_trace.h - a run as a trace in Chrome's JSON format, with the names and categories that
 * PyTorch's profiler uses, for Perfetto and for tools that read its traces. */
#ifndef HIGHWATER_REPORT_CHROME_TRACE_H
#define HIGHWATER_REPORT_CHROME_TRACE_H

#include "record/recording.h"
#include "report/run_info.h"

/* Appends the document to out: the host's ranges and launches, a track for each stream and each
 * communicator, flows from launches to what they launch, counters "allocated", "reserved" and
 * "by category" in bytes.  Spans are those that the recording keeps. */
void chrome_trace(const Recording *recording, const RunInfo *info, GString *out);

#endif
