/* report_output.h - how a report looks where it is read. */
#ifndef HIGHWATER_CLI_REPORT_OUTPUT_H
#define HIGHWATER_CLI_REPORT_OUTPUT_H

#include "report/summary_text.h"

/* The style of a text; plain: for a file, without colour.  On a terminal it is coloured unless
 * $NO_COLOR asks for none (https://no-color.org). */
TextStyle report_style(gboolean verbose, gboolean plain);

#endif
