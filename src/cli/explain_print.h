/* explain_print.h - what explain says, for people and for programs. */
#ifndef HIGHWATER_CLI_EXPLAIN_PRINT_H
#define HIGHWATER_CLI_EXPLAIN_PRINT_H

#include "report/summary_text.h"
#include "search/explanation.h"
#include "search/oom_findings.h"

/* Of a run.  Caller frees. */
char *explain_run_text(const Explanation *explanation, const TextStyle *style);
char *explain_run_json(const Explanation *explanation);

/* Of a message about memory running out (explain_message.c).  Caller frees. */
char *explain_message_text(const OomMessage *message, const OomSearch *search,
                           const TextStyle *style);
char *explain_message_json(const OomMessage *message, const OomSearch *search);

#endif
