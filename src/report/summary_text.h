/* summary_text.h - the report for people: one screen whose first lines answer. */
#ifndef HIGHWATER_REPORT_SUMMARY_TEXT_H
#define HIGHWATER_REPORT_SUMMARY_TEXT_H

#include "report/summary.h"

typedef struct {
  gboolean verbose; /* adds tables: steps and phases, largest tensors, modules, groups */
  gboolean colour;  /* ANSI colours on the verdict; nothing is told by colour alone */
  gboolean ascii;   /* no character beyond ASCII, for terminals that have none */
} TextStyle;

/* Appends the report to out. */
void summary_text(const ReportModel *model, const TextStyle *style, GString *out);

/* Its first lines alone: does it fit, where is the peak, how long is a step. */
void summary_text_answer(const ReportModel *model, const TextStyle *style, GString *out);

#endif
