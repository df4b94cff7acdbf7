/* verification_report.h - a report before anything has run. */
#ifndef HIGHWATER_SIMULATE_VERIFICATION_REPORT_H
#define HIGHWATER_SIMULATE_VERIFICATION_REPORT_H

#include "simulate/verification.h"
#include "simulate/verified_plan.h"

/* What is executed, by whom, and who owns what; steps and parameters are there, without numbers.
 * scaled: what was shrunk, may be empty.  verification_report_clear frees. */
void verification_report_begin(VerificationReport *report, const VerificationRequest *request,
                               const VerifiedPlan *plan, const char *scaled);

#endif
